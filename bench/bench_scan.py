"""How fast are logs read: into Arrow columns, filtered, as messages?"""

import mmap
from functools import partial

import java_peer
import pyarrow as pa
from common import (
    MIB,
    MIXED_TOPICS,
    PLAIN,
    Bench,
    Log,
    copying,
    digest,
    in_threads,
    make_sum,
    mapped,
    python_messages,
    python_rows,
    same,
    sum_batches,
    sum_messages,
    timed,
)

import rocketc

BLOCK = 16 * MIB  # bytes per memcpy and per batch: both sides fill the same amount of memory repeatedly
ALL = list(rocketc.COLUMN_NAMES)
ALL_BUT_MAP = [name for name in ALL if name != "properties"]
SQL = "price > 10 AND region = 'eu' AND TAGS = 'TagA'"  # the last term decides
COMPARED = 5000  # records of which every column is compared with plain Python before the clock starts

bench = Bench("scan", __doc__)


# ---------------------------------------------------------------- our side
def opened(source, **options) -> rocketc.Scan:
    """A scan of a path, of a file that stays mapped, or of bytes."""
    begin = rocketc.decode if isinstance(source, mmap.mmap | bytes) else rocketc.scan
    return begin(source, batch_bytes=BLOCK, **options)


def read(source, **options):
    """Read all batches of a scan and release each at the next one, as a stream does."""
    for _ in opened(source, **options).batches():
        pass


def iterate(source):
    for _ in opened(source):
        pass


def read_attributes(source):
    """Read the same fields of each message as the Java side."""
    return sum_messages(opened(source))


# ---------------------------------------------------------------- checks
def attribute(column: str) -> str:
    """Return the attribute of a column: physicalOffset -> phy_offset."""
    column = {"physicalOffset": "phyOffset", "bodyCRC": "bodyCrc"}.get(column, column)
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in column)


def plain_value(value):
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return dict(value) if isinstance(value, list) else value


def check_columns(log: Log, columns: list[str], **options):
    """Check the sum of all records, and every column of the first records."""
    everything = rocketc.scan(log.path, columns=list({*columns, *PLAIN}), **options)
    same(sum_batches(everything.batches()), log.sum, "rocketc")
    rows = next(rocketc.scan(log.path, columns=columns, **options).batches()).slice(0, COMPARED).to_pylist()
    for n, (row, message) in enumerate(zip(rows, python_messages(log.files[0], COMPARED), strict=False)):
        message["file"] = log.files[0]
        for column, value in row.items():
            same(plain_value(value), message[attribute(column)], f"rocketc: {column} of record {n}")


def check_topic(log: Log, topic: str):
    found = rocketc.scan(log.path, topics=topic)
    same(sum_batches(found.batches()), log.topics[topic], f"rocketc: {topic}")


def check_python(log: Log, rows, limit: int):
    """Check the Python peer, over a short log or over the records with which it is timed."""
    found = [(m["topic"], m["body"]) if isinstance(m, dict) else m[1:] for m in rows(log.files[0], limit)]
    batch = next(rocketc.scan(log.path, columns=["topic", "body"]).batches())
    ours = pa.Table.from_batches([batch]).slice(0, len(found))
    n = min(len(found), batch.num_rows)
    same(found[:n], list(zip(*(ours.column(i).to_pylist() for i in range(2)), strict=True))[:n], "Python")


# ---------------------------------------------------------------- rows
CASES = (  # case, goal, columns, crc
    ("numbers, topic, body; no CRC", 0.8, PLAIN, "none"),
    ("numbers, topic, body; CRC", 0.6, PLAIN, "body"),
    ("all columns but the map; CRC", 0.4, ALL_BUT_MAP, "body"),
    ("all columns and the map; CRC", 0.25, ALL, "body"),
)


def against_memcpy(log: Log, name: str, cases=CASES):
    """Decoding against copying the same bytes. Both sides map the files again in each round."""
    for case, goal, columns, crc in cases:
        bench.row(
            f"{name} -> Arrow: {case}",
            against="memcpy (by 16 MiB, remap)",
            goal=goal,
            work=log.bytes / 1e9,
            unit="GB/s",
            check=partial(check_columns, log, columns, crc=crc),
            ours=timed(partial(read, log.path, columns=columns, crc=crc)),
            theirs=timed(copying(log.files, BLOCK, remap=True)),
        )


def filtered(log: Log, name: str):
    bench.row(
        f"{name}, topic filter, 1 % kept, all columns; CRC",
        against="memcpy (by 16 MiB, remap)",
        goal=1.0,
        work=log.bytes / 1e9,
        unit="GB/s",
        check=partial(check_topic, log, "RareTopic"),
        ours=timed(partial(read, log.path, topics="RareTopic")),
        theirs=timed(copying(log.files, BLOCK, remap=True)),
    )


def priced(size: int, body: int) -> bytes:
    """Return records of about `size` bytes together. All have price > 10 and region 'eu', and 1 % the tag TagA."""
    records, at = [], 0
    while at < size:
        n = len(records)
        properties = {
            "KEYS": f"order-{n:07d}",
            "UNIQ_KEY": f"7F000001AB12CD34EF56{n:012X}",
            "WAIT": "true",
            "TAGS": "TagB" if n % 100 else "TagA",
            "price": str(11 + n % 1000),
            "region": "eu",
        }
        records.append(rocketc.encode("BenchTopic", bytes(body), queue_offset=n, phy_offset=at, properties=properties))
        at += len(records[-1])
    return b"".join(records)


def by_properties(body: int, name: str):
    """A filter of three terms against a filter by tag; both keep the same 1 %."""
    data = priced(16 * MIB if bench.quick else 128 * MIB, body)

    def check():
        found = [[m.queue_offset for m in opened(data, **how)] for how in ({"sql": SQL}, {"tags": "TagA"})]
        same(*found, "SQL filter")

    bench.row(
        f"{name}, SQL filter of three terms, 1 % kept, all columns; CRC",
        against="tag filter",
        goal=0.5,
        work=len(data) / 1e9,
        unit="GB/s",
        check=check,
        ours=timed(partial(read, data, sql=SQL)),
        theirs=timed(partial(read, data, tags="TagA")),
    )


def against_java(log: Log, name: str):
    """Both sides map and touch the file before the clock starts, as Java does."""
    map_ = mapped(log.files[0])
    java = java_peer.start(bench, "scan", "crc", *log.files)
    if not java:
        return
    with java:
        for case, goal, ours, check in (
            ("-> Arrow: numbers, topic, body; CRC", 10, partial(read, map_, columns=PLAIN), None),
            ("-> Arrow: all columns and the map; CRC", 4, partial(read, map_), None),
            ("iterating Message; CRC", 2, partial(iterate, map_), partial(digest_check, log)),
            ("iterating Message, 7 attributes read; CRC", None, partial(read_attributes, map_), None),
        ):

            def checks(check=check):
                same(java.round()[1:3], log.sum, "Java")
                same(read_attributes(map_), log.sum, "rocketc")
                if check:
                    check()

            bench.row(
                f"{name} {case}",
                against="Java MessageDecoder",
                goal=goal,
                work=log.sum.records / 1e6,
                unit="M/s",
                check=checks,
                ours=timed(ours),
                theirs=java.seconds,
            )


def digest_check(log: Log):
    """Compare every field of every message of both sides. It needs another JVM, so a quick run skips it."""
    if not bench.quick:
        with java_peer.start(bench, "scan", "digest", *log.files, warm=0) as java:
            same(digest(rocketc.scan(log.path)), make_sum(*java.round()[1:3]), "rocketc")


def against_python(log: Log, name: str):
    limit = 20_000 if bench.quick else 200_000
    for case, goal, columns, rows in (
        ("numbers, topic, body; CRC", None, PLAIN, python_rows),
        ("all columns and the map; CRC", 30, ALL, python_messages),
    ):

        def theirs(rows=rows):
            for _ in rows(log.files[0], limit):
                pass

        bench.row(
            f"{name} -> Arrow: {case}",
            against="struct and zlib in Python",
            goal=goal,
            work=log.sum.records / 1e6,
            their_work=limit / 1e6,
            unit="M/s",
            check=partial(check_python, log, rows, limit),
            ours=timed(partial(read, log.path, columns=columns)),
            theirs=timed(theirs),
        )


def two_threads(log: Log, name: str):
    """The GIL is released while a batch is decoded: two threads, a file each, against one thread over both."""
    bench.row(
        f"{name}, two files -> Arrow: all columns and the map; CRC; two threads",
        against="one thread",
        goal=1.5,
        work=log.bytes / 1e9,
        unit="GB/s",
        check=partial(check_columns, log, ALL),
        ours=timed(partial(in_threads, len(log.files), lambda thread: read(log.files[thread]))),
        theirs=timed(partial(read, log.path)),
    )


def main():
    big, small = bench.log(body=1024), bench.log(body=256)
    against_memcpy(big, "1 KiB")
    against_memcpy(small, "256 B")
    filtered(bench.log(body=1024, topics=MIXED_TOPICS), "1 KiB")
    filtered(bench.log(body=256, topics=MIXED_TOPICS), "256 B")
    # Uneven sizes: the position of the next header can't be predicted from the size of this record.
    for body, name in ((1024, "0.5-1.5 KiB"), (256, "128-384 B")):
        uneven = bench.log(body=body, topics=MIXED_TOPICS, spread=0.5)
        against_memcpy(uneven, name, CASES[1:2])
        filtered(uneven, name)
    by_properties(1024, "1 KiB")
    by_properties(256, "256 B")
    against_java(small, "256 B")
    against_python(small, "256 B")
    two_threads(bench.log(body=1024, file_size=64 * MIB if bench.quick else 512 * MIB), "1 KiB")


if __name__ == "__main__":
    main()
