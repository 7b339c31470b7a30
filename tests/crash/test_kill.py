"""A writer is killed repeatedly: each acknowledged message is there once, unchanged, in order and at its offset.

ROCKETC_SEED=n runs the lives of seed n; a failure names its seed.
"""

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from crash import remains
from crash.writer import QUEUES, Plan, body
from support import oracle
from support.native import ROOT
from support.promise_counts import count

import rocketc

pytestmark = pytest.mark.promise(1)

SEED = int(os.environ.get("ROCKETC_SEED", "1"))
FILE_SIZE = 64 << 10
SETTINGS = {"mapped_file_size_commit_log": FILE_SIZE, "flush_interval_commit_log": 20, "prepare": "populate"}
POOL = {"transient_store_pool_enable": True, "commit_interval_commit_log": 5}

MIXES = list(itertools.product(["spin", "reentrant", "adaptive"], ["sync", "async"], ["map", "pool"]))


class Ledger:
    """What the lives of one store have acknowledged, and the messages found after the last life."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.found: list[oracle.Record] = []

    def check(self, messages: list[oracle.Record], life: int, lines: list[str]) -> None:
        """Check `messages`, all messages of the log, after a life that wrote `lines`."""
        messages = [{**m, "file": None} for m in messages]
        assert messages[: len(self.found)] == self.found, "what was there before has changed"
        new, self.found = messages[len(self.found) :], messages

        lengths = dict.fromkeys(QUEUES, 0)
        for m in messages:
            assert m["queueOffset"] == lengths[m["topic"], m["queueId"]], m
            lengths[m["topic"], m["queueId"]] += 1

        here: dict[tuple[int, int], oracle.Record] = {}  # (thread, number) -> message
        numbers: dict[int, list[int]] = {}
        for m in new:
            of, thread, number = map(int, m["storedBody"].split(b".", 3)[:3])
            assert of == life, m
            assert m["storedBody"] == body(self.seed, of, thread, number), m
            assert (thread, number) not in here, m
            here[thread, number] = m
            numbers.setdefault(thread, []).append(number)
        for thread, there in numbers.items():
            assert there == list(range(len(there))), f"thread {thread}: a message is missing, or out of order"

        for line in lines:
            thread, number, count, queue, phy_offset, queue_offset = map(int, line.split())
            for i in range(count):
                m = here[thread, number + i]
                assert (m["topic"], m["queueId"], m["queueOffset"]) == (*QUEUES[queue], queue_offset + i), (line, m)
            assert here[thread, number]["physicalOffset"] == phy_offset, (line, m)


def live(root: Path, plan: Plan, chance: random.Random, most: int) -> list[str]:
    """Run a writer, kill it at a random moment, and return the lines that it wrote about its calls."""
    stage = chance.choice(["opening", "open", "calls", "calls", "calls"])
    after = chance.choice([1, chance.randrange(1, 20), chance.randrange(1, most)])
    pause = chance.random() * (0.02 if stage == "opening" else 0.002)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])}
    command = [sys.executable, "-X", "faulthandler", "-m", "crash.writer", str(root), plan.to_json()]
    errors = root.with_suffix(".errors")
    with (
        open(errors, "wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=env) as child,
    ):
        assert child.stdout is not None
        seen = 0
        lines = []
        for raw in child.stdout:
            line = raw.decode().strip()
            if line not in ("opening", "open"):
                lines.append(line)
                seen += 1
            if line == stage or seen == after:
                break
        time.sleep(pause)
        child.kill()
        lines += [raw.decode().strip() for raw in child.stdout if raw.endswith(b"\n")]
        child.wait()
    assert errors.read_text() == ""
    return [line for line in lines if line not in ("opening", "open")]


def run_lives(folder: Path, mix: tuple[str, str, str], lives: int, seed: int, most: int) -> None:
    lock, flush, memory = mix
    print(f"seed {seed}, {lock}, {flush}, {memory}: run it again with ROCKETC_SEED={seed}")
    chance = random.Random(f"{seed}/{mix}")
    fields = {**SETTINGS, "lock": lock, "flush": flush, **(POOL if memory == "pool" else {})}
    ledger = Ledger(seed)
    root = folder / "store"
    for life in range(lives):
        # With the pool and async flush, uncommitted messages die with the process, so only flush() acknowledges.
        threads = chance.choice([1, 1, 3, 8])
        plan = Plan(seed, life, threads, fields, flushed=memory == "pool" and flush == "async")
        lines = live(root, plan, chance, most)
        count("kills")
        count("acknowledged", sum(int(line.split()[2]) for line in lines))
        if chance.random() < 0.5 or life == lives - 1:
            rocketc.open(root, **fields).close()
            ledger.check(remains.messages(remains.take(root)), life, lines)
        else:  # the next writer has to recover the store; the check reads a copy
            copy = remains.lay(remains.take(root), folder / "copy")
            rocketc.open(copy, **fields).close()
            ledger.check(remains.messages(remains.take(copy)), life, lines)


@pytest.mark.some(6)
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_two_lives(tmp_path, mix):
    run_lives(tmp_path, mix, 2, SEED, 100)


@pytest.mark.long
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_seventeen_lives(tmp_path, mix):
    seed = SEED if "ROCKETC_SEED" in os.environ else random.SystemRandom().randrange(1 << 32)
    run_lives(tmp_path, mix, 17, seed, 2000)
