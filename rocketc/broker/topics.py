"""The broker's topics: those that it has from the start, and those that sends and consumers create.

Source: RocketMQ TopicConfigManager, TopicValidator.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from rocketc._layout import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX
from rocketc.broker import names
from rocketc.broker.config import BrokerConfig
from rocketc.broker.table_writer import Done, TableWriter
from rocketc.config import StoreConfig
from rocketc.tables.topics import (
    DEFAULT_TOPIC,
    GROUP_TOPIC_MOST,
    NAME_CHARACTERS,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TOPIC_MOST,
    TopicConfig,
    Topics,
)

READ_WRITE = PERM_READ | PERM_WRITE
DELAY_LEVELS = 18
UNIT, UNIT_SUBSCRIPTION = 1, 2  # bits of topic_sys_flag

FORBIDDEN = frozenset(
    {
        SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
        names.CHECK_MAX_TIME_TOPIC,
        names.SELF_TEST_TOPIC,
        names.OFFSET_MOVED_EVENT,
    }
)  # clients may not send to them


def name_fault(topic: str) -> str | None:
    """Return what is wrong with the name of a topic, as text for the peer; None if it is allowed.

    >>> name_fault("orders"), name_fault("new orders")
    (None, 'The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$')
    """
    if not topic.strip():
        return "The specified topic is blank."
    if not NAME_CHARACTERS.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    longest = GROUP_TOPIC_MOST if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_MOST
    return "The specified topic is longer than topic max length." if len(topic) > longest else None


class KeepingStore(Protocol):
    """What TopicManager needs of a store."""

    @property
    def config(self) -> StoreConfig: ...
    def keep_topics(self) -> Topics: ...


class TopicManager:
    """The table of topics of a store, with a broker's rules. Create it on the thread of the event loop.

    Topics that a put or create_topic() of a program adds to the table are treated as those of a send.

    changed  called with each topic that is created or changed, for the name servers
    writer   writes the table
    """

    def __init__(
        self,
        store: KeepingStore,
        config: BrokerConfig,
        writer: TableWriter,
        changed: Callable[[TopicConfig], object] = lambda topic: None,
        written: Callable[[TopicConfig], object] = lambda topic: None,
    ) -> None:
        self._has_light_queues = store.config.enable_lmq
        self.table = store.keep_topics()
        self.table.grow()
        self._writer = writer
        self._config = config
        self._changed: Callable[[TopicConfig], object] = lambda topic: None
        self._hidden: dict[str, int] = {}  # how many deletions wait, by topic
        self._hides = 0  # calls of hide() and unhide()
        first = self._from_the_start()
        own = (DEFAULT_TOPIC, config.msg_trace_topic_name, names.CHECK_MAX_TIME_TOPIC, names.CHECKPOINT_TOPIC)
        self.system = frozenset([*(topic.topic_name for topic in first), *own])
        for topic in first:
            if topic.topic_name not in self.table:
                self._create(topic)
        self.table.persist()
        self._changed, self._written = changed, written
        self._unwritten: dict[str, TopicConfig] = {}  # by name; the newest
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.table.on_change = self._notice

    def _from_the_start(self) -> list[TopicConfig]:
        config = self._config
        cluster, broker = config.broker_cluster_name, config.broker_name
        count = self.table.default_topic_queue_nums
        topics = [
            TopicConfig(names.SELF_TEST_TOPIC, 1, 1),
            TopicConfig(names.BENCHMARK_TOPIC, 1024, 1024),
            _named(cluster, 16, config.cluster_topic_enable),
            _named(broker, 1, config.broker_topic_enable),
            TopicConfig(names.OFFSET_MOVED_EVENT, 1, 1),
            TopicConfig(SCHEDULE_TOPIC, DELAY_LEVELS, DELAY_LEVELS),
            TopicConfig(cluster + names.REPLY_TOPIC, 1, 1),
            TopicConfig(names.REVIVE_TOPIC + cluster, 8, 8),
            TopicConfig(names.SYNC_TOPIC + broker, 1, 1, perm=PERM_INHERIT),
            TopicConfig(names.HALF_TOPIC, 1, 1),
            TopicConfig(names.OP_HALF_TOPIC, 1, 1),
            TopicConfig(names.TIMER_TOPIC, 1, 1),
        ]
        if self.table.auto_create_topic_enable:
            topics.insert(1, TopicConfig(DEFAULT_TOPIC, count, count, perm=READ_WRITE | PERM_INHERIT))
        if config.trace_topic_enable:
            topics.append(TopicConfig(config.msg_trace_topic_name, 1, 1))
        return topics

    def get(self, name: str) -> TopicConfig | None:
        """Return the settings of a topic. Each light queue counts as a topic with one queue, also without messages."""
        if self._has_light_queues and name.startswith(LMQ_PREFIX):
            return TopicConfig(name, 1, 1)
        return None if name in self._hidden else self.table.get(name)

    def is_system(self, name: str) -> bool:
        """Whether a topic is one of RocketMQ's own: tools neither change nor delete it."""
        return name in self.system or name.startswith(SYSTEM_PREFIX)

    def create_in_send(self, name: str, default_topic: str, queues: int, unit_mode: bool) -> TopicConfig | None:
        """Return the topic of a send; create an unknown one as its default topic says. None: it stays unknown.

        queues  the number that the producer asks for
        """
        if (found := self.get(name)) is not None:
            return found
        default = self.table.get(default_topic)
        if default is None or name in self._hidden:
            return None
        perm = default.perm
        if default_topic == DEFAULT_TOPIC and not self.table.auto_create_topic_enable:
            perm = READ_WRITE
        if not perm & PERM_INHERIT:
            return None
        count = max(0, min(queues, default.write_queue_nums))
        return self._created(
            TopicConfig(
                name,
                count,
                count,
                perm=perm & ~PERM_INHERIT,
                topic_filter_type=default.topic_filter_type,
                topic_sys_flag=UNIT if unit_mode else 0,
            )
        )

    def create_if_missing(
        self, name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Return a topic of the broker's own, for example that of a group's retries; create it if it is missing.

        The table is written soon. None: the topic is being deleted.
        """
        if name in self._hidden:
            return None
        if (found := self.table.get(name)) is not None:
            return found
        return self._created(TopicConfig(name, queues, queues, perm=perm, topic_sys_flag=sys_flag))

    def keep_retry_topic(self, name: str, queues: int, *, order: bool, sys_flag: int) -> TopicConfig | None:
        """Create the topic of the retries of a group, or change its `order`. The table is written soon.

        None: the topic is being deleted, and nothing changes.
        """
        if name in self._hidden:
            return None
        found = self.table.get(name)
        if found is None:
            return self._created(TopicConfig(name, queues, queues, order=order, topic_sys_flag=sys_flag))
        return found if found.order == order else self._created(replace(found, order=order))

    def change(self, topic: TopicConfig, done: Done, *, is_new: bool = False) -> None:
        """Create or change a topic as a tool says; call `done` when it is on the disk, or with the fault.

        is_new  others must learn of it, even if the table has it already
        """
        if is_new or self.table.get(topic.topic_name) != topic:
            self._created(topic)
        self.save(done)

    def is_hidden(self, name: str) -> bool:
        """Whether the store is deleting a topic."""
        return name in self._hidden

    def hide(self, topics: Iterable[str]) -> None:
        """Behave as if the topics did not exist, while the store deletes them; unhide() ends it."""
        for name in topics:
            self._hidden[name] = self._hidden.get(name, 0) + 1
            self._unwritten.pop(name, None)
        self._hides += 1

    def unhide(self, topics: Iterable[str]) -> None:
        """End hide()."""
        for name in topics:
            self._hidden[name] -= 1
            if self._hidden[name] == 0:
                del self._hidden[name]
        self._hides += 1

    @property
    def generation(self) -> int:
        """A number that is greater after each change of the table, and after each hide() and unhide()."""
        return self.table.generation + self._hides

    def save(self, done: Done | None = None) -> None:
        """Write changes; call `done` when all topics are on the disk, or with the fault."""
        self._writer.save(self.table, done)

    def when_written(self, done: Callable[[], object]) -> None:
        """Call `done` when all topics are on the disk, or when it is known that they can't be written now.

        A message that is stored is acknowledged in both cases: an error would make its producer send it twice.
        """
        self._writer.wait(self.table, lambda fault: done())

    def is_written(self, name: str) -> bool:
        """Whether a topic is there, and on the disk: only then it survives a kill."""
        return name in self.table and name not in self._unwritten

    def close(self) -> None:
        """End the watch over the table."""
        self.table.on_change = lambda topic: None

    def _notice(self, topic: TopicConfig) -> None:
        """Note a change of the table, on any thread."""
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._noticed, topic)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._noticed, topic)

    def _noticed(self, topic: TopicConfig) -> None:
        """Treat a topic that a program has created or changed as one of a send."""
        name = topic.topic_name
        if self.table.get(name) is topic and self._unwritten.get(name) is not topic:
            self._unwritten[name] = topic
            self._changed(topic)
            self._writer.save(self.table, partial(self._on_disk, topic))

    def _created(self, topic: TopicConfig) -> TopicConfig:
        self._unwritten[topic.topic_name] = topic
        made = self._create(topic)
        self._unwritten[topic.topic_name] = made
        self._writer.save(self.table, partial(self._on_disk, made))
        return made

    def _on_disk(self, topic: TopicConfig, fault: str | None) -> None:
        if self._unwritten.get(topic.topic_name) is not topic:
            return
        if fault is not None:
            self._writer.after_retry(self.table, partial(self._on_disk, topic))
        else:
            del self._unwritten[topic.topic_name]
            self._written(topic)

    def _create(self, topic: TopicConfig) -> TopicConfig:
        made = self.table.add(topic)
        self._changed(made)
        return made


def fast_queues(topic: TopicConfig, broker_permission: int) -> int:
    """Return the number of queues of a topic whose sends the compiled path can take; 0 for other topics.

    >>> fast_queues(TopicConfig("orders", read_queue_nums=8, write_queue_nums=4), 6)
    8
    """
    name = topic.topic_name
    is_plain = topic.queue_type == "SimpleCQ" and topic.topic_filter_type == "SINGLE_TAG"
    may_send = broker_permission & PERM_WRITE or not topic.order
    if not is_plain or not may_send or name_fault(name) or name in FORBIDDEN:
        return 0
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return 0
    return max(topic.write_queue_nums, topic.read_queue_nums)


def _named(name: str, queues: int, usable: bool) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm=PERM_INHERIT | (READ_WRITE if usable else 0))
