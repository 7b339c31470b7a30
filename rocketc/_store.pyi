"""MessageStore: put, flush, close."""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from typing_extensions import Buffer, Self

from rocketc._commit_log import CommitLog
from rocketc._message import Message
from rocketc.config import StoreConfig
from rocketc.errors import StoreFailedError
from rocketc.futures import PutFuture
from rocketc.status import PutStatus

_Keys = str | Iterable[str]
_Properties = Mapping[str, str | None] | bytes
_Host = tuple[str, int]

class PutResult:
    @property
    def status(self) -> PutStatus: ...
    @property
    def phy_offset(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def msg_id(self) -> str: ...
    def _set_late(self) -> None: ...

class MessageStore:
    _finisher: Any
    def __init__(self, *args: Any) -> None: ...
    @staticmethod
    def _make(
        path: str, config: StoreConfig, log: CommitLog | None, root: Any, future: Any, loop_waiters: Any
    ) -> MessageStore: ...
    @property
    def path(self) -> str: ...
    @property
    def config(self) -> StoreConfig: ...
    @property
    def closed(self) -> bool: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def failed(self) -> StoreFailedError | None: ...
    @property
    def max_phy_offset(self) -> int: ...
    @property
    def min_phy_offset(self) -> int: ...
    @property
    def flushed_phy_offset(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __del__(self) -> None: ...
    def put(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: _Keys | None = None,
        properties: _Properties | None = None,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: _Host | None = None,
        store_host: _Host | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        wait_store_ok: bool = True,
    ) -> PutResult: ...
    def put_async(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: _Keys | None = None,
        properties: _Properties | None = None,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: _Host | None = None,
        store_host: _Host | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        wait_store_ok: bool = True,
    ) -> PutFuture: ...
    def aput(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: _Keys | None = None,
        properties: _Properties | None = None,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: _Host | None = None,
        store_host: _Host | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        wait_store_ok: bool = True,
    ) -> asyncio.Future[PutResult]: ...
    def put_batch(
        self,
        topic: str,
        messages: Iterable[tuple[int, Buffer, _Properties | None]],
        *,
        queue_id: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: _Host | None = None,
        store_host: _Host | None = None,
        reconsume_times: int = 0,
        wait_store_ok: bool = True,
    ) -> PutResult: ...
    def put_many(
        self,
        topic: str,
        bodies: Iterable[Buffer] | Any,
        *,
        tags: str | None = None,
        keys: _Keys | None = None,
        properties: _Properties | None = None,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: _Host | None = None,
        store_host: _Host | None = None,
        reconsume_times: int = 0,
        wait_store_ok: bool = True,
    ) -> PutResult: ...
    def flush(self) -> int: ...
    def wait_flushed(self, end: int, timeout: float | None = None) -> bool: ...
    def close(self) -> None: ...
    def message(self, phy_offset: int) -> Message | None: ...
    def stats(self) -> dict[str, Any]: ...
    def _abandon(self) -> None: ...
    def _set_clock(self, timestamp: int | None) -> None: ...
    def _roll(self) -> None: ...
    def _hook(self, name: str, value: int) -> None: ...
    def _notify(self, fd: int, at: int) -> None: ...
