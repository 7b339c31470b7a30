"""One process writes, others read: whichever of them is killed, no process reads a partial record."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stress.readers import CONFIG, body
from support.promise_counts import count

import rocketc

pytestmark = pytest.mark.promise(7)

WRITER = """
import sys, rocketc
from stress.readers import CONFIG, body
root, flush, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
with rocketc.open(root, flush=flush, **CONFIG) as store:
    print("open", flush=True)
    for number in range(first, 1 << 30):
        result = store.put("T", body(0, number), queue_id=0, keys=f"0-{number}")
        assert (result.status.name, result.queue_offset) == ("PUT_OK", number), result
        print(number, flush=True)
"""
READER = """
import sys, rocketc
from stress.readers import CONFIG, body
with rocketc.open(sys.argv[1], read_only=True, **CONFIG) as store:
    at = int(sys.argv[2])
    while True:
        got = store.get("T", 0, at, 32, views=True, wait=5)
        for message in got:
            assert message.body == body(0, message.queue_offset)
            assert [one.queue_offset for one in store.query("T", f"0-{message.queue_offset}")] in ([], [at])
            at = message.queue_offset + 1
        print(at, flush=True)
"""


def start(code, *arguments):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill(process):
    """Kill a process; return its output so far."""
    process.kill()
    with process:
        said = process.stdout.read()  # communicate() does not return what readline() has buffered
        assert process.wait(60) == -9, process.stderr.read()
    return said.split("\n")[:-1]


def read_on(store, at):
    """Read a queue to its end and return the end. Each message must be whole and at its offset."""
    while True:
        got = store.get("T", 0, at, 32)
        for message in got:
            assert (message.queue_offset, message.body) == (at, body(0, at))
            at += 1
        if not got:
            return at


@pytest.mark.some(1)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_readers_are_killed(tmp_path, flush):
    """The writer and the next reader are not affected."""
    kills = 6
    with rocketc.open(tmp_path, flush=flush, **CONFIG) as store:
        number = 0

        def put(some):
            nonlocal number
            for _ in range(some):
                assert store.put("T", body(0, number), queue_id=0, keys=f"0-{number}").queue_offset == number
                number += 1

        put(1)
        for n in range(kills):
            reader = start(READER, tmp_path, 0)
            try:
                assert reader.stdout.readline()
                put(20 * (n + 1))
                said = kill(reader)
                assert all(0 <= int(one) <= number for one in said)
            finally:
                reader.kill()
        put(100)
        assert store.wait_dispatched(60)
        assert read_on(store, 0) == number
    assert rocketc.verify(tmp_path).is_whole
    count("kills", kills)


@pytest.mark.some(1)
@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("seed", range(4))
def test_the_writer_is_killed(tmp_path, flush, seed):
    """Readers continue with the existing records, no process writes meanwhile, and the next writer gets the lock."""
    chance = random.Random(seed)
    rocketc.open(tmp_path, **CONFIG).close()
    at = said = 0
    with rocketc.open(tmp_path, read_only=True, **CONFIG) as reader:
        for life in range(3):
            writer = start(WRITER, tmp_path, flush, at)
            try:
                assert writer.stdout.readline() == "open\n", writer.stderr.read()
                with pytest.raises(rocketc.StoreLockedError, match=f"by process {writer.pid}$"):
                    rocketc.open(tmp_path, **CONFIG)
                until = time.monotonic() + chance.random() / 2
                while time.monotonic() < until:
                    at = read_on(reader, at)
                numbers = [int(one) for one in kill(writer)]
            finally:
                writer.kill()
            said = max([said, *(number + 1 for number in numbers)])
            at = read_on(reader, at)
            held = reader.get("T", 0, max(at - 3, 0), 3, views=True)
            with rocketc.open(tmp_path, **CONFIG) as store:
                assert store.max_offset("T", 0) >= said, "an acknowledged message is lost"
                at = read_on(reader, at)
                assert at == store.max_offset("T", 0), f"seed {seed}, life {life}"
            for message in held:
                assert message.body == body(0, message.queue_offset)
            del held
    count("kills", 3)
    count("acknowledged", said)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))])
def test_the_next_writer_cuts(tmp_path, seed):
    """The end of the log was never on the disk: a reader that has read it continues with what is there instead."""
    chance = random.Random(seed)
    rocketc.open(tmp_path, **CONFIG).close()
    with rocketc.open(tmp_path, read_only=True, **CONFIG) as reader:
        writer = start(WRITER, tmp_path, "async", 0)
        try:
            assert writer.stdout.readline() == "open\n", writer.stderr.read()
            at = 0
            while at < 200 + chance.randrange(300):
                at = read_on(reader, at)
            kill(writer)
        finally:
            writer.kill()
        at = read_on(reader, at)
        held = [message for n in range(0, at, 7) for message in reader.get("T", 0, n, 1, views=True)]
        [first] = reader.get("T", 0, at - chance.randrange(1, 100), 1)
        lose_the_end(tmp_path, first.phy_offset + chance.randrange(first.store_size))
        with rocketc.open(tmp_path, **CONFIG) as store:
            end = store.max_offset("T", 0)
            assert end == first.queue_offset, f"seed {seed}"
            got = reader.get("T", 0, at, 32)
            assert not len(got) and got.next_offset <= at, "the queue must end earlier now"
            assert read_on(reader, 0) == end
            for n in range(end, at + 50):
                assert store.put("T", body(0, n), queue_id=0, keys=f"0-{n}").queue_offset == n
            assert store.wait_dispatched(60)
            assert read_on(reader, end) == at + 50, reader.get("T", 0, read_on(reader, end), 32)
            for message in held:
                assert message.queue_offset >= end or message.body == body(0, message.queue_offset)
            del held, message
    assert rocketc.verify(tmp_path).is_whole


def lose_the_end(root, at):
    """Write zeros from a physical offset on, as a power cut does, and delete the checkpoint, which contradicts them."""
    for path in (root / "commitlog").iterdir():
        base, size = int(path.name), path.stat().st_size
        if base + size > at:
            with path.open("r+b") as file:
                file.seek(max(at - base, 0))
                file.write(bytes(base + size - max(at, base)))
    (root / "checkpoint").unlink()
