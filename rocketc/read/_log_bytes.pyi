"""The bytes of one commit log file or buffer, mapped or fetched."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer, Self

from rocketc.files._mapped_file import MappedFile

class LogBytes:
    def __new__(
        cls,
        source: MappedFile | Buffer,
        base: int | None,
        *_: Any,
        limit: int = 0,
        crc: int = 1,
        fetch: Callable[[int, int], int] | None = None,
        **_others: Any,
    ) -> Self: ...
    @property
    def base(self) -> int: ...
