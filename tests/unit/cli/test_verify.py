"""rocketc verify: its output for people and programs; what verify finds is tested in jobs/test_verify.py."""

import json
import os
import re
import shutil
from functools import partial

import pytest
from support import stores
from support.command import GrowingLog, Terminal, on_terminal, rocketc

from rocketc.cli import output
from rocketc.jobs.verify import verify as check

T0 = 1_700_000_000_000


@pytest.fixture
def verify(run):
    """verify(*args): run the command in this process. Return exit code, stdout, stderr."""
    return partial(run, "verify")


@pytest.fixture
def log(tmp_path):
    """A store of five files of 1 KiB; the last one is not full."""
    log = GrowingLog(tmp_path / "store" / "commitlog", file_size=1024)
    while log.end < 4 * 1024 + 300:
        log.append("t", b"x" * 50, store_timestamp=T0 + log.end)
    return log


def line(text, name):
    """Return what the table has after a name, with wrapped lines joined."""
    found = re.search(rf"^{name} +(.*(?:\n +.*)*)", text, re.M)
    return " ".join(found[1].split()) if found else None


def advice(text):
    return (line(text, "advice") or "").replace(" ", "")


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_stores(golden, verify, name):
    store = golden(name)
    code, out, err = verify(store.path, "--json")
    assert (code, err, out.count("\n")) == (0 if name in stores.WHOLE or "unclean" in name else 1, "", 1)
    assert json.loads(out) == {"path": [str(store.path)], **check(store.path).to_dict()}
    code_of_table, text, err = verify(store.path)
    assert (code_of_table, err) == (code, "")
    assert max(map(len, text.splitlines())) <= 80
    assert all(path.name in text for path in store.log_files)
    assert (line(text, "damage") == "none") == (code == 0)
    if "torn" in name:
        assert "torn tail, bad_length (the record's size is not the sum of its parts)" in line(text, "damage")
        assert re.search(r"^\d{20} .*  torn tail, \d+ B lost$", text, re.M)
        assert text.endswith("made ahead, empty\n")


def test_the_table_of_a_damaged_store(golden, verify):
    """Checks the exact text."""
    path = golden("v533-bitrot").path
    _, text, _ = verify(path)
    assert line(text, "log").replace(" ", "") == str(path)
    assert text[text.index("checked") :].splitlines()[:7] == [
        "checked  1499 records of 6 queues, in 10 files",
        "times    2026-11-21T08:14:43.118Z to 2026-11-21T08:14:53.059Z",
        "damage   361670 to 361996 in 00000000000000327680: bad_body_crc (the body does",
        "         not match its CRC)",
        "queues   CrashB/0: 133 missing, before byte 362596 of the log",
        "units    1500 units of 6 queues as the log says",
        "index    2000 keys as the log says",
    ]
    assert advice(text) == f"`rocketcsalvage{path}NEW`copiesallreadablerecords"
    assert text[text.index("\nfile ") + 1 :].splitlines()[:3] == [
        "file                      size  records  state",
        "00000000000000000000  64.0 KiB      149  whole",
        "00000000000000065536  64.0 KiB      154  whole",
    ]
    assert "\n00000000000000327680  64.0 KiB      160  1 damaged range, 326 B lost\n" in text
    assert text.endswith("00000000000000589824  64.0 KiB      120  whole; the log ends in it\n")


def test_messages_of_inner_batches_are_counted(golden, verify):
    assert line(verify(golden("v533-broker").path)[1], "checked") == (
        "1530 records (1659 messages) of 45 queues, in 4 files"
    )


def test_findings(log, verify, monkeypatch):
    log._queues["t", 0] += 3
    log.append("t", b"past the gap", store_timestamp=T0 - 90_000)
    log._queues["t", 0] = 5
    log.append("t", b"again", store_timestamp=T0 - 90_000)
    log.file_at(1024).unlink()
    opened = os.open

    def refuse(path, *more, **options):
        if path == str(log.file_at(2048)):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    code, text, err = verify(log.folder)
    assert (code, err) == (1, "")
    assert line(text, "damage") == "none"
    assert line(text, "files") == "1024 to 2048 (1.0 KiB): no file 00000000000000002048: Permission denied"
    queues = line(text, "queues")
    assert re.search(r"t/0: \d+ to \d+ missing, before byte 3072 of the log", queues)
    assert re.search(r"t/0: 5 more than once, again from byte \d+ of the log$", queues)
    assert line(text, "clock").startswith("1 step back in 00000000000000004096, by up to 1 min 34 s, first at byte ")
    assert re.search(r"^00000000000000002048 .*  unreadable: Permission denied$", text, re.M)
    assert max(map(len, text.splitlines())) <= 80


def test_long_lists_are_shortened_unless_all_is_given(tmp_path, verify):
    log = GrowingLog(tmp_path / "commitlog", file_size=1024)
    for n in range(200):
        log._queues["t", 0] = 2 * n
        log.append("t", b"x" * 300)
    _, text, _ = verify(tmp_path)
    assert text.count(" missing, before byte ") == 24 and "... 175 more, --all shows them" in text
    _, text, _ = verify(tmp_path, "--all")
    assert text.count(" missing, before byte ") == 199 and "--all" not in text


def test_advice_matches_the_errors(golden, verify, tmp_path):
    root = shutil.copytree(golden("v533-store").path, tmp_path / "store")
    assert advice(verify(root)[1]) == ""
    shutil.rmtree(root / "index")
    next((root / "consumequeue").glob("*/0/*")).unlink()
    assert advice(verify(root)[1]) == f"`rocketcrebuild{root}`rebuildsqueuesandindexfromthelog"
    files = sorted(path for path in (root / "commitlog").iterdir() if path.read_bytes().strip(b"\0"))
    with open(files[1], "r+b") as file:
        file.seek(100)
        file.write(bytes(400))
    assert advice(verify(root)[1]) == f"`rocketcsalvage{root}NEW`copiesallreadablerecords"


@pytest.mark.parametrize("gone", ["deleted", "zeroed"])
def test_advice_where_the_log_has_lost_its_end(golden, verify, tmp_path, gone):
    """A rebuild of the queues would remove the only trace of the lost messages."""
    root = shutil.copytree(golden("v533-store").path, tmp_path / "store")
    stores.lose_end(root, gone)
    code, text, _ = verify(root)
    assert code == 1
    words = r"queues point to (\d+) messages after the end of the log: is a file missing\? opening or rebuilding "
    found = re.fullmatch(words.replace(" ", "") + "dropsthem", advice(text))
    assert int(found[1]) > 10


def test_no_advice_for_a_torn_tail(golden, verify):
    """The next open() cuts it off."""
    text = verify(golden("v533-torn").path)[1]
    assert "torn tail" in text and "salvage" not in advice(text)


def test_holes_are_reported(tmp_path, verify):
    import subprocess

    log = GrowingLog(tmp_path / "commitlog", file_size=1 << 17)
    log.append("t", bytes(70_000))
    log.append("t", b"x")
    data = log.file_at(0).read_bytes()
    log.file_at(0).unlink()
    log.file_at(0).write_bytes(data)
    done = subprocess.run(["fallocate", "--dig-holes", log.file_at(0)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("no holes on this file system")
    code, text, _ = verify(tmp_path)
    assert code == 0
    assert line(text, "holes").endswith(" in 00000000000000000000: never written, or cut out")


def test_a_log_without_a_record(tmp_path, verify):
    (tmp_path / f"{0:020d}").write_bytes(bytes(4096))
    code, text, err = verify(tmp_path)
    assert (code, err) == (0, f"rocketc: nothing to read: {tmp_path}\n")
    assert text.endswith("  empty\n")


def test_several_paths_and_jobs(log, verify):
    paths = [log.file_at(0), log.file_at(2048)]
    code, out, _ = verify("--json", "--jobs", 1, *paths)
    told = json.loads(out)
    assert (code, told["path"], told["missing"]) == (1, list(map(str, paths)), [{"start": 1024, "stop": 2048}])
    assert verify("--json", "--jobs", 3, *paths)[1] == out


def test_long_work_shows_a_progress_bar_on_stderr(log, verify, monkeypatch):
    import sys

    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    code, out, _ = verify("--json", log.folder)
    assert (code, out.count("\n")) == (0, 1)
    assert "checking" in stderr.getvalue()


def test_color_is_for_terminals(golden):
    path = golden("v533-bitrot").path
    code, text = on_terminal("verify", path)
    assert (code, "\x1b[31m" in text) == (1, True)
    assert "\x1b[" not in on_terminal("verify", path, env={"NO_COLOR": "1"})[1]
    assert b"\x1b[" not in rocketc("verify", path).stdout


def test_hostile_names_stay_harmless(tmp_path):
    log = GrowingLog(tmp_path / "a\x1b[31mb" / "commitlog")
    topic = "t\x1b]0;x\x07\u202e"
    log.append(topic, b"")
    log._queues[topic, 0] = 7
    log.append(topic, b"")
    for args in ([], ["--json"]):
        code, text = on_terminal("verify", log.folder.parent, *args, env={"NO_COLOR": "1"})
        assert code == 1 and not {"\x1b", "\x07", "\u202e"} & set(text)


def test_ctrl_c(log, verify, monkeypatch):
    """tests/unit/jobs/test_verify.py checks that the threads stop."""

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("rocketc.cli.verify.check", interrupted)
    assert verify(log.folder) == (130, "", "")
