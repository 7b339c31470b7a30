"""rocketc cat -F: prints messages that another process appends at once, until Ctrl-C or -c."""

import queue
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from support import oracle
from support.command import GrowingLog, environment, start

from rocketc.cli.cat import _end_of
from rocketc.read.scan_report import Damage, ScanReport

PATIENCE = 60  # seconds; on a busy machine a process may start slowly


class Following:
    """A running `rocketc cat -F`, with the lines that it prints."""

    def __init__(self, *args):
        self.process = start("cat", "-F", *args, "-f", r"%t/%q@%o %s\n")
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line.decode().rstrip("\n"))

    def lines(self, count):
        return [self._lines.get(timeout=PATIENCE) for _ in range(count)]

    def is_silent(self, seconds=0.5):
        time.sleep(seconds)
        return self._lines.empty()

    def end(self, ctrl_c=True):
        """Return exit code and stderr, after Ctrl-C or the end by itself. There must be no further output."""
        if ctrl_c:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=PATIENCE)
        self._reader.join(timeout=PATIENCE)
        assert self._lines.empty()
        return code, self.process.stderr.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        self._reader.join(timeout=PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def log(tmp_path):
    log = GrowingLog(tmp_path / "commitlog", file_size=1024)
    for i in range(4):
        log.append("t", b"old %d" % i, queue_id=i % 2)
    return log


OLD = ["t/0@0 old 0", "t/1@0 old 1", "t/0@1 old 2", "t/1@1 old 3"]


def test_existing_and_new_messages(log, tmp_path):
    with Following(tmp_path) as cat:
        assert cat.lines(4) == OLD
        for i in range(30):  # message by message, over several files
            log.append("t", b"new %d" % i)
            assert cat.lines(1) == [f"t/0@{i + 2} new {i}"]
        assert log.end > 3 * log.file_size
        assert cat.is_silent()
        assert cat.end() == (130, "")


def test_another_process_appends(tmp_path):
    """Fast, in bursts, over many files: every message is printed once and in order."""
    writer = """
import sys, time
from pathlib import Path
from support.command import GrowingLog
log = GrowingLog(Path(sys.argv[1]), file_size=4096)
for i in range(2000):
    log.append("t", b"%d" % i, properties={"KEYS": "k" * (i % 50)})
    if i % 100 == 0:
        time.sleep(0.01)
"""
    (tmp_path / "commitlog").mkdir()
    with Following(tmp_path, "-c", "2000") as cat:
        helpers = environment(PYTHONPATH=":".join(path for path in sys.path if path))
        subprocess.run([sys.executable, "-c", writer, tmp_path / "commitlog"], env=helpers, check=True, timeout=120)
        assert cat.lines(2000) == [f"t/0@{i} {i}" for i in range(2000)]
        assert cat.end(ctrl_c=False) == (0, "")


def test_a_start_at_the_end_prints_only_new_messages(log, tmp_path):
    with Following(tmp_path, "-o", "end") as cat:
        assert cat.is_silent(1)
        # On a slow machine it may still be searching for the end: it prints only new messages, without a gap.
        for i in range(40):
            log.append("t", b"new %d" % i)
            time.sleep(0.02)
        [first] = cat.lines(1)
        at = int(re.fullmatch(r"t/0@\d+ new (\d+)", first)[1])
        assert cat.lines(39 - at) == [f"t/0@{i + 2} new {i}" for i in range(at + 1, 40)]
        assert cat.end() == (130, "")


def test_the_last_messages_and_new_ones(log, tmp_path):
    with Following(tmp_path, "-o", "-1") as cat:
        assert cat.lines(2) == OLD[2:]
        for i in range(20):
            log.append("t", b"new %d" % i)
        assert cat.lines(20) == [f"t/0@{i + 2} new {i}" for i in range(20)]
        assert cat.end() == (130, "")


def test_a_start_after_the_end(log, tmp_path):
    start = log.end + 3000
    with Following(tmp_path, "-o", "end", "--start", str(start)) as cat:
        while cat.process.poll() is None and cat.is_silent(0.02):
            at = log.append("t", b"%d" % log.end)
        first = int(cat.lines(1)[0].split()[1])
        assert start < first + len(oracle.encode("t", b"%d" % first, phy_offset=first))
        assert first <= at


def test_filters_and_a_count(log, tmp_path):
    with Following(tmp_path, "-q", "1", "--grep", "yes", "-o", "2", "-c", "2") as cat:
        for i in range(12):
            log.append("t", b"yes" if i % 2 else b"no", queue_id=i % 4 % 2)
        assert cat.lines(2) == ["t/1@2 yes", "t/1@3 yes"]
        assert cat.end(ctrl_c=False) == (0, "")


def test_a_partly_written_record(log, tmp_path):
    """It is written in two steps, as a real machine may do. It is printed when complete, and never damage."""
    record = oracle.encode("t", b"slow" * 20, queue_offset=9, phy_offset=log.end)
    with Following(tmp_path, "-o", "end") as cat:
        assert cat.is_silent(1)
        log.write(record[:100])
        assert cat.is_silent()
        log.write(record)
        assert cat.lines(1) == ["t/0@9 " + "slow" * 20]
        assert cat.end() == (130, "")


def test_a_torn_record_does_not_move_the_end():
    """The record may be complete a moment later, and must not be missed then."""
    torn, earlier = Damage(None, 90, 100, "truncated"), Damage(None, 10, 20, "bad_magic")
    assert _end_of(ScanReport(end=100, damage=[earlier, torn])) == 90
    assert _end_of(ScanReport(end=100, damage=[earlier])) == 100
    assert _end_of(ScanReport()) is None


def test_follow_ends_at_the_stop_offset(log, tmp_path):
    stop = 3 * log.file_size + 100  # in a file that does not exist yet
    with Following(tmp_path, "--stop", str(stop)) as cat:
        assert cat.lines(4) == OLD
        while log.end < stop:
            at = log.append("t", b"%d" % log.end)
            if at < stop:
                assert cat.lines(1)[0].endswith(str(at)) or at % log.file_size == 0
        assert cat.end(ctrl_c=False) == (0, "")
    with Following(tmp_path, "--stop", "1") as cat:
        assert cat.lines(1) == OLD[:1]
        assert cat.end(ctrl_c=False) == (0, "")


def test_damage_is_reported_at_once(log, tmp_path):
    """It does not wait for the next message."""
    bad = bytearray(oracle.encode("t", b"rotten", phy_offset=log.end))
    bad[90] ^= 1
    with Following(tmp_path) as cat:
        assert cat.lines(4) == OLD
        log.write(bytes(bad))
        line = cat.process.stderr.readline().decode()
        assert f"{len(bad)} bytes lost at physical offset {log.end}: bad_body_crc" in line
        assert cat.end() == (130, "")


def test_damage_is_reported_while_it_continues(log, tmp_path):
    bad = bytearray(oracle.encode("t", b"rotten", phy_offset=log.end))
    bad[90] ^= 1
    fine = oracle.encode("t", b"fine", queue_offset=5, phy_offset=log.end + len(bad))
    with Following(tmp_path) as cat:
        assert cat.lines(4) == OLD
        log.write(bytes(bad) + fine)
        assert cat.lines(1) == ["t/0@5 fine"]
        code, err = cat.end()
    assert code == 130
    assert err == (
        f"rocketc: {log.file_at(0)}: {len(bad)} bytes lost at physical offset {log.end}: "
        "bad_body_crc (the body does not match its CRC)\n"
    )


def test_ctrl_c_during_much_output(tmp_path):
    log = GrowingLog(tmp_path / "commitlog", file_size=1 << 20)
    for i in range(5_000):
        log.append("t", b"%d" % i)
    with Following(tmp_path) as cat:
        cat.lines(100)
        cat.process.send_signal(signal.SIGINT)
        assert cat.process.wait(timeout=PATIENCE) == 130
        assert cat.process.stderr.read() == b""


def test_ctrl_c_without_follow_is_quiet_too(tmp_path):
    """The reader of the pipe is slow; the exit code of an interrupted command is 130."""
    log = GrowingLog(tmp_path / "commitlog", file_size=1 << 20)
    for _ in range(2_000):
        log.append("t", b"x" * 500)
    with start("cat", tmp_path) as cat:
        cat.stdout.read(100)  # the command is running, and waits for room in the pipe
        cat.send_signal(signal.SIGINT)
        drain = threading.Thread(target=cat.stdout.read)
        drain.start()
        assert cat.wait(timeout=PATIENCE) == 130
        drain.join()
        assert cat.stderr.read() == b""


def test_a_closed_pipe_ends_it(log, tmp_path):
    with start("cat", "-F", tmp_path) as cat:
        assert cat.stdout.readline()
        cat.stdout.close()  # no message follows: it notices the closed pipe by itself
        assert cat.wait(timeout=PATIENCE) == 0
        assert cat.stderr.read() == b""


def test_several_logs_cannot_be_followed(log, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(bytes(64))
    with start("cat", "-F", tmp_path / "a", tmp_path / "b") as cat:
        assert cat.wait(timeout=PATIENCE) == 2
        assert b"-F follows one commit log" in cat.stderr.read()


def test_strict_ends_it_at_damage(log, tmp_path):
    path = log.file_at(0)
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(bytes(data))
    with Following(tmp_path, "--strict") as cat:
        code, err = cat.end(ctrl_c=False)
        assert (code, "damage at physical offset 0: bad_body_crc" in err, err.count("\n")) == (1, True, 1)
