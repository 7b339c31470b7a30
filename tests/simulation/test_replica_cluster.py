"""Replication on virtual time, with cut connections, kills and older files. simulation.replica_cluster says what is
checked. ROCKETC_SEED=n runs only seed n. A failure names its seed, and a seed always gives the same run.
"""

import os
import random
import re
from typing import Any

import pytest
from simulation import runs
from simulation.replica_mutants import MUTANTS
from support.promise_counts import count

pytestmark = pytest.mark.promise(1, 13)

SEEDS = [int(os.environ["ROCKETC_SEED"])] if "ROCKETC_SEED" in os.environ else list(range(1, 13))
LONG_SEEDS = 1000
SEEDS_FOR_A_MUTANT = 200


def run(seeds: list[int], *options: str, **environment: str) -> list[dict[str, Any]]:
    return runs.run("simulation.replica_cluster", seeds, *options, **environment)


def check(seeds: list[int]) -> None:
    found = run(seeds)
    for one in found:
        assert not one["wrong"], f"run it again with ROCKETC_SEED={one['seed']}: " + "\n".join(one["wrong"])
        count("simulated", 1)
        count("acknowledged", one["acknowledged"])
    assert sum(one["acknowledged"] for one in found) > 20 * len(found) > 0


def test_replicas():
    check(SEEDS)


def test_a_seed_always_gives_the_same_run():
    found = [run([seed], PYTHONHASHSEED=str(n))[0]["digest"] for n, seed in enumerate([5, 5])]
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_many_replicas(part):
    first = random.SystemRandom().randrange(1 << 32)
    check(SEEDS if len(SEEDS) == 1 else list(range(first, first + LONG_SEEDS // 10)))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """Replication that is broken in one way does not pass."""
    found = run(list(range(1, SEEDS_FOR_A_MUTANT + 1)), "--mutant", mutant)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
