"""Transactions on virtual time: producers and brokers hang, die and come again, and answers are lost.

simulation.transaction_cluster says what is checked. ROCKETC_SEED=n runs only seed n. A failure names its seed, and a
seed always gives the same run.
"""

import os
import random
import re

import pytest
from simulation.test_client_cluster import run
from simulation.transaction_mutants import MUTANTS
from support.promise_counts import count

MODULE = "simulation.transaction_cluster"
SEEDS = [int(os.environ["ROCKETC_SEED"])] if "ROCKETC_SEED" in os.environ else [3, 4]
LONG_SEEDS = 1000
SEEDS_FOR_A_MUTANT = 100

pytestmark = pytest.mark.promise(1, 11)


def check(seeds: list[int]) -> None:
    told = run(seeds, module=MODULE)
    assert len(told) == len(seeds)
    for found in told:
        assert not found["wrong"], f"run it again with ROCKETC_SEED={found['seed']}: " + "\n".join(found["wrong"])
        count("simulated", 1)
        count("acknowledged", found["acknowledged"])
        count("kills", found["counts"].get("kill_broker", 0) + found["counts"].get("member_dies", 0))
    assert sum(found["acknowledged"] for found in told) > 10 * len(told) > 0
    assert sum(found["counts"].get("checks", 0) for found in told) > 5 * len(told)


def test_transactions():
    check(SEEDS)


@pytest.mark.long
def test_a_seed_always_gives_the_same_run():
    assert len({run([4], module=MODULE)[0]["digest"] for _ in range(2)}) == 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_many_transactions(part):
    first = random.SystemRandom().randrange(1 << 32)
    check(SEEDS if len(SEEDS) == 1 else list(range(first, first + LONG_SEEDS // 10)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """Transactions that are broken in one way do not pass."""
    found = run(list(range(1, SEEDS_FOR_A_MUTANT + 1)), "--mutant", mutant, module=MODULE)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
