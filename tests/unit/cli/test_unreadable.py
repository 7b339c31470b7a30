"""Files and folders of a store that can't be read: each command names them, reads the rest, and exits with 1."""

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import permissions

import rocketc
from rocketc.cli import output

SIZE = 1 << 16
Run = Callable[..., tuple[int, Any, Any]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three files of the log, three topics, an index, tables."""
    root = tmp_path / "store"
    with rocketc.open(root, mapped_file_size_commit_log=SIZE) as store:
        store.create_topic("t0")
        for n in range(700):
            store.put(f"t{n % 3}", b"x" * 100, queue_id=n % 2, keys=f"k{n}")
    return root


def log_files(store: Path) -> list[Path]:
    return [path for path in sorted((store / "commitlog").iterdir()) if path.read_bytes()[:8].strip(b"\0")]


PARTS = {
    "the queues": "consumequeue",
    "a topic": "consumequeue/t1",
    "a queue": "consumequeue/t1/0",
    "the index": "index",
    "the checkpoint": "checkpoint",
    "a table": "config/topics.json",
    "the tables": "config",
}


@pytest.mark.parametrize("part", PARTS)
def test_verify_and_info_name_what_they_could_not_read(store: Path, run: Run, part: str) -> None:
    path = store / PARTS[part]
    with permissions.unreadable(path):
        told = {name: run(name, store) for name in ("verify", "info")}
        code, out, _ = run("verify", store, "--json")
        found = json.loads(out)
    for name, (code_of, text, err) in told.items():
        if name == "info" and part == "a queue":
            continue  # info does not open the files of queues
        assert code_of == 1 and all("Permission denied" in line for line in err.splitlines()), (name, err)
        assert f"notread{path}:Permissiondenied" in "".join(text.split())  # a long path is wrapped
        if part in ("the checkpoint", "a table"):
            assert "".join(text.split()).count("Permissiondenied") == 1, "it is not repeated under `others`"
    assert (code, found["isWhole"], found["records"]) == (1, False, 700)
    assert f"{path}: Permission denied" in found["derived"]["unreadable"]
    assert run("verify", store)[0] == run("info", store)[0] == 0


def test_what_can_be_read_is_compared(store: Path, run: Run) -> None:
    with permissions.unreadable(store / "consumequeue" / "t1"):
        _, text, _ = run("verify", store)
        _, facts, _ = run("info", store)
        found = json.loads(run("info", store, "--json")[1])
    assert _line(text, "units") == "not checked"
    assert _line(text, "index") == "700 keys as the log says"
    assert _line(text, "advice") == "run the command as a user who may read the whole store"
    assert _line(facts, "queues") == "at least 4 queues of 2 topics, 1 index file"
    assert found["consumeQueues"] == {"topics": 2, "queues": 4, "incomplete": True}
    with permissions.unreadable(store / "index"):
        _, text, _ = run("verify", store)
        _, facts, _ = run("info", store)
    assert _line(text, "units") == "700 units of 6 queues as the log says"
    assert _line(text, "index") == "not checked"
    assert _line(facts, "queues") == "6 queues of 3 topics, index not read"


@pytest.mark.parametrize("part", PARTS)
def test_top_says_what_it_could_not_read(store: Path, run: Run, part: str) -> None:
    with permissions.unreadable(store / PARTS[part]):
        code, _, err = run("top", store, "--once", "--interval", "0.1")
    assert code == (1 if part in ("the checkpoint", "a table", "the tables") else 3) and "can't write" not in err
    assert any(f"{store / PARTS[part]}" in line and "Permission denied" in line for line in err.splitlines())


@pytest.mark.parametrize("number", [0, 1, 2])
def test_all_commands_skip_a_log_file(store: Path, tmp_path: Path, run: Run, number: int) -> None:
    file = log_files(store)[number]
    rest = sum(1 for m in rocketc.scan(store) if m.file != str(file))
    said = (
        f"rocketc: {file}: {SIZE} bytes lost at physical offset {number * SIZE}: no_permission "
        "(there is no permission to read the file)"
    )
    with permissions.unreadable(file):
        code, text, err = run("cat", store, "-f", r"%o\n")
        assert (code, text.count("\n"), err.splitlines()[0]) == (1, rest, said)
        code, text, err = run("stats", store, "--by", "", "--json")
        assert (code, json.loads(text)["messages"], err.splitlines()[0]) == (1, rest, said)
        code, _, err = run("export", store, "-o", tmp_path / "out.jsonl")
        assert (code, (tmp_path / "out.jsonl").read_text().count("\n")) == (1, rest)
        assert said in err.splitlines()
        code, text, _ = run("verify", store)
        assert code == 1 and f"{file.name}: Permission denied" in text
        code, _, err = run("get", store, "--key", "none")
        assert code == 1 and said in err.splitlines()
        for name in ("cat", "stats"):
            code, _, err = run(name, store, "--strict")
            assert (code, err) == (3, f"rocketc: {file}: Permission denied\n")


def test_a_scan_raises_unless_unreadable_is_skip(store: Path) -> None:
    file = log_files(store)[1]
    with permissions.unreadable(file):
        for errors in ("raise", "skip", "report"):
            with pytest.raises(rocketc.StoreIOError, match="Permission denied") as raised:
                rocketc.scan(store, errors=errors).count()
            assert raised.value.filename == str(file)
        with pytest.raises(rocketc.StoreIOError):
            rocketc.scan(store, unreadable="skip").count()
        scan = rocketc.scan(store, errors="skip", unreadable="skip")
        scan.count()
        parts = scan.by_file()
        assert sum(part.count() for part in parts) == scan.report.records > 0
        [damage] = scan.report.damage
        assert (damage.file, damage.start, damage.stop) == (str(file), SIZE, 2 * SIZE)
        cut = rocketc.scan(store, errors="skip", unreadable="skip", start=SIZE + 8, stop=2 * SIZE - 8)
        assert cut.count() == 0
        assert [(one.start, one.stop) for one in cut.report.damage] == [(SIZE + 8, 2 * SIZE - 8)]
    with pytest.raises(ValueError, match="unreadable='no': must be 'raise' or 'skip'"):
        rocketc.scan(store, unreadable="no")  # type: ignore[arg-type]


def test_only_errors_of_the_file_are_skipped(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files, or a file that was just deleted, is not the file's fault."""
    from rocketc.read import scan_run as module

    for number, reason in ((errno.EIO, "unreadable"), (errno.EPERM, "no_permission"), (errno.EMFILE, None)):

        def fails(file: Any, *_: Any, number: int = number, **__: Any) -> None:
            raise rocketc.StoreIOError(number, os.strerror(number), file.path)

        monkeypatch.setattr(module, "open_walker", fails)
        scan = rocketc.scan(log_files(store)[0], errors="skip", unreadable="skip")
        if reason is None:
            with pytest.raises(rocketc.StoreIOError):
                scan.count()
        else:
            assert scan.count() == 0
            assert [one.reason for one in scan.report.damage] == [reason]


def test_only_stdout_can_not_be_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketc.cli import info

    def fails(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", b"/a/file")

    monkeypatch.setattr(info, "take_inventory", fails)
    assert run("info", ".") == (3, "", "rocketc: /a/file: Permission denied\n")
    with pytest.raises(output.OutputError), output.writes_output():
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError), output.writes_output():
        raise PermissionError(errno.EACCES, "Permission denied", "/a/file")


def test_permissions_apply_to_the_tests(tmp_path: Path) -> None:
    """Also to root and to threads; and not longer than they should."""
    path = tmp_path / "file"
    path.write_text("text")
    refused: list[bool] = []

    def reads() -> None:
        try:
            path.read_text()
            refused.append(False)
        except PermissionError:
            refused.append(True)

    with permissions.unreadable(path):
        reads()
        thread = threading.Thread(target=reads)
        thread.start()
        thread.join()
    reads()
    assert refused == [True, True, False]


def _line(text: str, name: str) -> str:
    """The text beside a name, with its continuation lines joined."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{name} "))
    parts = [lines[at][len(name) :].strip()]
    for line in lines[at + 1 :]:
        if not line.startswith(" "):
            break
        parts.append(line.strip())
    return " ".join(parts)
