"""Iterate over the records of one file or buffer, and handle damage."""

from collections.abc import Callable

from typing_extensions import Buffer, Self

from rocketc.files._mapped_file import MappedFile
from rocketc.read._filter import Filter
from rocketc.read._log_bytes import LogBytes

class Walker(LogBytes):
    def __new__(
        cls,
        source: MappedFile | Buffer,
        base: int | None,
        filter: Filter,
        *,
        limit: int = 0,
        start: int | None = None,
        stop: int | None = None,
        crc: int = 1,
        search: bool = False,
        exact: bool = False,
        exact_stop: int | None = None,
        errors: str = "raise",
        last: bool = True,
        follow: bool = False,
        around: bool = False,
        file: str | None = None,
        fetch: Callable[[int, int], int] | None = None,
    ) -> Self: ...
    @property
    def ended(self) -> bool: ...
    @property
    def blanks(self) -> int: ...
    @property
    def damage(self) -> list[tuple[int, int, str]]: ...
    @property
    def position(self) -> int: ...
    @property
    def file(self) -> str | None: ...
    @property
    def walked(self) -> int: ...
    @property
    def done(self) -> bool: ...
