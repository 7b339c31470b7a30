"""spark.read.format("rocketmq"): the rows are those that rocketc.scan() reads, with every option."""

import gc
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from support import stores
from support.spark_frames import NO_SOURCES, sort, table_of

import rocketc
from rocketc.spark import SCHEMA, schema
from rocketc.spark.source import RocketmqReader, RocketmqSource

pytest.importorskip("pyspark.sql.datasource", reason=NO_SOURCES)
from pyspark.sql.datasource import InputPartition

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Golden = Callable[[str], stores.GoldenStore]
Place = tuple[int, int]


def load(spark: SparkSession, path: Any, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load(path if isinstance(path, list) else str(path))


def reader(path: Any, **options: str) -> RocketmqReader:
    """The reader of a query plan, without Spark."""
    source = RocketmqSource({"path": str(path), **options})
    return source.reader(source.schema())


def places(df: DataFrame) -> list[Place]:
    return sorted(map(tuple, df.select("physicalOffset", "queueOffset").collect()))


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """zone(name) sets the time zone of the session for the test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda name: spark.conf.set("spark.sql.session.timeZone", name)
    spark.conf.set("spark.sql.session.timeZone", before)


# The rows


@pytest.mark.some(5)
@pytest.mark.parametrize("name", stores.NAMES)
def test_every_store_is_what_a_scan_reads(spark: SparkSession, golden: Golden, name: str) -> None:
    store = golden(name)
    df = load(spark, store.path, mode="DROPMALFORMED")
    assert df.schema == SCHEMA
    assert sort(table_of(df)) == sort(rocketc.scan(store.path, errors="skip").to_arrow())
    if name in stores.WHOLE:
        assert load(spark, store.path, columns="queueId").count() == rocketc.scan(store.path).count()


@pytest.mark.long
def test_spark_finds_the_source_without_registration(golden: Golden, tmp_path: Path) -> None:
    store = golden("v533-store")
    script = f"""if True:
        import sys
        from pyspark.sql import SparkSession
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(name, "127.0.0.1")
        spark = builder.config("spark.local.dir", {str(tmp_path)!r}).getOrCreate()
        print(spark.read.format("rocketmq").option("columns", "topic").load({str(store.path)!r}).count())
        print([name for name in sys.modules if name.startswith(("rocketc", "pyspark_rocketmq"))])
        spark.stop()
    """
    link = tmp_path / "prefix"  # Spark does not search for sources if the path of its Python has a blank
    link.symlink_to(sys.prefix)
    env = {**os.environ, "PYSPARK_PYTHON": str(link / "bin" / Path(sys.executable).name)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(rocketc.scan(store.path).count()), "[]"], done.stderr


def test_instants_do_not_depend_on_the_session_time_zone(
    spark: SparkSession, golden: Golden, zone: Callable[[str], None]
) -> None:
    store = golden("v533-store")
    wanted = [(m.store_timestamp, m.born_timestamp) for m in rocketc.scan(store.path)]
    middle = sorted(wanted)[len(wanted) // 2][0]
    for name in ("UTC", "Asia/Kathmandu"):
        zone(name)
        df = load(spark, store.path).orderBy("physicalOffset", "queueOffset")
        assert (
            list(map(tuple, df.selectExpr("unix_millis(storeTimestamp)", "unix_millis(bornTimestamp)").collect()))
            == wanted
        )
        assert load(spark, store.path, startingTimestamp=str(middle)).count() == sum(w[0] >= middle for w in wanted)


def test_settings_of_spark_that_change_its_batches(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-broker")
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        table = load(spark, store.path).toArrow().cast(pa.schema(rocketc.decode(b"")))
        assert sort(table) == sort(rocketc.scan(store.path).to_arrow())
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_spark_does_the_rest(spark: SparkSession, golden: Golden) -> None:
    """Filters, projections, limits and aggregates that the source does not support."""
    store = golden("v533-broker")
    messages = list(rocketc.scan(store.path))
    df = load(spark, store.path)
    assert df.count() == len(messages)
    assert df.select().count() == len(messages)
    assert df.filter("queueId = 1 and length(body) > 40 and tags is not null").count() == sum(
        m.queue_id == 1 and len(m.body) > 40 and m.tags is not None for m in messages
    )
    got = {row.topic: row["count"] for row in df.groupBy("topic").count().collect()}
    assert got == {topic: sum(m.topic == topic for m in messages) for topic in {m.topic for m in messages}}
    assert len(df.limit(7).collect()) == 7
    joined = df.alias("a").join(df.alias("b"), ["physicalOffset", "queueOffset"])
    assert joined.count() == len(messages)
    assert df.selectExpr("properties['KEYS'] <=> keys").distinct().collect() == [(True,)]


# Columns


@pytest.mark.parametrize(
    "columns", [["body", "topic"], ["properties"], ["storeTimestamp", "file", "queueId"], [*rocketc.COLUMN_NAMES[::-1]]]
)
def test_some_columns_in_any_order(spark: SparkSession, golden: Golden, columns: list[str]) -> None:
    store = golden("v533-broker")
    wanted = rocketc.scan(store.path, columns=columns).to_arrow().combine_chunks()
    path = str(store.path)
    frames = {
        "columns": load(spark, path, columns=" , ".join(columns)),
        "schema": spark.read.format("rocketmq").schema(schema(columns)).load(path),
        "both": spark.read.format("rocketmq").schema(schema(columns)).option("columns", ",".join(columns)).load(path),
    }
    for how, df in frames.items():
        assert df.schema == schema(columns), how
    assert table_of(frames["columns"].coalesce(1)).combine_chunks() == wanted
    assert table_of(frames["schema"].coalesce(1)).combine_chunks() == wanted


def test_a_schema_as_a_text(spark: SparkSession, golden: Golden) -> None:
    read = spark.read.format("rocketmq")
    df = read.schema("queueId int, properties map<string, string>, storeTimestamp timestamp")
    assert df.load(str(golden("v533-store").path)).count() == rocketc.scan(golden("v533-store").path).count()
    with pytest.raises(AnalysisException, match=r"ValueError: rocketmq: schema: queueId must be int, not bigint"):
        read.schema("queueId long").load(str(golden("v533-store").path)).collect()


# Options


def spread(values: list[int]) -> tuple[int, int]:
    return sorted(values)[len(values) // 4], sorted(values)[len(values) // 2]


def test_options_against_plain_python(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-broker")
    messages = list(rocketc.scan(store.path))
    begin, end = spread([m.store_timestamp for m in messages])
    topics = sorted({m.topic for m in messages}, key=lambda t: -sum(m.topic == t for m in messages))
    tags = sorted({m.tags for m in messages if m.tags})[:3]
    keys = sorted({m.keys.split()[0] for m in messages if m.keys and m.keys.split()})[:2]
    iso = datetime.fromtimestamp(end / 1000, timezone.utc).isoformat(timespec="milliseconds")
    cases: list[tuple[dict[str, str], Callable[[rocketc.Message], bool]]] = [
        ({"subscribe": f"{topics[0]}, {topics[1]}"}, lambda m: m.topic in topics[:2]),
        ({"subscribe": "none of it", "failOnMissingTopic": "false"}, lambda m: False),
        ({"subscribePattern": ".*" + re.escape(topics[0][1:])}, lambda m: m.topic.endswith(topics[0][1:])),
        ({"subscribePattern": re.escape(topics[0][:-1])}, lambda m: m.topic == topics[0][:-1]),
        ({"tags": f"{tags[0]}||{tags[1]},{tags[2]}"}, lambda m: m.tags in tags),
        ({"sql": f"TAGS IN ('{tags[0]}', '{tags[1]}')"}, lambda m: m.tags in tags[:2]),
        ({"keys": ",".join(keys)}, lambda m: bool({*keys} & {*(m.keys or "").split(), m.properties.get("UNIQ_KEY")})),
        ({"startingTimestamp": str(begin), "endingTimestamp": iso}, lambda m: begin <= m.store_timestamp < end),
        (
            {"subscribe": topics[0], "endingTimestamp": str(end), "tags": tags[0]},
            lambda m: m.topic == topics[0] and m.store_timestamp < end and m.tags == tags[0],
        ),
    ]
    for options, predicate in cases:
        wanted = sorted((m.phy_offset, m.queue_offset) for m in messages if predicate(m))
        assert places(load(spark, store.path, **options)) == wanted, options
        assert (0 < len(wanted) < len(messages)) == (options not in (cases[1][0], cases[3][0])), options


def test_compressed_bodies(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-broker")
    stored = rocketc.scan(store.path, decompress=False)
    assert sort(table_of(load(spark, store.path, decompress="false"))) == sort(stored.to_arrow())
    assert sort(stored.to_arrow()) != sort(rocketc.scan(store.path).to_arrow())


def test_damage_names_file_and_offset(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-bitrot")
    scan = rocketc.scan(store.path, errors="skip")
    whole = scan.count()
    [damage] = scan.report.damage
    text = rf"CorruptRecordError: {damage.file}: damage at physical offset {damage.start}: bad_body_crc; option mode="
    for options in ({}, {"mode": "failfast"}, {"verifyCrc": "full"}):
        with pytest.raises(PySparkException, match=text):
            load(spark, store.path, **options).collect()
    assert load(spark, store.path, mode="DROPMALFORMED").count() == whole
    assert load(spark, store.path, verifyCrc="false").count() == whole + 1


def test_dropped_ranges_are_reported_on_stderr(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    damage = []
    for name in ("v533-bitrot", "v533-torn"):
        scan = rocketc.scan(golden(name).path, errors="skip")
        plan = reader(golden(name).path, mode="DROPMALFORMED")
        rows = [batch.num_rows for partition in plan.partitions() for batch in plan.read(partition)]
        assert sum(rows) == scan.count()
        damage += scan.report.damage
    assert capsys.readouterr().err.splitlines() == [f"rocketc: {one}" for one in damage]


def test_many_dropped_ranges_are_one_line(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = golden("v533-store").log_files[0]
    content = bytearray(source.read_bytes())
    records = list(rocketc.scan(source))
    for m in records[3:12:4]:
        content[m.phy_offset + 4] ^= 1
    (tmp_path / source.name).write_bytes(content)
    lost = [m.store_size for m in records[3:12:4]]
    plan = reader(tmp_path, mode="DROPMALFORMED")
    [partition] = plan.partitions()
    assert sum(batch.num_rows for batch in plan.read(partition)) == len(records) - 3
    assert capsys.readouterr().err == (
        f"rocketc: {tmp_path / source.name}: {lost[0]} bytes lost at physical offset {records[3].phy_offset}: bad_magic"
        f", the first of 3 ranges; {sum(lost)} bytes in all\n"
    )


def test_wrong_options_fail_at_load(spark: SparkSession, golden: Golden) -> None:
    path = golden("v533-store").path
    for options, text in (
        ({"subscibe": "a"}, r"ValueError: rocketmq: unknown option subscibe \(did you mean subscribe\?\)"),
        ({"SUBSCRIBEpattern": "("}, r"ValueError: rocketmq: option subscribePattern='\(': not a regular expression"),
        ({"minpartitions": "no"}, "ValueError: rocketmq: option minPartitions='no': it must be a whole number"),
        (
            {"mode": "PERMISIVE"},
            "ValueError: rocketmq: option mode='PERMISIVE': it must be one of FAILFAST, PERMISSIVE, DROPM",
        ),
    ):
        with pytest.raises(AnalysisException, match=text):
            load(spark, path, **options)
    with pytest.raises(AnalysisException, match="ValueError: rocketmq: option path: missing"):
        spark.read.format("rocketmq").load()


# Paths


def test_paths_of_all_kinds(spark: SparkSession, golden: Golden) -> None:
    store, other = golden("v533-store"), golden("v497-broker")
    whole = [*rocketc.scan(store.path)]
    a, b = map(str, store.log_files[:2])
    two = sorted((m.phy_offset, m.queue_offset) for m in whole if m.file in (a, b))
    assert places(load(spark, [a, b])) == two
    assert places(load(spark, [f"file:{a}", Path(b).as_uri()])) == two
    assert places(load(spark, f"{store.path}/commitlog/*{a[-6:-3]}*")) == sorted(
        (m.phy_offset, m.queue_offset) for m in whole if a[-6:-3] in Path(m.file).name
    )
    both = load(spark, [str(store.path), str(other.path)])
    assert both.select("file").distinct().count() == len(
        {m.file for m in whole} | {m.file for m in rocketc.scan(other.path)}
    )
    assert both.count() == len(whole) + rocketc.scan(other.path).count()


def test_a_missing_path_fails_at_load(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, text in (
        (tmp_path / "nowhere", rf"StoreIOError: \[Errno 2\] No such file or directory: '{tmp_path}/nowhere'"),
        (tmp_path / "no*where", rf"StoreIOError: \[Errno 2\] no file matches: '{tmp_path}/no\*where'"),
        (tmp_path / "empty", rf"no commit log here: .*: '{tmp_path}/empty'"),
    ):
        with pytest.raises(AnalysisException, match=text):
            load(spark, path)
    with pytest.raises(AnalysisException, match=r"StoreIOError: .*'hdfs://there/x'"):
        load(spark, "hdfs://there/x")
    with pytest.raises(AnalysisException, match=rf"No such file or directory: '{tmp_path}/nowhere'"):
        spark.read.format("rocketmq").schema("topic string").load(f"{tmp_path}/nowhere").collect()


def test_a_store_without_messages_returns_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert load(spark, tmp_path).collect() == []
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    assert load(spark, tmp_path).count() == 0


# The plan


@pytest.mark.parametrize("name", stores.NAMES)
def test_tasks_read_the_files_with_data(golden: Golden, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden(name)
    monkeypatch.chdir(store.path.parent)
    planned = [part for partition in reader(store.path.name).partitions() for part in partition.value]
    files = [path for path in store.log_files if path.read_bytes()[:8].strip(b"\0")]
    assert [part.path for part in planned] == [str(path) for path in files]
    assert [part.last for part in planned] == [False] * (len(files) - 1) + [True]


def test_number_of_tasks(spark: SparkSession, golden: Golden) -> None:
    path = golden("flights-2013-01").path  # 13.9 MiB in four files
    for options, least in (({"minPartitions": "7"}, 7), ({"maxBytesPerPartition": "2m"}, 7)):
        df = load(spark, path, **options)
        assert least <= df.rdd.getNumPartitions() <= 2 * least
        assert df.count() == 27004


def test_a_plan_can_be_sent_to_workers(golden: Golden) -> None:
    store = golden("v533-store")
    plan = reader(store.path, subscribePattern=".*", tags="*", columns="topic,body")
    sent, partitions = pickle.loads(pickle.dumps((plan, plan.partitions())))
    batches = [batch for partition in partitions for batch in sent.read(partition)]
    assert pa.Table.from_batches(batches) == rocketc.scan(store.path, tags="*", columns=["topic", "body"]).to_arrow()


def test_a_plan_without_files_is_one_empty_task(golden: Golden) -> None:
    plan = reader(golden("v533-store").path)
    assert list(plan.read(None)) == list(plan.read(InputPartition(None))) == []  # Spark 4.0; later ones


def test_no_filter_is_pushed() -> None:
    """A reader with pushFilters() fails every query unless a setting of the session allows it."""
    assert "pushFilters" not in vars(RocketmqReader)


def test_a_file_of_a_log_in_several_folders_is_not_its_last(golden: Golden, tmp_path: Path) -> None:
    """Zeros in a file that is not the last are damage: the driver knows the next file, a worker only this one."""
    source = golden("v533-store").log_files[:2]
    folders = [tmp_path / "disk0", tmp_path / "disk1"]
    for folder, file in zip(folders, source, strict=True):
        folder.mkdir()
        (folder / file.name).write_bytes(file.read_bytes())
    at = list(rocketc.scan(source[0]))[5].phy_offset
    content = source[0].read_bytes()
    (folders[0] / source[0].name).write_bytes(content[:at] + bytes(len(content) - at))
    plan = reader(tmp_path / "disk*")
    with pytest.raises(rocketc.CorruptRecordError, match=f"disk0/.*: damage at physical offset {at}: zeroed; option"):
        list(plan.read(plan.partitions()[0]))


def test_a_deleted_file_is_named(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(rocketc.encode("t", b"x"))
    plan = reader(tmp_path)
    [partition] = plan.partitions()
    path.unlink()
    with pytest.raises(rocketc.StoreIOError, match=f"No such file.*{path}"):
        list(plan.read(partition))


def test_batches_are_bounded(golden: Golden) -> None:
    plan = reader(golden("flights-2013-01").path)
    sizes = [batch.nbytes for partition in plan.partitions() for batch in plan.read(partition)]
    assert max(sizes) < 32 << 20


# SQL


def test_sql_over_a_view(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-broker")
    messages = list(rocketc.scan(store.path))
    topic = max({m.topic for m in messages}, key=lambda t: sum(m.topic == t for m in messages))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING rocketmq OPTIONS (path '{store.path}', Subscribe '{topic}')"
    )
    try:
        [row] = spark.sql("SELECT count(*) n, max(storeTimestamp) last, sum(length(body)) size FROM orders").collect()
        mine = [m for m in messages if m.topic == topic]
        assert (row.n, row.size) == (len(mine), sum(len(m.body) for m in mine))
        got = spark.sql("SELECT unix_millis(max(storeTimestamp)) FROM orders").first()[0]
        assert got == max(m.store_timestamp for m in mine)
        got = spark.sql("SELECT physicalOffset, queueOffset FROM orders WHERE tags IS NULL AND queueId < 2")
        assert places(got) == sorted((m.phy_offset, m.queue_offset) for m in mine if m.tags is None and m.queue_id < 2)
    finally:
        spark.catalog.dropTempView("orders")


def test_sql_with_its_own_columns(spark: SparkSession, golden: Golden) -> None:
    path = golden("v533-store").path
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW few (tags string, body binary) USING rocketmq OPTIONS (path '{path}')")
    try:
        assert spark.table("few").schema == schema(["tags", "body"])
        assert spark.table("few").count() == rocketc.scan(path).count()
    finally:
        spark.catalog.dropTempView("few")
    with pytest.raises(AnalysisException, match=r"rocketmq: unknown option colums .did you mean columns"):
        spark.sql(f"CREATE TEMPORARY VIEW few USING rocketmq OPTIONS (path '{path}', colums 'topic')")


@pytest.mark.parametrize("columns", ["", "(topic string)"])
def test_a_permanent_table_is_refused_with_the_reason(spark: SparkSession, golden: Golden, columns: str) -> None:
    """Spark passes the options when it asks for the schema, and never again."""
    path = golden("v533-store").path
    try:
        with pytest.raises(PySparkException, match=r"rocketmq: .*Spark does not keep options of permanent tables"):
            spark.sql(f"CREATE TABLE permanent {columns} USING rocketmq OPTIONS (path '{path}')")
            spark.table("permanent").count()
    finally:
        spark.sql("DROP TABLE IF EXISTS permanent")


def test_only_workers_freeze_objects_for_the_garbage_collector(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RocketmqSource({"path": str(golden("v533-store").path)}).reader(SCHEMA)
    [part] = reader.partitions()[:1]
    assert list(reader.read(part)) and gc.get_freeze_count() == 0
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    try:
        assert list(reader.read(part)) and gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
