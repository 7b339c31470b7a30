"""Shared by the benchmarks that read a store: the same log for both sides, random look-ups, a cold page cache.

The main functions:

    stores(bench, ...)              while entered, two folders with the same log: pair.ours and pair.java
    numbers(first, count, total)    numbers of messages to look up, the same as in Query.java
    drop(folder)                    removes its files from the page cache
    into_cache(root)                reads the log of a store into the page cache
    reading_with_crc(path, size)    a side: one CRC-32 over the bytes of a file
"""

import contextlib
import ctypes
import mmap
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import native
from common import FOUR_TAGS, MIB, Bench, Log, clock
from writing import TOPIC, scratch

import rocketc

STEP = 2654435761  # of Knuth: distributes look-ups over the whole log
FIRST_TIME = 1_700_000_000_000  # store timestamp of message 0, in ms; each message is 1 ms later
MIXED_TAGS = {"TagA": 0.899, "Tenth": 0.1, "Rare": 0.001}


class Pair(NamedTuple):
    log: Log
    file_size: int  # of the commit log, in bytes
    ours: Path
    java: Path

    def open(self, **options):
        """Open our store."""
        return rocketc.open(self.ours, mapped_file_size_commit_log=self.file_size, **options)


@contextlib.contextmanager
def stores(
    bench: Bench, *, body: int, queues: int = 4, tags: Mapping[str, float] = FOUR_TAGS, files: int = 1, size: int = 0
) -> Iterator[Pair]:
    """While entered, two temporary folders with the same log, without queues and index: each side builds its own.

    files   number of files of the log
    size    bytes of the log; 0: 1 GiB, or 128 MiB if quick
    """
    size = size or (128 if bench.quick else 1024) * MIB
    log = bench.log(body=body, queues=queues, tags=tags, size=size, file_size=size // files)
    with scratch(bench) as folder:
        pair = Pair(log, size // files, folder / "rocketc", folder / "java")
        for root in (pair.ours, pair.java):
            (root / "commitlog").mkdir(parents=True)
            for file in log.files:
                copy_sparse(Path(file), root / "commitlog" / Path(file).name)
        os.sync()  # no write-back during a measurement
        yield pair


def copy_sparse(source: Path, target: Path):
    """Copy a file; holes stay holes."""
    with open(source, "rb") as f, open(target, "wb") as t:
        end, at = os.fstat(f.fileno()).st_size, 0
        t.truncate(end)
        while at < end:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return  # the rest is a hole
            hole = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            while at < hole:
                at += os.pwrite(t.fileno(), os.pread(f.fileno(), min(hole - at, 4 * MIB), at), at)


def copy_store(source: Path, target: Path):
    """Copy all files of a store; holes stay holes."""
    for file in source.rglob("*"):
        if file.is_file():
            (target / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            copy_sparse(file, target / file.relative_to(source))


def numbers(first: int, count: int, total: int) -> Iterator[int]:
    return (n * STEP % total for n in range(first, first + count))


def unique_key(n: int) -> str:
    """Return the store timestamp of message n."""
    return f"7F000001AB12CD34EF56{n:012X}"


def walk(store, to: int, *, tags: str | None = None) -> Iterator:
    """Yield the results of get, with at most 32 messages each, for the offsets of queue 0 before `to`."""
    get, offset = store.get, store.min_offset(TOPIC, 0)
    while offset < to:
        got = get(TOPIC, 0, offset, min(32, to - offset), tags=tags)
        yield got
        offset = got.next_offset


# ---------------------------------------------------------------- a cold page cache
def files_of(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def drop(folder: Path):
    """Remove all files below a folder from the page cache. No process may have them mapped: such pages stay."""
    for file in files_of(folder):
        with open(file, "rb") as f:
            os.fdatasync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(folder: Path) -> float:
    """Return the share of the commit log's pages that is in the page cache."""
    mincore, page, pages, there = ctypes.CDLL(None).mincore, mmap.PAGESIZE, 0, 0
    for file in files_of(folder / "commitlog"):
        with open(file, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
            flags = (ctypes.c_ubyte * (len(m) // page))()
            place = ctypes.c_char.from_buffer(m)
            if mincore(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(len(flags) * page), flags):
                raise OSError("mincore fails")
            del place
            pages, there = pages + len(flags), there + sum(flag & 1 for flag in flags)
    return there / max(1, pages)


def make_cold(bench: Bench, folder: Path):
    """Call drop(), and print a note if more than 5 % stay in the page cache."""
    drop(folder)
    if (share := resident(folder)) > 0.05:
        note = f"{share:.0%} of the log are still in the page cache: this round is not cold"
        print(f"{bench.name}: {note}", file=sys.stderr)


def remove_derived(root: Path):
    """Delete everything of a store except its log."""
    for name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "config"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("checkpoint", "abort"):
        (root / name).unlink(missing_ok=True)


def reading_with_crc(path: Path, size: int):
    """A side: one CRC-32 over the bytes of the log. Each round maps the file again, as an open of a store does."""
    library, out = native.load(), ctypes.c_uint32()

    def side() -> float:
        start = clock()
        with open(path, "rb") as f:
            m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
        place = ctypes.c_char.from_buffer(m)
        library.bench_crc32(-1, ctypes.addressof(place), size, 1, out)
        seconds = clock() - start
        del place
        m.close()
        return seconds

    return side


def opening_seconds(path: Path, **options) -> float:
    """A side: open a store; closing it is outside the clock."""
    start = clock()
    store = rocketc.open(path, **options)
    seconds = clock() - start
    store.close()
    return seconds


def into_cache(root: Path):
    """Read the whole log into the page cache."""
    for file in (root / "commitlog").iterdir():
        with open(file, "rb") as f:
            while f.readinto(bytearray(16 * MIB)):
                pass
    os.sync()
