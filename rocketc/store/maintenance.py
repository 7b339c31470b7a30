"""What a store does beside its messages: its table of topics, and the deletion of what is too old.

A store that has a table of topics (config/topics.json), a broker's or one that create_topic() made, keeps it: a put to
a topic that is not in it creates the topic, or is refused if auto_create_topic_enable is off. One that has none takes
messages of any topic, as RocketMQ's store without its broker does.
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
    """Keeps config/topics.json, and runs the cleaner; its thread begins when there is something to do.

    on_full  called with True when a disk is too full for more messages, with False when it is not any more
    on_cleaned  called when files were deleted
    settle   as a Cleaner takes it; None: all is durable
    deleted  the topics that were deleted, as the opening knows them
    clock    ms since the epoch
    background  False: there is no thread, step() does its work
    keeps_topics  there is a table of topics

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
        """A message came for a topic that was not met yet; False if it may not be created by that.

        A name that no topic of a broker can have is no hindrance: the store takes it, the table does not.
        """
        if self.topics.auto_create(topic) is None:
            return self.topics.auto_create_topic_enable
        self._start()
        return True

    def create(self, name: str, **fields: Any) -> TopicConfig:
        """Topics.create(), and new queues of the topic are of its type."""
        topic = self.topics.create(name, **fields)
        self.keeps_topics = True
        if topic.queue_type == "BatchCQ":
            self._queues.add_batch_topic(name)
        return topic

    def delete_topics(self, names: set[str], end: int, drop: Callable[[dict[Any, int]], Gone]) -> set[str]:
        """Delete topics: their entries, and their queues, of which a note stays; those that there were.

        end   of the log: no message of theirs comes, and all that are there are in queues
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
        """Delete queues by `drop`."""
        with self._cleaning:
            try:
                return drop(ends)
            finally:
                self._on_cleaned()

    def clean(self, *, asked: bool = True, expired_ms: int | None = None, now: int | None = None) -> CleanReport:
        """Cleaner.run(), one at a time."""
        with self._cleaning:
            return self._cleaned(self._cleaner.run(now, asked=asked, expired_ms=expired_ms, detailed=True))

    def delete_before(self, phy_offset: int) -> CleanReport:
        """Cleaner.delete_before(), one at a time."""
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
        """What the thread would do by now, in the caller's; whether anything was written or deleted."""
        now = self._clock()
        self._persisted, self._cleaned_at = min(self._persisted, now), min(self._cleaned_at, now)  # it may go back
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
            _log.warning("cleaning: %s", error)
            return False
        return bool(report.log_files or report.derived)

    def _persist(self) -> bool:
        try:
            return self.topics.persist()
        except (RocketcError, OSError) as error:
            _log.warning("topics: %s", error)
            return False
