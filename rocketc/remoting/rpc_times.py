"""How long a server takes for its requests, by request code and code of the answer.

Source: RocketMQ RemotingMetricsManager, rocketmq_rpc_latency.
"""

from __future__ import annotations

from rocketc.remoting._answer_times import BOUNDS, AnswerTimes

__all__ = ["BOUNDS", "UNKNOWN", "RpcTimes"]

UNKNOWN = -1  # all request codes that the table of requests lacks: a peer chooses them

Key = tuple[int, int, bool]


class RpcTimes:
    """Counts requests by their time, from the whole frame to the answer.

    >>> times = RpcTimes()
    >>> times.add(11, 0, 0.004, False)
    >>> times.read()
    {(11, 0, False): ([0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 0.004)}
    """

    def __init__(self) -> None:
        self._times: dict[Key, AnswerTimes] = {}

    def of(self, request: int, answer: int, is_late: bool) -> AnswerTimes:
        """Return the times of one kind of requests, for code that adds to them often; see add().

        >>> RpcTimes().of(310, 0, False).add(0.004, 12)
        """
        key = request, answer, is_late
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = AnswerTimes()
        return times

    def add(self, request: int, answer: int, seconds: float, is_late: bool, count: int = 1) -> None:
        """Count requests.

        is_late  the processor answered later: for example a held pull
        """
        self.of(request, answer, is_late).add(seconds, count)

    def slowest(self, request: int) -> float:
        """Return the bound in seconds below which all requests of a code were answered that did not wait.

        >>> times = RpcTimes()
        >>> times.add(11, 0, 0.004, False)
        >>> times.slowest(11), times.slowest(10)
        (0.005, 0.0)
        """
        found = [counts for (code, _, is_late), (counts, _) in self.read().items() if code == request and not is_late]
        used = [at for counts in found for at, count in enumerate(counts) if count]
        return BOUNDS[min(max(used), len(BOUNDS) - 1)] if used else 0.0

    def read(self) -> dict[Key, tuple[list[int], float]]:
        """Return a copy, by (request code, code of the answer, is_late): requests up to each bound and above, and their
        time in all, in seconds. Kinds without a request are left out.
        """
        found = {key: times.read() for key, times in self._times.items()}
        return {key: read for key, read in found.items() if any(read[0])}
