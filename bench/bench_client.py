"""How fast is the Python client: sends, batches and a push consumer, beside Java's client at the same Java broker?"""

import asyncio
import ctypes
import gc
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import brokers
import java_peer
import load
from common import MIB, clock, memory_of, same
from rows_clients import ClientSide
from rows_sends import BODY
from writing import Bench, less_is_better, scratch

from rocketc.client import AsyncProducer, Producer, PushConsumer
from rocketc.remoting.loops import new_event_loop

bench = Bench("client", __doc__)
bench.rounds = 3 if bench.quick else 7
RELEASES = java_peer.RELEASES[1:] if bench.quick else java_peer.RELEASES
BODY_BYTES = b"x" * BODY
IN_FLIGHT, IN_BATCH = 1000, 32
PREFETCHED = 100_000
WAIT = 120.0  # seconds, for a consumer


class PythonSide:
    """A side: a round of this client, in this process."""

    def __init__(self, work: Callable[[int], object], count: int):
        self._work, self._count = work, count
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        used, began = time.process_time(), clock()
        self._work(self._count)
        took = clock() - began
        self.figures.append({"cpu_us": (time.process_time() - used) / self._count * 1e6})
        return took


def sync_sends(producer: Producer) -> Callable[[int], object]:
    def work(count: int):
        for _ in range(count):
            producer.send("BenchTopic", BODY_BYTES)

    return work


def batches(producer: Producer) -> Callable[[int], object]:
    def work(count: int):
        for _ in range(count // IN_BATCH):
            producer.send_many("BenchTopic", [BODY_BYTES] * IN_BATCH)

    return work


def async_sends(loop: asyncio.AbstractEventLoop, producer: AsyncProducer) -> Callable[[int], object]:
    async def sends(count: int):
        left = count

        async def one_by_one():
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send("BenchTopic", BODY_BYTES)

        await asyncio.gather(*[one_by_one() for _ in range(IN_FLIGHT)])

    return lambda count: loop.run_until_complete(sends(count))


def consumes(name_server: str, is_coroutine: bool) -> Callable[[int], object]:
    """A new group reads the topic from its first message, as Java's side does."""

    def work(count: int):
        done, left = threading.Event(), count

        def listener(message):
            nonlocal left
            left -= 1
            if left == 0:
                done.set()

        async def coroutine(message):
            listener(message)

        with PushConsumer(f"g{uuid.uuid4().hex}", name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as one:
            one.subscribe("ConsumeTopic", listener=coroutine if is_coroutine else listener)
            same(done.wait(WAIT), True, f"{count - left} of {count} messages came")

    return work


def memory(folder: Path):
    """Private memory of messages that a push consumer has pulled, and whose listeners have not returned."""
    for body in (BODY, 1024):
        case = f"Python client: memory of {PREFETCHED:,} prefetched messages, {body} B"
        if not bench.wanted(case, "their bytes"):
            continue
        with brokers.ours(folder) as broker:
            frames = load.kept(folder, f"prefetched {body}", lambda body=body: load.sends("ConsumeTopic", 4, body))
            load.run("frames", broker.port, frames, 1, 200, PREFETCHED)
            used, size = prefetched(broker.name_server)
        limit = 1.3 * size + 16
        less_is_better(bench, 1, case, "1.3 of their bytes + 16 MiB", [used], [limit], "MiB", 1)


def own_memory() -> float:
    """Return the MiB of private memory of this process."""
    return memory_of(Path("/proc/self/status"), "RssAnon") or 0.0


def prefetched(name_server: str) -> tuple[float, float]:
    """Return the MiB of memory that the messages need, and the MiB of their records."""
    ended, sizes = threading.Event(), []

    def listener(message):
        sizes.append(message.store_size)
        ended.wait(WAIT)

    options = {"pull_threshold_for_queue": PREFETCHED // 2, "pull_threshold_size_for_queue": 1000}
    options |= {"consume_concurrently_max_span": 65_535, "consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory would be used again
    before = own_memory()
    with PushConsumer(f"g{uuid.uuid4().hex}", name_server, **options) as one:
        one.subscribe("ConsumeTopic", listener=listener)
        end = clock() + WAIT
        while one.counts().cached.get("ConsumeTopic", (0, 0))[0] < PREFETCHED and clock() < end:
            time.sleep(0.05)
        used, count = own_memory() - before, one.counts().cached["ConsumeTopic"][0]
        ended.set()
    same(count, PREFETCHED, "not all messages were pulled")
    return used, sizes[0] * PREFETCHED / MIB


def beside_java(folder: Path, release: str):
    scale = 1 if bench.quick else 15
    with brokers.java(folder, release) as java:
        client = java_peer.start(bench, "client", warm=-1, heap="512m", body=BODY)
        loop = new_event_loop()
        producer = AsyncProducer("bench", java.name_server)
        loop.run_until_complete(producer.start())
        try:
            with client, Producer("bench", java.name_server) as plain:
                frames = load.kept(folder, "consumer", lambda: load.sends("ConsumeTopic", 4, BODY))
                filled = 33_334 * scale
                load.run("frames", java.port, frames, 1, 200, filled)
                rows = {
                    "sync, 1 thread": (sync_sends(plain), "BenchTopic sync 1", 1_000 * scale, 0.7),
                    "async, 1000 in flight": (async_sends(loop, producer), "BenchTopic async 1000", 8_000 * scale, 1),
                    "batches of 32, 1 thread": (batches(plain), "BenchTopic batch 1", 16_000 * scale, 1),
                    "push consumer, a coroutine": (
                        consumes(java.name_server, is_coroutine=True), "ConsumeTopic consume 1", filled, 1,
                    ),
                    "push consumer, a function": (
                        consumes(java.name_server, is_coroutine=False), "ConsumeTopic consume 1", filled, None,
                    ),
                }  # fmt: skip
                for name, (work, words, count, goal) in rows.items():
                    one_row(java, client, name, work, words, count, goal)
        finally:
            loop.run_until_complete(producer.close())
            loop.close()


def one_row(java, client, name: str, work: Callable[[int], object], words: str, count: int, goal: float | None):
    case, against = f"Python client: {name}, {BODY} B", f"Java client at {java.name}"
    if not bench.wanted(case, against):
        return
    ours, theirs = PythonSide(work, count), ClientSide(client, java, java.name_server, words, count)
    all_rounds = bench.rounds
    if "consume" in words:
        bench.rounds = 1 if bench.quick else 5  # starting and ending Java's consumer takes 2 s
    else:
        end = clock() + (0.5 if bench.quick else 4)
        while clock() < end:
            ours()
            theirs()
        ours.figures.clear()
    rounds = bench.row(case, against=against, goal=goal, work=count / 1e3, unit="k/s", ours=ours, theirs=theirs)
    bench.rounds = all_rounds
    if rounds:
        used = [one["cpu_us"] for one in ours.figures][-rounds:]
        less_is_better(bench, rounds, f"{case}: CPU of the client", "10 us", used, [10.0] * rounds, "us a message")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the servers, too
    with scratch(bench) as folder:
        memory(folder)
        if brokers.has_java(bench.name):
            for release in RELEASES:
                beside_java(folder, release)


if __name__ == "__main__":
    main()
