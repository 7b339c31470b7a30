"""Scan as an Arrow stream: the rules of the C stream interface and of the PyCapsule protocol, in C and per tool."""

import ctypes
import errno
import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support import oracle

import rocketc

BATCH = 256  # records with batch_bytes=1: the number that the reader reads at once
COUNT = 4 * BATCH


def a_log(count: int = COUNT) -> bytes:
    data = b""
    for n in range(count):
        data += oracle.encode("orders", b"body" * 5, queue_offset=n, phy_offset=len(data), properties={"TAGS": "A"})
    return data


DATA = a_log()
SIZE = len(DATA) // COUNT  # of one record


def a_store(folder: Path, files: int = 3, count: int = COUNT) -> list[Path]:
    """Write a store of some files, each filled with records to its last byte."""
    (folder / "commitlog").mkdir(parents=True)
    paths = []
    for base in range(0, files * count * SIZE, count * SIZE):
        records = [
            oracle.encode("orders", b"body" * 5, queue_offset=at // SIZE, phy_offset=at, properties={"TAGS": "A"})
            for at in range(base, base + count * SIZE, SIZE)
        ]
        paths.append(folder / "commitlog" / f"{base:020d}")
        paths[-1].write_bytes(b"".join(records))
    return paths


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("queueOffset").to_pylist()]


# ---- the C interface, called as a program in C calls it


class ArrowSchema(ctypes.Structure):
    pass


class ArrowArray(ctypes.Structure):
    pass


class ArrowArrayStream(ctypes.Structure):
    pass


ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))),
    ("dictionary", ctypes.POINTER(ArrowSchema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))),
    ("private_data", ctypes.c_void_p),
]
ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))),
    ("private_data", ctypes.c_void_p),
]
ArrowArrayStream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowSchema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowArray))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(ArrowArrayStream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArrayStream))),
    ("private_data", ctypes.c_void_p),
]

capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Raw:
    """The stream of a capsule, used in place."""

    def __init__(self, scan: rocketc.Scan) -> None:
        self._capsule = scan.__arrow_c_stream__()  # the capsule owns the struct
        self._struct = ArrowArrayStream.from_address(capsule_pointer(self._capsule, b"arrow_array_stream"))
        # Kept, as a careless program would keep them: release() may invalidate them.
        self._get_schema, self._get_next = self._struct.get_schema, self._struct.get_next
        self._get_last_error = self._struct.get_last_error

    def schema(self) -> tuple[int, list[str] | None]:
        out = ArrowSchema()
        code = self._get_schema(self._struct, out)
        if not out.release:
            return code, None
        names = [out.children[i].contents.name.decode() for i in range(out.n_children)]
        out.release(out)
        return code, names

    def next(self) -> tuple[int, int | None]:
        """Return the result of get_next, and the number of rows of the array or None."""
        out = ArrowArray()
        out.release = ArrowArray._fields_[8][1](lambda array: None)  # the previous value must not be left
        code = self._get_next(self._struct, out)
        if not out.release:
            return code, None
        rows = out.length
        out.release(out)
        return code, rows

    def error(self) -> str | None:
        text = self._get_last_error(self._struct)
        return None if text is None else text.decode()

    def release(self) -> None:
        self._struct.release(self._struct)
        assert not self._struct.release


def test_the_end_is_returned_repeatedly():
    raw = Raw(rocketc.decode(DATA, batch_bytes=1, columns=["body", "topic"]))
    assert raw.schema() == (0, ["body", "topic"])
    assert [raw.next() for _ in range(7)] == [(0, BATCH)] * 4 + [(0, None)] * 3
    assert raw.schema() == (0, ["body", "topic"])
    assert raw.error() is None


def test_an_error_is_returned_repeatedly():
    """Otherwise a reader could mistake the end of the readable part for the end of the log."""
    raw = Raw(rocketc.decode(DATA[:-1], batch_bytes=1))
    assert [raw.next() for _ in range(4)] == [(0, BATCH)] * 3 + [(0, BATCH - 1)]
    for _ in range(3):
        assert raw.next() == (errno.EINVAL, None)
        assert f"physical offset {SIZE * (COUNT - 1)}: truncated" in raw.error()
    assert raw.schema()[0] == 0


def test_a_released_stream_is_refused():
    for batches in range(3):
        raw = Raw(rocketc.decode(DATA, batch_bytes=1))
        for _ in range(batches):
            assert raw.next() == (0, BATCH)
        raw.release()
        assert raw.next() == (errno.EINVAL, None)
        assert raw.schema() == (errno.EINVAL, None)
        assert raw.error() is None


def test_a_capsule_is_consumed_once():
    class Once:
        capsule = rocketc.decode(DATA).__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.capsule

    assert pa.table(Once()).num_rows == COUNT
    with pytest.raises(pa.ArrowInvalid, match="released"):
        pa.table(Once())


def test_each_stream_is_a_separate_pass():
    scan = rocketc.decode(DATA, batch_bytes=1)
    first, second = (pa.RecordBatchReader.from_stream(scan) for _ in range(2))
    head = first.read_next_batch()
    pairs = list(zip(first, itertools.islice(second, 3), strict=True))  # they are one batch apart
    assert offsets([head, *(a for a, _ in pairs)]) == list(range(COUNT))
    assert offsets([*(b for _, b in pairs), *second]) == list(range(COUNT))
    assert scan.report.records == COUNT
    assert len(list(scan)) == scan.count() == pa.table(scan).num_rows == COUNT


def test_streams_of_one_scan_in_one_query():
    duckdb = pytest.importorskip("duckdb")
    scan = rocketc.decode(DATA, batch_bytes=1)
    query = """
        select count(*), count(distinct queueOffset) from scan a join scan b using (queueOffset)
        where a.queueOffset % 2 = 0 and b.queueOffset % 3 = 0
    """
    with duckdb.connect() as connection:
        for _ in range(2):
            assert connection.sql(query).fetchall() == [(171, 171)]
    assert scan is not None


def test_report_is_of_the_latest_stream():
    scan = rocketc.decode(DATA, batch_bytes=1)
    reader = pa.RecordBatchReader.from_stream(scan)
    assert scan.report.records == 0
    reader.read_next_batch()
    assert scan.report.records == BATCH
    pa.schema(scan)
    assert scan.report.records == BATCH  # a request for the schema starts no pass
    reader.read_all()
    assert (scan.report.records, scan.report.end) == (COUNT, len(DATA))


# ---- schemas


def test_schema_without_a_pass():
    columns = ["properties", "body", "storeTimestamp", "queueId"]
    scan = rocketc.decode(DATA, columns=columns)
    fields = [pa.map_(pa.string(), pa.string()), pa.binary(), pa.timestamp("us", "UTC"), pa.int32()]
    assert pa.schema(scan) == pa.schema(zip(columns, fields, strict=True)) == scan.to_arrow().schema


def test_a_requested_schema_of_other_types_is_ignored():
    scan = rocketc.decode(DATA, columns=["topic", "queueId"])
    own = pa.schema(scan)
    for wish in (own, pa.schema({"topic": pa.large_string(), "queueId": pa.int64()})):
        assert pa.RecordBatchReader.from_stream(scan, schema=wish).read_all().schema == own
    [batch] = scan.run(["topic", "queueId"]).batches()
    wish = pa.schema({"topic": pa.string_view(), "queueId": pa.int8()}).__arrow_c_schema__()
    schema, _ = batch.__arrow_c_array__(wish)
    assert pa.Schema._import_from_c_capsule(schema) == own
    large = pa.schema({"topic": pa.large_string(), "queueId": pa.int64()})
    assert pa.table(scan, schema=large).schema == large  # pyarrow itself converts it


@pytest.mark.parametrize(
    "names", [["topic"], ["queueId", "topic"], ["topic", "body"], ["topic", "queueId", "body"], []], ids=str
)
def test_a_requested_schema_of_other_columns_is_refused(names):
    scan = rocketc.decode(DATA, columns=["topic", "queueId"])
    wish = pa.schema([(name, pa.string()) for name in names])
    told = re.escape(f"the requested schema has the columns {names}, the scan has ['topic', 'queueId']")
    with pytest.raises(ValueError, match=told):
        pa.RecordBatchReader.from_stream(scan, schema=wish)
    [batch] = scan.run(["topic", "queueId"]).batches()
    with pytest.raises(ValueError, match=told):
        batch.__arrow_c_array__(wish.__arrow_c_schema__())


def test_an_invalid_schema_is_refused():
    scan = rocketc.decode(DATA)
    with pytest.raises(ValueError, match="PyCapsule"):
        scan.__arrow_c_stream__("topic")
    with pytest.raises(ValueError, match="PyCapsule"):
        scan.__arrow_c_stream__(scan.__arrow_c_stream__())


# ---- every tool


def by_pyarrow(scan: rocketc.Scan) -> pa.Table:
    return pa.table(scan)


def by_record_batch_reader(scan: rocketc.Scan) -> pa.Table:
    return pa.RecordBatchReader.from_stream(scan).read_all()


def by_duckdb(scan: rocketc.Scan) -> pa.Table:
    with pytest.importorskip("duckdb").connect() as connection:
        return connection.sql("from scan").to_arrow_table()


def by_polars(scan: rocketc.Scan) -> pa.Table:
    return pytest.importorskip("polars", minversion="1.32").DataFrame(scan).to_arrow()


def by_lazy_polars(scan: rocketc.Scan) -> pa.Table:
    return pytest.importorskip("polars", minversion="2").scan_arrow_c_stream(scan).collect().to_arrow()


def by_pandas(scan: rocketc.Scan) -> pa.Table:
    return pa.Table.from_pandas(pytest.importorskip("pandas", minversion="3").DataFrame.from_arrow(scan))


def by_nanoarrow(scan: rocketc.Scan) -> pa.Table:
    return pa.table(pytest.importorskip("nanoarrow").Array(scan))


TOOLS = [by_pyarrow, by_record_batch_reader, by_duckdb, by_polars, by_lazy_polars, by_pandas, by_nanoarrow]
every_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__.removeprefix("by_"))


@every_tool
@pytest.mark.parametrize("what", ["no bytes", "zeros", "nothing fits", "an empty file"])
def test_an_empty_scan_is_a_table_without_rows(tool, what, tmp_path):
    if what == "an empty file":
        [path] = a_store(tmp_path, files=1)
        path.write_bytes(b"")
        scan = rocketc.scan(tmp_path)
    else:
        data = {"no bytes": b"", "zeros": bytes(5000), "nothing fits": DATA}[what]
        scan = rocketc.decode(data, topics="another")
    table = tool(scan)
    assert (table.num_rows, table.schema.names) == (0, pa.schema(scan).names)
    assert len(table.schema) == len(rocketc.COLUMN_NAMES) == 21


def test_a_table_without_columns_has_rows():
    """DuckDB does not support tables without columns: docs/howto/duckdb.md."""
    scan = rocketc.decode(DATA, columns=[], batch_bytes=1)
    assert scan.to_arrow().num_rows == pa.table(scan).num_rows == COUNT
    assert [batch.num_rows for batch in scan.batches()] == [BATCH] * 4
    assert pytest.importorskip("polars", minversion="1.32").DataFrame(scan).height == COUNT
    assert len(pytest.importorskip("nanoarrow").Array(scan)) == COUNT
    assert len(pytest.importorskip("pandas", minversion="3").DataFrame.from_arrow(scan)) == COUNT


# ---- errors


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def damaged(folder: Path) -> tuple[rocketc.Scan, str]:
    path = a_store(folder)[1]
    data = bytearray(path.read_bytes())
    data[SIZE * 7 + 90] ^= 1
    path.write_bytes(data)
    at = (COUNT + 7) * SIZE
    return rocketc.scan(folder, batch_bytes=1), f"{path}: damage at physical offset {at}: bad_body_crc"


def cut_off(folder: Path) -> tuple[rocketc.Scan, str]:
    path = a_store(folder)[1]
    os.truncate(path, SIZE * 7 + 50)
    at = (COUNT + 7) * SIZE
    return rocketc.scan(folder, batch_bytes=1), f"{path}: damage at physical offset {at}: truncated"


def gone(folder: Path) -> tuple[rocketc.Scan, str]:
    path = a_store(folder)[1]
    scan = rocketc.scan(folder, batch_bytes=1)
    path.unlink()
    return scan, f"StoreIOError: [Errno 2] No such file or directory: '{path}'"


def not_utf8(folder: Path) -> tuple[rocketc.Scan, str]:
    """A path in another encoding, as on some old systems."""
    own = folder / os.fsdecode(b"caf\xe9")
    damaged(own)
    at = (COUNT + 7) * SIZE
    return rocketc.scan(own, batch_bytes=1), f"caf\\udce9/commitlog/{COUNT * SIZE:020d}: damage at physical offset {at}"


def predicate(kind: type[Exception], text: str) -> Callable[[Path], tuple[rocketc.Scan, str]]:
    def make(folder: Path) -> tuple[rocketc.Scan, str]:
        def where(message: rocketc.Message) -> bool:
            if message.queue_offset == COUNT + 7:
                raise kind("no \ud800")
            return True

        a_store(folder)
        return rocketc.scan(folder, batch_bytes=1, where=where), text

    return make


FAULTS = {
    "damaged": damaged,
    "cut": cut_off,
    "gone": gone,
    "no UTF-8": not_utf8,
    "predicate": predicate(ZeroDivisionError, "ZeroDivisionError: no \\ud800"),
    "no text": predicate(Silent, "Silent"),
}
every_fault = pytest.mark.parametrize("fault", FAULTS)


@every_tool
@every_fault
def test_an_error_reaches_the_tool_with_its_text(tool, fault, tmp_path):
    scan, text = FAULTS[fault](tmp_path)
    with pytest.raises(Exception, match=re.escape(text)) as caught:
        tool(scan)
    assert not isinstance(caught.value, rocketc.RocketcError)  # the tool has its own exception


@every_fault
def test_batches_before_an_error_are_returned(fault, tmp_path):
    scan, text = FAULTS[fault](tmp_path)
    before = list(range(COUNT + 7 if fault in ("damaged", "cut", "no UTF-8", "predicate", "no text") else COUNT))
    taken: list[int] = []
    with pytest.raises((pa.ArrowInvalid, OSError), match=re.escape(text)):
        for batch in pa.RecordBatchReader.from_stream(scan):
            taken += offsets([batch])
    assert taken == before
    taken.clear()
    with pytest.raises((rocketc.RocketcError, ZeroDivisionError, Silent)):
        for batch in scan.batches():
            taken += offsets([batch])
    assert taken == before
    nanoarrow = pytest.importorskip("nanoarrow")
    rows = 0
    with pytest.raises(nanoarrow._utils.NanoarrowException, match=re.escape(text)):
        for chunk in nanoarrow.c_array_stream(scan):
            rows += chunk.length
    assert rows == len(before)


def test_errno_is_that_of_the_error(tmp_path):
    raw = Raw(gone(tmp_path)[0])
    codes = [raw.next() for _ in range(6)]
    assert codes == [(0, BATCH)] * 4 + [(errno.ENOENT, None)] * 2


def test_a_memory_error_is_reported_as_such():
    def where(message: rocketc.Message) -> bool:
        raise MemoryError

    assert Raw(rocketc.decode(DATA, where=where)).next() == (errno.ENOMEM, None)


def test_a_file_cut_during_a_stream(tmp_path):
    path = a_store(tmp_path)[0]
    reader = pa.RecordBatchReader.from_stream(rocketc.scan(tmp_path, batch_bytes=1))
    assert reader.read_next_batch().num_rows == BATCH
    os.truncate(path, SIZE * (BATCH + 50))
    with pytest.raises((pa.ArrowInvalid, OSError), match=re.escape(str(path))):
        reader.read_all()


@pytest.mark.parametrize("tool", [by_pyarrow, by_record_batch_reader, by_polars, by_pandas, by_nanoarrow])
def test_ctrl_c_is_not_swallowed(tool):
    """A tool converts it into its own exception, and `except Exception` must not swallow Ctrl-C.

    DuckDB and lazy frames of Polars read in their own threads and check for Ctrl-C themselves.
    """

    def where(message: rocketc.Message) -> bool:
        if message.queue_offset == BATCH:
            signal.raise_signal(signal.SIGINT)
        return True

    scan = rocketc.decode(DATA, where=where, batch_bytes=1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            try:
                tool(scan)
            except Exception:
                for _ in range(1000):
                    pass
    finally:
        signal.signal(signal.SIGINT, before)


# ---- lives and threads


def alive(folder: Path) -> tuple[int, int, int]:
    """Return the number of open files of the folder, of mapped ones, and of objects of a pass."""
    gc.collect()
    opened = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            opened += os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder))
        except FileNotFoundError:  # the descriptor of the listing itself
            pass
    mapped = sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())
    return opened, mapped, sum(type(thing).__name__ == "ScanRun" for thing in gc.get_objects())


def never_taken(scan: rocketc.Scan) -> object:
    return scan.__arrow_c_stream__()


def not_read(scan: rocketc.Scan) -> object:
    return pa.RecordBatchReader.from_stream(scan)


def read_some(scan: rocketc.Scan) -> object:
    reader = pa.RecordBatchReader.from_stream(scan)
    return reader, [reader.read_next_batch() for _ in range(5)]


def read_all(scan: rocketc.Scan) -> object:
    return pa.RecordBatchReader.from_stream(scan).read_all()


def consumer_fails(scan: rocketc.Scan) -> object:
    reader = pa.RecordBatchReader.from_stream(scan)
    try:
        for batch in reader:
            batch.column("no such column")
    except KeyError as error:
        return error  # and with it this frame
    raise AssertionError


def duckdb_stops(scan: rocketc.Scan) -> object:
    with pytest.importorskip("duckdb").connect() as connection:
        return connection.sql("from scan limit 3").to_arrow_table()


def polars_stops(scan: rocketc.Scan) -> object:
    return pytest.importorskip("polars", minversion="2").scan_arrow_c_stream(scan).head(3).collect()


def nanoarrow_stops(scan: rocketc.Scan) -> object:
    stream = pytest.importorskip("nanoarrow").c_array_stream(scan)
    return stream, stream.get_next(), stream.get_next()


USES = [never_taken, not_read, read_some, read_all, consumer_fails, duckdb_stops, polars_stops, nanoarrow_stops]


@pytest.mark.some(3)
@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_a_stream_releases_everything(use, tmp_path):
    """Files, maps and the pass itself are released with the stream; its columns do not need them."""
    a_store(tmp_path)
    scan = rocketc.scan(tmp_path, batch_bytes=1)
    scan.count()
    before = alive(tmp_path)
    kept = [use(scan) for _ in range(10)]
    if use in (read_some, consumer_fails, nanoarrow_stops):
        assert alive(tmp_path)[:2] == (10, 10)  # the count finds existing ones
    kept.clear()
    scan.count()
    assert alive(tmp_path) == before
    assert before[:2] == (0, 0)


def test_columns_outlive_stream_and_scan():
    scan = rocketc.decode(DATA, batch_bytes=1)
    reader = pa.RecordBatchReader.from_stream(scan)
    batch = reader.read_next_batch()
    bodies, properties = batch.column("body"), batch.column("properties")
    del batch, reader, scan
    gc.collect()
    for _ in range(20):  # memory that was freed too early would be overwritten
        rocketc.decode(oracle.encode("other", b"x" * 5000) * 3, errors="skip").to_arrow()
    assert bodies.to_pylist() == [b"body" * 5] * BATCH
    assert properties.to_pylist() == [[("TAGS", "A")]] * BATCH


def test_a_stream_in_another_thread_than_its_maker():
    scan = rocketc.decode(DATA, batch_bytes=1)
    readers = [pa.RecordBatchReader.from_stream(scan) for _ in range(4)]
    for reader in readers:
        assert offsets([reader.read_next_batch()]) == list(range(BATCH))
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda i=i: found.append(offsets(readers[i]))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(BATCH, COUNT))] * 4


def test_a_stream_released_in_another_thread(tmp_path):
    a_store(tmp_path)
    readers = [pa.RecordBatchReader.from_stream(rocketc.scan(tmp_path, batch_bytes=1)) for _ in range(10)]
    for reader in readers:
        reader.read_next_batch()
    del reader
    thread = threading.Thread(target=readers.clear)
    thread.start()
    thread.join()
    assert alive(tmp_path)[:2] == (0, 0)


ENDS = {
    "reader": "kept = pa.RecordBatchReader.from_stream(scan); batch = kept.read_next_batch()",
    "capsules": "kept = scan.__arrow_c_stream__(), scan.__arrow_c_schema__()",
    "builtins": "builtins.kept = r = pa.RecordBatchReader.from_stream(scan); batch = r.read_next_batch()",
    "iterators": "builtins.kept = kept = iter(scan), scan.batches(); [next(part) for part in kept]",
    "a late cycle": "kept = [iter(scan)]; next(kept[0]); kept.append(kept); pa.lib.kept = kept",
    "never freed": "kept = pa.RecordBatchReader.from_stream(scan); kept.read_next_batch(); refer(kept)",
    "DuckDB": "import duckdb; kept = duckdb.connect().sql('from scan').to_arrow_reader(10); kept.read_next_batch()",
    "exit in the middle": "for batch in pa.RecordBatchReader.from_stream(scan): sys.exit(0)",
    "after Python": """
capsule = scan.__arrow_c_stream__()
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
source = (ctypes.c_void_p * 5).from_address(pointer(capsule, b"arrow_array_stream"))
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
moved = (ctypes.c_void_p * 5).from_address(libc.malloc(40))
moved[:] = source[:]
source[3] = None  # as the protocol says of who moves a stream out of its capsule
libc.__cxa_atexit(ctypes.c_void_p(moved[3]), ctypes.byref(moved), None)  # a static object in C++
""",
}


@pytest.mark.some(5)
@pytest.mark.parametrize("how", ENDS)
def test_python_exits_while_a_stream_exists(how, tmp_path):
    if how == "DuckDB":
        pytest.importorskip("duckdb")
    if how == "after Python" and not sys.platform.startswith("linux"):
        pytest.skip("__cxa_atexit of glibc")
    a_store(tmp_path)
    code = f"""
import builtins, ctypes, sys
import pyarrow as pa
import rocketc
def refer(thing): ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
scan = rocketc.scan(sys.argv[1], batch_bytes=1)
{ENDS[how]}
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-X", "faulthandler", "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=env, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
