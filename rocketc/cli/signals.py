"""Signals that end a process (also Ctrl-C), for commands that must clean up first."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, "FrameType | None"], object]


class Ended(BaseException):
    """A signal that ends the process arrived; `code` is the exit code."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: _Handler) -> Iterator[None]:
    usual = {number: before for number in numbers if (before := signal.getsignal(number)) is not None}
    for number, before in usual.items():
        if before is not signal.SIG_IGN:  # under nohup, SIGHUP stays ignored
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in usual.items():
            signal.signal(number, before)


@contextmanager
def signals_raise() -> Iterator[None]:
    """While entered, SIGTERM and SIGHUP raise Ended, so that cleanup code runs."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Ended(number)

    with _handled((signal.SIGTERM, signal.SIGHUP), end):
        yield


class Stop:
    """Stops reading at the first signal, so that the data read so far is processed. A second signal raises at once."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._is_waiting = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While entered, this object handles SIGINT, SIGTERM and SIGHUP. Leave it after the cleanup."""
        with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._on_signal):
            yield

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again, self._number = self._number is not None, number
        if again or self._is_waiting:
            raise Ended(number)

    def check(self) -> None:
        """Raise Ended if a signal arrived."""
        if self._number is not None:
            raise Ended(self._number)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While entered, a signal raises Ended at once. Use it where no data can be lost."""
        try:
            self._is_waiting = True
            self.check()
            yield
        finally:
            self._is_waiting = False
