"""Every golden store, read or exported in every way: equal tables, with all 21 columns, their order, types and nulls.

The expected table is read by the oracle. A way without one of our types uses another type (see docs/howto). Here it is
converted back, and nothing may be lost by that. Spark's source is one more way: tests/spark/test_source.py.
"""

import base64
import csv
import datetime
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from support import command, compare, oracle, stores

import rocketc

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "queueId": pa.int32(),
        "brokerName": pa.string(),
        "queueOffset": pa.int64(),
        "physicalOffset": pa.int64(),
        "storeTimestamp": INSTANT,
        "bornTimestamp": INSTANT,
        "keys": pa.string(),
        "tags": pa.string(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "msgId": pa.string(),
        "flag": pa.int32(),
        "sysFlag": pa.int32(),
        "reconsumeTimes": pa.int32(),
        "bodyCRC": pa.int32(),
        "bornHost": pa.string(),
        "storeHost": pa.string(),
        "preparedTransactionOffset": pa.int64(),
        "storeSize": pa.int32(),
        "file": pa.string(),
    }
)
TIMES = [name for name in SCHEMA.names if SCHEMA.field(name).type == INSTANT]

Way = Callable[[Path, Path], pa.Table]  # a store, a folder to write to -> the table, with the types of SCHEMA
WAYS: dict[str, Way] = {}


def way(name: str) -> Callable[[Way], Way]:
    def enter(function: Way) -> Way:
        WAYS[name] = function
        return function

    return enter


def scan(path: Path) -> rocketc.Scan:
    return rocketc.scan(path, errors="skip", batch_bytes=1 << 20)


def table_of(rows: Iterable[dict]) -> pa.Table:
    """A table of rows with timestamps in ms and properties as a dict; timestamps that do not fit into us are null."""
    rows = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
    for row in rows:
        for name in TIMES:
            row[name] = row[name] * 1000 if abs(row[name]) <= compare.INT64_US else None
        row["properties"] = list(row["properties"].items())
    return pa.Table.from_pylist(rows, SCHEMA)


def cast(table: pa.Table, **types: pa.DataType) -> pa.Table:
    """A table with our types except the named ones, cast to SCHEMA."""
    meant = [(field.name, types.get(field.name, types.get(str(field.type), field.type))) for field in SCHEMA]
    assert list(zip(table.schema.names, table.schema.types, strict=True)) == meant
    return table.cast(SCHEMA)


@way("iteration")
def by_iteration(path: Path, folder: Path) -> pa.Table:
    return table_of(compare.of_message(message) for message in scan(path))


@way("to_arrow")
def by_to_arrow(path: Path, folder: Path) -> pa.Table:
    return scan(path).to_arrow()


@way("batches")
def by_batches(path: Path, folder: Path) -> pa.Table:
    return pa.Table.from_batches(scan(path).batches())


@way("pyarrow.table")
def by_pyarrow_table(path: Path, folder: Path) -> pa.Table:
    return pa.table(scan(path))


@way("RecordBatchReader")
def by_record_batch_reader(path: Path, folder: Path) -> pa.Table:
    if not hasattr(pa.RecordBatchReader, "from_stream"):
        pytest.skip("pyarrow 14")
    return pa.RecordBatchReader.from_stream(scan(path)).read_all()


@way("DuckDB")
def by_duckdb(path: Path, folder: Path) -> pa.Table:
    """DuckDB returns instants in the time zone of the session."""
    duckdb = pytest.importorskip("duckdb")
    messages = scan(path)
    assert messages is not None  # DuckDB finds the variable by its name
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'Asia/Shanghai'")
        zoned = pa.timestamp("us", "Asia/Shanghai")
        return cast(connection.sql("from messages").to_arrow_table(), storeTimestamp=zoned, bornTimestamp=zoned)


def from_polars(frame) -> pa.Table:
    """Polars has text, bytes and maps with large offsets; before release 2, a list of structs in the place of a map."""
    text, data = pa.large_string(), pa.large_binary()
    table = frame.to_arrow()
    at = SCHEMA.names.index("properties")
    if table.schema.field(at).type == pa.large_list(pa.struct({"key": text, "value": text})):
        lists = table.column(at).combine_chunks()
        entries = lists.flatten()
        maps = pa.MapArray.from_arrays(lists.offsets.cast(pa.int32()), entries.field(0), entries.field(1))
        table = table.set_column(at, "properties", maps)
    return cast(table, string=text, binary=data, properties=pa.map_(text, text))


@way("Polars")
def by_polars(path: Path, folder: Path) -> pa.Table:
    """Older releases read a scan as an iterable of objects, or do not have maps."""
    return from_polars(pytest.importorskip("polars", minversion="1.32").DataFrame(scan(path)))


@way("Polars, lazy")
def by_lazy_polars(path: Path, folder: Path) -> pa.Table:
    polars = pytest.importorskip("polars", minversion="2")
    return from_polars(polars.scan_arrow_c_stream(scan(path)).collect())


@way("pandas")
def by_pandas(path: Path, folder: Path) -> pa.Table:
    """pandas has bytes and maps as objects: bytes, and lists of pairs."""
    frame = pytest.importorskip("pandas", minversion="3").DataFrame.from_arrow(scan(path))
    assert [str(frame.dtypes[name]) for name in TIMES] == ["datetime64[us, UTC]"] * 2
    assert [name for name in SCHEMA.names if str(frame.dtypes[name]) == "object"] == ["body", "properties"]
    numbers = {field.name: str(field.type) for field in SCHEMA if pa.types.is_integer(field.type)}
    assert {name: str(frame.dtypes[name]) for name in numbers} == numbers
    return pa.Table.from_pandas(frame, SCHEMA, preserve_index=False).replace_schema_metadata()


@way("nanoarrow")
def by_nanoarrow(path: Path, folder: Path) -> pa.Table:
    """nanoarrow reads the buffers itself, except those of a map, whose offsets are followed here."""
    array = pytest.importorskip("nanoarrow").Array(scan(path))
    columns: dict[str, list] = {name: [] for name in SCHEMA.names}
    for chunk in array.iter_chunks():
        for i, name in enumerate(SCHEMA.names):
            column = chunk.child(i)
            if name in TIMES:  # as numbers, because Python does not have the year 10000
                valid = int.from_bytes(bytes(column.buffer(0)), "little") if column.buffer(0).size_bytes else -1
                columns[name] += [value if valid >> at & 1 else None for at, value in enumerate(column.buffer(1))]
            elif name == "properties":
                entries = list(column.child(0).iter_tuples())
                offsets = list(column.buffer(1))
                columns[name] += [entries[start:stop] for start, stop in itertools.pairwise(offsets)]
            else:
                columns[name] += column.to_pylist()
    return pa.table(columns, SCHEMA)


def from_json(lines: bytes) -> pa.Table:
    rows = [json.loads(line) for line in lines.splitlines()]
    for row in rows:
        row["body"] = base64.b64decode(row["bodyBase64"]) if "bodyBase64" in row else row["body"].encode()
    return table_of(rows)


@way("cat --json")
def by_cat(path: Path, folder: Path) -> pa.Table:
    return from_json(command.rocketc("cat", "--json", path).stdout)


def export(path: Path, folder: Path, name: str, **options) -> Path:
    rocketc.export(scan(path), folder / name, **options)
    return folder / name


@way("export .jsonl")
def by_jsonl(path: Path, folder: Path) -> pa.Table:
    return from_json(export(path, folder, "x.jsonl").read_bytes())


@way("export .csv")
def by_csv(path: Path, folder: Path) -> pa.Table:
    """CSV has only the empty field as null, and no year after 9999: unit/exports/test_export.py checks these."""
    with open(export(path, folder, "x.csv"), newline="", encoding="utf-8") as lines:
        rows = [{name: cell or None for name, cell in row.items()} for row in csv.DictReader(lines)]
    for row in rows:
        row["body"] = (row["body"] or "").encode() if row["bodyBase64"] is None else base64.b64decode(row["bodyBase64"])
        row["properties"] = json.loads(row["properties"])
        for name in SCHEMA.names:
            if pa.types.is_integer(SCHEMA.field(name).type):
                row[name] = int(row[name])
        for name in TIMES:
            instant = datetime.datetime.fromisoformat(row[name].replace("Z", "+00:00"))
            row[name] = (instant - compare.EPOCH) // datetime.timedelta(milliseconds=1)
    return table_of(rows)


@way("export .parquet")
def by_parquet(path: Path, folder: Path) -> pa.Table:
    return pyarrow.parquet.read_table(export(path, folder, "x.parquet")).cast(SCHEMA)


@way("export .arrow")
def by_arrow_file(path: Path, folder: Path) -> pa.Table:
    return pyarrow.feather.read_table(export(path, folder, "x.arrow"))


@way("export by date")
def by_partitions(path: Path, folder: Path) -> pa.Table:
    """By date only: some topics of the golden stores are longer than a folder's name can be."""
    out = export(path, folder, "parts", format="parquet", partition_by="date")
    days = pyarrow.dataset.partitioning(pa.schema({"date": pa.string()}), flavor="hive")
    table = pyarrow.dataset.dataset(out, partitioning=days).to_table()
    assert table["date"].to_pylist() == pc.strftime(table["storeTimestamp"], "%Y-%m-%d").to_pylist()
    return (
        table.drop_columns("date").cast(SCHEMA).sort_by([("physicalOffset", "ascending"), ("queueOffset", "ascending")])
    )


FAR = compare.INT64_US  # ms; the last instant that fits into us
ODD = [
    {"topic": "none", "body": b"", "properties": None},
    {"topic": "", "body": b"empty topic", "properties": {"z": "1", "a": "2", "M": ""}},
    {"topic": "ключ \U0001f680 \0", "body": "текст".encode(), "properties": {"KEYS": " ключ k2", "TAGS": "\u4e2d\0"}},
    {"topic": "bytes", "body": b"\xff\xfe\0\x80", "properties": b"TAGS\1\xff\2b\1\xe4\2b\1last\2"},
    {"topic": "edges", "store_timestamp": FAR, "born_timestamp": -FAR, "queue_offset": (1 << 63) - 1},
    {"topic": "too far", "store_timestamp": FAR + 1, "born_timestamp": -FAR - 1, "queue_offset": -(1 << 63)},
    {"topic": "signs", "queue_id": -1, "flag": -(1 << 31), "reconsume_times": (1 << 31) - 1, "born_timestamp": -1},
    {
        "topic": "hosts",
        "born_host": ("::1", 65535),
        "store_host": ("2001:db8::7", 0),
        "born_timestamp": 253402300800000,
    },
]


CANNOT = {
    ("odd", "export .csv"): "CSV cannot hold instants after the year 9999",
    ("odd", "export by date"): "a folder cannot be named for days after the year 9999",
}


def write_odd_store(folder: Path) -> Path:
    """A store with what no golden store has: nulls, and the limits of each type."""
    log = b""
    for fields in ODD:
        log += oracle.encode(**{"body": b"body", "phy_offset": len(log), **fields})
    compare.write_log(folder / "commitlog", [(0, log)])
    return folder


@pytest.fixture(scope="module")
def store(golden: Callable[[str], stores.GoldenStore], tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """store(name): a folder, and its table."""
    known: dict[str, tuple[Path, pa.Table]] = {}

    def get(name: str) -> tuple[Path, pa.Table]:
        if name not in known:
            path = write_odd_store(tmp_path_factory.mktemp(name)) if name == "odd" else golden(name).path
            items = oracle.walk_log(oracle.read_log(path / "commitlog"))
            known[name] = path, table_of(oracle.records(compare.expected(items)))
        return known[name]

    return get


@pytest.mark.some(24)
@pytest.mark.parametrize("name", [*stores.NAMES, "odd"])
@pytest.mark.parametrize("out", WAYS)
def test_tables_are_equal(store, name, out, tmp_path):
    if (name, out) in CANNOT:
        pytest.skip(CANNOT[name, out])
    path, expected = store(name)
    found = WAYS[out](path, tmp_path)
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert found.num_rows == expected.num_rows > 0
    for column in SCHEMA.names:
        ours, meant = found[column].combine_chunks(), expected[column].combine_chunks()
        assert ours.equals(meant), f"{column}: {meant.diff(ours)}"


def test_the_odd_store_has_nulls(store):
    """Without nulls, a way that loses them would pass."""
    _, table = store("odd")
    nulls = {name: table[name].null_count for name in SCHEMA.names if table[name].null_count}
    assert nulls == {"brokerName": table.num_rows, "storeTimestamp": 1, "bornTimestamp": 1, "keys": 7, "tags": 6}
