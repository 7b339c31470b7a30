"""Topics, config/topics.json: number of queues, permissions and attributes of each topic."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass, field, replace

from rocketc._arguments import shown
from rocketc._layout import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX
from rocketc.errors import IllegalMessageError
from rocketc.format.traces import TRACE_TOPIC
from rocketc.tables.config_manager import Clock, ConfigEntry, ConfigMap, now_ms, path_of
from rocketc.tables.fastjson import in_java_order

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4

NEW_TOPIC_QUEUES = 4  # of a topic that a program creates without a number
DEFAULT_TOPIC = "TBW102"  # its settings are copied to topics that a put creates

_SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        TRACE_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

NAME_CHARACTERS = re.compile(r"[%|a-zA-Z0-9_-]+")  # of topics and groups
TOPIC_MOST = 127  # characters
GROUP_TOPIC_MOST = 255  # of %RETRY% or %DLQ% and the name of a group

_NUMBERS = (("read_queue_nums", (1 << 31) - 1), ("write_queue_nums", (1 << 31) - 1), ("perm", 15))

QUEUE_TYPE, MESSAGE_TYPE, CLEANUP_POLICY = "queue.type", "message.type", "cleanup.policy"
ALLOWED_ATTRIBUTES = {
    QUEUE_TYPE: ("SimpleCQ", "BatchCQ"),
    CLEANUP_POLICY: ("DELETE", "COMPACTION"),
    MESSAGE_TYPE: ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
}


def is_system_topic(topic: str) -> bool:
    """Whether a topic is one of RocketMQ's own, which is not deleted with unused topics.

    >>> is_system_topic(SCHEDULE_TOPIC), is_system_topic("rmq_sys_wheel_timer"), is_system_topic("orders")
    (True, True, False)
    """
    return topic in _SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def topic_name_error(name: str) -> str | None:
    """Return why a broker refuses this topic name, as text; None if it is allowed.

    >>> topic_name_error("orders"), topic_name_error("new orders")
    (None, 'a topic name may only have letters, digits and %|_-')
    """
    if not name.strip():
        return "a topic name must not be empty"
    if not NAME_CHARACTERS.fullmatch(name):
        return "a topic name may only have letters, digits and %|_-"
    longest = GROUP_TOPIC_MOST if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_MOST
    return f"a topic name like this has {longest} characters at most, not {len(name)}" if len(name) > longest else None


def refuse_no_folder(what: str, name: str, before: str = "") -> None:
    """Raise IllegalMessageError for a name that put() refuses as a topic, now or in later versions.

    what    kind of the name, for the message
    before  prefix of a topic that is made of the name

    >>> refuse_no_folder("topic", "orders")
    >>> refuse_no_folder("group", "../audit", before="%DLQ%")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    rocketc.errors.IllegalMessageError: group '../audit': the name of a folder ... '/' or control characters
    """
    topic = before + name
    if not name or "/" in name or topic in (".", "..") or any(c < " " or c == "\x7f" for c in name):
        text = "the name of a folder contains it, so it must not be empty or have '/' or control characters"
        raise IllegalMessageError(f"{what} {name!r}: {text}")
    if len(topic.encode("utf-8", "replace")) > TOPIC_MOST:
        raise IllegalMessageError(f"{what} {name[:40]!r}...: at most {TOPIC_MOST - len(before)} bytes of UTF-8")


class TopicFilterType(enum.Enum):
    """Whether a message has one tag or several. The order is Java's: a body may have the number."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@dataclass(frozen=True)
class TopicConfig(ConfigEntry):
    """A topic. The fields are RocketMQ's, with its defaults.

    topic_name
    read_queue_nums, write_queue_nums  queues that consumers read and that producers write; queue ids begin at 0
    perm                               bits: 4 read, 2 write, 1 inherit (new topics may copy its settings)
    order                              its messages are ordered
    topic_filter_type                  "SINGLE_TAG" or "MULTI_TAG"
    topic_sys_flag                     bits
    attributes                         texts by name; RocketMQ uses `queue.type` (SimpleCQ, BatchCQ), `message.type`,
                                       `cleanup.policy` (DELETE, COMPACTION), `reserve.time`
    Raises ValueError for values that RocketMQ does not allow.

    >>> TopicConfig("orders", attributes={"queue.type": "BatchCQ"}).queue_type
    'BatchCQ'
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    order: bool = False
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    attributes: dict[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, most in _NUMBERS:
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(f"{name} is {shown(value)}; allowed are 0 to {most}")
        if type(self.topic_sys_flag) is not int:
            raise ValueError(f"topic_sys_flag is {self.topic_sys_flag!r}, which is not a whole number")
        if not isinstance(self.order, bool):
            raise ValueError(f"order is {self.order!r}; allowed are True and False")
        if self.topic_filter_type not in TopicFilterType.__members__:
            raise ValueError(f"topic_filter_type is {self.topic_filter_type!r}; allowed are SINGLE_TAG and MULTI_TAG")
        if not isinstance(self.topic_name, str):
            raise ValueError(f"topic_name is {self.topic_name!r}, which is not a string")
        if not isinstance(self.attributes, dict):
            raise ValueError(f"attributes are {self.attributes!r}, which is not a dict")
        for key, text in self.attributes.items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise ValueError(f"attribute {key!r} is {text!r}, but both must be strings")

    @property
    def queue_type(self) -> str:
        """How its queues are stored: "SimpleCQ", one unit per message, or "BatchCQ", one unit per batch."""
        return self.attributes.get(QUEUE_TYPE, "SimpleCQ")

    @property
    def message_type(self) -> str:
        """Kind of its messages: "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION" or "MIXED"."""
        return self.attributes.get(MESSAGE_TYPE, "UNSPECIFIED")

    @property
    def cleanup_policy(self) -> str:
        """What is done with old messages: "DELETE", or "COMPACTION", which keeps the last message of each key."""
        return self.attributes.get(CLEANUP_POLICY, "DELETE")


def _first(*values: int | None) -> int:
    """Return the first value that is given."""
    return next(value for value in values if value is not None)


class Topics(ConfigMap[TopicConfig]):
    """The topics of a store: a Mapping of TopicConfig by name, and methods to change it.

    root                      folder of the store; the file is config/topics.json
    auto_create_topic_enable  a put to an unknown topic creates it
    default_topic_queue_nums  queues of TBW102 if the file does not have it; limits the queues of automatic topics

    >>> import tempfile
    >>> topics = Topics(tempfile.mkdtemp())
    >>> topics.create("orders", queues=8).perm
    6
    >>> topics.auto_create("audit").write_queue_nums
    4
    >>> topics.persist(), list(topics)
    (True, ['orders', 'audit'])
    """

    NAME = "topics.json"
    _KEY = "topicConfigTable"
    _NAME = "topicName"
    _OF_5 = ("attributes",)
    _type = TopicConfig

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        auto_create_topic_enable: bool = True,
        default_topic_queue_nums: int = 8,
        clock: Clock = now_ms,
    ) -> None:
        super().__init__(path_of(root, self.NAME), clock=clock)
        self.auto_create_topic_enable = auto_create_topic_enable
        self.default_topic_queue_nums = default_topic_queue_nums

    def create(
        self,
        name: str,
        *,
        queues: int | None = None,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        queue_type: str | None = None,
        message_type: str | None = None,
        attributes: dict[str, str] | None = None,
        persist: bool = True,
        check_name: bool = True,
    ) -> TopicConfig:
        """Create or change a topic, in memory and on the disk.

        queues                             number of queues, where the next two are not given; 4 for a new topic
        read_queue_nums, write_queue_nums  queues that consumers read, and that producers write
        perm                               bits: 4 read, 2 write, 1 inherit; 6 for a new topic
        order                              its messages are ordered; False for a new topic
        queue_type                         "SimpleCQ" or "BatchCQ"; it can't be changed later
        message_type                       "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED" or "UNSPECIFIED"
        attributes                         others; `+name` is the same as `name`, `-name` removes it
        persist                            False: change memory only; call persist() once after many topics
        check_name                         False: allow each name that a folder can have; brokers refuse some of them
        What is not given, such as other attributes, does not change. Raises IllegalMessageError for an invalid name,
        ValueError for other values that RocketMQ does not allow, and StoreIOError or StoreFullError; then the topic is
        changed in memory only.

        >>> import tempfile
        >>> topics = Topics(tempfile.mkdtemp())
        >>> topics.create("orders", queues=2, attributes={"+message.type": "FIFO"}).attributes
        {'message.type': 'FIFO'}
        >>> topics.create("new orders")
        Traceback (most recent call last):
        rocketc.errors.IllegalMessageError: 'new orders': a topic name may only have letters, digits and %|_-
        """
        if not check_name:
            refuse_no_folder("topic", name)
        elif wrong := topic_name_error(name):
            raise IllegalMessageError(f"{name!r}: {wrong}")
        said = dict(attributes or {})
        for key, value in ((QUEUE_TYPE, queue_type), (MESSAGE_TYPE, message_type)):
            if value is not None:
                said[key] = value
        with self._lock:
            there = self.get(name)
            old = there or TopicConfig(name, NEW_TOPIC_QUEUES, NEW_TOPIC_QUEUES, PERM_READ | PERM_WRITE)
            try:
                made = TopicConfig(
                    name,
                    _first(read_queue_nums, queues, old.read_queue_nums),
                    _first(write_queue_nums, queues, old.write_queue_nums),
                    _first(perm, old.perm),
                    old.order if order is None else order,
                    attributes=_merged(there.attributes if there else {}, said),
                )
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            if there:
                if there.queue_type != made.queue_type:
                    raise ValueError(f"{name}: {QUEUE_TYPE} is {there.queue_type} and can't be changed")
                made = replace(made, topic_filter_type=there.topic_filter_type, topic_sys_flag=there.topic_sys_flag)
            self._put(name, made)
        if persist:
            self.persist()
        return made

    def add(self, topic: TopicConfig) -> TopicConfig:
        """Add or replace a topic in memory, without any check of its name; persist() writes it. Return the topic.

        >>> import tempfile
        >>> Topics(tempfile.mkdtemp()).add(TopicConfig("my.cluster", 1, 1)).perm
        6
        """
        self._put(topic.topic_name, topic)
        return topic

    def auto_create(self, name: str, queues: int = 4) -> TopicConfig | None:
        """Return the topic of a put: the existing one, or a new one in memory; persist() writes it.

        queues  most queues of a new topic: RocketMQ's producers ask for 4. The topic TBW102 limits the number (brokers
                create it with 8), and the new topic gets its permissions
        Returns None for an invalid name. Returns None, too, if auto_create_topic_enable is off or TBW102 does not have
        the permission to inherit, except for a `%RETRY%` topic, which then has one queue.

        >>> import tempfile
        >>> Topics(tempfile.mkdtemp()).auto_create("orders").write_queue_nums
        4
        >>> topics = Topics(tempfile.mkdtemp(), auto_create_topic_enable=False)
        >>> topics.auto_create("orders"), topics.auto_create("%RETRY%audit").write_queue_nums
        (None, 1)
        """
        found = self._entries.get(name)
        if found is not None:
            return found
        if topic_name_error(name):
            return None
        made = None
        with self._lock:
            if (found := self._entries.get(name)) is not None:
                return found
            if self.auto_create_topic_enable:
                after = self._entries.get(DEFAULT_TOPIC) or TopicConfig(
                    DEFAULT_TOPIC, self.default_topic_queue_nums, self.default_topic_queue_nums, perm=7
                )
                if after.perm & PERM_INHERIT:
                    made = _taking_after(after, name, queues)
            if made is None and name.startswith(RETRY_PREFIX):
                made = TopicConfig(name, 1, 1)
            if made is not None:
                self._put(name, made)
        return made


def _taking_after(after: TopicConfig, name: str, queues: int) -> TopicConfig:
    count = max(0, min(queues, after.write_queue_nums))
    return TopicConfig(name, count, count, after.perm & ~PERM_INHERIT, topic_filter_type=after.topic_filter_type)


def _merged(there: dict[str, str], said: dict[str, str]) -> dict[str, str]:
    """Merge changes into attributes. The syntax of the changes is that of RocketMQ's tools."""
    merged = dict(there)
    for key, value in said.items():
        plain = key[1:] if key.startswith(("+", "-")) else key
        if key.startswith("-"):
            if plain == QUEUE_TYPE and plain in merged:
                raise ValueError(f"{QUEUE_TYPE} is {merged[plain]} and can't be changed")
            merged.pop(plain, None)
            continue
        if plain in ALLOWED_ATTRIBUTES and value not in ALLOWED_ATTRIBUTES[plain]:
            raise ValueError(f"{plain} is {value!r}; allowed are {', '.join(ALLOWED_ATTRIBUTES[plain])}")
        merged[plain] = value
    return in_java_order(merged, 16)
