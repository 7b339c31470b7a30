"""A store without threads: its clock, and the order in which step() does the work of the threads.

For tests and simulations: the same calls, with the same times of the clock, write the same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketc.derived._reput import ReputService
from rocketc.tables.config_manager import Clock, now_ms

if TYPE_CHECKING:
    from rocketc.store.maintenance import Maintenance

_LATEST = 1 << 43  # ms: the year 2248; in ns it must fit into 64 bits


class StoreClock:
    """The clock of a store without threads; the time does not change between two read() calls.

    clock  returns ms since the epoch, an integer of at least 0; None: the time of day
    Raises ValueError, also in read(), if it returns something else.

    >>> times = iter([1000, 2000])
    >>> clock = StoreClock(lambda: next(times))
    >>> clock.last(), clock.read(), clock.last()
    (1000, 2000, 2000)
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = now_ms if clock is None else clock
        self._last = self.read()

    def read(self) -> int:
        """Read the clock and return the time."""
        now = self._clock()
        if isinstance(now, bool) or not isinstance(now, int) or not 0 <= now < _LATEST:
            raise ValueError(f"clock() returned {now!r}; expected ms since the epoch, an int from 0 to {_LATEST - 1}")
        self._last = now
        return now

    def last(self) -> int:
        """Return the time of the last read()."""
        return self._last


class Stepper:
    """Sets the time in the parts of a store, and does the work of their threads.

    clock       clock of the store
    dispatcher  of the store, not started yet, nor is its log
    One thread at a time runs a step; a step during another one does nothing.
    """

    def __init__(self, clock: StoreClock, dispatcher: ReputService) -> None:
        self._clock = clock
        self._dispatcher = dispatcher
        self._stepping = threading.Lock()
        self.last = clock.last
        self.check_lock: Callable[[], None] = lambda: None  # LockWatch.look()
        dispatcher.set_clock(clock.last())

    def read_clock(self) -> None:
        """Read the clock, and set the time for the following calls. Raises ValueError, and the errors of the clock."""
        self._dispatcher.set_clock(self._clock.read())

    def step(self, maintenance: Maintenance) -> bool:
        """MessageStore.step(); False if there was nothing to do, or another thread is in a step."""
        if not self._stepping.acquire(blocking=False):
            return False
        try:
            self.read_clock()
            self.check_lock()
            log = self._dispatcher.log
            did = log.step_flush()
            did = self._dispatcher.step_dispatch() or did
            did = self._dispatcher.step_keep() or did
            did = log.step_ahead() or did
            log.stamp_files()
            return maintenance.step() or did
        finally:
            self._stepping.release()
