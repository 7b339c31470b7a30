"""The URLs that scan() gives to another package, by their schemes.

rocketc.read knows files. A package above it can add what else is scanned: `import rocketc` adds rocketmq://, the topics
of a cluster, and the client is imported when the first such URL is scanned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketc.files.remote import shown

CLUSTER = "rocketmq"  # the topics of a cluster

Factory = Callable[..., Any]

_factories: dict[str, Factory] = {}


def register(scheme: str, factory: Factory) -> None:
    """Let scan() give the URLs of a scheme to a function.

    factory  called with the URL, and with all other arguments of scan() by name; returns the Scan

    >>> import rocketc
    >>> register("a-record", lambda url, **arguments: rocketc.decode(rocketc.encode("orders", url.encode())))
    >>> [message.body for message in rocketc.scan("a-record://one")]
    [b'a-record://one']
    """
    _factories[scheme] = factory


def find_factory(paths: object) -> tuple[str, Factory] | None:
    """Return the URL among paths that is not one of files, and the function for it; None: all are files.

    paths  a path, or a list of paths
    Raises ValueError if such a URL is not the only path.

    >>> find_factory("/data/store"), find_factory(["s3://bucket/store"])
    (None, None)
    """
    given: list[object] = paths if isinstance(paths, list) else [paths]
    for one in given:
        if not isinstance(one, str):
            continue
        scheme, separator, _ = one.partition("://")
        if separator and scheme in _factories:
            if len(given) > 1:
                raise ValueError(f"{shown(one)}: a cluster can't be read together with other paths: scan each alone")
            return one, _factories[scheme]
    return None
