"""`rocketc replicate` at masters of RocketMQ: equal logs under load, kills, resumes, and what a sync master says."""

import json
import os
import shutil
import signal
import threading
import time

import pytest
from interop import scenarios
from interop.peer import RELEASES
from support import command
from support.command import start
from support.ports import free_port

import rocketc
from rocketc.client import Producer

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

FILE = 1 << 20
SENDS = 40  # of each status that is checked


class Master:
    """RocketMQ's name server and broker with an HA port."""

    def __init__(self, begin, release, folder, **settings):
        self.port, self.folder = free_port(), folder
        settings = {"store.haListenPort": self.port, "store.mappedFileSizeCommitLog": FILE, **settings}
        self._cluster = begin(scenarios.JavaCluster, release, folder, **settings)
        self.name_server, self.broker = self._cluster.name_server, self._cluster.broker
        self.address = f"127.0.0.1:{self.port}"

    def end(self):
        self._cluster.end()

    def log(self, start=0):
        """The bytes of its log from an offset on, up to the last record."""
        folder = self.folder / "store/commitlog"
        data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.name.isdecimal())
        return data[start:]


class Load:
    """Sends messages in a thread until the end of the `with` block."""

    def __init__(self, master):
        self._producer = Producer("shop", master.name_server)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent, self.statuses = 0, []

    def _send(self):
        while not self._is_over.is_set():
            body = os.urandom(10 + self.sent % 3000)
            self.statuses.append(self._producer.send("orders", body, tags="t", keys=f"k{self.sent}").status.name)
            self.sent += 1

    def until(self, count):
        while self.sent < count:
            assert self._thread.is_alive()
            time.sleep(0.02)

    def __enter__(self):
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._is_over.set()
        self._thread.join()
        self._producer.close()


def run(master, path, *options):
    return start("replicate", master.address, path, "--broker", master.broker, "--json", *options)


def follow(process, condition):
    """Read the progress of a command until it has this property."""
    for line in process.stdout:
        last = json.loads(line)
        if condition(last):
            return last
    raise AssertionError(process.stderr.read())


def is_equal(master, path):
    """The log of a copy is that of its master, from the copy's first byte on."""
    with rocketc.open(path, read_only=True) as store:
        least, end = store.min_phy_offset, store.max_phy_offset
    files = sorted(entry for entry in (path / "commitlog").iterdir() if entry.name.isdecimal())
    ours = b"".join(entry.read_bytes() for entry in files)[: end - least]
    theirs = master.log(least)
    return ours == theirs[: len(ours)] and not theirs[len(ours) :].strip(b"\0")


@pytest.mark.parametrize("release", RELEASES)
def test_a_copy_under_load_is_killed_and_continues(begin, release, tmp_path):
    master, path = Master(begin, release, tmp_path / "master"), tmp_path / "copy"
    with Load(master) as load:
        load.until(500)
        process = run(master, path, "--from", "start")
        follow(process, lambda last: last["phyOffset"] > FILE + 1000)
        process.kill()
        process.communicate()
        process = run(master, path)
        follow(process, lambda last: last["connections"] == 1 and last["lag"] == 0 and last["receivedBytes"] > 0)
        load.until(load.sent + 1000)
        assert len(list(rocketc.scan(path))) > 500  # while it grows
        followed = command.rocketc("cat", path, "-t", "orders", "-F", "-o", "end", "-c", 20, timeout=60)
        assert followed.returncode == 0 and followed.stdout.count(b"\n") == 20
        assert rocketc.verify(path).damage == []
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
        process = run(master, path)
        follow(process, lambda last: last["connections"] == 1)
        load.until(load.sent + 500)
    follow(process, lambda last: last["lag"] == 0 and last["bytesPerSecond"] == 0)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 143, errors
    assert is_equal(master, path)
    report = rocketc.verify(path)
    assert report.is_whole and report.records == load.sent
    assert len(list(rocketc.scan(path))) == load.sent


@pytest.mark.parametrize("release", RELEASES)
def test_a_new_copy_of_the_last_file_is_verified(begin, release, tmp_path):
    master, path = Master(begin, release, tmp_path / "master"), tmp_path / "copy"
    with Load(master) as load:
        load.until(1500)
        process = run(master, path, "--then", "verify")
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    found = json.loads(out.splitlines()[-1])
    with rocketc.open(path, read_only=True) as store:
        start = store.min_phy_offset
    assert found["records"] > 0 and start % FILE == 0 and start > 0
    begun = time.monotonic()
    process = run(master, path, "--then", "stop")
    process.communicate(timeout=60)
    assert process.returncode == 0 and time.monotonic() - begun > 5  # a new start is not reported earlier
    assert is_equal(master, path)


@pytest.mark.parametrize("release", RELEASES)
def test_other_logs_are_refused(begin, release, tmp_path):
    """The copy of one master at another one with messages of equal sizes, and at the first one with less in it."""
    first, second = (Master(begin, release, tmp_path / name) for name in ("first", "second"))
    for master in (first, second):
        with Producer("shop", master.name_server) as producer:
            for n in range(100):
                producer.send("orders", b"%d" % (n + 900) * 10)
    path = tmp_path / "copy"
    process = run(first, path, "--from", "start", "--then", "stop")
    process.communicate(timeout=60)
    size = len(list(rocketc.scan(path)))
    process = run(second, path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and b"the master has another log: it differs from ours from" in errors
    assert len(list(rocketc.scan(path))) == size
    shutil.copytree(path, tmp_path / "longer")
    with rocketc.open(tmp_path / "longer") as store:
        store.put_many("orders", [b"own"] * 3)
    process = run(first, tmp_path / "longer")
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 1 and b"the master is behind us or has another log" in errors


def statuses(master, count=SENDS):
    with Producer("shop", master.name_server) as producer:
        return {producer.send("orders", b"a body").status.name for _ in range(count)}


def test_a_copy_never_makes_a_sync_master_answer_send_ok(begin, tmp_path):
    settings = {"store.brokerRole": "SYNC_MASTER", "store.slaveTimeout": 500}
    master = Master(begin, "4.9.7", tmp_path / "master", **settings)
    path = tmp_path / "copy"
    assert statuses(master) == {"SLAVE_NOT_AVAILABLE"}
    process = run(master, path, "--from", "start")
    follow(process, lambda last: last["connections"] == 1 and last["lag"] == 0)
    with Load(master) as load:
        load.until(5)
        for _ in range(3):  # a new connection reports a new start
            process.kill()
            process.communicate()
            before = load.sent
            process = run(master, path)
            follow(process, lambda last: last["connections"] == 1 and last["receivedBytes"] > 0)
            load.until(before + 10)
    assert "SEND_OK" not in load.statuses and "FLUSH_SLAVE_TIMEOUT" in load.statuses
    process.kill()
    process.communicate()
    process = run(master, path, "--acknowledge")
    follow(process, lambda last: last["connections"] == 1 and last["lag"] == 0)
    assert statuses(master) == {"SEND_OK"}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert is_equal(master, path)
