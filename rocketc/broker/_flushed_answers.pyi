"""Answers that wait until the records of their sends are durable."""

from collections.abc import Callable, Iterable

from rocketc.remoting._connection import ConnectionCore
from rocketc.remoting.rpc_times import RpcTimes

class FlushedAnswers:
    def __init__(
        self,
        connection: ConnectionCore,
        count: int,
        answers: bytes,
        times: RpcTimes,
        counts: Iterable[tuple[int, int]],
        clock: Callable[[], float],
        began: float,
    ) -> None: ...
    def __call__(self, code: int) -> None: ...

def with_code(answers: bytes, code: int) -> bytes: ...
