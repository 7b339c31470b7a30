"""Answers to messages that the store does not accept: code and remark, and one line a minute in the log.

Knows the statuses and exceptions of a store, and its disks. Does not know requests.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Protocol

from rocketc.config import StoreConfig
from rocketc.errors import StoreFullError
from rocketc.remoting.codes import Code
from rocketc.status import PutStatus
from rocketc.store.disk_usage import Levels, LookAt, used_share

_log = logging.getLogger("rocketc.broker")

_LOG_SECONDS = 60.0  # between two lines
_DISK_SECONDS = 0.5  # that a description of the disks is used: thousands of sends may be refused in a second
_QUEUE_BYTES = 5 << 20  # free bytes below which the store may refuse new consume queues
_CODES = {
    PutStatus.PUT_OK: Code.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: Code.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: Code.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: Code.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: Code.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: Code.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: Code.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: Code.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: Code.SYSTEM_BUSY,
}
_REMARKS = {
    Code.MESSAGE_ILLEGAL: "the message is illegal, maybe msg body or properties length not matched",
    Code.SYSTEM_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
}


class Store(Protocol):
    """What PutRefusals needs of a store."""

    @property
    def path(self) -> str: ...
    @property
    def config(self) -> StoreConfig: ...


def refusal_code(status: PutStatus) -> Code:
    """Return the code of an answer for a PutStatus.

    >>> refusal_code(PutStatus.OS_PAGE_CACHE_BUSY), refusal_code(PutStatus.UNKNOWN_ERROR)
    (<Code.SYSTEM_BUSY: 2>, <Code.SYSTEM_ERROR: 1>)
    """
    return _CODES.get(status, Code.SYSTEM_ERROR)


class PutRefusals:
    """Codes and remarks of a broker with one store.

    time     seconds; the loop's clock
    statvfs  os.statvfs, or a replacement for tests
    """

    def __init__(self, store: Store, time: Callable[[], float], statvfs: LookAt = os.statvfs) -> None:
        self._store, self._time, self._statvfs = store, time, statvfs
        self._logged_at: float | None = None
        self._count = 0  # of refused messages since the last line of the log
        self._disk: tuple[float, int | None, str] | None = None  # time, needed bytes, description

    def of_status(self, status: PutStatus) -> tuple[int, str | None]:
        """Return the code and the remark of an answer for a PutStatus."""
        code = refusal_code(status)
        if status is PutStatus.CREATE_MAPPED_FILE_FAILED:
            reason = self._of_disk(self._store.config.mapped_file_size_commit_log)
            return code, self._logged(f"create mapped file failed, server is busy or broken: {reason}")
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            return code, self._logged(f"service not available now: {self._of_disk(_QUEUE_BYTES)}")
        return code, _REMARKS.get(code, status.name)

    def of_error(self, error: Exception) -> tuple[int, str]:
        """Return the code and the remark of an answer for an exception of the store."""
        code = refusal_code(getattr(error, "status", None) or PutStatus.UNKNOWN_ERROR)
        if code is not Code.SERVICE_NOT_AVAILABLE:
            return code, str(error)
        reason = self._of_disk(None) if isinstance(error, StoreFullError) else str(error)
        return code, self._logged(f"service not available now: {reason}")

    def _logged(self, remark: str) -> str:
        """Return a remark. Log it once a minute."""
        self._count += 1
        now = self._time()
        if self._logged_at is None or now >= self._logged_at + _LOG_SECONDS:
            _log.error("%s: messages refused since the last such line: %d; %s", self._store.path, self._count, remark)
            self._logged_at, self._count = now, 0
        return remark

    def _of_disk(self, needed: int | None) -> str:
        """Describe the disks of the store.

        needed  free bytes; None: the cleaner has marked a disk as full
        """
        now = self._time()
        if self._disk is None or self._disk[1] != needed or now >= self._disk[0] + _DISK_SECONDS:
            self._disk = now, needed, self._describe(needed)
        return self._disk[2]

    def _describe(self, needed: int | None) -> str:
        log, queues, _ = folders = self._folders()
        use = [used_share(path, self._statvfs) for path in folders]
        shares = "CL: {:5.2f} CQ: {:5.2f} INDEX: {:5.2f}".format(*use)
        if needed is None:
            level = Levels.of(self._store.config).force
            when = f"{log if use[0] >= use[1] else queues} is at most {level:.0%} full"
        elif (free := self._free(log)) < needed:
            when = f"{log} has {needed} free bytes; it has {free}"
        else:
            return f"the store has failed, or its disk is busy or lacks inodes [{shares}]; see the log of the broker"
        return f"the broker's disk is full [{shares}]; messages are accepted again when {when}"

    def _free(self, path: str) -> int:
        try:
            found = self._statvfs(path)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def _folders(self) -> tuple[str, str, str]:
        """The folders of the log, the consume queues and the index; the root for one that does not exist yet."""
        root = self._store.path
        logs = self._store.config.commit_log_paths(root)
        log = min(logs, key=lambda path: used_share(path, self._statvfs))
        queues, index = (os.path.join(root, name) for name in ("consumequeue", "index"))
        return log, queues if os.path.exists(queues) else root, index if os.path.exists(index) else root
