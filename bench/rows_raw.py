"""How fast are raw records read, checked and appended to the log of a replica, against memcpy of the same bytes?"""

import mmap
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from common import MIB, Bench, Log, clock, same, timed
from writing import scratch

import rocketc

KIB = 1 << 10
BODY = 1024
BLOCKS = {"256 KiB": 256 * KIB, "32 KiB": 32 * KIB}  # RocketMQ's master sends blocks of 32 KiB
GOAL = 0.5  # of memcpy into a warmed file, blocks of 256 KiB


def wait_until_idle():
    """Wait until the threads of this process rest: a store prepares the next file of its log ahead of time."""
    before, pause = time.process_time(), 0.1
    while True:
        time.sleep(pause)
        now = time.process_time()
        if now - before < pause / 20:
            return
        before = now


class Replica:
    """A new store per round. The first two files of its log are created and touched before the clock starts."""

    def __init__(self, folder: Path, file_size: int):
        self.path, self.file_size = folder / "replica", file_size

    def seconds(self, first: bytes, work: Callable[[rocketc.MessageStore], int]) -> float:
        """Return the seconds of work(store), which appends the blocks after the first one and returns the log's end."""
        shutil.rmtree(self.path, ignore_errors=True)
        fields = {"mapped_file_size_commit_log": self.file_size, "warm_maped_file_enable": True}
        with rocketc.open(self.path, **fields) as store:
            store.append_raw(0, first)
            store.wait_dispatched()
            wait_until_idle()
            start = clock()
            end = work(store)
            seconds = clock() - start
            same(store.max_phy_offset, end, "append_raw (end of the log)")
            store.wait_dispatched()
        return seconds


class WarmFile:
    """A file that memcpy fills. It is mapped and touched before the clock starts."""

    def __init__(self, path: Path, size: int):
        self.path, self.size = path, size

    def seconds(self, blocks: list[bytes]) -> float:
        with open(self.path, "w+b") as f:
            os.posix_fallocate(f.fileno(), 0, self.size)
            with mmap.mmap(f.fileno(), self.size) as room:
                room.madvise(mmap.MADV_RANDOM)  # small pages, as for a log
                for at in range(0, self.size, mmap.PAGESIZE):
                    room[at] = 0
                at = len(blocks[0])
                start = clock()
                for block in blocks[1:]:
                    room[at : at + len(block)] = block
                    at += len(block)
                return clock() - start


def blocks_of(log: Log, size: int) -> list[bytes]:
    """Return the records of a log's first file in blocks of complete records, without the blank record."""
    with rocketc.open(log.path, read_only=True) as master:
        blocks, at, end = [], 0, os.path.getsize(log.files[0])
        while at < end - size - 4096:
            blocks.append(master.read_raw(at, size))
            at += len(blocks[-1])
        return blocks


def append_rows(bench: Bench, log: Log):
    for name, size in BLOCKS.items():
        case, against = f"append_raw, 1 KiB bodies, blocks of {name}", "memcpy into a warmed file"
        if not bench.wanted(case, against, GOAL):
            continue
        blocks = blocks_of(log, size)
        work = sum(map(len, blocks[1:]))
        with scratch(bench) as folder:
            replica = Replica(folder, os.path.getsize(log.files[0]))
            into_file = WarmFile(folder / "copied", replica.file_size)

            def append(store: rocketc.MessageStore, blocks=blocks) -> int:
                at = len(blocks[0])
                for block in blocks[1:]:
                    at = store.append_raw(at, block)
                return at

            bench.row(
                case,
                against=against,
                goal=GOAL if size == 256 * KIB else None,
                work=work / 1e9,
                unit="GB/s",
                ours=lambda blocks=blocks, replica=replica, append=append: replica.seconds(blocks[0], append),
                theirs=lambda blocks=blocks, into_file=into_file: into_file.seconds(blocks),
            )


def read_rows(bench: Bench, log: Log):
    """read_raw against memcpy of the mapped files into one buffer, with blocks of the same size."""
    for views in (False, True):
        case = f"read_raw, 1 KiB bodies, blocks of 256 KiB{', views' * views}"
        against = "memcpy into a buffer"
        if not bench.wanted(case, against):
            continue
        with rocketc.open(log.path, read_only=True) as master, open(log.files[0], "rb") as f:
            end, size = os.path.getsize(log.files[0]), 256 * KIB
            source = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
            room = memoryview(bytearray(size))

            def read(views=views, master=master, end=end, size=size):
                at = 0
                while at < end:
                    at += len(master.read_raw(at, size, views=views))
                same(at, end, "read_raw (bytes)")

            def copy(source=source, room=room, size=size):
                for at in range(0, len(source), size):
                    room[: len(source[at : at + size])] = source[at : at + size]

            bench.row(case, against=against, work=end / 1e9, unit="GB/s", ours=timed(read), theirs=timed(copy))


def replica_rows(bench: Bench, log: Log):
    """Copy a log of several files into a new store, which creates its files meanwhile; against a copy of the files."""
    case, against = "read_raw into append_raw, 1 KiB bodies", "copying the files"
    if not bench.wanted(case, against):
        return
    with scratch(bench) as folder:
        replica = Replica(folder, os.path.getsize(log.files[0]))
        total = sum(map(os.path.getsize, log.files))

        def ours() -> float:
            with rocketc.open(log.path, read_only=True) as master:
                first = master.read_raw(0)

                def copy(store: rocketc.MessageStore) -> int:
                    at = len(first)
                    while at < total:
                        with master.read_raw(at, views=True) as view:
                            at = store.append_raw(at, view)
                    return at

                return replica.seconds(first, copy)

        def theirs() -> float:
            (folder / "files").mkdir(exist_ok=True)
            start = clock()
            for file in log.files:
                shutil.copyfile(file, folder / "files" / Path(file).name)
            seconds = clock() - start
            shutil.rmtree(folder / "files")
            return seconds

        bench.row(case, against=against, work=total / 1e9, unit="GB/s", ours=ours, theirs=theirs)


def rows(bench: Bench):
    file_size = (32 if bench.quick else 256) * MIB
    log = bench.log(body=BODY, size=3 * file_size, file_size=file_size)
    append_rows(bench, log)
    read_rows(bench, log)
    replica_rows(bench, log)
