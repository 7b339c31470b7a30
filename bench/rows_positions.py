"""What does a flush pay for those who wait for its position? Subscribers in C that want later offsets, or this one.

Rows for bench_interfaces: each is a loop of puts that wait for the disk, with subscribers, against one without.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import MIB, Bench, clock

import rocketc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import extension

PUTS = {True: 5000, False: 20_000}  # of a round, each one flush; the first: --quick
BODY = b"x" * 128
NEVER = 1 << 50
CASES = {"later": (1, 64, 1024), "next": (1, 8, 64)}  # what they wait for: how many subscribers


def side(folder: str, count: int, wanted: str, puts: int) -> Callable[[], float]:
    """Seconds of so many puts in sync mode, on a disk in memory, each with one flush."""

    def once() -> float:
        with rocketc.open(
            tempfile.mkdtemp(dir=folder), flush="sync", mapped_file_size_commit_log=64 * MIB, message_index_enable=False
        ) as store:
            waiter = extension.load("positions").Waiter
            waiters = [waiter(store.flushed_position) for _ in range(count)]
            put, end = store.put, store.put("BenchTopic", BODY, tags="TagA").end
            for one in waiters:
                one.arm(NEVER)
            start = clock()
            for _ in range(puts):
                if wanted == "next":
                    for one in waiters:
                        one.arm(end + 1)
                end = put("BenchTopic", BODY, tags="TagA").end
            took = clock() - start
            calls = {one.calls for one in waiters}
            if count and calls != {puts if wanted == "next" else 0}:
                raise SystemExit(f"bench: wake-ups {calls} of {puts} flushes")
            return took

    return once


def add_position_rows(bench: Bench, folder: str) -> None:
    """The rows; ratio: 1 if a flush pays nothing for those who wait."""
    puts = PUTS[bench.quick]
    for wanted, counts in CASES.items():
        for count in counts:
            bench.row(
                f"put, sync, {count} subscriber{'s' * (count > 1)} to the {wanted} flush",
                against="put, sync, none",
                work=puts,
                unit="ns/put",
                ours=side(folder, count, wanted, puts),
                theirs=side(folder, 0, wanted, puts),
            )
