"""Rounds hours apart: RocketMQ uses the times in its checkpoint to decide which part of the log it dispatches again."""

import time

import pytest
from interop.ledger import plan
from interop.turns import Turns

pytestmark = pytest.mark.promise(9)

HOUR = 3_600_000  # ms
NEWEST = 20  # of a key: RocketMQ returns at most 64, and a message once for each of its keys with that hash


@pytest.fixture
def turns(peer, tmp_path):
    """A store that both have written to; RocketMQ has opened it last."""
    turns, now = Turns(tmp_path / "store"), int(time.time() * 1000)
    turns.rocketmq_puts(peer, plan(0, 60))
    for n in range(1, 4):
        turns.rocketc_puts(plan(n, 60), clock=now + n * HOUR)
        turns.rocketmq_puts(peer, [])
    return turns


@pytest.mark.some(1)
def test_messages_are_found(peer, turns):
    turns.rocketmq_puts(peer, [])


@pytest.mark.some(1)
def test_keys_are_found(peer, turns):
    peer.open(turns.root, turns.settings)
    for (topic, key), offsets in turns.ledger.keys().items():
        found = peer.query(turns.root, topic, key)
        assert {*offsets[-NEWEST:]} <= {*found}, f"{topic} {key}"
    peer.close(turns.root)
