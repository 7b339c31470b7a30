"""Answers that wait for the disk, for replicas, or for both at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rocketc.ha.group_transfer import GroupTransfer
from rocketc.remoting.codes import Code
from rocketc.status import PutStatus

Done = Callable[[int], object]  # called with the code of the answer
_CODES = {
    PutStatus.PUT_OK: Code.SUCCESS,
    PutStatus.FLUSH_SLAVE_TIMEOUT: Code.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: Code.SLAVE_NOT_AVAILABLE,
}


class AnswerWaits(Protocol):
    """A list of answers that wait, in the order of the log."""

    def __len__(self) -> int: ...

    def add(self, end: int, done: Done) -> None:
        """Call `done` with the code of the answer, later. `end` is the end of its last record in the log."""
        ...

    def close(self) -> None:
        """End all answers that wait. A second call does nothing."""
        ...


class ReplicaWaits:
    """Answers that wait until slaves have their records.

    transfer  of the master; its owner closes it too
    """

    def __init__(self, transfer: GroupTransfer) -> None:
        self._transfer = transfer

    def __len__(self) -> int:
        return len(self._transfer)

    def add(self, end: int, done: Done) -> None:
        """See AnswerWaits."""
        self._transfer.add(end, lambda status: done(_CODES[status]))

    def close(self) -> None:
        """See AnswerWaits."""
        self._transfer.close()


class BothWaits:
    """Answers that wait for the disk and for slaves, in parallel.

    The answer has the code of the flush. If that of the replicas is another one than SUCCESS, it has that code.
    Source: RocketMQ CommitLog.handleDiskFlushAndHA.
    """

    def __init__(self, flush: AnswerWaits, replicas: AnswerWaits) -> None:
        self._flush, self._replicas = flush, replicas

    def __len__(self) -> int:
        return max(len(self._flush), len(self._replicas))

    def add(self, end: int, done: Done) -> None:
        """See AnswerWaits."""
        both = _Both(done)
        self._flush.add(end, both.flushed)
        self._replicas.add(end, both.replicated)

    def close(self) -> None:
        """See AnswerWaits."""
        self._flush.close()
        self._replicas.close()


class _Both:
    """One answer that waits for both."""

    __slots__ = ("_done", "_flushed", "_replicated")

    def __init__(self, done: Done) -> None:
        self._done = done
        self._flushed: int | None = None
        self._replicated: int | None = None

    def flushed(self, code: int) -> None:
        self._flushed = code
        self._end()

    def replicated(self, code: int) -> None:
        self._replicated = code
        self._end()

    def _end(self) -> None:
        if self._flushed is not None and self._replicated is not None:
            self._done(self._flushed if self._replicated == Code.SUCCESS else self._replicated)


def answer_waits(flush: AnswerWaits | None, replicas: AnswerWaits | None) -> AnswerWaits | None:
    """Return what answers wait for; None: for nothing.

    >>> answer_waits(None, None)
    """
    if flush is not None and replicas is not None:
        return BothWaits(flush, replicas)
    return flush if replicas is None else replicas
