"""Regular expressions of users over texts of strangers: no text keeps one busy for ever.

Python's `re` tries again and again: `(a+)+$` is not done with forty letters and a dot in a lifetime, and holds the
interpreter meanwhile. A topic or a body may be such a text.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable

from rocketc.errors import PatternTimeoutError

LIMIT_SECONDS = 5.0  # of the processor, for one text; what is usual takes microseconds

_searching = False


class _Late(BaseException):
    pass


def _on_signal(*_: object) -> None:
    if _searching:
        raise _Late


def limited(find: Callable[[str], re.Match[str] | None], text: str) -> re.Match[str] | None:
    """find(text), for at most LIMIT_SECONDS if this is the main thread: elsewhere Python lets nothing interrupt it.

    find   search, match or fullmatch of a compiled pattern
    The signal is SIGVTALRM; if the program has a use of its own for it there is no limit.
    Raises PatternTimeoutError.

    >>> limited(re.compile("or.*").fullmatch, "orders")
    <re.Match object; span=(0, 6), match='orders'>
    """
    global _searching
    if not _can_be_limited():
        return find(text)
    _searching = True
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_SECONDS)
    try:
        return find(text)
    except _Late:
        pattern = getattr(getattr(find, "__self__", None), "pattern", "")
        raise PatternTimeoutError(
            f"the regular expression {pattern!r} was not done with a text of {len(text)} characters in "
            f"{LIMIT_SECONDS:g} s; repetitions within repetitions do that, as in (a+)+"
        ) from None
    finally:
        _searching = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _can_be_limited() -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGVTALRM)
    if handler is _on_signal:
        return not _searching
    if handler is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGVTALRM, _on_signal)
    return True
