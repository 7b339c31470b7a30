"""Two owners of a queue, on virtual time: for 2.4 s at most after a restart, none while an orderly owner is cut off.

simulation.owners says what is checked. ROCKETC_SEED=n runs only seed n. A failure names its seed, and a seed always
gives the same run.
"""

import os
import random
import re
from typing import Any

import pytest
from simulation import runs
from simulation.owner_mutants import MUTANTS
from support.promise_counts import count

pytestmark = pytest.mark.promise(10)

SEEDS = [int(os.environ["ROCKETC_SEED"])] if "ROCKETC_SEED" in os.environ else [4]
LONG_SEEDS = 200
SEEDS_FOR_A_MUTANT = 50


def run(seeds: list[int], *options: str) -> list[dict[str, Any]]:
    """Run seeds in another process; the order of sets of names is fixed."""
    return runs.run("simulation.owners", seeds, *options, PYTHONHASHSEED="0")


def check(seeds: list[int]) -> None:
    told = run(seeds)
    assert len(told) == len(seeds)
    for found in told:
        assert not found["wrong"], f"run it again with ROCKETC_SEED={found['seed']}: " + "\n".join(found["wrong"])
        count("simulated", 1)


def test_owners():
    check(SEEDS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_many_owners(part):
    first = random.SystemRandom().randrange(1 << 32)
    check(SEEDS if len(SEEDS) == 1 and "ROCKETC_SEED" in os.environ else list(range(first, first + LONG_SEEDS // 4)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """A client or a broker that is broken in one way does not pass."""
    found = run(list(range(1, SEEDS_FOR_A_MUTANT + 1)), "--mutant", mutant)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
