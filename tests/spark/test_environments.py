"""The ways to get rocketc to the executors of a cluster: see docs/howto/spark.md."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spark_clusters import MASTER, make_environment, make_home, run, settings, submit
from support.stores import GoldenStore
from support.wheels import make_wheel

import rocketc

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOB = Path(__file__).with_name("environment_job.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def with_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which pip installed the wheel, and PySpark."""
    return make_environment(tmp_path_factory.mktemp("with") / "env", wheel, spark=True)


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same Python without rocketc."""
    return make_environment(tmp_path_factory.mktemp("without") / "env", spark=True)


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    """A cluster with three messages of the topic orders."""
    with rocketc.Broker() as broker:
        with rocketc.client.Producer("shop", broker.name_server) as producer:
            producer.send_many("orders", [b"one", b"two", b"three"])
        yield broker.name_server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


@pytest.fixture
def arguments(golden: Callable[[str], GoldenStore], tmp_path: Path, name_server: str) -> list[str | Path]:
    """The arguments of the job."""
    return [golden("v533-store").path, tmp_path, name_server]


def places_of(done: "subprocess.CompletedProcess[str]", store: str | Path) -> tuple[str, list[tuple[str, str]]]:
    """Return the path of rocketc in the driver, and (Python, path of rocketc) of workers; assert that all was done."""
    lines = [one for one in (done.stdout + done.stderr).splitlines() if not re.match(r"\d\d/\d\d/\d\d |\s*at ", one)]
    assert done.returncode == 0, "\n".join(lines)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    expected = {"master": MASTER, "store": rocketc.scan(store).count(), "streamed": 3}
    assert {name: found[name] for name in expected} == expected
    return found["driver"][1], [tuple(one) for one in found["workers"]]


def before_others(python: Path) -> str:
    """Return a PATH in which this is the first python3."""
    return f"{python.parent}{os.pathsep}{os.environ['PATH']}"


# the ways of docs/howto/spark.md


def test_a_wheel_on_all_hosts(with_wheel: Path, home: Path, arguments: list[str | Path]) -> None:
    """pip has installed the wheel for the python3 of all hosts. Nothing is set."""
    driver, workers = places_of(submit(home, JOB, *arguments, PATH=before_others(with_wheel)), arguments[0])
    assert workers == [(str(with_wheel.with_name("python3")), driver)]
    assert driver.startswith(f"{with_wheel.parents[1]}/lib/")


def test_a_program_of_an_environment_that_is_not_activated(
    with_wheel: Path, without: Path, home: Path, arguments: list[str | Path]
) -> None:
    """.venv/bin/python job.py, which imports rocketc before its session. The python3 in the PATH is another one."""
    given = settings(home.parent, f"spark.master={MASTER}")
    done = run([with_wheel, JOB, *arguments, *given], home, PATH=before_others(without))
    driver, workers = places_of(done, arguments[0])
    assert workers == [(str(with_wheel), driver)]


@pytest.mark.parametrize("start", ["program", "spark-submit"])
def test_a_packed_environment(
    start: str, with_wheel: Path, without: Path, home: Path, arguments: list[str | Path], tmp_path: Path
) -> None:
    """spark.archives sends the environment to the executors. The program runs in its own, which is not sent."""
    subprocess.run(["tar", "-C", with_wheel.parents[1], "-czf", tmp_path / "environment.tar.gz", "."], check=True)
    driver = tmp_path / "python"  # other hosts do not have it: it does not start in the folders of executors
    driver.write_text(f'#!/bin/sh\ncase "$PWD" in "{home}"/*) exit 1;; esac\nexec "{with_wheel}" "$@"\n')
    driver.chmod(0o755)
    packed = "./environment/bin/python"
    archive = f"{tmp_path}/environment.tar.gz#environment"
    tasks = f"spark.sql.execution.pyspark.python={packed}"
    environ = {"PYSPARK_DRIVER_PYTHON": str(driver), "PYSPARK_PYTHON": packed, "PATH": before_others(without)}
    if start == "program":
        given = settings(home.parent, f"spark.master={MASTER}", f"spark.archives={archive}", tasks)
        done = run([driver, JOB, *arguments, *given], home, **environ)
    else:
        done = submit(home, "--archives", archive, "--conf", tasks, JOB, *arguments, **environ)
    _, workers = places_of(done, arguments[0])
    assert len(workers) == 2
    for python, module in workers:
        assert python.startswith(f"{home}/work/") and python.endswith("/environment/bin/python")
        assert module.startswith(python.removesuffix("bin/python"))


def test_the_python_of_an_image(with_wheel: Path, without: Path, home: Path, arguments: list[str | Path]) -> None:
    """An image sets PYSPARK_PYTHON. Here driver and executors have a folder at the same path, without a container."""
    done = submit(home, JOB, *arguments, PATH=before_others(without), PYSPARK_PYTHON=str(with_wheel))
    driver, workers = places_of(done, arguments[0])
    assert workers == [(str(with_wheel), driver)]


def test_a_wheel_as_an_archive(
    wheel: Path, without: Path, home: Path, arguments: list[str | Path], tmp_path: Path
) -> None:
    """Executors unpack a wheel whose name ends with .zip. Their Python has pyarrow, but not rocketc."""
    shutil.copy(wheel, tmp_path / "rocketc.zip")
    shutil.unpack_archive(tmp_path / "rocketc.zip", home.with_name("run") / "lib")
    archive = ["--archives", f"{tmp_path}/rocketc.zip#lib", "--conf", "spark.executorEnv.PYTHONPATH=./lib"]
    done = submit(home, *archive, JOB, *arguments, PYSPARK_PYTHON=str(without), PYTHONPATH="./lib")
    _, workers = places_of(done, arguments[0])
    assert {python for python, _ in workers} == {str(without)}
    modules = {module for _, module in workers}
    assert len(modules) == 2 and all(module.startswith(f"{home}/work/") for module in modules)


# what does not work


IMPORTS = "import rocketc\n"
IN_A_TASK = """if True:
    from pyspark import SparkContext
    def imports(_):
        import rocketc
        return []
    SparkContext.getOrCreate().parallelize([0], 1).mapPartitions(imports).count()
"""


@pytest.mark.parametrize("program", [IMPORTS, IN_A_TASK], ids=["driver", "task"])
def test_py_files_says_why_it_does_not_work(
    program: str, wheel: Path, without: Path, home: Path, tmp_path: Path
) -> None:
    """Spark does not unpack what --py-files sends."""
    shutil.copy(wheel, tmp_path / "rocketc.zip")
    job = tmp_path / "job.py"
    job.write_text(program)
    done = submit(home, "--py-files", tmp_path / "rocketc.zip", job, master="local[1]", PYSPARK_PYTHON=str(without))
    assert done.returncode != 0
    [line] = {one for one in (done.stdout + done.stderr).splitlines() if one.startswith("ImportError: ")}
    assert line.startswith("ImportError: rocketc is imported from the archive /") and "rocketc.zip, but" in line
    assert line.endswith("install the wheel, or in Spark send it with --archives instead of --py-files")
