"""tools/setup.sh, with a Python that only pretends: steps that take minutes say how far they are."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.pages import ROOT

PIP = """
echo "Collecting numpy==2.3 (from -r requirements-dev.lock (line 1))"
sleep 0.05
echo "Requirement already satisfied: click in .venv (8.2)"
sleep 0.05
echo "Installing collected packages: numpy"
"""
BUILD = """
mkdir -p build/temp
sleep 0.1
touch build/temp/_one.c build/temp/_two.c build/temp/_one.o
sleep 1
"""


@pytest.fixture
def setup(tmp_path):
    """Return setup(program, *step): run a step, in which .venv/bin/python is this shell program."""
    if sys.platform != "linux":
        pytest.skip("uses flock and GNU find")
    for folder in ("tools", ".venv/bin", "pyx", "rocketc", "build"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools/setup.sh", tmp_path / "tools")
    (tmp_path / "pyx/_one.pyx").touch()

    def start(program, *step, seconds="0"):
        python = tmp_path / ".venv/bin/python"
        python.write_text(f"#!/bin/sh\n{program}")
        python.chmod(0o755)
        return subprocess.Popen(
            ["sh", tmp_path / "tools/setup.sh", *step],
            env={**os.environ, "ROCKETC_SECONDS_BETWEEN": seconds},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def test_packages_say_which_one_is_installed(setup):
    process = setup(PIP, "packages", "python3")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[1:] == [
        "setup: package 1: numpy==2.3",
        "setup: package 2: click",
        "setup: installing 2 packages",
    ]


def test_packages_say_nothing_more_if_they_are_quick(setup):
    out, _ = setup(PIP.replace("Installing", "Nothing"), "packages", "python3", seconds="5").communicate(timeout=30)
    assert len(out.splitlines()) == 1 and "requirements-dev.lock" in out


def test_a_package_that_fails_shows_what_pip_said(setup, tmp_path):
    process = setup(
        "[ $1 = -c ] && exit; echo Collecting nope; echo ERROR: no such version; exit 1", "packages", "python3"
    )
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and err == "Collecting nope\nERROR: no such version\n"
    assert not (tmp_path / ".venv/.packages").exists()


def test_the_build_says_how_many_modules_are_done(setup, tmp_path):
    process = setup(BUILD, "extensions", "", seconds="0.3")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    said = [line for line in out.splitlines() if "translated" in line]
    assert said[-1] == "setup: 2 modules translated to C, 1 compiled, of at most 1"
    assert len(set(said)) == len(said) and not any(line.startswith("setup: 0 modules") for line in said)
    assert (tmp_path / "build/.extensions").exists()


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("sleep 30", -signal.SIGINT)])
def test_a_build_that_fails_or_is_interrupted_leaves_no_counter(setup, tmp_path, program, code):
    process = setup(program, "extensions", "", seconds="0.2")
    if code < 0:
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
    process.communicate(timeout=10)  # a counter would keep stdout open
    assert process.returncode in (code, 128 - code) and not Path(tmp_path / "build/.extensions").exists()
