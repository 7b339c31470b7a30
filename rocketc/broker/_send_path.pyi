"""Sends, from the frame to the record in the log and the answer."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rocketc.broker.flush_waits import FlushWaits
from rocketc.remoting._connection import ConnectionCore, FastPath
from rocketc.remoting.rpc_times import RpcTimes
from rocketc.status import PutStatus
from rocketc.store._puts import Putting

class SendPath(FastPath):
    enabled: bool
    @property
    def sent(self) -> int: ...
    @property
    def refused(self) -> int: ...
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
        waits: FlushWaits | None,
        refusal: Callable[[PutStatus], tuple[int, str | None]],
        failed: Callable[[Exception], tuple[int, str]],
    ) -> None: ...
    def set_topic(self, name: str, queues: int) -> None: ...
    def append_batch(
        self,
        topic: bytes,
        queue_id: int,
        body: bytes,
        added: bytes,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> tuple[PutStatus, str, int, int] | None: ...
    def append(
        self,
        topic: bytes,
        queue_id: int,
        messages: list[tuple[int, bytes, bytes]],
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        batch: bool,
    ) -> tuple[PutStatus, list[int], int, int]: ...

class FlushedAnswers:
    def __init__(
        self,
        connection: ConnectionCore,
        count: int,
        answers: bytes,
        path: SendPath,
        shorts: int,
        longs: int,
        began: float,
    ) -> None: ...
    def __call__(self, code: int) -> None: ...

def count_flushed(path: SendPath, shorts: int, longs: int, began: float, code: int) -> None: ...
def answer_later(connection: ConnectionCore, count: int, answers: bytes) -> None: ...
def with_code(answers: bytes, code: int) -> bytes: ...
def peer_host(peer: Any) -> bytes: ...
