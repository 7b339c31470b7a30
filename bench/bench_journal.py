"""How many journal commits does a put cost that waits for the disk, on ext4 and on XFS?

Both file systems are made in a file and mounted, which only root may do. Counts do not depend on other work.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _pytest.outcomes import Skipped
from common import MIB, Bench, same
from writing import TOPIC, scratch, text

import rocketc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import disks

AGAINST = "write + fdatasync to a growing file"
WAYS = ("allocate", "populate", "write")  # only the space of a file, its pages, or zeros: the default
BODY, RECORD = 1024, 1140  # bytes of a body, and about those of its record

bench = Bench("journal", __doc__)
PUTS = 200 if bench.quick else 1000
ROUNDS = 3


def commits(kind: str, folder: Path) -> int:
    """Return the number of transactions that the journal of a file system has written since it was mounted."""
    device = os.stat(folder).st_dev
    name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    if kind == "ext4":
        (info,) = Path("/proc/fs/jbd2").glob(f"{name}-*/info")
        return int(info.read_text().split()[0])
    lines = Path(f"/sys/fs/xfs/{name}/stats/stats").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("log ")).split()[1])


@contextmanager
def putting(folder: Path, way: str) -> Iterator[Callable[[], object]]:
    """Yield a function that puts one message and waits for the disk."""
    body = text(BODY)
    options = {"flush": "sync", "prepare": way, "mapped_file_size_commit_log": 16 * MIB}
    with rocketc.open(folder / way, **options) as store:
        yield lambda: store.put(TOPIC, body)
        same(store.flushed_phy_offset, store.max_phy_offset, "rocketc (flushed)")


@contextmanager
def appending(folder: Path) -> Iterator[Callable[[], object]]:
    """Yield a function that appends the bytes of a record and syncs them."""
    data = text(RECORD)
    with open(folder / "growing", "wb", buffering=0) as file:
        yield lambda: (file.write(data), os.fdatasync(file.fileno()))


def counted(kind: str, folder: Path, work: Callable[[], object]) -> list[float]:
    """Return the commits per 1000 calls of each round."""
    found = []
    for _ in range(ROUNDS):
        time.sleep(1.2)  # files are prepared, and the checkpoint is written
        before = commits(kind, folder)
        for _ in range(PUTS):
            work()
        found.append((commits(kind, folder) - before) * 1000 / PUTS)
    return found


def journal(kind: str):
    cases = [(f"put, 1 KiB, sync, {kind}, {way}: journal commits", way) for way in WAYS]
    cases = [(case, way) for case, way in cases if bench.wanted(case, AGAINST, None)]
    if not cases:
        return
    with scratch(bench) as folder, ExitStack() as stack:
        try:
            place = stack.enter_context(disks.mounted(folder, kind))
        except Skipped as error:
            print(f"{bench.name}: the rows for {kind} are left out: {error}", file=sys.stderr)
            return
        with appending(place) as append:
            theirs = counted(kind, place, append)
        for case, way in cases:
            with putting(place, way) as put:
                ours = counted(kind, place, put)
            ratio = statistics.median(theirs) / max(1.0, statistics.median(ours))
            bench.show(case, AGAINST, ratio, None, ours, theirs, "commits of 1000 puts")


def main():
    for kind in disks.FORMAT:
        journal(kind)


if __name__ == "__main__":
    main()
