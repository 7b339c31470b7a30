"""Reading messages of a queue: get() and get_raw()."""

from collections.abc import Iterable
from types import TracebackType
from typing import Literal, final

from typing_extensions import Self

from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.status import GetStatus
from rocketc.store._raw_records import RawGetResult
from rocketc.store._results import ReadResult, TagFilter

@final
class GetResult(ReadResult):
    @property
    def status(self) -> GetStatus: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def filter_message_count(self) -> int: ...
    @property
    def suggest_pulling_from_slave(self) -> bool: ...
    @property
    def queue_offsets(self) -> list[int]: ...
    def release(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class QueueReader:
    @property
    def log(self) -> MappedFileQueue: ...
    @property
    def queues(self) -> ConsumeQueues: ...
    def __new__(cls, log: MappedFileQueue, queues: ConsumeQueues, config: StoreConfig) -> Self: ...
    def get(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        max_count: int = 32,
        *,
        tags: str | Iterable[str] | None = None,
        max_bytes: int | None = None,
        views: bool = False,
        exact_tags: bool = True,
        broker_limits: bool = False,
        crc: Literal["none", "body", "full"] = "body",
        decompress: bool = True,
        unwrap: bool = True,
    ) -> GetResult: ...
    def get_raw(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        max_count: int = 32,
        *,
        tags: str | Iterable[str] | TagFilter | None = None,
        max_bytes: int | None = None,
        exact_tags: bool = True,
        broker_limits: bool = False,
    ) -> RawGetResult: ...
    def _set_memory(self, size: int) -> None: ...
