"""Run the regular expressions of users with a time limit, because the texts may be malicious.

Python's `re` backtracks: `(a+)+$` does not finish in a lifetime for forty letters and a dot, and it blocks the
interpreter. A topic or a body may be such a text.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable

from rocketc.errors import PatternTimeoutError

LIMIT_SECONDS = 5.0  # of processor time for one text; most need microseconds

_searching = False


class _Late(BaseException):
    pass


def _on_signal(*_: object) -> None:
    if _searching:
        raise _Late


def limited(find: Callable[[str], re.Match[str] | None], text: str) -> re.Match[str] | None:
    """Call find(text) with a limit of LIMIT_SECONDS in the main thread. Python cannot interrupt it in other threads.

    find   search, match or fullmatch of a compiled pattern

    The limit uses SIGVTALRM; if the program handles this signal itself, there is no limit.
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
            f"the regular expression {pattern!r} did not finish with a text of {len(text)} characters in "
            f"{LIMIT_SECONDS:g} s; avoid nested repetitions, as in (a+)+"
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
