"""Rates of counters over the last seconds and minutes.

Source: RocketMQ StoreStatsService.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SAMPLE_SECONDS = 1.0
SPANS = (10, 60, 600)  # seconds; the lengths of time of a rate


class Rates:
    """Notes counters once a second, and computes what was counted in a second on average.

    read  returns the counters, always the same number of them; they only increase

    >>> counted = [0]
    >>> rates = Rates(lambda: counted)
    >>> for second in range(31):
    ...     rates.sample(float(second))
    ...     counted[0] += 5
    >>> rates.show(0)
    '5.0  '
    >>> rates.over(0, 60) is None
    True
    """

    def __init__(self, read: Callable[[], tuple[int, ...] | list[int]]) -> None:
        self._read = read
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=round(SPANS[-1] / SAMPLE_SECONDS) + 1)

    def sample(self, now: float) -> None:
        """Note the counters. It is due every second.

        now  loop.time()
        """
        self._samples.append((now, tuple(self._read())))

    def over(self, index: int, seconds: int) -> float | None:
        """Return the rate of a counter over the last seconds; None if the samples do not reach that far back."""
        back = round(seconds / SAMPLE_SECONDS)
        if len(self._samples) <= back:
            return None
        began, before = self._samples[-1 - back]
        ended, after = self._samples[-1]
        return (after[index] - before[index]) / (ended - began) if ended > began else None

    def show(self, index: int) -> str:
        """Return the rates over 10 s, 1 min and 10 min as RocketMQ writes them: empty where there is none yet."""
        rates = (self.over(index, seconds) for seconds in SPANS)
        return " ".join("" if rate is None else str(rate) for rate in rates)
