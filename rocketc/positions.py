"""How far the consumers of a store have come: kept in memory, written to config/consumerOffset.json now and then."""

from __future__ import annotations

import logging
import threading

from rocketc._ledger import Ledger
from rocketc._store import MessageStore
from rocketc.errors import ClosedError, StoreFailedError
from rocketc.offset_tables import ConsumerOffsets

_log = logging.getLogger("rocketc.queue")


class Positions:
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
        self._ledgers: dict[tuple[str, str, int], Ledger] = {}
        self._writing = threading.Lock()
        self._moved = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rocketc-positions", daemon=True)
        self._thread.start()

    def ledger(self, topic: str, group: str, queue_id: int) -> Ledger:
        """The ledger of a group, which begins where the table says, or with the first message that is left."""
        low = self._store.min_offset(topic, queue_id)
        high = self._store.max_offset(topic, queue_id, committed=False)
        found = self._offsets.get(topic, group, queue_id)
        if found > high:
            _log.warning("%s: %s@%s is at %d, but the queue ends at %d", self._offsets.path, topic, group, found, high)
        ledger = Ledger(max(low, min(found, high)))
        self._ledgers[topic, group, queue_id] = ledger
        return ledger

    def moved(self) -> None:
        """The base of a ledger has moved: write it before long."""
        if not self._moved:
            self._moved = True
            self._wake.set()

    def write(self) -> None:
        """Make durable what was put, and then the positions as of now. Raises what the store's flush() raises."""
        with self._writing:
            self._moved = False
            now = [(name, ledger.base) for name, ledger in list(self._ledgers.items())]
            self._store.flush()
            for name, base in now:
                if base != self._offsets.get(*name):
                    self._offsets.commit(*name, base)
            self._offsets.persist()
            if self._delete_acked:
                self._store._delete_before(self._least_needed())

    def _least_needed(self) -> int:
        """Physical offset of the first message that a group has not acked, or that no group has ever taken."""
        store = self._store
        least = store.dispatched_phy_offset  # first: what comes behind it may be in no queue yet
        groups: dict[tuple[str, int], int] = {}
        for topic, _, queue_id, offset in self._offsets.items():
            groups[topic, queue_id] = min(offset, groups.get((topic, queue_id), offset))
        for topic, queue_id in store.queues():
            offset = max(groups.get((topic, queue_id), 0), store.min_offset(topic, queue_id))
            if offset < store.max_offset(topic, queue_id, committed=False):
                least = min(least, max(store.phy_offset_of(topic, queue_id, offset), 0))
        return least

    def stop(self) -> None:
        """End the thread; what has moved since it last wrote is not written."""
        self.closed = True
        self._stop.set()
        self._wake.set()
        if threading.current_thread() is not self._thread:  # the collector may close a queue there
            self._thread.join()

    def _run(self) -> None:
        told = False
        while True:
            self._wake.wait()
            self._wake.clear()  # before the look whether it is to stop: who stops it wakes it once
            if self._stop.wait(self._every):
                return
            try:
                self.write()
                told = False
            except (ClosedError, StoreFailedError):
                return  # whoever puts, flushes or closes hears of it
            except OSError as error:
                if not told:
                    _log.warning("%s: the positions are not written yet: %s", self._offsets.path, error)
                told = True
                self.moved()
