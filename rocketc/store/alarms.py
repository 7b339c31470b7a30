"""Reports trouble of a store's threads through `logging`.

It reports slow flushes, commits and holds of the put lock, puts that were not durable in time, and memory that can't be
locked. It also reports a dispatcher that has stopped or is far behind, and a store that has failed. The threads
themselves do not run Python code: the next call of the store reports for them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

from rocketc.config import StoreConfig
from rocketc.derived._reput import ReputService
from rocketc.errors import StoreFailedError

_log = logging.getLogger("rocketc.store")

SLOW_AGAIN_SECONDS = 60.0  # minimum time between two reports of slow flushes; the same for each other kind of event


class Alarms:
    """Reports each problem once when it starts, and once when it ends.

    root        root folder of the store, for the messages
    dispatcher  of the store
    config      its settings
    Any thread may call it.
    """

    def __init__(self, root: str, dispatcher: ReputService, config: StoreConfig) -> None:
        self._root = root
        self._dispatcher = dispatcher
        self._config = config
        self._lock = threading.Lock()
        self._told: dict[str, tuple[int, float]] = {}  # name in stats() -> (number reported, time of the next report)
        self._stopped = self._behind = self._failed = self._unlocked = False

    def __call__(self, failed: StoreFailedError | None) -> None:
        """Check everything and report changes.

        failed  the error with which the store has failed, or None
        """
        with self._lock:
            stats = self._dispatcher.log.stats()
            self._flushes(stats)
            self._commits(stats)
            self._holds(stats)
            self._memory(stats)
            self._dispatching()
            if failed is not None and not self._failed:
                self._failed = True
                _log.error("%s: the store has failed: %s", self._root, failed)

    def timed_out(self, topic: str, size: int, end: int, behind: int) -> None:
        """Report a put that returns FLUSH_DISK_TIMEOUT.

        topic, size, end  of its messages: the first topic, bytes, the physical offset where they end
        behind            bytes of the log that are not durable
        """
        with self._lock:
            count = self._new(self._dispatcher.log.stats(), "flush_timeouts", "put")
            if count:
                text = (
                    f"{count} returned FLUSH_DISK_TIMEOUT after {self._config.sync_flush_timeout} ms; the last one: "
                    f"{size} bytes of topic {topic} up to physical offset {end}, waiting for the flush of {behind} "
                    "bytes"
                )
                _log.warning("%s: %s", self._root, text)

    def _new(self, stats: dict[str, Any], name: str, what: str) -> str:
        """Return how many events are to be reported now, as text such as "3 puts"; "" for none."""
        told, again = self._told.get(name, (0, 0.0))
        count, now = stats[name] - told, time.monotonic()
        if count <= 0 or now < again:
            return ""
        self._told[name] = stats[name], now + SLOW_AGAIN_SECONDS
        plural = f"{what}es" if what.endswith("sh") else f"{what}s"
        return f"a {what}" if count == 1 else f"{count} {plural}"

    def _flushes(self, stats: dict[str, Any]) -> None:
        if count := self._new(stats, "slow_flushes", "flush"):
            text = (
                f"{count} of the log took more than 0.5 s, the longest so far {stats['flush_time']['max'] / 1e9:.1f} s"
            )
            _log.warning("%s: %s", self._root, text)

    def _commits(self, stats: dict[str, Any]) -> None:
        if count := self._new(stats, "slow_commits", "commit"):
            took, size, end = self._dispatcher.log.slow_commit()
            text = (
                f"{count} of the transient store pool took more than 0.5 s; the last one: {took / 1e9:.1f} s for "
                f"{size} bytes up to physical offset {end}, waiting for the write to the log file"
            )
            _log.warning("%s: %s", self._root, text)

    def _holds(self, stats: dict[str, Any]) -> None:
        if count := self._new(stats, "slow_holds", "put"):
            ms, size, topic, waited = self._dispatcher.log.slow_hold()
            text = (
                f"{count} held the put lock for more than 0.5 s; the last one: {ms / 1000:.1f} s for {size} bytes of "
                f"topic {topic}, waiting for {waited}"
            )
            _log.warning("%s: %s", self._root, text)

    def _memory(self, stats: dict[str, Any]) -> None:
        if stats["mlock_failures"] and not self._unlocked:
            self._unlocked = True
            code, size = self._dispatcher.log.lock_failure()
            text = (
                f"{size} bytes can't be locked in memory: {os.strerror(code)}; raise RLIMIT_MEMLOCK (ulimit -l, "
                "LimitMEMLOCK=), or leave them unlocked: the kernel may then write them out"
            )
            _log.warning("%s: %s", self._root, text)

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
