"""How much does a flush cost with subscribers to its position? They are in C, and wait for this or for later offsets.

Rows for bench_interfaces: each is a loop of synced puts with subscribers, against the same loop without subscribers.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import MIB, Bench, clock

import rocketc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import extension

PUTS = {True: 5000, False: 20_000}  # per round, with a flush each; True: with --quick
BODY = b"x" * 128
NEVER = 1 << 50
CASES = {"later": (1, 64, 1024), "next": (1, 8, 64)}  # the flush that they wait for -> numbers of subscribers


def side(folder: str, count: int, wanted: str, puts: int) -> Callable[[], float]:
    """Return the seconds of `puts` puts in sync mode, with a flush each, on a file system in memory."""

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
    """Measure the rows; ratio 1: subscribers do not make flushes slower."""
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
