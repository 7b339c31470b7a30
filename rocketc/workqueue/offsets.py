"""How far the consumers of a store have come: kept in memory, written to config/consumerOffset.json now and then."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Container, Iterator
from queue import Empty, SimpleQueue
from typing import Any

from rocketc.errors import ClosedError, RocketcError, StoreFailedError
from rocketc.store._store import MessageStore
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.workqueue._in_flight import InFlight

_log = logging.getLogger("rocketc.queue")


def is_mine(lock: Any) -> bool:
    """Whether this thread has an RLock; threading.Condition asks the same.

    >>> lock = threading.RLock()
    >>> with lock:
    ...     is_mine(lock)
    True
    """
    mine: bool = lock._is_owned()
    return mine


class GroupOffsets:
    """Writes the positions of a store's consumers: at most so often, and when asked to.

    every         seconds
    delete_acked  delete the files of the log that no group needs any more
    A position is written only once the messages before it are durable: offsets that a power cut takes back are given to
    other messages, which nobody has seen.
    """

    def __init__(self, store: MessageStore, every: float, delete_acked: bool) -> None:
        self.closed = False  # nobody takes or acks any more
        self._store = store
        self._every = every
        self._delete_acked = delete_acked
        self._offsets = ConsumerOffsets(store.path)
        self._groups: dict[tuple[str, str, int], tuple[InFlight, threading.RLock]] = {}
        self.writing = threading.RLock()  # taken before a in_flight's, and both before any of the store's
        self._moved = False
        self._left = self._over = False  # the thread is to close the store; it is ending
        self._asked: SimpleQueue[bool] = SimpleQueue()  # to write, or (True) to end: a destructor may do so anywhere
        self._thread = threading.Thread(target=self._run, name="rocketc-offsets", daemon=True)
        self._thread.start()
        store.attach_offsets(self)

    def in_flight(self, topic: str, group: str, queue_id: int, lock: threading.RLock) -> InFlight:
        """The messages in flight of a group, from the offset in the table or the first message that is left on.

        lock  held by every user of the result
        A position behind the queue's end is of a queue that was deleted, or of messages that a power cut took from
        RocketMQ. If the queue's first message is still there, it may have begun anew, so all is taken; else what comes
        next.
        Source: RocketMQ 4 DefaultMessageStore.getMessage, OFFSET_OVERFLOW_BADLY.
        """
        with self.writing:
            low = self._store.min_offset(topic, queue_id)
            high = self._store.max_offset(topic, queue_id, committed=False)
            at = self._offsets.get(topic, group, queue_id)
            if at > high:
                _log.warning("%s: %s@%s is at %d, but the queue ends at %d", self._offsets.path, topic, group, at, high)
                at = low if low == 0 else high
            in_flight = InFlight(max(low, at))
            self._groups[topic, group, queue_id] = (in_flight, lock)
            return in_flight

    @contextlib.contextmanager
    def paused(self) -> Iterator[GroupOffsets]:
        """For the store, which deletes queues meanwhile: nobody takes or acks, and no position is written."""
        with self.writing, contextlib.ExitStack() as locks:
            for _, lock in self._groups.values():
                locks.enter_context(lock)
            yield self

    def drop(self, gone: Container[Any]) -> None:
        """ConsumerOffsets.drop() for all groups, while they stand still: they start over."""
        self._offsets.drop(gone)
        for (topic, _, queue_id), (in_flight, _) in self._groups.items():
            if topic in gone or (topic, queue_id) in gone:
                in_flight.start_over()

    def mark_changed(self) -> None:
        """A group's first offset that is not acked has moved: the thread writes it soon."""
        if not self._moved:
            self._moved = True
            self._asked.put(False)

    def write(self) -> None:
        """Make durable what was put, and then the positions as of now. Raises what the store's flush() raises."""
        with self.writing:
            self._moved = False
            now = [(name, in_flight.base) for name, (in_flight, _) in self._groups.items()]
            self._store.flush()
            for name, base in now:
                if base != self._offsets.get(*name):
                    self._offsets.commit(*name, base)
            self._offsets.persist()
            if self._delete_acked:
                self._store.delete_before(self._least_needed())

    def _least_needed(self) -> int:
        """Physical offset of the first message that a group has not acked, or that no group has ever taken. A position
        behind the queue's end tells of another queue than this one."""
        store = self._store
        least = store.dispatched_phy_offset  # first: what comes behind it may be in no queue yet
        groups: dict[tuple[str, int], list[int]] = {}
        for topic, _, queue_id, offset in self._offsets.items():
            groups.setdefault((topic, queue_id), []).append(offset)
        for topic, queue_id in store.queues():
            end = store.max_offset(topic, queue_id, committed=False)
            offset = min((at if at <= end else 0 for at in groups.get((topic, queue_id), ())), default=0)
            offset = max(offset, store.min_offset(topic, queue_id))
            if offset < end:
                least = min(least, max(store.phy_offset_of(topic, queue_id, offset), 0))
        return least

    def stop(self) -> None:
        """End the thread; what has moved since it last wrote is not written."""
        self.closed = True
        self._asked.put(True)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def detach(self) -> bool:
        """In the thread itself, where the collector may end a queue in the midst of a write or of a call of the store:
        True, and it writes and closes the store when that has ended. False in others."""
        if self._over or threading.current_thread() is not self._thread:
            return False
        self.closed = self._left = True
        self._asked.put(True)
        return True

    def _run(self) -> None:
        told = False
        while not self._asked.get() and not self._is_to_end_within(self._every):
            try:
                self.write()
                told = False
            except (ClosedError, StoreFailedError):
                break  # whoever puts, flushes or closes hears of it
            except OSError as error:
                if not told:
                    _log.warning("%s: the positions are not written yet: %s", self._offsets.path, error)
                told = True
                self.mark_changed()
        self._over = True
        if self._left:
            self._end()

    def _is_to_end_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        with contextlib.suppress(Empty):
            while not self._asked.get(timeout=max(until - time.monotonic(), 0)):
                pass  # it is going to write
            return True
        return False

    def _end(self) -> None:
        try:
            try:
                self.write()
            finally:
                self._store.close()
        except (RocketcError, OSError) as error:
            _log.error("%s: a queue that was never closed: %s", self._store.path, error)
