"""How long does it take to verify a log or a store, and to salvage one, against reading and copying the bytes?"""

import os
import shutil
from pathlib import Path

from common import MIB, Bench, clock, same
from reading import into_cache, reading_with_crc
from writing import BATCH, QUEUES, TAG, TOPIC, scratch, text

import rocketc

bench = Bench("verify", __doc__)
FILES, FILE = 4, (32 if bench.quick else 256) * MIB
CORES = len(os.sched_getaffinity(0))


def filled(root: Path, body: int) -> int:
    """Create a store of FILES log files; messages have tags and keys; return the number of messages."""
    bodies, count = [text(body)] * BATCH, 0
    with rocketc.open(root, mapped_file_size_commit_log=FILE) as store:
        while store.max_phy_offset < FILES * FILE - 3 * BATCH * (body + 200):
            store.put_many(TOPIC, bodies, tags=TAG, keys=f"key{count}", queue_id=count // BATCH % QUEUES)
            count += BATCH
        store.wait_dispatched(60)
    return count


def of_files(root: Path, side):
    """A side that runs over the files of a log, one after the other."""
    sides = [side(path, path.stat().st_size) for path in sorted((root / "commitlog").iterdir())]
    return lambda: sum(one() for one in sides)


def copying(root: Path, to: Path):
    """Copy the log, until the copy is durable."""

    def side() -> float:
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        start = clock()
        for path in sorted((root / "commitlog").iterdir()):
            shutil.copyfile(path, to / path.name)
            with open(to / path.name, "rb") as file:
                os.fsync(file.fileno())
        return clock() - start

    return side


def main():
    for name, body in {"1 KiB": 1024, "128 B": 128}.items():
        with scratch(bench) as folder:
            root = folder / "store"
            count = filled(root, body)
            into_cache(root)
            size = sum(path.stat().st_size for path in (root / "commitlog").iterdir()) / 1e9
            what = f"{FILES} files of {FILE // MIB} MiB, {name} bodies"

            def verifying(path: Path, jobs: int, count: int = count):
                def side() -> float:
                    start = clock()
                    report = rocketc.verify(path, jobs=jobs)
                    seconds = clock() - start
                    same((report.records, report.is_whole), (count, True), "rocketc")
                    return seconds

                return side

            def salvaging(root: Path = root, folder: Path = folder, count: int = count) -> float:
                shutil.rmtree(folder / "new", ignore_errors=True)
                start = clock()
                report = rocketc.salvage(root, folder / "new")
                seconds = clock() - start
                same((report.records, report.is_whole), (count, True), "rocketc")
                return seconds

            reading = "reading the bytes with CRC (remap)"
            row = {"work": size, "unit": "GB/s"}
            crc = of_files(root, reading_with_crc)
            log, one = root / "commitlog", verifying(root / "commitlog", 1)
            bench.row(f"verify the log, {what}", against=reading, goal=0.6, ours=one, theirs=crc, **row)
            for part, path in {"log": log, "store": root}.items() if CORES > 1 else ():
                case = f"verify the {part}, {what}, on all cores"
                bench.row(case, against="on one", ours=verifying(path, CORES), theirs=verifying(path, 1), **row)
            bench.row(f"verify the store, {what}", against=reading, ours=verifying(root, 1), theirs=crc, **row)
            copy = copying(root, folder / "copy")
            bench.row(f"salvage, {what}", against="a copy of the log", ours=salvaging, theirs=copy, **row)


if __name__ == "__main__":
    main()
