"""Divides commit log files among tasks: large files are cut into parts, small files are read together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from rocketc.errors import CorruptRecordError, RocketcError
from rocketc.files.paths import Log, LogFile, Paths, resolve
from rocketc.files.regular import open_regular
from rocketc.files.remote import Options, is_url
from rocketc.files.sparse import extents
from rocketc.jobs.counts import count
from rocketc.read._filter import Filter
from rocketc.read.parallel import processors
from rocketc.read.scan import scan
from rocketc.read.scan_report import MISSING_FILE
from rocketc.read.scan_run import open_walker
from rocketc.spark.worker_python import check_worker_python

MAX_BYTES = 256 << 20
_LEAST_BYTES = 4 << 20  # the least size of a part, unless min_partitions asks for more parts
_OPEN_BYTES = 1 << 20  # opening a file takes about as long as reading this number of bytes


class Split(NamedTuple):
    """The records of a commit log file whose first byte is in [start, stop), physical offsets.

    decode_batches() reads a DataFrame of splits: spark.createDataFrame(splits(store)).
    """

    path: str
    start: int
    stop: int


def splits(
    path: Paths, max_bytes: int = MAX_BYTES, storage_options: Options | None = None, partial: bool = False
) -> list[Split]:
    """Cut a store into splits for the tasks of Spark. A split has one file, or a part of it, of at most max_bytes.

    path       as in rocketc.scan(); tasks must see the same files under the same absolute paths
    max_bytes  size of a split; its last record may end after it
    storage_options  as in rocketc.scan(); splits do not contain them: give them also to the function that decodes
    partial    as in rocketc.scan(): do not raise CorruptRecordError if a file is missing between two others
    For every max_bytes, the splits together contain each record and each damaged range once. A task searches for the
    first record of its split and does not read bytes before it. Raises StoreIOError as rocketc.scan() does, and
    ImportError if the workers of a local session run a Python without rocketc.
    """
    check_worker_python()
    if max_bytes < 1:
        raise ValueError(f"max_bytes={max_bytes}: at least 1")
    out = []
    logs = resolve(path, storage_options)
    for log in logs:
        if log.lost and not partial:
            first = log.lost[0][0]
            raise CorruptRecordError(
                log.lost_name(first),
                first,
                MISSING_FILE,
                "restore the file; partial=True reads the files that are there",
            )
    for part in _parts(logs, max_bytes, storage_options):
        out.append(Split(part.path, part.begin, part.end))
    return out


def plan(
    logs: Iterable[Log],
    max_bytes: int = MAX_BYTES,
    min_partitions: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    storage: Options | None = None,
) -> list[tuple[LogFile, ...]]:
    """Return the parts that each task reads, in the order of the logs: at most max_bytes each, small files together.

    logs            from resolve(); a file may have a start and a stop
    min_partitions  least number of tasks, if there are enough bytes; parts are then smaller. None: one task per core
                    that this process may use, with parts of at least 4 MiB
    start, stop     physical offsets; parts without a record that begins in this range are left out
    storage         options of the file systems of URLs

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for base in (0, 100):
    ...     _ = (folder / f"{base:020d}").write_bytes(b"x" * 100)
    >>> [len(parts) for parts in plan(resolve(folder))]
    [2]
    >>> [[(part.start, part.stop) for part in parts] for parts in plan(resolve(folder), min_partitions=4)]
    [[(None, 50)], [(50, None)], [(None, 150)], [(150, None)]]
    """
    logs = list(logs)
    total = sum(_bytes_of(file) for log in logs for file in log.files)
    even = -(-total // max(min_partitions or processors(), 1))
    limit = max(min(max_bytes, even if min_partitions else max(even, _LEAST_BYTES)), 1)
    tasks: list[tuple[LogFile, ...]] = []
    room = 0
    for part in _parts(logs, limit, storage):
        if part.base is not None and not _overlaps(part, start, stop):
            continue
        size = _bytes_of(part)
        cost = min(_OPEN_BYTES, limit // 16)
        if not tasks or room < size + cost:
            tasks.append(())
            room = limit + cost
        tasks[-1] += (part,)
        room -= size + cost
    return tasks


def with_lost(
    tasks: Iterable[tuple[LogFile, ...]], logs: Iterable[Log], start: int | None = None, stop: int | None = None
) -> list[tuple[LogFile | Log, ...]]:
    """Add the lost files of the logs to the tasks of plan(): each as a Log without files, after the part before it.

    start, stop  physical offsets; lost files outside of this range are left out

    >>> with_lost([], [Log((), (), lost=((100, 200),))])
    [(Log(files=(), missing=(), lost=((100, 200),), folder=''),)]
    """
    out: list[tuple[LogFile | Log, ...]] = list(tasks)
    for log in logs:
        own = {absolute(file.path) for file in log.files}
        for lost in log.lost_between(start, stop):
            here = Log((), (), (lost,), absolute(log.folder) if log.folder else "")
            before = [
                (n, i)
                for n, parts in enumerate(out)
                for i, part in enumerate(parts)
                if isinstance(part, LogFile) and part.path in own and part.begin < lost[0]
            ]
            if before:
                n, i = before[-1]
                out[n] = (*out[n][: i + 1], here, *out[n][i + 1 :])
            else:
                out.insert(0, (here,))
    return out


def absolute(path: str) -> str:
    """Return an absolute path; a URL stays the same.

    >>> absolute("/data/store"), absolute("s3://bucket/store")
    ('/data/store', 's3://bucket/store')
    """
    return path if is_url(path) else os.path.abspath(path)


def _parts(logs: Iterable[Log], max_bytes: int, storage: Options | None) -> Iterable[LogFile]:
    """Yield the files with absolute paths, each cut into equal parts of at most max_bytes.

    The last part goes to the file's end. If a file has a start or a stop, only that part of it is cut.
    """
    for log in logs:
        for file in log.files:
            file = replace(file, path=absolute(file.path))
            size = _bytes_of(file)
            count = -(-size // max_bytes)
            if count < 2:
                if file.size > 0:
                    yield file
                continue
            base = file.base
            if base is None:  # the first record has its physical offset
                base = open_walker(file, Filter(), storage).base
            first = base if file.start is None else file.start
            cuts = [first + size * n // count for n in range(1, count)]
            for start, stop in zip([file.start, *cuts], [*cuts, file.stop], strict=True):
                yield replace(
                    file,
                    base=base,
                    start=start,
                    stop=stop,
                    exact=file.exact and start == file.start,
                )


def _overlaps(part: LogFile, start: int | None, stop: int | None) -> bool:
    """Whether a record of the part may begin in [start, stop)."""
    end = part.next_base if part.stop is None else part.stop
    return (start is None or start < end) and (stop is None or part.begin < stop)


def _bytes_of(part: LogFile) -> int:
    stop = part.origin + data_bytes(part) if part.stop is None else part.stop
    return max(stop - part.begin, 0)


def data_bytes(file: LogFile) -> int:
    """Return the position after the last byte of a file that is not in a hole. Log files have their full size at once.

    >>> data_bytes(LogFile("nowhere", 0, 100, 100, True))
    0
    """
    if is_url(file.path):  # holes of a remote file are not known
        return file.size
    end = 0
    with suppress(OSError), open(file.path, "rb", buffering=0, opener=open_regular) as opened:
        end = max((stop for _, stop in extents(opened.fileno())), default=0)
    return min(end, file.size)


_WHOLE_BYTES = 16 << 20  # of files up to this size, the times of all records are read
_LOOK_BYTES = 1 << 20  # of a larger file, this number of bytes is read ...
_LOOKS = 16  # ... at this number of positions, the start and the end included
_AT_ONCE = 16  # remote files that are read in parallel, because of network latency
Times = tuple[int, int]


def prune(
    logs: Iterable[Log], begin: int | None = None, end: int | None = None, storage: Options | None = None
) -> list[Log]:
    """Return the logs without the files whose records were all stored before `begin`, or at `end` or later; epoch ms.
    A lost file between two such files is left out too.

    For a file of up to 16 MiB, the times of all records are read. For a larger file, the times at 16 positions are
    read. It is left out only if they rise from each position to the next, because the clock may have been set back.
    A file that can't be read is kept; the task that reads it reports the error.

    storage  options of the file systems of URLs; several URLs are read at the same time
    """
    if begin is None and end is None:
        return list(logs)
    out = []
    for log in logs:
        with ThreadPoolExecutor(_AT_ONCE if any(is_url(file.path) for file in log.files) else 1) as pool:
            sides = list(pool.map(lambda file: _side_of(file, begin, end, storage), log.files))
        kept = tuple(file for file, side in zip(log.files, sides, strict=True) if not side)
        at = {file.origin: side for file, side in zip(log.files, sides, strict=True)}
        behind = {file.next_base: side for file, side in zip(log.files, sides, strict=True)}
        lost = tuple(gap for gap in log.lost if not behind.get(gap[0]) or behind[gap[0]] != at.get(gap[1]))
        out.append(replace(log, files=kept, lost=lost))
    return out


def times_of(file: LogFile, storage: Options | None = None) -> Times | None:
    """Return the first and the last store timestamp in a file, epoch ms; None: not known without reading all of it."""
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
    return _side_of(file, begin, end, storage) != 0


def _side_of(file: LogFile, begin: int | None, end: int | None, storage: Options | None) -> int:
    """Return -1 if every record of a file was stored before `begin`, 1 for `end` or later, 0 if neither is certain."""
    try:
        times = times_of(file, storage)
    except (RocketcError, OSError):
        return 0
    if times is None:
        return 0
    return -1 if begin is not None and times[1] < begin else 1 if end is not None and times[0] >= end else 0


def _times_in(part: LogFile, storage: Options | None) -> Times | None:
    """Return the least and the greatest store timestamp of the records in a part; None: no record."""
    messages = scan(part, errors="skip", crc="none", unwrap=False, storage_options=storage)
    whole = count(messages, threads=1).total
    return None if whole.first is None or whole.last is None else (whole.first, whole.last)
