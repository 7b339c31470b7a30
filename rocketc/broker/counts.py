"""What processors count for the statistics of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field

PAIRS_MOST = 100_000  # of a topic and a group


@dataclass
class Timed:
    """How often something was done, and how long it took together.

    >>> timed = Timed()
    >>> timed.add(0.25)
    >>> timed
    Timed(times=1, seconds=0.25)
    """

    times: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count it once."""
        self.times += 1
        self.seconds += seconds


@dataclass
class BrokerCounts:
    """Counters that only increase. The thread of the event loop counts.

    sent_back             messages that consumers sent back, by their topic and group, for the first PAIRS_MOST pairs
    kept_back             messages without retries left that wait at the last delay level, because the name of
                          their group is too long for dead letters. By group, for the first PAIRS_MOST groups
    producers, consumers  registrations by heartbeats, of each group

    >>> counts = BrokerCounts()
    >>> counts.send_back("orders", "audit")
    >>> counts.sent_back
    {('orders', 'audit'): 1}
    """

    sent_back: dict[tuple[str, str], int] = field(default_factory=dict)
    kept_back: dict[str, int] = field(default_factory=dict)
    producers: Timed = field(default_factory=Timed)
    consumers: Timed = field(default_factory=Timed)

    def send_back(self, topic: str, group: str) -> None:
        """Count a message that was sent back."""
        pair = topic, group
        if pair in self.sent_back or len(self.sent_back) < PAIRS_MOST:
            self.sent_back[pair] = self.sent_back.get(pair, 0) + 1

    def keep_back(self, group: str) -> None:
        """Count a message that waits because its group can't have dead letters."""
        if group in self.kept_back or len(self.kept_back) < PAIRS_MOST:
            self.kept_back[group] = self.kept_back.get(group, 0) + 1
