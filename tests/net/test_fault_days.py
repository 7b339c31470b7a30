"""Kills, cuts, a full disk and overload: with TLS and accounts, with two brokers, with an embedded broker.

No acknowledged message is lost, each group gets all, each client ends, and the brokers store messages again.
simulation.client_history says what is checked. ROCKETC_SEED=n runs only seed n; a failure names its seed. A disk can be
filled only where this process may mount one.
"""

import os
import random
import re
import shutil

import pytest
from net.fault_days import KINDS
from net.fault_mutants import MUTANTS
from simulation import runs
from support.promise_counts import count

pytestmark = [pytest.mark.promise(10), pytest.mark.timeout(3600)]

LONG_SEEDS = 20
SEEDS_FOR_A_MUTANT = 10


def seeds(many):
    if "ROCKETC_SEED" in os.environ:
        return [int(os.environ["ROCKETC_SEED"])]
    first = random.SystemRandom().randrange(1 << 30)
    return list(range(first, first + many))


def check(kind, chosen, seconds):
    if KINDS[kind].secured and shutil.which("openssl") is None:
        pytest.skip("the command openssl is not installed")
    found = runs.run("net.fault_days", chosen, "--kind", kind, "--seconds", str(seconds))
    assert len(found) == len(chosen)
    for one in found:
        assert not one["wrong"], f"run it again with ROCKETC_SEED={one['seed']}: " + "\n".join(one["wrong"])
        count("acknowledged", one["acknowledged"])
        count("kills", one["counts"].get("kill_client", 0) + one["counts"].get("kill_broker", 0))


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_short_day(kind):
    check(kind, [1], 0.5)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_long_days(kind):
    check(kind, seeds(LONG_SEEDS), 8)


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_found(mutant):
    """A client or a broker that is broken in one way does not pass."""
    options = ["--kind", "embedded", "--seconds", "5", "--mutant", mutant]
    found = runs.run("net.fault_days", list(range(1, SEEDS_FOR_A_MUTANT + 1)), *options)
    assert re.search(MUTANTS[mutant][1], " ".join(found[-1]["wrong"])), f"{len(found)} seeds found nothing"
