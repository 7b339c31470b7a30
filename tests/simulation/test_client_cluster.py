"""Producers and groups of rocketc.client on virtual time: members and brokers hang, die and come again.

simulation.client_history says what is checked. ROCKETC_SEED=n runs only seed n. A failure names its seed, and a seed
always gives the same run.
"""

import os
import random
import re
from typing import Any

import pytest
from simulation import runs
from simulation.client_mutants import MUTANTS
from support.promise_counts import count

pytestmark = pytest.mark.promise(10)

SEEDS = [int(os.environ["ROCKETC_SEED"])] if "ROCKETC_SEED" in os.environ else [5, 12, 14]
LONG_SEEDS = 500
SEEDS_FOR_A_MUTANT = 100


def run(seeds: list[int], *options: str, module: str = "simulation.client_cluster") -> list[dict[str, Any]]:
    """Run seeds in another process; the order of sets of names is fixed."""
    return runs.run(module, seeds, *options, PYTHONHASHSEED="0")


def check(seeds: list[int]) -> None:
    told = run(seeds)
    assert len(told) == len(seeds)
    for found in told:
        assert not found["wrong"], f"run it again with ROCKETC_SEED={found['seed']}: " + "\n".join(found["wrong"])
        count("simulated", 1)
        count("acknowledged", found["acknowledged"])
        count("kills", found["counts"].get("kill_broker", 0) + found["counts"].get("member_dies", 0))
    assert sum(found["acknowledged"] for found in told) > 20 * len(told) > 0


def test_clients():
    check(SEEDS)


@pytest.mark.long
def test_a_seed_always_gives_the_same_run():
    assert len({run([12])[0]["digest"] for _ in range(2)}) == 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_many_clients(part):
    first = random.SystemRandom().randrange(1 << 32)
    check(SEEDS if len(SEEDS) == 1 else list(range(first, first + LONG_SEEDS // 10)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """A client that is broken in one way does not pass."""
    found = run(list(range(1, SEEDS_FOR_A_MUTANT + 1)), "--mutant", mutant)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
