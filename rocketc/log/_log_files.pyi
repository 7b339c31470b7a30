"""The files of the commit log while it is written: their threads, room for the next record, the end of the log."""

from typing_extensions import Self

from rocketc.config import StoreConfig
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.log._positions import Position
from rocketc.log._put_locks import PutMessageLock
from rocketc.log._queue_offsets import QueueOffsets

class LogFiles:
    def __new__(
        cls,
        queue: MappedFileQueue,
        offsets: QueueOffsets,
        lock: PutMessageLock,
        config: StoreConfig,
        background: bool = True,
    ) -> Self: ...
    @property
    def queue(self) -> MappedFileQueue: ...
    @property
    def offsets(self) -> QueueOffsets: ...
    @property
    def lock(self) -> PutMessageLock: ...
    @property
    def flushed_position(self) -> Position: ...
    @property
    def confirmed_position(self) -> Position: ...
    @property
    def written_position(self) -> Position: ...
    def start(
        self,
        checkpoint_fd: int = -1,
        checkpoint: tuple[int, ...] = (0, 0, 0, 0, 0),
        *,
        last_record_end: int = 0,
        timestamp: int = 0,
        queued: int = -1,
        indexed: int = -1,
    ) -> None: ...
    def stop(self) -> int: ...
    def step_flush(self) -> bool: ...
    def step_ahead(self) -> bool: ...
    def stamp_files(self, *, last: bool = False) -> None: ...
    def forget(self) -> None: ...
    def set_clock(self, timestamp: int | None) -> None: ...
