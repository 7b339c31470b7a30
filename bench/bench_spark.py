"""How fast does Spark read rows from commit logs? Spark settings for both sides: ROCKETC_BENCH_SPARK="a=b c=d"."""

import contextlib
import shutil
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
from common import MIB, MIXED_TOPICS, Bench, Log, family, memory_of, python_messages, same, timed
from spark_session import drop_all, start_spark, sum_frame, temporary

import rocketc

FILES = 4  # files of a log: two tasks per core
SMALL = ["topic", "queueId", "queueOffset", "storeTimestamp", "keys", "tags"]
PART = 16 * MIB  # bytes that mapPartitions reads

bench = Bench("spark", __doc__)


# ---------------------------------------------------------------- both sides
def through_source(log: Log, columns: list[str] | None = None):
    reader = spark.read.format("rocketmq")
    return (reader.option("columns", ",".join(columns)) if columns else reader).load(log.path)


def through_map_in_arrow(log: Log):
    from rocketc.spark import SCHEMA, decode_batches

    items = spark.createDataFrame([(file,) for file in log.files], "path string").repartition(len(log.files))
    return items.mapInArrow(decode_batches, SCHEMA)


def through_map_partitions(log: Log):
    """An RDD of two tasks over one part of a log."""
    from rocketc.spark import Split, decode_partition

    parts = [Split(log.files[0], start, start + PART // 2) for start in (0, PART // 2)]
    return spark.sparkContext.parallelize(parts, len(parts)).mapPartitions(decode_partition)


def from_memory(log: Log, columns: list[str] | None = None):
    """The same rows from Arrow files in the page cache, in batches of the same size as ours."""
    from rocketc.spark import schema

    folder = temporary(bench, "arrow")
    for file in log.files:
        scan = rocketc.scan(file, columns=columns)
        with pa.ipc.new_file(str(folder / f"{Path(file).name}.arrow"), pa.schema(scan)) as out:
            for batch in scan.batches():
                out.write_batch(batch)
    return spark.read.format("memory").schema(schema(columns)).load(str(folder))


# ---------------------------------------------------------------- rows
def check(log: Log, *frames):
    for frame in frames:
        same(sum_frame(frame), log.sum, "Spark")


def full_read(log: Log, name: str):
    memory, source = from_memory(log), through_source(log)
    for case, goal, frame in (("source", 0.9, source), ("mapInArrow", None, through_map_in_arrow(log))):
        bench.row(
            f"{name}: {case}, all columns",
            against="ready-made Arrow batches",
            goal=goal,
            work=log.sum.records / 1e6,
            unit="M rows/s",
            also=(log.bytes / 1e9, "GB/s"),
            check=partial(check, log, frame, memory),
            ours=timed(partial(drop_all, frame)),
            theirs=timed(partial(drop_all, memory)),
        )


def columns_only(log: Log, name: str):
    memory, source = from_memory(log, SMALL), through_source(log, SMALL)
    bench.row(
        f"{name}: source, {len(SMALL)} columns without the body",
        against="ready-made Arrow batches",
        work=log.sum.records / 1e6,
        unit="M rows/s",
        check=lambda: same(source.count(), memory.count(), "Spark"),
        ours=timed(partial(drop_all, source)),
        theirs=timed(partial(drop_all, memory)),
    )


def one_row_each(log: Log, name: str):
    """mapPartitions, with a Row per message; it is slow, so it reads only a part of the log."""
    rows, theirs = through_map_partitions(log), from_memory(log)
    bench.row(
        f"{name}: mapPartitions, a Row of all columns each",
        against="ready-made Arrow batches",
        work=rows.count() / 1e6,
        their_work=log.sum.records / 1e6,
        unit="M rows/s",
        ours=timed(lambda: rows.foreach(lambda row: None)),
        theirs=timed(partial(drop_all, theirs)),
    )


def some_of_it(log: Log, name: str):
    """Select 1 % of the messages by an option or a filter, against reading all of them; both results are checked."""
    first, wanted = 1_700_000_000_000 + log.sum.records // 2, log.sum.records // 100
    times = {"startingTimestamp": str(first), "endingTimestamp": str(first + wanted)}
    rare = log.topics["RareTopic"].records
    everything = through_source(log)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    cases = (
        ("topic", reading(log, subscribe="RareTopic"), rare),
        ("time", reading(log, **times), wanted),
        ("key, of one message", reading(log, keys=f"order-{log.sum.records // 2}"), 1),
        ("topic, as a filter", reading(log, filterPushdown="true").where("topic = 'RareTopic'"), rare),
    )
    for case, frame, records in cases[: 2 if bench.quick else None]:
        bench.row(
            f"{name}: 1 % by {case}",
            against="all of it",
            goal=8,
            work=log.bytes / 1e9,
            unit="GB/s of log",
            check=lambda frame=frame, records=records: same(frame.count(), records, "Spark"),
            ours=timed(partial(drop_all, frame)),
            theirs=timed(partial(drop_all, everything)),
        )


def reading(log: Log, **options: str):
    return spark.read.format("rocketmq").options(**options).load(log.path)


def catch_up(log: Log, name: str):
    """A stream from the start to the end of the log, against a batch query of the same log."""
    folder = temporary(bench, "stream")

    def stream() -> int:
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        read = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(log.path)
        write = read.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        query = write.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    bench.row(
        f"{name}: a stream catches up",
        against="the source as a batch",
        work=log.sum.records / 1e6,
        unit="M rows/s",
        check=lambda: same(stream(), log.sum.records, "the stream"),
        ours=timed(stream),
        theirs=timed(partial(drop_all, through_source(log))),
    )


def to_parquet(log: Log, name: str):
    """Spark to Parquet on two cores, against pyarrow on one core with the table in memory; both with zstd."""
    import pyarrow.parquet as pq

    from rocketc.spark.archive import archive, read_archive

    table, frame = rocketc.scan(log.path).to_arrow(), through_source(log)
    folder = temporary(bench, "parquet")

    def archived():
        shutil.rmtree(folder / "archive", ignore_errors=True)
        same(archive(spark, log.path, folder / "archive").messages, log.sum.records, "archive")

    def written():
        frame.write.mode("overwrite").option("compression", "zstd").parquet(str(folder / "spark"))

    def read():
        return spark.read.schema(frame.schema).parquet(str(folder / "spark"))

    def check_archive():
        archived()
        same(sum_frame(read_archive(spark, folder / "archive")), log.sum, "the archive")

    def check():
        written()
        same(sum_frame(read()), log.sum, "Spark's Parquet")

    for case, goal, ours, right in (
        ("archive()", 0.8, archived, check_archive),
        ("Spark's own writer", None, written, check),
    ):
        bench.row(
            f"{name} -> Parquet, {case}",
            against="pyarrow, from memory, one core",
            goal=goal,
            work=log.bytes / 1e6,
            unit="MB/s",
            check=right,
            ours=timed(ours),
            theirs=timed(lambda: pq.write_table(table, folder / "pyarrow.parquet", compression="zstd")),
        )
    bench.row(
        f"{name}: source, all columns",
        against="Parquet of the same rows, read in the JVM",
        work=log.sum.records / 1e6,
        unit="M rows/s",
        check=check,
        ours=timed(partial(drop_all, frame)),
        theirs=timed(lambda: drop_all(read())),
    )


def in_plain_python(log: Log, name: str):
    """Decode row by row with struct and zlib, as without rocketc; it is slow, so it reads only a part of the log."""
    from rocketc.spark import Split, decode_partition

    files, limit = log.files[:2], 20_000
    decoded = spark.sparkContext.parallelize(files, len(files)).flatMap(lambda file: python_messages(file, limit))
    parts = [Split(file, int(Path(file).name), int(Path(file).name) + PART) for file in files]
    ours = spark.sparkContext.parallelize(parts, len(parts)).mapPartitions(partial(decode_partition, as_="batch"))
    rows = sum(ours.map(lambda batch: batch.num_rows).collect())
    bench.row(
        f"{name}: mapPartitions, Arrow batches of all columns",
        against="struct and zlib, a dict each",
        work=rows / 1e6,
        their_work=limit * len(files) / 1e6,
        unit="M rows/s",
        ours=timed(lambda: ours.foreach(lambda batch: None)),
        theirs=timed(lambda: decoded.foreach(lambda row: None)),
    )


def tasks_of_nothing():
    """The cost of a task that reads nothing; the peer's tasks cost only Spark's own part."""
    log = bench.log(body=1024, size=8 * MIB, file_size=8 * MIB)
    ours = reading(log, minPartitions="34", subscribe="NoTopic")
    count = ours.rdd.getNumPartitions()
    folder = temporary(bench, "arrow")
    for n in range(count):
        with pa.ipc.new_file(str(folder / f"{n:02}.arrow"), pa.schema(rocketc.scan(log.path))):
            pass
    theirs = spark.read.format("memory").schema(ours.schema).load(str(folder))
    bench.row(
        f"{count} tasks that find nothing",
        against="as many empty Arrow files",
        work=count,
        unit="tasks/s",
        ours=timed(partial(drop_all, ours)),
        theirs=timed(partial(drop_all, theirs)),
    )


def memory_of_workers():
    """The memory of Spark's Python workers while they read one large file, without the mapped page cache."""
    size = (512 if bench.quick else 4096) * MIB
    case, limit = f"a file of {size / 2**30:g} GiB", 256
    if not bench.wanted(case, f"{limit} MiB"):
        return
    log = bench.log(body=1024, size=size, file_size=size)
    peaks: list[float] = []
    done = threading.Event()

    def watch():
        while not done.wait(0.02):
            peaks.append(max((own_memory(process) for process in family()), default=0.0))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        drop_all(through_source(log))
    finally:
        done.set()
        watcher.join()
    peaks = [peak for peak in peaks if peak > 0]
    bench.show(case, f"{limit} MiB", limit / max(peaks), 1.0, peaks, [limit], "MiB a worker")


def own_memory(process: str) -> float:
    """Return the RssAnon of one of Spark's Python workers in MiB; 0 for any other process."""
    with contextlib.suppress(OSError):
        if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes():
            return memory_of(Path(f"/proc/{process}/status"), "RssAnon") or 0.0
    return 0.0


def main():
    memory_of_workers()  # first, because earlier work of a worker leaves memory in its allocators
    for body, name in ((1024, "1 KiB"), (256, "256 B")):
        size = (128 if bench.quick else 1024) * MIB
        log = bench.log(body=body, size=size, file_size=size // FILES)
        full_read(log, name)
        columns_only(log, name)
    catch_up(log, name)
    one_row_each(log, name)
    in_plain_python(log, name)
    size = (256 if bench.quick else 1024) * MIB  # large enough that the fixed cost of a job is a small part
    to_parquet(bench.log(body=body, size=size, file_size=size // FILES), name)
    size = (512 if bench.quick else 4096) * MIB  # skipping data shows its effect only in a large log
    mixed = bench.log(body=1024, size=size, file_size=size // FILES, topics=MIXED_TOPICS)
    some_of_it(mixed, "1 KiB")
    tasks_of_nothing()


spark = start_spark(bench)

if __name__ == "__main__":
    main()
