"""One writer at a time, RocketMQ or rocketc."""

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
