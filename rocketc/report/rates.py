"""The data that `top` shows: two snapshots of a store become rates, and these a table or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketc.metrics.snapshot import Lag, StoreSnapshot, TopicSnapshot
from rocketc.report.tables import columns, facts
from rocketc.report.text import many, show_size, show_span, show_time, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SORTS = ("messages", "bytes", "held", "name")
VIEWS = ("topics", "groups")
HISTORY = 40  # number of rates in the spark line
_BARS = "▁▂▃▄▅▆▇█"
_MUCH = 16 << 20  # bytes; a store that is written to is always less than this behind


@dataclass(frozen=True)
class TopicRate:
    """A topic: its numbers of queues and messages, and its input per second."""

    topic: str
    queues: int
    messages: int
    messages_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Rates:
    """The rates of a store between two snapshots; look is the later one.

    seconds  between the snapshots
    messages_per_second  added to the queues
    bytes_per_second     added to the log
    """

    look: StoreSnapshot
    seconds: float
    messages_per_second: float
    bytes_per_second: float
    topics: tuple[TopicRate, ...]

    @classmethod
    def between(cls, before: StoreSnapshot, now: StoreSnapshot) -> Rates:
        """Compute the rates between two snapshots; 0 if no time has passed between them."""
        seconds = (now.time - before.time) / 1000
        each = 1 / seconds if seconds > 0 else 0.0
        nothing = TopicSnapshot()
        topics = []
        for name, of in now.topics.items():
            was = before.topics.get(name, nothing)
            # The count of a topic that was deleted and created again starts at 0.
            came = of.came - was.came if of.came >= was.came else of.came
            size = of.came_bytes - was.came_bytes if of.came >= was.came else of.came_bytes
            topics.append(TopicRate(name, of.queues, of.messages, came * each, size * each))
        return cls(
            now,
            seconds,
            sum(one.messages_per_second for one in topics),
            max(now.end - before.end, 0) * each,
            tuple(topics),
        )

    def sorted(self, by: str) -> list[TopicRate]:
        """Return the topics sorted by one of SORTS, and then by name."""
        if by == "name":
            return sorted(self.topics, key=lambda one: one.topic)
        key = {"messages": "messages_per_second", "bytes": "bytes_per_second", "held": "messages"}[by]
        return sorted(self.topics, key=lambda one: (-getattr(one, key), one.topic))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without unknown values. Times are in ms, sizes and offsets in bytes."""
        look = self.look
        whole = {
            "time": look.time,
            "seconds": round(self.seconds, 3),
            "messagesPerSecond": round(self.messages_per_second, 1),
            "bytesPerSecond": round(self.bytes_per_second, 1),
            "firstOffset": look.first,
            "endOffset": look.end,
            "size": look.size,
            "oldestStoreTimestamp": look.oldest,
            "flushBehindBytes": look.flush_behind,
            "flushedStoreTimestamp": look.flushed_time,
            "dispatchBehindBytes": look.dispatch_behind,
            "topics": [
                {
                    "topic": one.topic,
                    "queues": one.queues,
                    "messages": one.messages,
                    "messagesPerSecond": round(one.messages_per_second, 1),
                    "bytesPerSecond": round(one.bytes_per_second, 1),
                }
                for one in self.sorted("messages")
            ],
            "groups": [
                {"group": one.group, "topic": one.topic, "lagMessages": one.messages, "lagMs": one.latency_ms}
                for one in by_lag(look.lags)
            ],
        }
        return {name: value for name, value in whole.items() if value is not None}


def by_lag(lags: Iterable[Lag]) -> list[Lag]:
    """Sort the groups by lag, the largest first."""
    return sorted(lags, key=lambda one: (-one.messages, one.group, one.topic))


def draw(
    path: str, rates: Rates, sort: str, view: str, rows: int | None = None, history: Sequence[float] = ()
) -> list[RenderableType]:
    """Return the lines above, and the table of topics or groups; rows: the most rows of the table, None for all."""
    table = _topics(rates, sort, rows) if view == "topics" else _groups(rates.look.lags, rows)
    return [facts(_lines(path, rates, history)), "", table]


def _lines(path: str, rates: Rates, history: Sequence[float]) -> Iterator[tuple[str, str, str]]:
    look = rates.look
    yield "store", path, ""
    speed = f"{rates.messages_per_second:,.0f} messages/s, {show_size(round(rates.bytes_per_second))}/s"
    yield "in", f"{speed}  {spark(history)}".rstrip(), "green" if rates.bytes_per_second else "dim"
    yield "log", f"{look.first} to {look.end} ({show_size(look.end - look.first)})", ""
    age = "" if look.oldest is None else f"; the oldest message is {show_span(max(look.time - look.oldest, 0))} old"
    yield "size", show_size(look.size) + age, ""
    behind = look.dispatch_behind
    yield "dispatch", *_behind_text(behind, "the store is without consume queues")
    if look.flush_behind is None and look.flushed_time:
        yield "flush", f"durable up to messages of {show_time(look.flushed_time)}", ""
    else:
        yield "flush", *_behind_text(look.flush_behind, "unknown")
    queues = sum(one.queues for one in rates.topics)
    counts = [many(len(rates.topics), "topic"), many(queues, "queue"), many(look.group_count, "group")]
    yield "has", ", ".join(counts), ""


def _behind_text(behind: int | None, unknown: str) -> tuple[str, str]:
    if behind is None:
        return unknown, "dim"
    style = "green" if behind == 0 else "yellow" if behind >= _MUCH else ""
    return (f"{show_size(behind)} behind" if behind else "nothing is behind"), style


def spark(numbers: Sequence[float]) -> str:
    """Draw numbers as bars, the greatest one with full height; empty if all are 0.

    >>> spark([0, 1, 2, 4])
    '▁▃▅█'
    """
    most = max(numbers, default=0)
    return "".join(_BARS[min(int(one / most * 8), 7)] for one in numbers) if most > 0 else ""


def _topics(rates: Rates, sort: str, rows: int | None) -> Table:
    from rich.text import Text

    table = columns(">messages/s", ">bytes/s", ">messages", ">queues", "topic")
    topics = rates.sorted(sort)
    for one in topics[:rows]:
        style = "" if one.messages_per_second else "dim"
        speed = f"{one.messages_per_second:,.0f}", show_size(round(one.bytes_per_second))
        table.add_row(*speed, f"{one.messages:,}", f"{one.queues:,}", Text(visible(one.topic), style))
    _add_left_out(table, len(topics), rows)
    return table


def _groups(lags: Sequence[Lag], rows: int | None) -> Table:
    from rich.text import Text

    table = columns(">lag", ">for", "group", "topic")
    for one in by_lag(lags)[:rows]:
        age = "?" if one.latency_ms is None else show_span(one.latency_ms) if one.messages else "-"
        style = "yellow" if one.messages else "dim"
        table.add_row(f"{one.messages:,}", age, Text(visible(one.group), style), Text(visible(one.topic)))
    _add_left_out(table, len(lags), rows)
    return table


def _add_left_out(table: Table, count: int, rows: int | None) -> None:
    from rich.text import Text

    if rows is not None and count > rows:
        table.add_row(*[""] * (len(table.columns) - 1), Text(f"... {count - rows} more", "dim"))
