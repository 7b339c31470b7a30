"""rocketc bench as users run it: its output, and that it leaves no files."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import namedtuple
from functools import partial

import pytest
from support.command import rocketc, start

from rocketc.cli import bench_cases
from rocketc.cli.bench import Row, draw

TINY = bench_cases.Size(1 << 20, 1 << 20, 100, 5, 1)
WORKS = [
    ("put", "write"), ("put_many, 1 KiB", "memcpy"), ("put, sync", "write, fdatasync"), ("put, sync", "map, msync"),
    ("put_many of 1,000, sync", "write, fdatasync"), ("recovery, 1 KiB", "CRC-32"),
]  # fmt: skip


@pytest.fixture
def call(run, monkeypatch, tmp_path):
    """call(*args): run the command in this process, in its own folder, with little work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_cases, "QUICK", TINY)
    monkeypatch.setattr(bench_cases, "FULL", TINY)
    return partial(run, "bench")


def test_table(call, tmp_path):
    code, out, err = call("--quick")
    assert (code, err) == (0, f"rocketc: measuring in {tmp_path}; this takes seconds\n")
    head, *rows = out.splitlines()
    assert head.split() == ["store", "rate", "machine", "rate", "ratio"]
    assert len(rows) == len(WORKS) and max(map(len, rows)) <= 80
    for row, (work, against) in zip(rows, WORKS, strict=True):
        assert re.fullmatch(rf"{re.escape(work)} +\S.*/s  {re.escape(against)} +\S.*/s +\d+\.\d\d", row), row
    assert list(tmp_path.iterdir()) == []


def test_json(call, tmp_path):
    (tmp_path / "there").mkdir()
    code, out, _ = call("--path", "there", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(row["work"], row["against"]) for row in rows] == WORKS
    for row in rows:
        assert row["ratio"] == pytest.approx(row["store"] / row["machine"], rel=0.01, abs=0.001) and row["store"] > 0
    assert os.listdir("there") == []


def test_draw():
    rows = [Row("put", "write", "message", 1234567.8, 2469135.6), Row("recovery", "CRC-32", "B", 3 << 30, 1 << 31)]
    assert [line.split("  ") for line in draw(rows, False).splitlines()][1][0] == "put"
    assert "1,234,568/s" in draw(rows, False) and "3.0 GiB/s" in draw(rows, False) and "1.50" in draw(rows, False)


def test_no_such_folder(call, tmp_path):
    assert call("--path", "nope") == (3, "", "rocketc: nope: No such file or directory\n")
    (tmp_path / "file").touch()
    code, _, err = call("--path", "file")
    assert (code, err.count("\n")) == (3, 2) and "file: Not a directory" in err


def test_too_little_room(call, tmp_path, monkeypatch):
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 30, 1 << 30, 4096))
    code, out, err = call()
    assert (code, out) == (3, "")
    assert re.fullmatch(r"rocketc: \.: the measurement needs [\d.]+ MiB, and 4\.0 KiB are free\n", err), err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(tmp_path, number):
    with start("bench", "--quick", "--path", tmp_path, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while not list(tmp_path.glob(".rocketc-bench-*/*")):
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err.count(b"\n")) == (128 + number, 1), (out, err)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe(tmp_path):
    with start("bench", "--quick", "--json", "--path", tmp_path) as process:
        process.stdout.close()
        assert process.wait(timeout=120) == 0
    assert list(tmp_path.iterdir()) == []


def test_wrong_usage():
    done = rocketc("bench", "--slow")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
