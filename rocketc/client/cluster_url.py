"""URLs of clusters: rocketmq://host:port for name servers, rocketmq://host:port/topic for a topic."""

from __future__ import annotations

import re
from typing import NamedTuple

from rocketc.client.name_servers import name_server_addresses
from rocketc.files.remote import shown
from rocketc.read.schemes import CLUSTER
from rocketc.read.topics import Topic
from rocketc.remoting.addresses import split_address
from rocketc.tables.topics import topic_name_error

SCHEME = f"{CLUSTER}://"
ANY = "*"  # any text, in the topic of a URL. No topic has this character in its name


def is_address(text: str) -> bool:
    """Whether a text is host:port, with a port that a server can have.

    >>> is_address("[::1]:9876"), is_address("127.0.0.1:0"), is_address("me@host:9876")
    (True, False, False)
    """
    try:
        host, port = split_address(text)
    except ValueError:
        return False
    return bool(host) and 0 < port < 65536 and not any(char in host for char in "/@?# ")


class TopicUrl(NamedTuple):
    """A topic of a cluster, or the topics whose names match a pattern.

    name_server  host:port of the name servers, separated by `;`
    topic        None: the URL does not name exactly one
    pattern      of a URL such as rocketmq://host:port/orders*; it must match the whole name
    """

    url: str
    name_server: str
    topic: str | None
    pattern: re.Pattern[str] | None = None

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topic or the pattern; empty: the URL names neither.

        >>> topic_url("rocketmq://127.0.0.1:9876/orders").topics, topic_url("rocketmq://127.0.0.1:9876").topics
        (('orders',), ())
        """
        found = self.topic or self.pattern
        return () if found is None else (found,)


def topic_url(url: str, *, patterns: bool = False) -> TopicUrl:
    """Return the parts of a URL. Raises ValueError; its text does not have the password of a URL.

    patterns  a `*` in the topic matches any text

    >>> topic_url("rocketmq://10.0.0.1:9876;10.0.0.2:9876/%DLQ%billing")[1:3]
    ('10.0.0.1:9876;10.0.0.2:9876', '%DLQ%billing')
    >>> topic_url("rocketmq://127.0.0.1:9876/orders*", patterns=True).pattern
    re.compile('orders.*')
    >>> topic_url("rocketmq://127.0.0.1/orders")
    Traceback (most recent call last):
    ValueError: rocketmq://127.0.0.1/orders: give the address of a name server, as in rocketmq://127.0.0.1:9876/orders
    """
    where, question, _ = url.partition("?")
    if question:
        raise ValueError(f"{shown(where)}: the URL of a cluster does not have options after `?`")
    servers, _, topic = url.removeprefix(SCHEME).partition("/")
    try:
        addresses = name_server_addresses(servers)
    except ValueError:
        addresses = []
    if not addresses or not all(map(is_address, addresses)):
        hint = "; accounts are not part of the URL" if "@" in servers else ""
        raise ValueError(f"{shown(url)}: give the address of a name server, as in {SCHEME}127.0.0.1:9876/orders{hint}")
    name_server, is_pattern = ";".join(addresses), ANY in topic
    if is_pattern and not patterns:
        raise ValueError(f"{url}: name one topic; several can only be read")
    if topic and (wrong := topic_name_error(topic.replace(ANY, "") or "a")):
        raise ValueError(f"{url}: topic {topic!r}: {wrong}")
    if is_pattern:
        return TopicUrl(url, name_server, None, re.compile(".*".join(map(re.escape, re.split(r"\*+", topic)))))
    return TopicUrl(url, name_server, topic or None)
