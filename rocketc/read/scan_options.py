"""The arguments of scan(): their types, and those that are not part of the filter."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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

_FIRST, _END = -2, -1  # queue offsets, as in Spark and Kafka


def checked_offsets(offsets: Offsets | None) -> Offsets | None:
    """Return the offsets of scan() without negative ones. Raises ValueError for those with no meaning.

    >>> checked_offsets({"orders": {0: (-2, -1), 1: (5, None)}})
    {'orders': {0: (None, None), 1: (5, None)}}
    >>> checked_offsets({"orders": {0: (-10, None)}})
    Traceback (most recent call last):
    ValueError: offsets: topic 'orders', queue 0: begin is -10; it must be 0 or more, or -2 for the first message
    """
    if not isinstance(offsets, Mapping) or not all(isinstance(queues, Mapping) for queues in offsets.values()):
        return offsets  # the filter says what is wrong
    return {
        topic: {queue: _checked_range(topic, queue, given) for queue, given in queues.items()}
        for topic, queues in offsets.items()
    }


def _checked_range(topic: str, queue: int | None, given: Any) -> Any:
    if not isinstance(given, Sequence) or len(given) != 2:
        return given
    begin, end = given
    if any(isinstance(number, int) and abs(number) >> 63 for number in (queue, begin, end)):
        return given  # as above
    where = f"offsets: topic {topic!r}, {'other queues' if queue is None else f'queue {queue}'}"
    if isinstance(begin, int) and begin < 0 and begin != _FIRST:
        raise ValueError(f"{where}: begin is {begin}; it must be 0 or more, or {_FIRST} for the first message")
    if isinstance(end, int) and end < 0 and end != _END:
        raise ValueError(f"{where}: end is {end}; it must be 0 or more, or {_END} for the end of the queue")
    return None if begin == _FIRST else begin, None if end == _END else end


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
