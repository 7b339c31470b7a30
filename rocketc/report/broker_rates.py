"""The data that `top` shows of a broker: two answers to GET_BROKER_RUNTIME_INFO become rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketc.report.rates import spark
from rocketc.report.tables import columns, facts
from rocketc.report.text import show_size, show_span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_RATES = (
    ("messages in", "putTps"),
    ("messages out", "getTransferredTps"),
    ("pulls with messages", "getFoundTps"),
    ("pulls without", "getMissTps"),
)
_OLD_NAMES = {"getTransferredTps": "getTransferedTps"}  # of RocketMQ 4


@dataclass(frozen=True)
class BrokerSnapshot:
    """An answer of a broker.

    time   ms since the epoch, when it arrived
    table  RocketMQ's names and texts
    """

    time: int
    table: Mapping[str, str]

    def number(self, name: str) -> float | None:
        """Return a number of the table; None if it is missing or not a number."""
        try:
            return float(self.table[name])
        except (KeyError, ValueError):
            return None

    def triple(self, name: str) -> list[float | None]:
        """Return the rates over 10 s, 1 min and 10 min."""
        text = self.table.get(name, self.table.get(_OLD_NAMES.get(name, ""), ""))
        rates: list[float | None] = []
        for word in (text.split(" ") + ["", "", ""])[:3]:
            try:
                rates.append(float(word))
            except ValueError:
                rates.append(None)
        return rates


@dataclass(frozen=True)
class BrokerRates:
    """What a broker did between two answers; look is the later one. None: the broker does not tell."""

    look: BrokerSnapshot
    seconds: float
    messages_per_second: float | None
    bytes_per_second: float
    messages_out_per_second: float | None

    @classmethod
    def between(cls, before: BrokerSnapshot, now: BrokerSnapshot) -> BrokerRates:
        """Compute the rates between two answers; 0 if no time passed, or the broker has restarted meanwhile."""
        seconds = (now.time - before.time) / 1000
        is_same = before.table.get("bootTimestamp") == now.table.get("bootTimestamp")

        def rate(name: str) -> float | None:
            first, last = before.number(name), now.number(name)
            if first is None or last is None:
                return None
            return max(last - first, 0.0) / seconds if seconds > 0 and is_same else 0.0

        return cls(
            now,
            seconds,
            rate("putMessageTimesTotal"),
            rate("commitLogMaxOffset") or 0.0,
            rate("msgGetTotalTodayNow"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without unknown values. Times are in ms, sizes and offsets in bytes."""
        look = self.look
        whole: dict[str, Any] = {
            "time": look.time,
            "seconds": round(self.seconds, 3),
            "messagesPerSecond": _rounded(self.messages_per_second),
            "bytesPerSecond": _rounded(self.bytes_per_second),
            "messagesOutPerSecond": _rounded(self.messages_out_per_second),
            "firstOffset": _whole(look.number("commitLogMinOffset")),
            "endOffset": _whole(look.number("commitLogMaxOffset")),
            "oldestStoreTimestamp": _whole(look.number("earliestMessageTimeStamp")),
            "dispatchBehindBytes": _whole(look.number("dispatchBehindBytes")),
            "ratesOver10s1m10m": {name: look.triple(name) for _, name in _RATES},
            "broker": dict(look.table),
        }
        return {name: value for name, value in whole.items() if value is not None}


@dataclass(frozen=True)
class BrokersSnapshot:
    """Answers of several brokers, by their names.

    addresses  of all
    errors     of those that did not answer
    """

    addresses: Mapping[str, str]
    brokers: Mapping[str, BrokerSnapshot]
    errors: Mapping[str, str]


@dataclass(frozen=True)
class BrokersRates:
    """What several brokers did between two answers of each; look is the later one."""

    look: BrokersSnapshot
    brokers: Mapping[str, BrokerRates]

    @classmethod
    def between(cls, before: BrokersSnapshot, now: BrokersSnapshot) -> BrokersRates:
        """Compute the rates of the brokers that have answered twice."""
        both = [name for name in now.brokers if name in before.brokers]
        return cls(now, {name: BrokerRates.between(before.brokers[name], now.brokers[name]) for name in both})

    @property
    def bytes_per_second(self) -> float:
        return sum(one.bytes_per_second for one in self.brokers.values())

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict: what BrokerRates.to_dict() returns, for each broker."""
        found = [
            {"brokerName": name, "address": self.look.addresses[name], **one.to_dict()}
            for name, one in self.brokers.items()
        ]
        return {"brokers": found, **({"errors": dict(self.look.errors)} if self.look.errors else {})}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def draw_broker(
    path: str, rates: BrokerRates, sort: str, view: str, rows: int | None = None, history: Sequence[float] = ()
) -> list[RenderableType]:
    """Return the lines above, and the table of rates. `sort`, `view` and `rows` are for stores."""
    return [facts(_lines(path, rates, history)), "", _table(rates.look)]


def draw_brokers(
    path: str, rates: BrokersRates, sort: str, view: str, rows: int | None = None, history: Sequence[float] = ()
) -> list[RenderableType]:
    """Return what draw_broker() returns, for each broker, and a line for each that did not answer."""
    out: list[RenderableType] = []
    for name, one in rates.brokers.items():
        title = f"{name}, {rates.look.addresses[name]}"
        out += [*draw_broker(title, one, sort, view, rows, history if len(rates.brokers) == 1 else ()), ""]
    failed = [("broker", f"{name} does not answer: {text}", "red") for name, text in rates.look.errors.items()]
    return [*out, facts(failed)] if failed else out[:-1]


def _lines(path: str, rates: BrokerRates, history: Sequence[float]) -> Iterator[tuple[str, str, str]]:
    look = rates.look
    version, runtime = look.table.get("brokerVersionDesc", "?"), look.table.get("runtime", "").strip("[] ")
    yield "broker", f"{path}, {version}, up for {runtime or '?'}", ""
    size = f"{show_size(round(rates.bytes_per_second))}/s"
    yield "in", f"{_show(rates.messages_per_second)} messages/s, {size}  {spark(history)}".rstrip(), ""
    yield "out", f"{_show(rates.messages_out_per_second)} messages/s", ""
    first, end = _whole(look.number("commitLogMinOffset")) or 0, _whole(look.number("commitLogMaxOffset")) or 0
    oldest = _whole(look.number("earliestMessageTimeStamp"))
    age = f"; the oldest message is {show_span(max(look.time - oldest, 0))} old" if oldest and oldest > 0 else ""
    yield "log", f"{first} to {end} ({show_size(max(end - first, 0))}){age}", ""
    behind = _whole(look.number("dispatchBehindBytes"))
    if behind is not None:
        yield "dispatch", f"{show_size(behind)} behind" if behind else "nothing is behind", ""
    yield "flush", f"{look.table.get('remainHowManyDataToFlush', '?')} behind", ""
    latency = look.table.get("putLatency99"), look.table.get("putLatency999")
    if None not in latency:
        yield "puts", f"{latency[0]} ms for 99 %, {latency[1]} ms for 99.9 %", ""
    used = look.number("commitLogDiskRatio")
    if used is not None:
        yield "disk", f"{used:.0%} used", ""


def _table(look: BrokerSnapshot) -> Table:
    table = columns(">10 s", ">1 min", ">10 min", "in a second")
    for title, name in _RATES:
        table.add_row(*(_show(rate, "-") for rate in look.triple(name)), title)
    return table


def _show(rate: float | None, unknown: str = "?") -> str:
    return unknown if rate is None else f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
