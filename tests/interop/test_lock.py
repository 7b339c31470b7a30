"""One writer at a time, RocketMQ or rocketc."""

import time

import pytest
from interop import ours
from interop.peer import PeerError
from interop.turns import Turns

import rocketc

pytestmark = pytest.mark.promise(7, 9)


def test_one_writer_at_a_time(peer, tmp_path):
    turns = Turns(tmp_path / "store")
    peer.open(turns.root, turns.settings)
    with pytest.raises(rocketc.StoreLockedError):
        ours.open_store(turns.root, turns.settings)
    peer.close(turns.root)
    with ours.open_store(turns.root, turns.settings), pytest.raises(PeerError, match="already started"):
        peer.open(turns.root, turns.settings)


def test_rocketmq_takes_a_store_whose_lock_file_is_deleted(peer, tmp_path):
    """RocketMQ can't see that rocketc writes: it does not lock folders. rocketc notices, and stops."""
    turns = Turns(tmp_path / "store")
    store = ours.open_store(turns.root, turns.settings)
    (turns.root / "lock").unlink()
    peer.open(turns.root, turns.settings)
    until = time.monotonic() + 20
    while store.failed is None and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(rocketc.StoreFailedError, match=r"lock is gone or was replaced, so another process may write"):
        store.put("t", b"body")
    with pytest.raises(rocketc.StoreFailedError):
        store.close()
    peer.close(turns.root)
    ours.open_store(turns.root, turns.settings).close()
