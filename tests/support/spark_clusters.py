"""Spark's `local-cluster`: a master and two workers in processes of their own, and Pythons for their executors."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import py4j
import pyspark
import pytest

MASTER = "local-cluster[2,1,1024]"
# What rocketc and Spark import in a worker, besides themselves.
NEEDED = ("pyarrow", "numpy", "numpy.libs", "pandas", "pandas.libs", "dateutil", "six.py", "pytz", "tzdata")
_OF_TESTS = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}  # they would reach all processes of Spark


def plain_python() -> str:
    """The Python from which the tests' environment was made; it does not have rocketc."""
    python = os.path.join(sys.base_exec_prefix, "bin", f"python3.{sys.version_info.minor}")
    command = [python, "-c", "import rocketc"]
    if subprocess.run(command, env=_plain(), capture_output=True, cwd="/", check=False).returncode == 0:
        pytest.skip(f"{python} has rocketc")
    return python


def make_environment(folder: Path, wheel: Path | None = None, *, spark: bool = False) -> Path:
    """Make a virtual environment with what rocketc needs in a worker; returns its Python.

    wheel   of rocketc, which pip installs; None: without rocketc
    spark   also with PySpark, as a program needs that spark-submit does not start
    """
    subprocess.run([plain_python(), "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("platlib"))
    for name in NEEDED:
        if (here / name).exists():
            (packages / name).symlink_to(here / name)
    if spark:
        for path in (Path(pyspark.__file__).parent, Path(py4j.__file__).parent):
            (packages / path.name).symlink_to(path)
    if wheel is not None:
        command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
        alone = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile"]
        subprocess.run([*command, *alone, wheel], env=_plain(), check=True)
    return folder / "bin" / "python"


def make_home(folder: Path) -> Path:
    """Make a SPARK_HOME where workers can keep their folders, and a folder `run` as current directory."""
    (folder / "run").mkdir()
    (folder / "home").mkdir()
    for one in Path(pyspark.__file__).parent.iterdir():
        (folder / "home" / one.name).symlink_to(one)
    return folder / "home"


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OF_TESTS}


def environment(home: Path, **environ: str) -> dict[str, str]:
    return {**_plain(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", **environ}


def settings(folder: Path, *more: str) -> list[str]:
    """Settings of a session whose files are in a folder, as `name=value`."""
    given = ["spark.ui.enabled=false", f"spark.local.dir={folder}", f"spark.sql.warehouse.dir={folder}/warehouse"]
    brief = [f"spark.{one}.extraJavaOptions=-XX:TieredStopAtLevel=1" for one in ("driver", "executor")]
    return [*given, *brief, "spark.sql.shuffle.partitions=2", *more]


def options(folder: Path, *more: str, master: str = MASTER) -> list[str]:
    """The same as options of spark-submit and of Spark's start scripts."""
    return ["--master", master, *(word for one in settings(folder, *more) for word in ("--conf", one))]


def run(command: list[str | Path], home: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder `run`."""
    return subprocess.run(
        command, cwd=home.with_name("run"), env=environment(home, **environ), capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip


def submit(home: Path, *args: str | Path, master: str = MASTER, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run spark-submit in the folder `run`; args: its options, the program and the arguments of the program."""
    return run([home / "bin" / "spark-submit", *options(home.parent, master=master), *args], home, **environ)
