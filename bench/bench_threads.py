"""How much faster are puts without flush, puts with flush, and reading, with more threads? Which put lock is best?"""

from functools import partial

import java_peer
from common import MIB, Bench, Point, in_threads, same, timed
from writing import BATCH, TAG, TOPIC, JavaSide, OurStore, recycle_pages, scratch

import rocketc

bench = Bench("threads", __doc__)
bench.rounds = 3 if bench.quick else 5
BODY = 128
THREADS = (1, 2, 4) if bench.quick else (1, 2, 4, 8)
WAITERS = (1, 8, 64) if bench.quick else (1, 4, 16, 64, 256)
PUTS = 60_000 if bench.quick else 400_000  # per round, by all threads together
SYNCED = 3200 if bench.quick else 16_000
LOCKS = ("spin", "adaptive")  # each against the default, a mutex
LOCK_THREADS = (16,) if bench.quick else (1, 2, 4, 16, 64, 256)
RELEASE = java_peer.RELEASES[0]


class Ours(OurStore):
    """Threads that put into one store, each into its own queue."""

    def put(self, threads: int, times: int):
        """Put `times` messages in total, one per call."""
        put, body, each, first = self.store.put, self.body, times // threads, self.put_so_far

        def work(thread: int):
            for n in range(first + thread * each, first + (thread + 1) * each):
                put(TOPIC, body, tags=TAG, keys=f"order-{n}", queue_id=thread)

        in_threads(threads, work)
        self.put_so_far += each * threads

    def put_batches(self, threads: int, times: int):
        """Put `times` messages in total, BATCH per call."""
        put_many, bodies, calls = self.store.put_many, self._bodies, times // BATCH // threads

        def work(thread: int):
            for _ in range(calls):
                put_many(TOPIC, bodies, tags=TAG, queue_id=thread)

        in_threads(threads, work)
        self.put_so_far += calls * BATCH * threads


def synced(threads: int) -> int:
    """Number of puts in a round in sync mode."""
    return max(threads * 20, SYNCED if threads > 1 else SYNCED // 8)


def of_threads(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def puts(threads: int, flush: str):
    case = f"put, {flush}, {of_threads(threads)}"
    against = f"Java {RELEASE} putMessage, as many threads"
    if not bench.wanted(case, against, None):
        return
    count = PUTS if flush == "async" else synced(threads)
    count -= count % threads
    with scratch(bench) as folder:
        java = java_peer.start(
            bench, "put", dir=folder / "java", body=BODY, count=count, threads=threads, flush=flush, release=RELEASE
        )
        if not java:
            return
        with java, Ours(folder, BODY, flush=flush) as mine:

            def check():
                mine.put(threads, threads * 50)
                mine.check()
                same(java.round().records, count, f"Java {RELEASE}")

            work = partial(mine.put, threads, count)
            bench.row(
                case,
                against=against,
                work=count / 1e3,
                unit="k/s",
                check=check,
                ours=mine.side(work, count),
                theirs=JavaSide(java, folder),
                point=Point(f"threads, {flush}", "put", threads),
            )


def batches(threads: int):
    """put_many writes its records without the GIL, but all threads share one put lock: how much do threads help?"""
    if not bench.wanted(f"put_many, {threads} threads", "one thread", None):
        return
    with scratch(bench) as folder, Ours(folder / "many", BODY) as many, Ours(folder / "one", BODY) as one:

        def check():
            many.put_batches(threads, threads * BATCH * 5)
            many.check()

        bench.row(
            f"put_many, {threads} threads",
            against="one thread",
            work=PUTS // BATCH // threads * threads * BATCH / 1e3,
            their_work=PUTS / 1e3,
            unit="k/s",
            check=check,
            ours=many.side(partial(many.put_batches, threads, PUTS), PUTS),
            theirs=one.side(partial(one.put_batches, 1, PUTS), PUTS),
            point=Point("threads, gain", "put_many", threads),
        )


def locks(name: str, flush: str, threads: int, many: bool):
    """The same puts with one put lock and with the default. put_many holds it for a batch, without the interpreter."""
    what = f"put_many, {BATCH} a call" if many else "put"
    case, against = f"{what}, {flush}, {of_threads(threads)}, {name} lock", "reentrant lock"
    if not bench.wanted(case, against, None):
        return
    each = BATCH if many else 1
    count = PUTS * 2 if many else PUTS if flush == "async" else synced(threads)
    count = max(threads * each, count - count % (threads * each))
    with (
        scratch(bench) as folder,
        Ours(folder / "ours", BODY, lock=name, flush=flush) as mine,
        Ours(folder / "theirs", BODY, lock="reentrant", flush=flush) as other,
    ):
        sides = [(one, one.put_batches if many else one.put) for one in (mine, other)]

        def check():
            for one, work in sides:
                work(threads, threads * each)
                one.check()

        ours, theirs = (one.side(partial(work, threads, count), count) for one, work in sides)
        bench.row(case, against=against, work=count / 1e3, unit="k/s", check=check, ours=ours, theirs=theirs)


def reading(threads: int):
    """A log with a file per thread; each thread reads a file, all columns with CRC."""
    size = (64 if bench.quick else 512) * MIB
    log = bench.log(body=1024, size=size, file_size=size // threads)

    def read(thread: int):
        for _ in rocketc.scan(log.files[thread]).batches():
            pass

    def one():
        for thread in range(threads):
            read(thread)

    bench.row(
        f"scan, all columns; CRC, 1 KiB, {threads} threads",
        against="one thread",
        work=log.bytes / 1e9,
        unit="GB/s",
        check=lambda: same(sum(1 for _ in rocketc.scan(log.path)), log.sum.records, "rocketc"),
        ours=timed(partial(in_threads, threads, read)),
        theirs=timed(one),
        point=Point("threads, gain", "scan", threads),
    )


def main():
    recycle_pages(bench)
    for threads in THREADS:
        puts(threads, "async")
    for threads in WAITERS:
        puts(threads, "sync")
    for many, flush in ((False, "async"), (False, "sync"), (True, "async")):
        for threads in LOCK_THREADS:
            for name in LOCKS:
                locks(name, flush, threads, many)
    for threads in THREADS[1:]:
        batches(threads)
    for threads in THREADS[1:]:
        reading(threads)


if __name__ == "__main__":
    main()
