"""Readers of a topic that is deleted and made again, or whose broker loses its last messages, on virtual time.

simulation.recreated_cluster says what is checked. ROCKETC_SEED=n runs only seed n. A failure names its seed, and a
seed always gives the same run.
"""

import os
import random
import re
from typing import Any

import pytest
from simulation import runs
from simulation.recreated_mutants import MUTANTS

SEEDS = [int(os.environ["ROCKETC_SEED"])] if "ROCKETC_SEED" in os.environ else [2, 6]
LONG_SEEDS = 200
SEEDS_FOR_A_MUTANT = 20


def run(seeds: list[int], *options: str) -> list[dict[str, Any]]:
    return runs.run("simulation.recreated_cluster", seeds, *options, PYTHONHASHSEED="0")


def check(seeds: list[int]) -> None:
    told = run(seeds)
    assert len(told) == len(seeds)
    for found in told:
        assert not found["wrong"], f"run it again with ROCKETC_SEED={found['seed']}: " + "\n".join(found["wrong"])
        assert found["counts"] and found["sent"] > 5


def test_readers():
    check(SEEDS)


@pytest.mark.long
def test_a_seed_always_gives_the_same_run():
    assert len({run([2])[0]["digest"] for _ in range(2)}) == 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_many_readers(part):
    first = random.SystemRandom().randrange(1 << 32)
    check(SEEDS if len(SEEDS) == 1 else list(range(first, first + LONG_SEEDS // 4)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """Readers that are broken in one way do not pass."""
    found = run(list(range(1, SEEDS_FOR_A_MUTANT + 1)), "--mutant", mutant)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
