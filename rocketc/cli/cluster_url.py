"""Addresses in the place of paths: rocketmq://host:port for a server, rocketmq://host:port/topic for a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rocketc.files.remote import shown
from rocketc.read.schemes import CLUSTER

if TYPE_CHECKING:
    from rocketc.client.cluster_url import TopicUrl

SCHEME = f"{CLUSTER}://"


def is_cluster(path: str) -> bool:
    """Whether a path of the command line is an address of a cluster.

    >>> is_cluster("rocketmq://127.0.0.1:9876/orders"), is_cluster("/data/store")
    (True, False)
    """
    return path.startswith(SCHEME)


def only_cluster(paths: Sequence[str], *, patterns: bool = False) -> TopicUrl | None:
    """Return the cluster that the paths of a command line name; None: they name files. Raises click.UsageError.

    patterns  the command can read several topics
    """
    if not any(map(is_cluster, paths)):
        return None
    if len(paths) > 1:
        found = next(filter(is_cluster, paths))
        raise click.UsageError(f"{shown(found)}: a cluster can't be read together with other paths")
    from rocketc.client.cluster_url import topic_url  # late: commands on stores do not need the client

    try:
        return topic_url(paths[0], patterns=patterns)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
