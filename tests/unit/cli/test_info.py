"""rocketc info: files, offsets, times, holes, damage, and whether the store was closed; fast, and without any write."""

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support import oracle, stores
from support.command import GrowingLog, Terminal, on_terminal, rocketc

from rocketc import open as open_store
from rocketc.cli import output
from rocketc.files.lock_file import AbortFile, StoreLock
from rocketc.jobs import inventory
from rocketc.report.text import show_size, show_time

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def info(run):
    """info(*args): run the command in this process. Return exit code, stdout, stderr."""
    return partial(run, "info")


@pytest.fixture
def told(info):
    """`told(*args)`: exit code and the JSON object of the output."""

    def run(*args):
        code, out, _ = info("--json", *args)
        assert out.count("\n") == 1
        return code, json.loads(out)

    return run


@pytest.fixture
def log(tmp_path):
    """A store of five files of 1 KiB; the last one is not full."""
    log = GrowingLog(tmp_path / "store" / "commitlog", file_size=1024)
    log.stamps = {}
    while log.end < 4 * 1024 + 300:
        stamp = T0 + 1000 * len(log.stamps)
        log.stamps[log.append("t", b"x" * 50, store_timestamp=stamp)] = stamp
    return log


def line(text, name):
    """Return what the table has after a name, with wrapped lines joined."""
    found = re.search(rf"^{name} +(.*(?:\n +.*)*)", text, re.M)
    return " ".join(found[1].split()) if found else None


# ---------------------------------------------------------------- golden stores


@pytest.mark.parametrize("name", stores.WHOLE)
def test_golden_stores_are_described_as_in_rocketmq(golden, told, info, name):
    store = golden(name)
    code, found = told(store.path)
    assert (code, found["holes"], found["damage"]) == (0, [], [])
    assert (found["path"], found["kind"]) == (str(store.path), "store")
    first, last = store.messages[0], store.messages[-1]
    assert (found["begin"], found["end"]) == (first["phyOffset"], last["phyOffset"] + last["size"])
    assert (found["firstStoreTimestamp"], found["lastStoreTimestamp"]) == (
        first["storeTimestamp"],
        last["storeTimestamp"],
    )
    assert [file["file"] for file in found["files"]] == [str(path) for path in store.log_files]
    starts = {}
    for record in reversed(store.messages):
        starts[record["phyOffset"] // found["files"][0]["size"] * found["files"][0]["size"]] = record["storeTimestamp"]
    for file, path in zip(found["files"], store.log_files, strict=True):
        size = path.stat()
        assert (file["physicalOffset"], file["size"]) == (int(path.name), size.st_size)
        assert file["allocated"] == size.st_blocks * 512
        assert file.get("storeTimestamp") == starts.get(file["physicalOffset"])  # a file may hold only a blank record
    in_last = [record for record in store.messages if record["phyOffset"] >= int(store.log_files[-1].name)]
    assert (found["lastFile"], found["lastFileMessages"]) == (str(store.log_files[-1]), len(in_last))
    told_by_oracle = oracle.checkpoint((store.path / "checkpoint").read_bytes())
    assert list(found["checkpoint"].values()) == list(told_by_oracle)
    assert found["abort"] == {"present": False}
    assert found["lock"] == {"present": True}
    queues = {path for kind in ("consumequeue", "batchconsumequeue") for path in (store.path / kind).glob("*/*")}
    assert found["consumeQueues"] == {"topics": len({path.parent.name for path in queues}), "queues": len(queues)}
    assert found["indexFiles"] == len(list((store.path / "index").iterdir()))

    code, text, err = info(store.path)
    assert (code, err) == (0, "")
    assert max(map(len, text.splitlines())) <= 80
    assert line(text, "state") == "no abort marker: shut down cleanly"
    assert line(text, "holes") == "none"
    assert all(path.name in text for path in store.log_files)


def test_bytes_cut_off_by_a_recovery_are_shown(golden, told, info, tmp_path):
    root = shutil.copytree(golden("v533-torn").path, tmp_path / "store")
    assert told(root)[1]["cut"] == {"files": 0, "bytes": 0}
    assert line(info(root)[1], "cut") is None
    open_store(root).close()
    (kept,) = (root / "cut").iterdir()
    assert told(root)[1]["cut"] == {"files": 1, "bytes": kept.stat().st_size}
    text = line(info(root)[1], "cut")
    assert text.startswith("16.2 KiB in 1 file that a recovery cut off the log: `rocketc cat ")
    assert text.replace(" ", "").endswith(f"{root}/cut`".replace(" ", ""))


@pytest.mark.parametrize("gone", ["deleted", "zeroed"])
def test_a_log_that_has_lost_its_end_is_not_whole(golden, info, tmp_path, gone):
    root = shutil.copytree(golden("v533-store").path, tmp_path / "store")
    stores.lose_end(root, gone)
    code, text, _ = info(root)
    assert code == 1
    assert line(text, "damage").startswith(
        "the end of the log is missing: the checkpoint has messages until 2026-11-21T08:10:5"
    )
    assert json.loads(info(root, "--json")[1])["hadMessagesUntil"] > T0
    (root / "abort").touch()  # a process may be writing to it
    assert info(root)[0] == 0


def test_the_flights_table(golden, info):
    """Checks the exact text, which the README quotes."""
    store = golden("flights-2013-01")
    _, text, _ = info(store.path)
    assert line(text, "offsets") == "0 to 14600195 (13.9 MiB), in 4 files"
    assert line(text, "times") == "2026-11-21T08:14:24.840Z to 2026-11-21T08:14:38.729Z (13 s)"
    assert line(text, "end") == "byte 2017283 of 00000000000012582912, after its 3727 messages"
    assert line(text, "queues") == "6 queues of 1 topic, 3 index files"
    assert "00000000000004194304  4.0 MiB  4.0 MiB  2026-11-21T08:14:31.831Z\n" in text


@pytest.mark.parametrize("name", ["v497-unclean", "v533-unclean", "v497-torn", "v533-torn"])
def test_stores_that_were_killed(golden, told, info, name):
    store = golden(name)
    pid = (store.path / "abort").read_text()
    code, found = told(store.path)
    assert found["abort"] == ({"present": True, "pid": int(pid)} if pid else {"present": True})
    assert found["files"][-1]["state"] == "empty"
    code_of_table, text, _ = info(store.path)
    who = f" of process {pid}" if pid else ""
    assert line(text, "state") == f"abort marker{who}: not shut down cleanly, or running"
    assert "made ahead, empty" in text
    if name.endswith("torn"):
        assert (code, code_of_table) == (1, 1)
        [damage] = found["damage"]
        assert (damage["reason"], damage["stop"]) == ("bad_length", found["end"])
        assert damage["file"] == found["lastFile"]
        assert f"{damage['stop'] - damage['start']} damaged bytes follow" in line(text, "end")
        assert line(text, "damage").startswith(
            f"{damage['start']} to {damage['stop']} in {Path(damage['file']).name}: bad"
        )
    else:
        assert (code, code_of_table, found["damage"]) == (0, 0, [])


def test_damage_in_the_middle_of_a_file_is_not_searched(golden, info):
    code, text, _ = info(golden("v533-bitrot").path)
    assert code == 0
    assert line(text, "damage") == "none found in the first record of each file and in the last file"


# ---------------------------------------------------------------- errors and unusual files


def test_a_log_folder_and_a_log_file_show_less(log, told, info):
    code, found = told(log.folder)
    assert (code, found["kind"], len(found["files"])) == (0, "commitlog", 5)
    assert not {"abort", "lock", "checkpoint", "consumeQueues", "indexFiles"} & set(found)
    code, found = told(log.file_at(1024))
    assert (code, found["kind"], found["begin"], found["end"]) == (0, "file", 1024, 2048)
    _, text, _ = info(log.file_at(1024))
    assert line(text, "file").replace(" ", "") == str(log.file_at(1024))  # a long path is wrapped
    assert line(text, "damage") == "none"


def test_a_log_file_with_another_name(log, told):
    path = log.file_at(2048).rename(log.folder / "copy.bin")
    code, found = told(path)
    assert (code, found["begin"], found["end"]) == (0, 2048, 3072)
    assert found["files"][0]["physicalOffset"] == 2048


def test_a_missing_file_is_a_hole(log, told, info):
    log.file_at(1024).unlink()
    code, found = told(log.folder)
    assert (code, found["holes"]) == (1, [{"kind": "missing", "start": 1024, "stop": 2048}])
    code, text, _ = info(log.folder)
    assert (code, line(text, "holes")) == (1, "1024 to 2048 (1.0 KiB): no file")


def test_a_short_file_is_a_hole(log, told, info):
    path = log.file_at(2048)
    os.truncate(path, 1000)
    code, found = told(log.folder)
    assert (code, found["holes"]) == (1, [{"kind": "short", "start": 3048, "stop": 3072, "file": str(path)}])
    _, text, _ = info(log.folder)
    assert line(text, "holes") == f"3048 to 3072 (24 B): cut off {path.name}"


def punch(path, start, stop):
    """Make a hole in a file, or skip the test."""
    done = subprocess.run(
        ["fallocate", "--punch-hole", "--offset", str(start), "--length", str(stop - start), path], capture_output=True
    )
    if done.returncode != 0:
        pytest.skip("no holes on this file system")


def test_sparse_parts_are_holes_if_data_follows(tmp_path, told, info):
    log = GrowingLog(tmp_path / "commitlog", file_size=1 << 16)
    while log.end < 3 << 16:
        log.append("t", b"x" * 50)
    path = log.file_at(0)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    punch(path, 8192, 16384)
    hole = {"kind": "sparse", "start": 8192, "stop": 16384, "file": str(path)}
    assert told(tmp_path)[1]["holes"] == [hole]
    punch(path, 40960, 1 << 16)  # a hole at the end was never written
    code, found = told(tmp_path)
    assert (code, found["holes"]) == (1, [hole])
    _, text, _ = info(tmp_path)
    assert line(text, "holes") == f"8192 to 16384 (8.0 KiB): never written in {path.name}, but data follows"


def spoil(path, at, data):
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), data, at)


@pytest.mark.parametrize("data", [b"\xff" * 20, bytes(1024)], ids=["garbage", "zeros"])
def test_a_damaged_first_record(log, told, info, data):
    path = log.file_at(2048)
    spoil(path, 0, data)
    code, found = told(log.folder)
    [damage] = found["damage"]
    reason = "zeroed" if data[0] == 0 else "bad_size"
    assert (code, damage["start"], damage["reason"], damage["file"]) == (1, 2048, reason, str(path))
    assert damage["stop"] == (3072 if data[0] == 0 else 2048 + 142)
    row = found["files"][2]
    assert (row["state"], "storeTimestamp" in row) == (reason, False)
    code, text, _ = info(log.folder)
    assert code == 1
    assert re.search(rf"^{path.name} .*B  {reason}$", text, re.M)


def test_the_first_time_is_that_of_the_first_readable_record(log, told):
    spoil(log.file_at(0), 0, b"\xff")
    assert told(log.folder)[1]["firstStoreTimestamp"] == log.stamps[1024]


def test_damage_in_the_last_file(log, told):
    spoil(log.file_at(4096), 142 + 95, b"y")
    code, found = told(log.folder)
    [damage] = found["damage"]
    assert (code, damage["start"], damage["reason"]) == (1, 4096 + 142, "bad_body_crc")
    assert found["lastFileMessages"] == 2


def test_a_file_with_only_a_blank_record(tmp_path, told):
    """A broker that is asked to store a message larger than a file leaves such a file."""
    record = oracle.encode("t", b"x", phy_offset=1024)
    (tmp_path / f"{0:020d}").write_bytes(oracle.encode_blank(1024))
    (tmp_path / f"{1024:020d}").write_bytes(record.ljust(1024, b"\0"))
    code, found = told(tmp_path)
    assert (code, found["damage"], found["begin"]) == (0, [], 0)
    assert "state" not in found["files"][0]


def test_a_log_without_a_message(tmp_path, told, info):
    (tmp_path / f"{0:020d}").write_bytes(bytes(4096))
    code, found = told(tmp_path)
    assert (code, found["files"][0]["state"], found["begin"], found["end"]) == (0, "empty", 0, 0)
    code, text, err = info(tmp_path)
    assert (code, err) == (0, f"rocketc: nothing to read: {tmp_path}\n")
    assert text.endswith("  empty\n")


def test_a_log_that_does_not_begin_at_zero(log, told):
    for offset in (0, 1024):
        log.file_at(offset).unlink()
    code, found = told(log.folder)
    assert (code, found["begin"], found["holes"]) == (0, 2048, [])


def test_an_unreadable_file(log, told, info, monkeypatch):
    opened = os.open
    victims = {str(log.file_at(1024)), str(log.file_at(4096))}

    def refuse(path, *more, **options):
        if path in victims:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    code, found = told(log.folder)
    assert code == 1
    assert [file.get("state") for file in found["files"]][1::3] == ["unreadable: Permission denied"] * 2
    assert found["firstStoreTimestamp"] == T0
    code, text, err = info(log.folder)
    assert (code, err) == (1, "")
    assert "unreadable: Permission denied" in text


def test_checkpoints(log, told, info):
    root = log.folder.parent
    fields = [T0 + 1, 0, T0 + 3, 4, 5]
    (root / "checkpoint").write_bytes(struct.pack(">5q", *fields).ljust(4096, b"\0"))
    assert list(told(root)[1]["checkpoint"].items()) == list(zip(inventory.CHECKPOINT_FIELDS, fields, strict=True))
    assert line(info(root)[1], "flushed") == "log 2023-11-14T22:13:20.001Z queues never index 2023-11-14T22:13:20.003Z"
    (root / "checkpoint").write_bytes(b"\xff" * 4096)
    code, text, _ = info(root)
    assert (code, line(text, "flushed")) == (
        0,
        "log -1ms queues -1ms index -1ms".replace("-1ms", "1969-12-31T23:59:59.999Z"),
    )
    for junk in (b"", b"123"):
        (root / "checkpoint").write_bytes(junk)
        code, found = told(root)
        assert (code, "checkpoint" in found) == (1, False)
        assert [one["file"] for one in found["others"] if "error" in one] == ["checkpoint"]


def test_an_abort_marker_with_something_else_in_it(log, told):
    for junk, pid in ((b"", None), (b"17\n", 17), (b"\xff\xfe", None), (b"-5", None), (b"0", None), (b"9" * 40, None)):
        (log.folder.parent / "abort").write_bytes(junk)
        expected = {"present": True} if pid is None else {"present": True, "pid": pid}
        assert told(log.folder.parent)[1]["abort"] == expected


def test_an_unreadable_abort_marker_counts(log, told, info):
    (log.folder.parent / "abort").symlink_to("nowhere")
    assert told(log.folder.parent)[1]["abort"] == {"present": True}
    assert line(info(log.folder.parent)[1], "state") == "abort marker: not shut down cleanly, or running"


@pytest.mark.skipif(sys.platform != "linux", reason="locks are queried on Linux only")
def test_a_store_in_use_names_the_process(log, told, info):
    root = log.folder.parent
    (root / "abort").touch()
    (root / "lock").write_bytes(b"lock")
    hold = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, root / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        assert told(root)[1]["lock"] == {"present": True, "pid": holder.pid}
        assert line(info(root)[1], "state") == f"in use: process {holder.pid} holds the lock"
        holder.stdin.close()
    assert told(root)[1]["lock"] == {"present": True}
    with open(root / "lock", "r+b") as file:  # info has left no lock
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="locks are queried on Linux only")
def test_a_store_open_in_rocketc_names_the_process_if_its_id_is_known(log, told, info):
    root = log.folder.parent
    lock = StoreLock(root)
    assert told(root)[1]["lock"] == {"present": True, "pid": None}
    assert line(info(root)[1], "state") == "in use: an unknown process holds the lock"
    AbortFile(root).create()
    assert told(root)[1]["lock"] == {"present": True, "pid": os.getpid()}
    assert line(info(root)[1], "state") == f"in use: process {os.getpid()} holds the lock"
    lock.release()
    assert told(root)[1]["lock"] == {"present": True}


# ---------------------------------------------------------------- promises


def snapshot(root):
    out = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        out[path] = (stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, content)
    return out


@pytest.mark.parametrize("name", ["v533-broker", "v497-torn"])
def test_nothing_is_created_or_changed(golden, tmp_path, name):
    store = stores.unpack(name, tmp_path)
    before = snapshot(store.path)
    for args in (["info"], ["info", "--json"], ["cat"], ["cat", "-o", "-1"]):
        assert rocketc(*args, store.path).returncode in (0, 1)
    assert snapshot(store.path) == before


@pytest.mark.measure
def test_a_terabyte_takes_seconds(tmp_path, told):
    """1,024 sparse files of 1 GiB: info only reads the first record of each file, and the last file."""
    gib = 1 << 30
    for i in range(1024):
        path = tmp_path / f"{i * gib:020d}"
        path.write_bytes(oracle.encode("t", b"x", phy_offset=i * gib, store_timestamp=T0 + i))
        os.truncate(path, gib)
    before = time.process_time()
    code, found = told(tmp_path)
    assert time.process_time() - before < 5, "the kernel reads ahead bytes that are not used"
    assert (code, len(found["files"])) == (0, 1024)
    assert (found["firstStoreTimestamp"], found["lastStoreTimestamp"]) == (T0, T0 + 1023)
    assert 1023 * gib < found["end"] < 1023 * gib + 200
    shutil.rmtree(tmp_path)


# ---------------------------------------------------------------- layout


def test_a_long_list_of_files_is_shortened_unless_all_is_given(tmp_path, info):
    log = GrowingLog(tmp_path / "commitlog", file_size=256)
    for _ in range(100):
        log.append("t", b"x" * 50)
    rows = re.compile(r"^\d{20} ", re.M)
    code, text, _ = info(tmp_path)
    assert (code, len(rows.findall(text))) == (0, 24)
    assert "76 more, --all shows them" in text
    code, text, _ = info("--all", tmp_path)
    assert (code, len(rows.findall(text))) == (0, 100)


def test_much_damage_is_shortened_too(tmp_path, info):
    log = GrowingLog(tmp_path / "commitlog", file_size=256)
    for _ in range(60):
        spoil(log.file_at(log.append("t", b"x" * 50)), 90, b"y")
    code, text, _ = info(tmp_path)
    assert (code, text.count("bad_body_crc (the body")) == (1, 24)
    assert text.count("36 more, --all shows them") == 2
    assert info(tmp_path, "--all")[1].count("bad_body_crc (the body") == 60


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_table_fits_the_terminal(log, columns):
    code, text = on_terminal("info", log.folder, columns=columns, env={"NO_COLOR": "1"})
    assert code == 0
    assert max(map(len, text.splitlines())) <= max(columns, 60)
    table = text[text.index("first message") :]
    assert table.count("000Z") == 5  # no value is cut off
    assert table.count(show_time(log.stamps[1024])) == (columns >= 80)


def test_the_table_is_80_columns_wide_without_a_terminal(tmp_path):
    folder = tmp_path / ("long" * 40) / "commitlog"
    GrowingLog(folder).append("t", b"x")
    done = rocketc("info", folder)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) == 80


def test_hostile_names_stay_harmless(tmp_path):
    folder = tmp_path / "a\x1b[31m[bold]b" / "commitlog"
    GrowingLog(folder).append("t", b"x")
    code, text = on_terminal("info", folder.parent, columns=200, env={"NO_COLOR": "1"})
    assert (code, "\x1b" in text) == (0, False)
    assert "a\\x1b[31m[bold]b" in text


def test_sizes():
    assert [show_size(n) for n in (0, 1023, 1024, 1 << 20, (1 << 30) - 1, 5 << 30, 3 << 40, 5 << 50)] == [
        "0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 GiB", "5.0 GiB", "3.0 TiB", "5120.0 TiB",
    ]  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False])
def test_a_large_last_file_shows_a_progress_bar(log, monkeypatch, terminal):
    stderr = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    monkeypatch.setattr(inventory, "_PROGRESS_EVERY", 1)
    assert inventory.take_inventory(str(log.folder), output.progress).is_whole
    assert ("reading the last file" in stderr.getvalue()) == terminal
    assert terminal or stderr.getvalue() == ""
