"""The files of a store besides log, queues and index: each is checked or named by verify and info."""

import json
import os
import shutil

import pytest
from support import stores
from support.derived import SMALL, fill

import rocketc
from rocketc.derived import timer_check
from rocketc.derived._timer_log import TimerLog
from rocketc.derived._timer_wheel import TimerWheel
from rocketc.jobs import other_files
from rocketc.jobs.inventory import take_inventory
from rocketc.jobs.other_files import check_other_files

pytestmark = pytest.mark.promise(6)

COMMANDS = ("verify", "info")


@pytest.fixture
def root(open_store, tmp_path):
    store = open_store(**SMALL)
    store.create_topic("T0")
    fill(store)
    return tmp_path


@pytest.fixture(params=COMMANDS)
def result(request, run, root):
    """result(): run `verify` or `info` on the store; exit code, the text in one line, errors by file."""

    def call():
        code, out, err = run(request.param, root)
        as_json = json.loads(run(request.param, root, "--json")[1])
        errors = {one["file"]: one["error"] for one in as_json["others"] if "error" in one}
        assert err == "" and all(name in out for name in errors)
        return code, " ".join(out.split()), errors

    return call


def states(root):
    return {one.file: one.state for one in check_other_files(str(root))}


def test_a_whole_store(root, result):
    code, out, errors = result()
    assert (code, errors) == (0, {})
    assert "others valid: checkpoint, config/topics.json(.bak), lock" in out


@pytest.mark.parametrize("name", [name for name in stores.NAMES if "torn" not in name])
def test_a_brokers_store(golden, name):
    path = golden(name).path
    found = check_other_files(str(path))
    assert [one for one in found if one.error is not None] == []
    assert "checkpoint" in {one.file for one in found if one.state == "valid"}
    assert rocketc.verify(path).others == take_inventory(str(path)).others == found


@pytest.mark.parametrize("size", [0, 1, 39])
def test_a_short_checkpoint(root, result, size):
    os.truncate(root / "checkpoint", size)
    code, _, errors = result()
    text = f"a checkpoint has at least 40 bytes, not {size}; opening the store for writing makes it again"
    assert (code, errors) == (1, {"checkpoint": text})
    rocketc.open(root, **SMALL).close()
    assert result()[0] == 0


def test_no_queues_beside_index_and_checkpoint(root, result):
    shutil.rmtree(root / "consumequeue")
    code, _, errors = result()
    assert code == 1 and list(errors) == ["consumequeue/"]
    assert "the checkpoint has a time of them and there is an index; run `rocketc rebuild" in errors["consumequeue/"]
    os.unlink(root / "checkpoint")
    code, _, errors = result()
    assert code == 1 and "no queue has a file, but there is an index; run" in errors["consumequeue/"]
    rocketc.rebuild(root)
    assert result()[0] == 0


def test_a_copy_of_the_log_alone(root, result):
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    assert result()[0] == 0 and states(root) == {"lock": "valid"}


@pytest.mark.parametrize("data", [b"{broken", b"", b"[1]", b'{"topicConfigTable":[]}'])
def test_a_broken_table(root, result, data):
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    (root / "config" / "topics.json").write_bytes(data)
    code, _, errors = result()
    assert code == 1 and list(errors) == ["config/topics.json"]
    assert errors["config/topics.json"].endswith("; restore it from a copy")


def test_a_broken_table_with_a_copy(root, result):
    table = root / "config" / "topics.json"
    shutil.copy(table, f"{table}.bak")
    table.write_bytes(b"{broken")
    code, _, errors = result()
    assert code == 1 and list(errors) == ["config/topics.json"]
    assert errors["config/topics.json"].endswith("; readers take topics.json.bak instead")
    (root / "config" / "topics.json.bak").write_bytes(b"{broken")
    assert list(result()[2]) == ["config/topics.json", "config/topics.json.bak"]


def test_a_table_that_a_broker_is_writing(root, monkeypatch):
    """RocketMQ before 5.0 overwrites a table in place: it is read again."""
    table = root / "config" / "topics.json"
    whole = table.read_bytes()
    table.write_bytes(whole[:10])
    (root / "abort").write_bytes(b"")
    monkeypatch.setattr(other_files.time, "sleep", lambda _: table.write_bytes(whole))
    assert states(root)["config/topics.json"] == "valid"


@pytest.mark.parametrize("name", ["checkpoint", "lock", "abort", "config/topics.json"])
def test_something_else_with_the_name_of_a_file(root, result, name):
    path = root / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if name == "lock":  # opened before, by other parts of the commands
        assert {one.file: one.error for one in check_other_files(str(root)) if one.error} == {
            name: "not a regular file"
        }
        return
    found = {one.file: one.error for one in check_other_files(str(root)) if one.error}
    assert "not a regular file" in found[name]


def test_files_that_are_not_checked_are_named(root, result):
    for name in ("zones", "notes.txt", "commitlog/notes", "index/notes", "consumequeue/notes", "config/notes"):
        (root / name).write_bytes(b"x")
    (root / "consumequeue" / "T0" / "notes").write_bytes(b"x")
    (root / "unknown").mkdir()
    for n in range(3):
        (root / "unknown" / f"{n:020d}").write_bytes(b"x")
    code, out, errors = result()
    assert (code, errors) == (0, {})
    names = "commitlog/notes, config/notes, consumequeue/T0/notes, consumequeue/notes, index/notes, notes.txt"
    assert f"not checked: {names}, unknown/ (3 files), zones" in out


def test_long_lists_are_shortened_unless_all_is_given(root, run):
    for n in range(30):
        (root / f"f{n:02d}").write_bytes(b"x")
    out = " ".join(run("verify", root)[1].split())
    assert "f19 and 10 more" in out and "f29" not in out
    assert "f29" in run("verify", root, "--all")[1]


def test_only_a_root_has_other_files(root):
    assert rocketc.verify(root / "commitlog").others == [] == take_inventory(str(root / "commitlog")).others


# ---------------------------------------------------------------- timed messages


@pytest.fixture
def timed(root):
    """A store with the files of timed messages."""
    (root / "config").mkdir(exist_ok=True)
    log = TimerLog(root / "timerlog", 16 + 3 * 52)
    log.load()
    wheel = TimerWheel(root / "timerwheel", 1000)
    for n in range(5):
        wheel.add(1_700_000_000_000 + n, log.put(-1, 1, 1_700_000_000_000, 0, phy_offset=n, size=9, topic_hash=1))
    timer_check.write(root / "config" / "timercheck", timer_check.TimerCheck(1_700_000_000_000))
    return root


def faults(root):
    return {one.file: one.error for one in check_other_files(str(root)) if one.error}


def test_files_of_timed_messages(timed):
    names = {one.file: one.state for one in check_other_files(str(timed)) if "timer" in one.file}
    logs = [f"timerlog/{n:020d}" for n in (0, 172)]
    assert names == dict.fromkeys(["config/timercheck", *logs, "timerwheel"], "valid")


@pytest.mark.parametrize(
    ("name", "at", "data", "error"),
    [
        ("config/timercheck", 0, b"\xff", "a time or an offset is impossible"),
        (
            "timerwheel",
            0,
            b"\0" * 7 + b"\5" + b"\0" * 7 + b"\1" + b"\0" * 8,
            "slot 0: time 5, units 1 to 0; a broker makes",
        ),
        ("timerlog/00000000000000000000", 52, b"\1", "byte 52 is after the last unit, which ends at 52"),
        ("timerlog/00000000000000000172", 171, b"\1", "byte 171 is after the last unit, which ends at 104"),
        ("timerlog/00000000000000000172", 52 + 15, b"\0", "is after the last unit, which ends at 52"),
    ],
)
def test_damaged_files_of_timed_messages(timed, name, at, data, error):
    with open(timed / name, "r+b") as file:
        file.seek(at)
        file.write(data)
    [(file, text)] = faults(timed).items()
    assert file == name and error in text


def test_files_of_timed_messages_with_wrong_sizes_and_names(timed):
    os.truncate(timed / "timerwheel", 33)
    os.truncate(timed / "config" / "timercheck", 20)
    os.truncate(timed / "timerlog" / f"{172:020d}", 100)
    (timed / "timerlog" / "notes").write_bytes(b"x")
    (timed / "timerlog" / "folder").mkdir()
    assert faults(timed) == {
        "config/timercheck": "a timercheck has at least 56 bytes, not 20; a broker reads the timer log instead",
        "timerwheel": "33 bytes are not slots of 32 bytes; a broker makes it again from the timer log",
        "timerlog/00000000000000000172": (
            "100 bytes can't be a file of the timer log that begins at 172; it is not read"
        ),
        "timerlog/notes": "not the name of a file of the timer log; it is not read",
    }
    assert "timerlog/folder/" in {one.file for one in check_other_files(str(timed)) if one.state == "not checked"}
