"""Timed messages on virtual time: kills, power cuts, clocks that jump, and recalls near the time.

simulation.timed_cluster says what is checked. ROCKETC_SEED=n runs only seed n. A failure names its seed, and a seed
always gives the same run.
"""

import os
import random
import re
import shutil
import sys
from typing import Any

import pytest
from simulation import runs
from simulation.test_cluster import DISK
from simulation.timed_mutants import MUTANTS
from support import preload
from support.promise_counts import count

SEEDS = [int(os.environ["ROCKETC_SEED"])] if "ROCKETC_SEED" in os.environ else [4, 8, 13, 23]
LONG_SEEDS = 200
SEEDS_FOR_A_MUTANT = 50

pytestmark = pytest.mark.promise(1, 12)


def run(seeds: list[int], *options: str) -> list[dict[str, Any]]:
    """Run seeds in a process that may lose the power of its machine, if a C compiler is there."""
    environment = {"PYTHONHASHSEED": "0"}
    if sys.platform == "linux" and shutil.which("cc"):
        environment["LD_PRELOAD"] = preload.loading(preload.built(DISK))
    return runs.run("simulation.timed_cluster", seeds, *options, **environment)


def check(seeds: list[int]) -> None:
    told = run(seeds)
    assert len(told) == len(seeds)
    for found in told:
        assert not found["wrong"], f"run it again with ROCKETC_SEED={found['seed']}: " + "\n".join(found["wrong"])
        count("simulated", 1)
        count("acknowledged", found["acknowledged"])
        count("kills", found["counts"].get("kill", 0) + found["counts"].get("power cuts", 0))
    assert sum(found["acknowledged"] for found in told) > 20 * len(told) > 0


def test_timed_messages():
    check(SEEDS)


@pytest.mark.long
def test_a_seed_always_gives_the_same_run():
    assert len({run([2])[0]["digest"] for _ in range(2)}) == 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_many_timed_messages(part):
    first = random.SystemRandom().randrange(1 << 32)
    check(SEEDS if len(SEEDS) == 1 else list(range(first, first + LONG_SEEDS // 4)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """Timed messages that are broken in one way do not pass."""
    found = run(list(range(1, SEEDS_FOR_A_MUTANT + 1)), "--mutant", mutant)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
