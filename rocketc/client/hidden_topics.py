"""The topics that a cluster has for itself: `admin topics` does not list them, and a `*` does not match them.

Knows the names; asks no server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocketc._layout import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX
from rocketc.client.routes import ClusterInfo
from rocketc.read.regex import limited
from rocketc.tables.topics import is_system_topic

_HIDDEN_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_PREFIX, "RMQ_SYS_")


def is_hidden(topic: str, cluster: ClusterInfo) -> bool:
    """Whether a topic is one of the system: for retries, dead letters, delayed and half messages, replies and so on.

    >>> nothing = ClusterInfo({}, {})
    >>> [is_hidden(topic, nothing) for topic in ("orders", "%DLQ%billing", "RMQ_SYS_TRANS_HALF_TOPIC")]
    [False, True, True]
    """
    return (
        is_system_topic(topic)
        or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        or topic in cluster.clusters
        or topic in cluster.brokers
        or any(topic == f"{name}_REPLY_TOPIC" for name in cluster.clusters)
    )


def matching_topics(
    patterns: Iterable[re.Pattern[str]], names: Iterable[str], cluster: ClusterInfo, *, all_topics: bool = False
) -> list[str]:
    """Return the names that match a pattern as a whole, in their order.

    all_topics  with those that are hidden. Otherwise only a pattern that begins as they do matches them: %DLQ%.*

    >>> names, nothing = ["%DLQ%billing", "orders"], ClusterInfo({}, {})
    >>> [matching_topics([re.compile(text)], names, nothing) for text in (".*", "%DLQ%.*", "%.*")]
    [['orders'], ['%DLQ%billing'], []]
    """
    patterns = list(patterns)
    explicit = [one for one in patterns if all_topics or one.pattern.startswith(_HIDDEN_PREFIXES)]
    return [
        name
        for name in names
        if any(limited(one.fullmatch, name) is not None for one in (explicit if is_hidden(name, cluster) else patterns))
    ]
