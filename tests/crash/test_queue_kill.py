"""A process that puts into a queue and takes from it is killed repeatedly: no message is lost.

ROCKETC_SEED=n runs the lives of seed n; a failure names its seed.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.native import ROOT
from support.promise_counts import count

import rocketc

pytestmark = pytest.mark.promise(1)

SEED = int(os.environ.get("ROCKETC_SEED", "1"))


def live(root: Path, life: int, flush: str, lines: int, pause: float) -> list[tuple[str, str]]:
    """Run a worker until it has written this number of lines, and a little longer; return what it reports."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])}
    command = [sys.executable, "-X", "faulthandler", "-m", "crash.queue_worker", str(root), str(life), flush]
    errors = root.with_suffix(".errors")
    said = []
    with (
        open(errors, "wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=env) as child,
    ):
        assert child.stdout is not None
        for raw in child.stdout:
            said.append(raw)
            if len(said) == lines:
                break
        time.sleep(pause)
        child.kill()
        said += [raw for raw in child.stdout if raw.endswith(b"\n")]
        child.wait()
    told = errors.read_text().splitlines()  # a torn last record is expected after a kill
    assert all(line.endswith("cut off and kept") for line in told), told
    return [(words[0], words[-1]) for words in (raw.decode().split() for raw in said)]


def run_lives(folder: Path, flush: str, lives: int, seed: int) -> None:
    print(f"seed {seed}, {flush}: run it again with ROCKETC_SEED={seed}")
    chance = random.Random(f"{seed}/{flush}")
    root = folder / "jobs"
    put: list[str] = []  # the put() calls that returned
    got: set[str] = set()
    twice = 0
    for life in range(lives):
        told = live(root, life, flush, chance.choice([1, chance.randrange(1, 60), 2000]), chance.random() * 0.02)
        put += [name for what, name in told if what == "put"]
        here = [name for what, name in told if what == "got"]
        assert len(here) == len(set(here)), "delivered twice in one life without a nack"
        twice += len(got & set(here))
        got |= set(here)
    with rocketc.Queue(root, flush=flush) as queue:
        left = [item.decode() for item in queue.items(timeout=0)]
        assert queue.position == queue.store.max_offset("queue", 0)
    assert len(left) == len(set(left))
    missing = set(put) - got - set(left)
    assert not missing, "put, but never taken"
    count("kills", lives)
    count("acknowledged", len(put))
    of_each = [[int(name.partition(".")[2]) for name in left if name.startswith(f"{life}.")] for life in range(lives)]
    assert all(numbers == list(range(numbers[0], numbers[-1] + 1)) for numbers in of_each if numbers)
    print(f"{len(put)} put, {len(got)} taken, {twice} of them more than once, {len(left)} left")
    with rocketc.Queue(root, flush=flush) as queue:
        assert queue.empty()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_four_lives(tmp_path, flush):
    run_lives(tmp_path, flush, 4, SEED)


@pytest.mark.long
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_thirty_lives(tmp_path, flush):
    seed = SEED if "ROCKETC_SEED" in os.environ else random.SystemRandom().randrange(1 << 32)
    run_lives(tmp_path, flush, 30, seed)
