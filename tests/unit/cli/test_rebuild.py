"""rocketc rebuild as users run it."""

import json
import os
import shutil
import sys
from functools import partial

import pytest
from support import stores
from support.derived import FOLDERS, files_of, same_files, without_names

import rocketc
from rocketc.files.lock_file import StoreLock


@pytest.fixture
def call(run_here):
    return partial(run_here, "rebuild")


@pytest.fixture
def store(tmp_path):
    return stores.unpack("v533-broker", tmp_path)


def test_a_store_with_zeroed_queues_and_index(call, store):
    before = without_names(files_of(store.path, *FOLDERS))
    for folder in FOLDERS:
        for path in (store.path / folder).rglob("*"):
            if path.is_file() and path.name.startswith("000"):
                path.write_bytes(bytes(path.stat().st_size))
    code, out, err = call("v533-broker")
    assert (code, err) == (0, "")
    same_files(without_names(files_of(store.path, *FOLDERS)), before)
    assert out.splitlines()[1].startswith("queues  1659 messages in 45 queues: 45 files, ")
    assert out.splitlines()[2].startswith("index   3467 keys: ")


@pytest.mark.parametrize(("only", "line"), [("cq", "queues"), ("index", "index")])
def test_only_queues_or_only_index(call, store, only, line):
    code, out, _ = call("v533-broker", "--only", only)
    assert code == 0 and [one.split()[0] for one in out.splitlines()] == ["log", line]


def test_as_json(call, store):
    code, out, err = call("v533-broker", "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["path"], told["isWhole"], told["queues"], told["keys"]) == ("v533-broker", True, 45, 3467)
    assert all(os.path.getsize(store.path / one["path"]) == one["size"] for one in told["files"])


def test_with_the_brokers_settings(call, store, tmp_path):
    lines = [f"{key}={value}" for key, value in store.about["config"].items()]
    (tmp_path / "broker.conf").write_text("\n".join(lines))
    before = without_names(files_of(store.path, *FOLDERS))
    for folder in FOLDERS:
        shutil.rmtree(store.path / folder, ignore_errors=True)
    assert call("v533-broker", "--conf", "broker.conf")[0] == 0
    same_files(without_names(files_of(store.path, *FOLDERS)), before)
    assert call("v533-broker", "--conf", "nowhere")[0] == 3


def test_a_damaged_log(call, tmp_path):
    stores.unpack("v533-torn", tmp_path)
    code, out, err = call("v533-torn")
    assert code == 1 and "damage" in out and "the log is damaged" in err


def test_a_store_that_is_open(call, store):
    before = files_of(store.path, *FOLDERS)
    lock = StoreLock(store.path)
    code, out, err = call("v533-broker")
    lock.release()
    assert (code, out) == (3, "") and "is open for writing already" in err
    assert files_of(store.path, *FOLDERS) == before


def test_a_missing_store(call, tmp_path):
    assert call("nowhere") == (3, "", "rocketc: nowhere: No such file or directory\n")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    assert call("empty") == (3, "", "rocketc: empty: no commit log to rebuild from\n")


def test_a_commit_log_is_not_a_store(call, run_here, store):
    for told in (call("v533-broker/commitlog"), run_here("clean", "v533-broker/commitlog")):
        assert told[:2] == (2, "") and "is a commit log; give the folder that contains it" in told[2]


def test_progress_is_shown(call, store, monkeypatch):
    shown = []
    monkeypatch.setattr("rocketc.cli.output.SHOWN_AFTER", 0)
    monkeypatch.setattr("rocketc.cli.output._REDRAW_SECONDS", 0)
    monkeypatch.setattr("rocketc.cli.output._Bar._start", lambda bar: setattr(bar, "_move", shown.append))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert call("v533-broker")[0] == 0
    assert shown[-1] == sum(log.bytes for log in rocketc.verify(store.path).files)
