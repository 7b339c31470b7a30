"""Appends messages of one queue to the store: for processors, and for the compiled path of sends."""

from rocketc.remoting._connection import FastPath
from rocketc.status import PutStatus
from rocketc.store._puts import Putting

class Appending(FastPath):
    def __init__(self, store: Putting, host: bytes) -> None: ...
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
        prepared_transaction_offset: int = 0,
        store_host: bytes | None = None,
    ) -> tuple[PutStatus, list[int], int, int]: ...
