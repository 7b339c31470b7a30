"""rocketc clean as users run it: the plan and its reasons, the deleted files, and the refused calls."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
from functools import partial

import pytest
from support import stores
from support.command import environment, start

import rocketc as library
from rocketc.files.lock_file import StoreLock

HOUR = 3600
SIZE = 4096


@pytest.fixture
def call(run_here):
    return partial(run_here, "clean")


@pytest.fixture
def store(tmp_path):
    """store(*ages): create the store `s` with one log file per age, in hours since its modification."""

    def make(*ages):
        root = tmp_path / "s"
        with library.open(root, mapped_file_size_commit_log=SIZE, max_hash_slot_num=50, max_index_num=20) as opened:
            for number in range(3 * len(ages)):  # three messages in each file
                opened.put("orders", b"%03d" % number + bytes(1100), keys=f"k{number}", queue_id=number % 2)
        for name in files(root)[len(ages) :]:  # files created in advance
            (root / "commitlog" / name).unlink()
        age(root, *ages)
        return root

    return make


def age(root, *ages):
    for name, hours in zip(files(root), ages, strict=True):
        when = time.time() - hours * HOUR
        os.utime(root / "commitlog" / name, (when, when))


def files(root):
    return sorted(os.listdir(root / "commitlog"))


def everything(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


# ---------------------------------------------------------------- plans
def test_a_dry_run_prints_the_plan_and_writes_nothing(call, store):
    root = store(100, 90, 80, 2, 1)
    before, times = everything(root), [os.stat(root / "commitlog" / name).st_mtime for name in files(root)]
    code, out, err = call("s", "--dry-run")
    assert (code, err) == (0, "")
    assert everything(root) == before
    assert [os.stat(root / "commitlog" / name).st_mtime for name in files(root)] == times
    assert "would go  3 files of the log" in out
    assert re.search(r"stays     2 files, from 0+12288 on, changed \S+Z:\s+it\s+is\s+younger than 72 h", out), out
    for number in range(3):
        assert re.search(rf"4.0 KiB  \S+Z  older than 72 h +commitlog/{number * SIZE:020d}\n", out), out
    assert f"commitlog/{3 * SIZE:020d}" not in out


def test_a_dry_run_of_a_store_that_is_open(call, store):
    root = store(100, 1)
    lock = StoreLock(root)
    code, out, _ = call("s", "-n")
    lock.release()
    assert code == 0 and "would go  1 file of the log" in out


@pytest.mark.parametrize(("older", "count"), [("3d", 2), ("72h", 2), ("95h", 1), ("90m", 3), ("200h", 0), ("0s", 4)])
def test_the_age_option(call, store, older, count):
    store(100, 90, 3, 0, 0)
    code, out, _ = call("s", "-n", "--older-than", older, "--json")
    told = json.loads(out)
    assert code == 0
    assert sum(one["kind"] == "commitlog" for one in told["deleted"]) == count
    assert told["minPhyOffset"] == count * SIZE


def test_as_json(call, store):
    root = store(100, 90, 1)
    queues = (root / "consumequeue").exists()
    code, out, err = call("s", "--dry-run", "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told["path"] == "s" and told["dry"] is True and told["because"][-1] == "it was requested"
    assert [one["path"] for one in told["deleted"] if one["kind"] == "commitlog"] == [
        str(root / "commitlog" / name) for name in files(root)[:2]
    ]
    assert told["size"] == sum(one["size"] for one in told["deleted"])
    assert told["kept"]["path"] == str(root / "commitlog" / files(root)[2]) and told["kept"]["files"] == 1
    assert set(told["disks"]) == {str(root / "commitlog"), str(root / "consumequeue" if queues else root)}


@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "flights-2013-01"])
def test_a_brokers_store(call, golden, name):
    root = golden(name).path
    count = len(files(root))
    code, out, _ = call(root, "-n", "--older-than", "0s")
    assert code == 0 and f"would go  {count - 1} files of the log, and" in out and "index" in out


def test_as_a_broker_would(call, store, tmp_path):
    """Its hours, its disk, ten files in a run."""
    store(*[100] * 15)
    (tmp_path / "broker.conf").write_text(f"deleteWhen={time.localtime().tm_hour}\nbrokerName=b\n")
    code, out, err = call("s", "-n", "--as-broker", "--conf", "broker.conf")
    assert (code, err) == (0, "")
    assert "would go  10 files of the log" in out and "a run deletes at most 10 files" in " ".join(out.split())
    assert re.search(r"why now   it is \d+ o'clock", out)
    code, out, err = call("s", "-n", "--as-broker", "--conf", "broker.conf", "--older-than", "1h")
    assert code == 2 and "exclude each other" in err


@pytest.mark.parametrize("crashed", [True, False])
def test_files_of_a_killed_writer_are_flushed_before_files_are_deleted(store, call, monkeypatch, crashed):
    """Otherwise a power cut could remove the ends of the queues, while the log no longer has their offsets."""
    root = store(100, 99, 1)
    if crashed:
        (root / "abort").write_text("1")
    seen = []
    monkeypatch.setattr(os, "sync", lambda: seen.append(files(root)))
    before = files(root)
    assert call("s", "--yes", "--older-than", "72h")[0] == 0
    assert files(root) == before[2:]
    assert seen == ([before] if crashed else [])


# ---------------------------------------------------------------- deletions
def test_files_are_deleted_and_the_store_stays_usable(call, store):
    root = store(100, 90, 80, 2, 1)
    messages = list(library.scan(root))
    code, out, err = call("s", "--yes")
    assert (code, err) == (0, "")
    assert files(root) == [f"{3 * SIZE:020d}", f"{4 * SIZE:020d}"]
    assert "deleted  3 files of the log" in out
    assert [m.body for m in library.scan(root)] == [m.body for m in messages if m.phy_offset >= 3 * SIZE]
    with library.open(root, mapped_file_size_commit_log=SIZE) as opened:
        assert opened.min_phy_offset == 3 * SIZE
        assert opened.put("orders", b"goes on").phy_offset == messages[-1].phy_offset + messages[-1].store_size


@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "flights-2013-01", "v533-torn", "v497-unclean"])
def test_queues_and_index_of_a_broker_are_cleaned(call, tmp_path, name):
    """Also after a kill of the broker: open() recovers the rest of the store."""
    root = stores.unpack(name, tmp_path).path
    sizes = {os.path.getsize(root / "commitlog" / one) for one in files(root)}
    plan = json.loads(call(root, "-n", "--older-than", "0s", "--json")[1])
    code, out, err = call(root, "--yes", "--older-than", "0s", "--json")
    done = json.loads(out)
    assert (code, err) == (0, "")
    for changing in ("now", "disks", "dry", "because"):
        del plan[changing], done[changing]
    for one in (plan, done):
        for each in [*one["deleted"], one["kept"]]:
            del each["age"]
    assert plan == done
    assert not any(os.path.exists(one["path"]) for one in done["deleted"])
    least = done["minPhyOffset"]
    assert least == int(files(root)[0]) == max(sizes) * (len(plan["deleted"]) and least // max(sizes))
    for queue in [*(root / "consumequeue").glob("*/*"), *(root / "batchconsumequeue").glob("*/*")]:
        kept = sorted(queue.iterdir())
        unit = 46 if queue.parts[-3].startswith("batch") else 20
        for path in kept[:-1]:  # every file except the last refers to an existing record
            assert max(at for (at,) in struct.iter_unpack(f">q{unit - 8}x", path.read_bytes())) >= least
    for path in sorted((root / "index").iterdir())[:-1]:
        assert struct.unpack_from(">q", path.read_bytes(), 24)[0] >= least
    assert json.loads(call(root, "--yes", "--older-than", "0s", "--json")[1])["deleted"] == []


def test_the_plan_equals_the_deletions(call, store):
    store(100, 90, 80, 2, 1)
    plan = json.loads(call("s", "-n", "--json")[1])
    done = json.loads(call("s", "--yes", "--json")[1])
    assert [one["path"] for one in plan["deleted"]] == [one["path"] for one in done["deleted"]]
    assert done["dry"] is False
    assert not any(os.path.exists(one["path"]) for one in plan["deleted"])
    assert json.loads(call("s", "--yes", "--json")[1])["deleted"] == []


def test_files_in_read_only_folders_stay(call, store, tmp_path):
    root = store(100, 90, 80, 1)
    (tmp_path / "old").mkdir()
    for name in files(root)[:2]:
        shutil.move(root / "commitlog" / name, tmp_path / "old" / name)
    (tmp_path / "broker.conf").write_text(f"readOnlyCommitLogStorePaths={tmp_path}/old\n")
    code, out, _ = call("s", "--yes", "--conf", "broker.conf")
    assert code == 0 and "deleted  nothing" in out and "in a read-only folder" in " ".join(out.split())
    assert len(os.listdir(tmp_path / "old")) == 2


def test_a_file_that_cannot_be_deleted(call, store, monkeypatch):
    root = store(100, 90, 1)

    def refused(path, *more, **options):
        raise PermissionError(1, "Operation not permitted", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refused)
        code, out, err = call("s", "--yes")
    assert (code, out) == (3, "") and f"{root}/commitlog/{0:020d}: Operation not permitted" in err
    assert call("s", "--yes")[0] == 0  # the lock was released


def test_more_than_a_broker_deletes_in_a_run(call, store):
    root = store(*[100] * 25, 1)
    code, _, _ = call("s", "--yes")
    assert code == 0 and files(root)[0] == f"{25 * SIZE:020d}"


def test_the_last_file_stays_whatever_its_age(call, store):
    root = store(500, 500)
    code, out, _ = call("s", "--yes", "--older-than", "1h")
    assert code == 0 and files(root)[0] == f"{SIZE:020d}" and "it is the last one" in " ".join(out.split())


@pytest.mark.parametrize("options", [(), ("--as-broker",)])
def test_a_full_disk(tmp_path, store, options):
    """The full disk is shown in the table only. Younger files stay, unless the rules of a broker apply."""
    root = store(100, 2, 1)
    code = (
        "import os, sys, types\n"
        "disk = types.SimpleNamespace(f_frsize=4096, f_blocks=100, f_bfree=5, f_bavail=5)\n"
        "os.statvfs = lambda path: disk\n"
        "from rocketc.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "clean", str(root), "--yes", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(COLUMNS="100"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "commitlog 95 %" in " ".join(done.stdout.split())
    assert len(files(root)) == (1 if options else 2)


# ---------------------------------------------------------------- the question
def answered(answer, *args, meanwhile=lambda: None, **options):
    """Run `rocketc clean ARGS` on a terminal and type the answer to its question, if it asks.

    Return its exit code, what the terminal got, and stdout if `options` make it a pipe.
    """
    ours, its = pty.openpty()

    def own_terminal():  # so that Ctrl-C becomes a signal
        os.setsid()
        fcntl.ioctl(its, termios.TIOCSCTTY, 0)

    options = {"stdin": its, "stdout": its, "stderr": its, "preexec_fn": own_terminal, "pass_fds": [its]} | options
    process = start("clean", *args, env={"COLUMNS": "100", "NO_COLOR": "1"}, **options)
    os.close(its)
    told = b""
    try:
        while part := os.read(ours, 1 << 16):
            told += part
            if answer and b" [y/N] " in told:
                meanwhile()
                os.write(ours, answer)
                answer = b""
    except OSError:  # EIO: the other end is closed
        pass
    os.close(ours)
    out = process.communicate(timeout=60)[0]
    return process.returncode, told.decode().replace("\r\n", "\n"), out


@pytest.mark.parametrize("answer", ["y", "Y", "yes", " Yes "])
def test_on_a_terminal_the_files_are_shown_and_deleted_after_yes(store, answer):
    root = store(100, 90, 80, 2, 1)
    code, text, _ = answered(f"{answer}\n".encode(), root)
    assert code == 0 and files(root) == [f"{3 * SIZE:020d}", f"{4 * SIZE:020d}"], text
    plan, question, report = re.split(r"(rocketc: delete .*)\n", text)
    assert "would go  3 files of the log" in plan and f"commitlog/{2 * SIZE:020d}" in plan
    total = re.search(r"would go  (.*)\n", plan)[1]
    assert question == f"rocketc: delete {total}? [y/N] {answer}"
    assert f"deleted  {total}\n" in report


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"no\n", b"yn\n", b"\x04"], ids=repr)
def test_any_other_answer_deletes_nothing(store, answer):
    root = store(100, 90, 1)
    before = everything(root)
    code, text, _ = answered(answer, root)
    assert code == 1 and text.endswith("\nrocketc: nothing deleted\n"), text
    assert everything(root) == before | {"lock": b"lock"}
    StoreLock(root).release()


def test_ctrl_c_at_the_question(store):
    root = store(100, 90, 1)
    before = everything(root)
    code, text, _ = answered(b"\x03", root)
    assert code == 130 and text.rstrip("\n").endswith("[y/N] ^C"), text  # a terminal may be closed before the newline
    assert everything(root) == before | {"lock": b"lock"}


def test_json_after_the_question(store):
    """Plan and question are on stderr, so stdout is one object."""
    root = store(100, 90, 1)
    code, text, out = answered(b"y\n", root, "--json", stdout=subprocess.PIPE)
    assert code == 0 and "would go  2 files of the log" in text
    assert json.loads(out)["dry"] is False and len(files(root)) == 1


def test_only_the_files_that_were_shown_are_deleted(store):
    """A file that becomes old during the question stays."""
    root = store(100, 90, 2, 1)
    code, text, _ = answered(b"y\n", root, meanwhile=lambda: age(root, 100, 90, 80, 1))
    assert code == 0 and "delete 2 files" in text and files(root)[0] == f"{2 * SIZE:020d}"


def test_no_writer_can_start_during_the_question(store):
    root = store(100, 90, 1)

    def meanwhile():
        with pytest.raises(library.StoreLockedError):
            StoreLock(root)

    assert answered(b"y\n", root, meanwhile=meanwhile)[0] == 0


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_no_question_with_yes_or_if_nothing_would_go(store, options):
    root = store(100, 90, 1) if options else store(3, 1)
    code, text, _ = answered(b"", root, *options)
    assert code == 0 and "[y/N]" not in text and ("deleted  2 files" if options else "deleted  nothing") in text


@pytest.mark.parametrize("options", [{"stdin": subprocess.DEVNULL}, {"stderr": subprocess.DEVNULL}], ids=str)
def test_without_a_terminal_to_ask_nothing_is_deleted(store, options):
    root = store(100, 90, 1)
    before = everything(root)
    code, text, _ = answered(b"", root, **options)
    assert code == 2 and everything(root) == before and "[y/N]" not in text


def test_a_script_learns_what_to_add(call, store):
    root = store(100, 90, 1)
    before = everything(root)
    error = (
        "nothing is deleted without a terminal for the question; add --yes, or --dry-run; see `rocketc clean --help`"
    )
    assert call("s") == call("s", "--json") == (2, "", f"rocketc clean: {error}\n")
    assert everything(root) == before


def test_a_dry_run_deletes_nothing_even_with_yes(call, store):
    root = store(100, 90, 1)
    before = everything(root)
    code, out, _ = call("s", "--dry-run", "--yes")
    assert code == 0 and "would go  2 files" in out and everything(root) == before


# ---------------------------------------------------------------- refused calls
def test_a_store_with_a_running_writer(call, store):
    root = store(100, 1)
    before = everything(root)
    lock = StoreLock(root)
    code, out, err = call("s", "--yes")
    lock.release()
    assert (code, out) == (3, "") and "is open for writing already" in err
    assert everything(root) == before


def test_a_missing_store(call, tmp_path):
    (tmp_path / "empty").mkdir()
    for path, text in (
        ("none", "none: No such file or directory"),
        ("empty", "nothing to clean: empty does not contain a commit log"),
    ):
        for options in ((), ("-n",)):
            assert call(path, *options) == (3, "", f"rocketc: {text}\n")
    assert os.listdir(tmp_path / "empty") == [] and not (tmp_path / "none").exists()


@pytest.mark.parametrize("older", ["72", "h", "-1h", "1y", ""])
def test_wrong_ages(call, older):
    code, _, err = call("s", "--older-than", older)
    assert code == 2 and "is not an age such as 90m, 72h, 7d" in err


def test_unreadable_configuration_files(call, store, tmp_path):
    store(1)
    (tmp_path / "conf").write_text("deleteWhen=noon")
    code, _, err = call("s", "-n", "--conf", "conf")
    assert code == 2 and "deleteWhen is 'noon'" in err
    code, _, err = call("s", "-n", "--conf", "nowhere")
    assert code == 3 and "nowhere: No such file or directory" in err


def test_a_log_elsewhere(call, store, tmp_path):
    root = store(100, 1)
    shutil.move(root / "commitlog", tmp_path / "log")
    (tmp_path / "broker.conf").write_text(f"storePathCommitLog={tmp_path}/log\nfileReservedTime=48\n")
    code, out, _ = call("s", "-n", "--conf", "broker.conf")
    assert code == 0 and "older than 48 h" in out and str(tmp_path / "log") in out.replace("\n", "")


def test_a_file_created_in_advance_is_not_the_last_one(call, store):
    root = store(100, 90)
    (root / "commitlog" / f"{2 * SIZE:020d}").write_bytes(bytes(SIZE))
    told = json.loads(call("s", "-n", "--json")[1])
    assert told["kept"]["path"].endswith(f"{SIZE:020d}") and told["minPhyOffset"] == SIZE
