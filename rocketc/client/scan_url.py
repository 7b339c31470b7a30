"""rocketc.scan() of a URL: the topics of a cluster in the place of the files of a store."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from typing import Any

from rocketc.client.access import access_to, check_group
from rocketc.client.cluster_url import SCHEME, topic_url
from rocketc.client.security import Credentials, Tls
from rocketc.client.topic_reader import TOOLS_CONSUMER
from rocketc.client.topic_scan import TopicScan
from rocketc.read.topics import Topic

# Arguments of scan() for files only: their defaults, and what to use for a cluster.
_BOUNDS = "each broker has a log of its own; use offsets, or begin and end"
_OF_FILES: dict[str, tuple[Any, str]] = {
    "start": (None, _BOUNDS),
    "stop": (None, _BOUNDS),
    "storage_options": (None, "use credentials and tls"),
    "partial": (False, "leave it out"),
    "unreadable": ("raise", "leave it out; errors is for damaged records"),
}


def scan_url(
    url: str,
    *,
    topics: Topic | Iterable[Topic] | None = None,
    credentials: Credentials | None = None,
    tls: bool | Tls | ssl.SSLContext = False,
    group: str | None = None,
    **options: Any,
) -> TopicScan:
    """Return the scan of the topics of a cluster. No server is asked before the scan is read.

    url      rocketmq://host:port/topic, see topic_url()
    topics   names and patterns, if the URL does not name a topic
    group    of the pulls; None: TOOLS_CONSUMER
    options  the other arguments of rocketc.scan(). Those for files must have their defaults
    Raises ValueError and TypeError for invalid arguments.

    >>> import rocketc
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one", tags="web")
    ...     [message.body for message in scan_url(f"rocketmq://{broker.name_server}/orders", tags="web")]
    [b'one']
    """
    for name, (default, instead) in _OF_FILES.items():
        if options.pop(name, default) != default:
            raise ValueError(f"{name} is for files of a log, not for a cluster: {instead}")
    where = topic_url(url, patterns=True)
    chosen = _checked(topics)
    if where.topics and chosen:
        raise ValueError(f"{url} names the topic already: leave out topics")
    if not where.topics and not chosen:
        raise ValueError(
            f"{url}: name the topic, as in {SCHEME}{where.name_server}/orders, or with topics=; "
            f"{SCHEME}{where.name_server}/* is all topics"
        )
    access = access_to(where.name_server, credentials, tls)
    for name in ("queues", "tags", "keys"):
        if isinstance(options.get(name), Iterable) and not isinstance(options[name], str):
            options[name] = tuple(options[name])  # it is read more than once
    return TopicScan(
        access, where.topics or chosen, group=TOOLS_CONSUMER if group is None else check_group(group), **options
    )


def _checked(topics: Topic | Iterable[Topic] | None) -> tuple[Topic, ...]:
    found = (topics,) if isinstance(topics, str | re.Pattern) else tuple(topics or ())
    for one in found:
        if not isinstance(one, str | re.Pattern):
            raise TypeError(f"topics: expected str or a compiled pattern, got {type(one).__name__}")
    return found
