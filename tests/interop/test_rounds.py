"""RocketMQ and rocketc write to one store alternately: nothing is lost, changed, renumbered or invented."""

import pytest
from interop import ours
from interop.ledger import of_size, plan
from interop.turns import CHECKSUMS, SYNC, Turns

pytestmark = pytest.mark.promise(1, 9)

PLAIN = pytest.param({}, id="plain", marks=pytest.mark.long)  # the two others cover it too


@pytest.mark.some(1)
@pytest.mark.parametrize("settings", [PLAIN, pytest.param(CHECKSUMS, id="checksums"), pytest.param(SYNC, id="sync")])
def test_three_rounds(peer, tmp_path, settings):
    turns = Turns(tmp_path / "store", settings)
    for n in range(3):
        turns.rocketc_puts(plan(2 * n, 150, v2=peer.knows_v2))
        turns.rocketmq_puts(peer, plan(2 * n + 1, 150, v2=peer.knows_v2))
        turns.both_answer(peer, n)


@pytest.mark.some(1)
def test_three_rounds_of_killed_writers(start, peer, tmp_path):
    turns = Turns(tmp_path / "store")
    for n in range(3):
        turns.rocketc_is_killed(plan(2 * n, 400, v2=peer.knows_v2), 100)
        turns.rocketmq_is_killed(start(peer.release), plan(2 * n + 1, 400, v2=peer.knows_v2), 100)
        turns.rocketc_puts([])  # RocketMQ's recovery loses its own keys; rocketc finds them in the log
        turns.both_answer(peer, n)
    turns.rocketc_puts(plan(6, 50))


@pytest.mark.long
def test_both_releases_alternately(peers, tmp_path):
    turns = Turns(tmp_path / "store")
    for n, release in enumerate(["4.9.7", "5.3.3", "4.9.7", "5.3.3"]):
        turns.rocketc_puts(plan(2 * n, 100))
        turns.rocketmq_puts(peers(release), plan(2 * n + 1, 100))
        turns.both_answer(peers(release), n)


def test_a_store_that_rocketc_put_nothing_into_was_shut_down_cleanly(peer, tmp_path):
    """Its queues are complete, so RocketMQ does not rebuild them."""
    turns = Turns(tmp_path / "store")
    turns.rocketmq_puts(peer, [*plan(0, 50), of_size(200)])
    with ours.open_store(turns.root, turns.settings):
        assert (turns.root / "abort").exists()
    assert not (turns.root / "abort").exists()
    turns.rocketmq_puts(peer, plan(1, 50))
