"""Sends, from the frame to the record in the log and the answer."""

from collections.abc import Iterable, Mapping
from typing import Any

from rocketc.broker._appending import Appending
from rocketc.broker._transaction_counts import TransactionCounters
from rocketc.broker.answer_waits import AnswerWaits
from rocketc.broker.put_refusals import PutRefusals
from rocketc.remoting.rpc_times import RpcTimes
from rocketc.store._puts import Putting

class SendPath(Appending):
    enabled: bool
    takes_halves: bool
    @property
    def sent(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def refusals(self) -> PutRefusals: ...
    @property
    def times(self) -> RpcTimes: ...
    def __init__(
        self,
        store: Putting,
        most: int,
        host: bytes,
        added: bytes,
        special: Iterable[str],
        fields: Mapping[str, str],
        waits: AnswerWaits | None,
        refusals: PutRefusals,
    ) -> None: ...
    def set_half(
        self,
        topic: str,
        transaction: str,
        id: str,
        real_topic: str,
        real_queue: str,
        counters: TransactionCounters,
    ) -> None: ...
    def set_topic(self, name: str, queues: int) -> None: ...

def peer_host(peer: Any) -> bytes: ...
