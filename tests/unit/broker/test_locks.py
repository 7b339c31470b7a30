"""The locks of queues: every clause of RebalanceLockManagerTest, and a model."""

import pytest

from rocketc.broker.locks import LOCK_MS, LOST_LOCK_MS, MessageQueue, RebalanceLockManager

CONNECTED = {"a", "b"}
ONE, TWO, THREE = (MessageQueue("orders", "broker-a", n) for n in range(3))


@pytest.fixture
def locks():
    return RebalanceLockManager(lambda group: CONNECTED)


def test_rebalance_lock_manager_test_all_expired(locks):
    """Unknown group: all expired. Any live lock: not."""
    assert locks.all_expired("g", 0)
    locks.lock("g", [ONE], "a", 0)
    locks.lock("g", [TWO], "b", 10)
    assert not locks.all_expired("g", LOCK_MS + 10)
    assert locks.all_expired("g", LOCK_MS + 11)


def test_rebalance_lock_manager_test_who_gets_a_lock(locks):
    """Free, own, expired: lock. Another's: refused."""
    assert locks.lock("g", [ONE], "a", 0) == {ONE}
    assert locks.lock("g", [ONE], "a", 1000) == {ONE}
    assert locks.lock("g", [ONE], "b", 1000 + LOCK_MS) == set()
    assert locks.lock("g", [ONE], "b", 1001 + LOCK_MS) == {ONE}
    assert locks.lock("h", [ONE], "a", 1001 + LOCK_MS) == {ONE}


def test_rebalance_lock_manager_test_a_batch_returns_exactly_the_held_ones(locks):
    locks.lock("g", [ONE], "a", 0)
    locks.lock("g", [TWO], "b", 0)
    assert locks.lock("g", [ONE, TWO, THREE, THREE], "b", 1) == {TWO, THREE}


def test_rebalance_lock_manager_test_unlock_by_another_client_changes_nothing(locks):
    locks.lock("g", [ONE], "a", 0)
    assert locks.unlock("g", [ONE, TWO], "b") == set()
    assert locks.unlock("h", [ONE], "a") == set()
    assert locks.is_locked("g", ONE, "a", LOCK_MS) and not locks.is_locked("g", ONE, "b", LOCK_MS)
    assert not locks.is_locked("g", ONE, "a", LOCK_MS + 1)
    assert locks.unlock("g", [ONE, TWO], "a") == {ONE}
    assert locks.lock("g", [ONE], "b", 0) == {ONE}


def test_a_lock_whose_owner_is_not_connected_is_free_sooner(locks):
    """Its owner trusts it for 30 s, whatever the broker sees; "gone" is not connected."""
    locks.lock("g", [ONE], "gone", 0)
    locks.lock("g", [TWO], "a", 0)
    assert not locks.all_expired("g", LOST_LOCK_MS)
    assert locks.lock("g", [ONE, TWO], "b", LOST_LOCK_MS) == set()
    assert locks.lock("g", [ONE, TWO], "b", LOST_LOCK_MS + 1) == {ONE}


def test_a_client_that_leaves_loses_its_locks(locks):
    locks.lock("g", [ONE, TWO], "a", 0)
    locks.lock("g", [THREE], "b", 0)
    locks.lock("h", [ONE], "a", 0)
    assert locks.unlock_all("g", "a") == {ONE, TWO} and locks.unlock_all("g", "a") == set()
    assert locks.lock("g", [ONE, TWO, THREE], "b", 1) == {ONE, TWO, THREE}
    assert locks.is_locked("h", ONE, "a", 1)


def test_expire_frees_the_memory(locks):
    locks.lock("g", [ONE], "a", 0)
    locks.lock("g", [TWO], "a", 5)
    assert locks.expire(LOCK_MS) == 0
    assert locks.expire(LOCK_MS + 1) == 1 and locks.count("g") == 1
    assert locks.expire(LOCK_MS + 6) == 1 and locks.count("g") == 0
    assert locks.lock("g", [], "a", 0) == set() and locks._groups == {}
