"""The commit log: where a record goes, and what is written into it there."""

from typing import Any

from typing_extensions import Self

from rocketc.config import StoreConfig
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.log._log_files import LogFiles
from rocketc.log._put_locks import PutMessageLock
from rocketc.log._queue_offsets import QueueOffsets

class CommitLog(LogFiles):
    def __new__(
        cls,
        queue: MappedFileQueue,
        offsets: QueueOffsets,
        lock: PutMessageLock,
        config: StoreConfig,
        background: bool = True,
    ) -> Self: ...
    @property
    def last_record_end(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...
    def histograms(self) -> dict[str, tuple[list[tuple[int, int]], int, int]]: ...
    @property
    def appending_since(self) -> int: ...
    def roll(self) -> None: ...
    def hook(self, name: str, value: int) -> None: ...
