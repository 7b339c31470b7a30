"""How fast does Spark read the topics of a running broker? Spark settings: ROCKETC_BENCH_SPARK="a=b c=d"."""

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import brokers
import java_peer
import load
from brokers import Process
from common import Bench, clock, same, timed
from rows_clients import ClientSide
from rows_pulls import fill
from spark_session import drop_all, start_spark
from writing import less_is_better, scratch

BODY = 128
TOPIC, QUEUES = "ConsumeTopic", 4
SHARE, FASTER = 0.5, 5  # of the rate from files; than the JVM's client in one thread
PLANNED, PLAN_SECONDS = 10_000, 2.0  # queues, and the time allowed to plan a query of them
RATE = 100_000  # messages a second, sent while a stream reads them
FLAT = 1.5  # allowed lag in the last quarter of the time, against the second quarter

bench = Bench("wire", __doc__)


def over_the_wire(broker: Process, **options: str):
    return spark.read.format("rocketmq").option("nameServer", broker.name_server).options(**options).load()


def digest(frame):
    """The number of rows, and a sum that changes with each value of each row."""
    columns = "topic, queueId, queueOffset, physicalOffset, storeTimestamp, bornTimestamp, keys, tags, body, bodyCRC"
    return frame.selectExpr("count(*)", f"bit_xor(xxhash64({columns}))").first()


# ---------------------------------------------------------------- a topic as a table
def as_table(folder: Path):
    """A topic over the wire, against the files of the same store, and against one thread of RocketMQ's client."""
    count = 400_000 if bench.quick else 10_000_000
    name = f"{count:,} messages of {BODY} B, all columns"
    root = brokers.make_store(folder)
    with brokers.ours(folder, root) as broker:
        fill(broker, folder, TOPIC, BODY, count, queues=QUEUES)
        wire = over_the_wire(broker, subscribe=TOPIC)
        files = spark.read.format("rocketmq").option("subscribe", TOPIC).load(str(root / "store"))

        def check():
            same(digest(wire), digest(files), "Spark")

        bench.row(
            name, against="the store as files", goal=SHARE, work=count / 1e6, unit="M rows/s", check=check,
            ours=timed(partial(drop_all, wire)), theirs=timed(partial(drop_all, files)),
        )  # fmt: skip
        if not bench.wanted(name, "Java client, one thread") or not brokers.has_java(bench.name):
            return
        client = java_peer.start(bench, "client", warm=-1, heap="512m", body=BODY)
        each = count // 10
        with client:
            bench.row(
                name, against="Java client, one thread", goal=FASTER, work=count / 1e6, their_work=each / 1e6,
                unit="M rows/s", ours=timed(partial(drop_all, wire)),
                theirs=ClientSide(client, broker, broker.name_server, f"{TOPIC} pull 1", each),
            )  # fmt: skip


# ---------------------------------------------------------------- planning
def planned(folder: Path):
    """The driver's plan of a query of many queues: their offsets, and the tasks."""
    topics = 10 if bench.quick else 100
    each = PLANNED // topics // (10 if bench.quick else 1)
    case = f"plan of a query of {topics * each:,} queues"
    if not bench.wanted(case, f"{PLAN_SECONDS:g} s"):
        return
    names = {f"Plan{number:03d}": each for number in range(topics)}
    with brokers.ours(folder, brokers.make_store(folder, names)) as broker:
        for name in names:
            frames = load.kept(folder, f"plan-{name}", partial(load.sends, name, each, BODY))
            load.run("frames", broker.port, frames, 1, 100, each)
        took = []
        for _ in range(1 + bench.rounds):
            began = clock()
            tasks = over_the_wire(broker, subscribePattern="Plan.*").rdd.getNumPartitions()
            took.append(clock() - began)
            same(tasks > 0, True, "tasks")
    seconds = [PLAN_SECONDS] * len(took[1:])
    less_is_better(bench, len(seconds), case, f"{PLAN_SECONDS:g} s", took[1:], seconds, "s", 1)


# ---------------------------------------------------------------- a stream
@contextmanager
def sending(broker: Process, folder: Path, seconds: int) -> Iterator[None]:
    """Send RATE messages a second, from another process."""
    frames = load.kept(folder, f"stream-{BODY}", partial(load.sends, TOPIC, QUEUES, BODY))
    words = ["flood", broker.port, frames, 4, RATE, seconds]
    sender = subprocess.Popen([load.build(), *map(str, words)], stdout=subprocess.PIPE)
    try:
        yield
        done = json.loads(sender.communicate()[0])
        same(done["sent"] > 0.999 * RATE * seconds, True, "all was sent")
    finally:
        sender.kill()
        sender.wait()


class Progress:
    """What a stream has read, by the second."""

    def __init__(self, query):
        self._query, self._rows, self._done = query, {}, threading.Event()
        self.read: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self):
        while not self._done.wait(0.5):
            for progress in self._query.recentProgress:
                self._rows[progress["batchId"]] = progress["numInputRows"]
            self.read.append((clock(), sum(self._rows.values())))

    def close(self):
        self._done.set()
        self._thread.join()


def streamed(folder: Path):
    """A stream reads what is sent at RATE: how much it reads, and its lag."""
    seconds = 20 if bench.quick else 60
    case = f"a stream beside {RATE:,} sends a second"
    if not bench.wanted(case, "what is sent"):
        return
    checkpoint = tempfile.mkdtemp(dir=folder)
    with brokers.ours(folder) as broker:
        fill(broker, folder, TOPIC, BODY, 4, queues=QUEUES)
        read = spark.readStream.format("rocketmq").option("nameServer", broker.name_server)
        read = read.option("subscribe", TOPIC).option("startingOffsets", "latest").load()
        query = read.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(
            processingTime="1 second"
        ).start()  # fmt: skip
        time.sleep(5)  # the first batch of a query starts its Python processes
        progress = Progress(query)
        try:
            before, used = clock(), broker.used()
            with sending(broker, folder, seconds):
                pass
            sent = clock() - before
            used = broker.used() - used
        finally:
            progress.close()
            query.stop()
    lags = [((at - before) * RATE - rows) / RATE for at, rows in progress.read if before < at < before + sent]
    half, quarter = lags[len(lags) // 2 :], len(lags) // 4
    lag = {"second": sum(lags[quarter : 2 * quarter]) / quarter, "last": sum(lags[-quarter:]) / quarter}
    rows = [rows for at, rows in progress.read if at < before + sent][-1]
    share = rows / sent
    bench.show(f"{case}: read", "what is sent", share / RATE, 0.95, [share / 1e3], [RATE / 1e3], "k/s")
    less_is_better(
        bench, 1, f"{case}: lag in the last quarter", "lag in the second quarter", [lag["last"]], [lag["second"]], "s",
        round(1 / FLAT, 3),
    )  # fmt: skip
    less_is_better(bench, 1, f"{case}: longest lag", "1 s", [max(half)], [1.0], "s")
    less_is_better(
        bench, 1, f"{case}: CPU of the broker", "10 us", [used.all / (RATE * seconds) * 1e6], [10.0], "us a message"
    )


def main():
    with scratch(bench) as folder:
        planned(folder)
        as_table(folder)
        streamed(folder)


spark = start_spark(bench)

if __name__ == "__main__":
    main()
