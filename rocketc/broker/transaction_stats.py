"""What a broker counts of its transactions.

Source: RocketMQ TransactionMetrics, BrokerMetricsManager; names were seen on 5.3.3.
"""

from __future__ import annotations

from rocketc.broker._transaction_counts import TransactionCounters
from rocketc.tables.topic_counts import TransactionCounts


class TransactionStats(TransactionCounters):
    """The counters, and the table of open transactions, which is on the disk.

    open  the table
    """

    def __init__(self, open: TransactionCounts) -> None:
        self._open = open

    @property
    def open(self) -> TransactionCounts:
        """How many transactions of each topic are not ended."""
        for one in self.all():
            if (change := one.take_opened()) is not None:
                self._open.add(one.topic, change)
        return self._open

    def prepared(self, topic: str) -> None:
        """A half message is stored."""
        self.of(topic).prepare()

    def give_up(self, topic: str) -> None:
        """A transaction is given up."""
        self.of(topic).give_up()
