"""format("rocketmq") on stores by URL: planned on the driver, read in ranges by the workers."""

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import fsspec
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from support import stores
from support.http_server import Server, served
from support.spark_frames import needs_sources, sort, table_of

import rocketc
from rocketc.files.remote import StorageOptions
from rocketc.spark import decode_batches, decode_partition, schema, splits
from rocketc.spark.options import parse_options
from rocketc.spark.source import RocketmqReader, RocketmqSource

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Golden = Callable[[str], stores.GoldenStore]

SECRET = "swordfish-4711"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("served")) as one:
        yield one


def lay(server: Server, source: Path, name: str) -> str:
    (server.folder / name).symlink_to(source)
    return f"{server.url}/{name}"


def reader(url: str, **options: str) -> RocketmqReader:
    source = RocketmqSource({"path": url, **options})
    return source.reader(source.schema())


@needs_sources
@pytest.mark.parametrize("name", ["v533-store", "v533-bitrot"])
def test_rows_of_a_url_are_those_of_the_files(spark: SparkSession, golden: Golden, server: Server, name: str) -> None:
    store = golden(name)
    url = lay(server, store.path, name)
    df = spark.read.format("rocketmq").options(mode="DROPMALFORMED", minPartitions="9").load(url)
    assert df.rdd.getNumPartitions() >= 9
    local = rocketc.scan(store.path, errors="skip").to_arrow().drop_columns("file")
    rows = table_of(df)
    assert set(rows["file"].to_pylist()) <= {f"{url}/commitlog/{path.name}" for path in store.log_files}
    assert sort(rows.drop_columns("file")) == sort(local)


def test_tasks_fetch_their_parts_only(golden: Golden, server: Server) -> None:
    store = golden("flights-2013-01")
    plan = reader(lay(server, store.path, "parts"), maxBytesPerPartition="4m", columns="queueOffset")
    tasks = plan.partitions()
    size = sum(path.stat().st_size for path in store.log_files)
    server.sent = 0
    assert sum(batch.num_rows for task in tasks for batch in plan.read(task)) == rocketc.scan(store.path).count()
    assert server.sent < size + len(tasks) * (3 << 20)


def test_files_are_skipped_by_time(golden: Golden, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden("flights-2013-01")
    last = list(rocketc.scan(store.log_files[-1]))[-1].store_timestamp
    plan = reader(lay(server, store.path, "times"), startingTimestamp=str(last))
    tasks = plan.partitions()
    assert {part.path.rpartition("/")[2] for task in tasks for part in task.value} == {store.log_files[-1].name}
    assert "files left out" in capsys.readouterr().err
    wanted = rocketc.scan(store.path, begin=last).count()
    assert sum(batch.num_rows for task in tasks for batch in plan.read(task)) == wanted


def test_memory_is_planned(golden: Golden) -> None:
    """The memory file system exists in one process only; planning does not need another."""
    system = fsspec.filesystem("memory")
    first, second = golden("v533-store").log_files[:2]
    for path in (first, second):
        system.pipe_file(f"/plan/{path.name}", path.read_bytes())
    try:
        [task] = reader("memory://plan").partitions()
        assert [(part.path, part.last) for part in task.value] == [
            (f"memory://plan/{first.name}", False),
            (f"memory://plan/{second.name}", True),
        ]
        assert splits("memory://plan")[1] == (
            f"memory://plan/{second.name}",
            int(second.name),
            int(second.name) + second.stat().st_size,
        )
    finally:
        system.rm("/plan", recursive=True)


def test_splits_of_a_url(spark: SparkSession, golden: Golden, server: Server) -> None:
    store = golden("v533-store")
    url = lay(server, store.path, "splits")
    parts = splits(url, max_bytes=100_000, storage_options={"headers": {"X-Key": SECRET}})
    decode = partial(decode_batches, columns=["topic"], storage_options={"headers": {"X-Key": SECRET}})
    frame = spark.createDataFrame(parts).mapInArrow(decode, schema(["topic"]))
    assert frame.count() == rocketc.scan(store.path).count()
    assert len(list(decode_partition([parts[0], url], as_="message"))) > frame.count()


def test_storage_options() -> None:
    given = {
        "storage.key": "AKIA", "STORAGE.secret": SECRET, "storage.anon": "false", "storage.port": "21",
        "storage.client_kwargs": '{"endpoint_url": "http://127.0.0.1:9000"}', "storage.token": '"123"',
        "storage.password": "[no json", "storage.account": "0123456789", "storage.pin": "1234567890",
    }  # fmt: skip
    options = parse_options({"path": "s3://bucket", **given})
    assert options.scan["storage_options"] == {
        "key": "AKIA", "secret": SECRET, "anon": False, "port": 21, "token": "123", "password": "[no json",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:9000"}, "account": "0123456789", "pin": "1234567890",
    }  # fmt: skip
    assert SECRET not in repr(options)
    sent = pickle.loads(pickle.dumps(options))
    assert sent == options and isinstance(sent.scan["storage_options"], StorageOptions)


@needs_sources
def test_no_secret_is_shown(
    spark: SparkSession, golden: Golden, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    url = lay(server, golden("v533-store").path, "secret")
    given = {"storage.headers": f'{{"X-Key": "{SECRET}"}}', "subscribe": "nothing", "failOnMissingTopic": "false"}
    df = spark.read.format("rocketmq").options(**given).load(url)
    texts = [df._jdf.queryExecution().toString(), df._jdf.queryExecution().optimizedPlan().treeString()]
    server.fails = 403
    try:
        for broken in (lambda: spark.read.format("rocketmq").options(**given).load(url), df.count):
            with pytest.raises(Exception, match="StoreIOError") as told:
                broken()
            texts.append(str(told.value))
    finally:
        server.fails = None
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("rocketmq").options(**given, mode="none").load(url)
    plan = reader(url, **given)
    texts += [str(refused.value), repr(vars(plan)), repr([one.value for one in plan.partitions()]), repr(plan)]
    texts += [*capfd.readouterr()]
    for text in texts:
        assert SECRET not in text


@needs_sources
def test_unreadable_paths_fail_at_load(spark: SparkSession, server: Server) -> None:
    for url, text in (
        (f"{server.url}/nowhere", r"StoreIOError: \[Errno 2\] No such file or directory: 'http://.*/nowhere'"),
        ("s3://bucket/store", "StoreIOError: .*Install s3fs to access S3: 's3://bucket/store'"),
        ("nosuch://there/x", "StoreIOError: .*Protocol not known: nosuch: 'nosuch://there/x'"),
        ("hdfs:/there/x", "StoreIOError: .*not a local path.*'hdfs:/there/x'"),
    ):
        with pytest.raises(AnalysisException, match=text):
            spark.read.format("rocketmq").load(url)
