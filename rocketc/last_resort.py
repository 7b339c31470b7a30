"""Where warnings go while the program has not set up logging."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

_HINT = " (logging.basicConfig() shows all of them, with tracebacks)"


class LastResort(logging.Handler):
    """Prints warnings on stderr, one line a second at most, until a logger that sees them has a handler.

    clock  seconds; monotonic
    Source: logging.lastResort of Python, which is not used if a library has a handler.

    >>> handler = LastResort()
    >>> handler.level == logging.WARNING
    True
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._next = float("-inf")
        self._left_out = 0
        self._hint = _HINT

    def emit(self, record: logging.LogRecord) -> None:
        if self._has_others(record.name):
            return
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        self._next = now + 1.0
        self._print(f"{record.levelname} {record.name}: {_line(record)}{self._hint}")
        self._hint = ""

    def close(self) -> None:
        """At the end of the program: say how many lines are missing."""
        if self._left_out:
            self._print("WARNING rocketc: the program ends")
        super().close()

    def _has_others(self, name: str) -> bool:
        """Whether the logger of a record, or one above it, has a handler of the program."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False

    def _print(self, line: str) -> None:
        if self._left_out:
            line += f"; {self._left_out} more lines since the last one"
            self._left_out = 0
        try:
            if sys.stderr is not None:
                sys.stderr.write(line + "\n")
        except (OSError, ValueError):  # it was closed
            pass


def _line(record: logging.LogRecord) -> str:
    """Return the message of a record in one line, with its exception."""
    text = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and str(error) not in text:
        text += f": {type(error).__name__}: {error}"
    return " ".join(text.split())
