"""rocketc.export(): files are read back by other programs, and no partial file is ever left."""

import csv
import datetime
import errno
import gc
import io
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from support import stores
from support.export_readers import FORMATS, READERS, SCHEMA, names_in, read_arrow, read_parts, unpacked

import rocketc
from rocketc.exports import folder, sinks
from rocketc.exports.export import Export
from rocketc.read.parallel import in_order


# ---------------------------------------------------------------- data
@pytest.fixture(scope="module")
def table(golden):
    """table(name): the table of a golden store."""
    known = {}

    def get(name):
        if name not in known:
            known[name] = rocketc.scan(golden(name).path, errors="skip").to_arrow()
        return known[name]

    return get


def log_of(messages):
    """Return the bytes of a log of messages given as (topic, body, other fields)."""
    out = b""
    for topic, body, fields in messages:
        out += rocketc.encode(topic, body, phy_offset=len(out), **fields)
    return out


@pytest.fixture
def many():
    """20 topics, 30 days and 8 queues in rotation; bodies of later topics are longer."""
    return log_of(
        (f"topic-{i % 20}", b"%d" % i * (i % 20), {"queue_id": i % 8, "store_timestamp": i % 30 * 86_400_000 - 5})
        for i in range(2000)
    )


# ---------------------------------------------------------------- one file
ROUNDS = [(name, f"x.{form}") for name in stores.NAMES for form in FORMATS]


@pytest.mark.some(25)
@pytest.mark.parametrize(("name", "file"), [*ROUNDS, *(("v533-broker", file) for file in READERS)])
def test_a_file_holds_the_table(golden, table, tmp_path, name, file):
    scan = rocketc.scan(golden(name).path, errors="skip", batch_bytes=100_000)
    report = rocketc.export(scan, tmp_path / file)
    found = READERS[file](tmp_path / file)
    assert found.schema.equals(SCHEMA)
    assert found.equals(table(name))
    assert (report.rows, report.files) == (table(name).num_rows, 1)
    assert report.bytes == (tmp_path / file).stat().st_size
    assert report.scan == scan.report and report.format == FORMAT_OF[file.split(".")[1]]
    assert names_in(tmp_path) == [file]


FORMAT_OF = {name: name for name in FORMATS} | {"feather": "arrow", "ndjson": "jsonl"}


def test_json_lines_are_those_of_messages(golden, tmp_path):
    store = golden("v533-broker").path
    rocketc.export(rocketc.scan(store), tmp_path / "x.jsonl")
    lines = [message.to_json() + "\n" for message in rocketc.scan(store)]
    assert (tmp_path / "x.jsonl").read_bytes() == "".join(lines).encode()


@pytest.mark.parametrize("form", FORMATS)
def test_the_columns_are_those_of_the_scan(golden, table, tmp_path, form):
    columns = ["body", "keys", "storeTimestamp", "physicalOffset", "properties"]
    rocketc.export(rocketc.scan(golden("v533-broker").path, columns=columns), tmp_path / f"x.{form}")
    found = FORMATS[form](tmp_path / f"x.{form}")
    if form == "jsonl":  # JSON Lines are read with all columns
        assert list(json.loads(unpacked(tmp_path / "x.jsonl").splitlines()[1])) == columns
        assert found.column("topic").null_count == found.num_rows
        found = found.select(columns)
    assert found.equals(table("v533-broker").select(columns))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("jobs", [1, 3])
def test_an_empty_scan_is_a_file_without_rows(tmp_path, form, jobs):
    report = rocketc.export(rocketc.decode(b""), tmp_path / f"x.{form}", jobs=jobs)
    found = FORMATS[form](tmp_path / f"x.{form}")
    assert (found.num_rows, found.schema, report.rows, report.files) == (0, SCHEMA, 0, 1)


@pytest.mark.parametrize(("suffix", "magic"), [("gz", b"\x1f\x8b"), ("zst", b"\x28\xb5\x2f\xfd")])
def test_an_empty_text_is_a_valid_compressed_file(tmp_path, suffix, magic):
    path = tmp_path / f"x.jsonl.{suffix}"
    rocketc.export(rocketc.decode(b""), path)
    assert path.read_bytes().startswith(magic) and unpacked(path) == ""


def test_csv_forms_of_special_values(tmp_path):
    data = log_of([
        ("a,b", b'quote " and\r\nlines', {"properties": {"KEYS": "k", "x": "\u20ac"}}),
        ("=1+1", b"\xff", {"store_timestamp": 253402300800000, "born_timestamp": -1}),
    ])  # fmt: skip
    columns = ["topic", "keys", "body", "properties", "storeTimestamp", "bornTimestamp"]
    rocketc.export(rocketc.decode(data, columns=columns), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes().decode() == (
        "topic,keys,body,bodyBase64,properties,storeTimestamp,bornTimestamp\r\n"
        '"a,b",k,"quote "" and\r\nlines",,"{""KEYS"": ""k"", ""x"": ""€""}",'
        "1970-01-01T00:00:00.000Z,1970-01-01T00:00:00.000Z\r\n"
        "=1+1,,,/w==,{},,1969-12-31T23:59:59.999Z\r\n"
    )
    rocketc.export(rocketc.decode(data, columns=["queueId"]), tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text().split() == ["queueId", "0", "0"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_other_programs_read_several_compressed_members_as_one_text(golden, table, tmp_path, suffix):
    """The text is longer than a block: each block is compressed separately, several at the same time."""
    path, rows = tmp_path / f"x.csv.{suffix}", table("flights-2013-01").num_rows
    rocketc.export(rocketc.scan(golden("flights-2013-01").path, columns=["keys", "body"]), path, jobs=3)
    magic = {"gz": b"\x1f\x8b\x08\0\0\0\0\0", "zst": b"\x28\xb5\x2f\xfd"}[suffix]
    assert path.read_bytes().count(magic) > 3
    duckdb, polars, pandas = map(pytest.importorskip, ("duckdb", "polars", "pandas"))
    assert duckdb.sql(f"select count(*), count(distinct keys) from '{path}'").fetchall() == [(rows, rows)]
    assert polars.read_csv(path).height == rows
    assert suffix == "zst" or len(pandas.read_csv(path)) == rows  # pandas has its own zstd library


def test_csv_quotes_as_the_csv_module_does(tmp_path):
    texts = [
        "",
        '"',
        '""',
        ",",
        "\r",
        "\n",
        "\r\n",
        " a ",
        "'",
        ";",
        "\t",
        'a"b,c\rd\ne',
        *(["\0"] if sys.version_info >= (3, 11) else []),  # older csv modules cannot write it
        "=1",
        "\u20ac",
        "\u2028",
    ]
    data = log_of((text, text.encode(), {"properties": {"KEYS": text or "k", "p,": f'"{text}"'}}) for text in texts)
    columns = ["topic", "keys", "body", "properties", "physicalOffset"]
    rocketc.export(rocketc.decode(data, columns=columns), tmp_path / "x.csv")
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["topic", "keys", "body", "bodyBase64", "properties", "physicalOffset"])
    for m in rocketc.decode(data):
        told = json.dumps(m.properties, ensure_ascii=False)
        writer.writerow([m.topic, m.keys, m.body.decode(), None, told, m.phy_offset])
    assert (tmp_path / "x.csv").read_bytes().decode() == out.getvalue()
    rocketc.export(rocketc.decode(data, columns=["tags"]), tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text() == "tags\n" + '""\n' * len(texts), "an empty line is not a row"


def test_a_stream_of_the_caller_stays_open(golden, table):
    out = io.BytesIO()
    report = rocketc.export(rocketc.scan(golden("v533-broker").path), out, "arrow")
    assert report.path is None and report.bytes == len(out.getvalue())
    assert pa.ipc.open_stream(out.getvalue()).read_all().equals(table("v533-broker"))


def test_damage_is_skipped_and_reported(golden, tmp_path):
    scan = rocketc.scan(golden("v533-bitrot").path, errors="report")
    with pytest.warns(rocketc.DamageWarning, match="bad_body_crc"):
        report = rocketc.export(scan, tmp_path / "x.parquet")
    assert [damage.reason for damage in report.scan.damage] == ["bad_body_crc"]
    with pytest.raises(rocketc.CorruptRecordError, match="bad_body_crc"):
        rocketc.export(rocketc.scan(golden("v533-bitrot").path), tmp_path / "y.parquet")
    assert names_in(tmp_path) == ["x.parquet"]


# ---------------------------------------------------------------- Parquet and Arrow inside
def test_the_size_of_row_groups_is_limited(golden, table, tmp_path):
    scan = rocketc.scan(golden("flights-2013-01").path, batch_bytes=1 << 20)
    rocketc.export(scan, tmp_path / "x.parquet", row_group_size=2 << 20)
    about = pq.ParquetFile(tmp_path / "x.parquet").metadata
    sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    a_row = table("flights-2013-01").nbytes / sum(sizes)
    assert len(sizes) > 3 and max(sizes) * a_row < 2.1 * (1 << 20)
    rocketc.export(scan, tmp_path / "x.arrow", row_group_size=1 << 19)
    with pa.ipc.open_file(str(tmp_path / "x.arrow")) as file:
        assert max(file.get_batch(i).nbytes for i in range(file.num_record_batches)) < 1.2 * (1 << 19)


def test_parquet_has_statistics_for_skipping(golden, tmp_path):
    rocketc.export(rocketc.scan(golden("v533-broker").path), tmp_path / "x.parquet")
    about = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert set(about.metadata) == {b"ARROW:schema"}, "no data of this machine"
    group = about.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    times = [m.store_time for m in rocketc.scan(golden("v533-broker").path)]
    statistics = columns["storeTimestamp"].statistics
    assert (statistics.min, statistics.max) == (min(times), max(times))
    assert columns["storeTimestamp"].has_column_index and columns["body"].statistics is None
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    [order] = group.sorting_columns
    assert (group.column(order.column_index).path_in_schema, order.descending) == ("physicalOffset", False)


@pytest.mark.parametrize("name", stores.NAMES)
def test_rows_are_ordered_as_declared_in_parquet(table, name):
    offsets = table(name).column("physicalOffset").to_pylist()
    assert offsets == sorted(offsets)


def test_no_order_is_declared_for_several_logs(golden, tmp_path):
    scan = rocketc.scan([golden("v533-store").path, golden("v533-broker").path])
    rocketc.export(scan, tmp_path / "x.parquet")
    assert pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0).sorting_columns in (None, ())


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_compressions_of_parquet(golden, table, tmp_path, compression):
    rocketc.export(rocketc.scan(golden("v533-store").path), tmp_path / "x.parquet", compression=compression)
    file = pq.ParquetFile(tmp_path / "x.parquet")
    said = file.metadata.row_group(0).column(0).compression
    assert said == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert file.read().equals(table("v533-store"))


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_compressions_of_arrow(golden, table, tmp_path, compression):
    rocketc.export(rocketc.scan(golden("v533-store").path), tmp_path / "x.arrow", compression=compression)
    assert read_arrow(tmp_path / "x.arrow").equals(table("v533-store"))
    sizes = (tmp_path / "x.arrow").stat().st_size, table("v533-store").nbytes
    assert (sizes[0] < sizes[1]) == (compression != "none")


# ---------------------------------------------------------------- folders
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["v533-broker", "v533-bitrot", "v497-broker"])
def test_a_folder_holds_the_table(golden, table, tmp_path, name, form):
    scan = rocketc.scan(golden(name).path, errors="skip", batch_bytes=100_000)
    report = rocketc.export(scan, tmp_path / "lake", form, partition_by=("topic", "date"))
    found, rows = read_parts(tmp_path / "lake", form), table(name)
    assert report.files == sum(1 for path in tmp_path.rglob("part-*"))
    assert report.bytes == sum(path.stat().st_size for path in tmp_path.rglob("part-*"))
    days = pc.strftime(rows.column("storeTimestamp"), "%Y-%m-%d")
    assert sum(part.num_rows for part in found.values()) == rows.num_rows == report.rows
    for (topic, day), part in found.items():
        meant = rows.filter(pc.and_(pc.equal(rows.column("topic"), topic), pc.equal(days, day)))
        assert part.equals(meant if form == "jsonl" else meant.drop_columns("topic")), topic


@pytest.mark.some(6)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("by", [["date"], ["topic"], ["queueId"], ["queueId", "date"], ["date", "topic", "queueId"]])
def test_partition_columns(many, tmp_path, monkeypatch, form, by):
    """Few files may be open and little data may be buffered: partitions then have several parts."""
    monkeypatch.setattr(folder, "OPEN_FILES", 20)
    monkeypatch.setattr(folder, "WAITING_BYTES", 100_000)
    scan = rocketc.decode(many, batch_bytes=20_000, columns=["queueId", "physicalOffset", "body"])
    rocketc.export(scan, tmp_path / "lake", form, partition_by=by)
    parts = read_parts(tmp_path / "lake", form)
    meant = {}
    for m in rocketc.decode(many):
        day = datetime.datetime.fromtimestamp(m.store_timestamp / 1000, datetime.timezone.utc).date()
        values = {"topic": m.topic, "date": str(day), "queueId": str(m.queue_id)}
        meant.setdefault(tuple(values[name] for name in by), []).append(m.phy_offset)
    found = {key: part.column("physicalOffset").to_pylist() for key, part in parts.items()}
    assert found == meant, "each partition is in the order of the log"
    assert any((tmp_path / "lake").rglob("part-1.*")) == (len(found) > 20)


def test_few_descriptors_are_open(tmp_path):
    data = log_of((f"t{i}", b"body", {}) for i in range(300))
    most = [0]

    def look(done):
        most.append(len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    scan = rocketc.decode(data, batch_bytes=1000)
    report = rocketc.export(scan, tmp_path / "lake", partition_by="topic", progress=look)
    assert report.files == 300 and max(most) < before + 20


HOSTILE = [
    "%RETRY%group", "100%25", "a/b", "../../up", "..", ".", "a=b", "支付-топик", "\U0001f680", " blanks ", "a+b",
    "null", "007", "12", "1.50", "true", "2024-01-01", "A", "a", "e\u0301", "\u00e9", "\x01\x1f\x7f",
    "\"'*?:#[]{}^\\<>|&;`$!~", "\u2028\u0085", "%", "%zz", "-", "part-0.parquet", ",", "q" * 240,
]  # fmt: skip


@pytest.fixture
def hostile(tmp_path):
    """A folder partitioned by topic; each body is its topic. An empty topic is read as null."""
    messages = [(topic, topic.encode(), {}) for topic in [*HOSTILE, ""]]
    rocketc.export(rocketc.decode(log_of(messages)), tmp_path / "lake", partition_by="topic")
    return tmp_path / "lake"


def check_hostile(pairs, nulls=("",)):
    found = {body: topic for topic, body in pairs}
    assert found == {topic.encode(): None if topic in nulls else topic for topic in [*HOSTILE, ""]}


def test_topics_are_the_same_in_pyarrow(hostile):
    partitioning = pa.dataset.partitioning(pa.schema({"topic": pa.string()}), flavor="hive")
    found = pa.dataset.dataset(hostile, partitioning=partitioning).to_table(columns=["topic", "body"])
    check_hostile(zip(*(found.column(name).to_pylist() for name in ("topic", "body")), strict=True))


def test_topics_are_the_same_in_duckdb(hostile):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        options = "hive_partitioning = true, hive_types = {'topic': varchar}"
        files = f"read_parquet('{hostile}/**/*.parquet', {options})"
        nulls = ("",) if int(duckdb.__version__.split(".")[0]) >= 2 else ("", "null")
        check_hostile(connection.sql(f"select topic, body from {files}").fetchall(), nulls)


def test_topics_are_the_same_in_polars(hostile):
    polars = pytest.importorskip("polars")
    frame = polars.scan_parquet(hostile, hive_partitioning=True, hive_schema={"topic": polars.String})
    check_hostile(frame.select("topic", "body").collect().rows())


def test_days_that_a_folder_name_cannot_represent(tmp_path):
    messages = [("t", b"", {"store_timestamp": ms}) for ms in (-1, 0, 86_399_999, 253402300800000, (1 << 63) - 1)]
    for form in ("parquet", "csv"):
        rocketc.export(rocketc.decode(log_of(messages)), tmp_path / form, form, partition_by="date")
        assert names_in(tmp_path / form) == [
            "date=1969-12-31", "date=1970-01-01", "date=__HIVE_DEFAULT_PARTITION__"
        ]  # fmt: skip


def test_a_name_too_long_for_a_folder_is_reported(tmp_path):
    with pytest.raises(rocketc.StoreIOError, match="too long"):
        rocketc.export(rocketc.decode(rocketc.encode("t" * 255, b"")), tmp_path / "lake", partition_by="topic")
    assert names_in(tmp_path) == []


# ---------------------------------------------------------------- a file appears only when it is complete
def test_existing_files_are_kept_unless_force_is_given(tmp_path):
    scan, path = rocketc.decode(rocketc.encode("t", b"new")), tmp_path / "x.jsonl"
    path.write_text("old")
    path.chmod(0o600)
    with pytest.raises(FileExistsError):
        rocketc.export(scan, path)
    assert path.read_text() == "old"
    rocketc.export(scan, path, overwrite=True)
    assert path.read_text() == next(iter(scan)).to_json() + "\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_appears_during_the_export_is_kept(tmp_path):
    path = tmp_path / "x.jsonl"
    with pytest.raises(FileExistsError):
        rocketc.export(rocketc.decode(rocketc.encode("t", b"")), path, progress=lambda done: path.write_text("mine"))
    assert path.read_text() == "mine" and names_in(tmp_path) == ["x.jsonl"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "x.jsonl"
    link.symlink_to("there/y.jsonl")
    rocketc.export(rocketc.decode(b""), link)
    assert link.is_symlink() and names_in(tmp_path / "there") == ["y.jsonl"]


def test_an_older_export_is_replaced_and_nothing_else(many, tmp_path):
    scan, lake = rocketc.decode(many), tmp_path / "lake"
    lake.mkdir()
    rocketc.export(scan, lake, partition_by="topic")  # an empty folder may be replaced
    with pytest.raises(FileExistsError):
        rocketc.export(scan, lake, partition_by="queueId")
    rocketc.export(scan, lake, partition_by="queueId", overwrite=True)
    assert names_in(lake) == [f"queueId={i}" for i in range(8)]
    assert names_in(tmp_path) == [".lake.rocketc-export.json", "lake"]
    (lake / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="thesis"):
        rocketc.export(scan, lake, partition_by="topic", overwrite=True)
    with pytest.raises(NotADirectoryError):
        rocketc.export(scan, lake / "thesis.tex", partition_by="topic", overwrite=True)
    assert "thesis.tex" in names_in(lake)


def test_everything_is_durable_before_the_rename(tmp_path, monkeypatch):
    told = []

    def noted(name, act):
        def call(*args):
            which = os.readlink(f"/proc/self/fd/{args[0]}") if name == "fsync" else args[-1]
            told.append((name, os.path.basename(which).split("-")[0]))
            return act(*args)

        return call

    for name in ("fsync", "replace", "rename"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    folder_name = tmp_path.name.split("-")[0]
    rocketc.export(rocketc.decode(rocketc.encode("t", b"")), tmp_path / "x.jsonl")
    assert told == [("fsync", ".rocketc"), ("replace", "x.jsonl"), ("fsync", folder_name)]
    told.clear()
    (tmp_path / "lake").mkdir()
    rocketc.export(rocketc.decode(rocketc.encode("t", b"")), tmp_path / "lake", partition_by="topic")
    manifest = [("fsync", ".lake.rocketc"), ("replace", ".lake.rocketc")]
    assert sorted(told[:-7]) == [("fsync", ".rocketc"), ("fsync", "part"), ("fsync", "topic=t")]
    assert told[-7:] == [*manifest, ("rename", ".rocketc"), ("rename", "lake"), ("fsync", folder_name), *manifest]


TARGETS = [*(f"x.{form}" for form in FORMATS), "x.csv.gz", *FORMATS]  # a name without a suffix is a folder


def run(scan, path, **options):
    if path.suffix:
        return rocketc.export(scan, path, **options)
    return rocketc.export(scan, path, path.name, partition_by="topic", **options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_disk_is_reported_and_no_file_is_left(many, tmp_path, monkeypatch, target, code, jobs):
    written = []

    def write_all(fd, data):
        os.write(fd, data[:10])
        written.append(len(data))
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(sinks, "write_all", write_all)
    kind = rocketc.StoreIOError if code == errno.EIO else rocketc.StoreFullError
    with pytest.raises(kind) as told:
        run(rocketc.decode(many), tmp_path / target, jobs=jobs)
    assert (told.value.errno, type(told.value)) == (code, kind)
    assert str(tmp_path) in told.value.filename
    assert ".tmp" not in told.value.filename, "the caller does not know the temporary name"
    assert (len(written) == 1 or jobs == 2) and names_in(tmp_path) == []


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_failing_stream_is_not_written_again(many, monkeypatch, form):
    """pyarrow's writers end their files even if the writers are discarded."""
    monkeypatch.setattr(sinks, "BLOCK_BYTES", 1)
    calls = []

    class Fails(io.RawIOBase):
        def write(self, data):
            calls.append(len(data))
            if len(calls) >= 3:
                raise BrokenPipeError
            return len(data)

    with pytest.raises(BrokenPipeError):
        rocketc.export(rocketc.decode(many, batch_bytes=5000), Fails(), form, row_group_size=5000)
    gc.collect()
    assert len(calls) == 3


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", [KeyboardInterrupt, MemoryError])
def test_any_exception_leaves_no_file(many, tmp_path, monkeypatch, target, what):
    (tmp_path / target).mkdir() if "." not in target else (tmp_path / target).write_text("old")

    def fail(fd):
        raise what

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(what):
        run(rocketc.decode(many), tmp_path / target, overwrite=True)
    assert names_in(tmp_path) == [target]
    assert "." not in target or (tmp_path / target).read_text() == "old"


def test_the_old_folder_is_restored_if_the_rename_of_the_new_one_fails(many, tmp_path, monkeypatch):
    rocketc.export(rocketc.decode(many), tmp_path / "lake", partition_by="queueId")
    rename, calls = os.rename, []

    def fail_once(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, "no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_once)
    with pytest.raises(rocketc.StoreIOError):
        rocketc.export(rocketc.decode(many), tmp_path / "lake", partition_by="topic", overwrite=True)
    assert names_in(tmp_path) == [".lake.rocketc-export.json", "lake"] and "queueId=0" in names_in(tmp_path / "lake")


def test_devices_and_pipes_are_written_and_not_replaced(golden, tmp_path):
    scan = rocketc.scan(golden("v533-store").path)
    with pytest.raises(rocketc.StoreFullError):
        rocketc.export(scan, "/dev/full", "csv", overwrite=True)
    rocketc.export(scan, "/dev/null", "parquet")
    pipe = tmp_path / "x.arrow"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    rocketc.export(scan, pipe)
    reader.join()
    assert pa.ipc.open_stream(got[0]).read_all().equals(scan.to_arrow()) and pipe.is_fifo()


@pytest.mark.parametrize("name", ["missing/x.csv", "file/x.csv"])
def test_a_missing_folder(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(rocketc.StoreIOError) as told:
        rocketc.export(rocketc.decode(b""), tmp_path / name)
    assert told.value.filename == str(tmp_path / name)


# ---------------------------------------------------------------- refused calls
@pytest.mark.parametrize(
    ("path", "options", "says"),
    [
        ("x", {}, "unknown format of"),
        ("x.txt", {}, "unknown format of"),
        ("x.gz", {}, "unknown format of"),
        ("x.csv", {"format": "xlsx"}, "format 'xlsx'"),
        ("x.parquet.gz", {}, "parquet is compressed internally"),
        ("x.csv", {"compression": "snappy"}, "compression 'snappy' of csv"),
        ("x.csv.gz", {"compression": "zstd"}, "the suffix contradicts the compression zstd"),
        ("x.arrow", {"compression": "gzip"}, "compression 'gzip' of arrow"),
        ("x.csv", {"jobs": 0}, "jobs is 0"),
        ("x.csv", {"row_group_size": 0}, "row_group_size is 0"),
        ("x", {"partition_by": "color"}, "unknown name 'color'; use topic, date, queueId"),
        ("x", {"partition_by": ["topic", "topic"]}, "'topic' is given twice"),
        ("", {"format": "csv"}, "is a folder"),
        ("x", {"format": "csv", "partition_by": "topic", "columns": ["topic"]}, "all columns are in partition_by"),
        ("x", {"partition_by": ["queueId", "topic"], "columns": ["topic", "queueId"]}, "all columns are in"),
    ],
)
def test_wrong_options_are_refused(tmp_path, path, options, says):
    scan = rocketc.decode(b"", columns=options.pop("columns", None))
    with pytest.raises(ValueError, match=says):
        rocketc.export(scan, tmp_path / path, **options)
    assert names_in(tmp_path) == []


def test_partitions_need_a_folder():
    with pytest.raises(ValueError, match="not a stream"):
        rocketc.export(rocketc.decode(b""), io.BytesIO(), "csv", partition_by="topic")


def test_an_export_into_its_input_is_refused(tmp_path):
    store = stores.unpack("v533-bitrot", tmp_path).path
    before = sorted(store.rglob("*"))
    log = store / "commitlog"
    file = stores.GoldenStore("", store).log_files[0]
    copy = tmp_path / "copy" / file.name
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    (tmp_path / "link").symlink_to(store)
    for path, target in [
        (store, store / "x.csv"),
        (store, log / "x.csv"),
        (log, log / "x.csv"),
        (log, store / "x.csv"),
        (file, log / "x.csv"),
        (store, tmp_path / "link" / "x.csv"),
        ([store], store / "sub" / ".." / "x.csv"),
        (copy.parent, copy.parent / "x.csv"),
        (file, file),
        (copy, copy),
    ]:
        with pytest.raises(ValueError, match="which is read"):
            rocketc.export(rocketc.scan(path, errors="skip"), target, "csv", overwrite=True)
    for path, target in [(store, store / "lake"), (copy, copy.parent), (store, tmp_path)]:
        with pytest.raises(ValueError, match="which is read"):
            rocketc.export(rocketc.scan(path, errors="skip"), target, partition_by="topic", overwrite=True)
    assert sorted(store.rglob("*")) == before
    rocketc.export(rocketc.scan(copy, errors="skip"), copy.parent / "beside.csv")


# ---------------------------------------------------------------- threads
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "arrow"])
def test_threads_do_not_change_the_bytes(many, tmp_path, target):
    for jobs in (1, 4):
        (tmp_path / str(jobs)).mkdir()
        run(rocketc.decode(many, batch_bytes=5000), tmp_path / str(jobs) / target, jobs=jobs)
    one, four = (
        {path.relative_to(tmp_path / jobs): path.read_bytes() for path in (tmp_path / jobs).rglob("*.*")}
        for jobs in ("1", "4")
    )
    assert one == four and one


@pytest.mark.parametrize("processors", [1, 2])
def test_the_number_of_threads_depends_on_the_processors(many, tmp_path, monkeypatch, processors):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    started = []
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", lambda n: started.append(n) or ThreadPoolExecutor(n))
    rocketc.export(rocketc.decode(many), tmp_path / "x.jsonl.gz")
    assert started == [2] * (processors == 2)


def test_work_in_order_is_limited_and_raises_errors():
    made, done = [], []

    def make():
        for i in range(100):
            made.append(i)
            yield i

    def work(i):
        assert len(made) - len(done) <= 5, "one in use, three waiting, one being created"
        time.sleep(0.001 * (i % 3))
        if i == 90:
            raise rocketc.ClosedError("enough")
        return i

    with ThreadPoolExecutor(3) as pool, pytest.raises(rocketc.ClosedError, match="enough"):
        for i in in_order(work, make(), pool, 3):
            done.append(i)
    assert done == list(range(90))
    assert list(in_order(str, range(3), None, 0)) == ["0", "1", "2"]


def test_progress_reports_the_bytes_read(golden, tmp_path):
    scan = rocketc.scan(golden("flights-2013-01").path, batch_bytes=1 << 20)
    for target in ("x.parquet", "x.jsonl"):
        told = []
        Export(scan, tmp_path / target).run(told.append)
        assert told == sorted(told) and len(set(told)) > 3 and told[-1] <= scan.bytes
