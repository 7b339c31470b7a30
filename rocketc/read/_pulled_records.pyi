"""Read the records in the answers of brokers: one after the other, each from anywhere in the log."""

from collections.abc import Iterable
from typing import TypeVar, overload

from rocketc.read._walk import Walker

_T = TypeVar("_T")
_Place = tuple[int, int, int, int, int]

@overload
def record_places(body: bytes, kind: None = None) -> tuple[list[_Place], int]: ...
@overload
def record_places(body: bytes, kind: type[_T]) -> tuple[list[_T], int]: ...
def cut_records(
    body: bytes, places: Iterable[_Place], end: int, until: int, kind: type[_T]
) -> tuple[list[_T], int, bool]: ...
def data_size(records: Iterable[tuple[int, int, int, bytes | None, bool]], cost: int) -> int: ...

class PulledRecords(Walker):
    def sent_by(self, brokers: tuple[str, ...], runs: bytes) -> None: ...
