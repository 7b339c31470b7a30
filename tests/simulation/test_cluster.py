"""Clusters on virtual time, with a hostile network, kills and power cuts: nothing acknowledged is lost, and more.

simulation.history says what is checked. ROCKETC_SEED=n runs only seed n. A failure names its seed, and a seed always
gives the same run.
"""

import os
import random
import re
import shutil
import sys
from typing import Any

import pytest
from simulation import runs
from simulation.mutants import MUTANTS
from support import preload
from support.native import ROOT
from support.promise_counts import count

pytestmark = pytest.mark.promise(10, 12)

DISK = ROOT / "tests" / "crash" / "disk.c"
SEEDS = [int(os.environ["ROCKETC_SEED"])] if "ROCKETC_SEED" in os.environ else list(range(1, 15))
LONG_SEEDS = 1000
SEEDS_FOR_A_MUTANT = 200


def run(seeds: list[int], *options: str, **environment: str) -> list[dict[str, Any]]:
    """Run seeds in a process that may lose the power of a machine, if a C compiler is there."""
    if sys.platform == "linux" and shutil.which("cc"):
        environment["LD_PRELOAD"] = preload.loading(preload.built(DISK))
    return runs.run("simulation.cluster", seeds, *options, **environment)


def check(seeds: list[int]) -> None:
    told = run(seeds)
    for found in told:
        assert not found["wrong"], f"run it again with ROCKETC_SEED={found['seed']}: " + "\n".join(found["wrong"])
        count("simulated", 1)
        count("acknowledged", found["acknowledged"])
        count("kills", found["counts"].get("kill", 0) + found["counts"].get("power cuts", 0))
    assert sum(found["acknowledged"] for found in told) > 20 * len(told) > 0


@pytest.mark.some(1)
@pytest.mark.parametrize("half", [0, 1])
def test_clusters(half):
    check(SEEDS[half::2] or SEEDS)


def test_a_seed_always_gives_the_same_run():
    found = [run([seed], PYTHONHASHSEED=str(n))[0]["digest"] for n, seed in enumerate([7, 7])]
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_many_clusters(part):
    first = random.SystemRandom().randrange(1 << 32)
    check(SEEDS if len(SEEDS) == 1 else list(range(first, first + LONG_SEEDS // 10)))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """A broker that is broken in one way does not pass."""
    found = run(list(range(1, SEEDS_FOR_A_MUTANT + 1)), "--mutant", mutant)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
