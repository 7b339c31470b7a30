"""Read the records of one log file on several threads, for recovery.

The file is divided into parts, at any bytes. A thread searches for the first record of its part. Whether this is really
the start of a record is known once the part before it is read: the records of that part must end exactly there. The
parts are merged in order, up to the first one that is not perfect. From there on, recovery reads one record after the
other. So the result is the same as without threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rocketc.errors import RocketcError
from rocketc.files.paths import LogFile
from rocketc.log._recovery_pass import RecoveryPass
from rocketc.read._filter import Filter
from rocketc.read.parallel import in_order
from rocketc.read.scan_run import open_walker

PART_BYTES = 32 << 20
_FEWEST = 2  # parts of a file that is worth the threads


def take_in_parts(file: LogFile, run: RecoveryPass, begin: int, stop: int | None, crc: int, threads: int) -> int:
    """Take the records of a file up to the first damage, or to the end of the log. Return where they end.

    run      the pass over the files before it
    begin    physical offset in the file, where a record begins
    stop     records from this physical offset on are not read; None: no bound
    crc      a Crc: which checks are made
    threads  their number; 1: take nothing, and return `begin`
    After it, the caller takes the rest of the file.

    >>> import rocketc, tempfile
    >>> from rocketc.files.paths import resolve
    >>> from rocketc.log._queue_offsets import QueueOffsets
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=96 << 20) as store:
    ...     end = store.put("orders", b"hello").end
    >>> run = RecoveryPass(QueueOffsets(), 0)
    >>> take_in_parts(resolve(root)[0].files[0], run, 0, None, 1, threads=2) == end, run.records
    (True, 1)
    """
    last = file.origin + file.size if stop is None else min(stop, file.origin + file.size)
    parts = [(start, min(start + PART_BYTES, last)) for start in range(begin, last, PART_BYTES)]
    if threads < 2 or len(parts) < _FEWEST:
        return begin
    pool = ThreadPoolExecutor(min(threads, len(parts)), "rocketc-recovery")
    try:
        read = in_order(partial(_read, file, run, begin, stop, crc), parts, pool, 2 * threads)
        return _merge(run, begin, parts, read)
    except RuntimeError:  # no thread can be started
        return max(run.end, begin)
    finally:
        pool.shutdown(cancel_futures=True)


def _read(
    file: LogFile, run: RecoveryPass, begin: int, stop: int | None, crc: int, part: tuple[int, int]
) -> RecoveryPass | None:
    """Read one part. Return None if it has damage."""
    mine = run.part()
    try:
        walker = open_walker(
            file,
            Filter(),
            start=part[0],
            stop=part[1],
            search=True,
            exact=part[0] == begin,
            exact_stop=stop,
            crc=crc,
            errors="report",
        )
        mine.take(walker)
    except (OSError, MemoryError, RocketcError):
        return None  # the caller reads it again, and meets the error
    return None if walker.damage or mine.odd else mine


def _merge(run: RecoveryPass, begin: int, parts: list[tuple[int, int]], read: Iterator[RecoveryPass | None]) -> int:
    """Merge the parts while each of them begins where the one before it ends. Return the end of the last one."""
    at = begin
    for (_, stop), mine in zip(parts, read, strict=True):
        if stop <= at:
            continue  # a long record of the part before it covers it
        if mine is None or mine.first != at:
            break
        run.merge(mine)
        at = mine.end
        if at < stop:
            break  # the end of the log, the blank record, or damage
    return at
