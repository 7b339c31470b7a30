"""Sums and rates of counters over the last minute, hour and day.

Source: RocketMQ StatsItemSet, StatsItem, BrokerStatsData.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

SAMPLE_SECONDS = 10.0
_SPANS = (("statsMinute", 10_000, 6), ("statsHour", 600_000, 6), ("statsDay", 3_600_000, 24))  # ms of a part, parts

Key = tuple[str, str]  # RocketMQ's name of the statistic, and its key, for example a topic


class Counter(NamedTuple):
    """A counter that only increases.

    total  what is counted, for example messages
    times  how often it was increased
    """

    total: int = 0
    times: int = 0


class Sums(NamedTuple):
    """What was counted in a span.

    tps    of a second
    avgpt  of each time that the counter was increased
    """

    total: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class _Span:
    """Differences between samples, in parts of `length` ms. Only counters that changed need memory.

    One thread adds and forgets; sums() may run on any thread: it reads the tuple of parts once, and no tuple changes.
    """

    def __init__(self, length: int, parts: int) -> None:
        self._length, self._most = length, parts
        self._parts: tuple[tuple[int, int, dict[Key, Counter]], ...] = ()  # begin, end, differences
        self._begin: int | None = None
        self._open: dict[Key, Counter] = {}

    def add(self, now: int, changed: Mapping[Key, Counter]) -> None:
        if self._begin is None:
            self._begin = now
            return
        for key, (total, times) in changed.items():
            before = self._open.get(key, Counter())
            self._open[key] = Counter(before.total + total, before.times + times)
        if now - self._begin >= self._length:
            self._parts = (*self._parts, (self._begin, now, self._open))[-self._most :]
            self._begin, self._open = now, {}

    def sums(self, key: Key) -> Sums:
        parts = self._parts
        if not parts:
            return Sums()
        found = [one for _, _, part in parts if (one := part.get(key)) is not None]
        total, times = sum(one.total for one in found), sum(one.times for one in found)
        passed = parts[-1][1] - parts[0][0]
        return Sums(total, total * 1000 / passed, total / times if times else 0.0)

    def forget(self, key: Key) -> None:
        for _, _, part in self._parts:
            part.pop(key, None)
        self._open.pop(key, None)


class Statistics:
    """The counters of a broker, and what was counted lately. One thread samples; any thread may ask.

    >>> statistics = Statistics()
    >>> for n in range(4):
    ...     statistics.sample(10_000 * n, {("TOPIC_PUT_NUMS", "orders"): Counter(20 * n, 10 * n)})
    >>> statistics.sums("TOPIC_PUT_NUMS", "orders")
    Sums(total=60, tps=2.0, avgpt=2.0)
    """

    def __init__(self) -> None:
        self._spans = {name: _Span(length, parts) for name, length, parts in _SPANS}
        self._known: dict[Key, Counter] = {}

    def sample(self, now: int, counters: Mapping[Key, Counter]) -> None:
        """Note the counters; due every SAMPLE_SECONDS.

        now  ms of a clock that does not go back
        A counter that is left out is removed. One that decreased counts from 0.
        """
        changed = {}
        for key, counter in counters.items():
            before = self._known.get(key, Counter())
            if counter.total < before.total:
                before = Counter()
            if counter != before:
                changed[key] = Counter(counter.total - before.total, counter.times - before.times)
        for key in self._known.keys() - counters.keys():
            for span in self._spans.values():
                span.forget(key)
        self._known = dict(counters)
        for span in self._spans.values():
            span.add(now, changed)

    def sums(self, name: str, key: str) -> Sums:
        """Return what was counted in the last minute; zeros for an unknown counter."""
        return self._spans["statsMinute"].sums((name, key))

    def tables(self, name: str, key: str) -> dict[str, dict[str, float]] | None:
        """Return BrokerStatsData; None for an unknown counter.

        >>> Statistics().tables("TOPIC_PUT_NUMS", "orders") is None
        True
        """
        return self.table(name, key) if (name, key) in self._known else None

    def table(self, name: str, key: str) -> dict[str, dict[str, float]]:
        """Return BrokerStatsData; zeros for an unknown counter."""
        found = {span: self._spans[span].sums((name, key)) for span in sorted(self._spans)}
        return {span: {"avgpt": sums.avgpt, "sum": sums.total, "tps": sums.tps} for span, sums in found.items()}
