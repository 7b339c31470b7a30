"""Consumer groups, config/subscriptionGroup.json: the settings of each group."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rocketc._layout import DLQ_PREFIX, RETRY_PREFIX
from rocketc.tables.config_manager import Clock, ConfigEntry, ConfigMap, now_ms, path_of
from rocketc.tables.topics import GROUP_TOPIC_MOST, NAME_CHARACTERS, TOPIC_MOST

GROUP_MOST = 255  # characters
CONSUMER_GROUP_MOST = TOPIC_MOST - len(DLQ_PREFIX)  # characters of a group whose dead letters can be stored
RETRIED_GROUP_MOST = GROUP_TOPIC_MOST - len(RETRY_PREFIX)  # characters of a group whose retries can be stored
FORBIDDEN_READ = 4  # bit of what a group must not do with a topic


def group_name_error(name: str) -> str | None:
    """Return why a group must not have this name, as text; None if it is allowed.

    >>> group_name_error("audit"), group_name_error("my audit")
    (None, 'a group name may only have letters, digits and %|_-')
    """
    if not name.strip():
        return "a group name must not be empty"
    if not NAME_CHARACTERS.fullmatch(name):
        return "a group name may only have letters, digits and %|_-"
    return f"a group name has {GROUP_MOST} characters at most, not {len(name)}" if len(name) > GROUP_MOST else None


class GroupRetryPolicyType(enum.Enum):
    """How the times of retries grow. The order is Java's: a body may have the number."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


def _customized() -> dict[str, Any]:
    return {"type": "CUSTOMIZED"}


@dataclass(frozen=True)
class SubscriptionGroupConfig(ConfigEntry):
    """A consumer group. The fields are RocketMQ's, with its defaults.

    group_name
    consume_enable, consume_from_min_enable, consume_broadcast_enable  what it may do
    consume_message_orderly            it consumes each queue in order
    retry_queue_nums, retry_max_times  queues of its %RETRY% topic, and how many times a message is sent there
    group_retry_policy                 times of the retries; an object of RocketMQ's
    broker_id, which_broker_when_consume_slowly  broker that it reads from, and the one when it is slow
    notify_consumer_ids_changed_enable its consumers are notified when one joins or leaves
    group_sys_flag                     bits
    consume_timeout_minute             longest time to consume a message
    subscription_data_set              its subscriptions; None: not known
    attributes                         texts by name
    Raises ValueError for a value of another type.

    >>> SubscriptionGroupConfig("audit").retry_max_times
    16
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = field(default_factory=_customized, hash=False)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[Any] | None = field(default=None, hash=False)
    attributes: dict[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            kind = {"str": str, "bool": bool, "int": int}.get(str(one.type))
            if kind is None:
                kind = list if one.name == "subscription_data_set" else dict
            if type(value) is not kind and not (kind is list and value is None):
                raise ValueError(f"{one.name} is {value!r}, not {kind.__name__}")


class SubscriptionGroups(ConfigMap[SubscriptionGroupConfig]):
    """The groups of a store: a Mapping of SubscriptionGroupConfig by name, and methods to change it.

    root  folder of the store; the file is config/subscriptionGroup.json

    >>> import tempfile
    >>> groups = SubscriptionGroups(tempfile.mkdtemp())
    >>> groups.create(SubscriptionGroupConfig("audit", retry_max_times=3))
    True
    >>> groups["audit"].retry_max_times
    3
    """

    NAME = "subscriptionGroup.json"
    _KEY = "subscriptionGroupTable"
    _NAME = "groupName"
    _OF_5 = (
        "attributes",
        "consumeMessageOrderly",
        "consumeTimeoutMinute",
        "groupRetryPolicy",
        "groupSysFlag",
        "subscriptionDataSet",
    )
    _type = SubscriptionGroupConfig

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        super().__init__(path_of(root, self.NAME), clock=clock)
        self._forbidden: dict[str, dict[str, int]] = {}
        for group, topics in self._part("forbiddenTable").items():
            if isinstance(topics, dict) and all(type(bits) is int for bits in topics.values()):
                self._forbidden[str(group)] = {str(topic): bits for topic, bits in topics.items()}
            else:
                self._warn(f"{self.path}: forbiddenTable: {group}: not a map of numbers; it is skipped")

    def create(self, config: SubscriptionGroupConfig, *, persist: bool = True) -> bool:
        """Create or change a group, in memory and on the disk. Returns False if it is equal already.

        persist  False: change memory only; call persist() later
        Raises StoreIOError or StoreFullError; the group is then changed in memory only.
        """
        done = self._put(config.group_name, config)
        if persist:
            self.persist()
        return done

    @property
    def forbidden(self) -> dict[str, dict[str, int]]:
        """A copy of the bits of what groups must not do, by group and topic."""
        with self._lock:
            return {group: dict(topics) for group, topics in self._forbidden.items()}

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether a group may read a topic.

        >>> import tempfile
        >>> groups = SubscriptionGroups(tempfile.mkdtemp())
        >>> groups.set_readable("audit", "orders", False)
        >>> groups.is_readable("audit", "orders"), groups.forbidden
        (False, {'audit': {'orders': 4}})
        """
        return not self._forbidden.get(group, {}).get(topic, 0) & FORBIDDEN_READ

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Allow or forbid a group to read a topic; persist() writes it."""
        with self._lock:
            before = self._forbidden.get(group, {}).get(topic, 0)
            after = before & ~FORBIDDEN_READ if readable else before | FORBIDDEN_READ
            if after == before:
                return
            topics = {name: bits for name, bits in self._forbidden.get(group, {}).items() if name != topic}
            if after:
                topics[topic] = after
            self._forbidden = {name: found for name, found in self._forbidden.items() if name != group}
            if topics:
                self._forbidden[group] = topics
            self.generation += 1
            self._next_version()
            self._changed = True

    def take_forbidden(self, table: Mapping[str, Mapping[str, int]]) -> None:
        """Have the bits of another broker's table, by group and topic; persist() writes it.

        >>> import tempfile
        >>> groups = SubscriptionGroups(tempfile.mkdtemp())
        >>> groups.take_forbidden({"audit": {"orders": 4}})
        >>> groups.is_readable("audit", "orders")
        False
        """
        with self._lock:
            found = {group: dict(topics) for group, topics in table.items()}
            if found != self._forbidden:
                self._forbidden = found
                self.generation += 1
                self._changed = True

    @property
    def forbidden_count(self) -> int:
        """The number of pairs of a group and a topic with something that is forbidden.

        >>> import tempfile
        >>> SubscriptionGroups(tempfile.mkdtemp()).forbidden_count
        0
        """
        return sum(map(len, self._forbidden.values()))

    def keep_forbidden(self, is_kept: Callable[[str, str], bool]) -> None:
        """Remove the pairs for which is_kept(group, topic) is False; persist() writes it.

        >>> import tempfile
        >>> groups = SubscriptionGroups(tempfile.mkdtemp())
        >>> groups.set_readable("audit", "orders", False)
        >>> groups.keep_forbidden(lambda group, topic: topic != "orders")
        >>> groups.forbidden
        {}
        """
        with self._lock:
            kept = {
                group: {topic: bits for topic, bits in topics.items() if is_kept(group, topic)}
                for group, topics in self._forbidden.items()
            }
            kept = {group: topics for group, topics in kept.items() if topics}
            if kept != self._forbidden:
                self._forbidden = kept
                self.generation += 1
                self._next_version()
                self._changed = True

    def _to_write(self) -> dict[str, Any]:
        data = super()._to_write()
        if self.is_v4_format and not self._forbidden and "forbiddenTable" not in data:
            return data
        return {**data, "forbiddenTable": self.forbidden}
