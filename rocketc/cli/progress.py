"""How far long work has come, on stderr, while somebody looks; it is gone afterwards."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN_AFTER = 0.5  # seconds: what takes less needs no bar
_AGAIN = 0.1


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """While entered, tell(done) moves a bar on stderr, if that is a terminal and the work takes long.

    what   what is being done: "exporting"
    total  bytes
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    bar = _Bar(what, total)
    try:
        yield bar.tell
    finally:
        bar.close()


class _Bar:
    """rich's bar, made when it is shown for the first time."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._next = time.monotonic() + SHOWN_AFTER
        self._move: Callable[[int], None] | None = None
        self._stop: Callable[[], None] | None = None

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _AGAIN
        if self._move is None:
            self._start()
        assert self._move is not None
        self._move(done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(file=sys.stderr, legacy_windows=False)
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TimeRemainingColumn(compact=True)
        bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
        task = bar.add_task(self._what, total=self._total)
        bar.start()
        self._move = lambda done: bar.update(task, completed=done, refresh=True)
        self._stop = bar.stop

    def close(self) -> None:
        if self._stop is not None:
            self._stop()
