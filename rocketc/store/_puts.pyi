"""Putting: the side of a store that takes messages."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from typing_extensions import Buffer, Unpack

from rocketc.config import StoreConfig
from rocketc.log._put_result import PutResult
from rocketc.store.futures import PutFuture

_Properties = Mapping[str, str | None] | bytes
_Host = tuple[str, int]

class _OfABatch(TypedDict, total=False):
    queue_id: int
    sys_flag: int
    born_timestamp: int | None
    born_host: _Host | None
    store_host: _Host | None
    reconsume_times: int
    wait_store_ok: bool

class _OfEach(_OfABatch, total=False):
    tags: str | None
    keys: str | Iterable[str] | None
    properties: _Properties | None
    flag: int

class _OfOne(_OfEach, total=False):
    prepared_transaction_offset: int

class Putting:
    _finisher: Any
    def __init__(self, *args: Any) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def config(self) -> StoreConfig: ...
    @property
    def closed(self) -> bool: ...
    def put(self, topic: str, body: Buffer, **how: Unpack[_OfOne]) -> PutResult: ...
    def put_async(self, topic: str, body: Buffer, **how: Unpack[_OfOne]) -> PutFuture: ...
    def aput(self, topic: str, body: Buffer, **how: Unpack[_OfOne]) -> asyncio.Future[PutResult]: ...
    def put_batch(
        self, topic: str, messages: Iterable[tuple[int, Buffer, _Properties | None]], **how: Unpack[_OfABatch]
    ) -> PutResult: ...
    def put_many(self, topic: str, bodies: Iterable[Buffer] | Any, **how: Unpack[_OfEach]) -> PutResult: ...
