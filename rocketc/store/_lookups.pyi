"""Look-ups: find messages by key, id and time."""

from datetime import datetime
from typing import Literal, final

from typing_extensions import Self

from rocketc.derived._key_index import KeyIndex
from rocketc.log._queue_offsets import QueueOffsets
from rocketc.read._message import Message
from rocketc.store._queue_reader import QueueReader
from rocketc.store._results import ReadResult

@final
class QueryResult(ReadResult):
    @property
    def index_last_update_timestamp(self) -> int: ...
    @property
    def index_last_update_phy_offset(self) -> int: ...

@final
class Lookups:
    @property
    def reader(self) -> QueueReader: ...
    @property
    def index(self) -> KeyIndex | None: ...
    @property
    def offsets(self) -> QueueOffsets | None: ...
    def __new__(
        cls, reader: QueueReader, index: KeyIndex | None = None, offsets: QueueOffsets | None = None
    ) -> Self: ...
    def message(
        self, phy_offset: int, *, crc: Literal["none", "body", "full"] = "body", decompress: bool = True
    ) -> Message | None: ...
    def message_by_id(self, msg_id: str, topic: str | None = None) -> Message | None: ...
    def query(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = 64,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
        exact_keys: bool = True,
        crc: Literal["none", "body", "full"] = "body",
        decompress: bool = True,
        unwrap: bool = True,
    ) -> QueryResult: ...
    def min_offset(self, topic: str, queue_id: int = 0) -> int: ...
    def max_offset(self, topic: str, queue_id: int = 0, *, committed: bool = True) -> int: ...
    def phy_offset_of(self, topic: str, queue_id: int, offset: int) -> int: ...
    def in_memory(self, topic: str, queue_id: int, offset: int) -> bool: ...
    def store_time(self, topic: str, queue_id: int, offset: int) -> int: ...
    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int | datetime,
        boundary: Literal["lower", "upper", "nearest"] = "lower",
    ) -> int: ...
