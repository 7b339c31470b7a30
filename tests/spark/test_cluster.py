"""Workers whose Python does not have rocketc get it from a packed environment, or from the session.

See docs/howto/cluster.md.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from support.spark_clusters import MASTER, NEEDED, environment, make_home, options, plain_python, submit
from support.spark_frames import HAS_DATA_SOURCES
from support.stores import GoldenStore

import rocketc

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(rocketc.__file__).parents[1]
PATHS = [str(ROOT), str(Path(pyspark.__file__).parents[1])]
JOB = Path(__file__).with_name("cluster_job.py")
needs_connect = pytest.mark.skipif(
    not (Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh").exists(),
    reason="PySpark before 4.2 does not have the script that starts a server of Spark Connect",
)
PACKED = "./environment/bin/python"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with rocketc and its dependencies in Spark, but without Spark, as one file."""
    folder = tmp_path_factory.mktemp("packed")
    subprocess.run([plain_python(), "-m", "venv", "--without-pip", folder / "env"], check=True)
    [packages] = (folder / "env").glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("platlib"))
    leave = shutil.ignore_patterns("tests", "__pycache__")
    for path in [*(here / name for name in NEEDED), ROOT / "rocketc", ROOT / "pyspark_rocketmq"]:
        if path.is_dir():
            shutil.copytree(path, packages / path.name, ignore=leave)
        elif path.exists():
            shutil.copy(path, packages)
    subprocess.run(["tar", "-C", folder / "env", "-czf", folder / "environment.tar.gz", "."], check=True)
    shutil.rmtree(folder / "env")
    return folder / "environment.tar.gz"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


@pytest.fixture
def unpacked(packed: Path, home: Path) -> str:
    """The environment next to the driver, which uses it for planning."""
    folder = home.with_name("run") / "environment"
    folder.mkdir()
    subprocess.run(["tar", "-C", folder, "-xzf", packed], check=True)
    return str(folder)


@pytest.fixture
def log(golden: Callable[[str], GoldenStore], tmp_path: Path) -> GoldenStore:
    shutil.copytree(golden("v533-bitrot").path, tmp_path / "damaged")
    return golden("flights-2013-01")


@contextmanager
def connect_server(home: Path, **environ: str) -> Iterator[str]:
    """Start a Spark Connect server; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    binding = f"spark.connect.grpc.binding.port={port}", "spark.connect.grpc.binding.address=127.0.0.1"
    command = [home / "sbin" / "start-connect-server.sh", "--wait", *options(home.parent, *binding)]
    with (home.parent / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=home.with_name("run"), env=environment(home, **environ), stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < until, (home.parent / "server.log").read_text()
                time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def client(home: Path, remote: str, *args: str | Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, JOB, *args], env=environment(home, SPARK_REMOTE=remote, PYTHONPATH=os.pathsep.join(PATHS)),
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:] + (home.parent / "server.log").read_text()[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_workers(found: dict[str, Any], driver: str) -> None:
    """Assert that the workers ran the shipped Python, each in its executor's folder, and not the driver's."""
    assert found.pop("driver").startswith(driver)
    workers = found.pop("workers")
    assert len({python for python, _ in workers}) == 2
    for python, module in workers:
        assert python.endswith("/environment/bin/python") and "/run/environment" not in python
        assert module.startswith(python.removesuffix("bin/python"))


def counts(log: GoldenStore) -> dict[str, int]:
    same = dict.fromkeys(("mapInArrow", "parts"), len(log.messages))
    if not HAS_DATA_SOURCES:
        return same
    same |= dict.fromkeys(("source", "archived", "streamed"), len(log.messages))
    return {**same, "written": sum(1 for _ in rocketc.scan(log.path, tags="HA"))}


def test_a_packed_environment(packed: Path, unpacked: str, home: Path, log: GoldenStore, tmp_path: Path) -> None:
    done = submit(home, "--archives", f"{packed}#environment", JOB, log.path, tmp_path, PYSPARK_PYTHON=PACKED)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    check_workers(found, unpacked)
    damaged = rocketc.scan(tmp_path / "damaged", errors="skip")
    kept = sum(1 for _ in damaged)
    wanted = {"master": MASTER, "mapPartitions": len(log.messages)}
    if not pyspark.__version__.startswith("4.0"):
        wanted |= {"kept": kept, "dropped": len(damaged.report.damage)}
    assert found == {**counts(log), **wanted}


def test_without_the_environment_spark_does_not_find_the_source(home: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.getOrCreate().read.format('rocketmq').load('store').show()\n"
    )
    done = submit(home, job, PYSPARK_PYTHON=plain_python())
    assert done.returncode != 0
    assert "DATA_SOURCE_NOT_FOUND" in done.stderr + done.stdout


@needs_connect
def test_connect(unpacked: str, home: Path, log: GoldenStore, tmp_path: Path) -> None:
    with connect_server(home, PYSPARK_PYTHON=f"{unpacked}/bin/python") as remote:  # a path that each worker can see
        found = client(home, remote, log.path, tmp_path)
    assert found.pop("driver").startswith(str(ROOT))
    assert [python for python, _ in found.pop("workers")] == [f"{unpacked}/bin/python"]
    assert found == counts(log)


@needs_connect
def test_connect_to_a_server_without_the_environment(
    packed: Path, home: Path, log: GoldenStore, tmp_path: Path
) -> None:
    with connect_server(home, PYSPARK_PYTHON=plain_python()) as remote:
        found = client(home, remote, log.path, tmp_path, packed)
    check_workers(found, str(ROOT))
    assert found == {"mapInArrow": len(log.messages), "parts": len(log.messages)}
