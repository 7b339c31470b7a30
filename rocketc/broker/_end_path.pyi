"""Ends of transactions, from the frame to the committed message in the log and the answer."""

from collections.abc import Callable, Iterable
from typing import Protocol

from rocketc.broker._send_path import SendPath
from rocketc.broker._transaction_counts import TransactionCounters
from rocketc.broker.config import BrokerConfig
from rocketc.broker.op_marks import OpMarks
from rocketc.remoting._connection import FastPath
from rocketc.store._gets import Getting

class _Table(Protocol):
    @property
    def generation(self) -> int: ...

class EndPath(FastPath):
    @property
    def taken(self) -> int: ...
    def __init__(
        self,
        sends: SendPath,
        store: Getting,
        topics: _Table,
        check: Callable[[str], bool],
        config: BrokerConfig,
        marks: OpMarks,
        since: int,
        retried: int,
        counters: TransactionCounters,
        clock: Callable[[], int],
        half_topic: str,
        names: Iterable[str],
        special: Iterable[str],
    ) -> None: ...
