"""The arguments of scan(): their types, and those that are not part of the filter."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rocketc.files.remote import Options
from rocketc.read._message import Message
from rocketc.read._sql_filter import SqlFilter

Topics = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]
Texts = str | Iterable[str]
Sql = str | SqlFilter
When = int | datetime.datetime
Offsets = Mapping[str, Mapping[int | None, tuple[int | None, int | None]]]
Errors = Literal["raise", "skip", "report"]
Crc = Literal["none", "body", "full"]
Unreadable = Literal["raise", "skip"]

CRC_CODES = {"none": 0, "body": 1, "full": 2}  # numbers of Crc in the extension


@dataclass(frozen=True)
class Reading:
    """The options of scan() except the filter."""

    start: int | None = None
    stop: int | None = None
    columns: Sequence[str] | None = None
    where: Callable[[Message], bool] | None = None
    errors: Errors = "raise"
    crc: Crc = "body"
    decompress: bool = True
    unwrap: bool = True
    batch_bytes: int = 16 << 20
    max_decompressed: int = 64 << 20
    storage: Options | None = field(default=None, repr=False)
    partial: bool = False
    unreadable: Unreadable = "raise"
    around: bool = False  # read the record that `start` is in, too

    @property
    def is_narrow(self) -> bool:
        """Whether these options leave out messages."""
        return self.start is not None or self.stop is not None or self.where is not None

    def __post_init__(self) -> None:
        if self.errors not in ("raise", "skip", "report"):
            raise ValueError(f"errors={self.errors!r}: must be 'raise', 'skip' or 'report'")
        if self.crc not in CRC_CODES:
            raise ValueError(f"crc={self.crc!r}: must be 'none', 'body' or 'full'")
        if self.unreadable not in ("raise", "skip"):
            raise ValueError(f"unreadable={self.unreadable!r}: must be 'raise' or 'skip'")
        for name, value in (("start", self.start), ("stop", self.stop)):
            if not (value is None or hasattr(value, "__index__")):  # any int: a range may end outside the log
                raise TypeError(f"{name}: expected int, got {type(value).__name__}")
