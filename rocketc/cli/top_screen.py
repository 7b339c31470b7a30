"""The screen of `top`. textual draws it, from the same tables that --once prints."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from rocketc.errors import RocketcError
from rocketc.report.rates import HISTORY, SORTS, VIEWS, Rates, draw
from rocketc.report.text import plain

try:
    from rich.console import Group, RenderableType
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.binding import Binding, BindingType
    from textual.widgets import Footer, Static
except ImportError:
    raise ImportError(
        "top needs textual: pip install 'rocketc[top]'; --once and --json print one snapshot without it"
    ) from None

_LINES_ABOVE = 11  # facts, a blank line, the table's head, the last line and the keys
_SHARE = 20  # snapshots of many queues are slow: wait at least this many times as long as the last one took


class Top(App[None]):
    """Takes a snapshot of a store in every interval, and shows what changed.

    path      as the user gave it
    watch     the reader of the store's snapshots; the store stays open. Or that of a broker's
    interval  seconds
    sort      one of SORTS
    view      one of VIEWS
    between   makes rates from two snapshots
    draw      makes the tables of rates
    """

    CSS = "Screen { background: transparent; } #body { height: 1fr; padding: 0 1; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("s", "sort", "sort"),
        Binding("t", "view", "topics / groups"),
    ]

    def __init__(
        self,
        path: str,
        watch: Any,
        interval: float,
        sort: str,
        view: str,
        *,
        between: Callable[[Any, Any], Any] = Rates.between,
        draw: Callable[..., Iterable[RenderableType]] = draw,
    ) -> None:
        super().__init__()
        self.rates: Any = None
        self._between, self._draw_rates = between, draw
        self.sort = sort
        self.view = view
        self.title = f"rocketc top {path}"
        self._path = path
        self._watch = watch
        self._interval = interval
        self._before: Any = None
        self._history: deque[float] = deque(maxlen=HISTORY)

    def compose(self) -> ComposeResult:
        yield Static("reading ...", id="body", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self._look()

    def on_resize(self) -> None:
        self._draw()

    def _look(self) -> None:
        started = time.monotonic()
        try:
            now = self._watch.read()
        except (RocketcError, OSError) as error:
            self._show(Text(f"{self._path}: {plain(error)}", "red"))
        else:
            if self._before is not None:
                self.rates = self._between(self._before, now)
                self._history.append(self.rates.bytes_per_second)
            self._before = now
            self._draw()
        took = time.monotonic() - started
        self.set_timer(max(self._interval - took, _SHARE * took), self._look)

    def _draw(self) -> None:
        if self.rates is not None:
            rows = max(self.size.height - _LINES_ABOVE, 1)
            self._show(Group(*self._draw_rates(self._path, self.rates, self.sort, self.view, rows, self._history)))

    def _show(self, what: Group | Text) -> None:
        for body in self.query("#body").results(Static):  # a timer may run before the widget exists or after it is gone
            body.update(what)

    def action_sort(self) -> None:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        self._draw()

    def action_view(self) -> None:
        self.view = VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)]
        self._draw()
