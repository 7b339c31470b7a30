"""Files that hold nothing of what is asked for: found on the driver, before there are tasks for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rocketc.errors import RocketcError
from rocketc.paths import Log, LogFile
from rocketc.remote import Options, is_url
from rocketc.scan import scan
from rocketc.spark.partitions import data_bytes
from rocketc.tally import count

_WHOLE_BYTES = 16 << 20  # a file of no more is asked for the times of all its records
_LOOK_BYTES = 1 << 20  # of a larger one, so much is looked at
_LOOKS = 16  # ... in so many places, the first and the last bytes among them
_AT_ONCE = 16  # files by URL: it is the way there that takes the time

Times = tuple[int, int]


def prune(
    logs: Iterable[Log], begin: int | None = None, end: int | None = None, storage: Options | None = None
) -> list[Log]:
    """The logs without the files whose records were all stored before `begin`, or at `end` or later; epoch ms.

    A file of up to 16 MiB is left out by the times of all its records. Of a larger one those in 16 places are looked
    at, and it is left out only if they rise from each to the next: where a clock was set back, all is read. What can't
    be read here is read by a task, which tells what is wrong with it.

    storage  options of the file systems of URLs; of URLs several are looked at, at the same time
    """
    if begin is None and end is None:
        return list(logs)
    out = []
    for log in logs:
        with ThreadPoolExecutor(_AT_ONCE if any(is_url(file.path) for file in log.files) else 1) as pool:
            outside = pool.map(lambda file: is_outside(file, begin, end, storage), log.files)
            kept = tuple(file for file, out_of_it in zip(log.files, outside, strict=True) if not out_of_it)
        out.append(replace(log, files=kept))
    return out


def times_of(file: LogFile, storage: Options | None = None) -> Times | None:
    """The first and the last store timestamp in a file, epoch ms; None: not to be told without reading it."""
    size = data_bytes(file)
    if size <= _WHOLE_BYTES:
        return _times_in(file, storage)
    if file.base is None:
        return None
    seen: list[Times] = []
    for look in range(_LOOKS):
        start = file.base + (size - _LOOK_BYTES) * look // (_LOOKS - 1)
        times = _times_in(replace(file, start=start, stop=start + _LOOK_BYTES if look < _LOOKS - 1 else None), storage)
        if times is not None:
            seen.append(times)
        elif look in (0, _LOOKS - 1):
            return None
    if any(before[1] > behind[0] for before, behind in itertools.pairwise(seen)):
        return None
    return seen[0][0], seen[-1][1]


def is_outside(file: LogFile, begin: int | None, end: int | None, storage: Options | None = None) -> bool:
    """Whether every record of a file was stored before `begin`, or at `end` or later; False if that is not certain.

    >>> is_outside(LogFile("nowhere", 0, 100, 100, True), 0, None)
    False
    """
    try:
        times = times_of(file, storage)
    except (RocketcError, OSError):
        return False
    if times is None:
        return False
    return (begin is not None and times[1] < begin) or (end is not None and times[0] >= end)


def _times_in(part: LogFile, storage: Options | None) -> Times | None:
    """The least and the greatest store timestamp of the records in a part; None: it has none."""
    messages = scan(part, errors="skip", crc="none", unwrap=False, storage_options=storage)
    whole = count(messages, threads=1).total
    return None if whole.first is None or whole.last is None else (whole.first, whole.last)
