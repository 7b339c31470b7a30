"""The examples as a user runs them, and their messages when something is wrong."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow.dataset as ds
import pytest
from support.stores import GoldenStore

import rocketc

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *args: object, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, os.path.relpath(EXAMPLES / script, cwd), *map(str, args)]
    package = Path(rocketc.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(package), "PYTHONIOENCODING": "utf-8", **env}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, encoding="utf-8", timeout=250)


@pytest.fixture(scope="module")
def flights() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flights_spark", EXAMPLES / "flights_spark.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_demo_from_another_folder_with_a_blank_in_its_path(tmp_path: Path) -> None:
    here = tmp_path / "some where"
    here.mkdir()
    (here / "flights.parquet").mkdir()
    (here / "flights.parquet" / "old").write_text("of an earlier run")
    done = run("demo.py", "--folder", ".", cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "All 4 ways and the Parquet files agree; 521 flights were canceled." in done.stdout
    assert "UA  United Air Lines         4,637         32     8.3    53.0" in done.stdout
    lines = done.stdout.splitlines()
    steps = [line for line in lines if line.endswith(" ...")]
    assert steps[1] == "starting Spark ..." and len(steps) == 6 + 7
    assert "DuckDB and Spark read what the files have: 27,004 flights of 16 airlines." in lines
    assert lines.index(steps[5]) < next(n for n, line in enumerate(lines) if line.startswith("departure delay"))
    assert max(len(line) for line in lines if not line.startswith("$")) <= 80
    assert str(tmp_path) not in done.stdout
    table = ds.dataset(here / "flights.parquet", partitioning="hive").to_table()
    assert table.num_rows == 27_004 and table.column("dep_delay").null_count == 521
    assert len(set(table.column("carrier").to_pylist())) == 16
    assert (here / "delays.png").read_bytes().startswith(b"\x89PNG")
    holes = (here / "flights-2013-01" / "commitlog" / f"{12582912:020d}").stat()
    assert holes.st_blocks * 512 < holes.st_size  # sparse, as the broker wrote it


def test_different_results_are_reported(flights: ModuleType) -> None:
    one = {"UA": flights.Carrier(2, 1, 3.5, 3.5), "DL": flights.Carrier(1, 1, None, None)}
    assert flights.differences(one, dict(one)) == []
    assert flights.differences(one, {**one, "UA": flights.Carrier(2, 1, 3.5 + 1e-15, 3.5)}) == []
    for other in (flights.Carrier(3, 1, 3.5, 3.5), flights.Carrier(2, 1, 3.6, 3.5), flights.Carrier(2, 1, 3.5, None)):
        assert flights.differences(one, {**one, "UA": other}) == ["UA"]
    assert flights.differences(one, {}) == ["DL", "UA"]


def test_percentile_is_between_two_values(flights: ModuleType) -> None:
    assert flights.percentile([], 0.95) is None
    assert flights.percentile([7], 0.95) == 7
    assert flights.percentile([0, 10, 20], 0.75) == 15
    assert flights.percentile(list(range(101)), 0.95) == 95


@pytest.mark.parametrize("script", ["demo.py", "flights_spark.py", "flights_cluster.py"])
def test_missing_java_is_reported(tmp_path: Path, script: str) -> None:
    args = ["--folder", tmp_path] if script == "demo.py" else ["store", tmp_path]
    done = run(script, *args, cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 1
    assert done.stderr.startswith("Spark needs Java 17 or newer, but no `java` is on the PATH.")
    done = run(script, *args, cwd=tmp_path, JAVA_HOME="/nowhere")
    assert done.returncode == 1 and "there is none in JAVA_HOME=/nowhere" in done.stderr


def test_an_old_java_is_reported(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    done = run(
        "flights_spark.py", "store", tmp_path, cwd=tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}", JAVA_HOME=""
    )
    assert done.returncode == 1 and f"{java} is version 1.8.0_402" in done.stderr


@pytest.mark.parametrize("script", ["flights_spark.py", "flights_cluster.py"])
def test_a_store_without_flights_is_reported(tmp_path: Path, script: str) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not on the PATH")
    done = run(script, "nowhere", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and "nowhere" in done.stderr
    (tmp_path / f"{0:020d}").write_bytes(rocketc.encode("other", b"{}"))
    done = run(script, ".", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, ".: no messages of the topic flights\n")


@pytest.mark.long
def test_an_archive_is_created_and_grows(golden: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    store = golden("v533-bitrot").path
    for added in ("1,499", "0"):
        done = run("archive.py", store, "lake", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"{added} messages added" in done.stdout and "|CrashA|2026-11-21|504     |211582|" in done.stdout
        assert ("bad_body_crc" in done.stdout) == (added != "0")
    done = run("archive.py", "nowhere", "lake", cwd=tmp_path)
    assert done.returncode == 1 and "nowhere" in done.stderr
