"""Maintenance of a store: its table of topics, and the deletion of expired files.

A store keeps its table of topics (config/topics.json) if a broker or create_topic() has created one. A put to a topic
that is not in the table then creates the topic; if auto_create_topic_enable is off, the put is refused. A store without
a table accepts messages of any topic, as RocketMQ's store does without its broker.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._key_index import KeyIndex
from rocketc.errors import RocketcError
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.store.cleaning import Cleaner, CleanReport
from rocketc.tables.config_manager import Clock, now_ms
from rocketc.tables.deleted_topics import DeletedTopics
from rocketc.tables.topics import TopicConfig, Topics

_log = logging.getLogger("rocketc.store")

_FIRST_CLEANING_SECONDS = 60.0
_PERSIST_SECONDS = 1.0

Gone = set[tuple[str, int]]  # (topic, queue id)


class Maintenance:
    """Keeps config/topics.json and runs the cleaner. Its thread starts when there is work for it.

    on_full  called with True when a disk is too full for more messages, and with False when it has space again
    on_cleaned  called after files were deleted
    settle   see Cleaner; None: all messages are durable
    deleted  the table of deleted topics; None: read it from the root folder
    clock    returns ms since the epoch
    background  False: there is no thread, step() does its work
    keeps_topics  True: the store has a table of topics

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> log = MappedFileQueue([root + "/commitlog"], 4096)
    >>> maintenance = Maintenance(root, StoreConfig(), log, ConsumeQueues(root), None, print)
    >>> maintenance.keeps_topics, maintenance.create("orders").write_queue_nums, maintenance.keeps_topics
    (False, 4, True)
    >>> maintenance.on_new_topic("audit"), list(maintenance.topics)
    (True, ['orders', 'audit'])
    >>> maintenance.stop()
    """

    def __init__(
        self,
        root: str,
        config: StoreConfig,
        log: MappedFileQueue,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        on_full: Callable[[bool], object],
        *,
        on_cleaned: Callable[[], object] = lambda: None,
        settle: Callable[[], int] | None = None,
        deleted: DeletedTopics | None = None,
        clock: Clock = now_ms,
        background: bool = True,
    ) -> None:
        self.topics = Topics(
            root,
            clock=clock,
            auto_create_topic_enable=config.auto_create_topic_enable,
            default_topic_queue_nums=config.default_topic_queue_nums,
        )
        self.keeps_topics = os.path.exists(self.topics.path)
        self._log = log
        self._queues = queues
        self._deleted = DeletedTopics(root) if deleted is None else deleted
        self._on_cleaned = on_cleaned
        self._stop = threading.Event()
        self._cleaning = threading.Lock()
        self._interval = config.clean_resource_interval / 1000
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._cleaner = Cleaner(
            log,
            config,
            root=root,
            queues=queues,
            index=index,
            clock=clock,
            pause=self._stop.wait if background else lambda seconds: False,
            on_full=lambda disk, logic: on_full(disk or logic),
            settle=settle,
        )
        self._background = background
        self._clock = clock
        self._persisted = self._cleaned_at = clock() if not background else 0
        self._first = True
        if self._interval:
            self._start()

    def on_new_topic(self, topic: str) -> bool:
        """Create a topic for its first message; return False if auto_create_topic_enable is off.

        A name that is invalid for a broker's topic is accepted, but not added to the table.
        """
        if self.topics.auto_create(topic) is None:
            return self.topics.auto_create_topic_enable
        self._start()
        return True

    def configure(self, config: StoreConfig) -> None:
        """Take other settings for cleaning and for new topics."""
        with self._cleaning:
            self._cleaner.configure(config)
        self.topics.auto_create_topic_enable = config.auto_create_topic_enable
        self.topics.default_topic_queue_nums = config.default_topic_queue_nums

    def keep(self) -> None:
        """Keep the table of topics, and write its changes once a second."""
        self.keeps_topics = True
        self._start()

    def create(self, name: str, **fields: Any) -> TopicConfig:
        """Create a topic, see Topics.create(). New queues of the topic get its queue type."""
        topic = self.topics.create(name, **fields)
        self.keeps_topics = True
        if topic.queue_type == "BatchCQ":
            self._queues.add_batch_topic(name)
        return topic

    def delete_topics(self, names: set[str], end: int, drop: Callable[[dict[Any, int]], Gone]) -> set[str]:
        """Delete topics with their queues, and record the deletion; return the topics that existed.

        end   physical offset at which the log ends. Puts to these topics wait, and their messages are in queues
        drop  deletes the queues of {topic: end}
        """
        found = set(self.topics.delete(names))
        with self._cleaning:
            queued = {topic for topic, _ in self._queues.items()} & names
            if queued:
                self._deleted.add(queued, end, max(self._log.min_offset, 0))
            try:
                return found | {topic for topic, _ in drop(dict.fromkeys(names, end))}
            finally:
                self._on_cleaned()

    def delete_queues(self, ends: dict[Any, int], drop: Callable[[dict[Any, int]], Gone]) -> Gone:
        """Delete queues with `drop`, and return its result."""
        with self._cleaning:
            try:
                return drop(ends)
            finally:
                self._on_cleaned()

    def clean(self, *, asked: bool = True, expired_ms: int | None = None, now: int | None = None) -> CleanReport:
        """Call Cleaner.run(), in one thread at a time."""
        with self._cleaning:
            return self._cleaned(self._cleaner.run(now, asked=asked, expired_ms=expired_ms, detailed=True))

    def delete_before(self, phy_offset: int) -> CleanReport:
        """Call Cleaner.delete_before(), in one thread at a time."""
        with self._cleaning:
            return self._cleaned(self._cleaner.delete_before(phy_offset))

    def _cleaned(self, report: CleanReport) -> CleanReport:
        if report.log_files or report.derived:
            self._on_cleaned()
        return report

    def stop(self) -> None:
        """End the thread, and write the table of topics if it has changed."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._persist()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and self._background:
                self._thread = threading.Thread(target=self._run, name="rocketc-maintenance", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        left = _FIRST_CLEANING_SECONDS
        step = min(_PERSIST_SECONDS, self._interval or _PERSIST_SECONDS)
        while not self._stop.wait(step):
            self._persist()
            left -= step
            if self._interval and left <= 0:
                left = self._interval
                self._clean()

    def step(self) -> bool:
        """Do the work of the thread that is due, on the caller's thread; return True if it wrote or deleted files."""
        now = self._clock()
        self._persisted, self._cleaned_at = min(self._persisted, now), min(self._cleaned_at, now)  # clock may go back
        did = False
        if now - self._persisted >= _PERSIST_SECONDS * 1000:
            self._persisted = now
            did = self._persist()
        interval = max(self._interval, _FIRST_CLEANING_SECONDS) if self._first else self._interval
        if self._interval and now - self._cleaned_at >= interval * 1000:
            self._cleaned_at, self._first = now, False
            did = self._clean() or did
        return did

    def _clean(self) -> bool:
        try:
            report = self.clean(asked=False)
        except (RocketcError, OSError) as error:
            _log.warning("expired files can't be deleted: %s", error)
            return False
        return bool(report.log_files or report.derived)

    def _persist(self) -> bool:
        try:
            return self.topics.persist()
        except (RocketcError, OSError) as error:
            _log.warning("the table of topics can't be written: %s", error)
            return False
