"""How long a server takes for its requests, by request code and code of the answer.

Source: RocketMQ RemotingMetricsManager, rocketmq_rpc_latency.
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0)  # seconds, RocketMQ's
UNKNOWN = -1  # all request codes that the table of requests lacks: a peer chooses them

Key = tuple[int, int, bool]


class RpcTimes:
    """Counts requests by their time, from the whole frame to the answer.

    The requests that a FastPath takes are not in it: a clock costs more there than its share of a request.

    >>> times = RpcTimes()
    >>> times.add(11, 0, 0.004, False)
    >>> times.read()
    {(11, 0, False): ([0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 0.004)}
    """

    def __init__(self) -> None:
        self._counts: dict[Key, list[int]] = {}
        self._sums: dict[Key, float] = {}

    def add(self, request: int, answer: int, seconds: float, is_late: bool) -> None:
        """Count a request.

        is_late  the processor answered it later: for example a held pull
        """
        key = request, answer, is_late
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(BOUNDS) + 1)
            self._sums[key] = 0.0
        counts[bisect_left(BOUNDS, seconds)] += 1
        self._sums[key] += seconds

    def read(self) -> dict[Key, tuple[list[int], float]]:
        """Return a copy, by (request code, code of the answer, is_late): requests up to each bound and above, and their
        time in all, in seconds.
        """
        return {key: (list(counts), self._sums[key]) for key, counts in self._counts.items()}
