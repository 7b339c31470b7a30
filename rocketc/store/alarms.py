"""Reports trouble of a store's threads through `logging`.

It reports slow flushes, a dispatcher that has stopped or is far behind, and a store that has failed. The threads
themselves do not run Python code: the next call of the store reports for them.
"""

from __future__ import annotations

import logging
import threading
import time

from rocketc.derived._reput import ReputService
from rocketc.errors import StoreFailedError

_log = logging.getLogger("rocketc.store")

SLOW_AGAIN_SECONDS = 60.0  # minimum time between two reports of slow flushes


class Alarms:
    """Reports each problem once when it starts, and once when it ends.

    root        root folder of the store, for the messages
    dispatcher  of the store
    Any thread may call it.
    """

    def __init__(self, root: str, dispatcher: ReputService) -> None:
        self._root = root
        self._dispatcher = dispatcher
        self._lock = threading.Lock()
        self._slow = 0
        self._slow_again = 0.0
        self._stopped = self._behind = self._failed = False

    def __call__(self, failed: StoreFailedError | None) -> None:
        """Check everything and report changes.

        failed  the error with which the store has failed, or None
        """
        with self._lock:
            self._flushes()
            self._dispatching()
            if failed is not None and not self._failed:
                self._failed = True
                _log.error("%s: the store has failed: %s", self._root, failed)

    def _flushes(self) -> None:
        stats = self._dispatcher.log.stats()
        slow, now = stats["slow_flushes"], time.monotonic()
        if slow > self._slow and now >= self._slow_again:
            count = "a flush" if slow == self._slow + 1 else f"{slow - self._slow} flushes"
            text = (
                f"{count} of the log took more than 0.5 s, the longest so far {stats['flush_time']['max'] / 1e9:.1f} s"
            )
            _log.warning("%s: %s", self._root, text)
            self._slow, self._slow_again = slow, now + SLOW_AGAIN_SECONDS

    def _dispatching(self) -> None:
        failure, behind = self._dispatcher.failure, self._dispatcher.is_far_behind
        if (failure is not None) != self._stopped:
            self._stopped = failure is not None
            if self._stopped:
                _log.error("%s: messages can't be dispatched to the queues: %s", self._root, failure)
            else:
                _log.info("%s: messages are dispatched to the queues again", self._root)
        if behind != self._behind:
            self._behind = behind
            size = self._dispatcher.behind
            if behind:
                _log.warning("%s: %d bytes of the log are not in the queues yet", self._root, size)
            else:
                _log.info("%s: the queues have caught up with the log", self._root)
