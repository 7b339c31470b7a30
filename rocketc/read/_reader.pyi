"""Turn blocks of records into messages or batches."""

from collections.abc import Callable, Iterable

from typing_extensions import Self

from rocketc.read._arrow import Batch
from rocketc.read._filter import Filter
from rocketc.read._message import Message
from rocketc.read._walk import Walker

class Reader:
    def __new__(
        cls,
        walkers: Iterable[Walker],
        filter: Filter,
        *,
        columns: Iterable[str] | None = None,
        where: Callable[[Message], bool] | None = None,
        decompress: bool = True,
        unwrap: bool = True,
        max_decompressed: int = ...,
        batch_bytes: int = ...,
    ) -> Self: ...
    @property
    def records(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> list[Message]: ...
    def next_batch(self) -> Batch | None: ...
    def count(self) -> int: ...
