"""rocketc replicate as users run it: exit codes, output, signals, metrics."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
import threading
import time
import urllib.request

import pytest
from support.command import Terminal
from support.ports import free_port
from unit.ha.served_master import FILE, ServedMaster, make_log

import rocketc
from rocketc.cli import replicate as command
from rocketc.jobs.replicate import ReplicaProgress


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return make_log(tmp_path_factory.mktemp("made") / "store", 500)


@pytest.fixture
def master(log):
    with ServedMaster(log) as master:
        yield master


@pytest.fixture
def call(run_here, master, monkeypatch):
    """call(*options): rocketc replicate MASTER copy OPTIONS."""
    begin = command.begin
    monkeypatch.setattr(command, "begin", lambda *args, **options: begin(*args, interval=0.02, **options))
    return lambda *options: run_here("replicate", master.address, "copy", "-b", master.broker, *options)


def later(work):
    """Run work() in a thread, after the command has begun."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def signal_when(condition, number=signal.SIGINT):
    def work():
        end = time.monotonic() + 20
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    return later(work)


def copied(log):
    with contextlib.suppress(rocketc.RocketcError, OSError), rocketc.open("copy", read_only=True) as store:
        return store.max_phy_offset >= len(log)
    return False


def test_a_copy_that_stops(call, log):
    code, out, err = call("--from", "start", "--then", "stop")
    assert (code, out) == (0, "")
    assert re.search(r"127.0.0.1:\d+ is copied to \S+/copy, which acknowledges nothing: a SYNC_MASTER of RocketMQ", err)
    assert err.endswith(f"rocketc: the copy ends at the physical offset {len(log)}\n")
    assert len(list(rocketc.scan("copy"))) == 500


def test_a_copy_that_is_verified(call):
    code, out, err = call("--from", "start", "--then", "verify", "--acknowledge")
    assert code == 0
    assert "checked  500 records" in out
    assert "which acknowledges what it has, as a slave" in err
    code, out, err = call("--from", "start", "--then", "verify", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and lines[0]["state"] and lines[-1]["records"] == 500
    assert "the copy exists: it continues at the physical offset" in err


def test_a_copy_that_is_damaged(call):
    call("--from", "start", "--then", "stop")
    with open(f"copy/commitlog/{0:020d}", "r+b") as file:
        file.seek(1000)
        file.write(b"\xee" * 1200)
    assert call("--then", "verify")[0] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(call, log, number):
    thread = signal_when(lambda: copied(log), number)
    code, out, err = call("--from", "start")
    thread.join()
    assert (code, out) == (128 + number, "")
    assert err.endswith(f"rocketc: the copy ends at the physical offset {len(log)}\n")
    assert not os.path.exists("copy/abort")


def test_progress_as_json(call, log):
    code, out, _ = call("--from", "start", "--then", "stop", "-J")
    last = json.loads(out.splitlines()[-1])
    assert code == 0
    assert (last["phyOffset"], last["lag"], last["caughtUp"]) == (len(log), 0, True)


def test_a_line_on_a_terminal(call, log, monkeypatch):
    stderr = Terminal()

    def begin(*args, **options):
        monkeypatch.setattr(sys, "stderr", stderr)
        return made(*args, **options)

    made = command.begin
    monkeypatch.setattr(command, "begin", begin)
    assert call("--from", "start", "--then", "stop")[0] == 0
    shown = stderr.getvalue()
    assert f"copied 150.2 KiB to physical offset {len(log)}" in shown and "/s, 0 B behind" in shown
    assert max(len(line) for line in re.split(r"\r\x1b\[K", shown)[1:-1]) < 100


def test_a_fault_on_a_terminal_has_a_line_of_its_own(call, log, master, monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)

    def cut():
        while "copied" not in stderr.getvalue():
            time.sleep(0.01)
        master.answer = lambda link, report: link.transport.abort()
        for link in list(master.links):
            master.later(link.transport.abort)

    later(cut)
    thread = signal_when(lambda: stderr.getvalue().endswith(", not connected"))
    assert call("--from", "start")[0] == 130
    thread.join()
    shown = re.split(r"\r\x1b\[K", stderr.getvalue())
    [fault] = [one for one in shown if "it is tried again" in one]
    assert fault.startswith(f"rocketc: {master.address}: the ") and fault.endswith("; it is tried again\n")


def test_json_on_a_terminal_comes_without_the_line(call, log, monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    code, out, _ = call("--from", "start", "--then", "stop", "-J")
    assert code == 0 and json.loads(out.splitlines()[-1])["caughtUp"]
    assert "\x1b[K" not in stderr.getvalue()


def test_metrics(call, log):
    found = []

    def read():
        with contextlib.suppress(OSError):
            found.append(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode())
        return found and f"rocketc_replica_phy_offset {len(log)}" in found[-1]

    port = free_port()
    thread = signal_when(read)
    code, _, err = call("--from", "start", "--metrics-port", port)
    thread.join()
    assert code == 130
    assert f"metrics at http://127.0.0.1:{port}/metrics" in err
    for line in ("rocketc_replica_lag_bytes 0", "rocketc_replica_connected 1", "rocketc_replica_connections_total 1"):
        assert line in found[-1]
    assert 'rocketmq_messages_in_total{node_id="' in found[-1]


def test_a_port_of_metrics_that_is_in_use(call, master):
    code, out, err = call("--metrics-port", master.port)
    assert (code, out) == (3, "")
    assert "ddress already in use" in err


def test_a_master_that_does_not_fit(call):
    make_log("copy", 3)
    code, out, err = call()
    assert (code, out) == (1, "")
    assert "the master has another log: it differs from ours from the record at the physical offset" in err


def test_a_master_that_is_not_reached(run_here, master):
    thread = signal_when(lambda: os.path.exists("copy/commitlog"))
    time.sleep(0)
    code, out, _ = run_here("replicate", "127.0.0.1:1", "copy", "-b", master.broker)
    thread.join()
    assert (code, out) == (130, "")


def test_a_fault_is_shown_once(call, master, monkeypatch):
    master.later(lambda: setattr(master, "answer", lambda link, report: link.transport.write(b"HTTP/1.1 400 Bad")))
    thread = signal_when(lambda: len(master.reports) > 4)
    code, _, err = call()
    thread.join()
    assert code == 130
    assert "a master announces" in err and err.count("; it is tried again") == 1
    assert err.count(f"{master.address} has sent nothing of a log yet: is this haListenPort, 10912 by default,") == 1


def test_the_start_without_a_broker(run_here, call, master):
    master.refuses = True
    code, out, err = call("--from", "start")
    assert (code, out) == (3, "")
    assert "no permission" in err and "name it with --broker" not in err
    code, out, err = run_here("replicate", "127.0.0.1:2", "copy", "--from", "start")
    assert (code, out) == (3, "")
    assert err == (
        "rocketc: 127.0.0.1:1: no connection: Connection refused; --from start asks this broker; name the master's one "
        "with --broker HOST:PORT, or use --from OFFSET\n"
    )
    assert not os.path.exists("copy")


def test_a_master_that_is_lost_later_is_one(call, master, log):
    """What has sent a log is the HA service of a broker."""

    def cut():
        while not copied(log):
            time.sleep(0.01)
        master.answer = lambda link, report: link.transport.abort()
        for link in list(master.links):
            master.later(link.transport.abort)

    later(cut)
    thread = signal_when(lambda: len(master.reports) > 3)
    code, _, err = call("--from", "start", "--acknowledge")
    thread.join()
    assert code == 130 and "; it is tried again" in err and "has sent nothing" not in err


def test_the_line_before_the_first_connection():
    waits = ReplicaProgress(0, 0, 0, 0.0, None, "waiting", 0, None, False)
    assert command.status(waits) == "copied 0 B to physical offset 0, not connected yet"
    lost = dataclasses.replace(waits, error="Connection refused")
    assert command.status(lost) == "copied 0 B to physical offset 0, not connected"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--from", "end"], "'end' is neither `start` nor a physical offset"),
        (["--from", "-1"], "'-1' is neither `start` nor a physical offset"),
        (["--from", "7"], f"start 7: no file of the master begins there; its files have {FILE} bytes"),
        (["--then", "nothing"], "'nothing' is not one of"),
        (["--rate-limit", "0"], "'0' is not a size such as 64MiB"),
        (["--mapped-file-size", "7"], "mapped_file_size_commit_log"),
        (["-b", "nowhere"], "--broker: 'nowhere' is not an address such as 10.0.0.1:9876"),
    ],
)
def test_wrong_options(call, options, text):
    code, out, err = call(*options)
    assert (code, out) == (2, "")
    assert text in err


def test_wrong_arguments(run_here, call, master):
    code, _, err = run_here("replicate", "nowhere", "copy")
    assert code == 2 and "MASTER:PORT: 'nowhere' is not an address" in err
    for wrong in ("http://127.0.0.1:10912", "127.0.0.1:0"):
        code, _, err = run_here("replicate", wrong, "copy")
        assert code == 2 and f"'{wrong}' is not an address such as 10.0.0.1:" in err
    code, _, err = run_here("replicate", master.address, "")
    assert code == 2 and "store: the path is empty" in err and os.listdir() == []
    call("--then", "stop")
    code, _, err = run_here("replicate", master.address, "copy/commitlog")
    assert code == 2 and "is a commit log; give the folder that contains it" in err


def test_the_rate_limit(call, log):
    begun = time.monotonic()
    assert call("--from", "start", "--then", "stop", "--rate-limit", "100KiB")[0] == 0
    assert time.monotonic() - begun > 0.9 * len(log) / 102400 - 0.2
