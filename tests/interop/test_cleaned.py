"""A store whose oldest log files are deleted: both sides begin at the same messages."""

import os

import pytest
from interop import ours
from interop.ledger import of_size, plan
from interop.turns import Turns, both_answer

pytestmark = pytest.mark.promise(9)

HOUR = 3600  # seconds


def gone(peer):
    """A message, the only one of its queue, that will be deleted.

    4.9 does not move the start of such a queue, and returns the bytes that are in the message's place.
    """
    return [of_size(200, "Gone")] if peer.release >= "5" else []


@pytest.mark.some(1)
def test_rocketmq_continues_after_rocketc_cleans(peer, memory_path):
    turns = Turns(memory_path / "store", {"deleteWhen": "0;" + ";".join(map(str, range(24)))})
    turns.rocketc_puts([*gone(peer), *plan(0, 400)])
    log = sorted((turns.root / "commitlog").iterdir())
    for path in log[:4]:
        os.utime(path, (path.stat().st_mtime - 100 * HOUR,) * 2)
    with ours.open_store(turns.root, turns.settings) as store:
        report = store.clean()
        assert report.log_files == 4
        assert report.derived > 0
        assert store.min_phy_offset == int(log[4].name)
        list(ours.put(store, plan(1, 100)))
    assert sorted((turns.root / "commitlog").iterdir())[0] == log[4]
    both_answer(peer, turns.root, turns.settings)
    peer.open(turns.root, turns.settings)
    peer.put(turns.root, [*gone(peer), *plan(2, 100)])
    peer.close(turns.root)
    both_answer(peer, turns.root, turns.settings)


@pytest.mark.some(1)
def test_log_files_that_were_deleted(peer, tmp_path):
    turns = Turns(tmp_path / "store")
    turns.rocketmq_puts(peer, [*gone(peer), *plan(0, 400)])
    for path in sorted((turns.root / "commitlog").iterdir())[:4]:
        path.unlink()
    both_answer(peer, turns.root, turns.settings)
    with ours.open_store(turns.root, turns.settings) as store:
        assert [answer["queueOffset"] for answer in ours.put(store, gone(peer))] == [1] * len(gone(peer))
        list(ours.put(store, plan(1, 100)))
    both_answer(peer, turns.root, turns.settings)
