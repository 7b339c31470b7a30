"""The Python of Spark's workers: rocketc chooses it before the session, and the driver checks it before a task."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spark_frames import HAS_DATA_SOURCES
from support.stores import GoldenStore

import rocketc
from rocketc.spark import PartStream, plan_parts, splits, write_parts
from rocketc.spark.archive import archive
from rocketc.spark.source import RocketmqSource
from rocketc.spark.worker_python import worker_python_error

pytestmark = pytest.mark.spark
CHOSEN = "import os, sys, rocketc; print(os.environ.get('PYSPARK_PYTHON')); print('pyspark' in sys.modules)"


def plain(path: Path, command: str = f'exec "{sys.executable}" -I -S "$@"') -> str:
    """Write a Python without packages."""
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def workers_run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """workers_run(python): as if the session had been started without PYSPARK_PYTHON, and this were its python3."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return lambda python: monkeypatch.setattr(spark.sparkContext, "pythonExec", python)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, sys.executable),
        ({"PYSPARK_PYTHON": "/opt/python"}, "/opt/python"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, "None"),  # spark-submit has started this program
    ],
)
def test_importing_rocketc_chooses_this_python_unless_one_is_set(given: dict[str, str], chosen: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run([sys.executable, "-c", CHOSEN], env={**env, **given}, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([chosen, "False"], "")  # and pyspark is not loaded


def test_without_pyspark_nothing_is_chosen(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    code = f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; {CHOSEN}"
    root = str(Path(rocketc.__file__).parents[1])
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env={**env, "PYTHONPATH": root}, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["None", "False"], "")


def test_the_driver_finds_workers_without_rocketc(
    spark: Any, workers_run: Callable[[str], None], golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    store = golden("v533-store").path
    python = plain(tmp_path / "python3")
    workers_run(python)
    text = (
        f"Spark's workers run {python}, which cannot import rocketc (ModuleNotFoundError: No module named 'rocketc'); "
        f"set PYSPARK_PYTHON={sys.executable} before the session starts, or import rocketc before it"
    )
    for call in (
        lambda: splits(store),
        lambda: archive(spark, store, tmp_path / "archive"),
        lambda: plan_parts(store),
        lambda: write_parts(spark.range(1), store),
        lambda: PartStream(spark, tmp_path / "checkpoint", store),
        lambda: spark.dataSource.register(RocketmqSource) if HAS_DATA_SOURCES else plan_parts(store),
    ):
        with pytest.raises(ImportError) as caught:
            call()
        assert str(caught.value) == text
    with pytest.warns(RuntimeWarning) as warned:
        rocketc._choose_worker_python()  # what `import rocketc` does while a session runs
    assert [str(one.message) for one in warned] == [text]
    assert "PYSPARK_PYTHON" not in os.environ and not (tmp_path / "archive").exists()


def test_what_is_wrong_with_the_python(
    workers_run: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = f"; set PYSPARK_PYTHON={sys.executable} before the session starts"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, command, wrong in (
        ("old", "echo 3.8", f"which is Python 3.8, but the driver's is {ours}"),
        ("dead", "exit 7", "which cannot import rocketc (exit code 7)"),
        ("gone", None, "which is not in the PATH"),
    ):
        path = plain(tmp_path / name, command) if command else None
        workers_run(name)
        shown = f"{name} ({path})" if path else name
        assert worker_python_error() == f"Spark's workers run {shown}, {wrong}{advice}, or import rocketc before it"
    monkeypatch.setenv("PYSPARK_PYTHON", "gone")
    assert str(worker_python_error()).endswith(advice)


def test_a_python_that_works_is_accepted(
    spark: Any, workers_run: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker_python_error() is None  # this Python
    workers_run(plain(tmp_path / "other", f'exec "{sys.executable}" "$@"'))
    assert worker_python_error() is None  # another path, with rocketc
    workers_run(plain(tmp_path / "python3"))
    assert worker_python_error() is not None
    with monkeypatch.context() as there:
        there.setattr(spark.sparkContext, "master", "spark://host:7077")  # workers may be on other machines
        assert worker_python_error() is None
    spark.conf.set("spark.sql.execution.pyspark.python", sys.executable)
    try:
        assert worker_python_error() is None
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.python")


@pytest.mark.long
def test_a_program_of_an_environment_that_is_not_activated(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    """The first python3 in the PATH does not have rocketc. The program imports rocketc before or after its session."""
    store = golden("v533-store").path
    plain(tmp_path / "python3")
    link = tmp_path / "prefix"  # Spark does not search for sources if the path of its Python has a blank
    link.symlink_to(sys.prefix)
    session = f"""if True:
        from pyspark.sql import SparkSession
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(name, "127.0.0.1")
        spark = builder.config("spark.local.dir", {str(tmp_path)!r}).getOrCreate()
    """
    env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    env["PATH"] = f"{tmp_path}{os.pathsep}{env['PATH']}"

    def run(*parts: str) -> subprocess.CompletedProcess[str]:
        command = [str(link / "bin" / Path(sys.executable).name), "-c", "\n".join(parts)]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    load = f"print(spark.read.format('rocketmq').option('columns', 'topic').load({str(store)!r}).count())"
    done = run("import rocketc", session, load)
    assert done.stdout.splitlines() == [str(rocketc.scan(store).count())], done.stderr
    done = run(session, "from rocketc.spark import splits", f"splits({str(store)!r})")
    text = f"Spark's workers run python3 ({tmp_path / 'python3'}), which cannot import rocketc"
    assert f"\nImportError: {text}" in done.stderr and "Py4J" not in done.stderr
    assert f"<string>:8: RuntimeWarning: {text}" in done.stderr
