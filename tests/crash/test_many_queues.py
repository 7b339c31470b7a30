"""A writer with many queues is killed repeatedly: each acknowledged message is in its queue, and no queue has a gap."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.many_queues import SETTINGS, body, place
from support.native import ROOT

import rocketc

SEED = int(os.environ.get("ROCKETC_SEED", "1"))


@pytest.fixture
def root(tmp_path) -> Iterator[Path]:
    """A folder for a store, in memory if possible: a million queues are three million files and folders."""
    above = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path))
    yield above / "store"
    shutil.rmtree(above)


def live(root: Path, life: int, queues: int, seconds: float) -> list[str]:
    """Run the writer, kill it `seconds` after it has opened the store, and return its lines without the first."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "crash.many_queues", str(root), str(SEED), str(life), str(queues)]
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, env=env, text=True) as writer,
    ):
        try:
            while writer.poll() is None and os.fstat(out.fileno()).st_size == 0:
                time.sleep(0.005)
            time.sleep(seconds)
        finally:
            writer.kill()
        assert writer.stderr is not None
        assert writer.wait() == -9, writer.stderr.read()
        out.seek(0)
        lines = out.read().split("\n")[1:-1]  # the last one may be incomplete
    return lines


def check(root: Path, life: int, lines: list[str], chance: random.Random, most: int) -> int:
    """Open the store, check up to `most` of the acknowledged messages, and return the number of messages in queues."""
    with rocketc.open(root, **SETTINGS) as store:
        store.wait_dispatched()
        for line in chance.sample(lines, min(most, len(lines))):
            number, queue, phy_offset, queue_offset = map(int, line.split())
            found = store.get(*place(queue), queue_offset, 1).messages[0]
            assert (found.body, found.phy_offset, found.queue_offset) == (body(life, number), phy_offset, queue_offset)
        return sum(store.max_offset(*queue) for queue in store.queues())


def kills(root: Path, queues: int, lives: int, most: int) -> None:
    chance = random.Random(SEED)
    acknowledged = 0
    for life in range(lives):
        fill = queues / 30_000 if life == 0 else 0.0
        lines = live(root, life, queues, fill + chance.random() * 0.4)
        acknowledged += len(lines)
        total = check(root, life, lines, chance, most)
        assert total >= acknowledged
    counted = rocketc.scan(root, columns=["queueOffset"])
    assert sum(batch.num_rows for batch in counted.batches()) == total
    report = rocketc.verify(root)
    assert report.is_whole, report


@pytest.mark.long
def test_5_000_queues_and_4_kills(root):
    kills(root, 5_000, 4, 500)


@pytest.mark.long
def test_20_000_queues_and_10_kills(root):
    kills(root, 20_000, 10, 500)


@pytest.mark.long
def test_100_000_queues_and_200_kills(root):
    kills(root, 100_000, 200, 2000)


@pytest.mark.long
def test_1_000_000_queues_and_20_kills(root):
    kills(root, 1_000_000, 20, 20_000)
