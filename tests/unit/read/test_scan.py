"""Scan: filters, ranges, Arrow consumers, threads, lifetimes."""

import multiprocessing
import pickle
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import compare, oracle, stores

import rocketc
from rocketc.errors import SqlError
from rocketc.read.scan_report import ScanReport
from rocketc.read.sql import compile_sql

Golden = Callable[[str], stores.GoldenStore]
TOPICS = ["orders", "ordinary", "", "t" * 200]
TAGS = [None, "A", "B", "A||B"]


def a_log() -> tuple[bytes, list[oracle.Record]]:
    """Return a log of 200 records of all combinations of topic, queue, tags, keys and time, and these records."""
    data = b""
    for n in range(200):
        properties = {"TAGS": TAGS[n // 4 % 4], "UNIQ_KEY": f"U{n}", "KEYS": f"k{n % 7} k{n % 11}" if n % 3 else None}
        where = {"queue_id": n % 3, "queue_offset": n, "phy_offset": len(data), "store_timestamp": 1000 + n // 2}
        data += oracle.encode(TOPICS[n % 4], b"body" * (n % 5), properties=properties, **where)
    return data, oracle.records(oracle.read(oracle.walk(data)))


DATA, RECORDS = a_log()


def has_key(record: oracle.Record, keys: list[str]) -> bool:
    own = (record["keys"] or "").split(" ") + [record["properties"].get("UNIQ_KEY")]
    return any(key in own for key in keys)


SQL = {  # filter -> what it means for a record
    "TAGS = 'A'": lambda r: r["tags"] == "A",
    "TAGS <> 'A'": lambda r: r["tags"] not in (None, "A"),
    "TAGS IS NULL OR UNIQ_KEY ENDSWITH '7'": lambda r: r["tags"] is None or r["properties"]["UNIQ_KEY"].endswith("7"),
    "NOT (KEYS CONTAINS 'k1')": lambda r: r["keys"] is None or "k1" not in r["keys"],
    "KEYS > 1": lambda r: False,
}


@given(
    sql=st.none() | st.sampled_from(list(SQL)),
    topics=st.none() | st.lists(st.sampled_from([*TOPICS, re.compile("ord.*"), re.compile("")]), max_size=2),
    queues=st.none() | st.lists(st.integers(0, 3), max_size=2),
    tags=st.none() | st.lists(st.sampled_from(["A", "B", "C"]), max_size=2),
    keys=st.none() | st.lists(st.sampled_from(["k1", "k6", "k10", "U17", "U198", "U1"]), min_size=1, max_size=2),
    begin=st.none() | st.integers(990, 1110),
    end=st.none() | st.integers(990, 1110),
    start=st.none() | st.integers(0, len(DATA) + 10),
    stop=st.none() | st.integers(0, len(DATA) + 10),
    odd=st.booleans(),
)
def test_filters_agree_with_a_python_filter(sql, topics, queues, tags, keys, begin, end, start, stop, odd):
    def wanted(r):
        named = [t for t in topics or [] if isinstance(t, str)]
        patterns = [t for t in topics or [] if not isinstance(t, str)]
        return (
            (topics is None or r["topic"] in named or any(p.fullmatch(r["topic"]) for p in patterns))
            and (queues is None or r["queueId"] in queues)
            and (tags is None or r["tags"] in tags)
            and (keys is None or has_key(r, keys))
            and (sql is None or SQL[sql](r))
            and (begin is None or r["storeTimestamp"] >= begin)
            and (end is None or r["storeTimestamp"] < end)
            and (start is None or r["physicalOffset"] >= start)
            and (stop is None or r["physicalOffset"] < stop)
            and not (odd and r["queueOffset"] % 2 == 0)
        )

    scan = rocketc.decode(
        DATA, topics=topics, queues=queues, tags=tags, keys=keys, sql=sql, begin=begin, end=end,
        start=start, stop=stop,
        where=(lambda message: message.queue_offset % 2 == 1) if odd else None,
    )  # fmt: skip
    meant = [compare.of_record(r) for r in RECORDS if wanted(r)]
    assert [compare.of_message(m) for m in scan] == meant
    assert scan.count() == len(meant)
    assert [row["queueOffset"] for row in scan.to_arrow().to_pylist()] == [r["queueOffset"] for r in meant]


BOUND = st.none() | st.integers(0, 201)


@given(
    offsets=st.dictionaries(
        st.sampled_from([*TOPICS, "other"]),
        st.dictionaries(st.none() | st.integers(0, 3), st.tuples(BOUND, BOUND), max_size=3),
        max_size=3,
    ),
    topics=st.none() | st.just(TOPICS[:2]),
)
def test_queue_offset_filters_agree_with_a_python_filter(offsets, topics):
    def wanted(r):
        if topics is not None and r["topic"] not in topics:
            return False
        if r["topic"] not in offsets:
            return True
        queues = offsets[r["topic"]]
        begin, end = queues.get(r["queueId"], queues.get(None, (0, 0)))
        return (begin is None or begin <= r["queueOffset"]) and (end is None or r["queueOffset"] < end)

    scan = rocketc.decode(DATA, topics=topics, offsets=offsets)
    assert [m.queue_offset for m in scan] == [r["queueOffset"] for r in RECORDS if wanted(r)]


@pytest.mark.parametrize("body", [b"", b"body", oracle.encode_batch([(0, b"a", None), (0, b"b", None)])])
@pytest.mark.parametrize("flag", [oracle.INNER_BATCH, oracle.NEED_UNWRAP])
def test_a_batch_with_only_one_bit_is_not_unwrapped(flag, body):
    """RocketMQ's clients unwrap a body if both bits of sysFlag are set."""
    scan = rocketc.decode(oracle.encode("t", body, sys_flag=flag))
    assert [message.body for message in scan] == [body]
    assert scan.to_arrow().column("body").to_pylist() == [body] and scan.count() == 1


def test_queue_offsets_of_an_inner_batch_are_those_of_its_messages():
    entries = [(0, b"%d" % n, {"TAGS": "A"}) for n in range(5)]
    data = oracle.encode_inner_batch("orders", entries, queue_offset=10)
    some = rocketc.decode(data, offsets={"orders": {0: (12, 14)}})
    assert [(m.queue_offset, m.body) for m in some] == [(12, b"2"), (13, b"3")]
    assert rocketc.decode(data, offsets={"orders": {None: (15, None)}}).count() == 0
    whole = rocketc.decode(data, offsets={"orders": {0: (10, 11)}}, unwrap=False)
    assert [m.queue_offset for m in whole] == [10]


def test_a_filter_of_properties_selects_messages_of_an_inner_batch():
    entries = [(0, b"%d" % n, {"price": str(n)}) for n in range(5)]
    data = oracle.encode_inner_batch("orders", entries, queue_offset=10)
    some = rocketc.decode(data, sql="price BETWEEN 2 AND 3")
    assert [(m.queue_offset, m.body) for m in some] == [(12, b"2"), (13, b"3")]
    assert some.to_arrow().column("body").to_pylist() == [b"2", b"3"] and some.count() == 2
    assert rocketc.decode(data, sql="price IS NULL", unwrap=False).count() == 1


def test_a_filter_of_properties_is_checked_at_once(tmp_path):
    (tmp_path / f"{0:020d}").write_bytes(DATA)
    for read in (rocketc.decode, lambda data, **options: rocketc.scan(tmp_path, **options)):
        with pytest.raises(SqlError, match="column 5: expected"):
            read(DATA, sql="a > ")
        with pytest.raises(SqlError, match="column 3: RocketMQ ignores this and what follows: \"LIKE 'b'\""):
            read(DATA, sql="a LIKE 'b'")
        with pytest.raises(TypeError, match="sql: expected str, got int"):
            read(DATA, sql=7)


def test_a_filter_of_properties_may_be_compiled():
    assert rocketc.decode(DATA, sql=compile_sql("TAGS = 'A'")).count() == rocketc.decode(DATA, tags="A").count()


def test_the_first_message_and_the_end_of_a_queue():
    """As in Spark. A negative queue offset read the whole queue before."""
    assert rocketc.decode(DATA, offsets={TOPICS[0]: {None: (-2, -1)}}).count() == rocketc.decode(DATA).count()
    for range_, text in (
        ([-10, None], "begin is -10; it must be 0 or more, or -2 for the first message"),
        ((-1, None), "begin is -1; it must be 0 or more"),
        ((None, -2), "end is -2; it must be 0 or more, or -1 for the end of the queue"),
    ):
        with pytest.raises(ValueError, match=f"offsets: topic 'orders', queue 0: {text}"):
            rocketc.decode(DATA, offsets={"orders": {0: range_}})
        with pytest.raises(ValueError, match=text):
            rocketc.scan("rocketmq://127.0.0.1:1/orders", offsets={"orders": {0: range_}})


def test_wrong_queue_offsets():
    with pytest.raises(TypeError):
        rocketc.decode(DATA, offsets={"orders": 7})
    with pytest.raises(ValueError, match="unpack"):
        rocketc.decode(DATA, offsets={"orders": {0: (1, 2, 3)}})
    with pytest.raises(ValueError, match="offsets: begin is"):
        rocketc.decode(DATA, offsets={"orders": {0: (1 << 64, None)}})


def test_every_split_gives_each_record_once():
    small = DATA[: RECORDS[8]["physicalOffset"]]
    whole = [m.phy_offset for m in rocketc.decode(small)]
    for cut in range(len(small) + 1):
        parts = [rocketc.decode(small, stop=cut), rocketc.decode(small, start=cut)]
        assert [m.phy_offset for part in parts for m in part] == whole


def test_columns_are_in_the_requested_order():
    table = rocketc.decode(DATA, columns=["body", "topic", "properties"]).to_arrow()
    assert table.schema.names == ["body", "topic", "properties"]
    assert table.column("body").to_pylist() == [r["body"] for r in RECORDS]
    with pytest.raises(ValueError, match="unknown column 'size'; the columns are topic"):
        rocketc.decode(DATA, columns=["size"])
    with pytest.raises(ValueError, match="'body' is given twice"):
        rocketc.decode(DATA, columns=["body", "body"])


@pytest.mark.parametrize("batch_bytes", [1, 300, 5000, 1 << 20])
def test_batches_are_limited_in_bytes_and_complete(batch_bytes):
    data = DATA[: RECORDS[100]["physicalOffset"]]
    batches = list(rocketc.decode(data, batch_bytes=batch_bytes).batches())
    assert pa.Table.from_batches(batches).column("queueOffset").to_pylist() == list(range(100))


def test_threads_scan_at_the_same_time(golden: Golden):
    names = ["v497-broker", "v533-broker", "v533-store", "v533-store-crc"]
    alone = {name: rocketc.scan(golden(name).path).to_arrow() for name in names}
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda name: rocketc.scan(golden(name).path).to_arrow(), names * 10))
    assert all(table.equals(alone[name]) for name, table in zip(names * 10, together, strict=True))


def test_other_threads_run_while_a_batch_is_decoded():
    size = len(oracle.encode("t", b"x" * 3900))
    data = b"".join(oracle.encode("t", b"x" * 3900, phy_offset=n * size) for n in range(4000))
    seen: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            seen.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        for _ in range(50):
            reader = pa.RecordBatchReader.from_stream(rocketc.decode(data, batch_bytes=1 << 30))
            start = time.perf_counter()
            assert reader.read_next_batch().num_rows == 4000  # one call of rocketc
            quarter = (time.perf_counter() - start) / 4
            if any(start + quarter < at < start + 3 * quarter for at in seen[-100_000:]):
                return
            seen.clear()
        pytest.fail("no other thread ever ran in the middle of a batch")
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("name", ["v533-broker", "v533-store", "v497-torn", "v533-bitrot"])
def test_scans_of_the_files_equal_the_whole_scan(golden: Golden, name):
    scan = rocketc.scan(golden(name).path, errors="skip", topics=re.compile("[A-Z].*"))
    whole = [m.record for m in scan]
    parts = scan.by_file()
    assert [m.record for part in parts for m in part] == whole
    assert ScanReport.total(part.report for part in parts) == scan.report
    assert sum(part.bytes for part in parts) == scan.bytes
    assert len(parts) > 1


def test_the_files_of_a_part_of_a_log(tmp_path):
    """Missing files, and files outside of the requested range."""
    record = oracle.encode("t", b"x" * 6)
    for base in (0, 100, 300, 400):
        (tmp_path / f"{base:020d}").write_bytes(oracle.encode("t", b"x" * 6, phy_offset=base) + bytes(2))
    assert len(record) == 98
    scan = rocketc.scan(tmp_path, start=100, stop=400, errors="skip")
    parts = scan.by_file()
    assert [[m.phy_offset for m in part] for part in parts] == [[100], [300]]
    assert [m.phy_offset for m in scan] == [100, 300]
    assert [part.report.missing for part in parts] == [[(200, 300)], []]
    assert scan.bytes == 200
    [itself] = rocketc.decode(record).by_file()
    assert itself.count() == 1


@pytest.mark.parametrize("way", ["a file is gone", "the predicate fails"])
def test_messages_before_an_error_are_returned(tmp_path, way):
    for base in (0, 100):
        (tmp_path / f"{base:020d}").write_bytes(oracle.encode("t", b"x" * 7, phy_offset=base) + b"\0")
    options = {"where": lambda m: 1 / (100 - m.phy_offset) > 0} if way == "the predicate fails" else {}
    scan = rocketc.scan(tmp_path, errors="skip", **options)
    if not options:
        (tmp_path / f"{100:020d}").unlink()
    got: list[int] = []
    with pytest.raises(ZeroDivisionError if options else rocketc.StoreIOError):
        for batch in scan.batches():
            got += batch.column("physicalOffset").to_pylist()
    assert got == [0]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_a_body_written_after_its_header(tmp_path, follow, errors):
    """For a moment only the body of a record is missing; unused space follows, as in a broker's files."""
    assert any(is_read_while_it_is_written(tmp_path, follow, errors) for _ in range(5))


def is_read_while_it_is_written(tmp_path, follow, errors):
    """Whether the whole record was read. On a busy machine the writer may come too late."""
    first = oracle.encode("t", b"first")
    second = oracle.encode("t", b"x" * 3000, phy_offset=len(first))
    path = tmp_path / f"{0:020d}"
    path.write_bytes(first + second.replace(b"x", b"\0") + bytes(1 << 16))

    def finish():
        time.sleep(0.004)
        with path.open("r+b") as file:
            file.seek(len(first))
            file.write(second)

    scan = rocketc.scan(path, errors=errors)
    messages = scan.follow(poll=0.001) if follow else iter(scan)
    assert next(messages).body == b"first"
    writer = threading.Thread(target=finish)
    writer.start()
    try:
        second_message = next(messages, None)
    except rocketc.CorruptRecordError:
        second_message = None
    writer.join()
    return second_message is not None and len(second_message.body) == 3000 and scan.report.damage == []


# ------------------------------------------------------------------------------------------ other processes, pandas


def is_long(message: rocketc.Message) -> bool:
    return len(message.body) > 8


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topics": [re.compile("ord.*")], "tags": "A", "columns": ["body"]},
        {"queues": 1, "keys": ["k1", "k2"], "begin": 1010, "end": 1090},
        {"sql": "TAGS IN ('A', 'B')", "topics": "orders"},
        {"where": is_long, "start": 2000, "stop": 9000},
        {"offsets": {"orders": {0: (10, None)}}, "crc": "full", "unwrap": False, "errors": "skip"},
    ],
)
def test_a_scan_is_pickled(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / f"{0:020d}").write_bytes(DATA)
    for scan in (rocketc.scan(tmp_path, **options), rocketc.decode(memoryview(DATA), **options)):
        there = pickle.loads(pickle.dumps(scan))
        assert [m.phy_offset for m in there] == [m.phy_offset for m in scan]
        assert there.describe() == scan.describe()
        assert there.column_names == scan.column_names
        assert there.report == scan.report
    assert [m.body for m in pickle.loads(pickle.dumps(rocketc.decode(DATA)))] == [m.body for m in rocketc.decode(DATA)]


def test_the_parts_of_a_scan_in_other_processes(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(DATA)
    parts = rocketc.scan(tmp_path, topics="orders").by_file()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(rocketc.Scan.count, parts)) == [50]


def test_a_scan_with_a_lambda_is_not_pickled() -> None:
    with pytest.raises(Exception, match="lambda"):
        pickle.dumps(rocketc.decode(DATA, where=lambda message: True))


def test_an_array_of_messages_is_refused() -> None:
    """pandas.DataFrame(scan) was one column of Message objects."""
    pandas = pytest.importorskip("pandas", minversion="3")
    with pytest.raises(TypeError, match=r"call scan\.to_arrow\(\)\.to_pandas\(\), or pandas\.DataFrame\.from_arrow"):
        pandas.DataFrame(rocketc.decode(DATA))
    assert len(rocketc.decode(DATA).to_arrow().to_pandas()) == len(RECORDS)
    assert len(pandas.DataFrame.from_arrow(rocketc.decode(DATA))) == len(RECORDS)
