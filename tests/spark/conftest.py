"""One Spark session for all tests here, with two cores; output of its JVM and workers goes to a file."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from rocketc.spark.data_source_api import HAS_DATA_SOURCES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:  # PySpark 4.0 leaves some warnings to the garbage collector
            item.add_marker(pytest.mark.filterwarnings("ignore:.*<socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def no_connections() -> Iterator[None]:
    """The connections that a process keeps to clusters end with the tests of a module."""
    yield
    if "rocketc.spark.cluster_reader" in sys.modules:
        sys.modules["rocketc.spark.cluster_reader"].close_readers()


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Give processes that are started within the block this file as their stderr."""
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    if shutil.which(java) is None:
        pytest.fail("Spark needs Java 17 or newer: `make setup` installs it or says how", pytrace=False)
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise workers run `python3`
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # the tests' jobs are short
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/St_Johns",  # no test may depend on UTC
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("rocketc tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    with stderr_to(folder / "stderr"):
        session = builder.getOrCreate()
    if " " in sys.executable and HAS_DATA_SOURCES:  # then Spark does not search for data sources
        import pyspark_rocketmq

        session.dataSource.register(pyspark_rocketmq.DefaultSource)
    session.sparkContext.setLogLevel("OFF")  # tests cause failures on purpose
    yield session
    session.stop()
    gateway = SparkContext._gateway  # session.stop() does not end its process
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None
