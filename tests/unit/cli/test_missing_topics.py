"""A topic that does not exist is one line on stderr and exit code 1; --fail-if-empty covers all other selections."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.command import start

import rocketc

HINT = "rocketc: no topic Order in this store; did you mean Orders?\n"


@pytest.fixture
def call(run_here):
    """call(*args): a command in a folder with the store `s`, which has the topics Orders and Bills."""
    with rocketc.open("s", mapped_file_size_commit_log=1 << 16) as store:
        store.put("Orders", b"x", keys="k", tags="T")
        store.put("Bills", b"y")
    return run_here


COMMANDS = ["cat s", "cat s --json", "stats s", "stats s --json", "export s -o made.parquet", "export s -o made.jsonl",
            "export s -o - --format csv", "export s -o lake --partition-by topic", "get s --key k"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_topic_that_does_not_exist(call, command):
    code, out, err = call(*command.split(), "-t", "Order")
    assert (code, err) == (1, HINT)
    assert out in ("", "topic,queueId,queueOffset\n") or "csv" in command
    assert sorted(os.listdir()) == ["s"]  # no file without messages


@pytest.mark.parametrize("command", ["cat s", "stats s", "export s -o made.csv"])
def test_one_of_several_topics_does_not_exist(call, command):
    code, _, err = call(*command.split(), "-t", "Order", "-t", "Bills")
    assert code == 0 and HINT in err


@pytest.mark.parametrize("more", [[], ["--from", "2000-01-01"]])
def test_a_log_without_queues(call, more):
    shutil.copytree("s/commitlog", "copy")
    for path in ("copy", f"copy/{0:020d}"):
        hint = f"rocketc: no topic order in {'this store' if path == 'copy' else 'these files'}; did you mean Orders?\n"
        assert call("cat", path, "-t", "order", *more) == (1, "", hint)


def test_lost_queues_do_not_hide_a_topic(call):
    """The log is searched before the command says that a topic does not exist."""
    shutil.rmtree("s/consumequeue/Bills")
    assert call("cat", "s", "-t", "Bills", "-f", "%t") == (0, "Bills", "")
    assert call("cat", "s", "-t", "Bills", "-t", "Orders", "-f", "%t,") == (0, "Orders,Bills,", "")
    assert call("cat", "s", "-t", "Bills", "--tag", "no") == (0, "", "rocketc: no message is selected\n")


SELECTIONS = [["-t", "Orders", "--tag", "no"], ["--key", "no"], ["--to", "2000-01-01"], ["-q", "9"]]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("command", ["cat s", "stats s", "export s -o made.csv"])
def test_fail_if_empty(call, command, selection):
    code, _, err = call(*command.split(), *selection)
    assert code == 0 and err.startswith("rocketc: no message is selected\n")
    made = os.path.exists("made.csv")
    assert made == command.startswith("export")
    if made:
        os.unlink("made.csv")
    assert call(*command.split(), *selection, "--fail-if-empty") == (1, "", "rocketc: no message is selected\n")
    assert not os.path.exists("made.csv")
    assert call(*command.split(), "-t", "Orders", "--fail-if-empty")[0] == 0


def test_fail_if_empty_keeps_an_older_export(call):
    call("export", "s", "-o", "made.jsonl")
    before = Path("made.jsonl").read_text()
    assert call("export", "s", "-o", "made.jsonl", "--force", "--key", "no", "--fail-if-empty")[0] == 1
    assert call("export", "s", "-o", "made.jsonl", "--force", "-t", "Order")[0] == 1
    assert Path("made.jsonl").read_text() == before and json.loads(before.splitlines()[0])["topic"] == "Orders"


def test_fail_if_empty_of_an_empty_store(call):
    rocketc.open("new", mapped_file_size_commit_log=1 << 16).close()
    for command in ("cat new", "stats new", "export new -o made.csv"):
        assert call(*command.split())[0] == 0
        shutil.rmtree("made.csv", ignore_errors=True)
        code, out, err = call(*command.split(), "--fail-if-empty", *(["--force"] if "export" in command else []))
        assert (code, out, err) == (1, "", "rocketc: nothing to read: new\n")


def test_the_rest_of_a_queue_is_empty(call):
    assert call("cat", "s", "-t", "Orders", "-q", "0", "-o", "5") == (0, "", "rocketc: no message is selected\n")


def test_follow_says_that_it_waits(call, tmp_path):
    with start("cat", tmp_path / "s", "-F", "-t", "Order", "-c", "1", "-f", "%s\\n") as process:
        assert process.stderr.readline().decode() == HINT[:-1] + "; waiting for it\n"
        with rocketc.open("s") as store:
            store.put("Order", b"new")
        assert process.stdout.readline() == b"new\n"
        assert process.wait(timeout=60) == 0
