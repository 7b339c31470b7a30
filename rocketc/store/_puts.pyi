"""Putting: the part of a store that appends messages."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from typing_extensions import Buffer

from rocketc.config import StoreConfig
from rocketc.log._put_result import PutResult
from rocketc.store.futures import PutFuture

_Keys = str | Iterable[str]
_Properties = Mapping[str, str | None] | bytes
_Host = tuple[str, int]

class Putting:
    _finisher: Any
    def __init__(self, *args: Any) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def config(self) -> StoreConfig: ...
    @property
    def closed(self) -> bool: ...
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
        **unknown: NoReturn,
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
        **unknown: NoReturn,
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
        **unknown: NoReturn,
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
        **unknown: NoReturn,
    ) -> PutResult: ...
