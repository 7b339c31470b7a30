"""How much do the arguments of a put cost, and how much does one call for many prepared records save?

Rows for bench_interfaces. Times are those of the calling thread.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import MIB, Bench
from writing import less_is_better

import rocketc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import extension

PUTS = {True: 20_000, False: 100_000}  # per round; True: with --quick
BODY = b"x" * 128
PROPERTIES = {"UNIQ_KEY": "7F0000013A2C2A139A6C0C2A3B4C0000", "WAIT": "true"}
ARGUMENTS_NS = 250  # allowed ns per put for tags, keys, two properties, queue_id and born_timestamp
EVENT = 32  # records that one read event of a broker's socket may bring
QUEUES = 8


def rows(bench: Bench, folder: str) -> None:
    puts = PUTS[bench.quick]
    with rocketc.open(tempfile.mkdtemp(dir=folder), mapped_file_size_commit_log=1024 * MIB) as store:
        arguments(bench, store, puts)
        prepared(bench, store, puts)
        found_at_once(bench, store, puts // 4)


def on_this_thread(work: Callable[[], object]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.thread_time_ns()
        work()
        return (time.thread_time_ns() - start) / 1e9

    return seconds


def arguments(bench: Bench, store: rocketc.MessageStore, puts: int) -> None:
    case, against = "arguments of put: tags, keys, properties, queue, time", f"{ARGUMENTS_NS} ns"
    if not bench.wanted(case, against, 1):
        return
    put = store.put

    def all_of_them() -> None:
        for _ in range(puts):
            put(
                "BenchTopic", BODY, tags="web", keys="o-1 c-7", properties=PROPERTIES, queue_id=3, flag=0,
                born_timestamp=1795511111111,
            )  # fmt: skip

    def none() -> None:
        for _ in range(puts):
            put("BenchTopic", BODY)

    with_all, without = on_this_thread(all_of_them), on_this_thread(none)
    with_all(), without()
    took = [(with_all() - without()) / puts * 1e9 for _ in range(bench.rounds)]
    less_is_better(bench, bench.rounds, case, against, took, [ARGUMENTS_NS] * bench.rounds, "ns", goal=1)


def prepared(bench: Bench, store: rocketc.MessageStore, puts: int) -> None:
    """One call for the records that a broker reads at once, against one put per record."""
    puts -= puts % EVENT
    props = "".join(f"{name}\1{value}\2" for name, value in PROPERTIES.items())
    props = (props + "KEYS\1o-1 c-7\2TAGS\1web\2").encode()
    queues = [{"topic": b"BenchTopic%d" % (n % QUEUES), "body": BODY, "props": props} for n in range(EVENT)]
    records = extension.load("puts").Prepared(queues)
    put = store.put
    topics = [row["topic"].decode() for row in queues]

    def one_by_one() -> None:
        for _ in range(puts // EVENT):
            for topic in topics:
                put(topic, BODY, tags="web", keys="o-1 c-7", properties=PROPERTIES)

    bench.row(
        f"{EVENT} prepared records of {QUEUES} topics by one call, 128 B",
        against="put, one by one",
        work=puts / 1e6,
        unit="M/s",
        ours=on_this_thread(lambda: records.put_again(store, puts // EVENT)),
        theirs=on_this_thread(one_by_one),
    )


def found_at_once(bench: Bench, store: rocketc.MessageStore, puts: int) -> None:
    """Put a message and get it, repeatedly, without waiting for the dispatch thread."""

    def read_at_once() -> None:
        for _ in range(puts):
            r = store.put("Own", BODY)
            if len(store.get("Own", 0, r.queue_offset)) != 1:
                raise AssertionError("a message that was put is not found")

    def wait_first() -> None:
        for _ in range(puts // 20):
            r = store.put("Own", BODY)
            store.wait_dispatched()
            store.get("Own", 0, r.queue_offset)

    def timed(work: Callable[[], None], times: int) -> Callable[[], float]:
        def seconds() -> float:
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) * times

        return seconds

    bench.row(
        "put, then get of it, 128 B",
        against="with wait_dispatched() between",
        work=puts / 1e6,
        unit="M/s",
        ours=timed(read_at_once, 1),
        theirs=timed(wait_first, 20),
    )
