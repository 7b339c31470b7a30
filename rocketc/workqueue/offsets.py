"""The positions of a store's consumer groups: kept in memory, written to config/consumerOffset.json at intervals."""

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
    """Whether this thread holds an RLock. threading.Condition uses the same method.

    >>> lock = threading.RLock()
    >>> with lock:
    ...     is_mine(lock)
    True
    """
    mine: bool = lock._is_owned()
    return mine


class GroupOffsets:
    """Writes the positions of a store's consumer groups, at intervals and on request.

    every         minimum seconds between two writes
    delete_acked  True: delete log files that no group needs any more
    A position is written only after the messages before it are durable. Otherwise, after a power cut, new messages
    could get offsets that a group has already acked, and the group would never receive them.
    """

    def __init__(self, store: MessageStore, every: float, delete_acked: bool) -> None:
        self.closed = False  # True: consumers can't take or ack messages any more
        self._store = store
        self._every = every
        self._delete_acked = delete_acked
        self._offsets = ConsumerOffsets(store.path)
        self._groups: dict[tuple[str, str, int], tuple[InFlight, threading.RLock]] = {}
        self.writing = threading.RLock()  # lock order: this one, those of the groups, those of the store
        self._moved = False
        self._left = self._over = False  # the thread must close the store; the thread is ending
        # False: write; True: end the thread. A SimpleQueue, because a destructor may call put() at any point.
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rocketc-offsets", daemon=True)
        self._thread.start()
        store.attach_offsets(self)

    def in_flight(self, topic: str, group: str, queue_id: int, lock: threading.RLock) -> InFlight:
        """Return the messages in flight of a group, from its position or, if that is deleted, the first message on.

        lock  every user of the result holds it
        A position after the queue's end means that the queue was deleted, or that RocketMQ lost messages in a power
        cut. If the queue still has the message of offset 0, it may be a new queue: the group starts there. Otherwise it
        starts at the queue's end.
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
        """Block all takes, acks and writes of positions; the store uses it while it deletes queues."""
        with self.writing, contextlib.ExitStack() as locks:
            for _, lock in self._groups.values():
                locks.enter_context(lock)
            yield self

    def drop(self, deleted: Container[Any]) -> None:
        """Drop the positions of deleted queues in all groups, which start again at offset 0. Call it inside paused().

        deleted  contains the deleted topics or (topic, queue id)
        """
        self._offsets.drop(deleted)
        for (topic, _, queue_id), (in_flight, _) in self._groups.items():
            if topic in deleted or (topic, queue_id) in deleted:
                in_flight.start_over()

    def mark_changed(self) -> None:
        """Tell the thread that the position of a group has changed. The thread writes it within `every` seconds."""
        if not self._moved:
            self._moved = True
            self._asked.put(False)

    def write(self) -> None:
        """Flush the store, then write the positions that the groups had before the flush.

        Raises the errors of MessageStore.flush(), StoreIOError and StoreFullError.
        """
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
        """Return the physical offset of the first message that is still needed.

        A message is needed if a group has not acked it, or if no group has a position in its queue. A position after
        the queue's end belongs to an earlier queue of that name and counts as 0.
        """
        store = self._store
        least = store.dispatched_phy_offset  # read first: later messages may be in no queue yet
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
        """End the thread. Positions that changed since its last write are not written."""
        self.closed = True
        self._asked.put(True)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def detach(self) -> bool:
        """Let this object's own thread close the store later; return False in any other thread.

        The garbage collector may destroy a Queue on this thread during a write or a call of the store. The thread
        finishes that call first, then writes the positions and closes the store.
        """
        if self._over or threading.current_thread() is not self._thread:
            return False
        self.closed = self._left = True
        self._asked.put(True)
        return True

    def _run(self) -> None:
        logged = False
        while not self._asked.get() and not self._is_to_end_within(self._every):
            try:
                self.write()
                logged = False
            except (ClosedError, StoreFailedError):
                break  # the next put, flush or close raises it
            except OSError as error:
                if not logged:
                    _log.warning("%s: consumer offsets can't be written yet: %s", self._offsets.path, error)
                logged = True
                self.mark_changed()
        self._over = True
        if self._left:
            self._end()

    def _is_to_end_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        with contextlib.suppress(Empty):
            while not self._asked.get(timeout=max(until - time.monotonic(), 0)):
                pass  # the caller writes anyway
            return True
        return False

    def _end(self) -> None:
        try:
            try:
                self.write()
            finally:
                self._store.close()
        except (RocketcError, OSError) as error:
            _log.error("%s: closing a Queue that was never closed: %s", self._store.path, error)
