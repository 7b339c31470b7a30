"""Getting: the part of a store that returns messages."""

import datetime
from collections.abc import AsyncIterator, Iterable
from typing import Any, NoReturn

from rocketc.derived._change_feed import ChangeFeed
from rocketc.read._message import Message
from rocketc.store._lookups import QueryResult
from rocketc.store._puts import Putting
from rocketc.store._queue_reader import GetResult
from rocketc.store._raw_records import RawGetResult
from rocketc.store._results import TagFilter
from rocketc.store.subscription import Subscription

_When = int | datetime.datetime

class Getting(Putting):
    def get(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        max_count: int = 32,
        *,
        tags: str | Iterable[str] | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
        views: bool = False,
        exact_tags: bool = True,
        broker_limits: bool = False,
        crc: str = "body",
        decompress: bool = True,
        unwrap: bool = True,
        **unknown: NoReturn,
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
        **unknown: NoReturn,
    ) -> RawGetResult: ...
    def follow(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int | None = None,
        *,
        tags: str | Iterable[str] | None = None,
        max_count: int = 32,
        **how: Any,
    ) -> AsyncIterator[Message]: ...
    def subscribe(self, queues: Iterable[tuple[str, int]] | None = None) -> Subscription: ...
    @property
    def feed(self) -> ChangeFeed | None: ...
    def query(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = 64,
        begin: _When | None = None,
        end: _When | None = None,
        exact_keys: bool = True,
        crc: str = "body",
        decompress: bool = True,
        unwrap: bool = True,
        **unknown: NoReturn,
    ) -> QueryResult: ...
    def message(self, phy_offset: int, *, crc: str = "body", decompress: bool = True) -> Message | None: ...
    def message_by_id(self, msg_id: str, topic: str | None = None) -> Message | None: ...
    def offset_by_time(self, topic: str, queue_id: int, timestamp: _When, boundary: str = "lower") -> int: ...
    def min_offset(self, topic: str, queue_id: int = 0) -> int: ...
    def max_offset(self, topic: str, queue_id: int = 0, *, committed: bool = True) -> int: ...
    def phy_offset_of(self, topic: str, queue_id: int, offset: int) -> int: ...
    def in_memory(self, topic: str, queue_id: int, offset: int) -> bool: ...
    def store_time(self, topic: str, queue_id: int, offset: int) -> int: ...
    def queues(self) -> list[tuple[str, int]]: ...
    def wait_dispatched(self, timeout: float | None = None) -> bool: ...
    @property
    def dispatch_behind_bytes(self) -> int: ...
    def _max_offsets(self, queues: Iterable[tuple[str, int]] | None = None) -> dict[tuple[str, int], int]: ...
