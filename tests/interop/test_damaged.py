"""Stores whose RocketMQ was killed: rocketc recovers them as RocketMQ does, and both can continue."""

import pytest
from interop import ours
from interop.ledger import plan
from interop.turns import Turns
from support import stores

pytestmark = pytest.mark.promise(5, 9)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "name",
    [
        "v497-unclean",
        "v533-unclean",
        "v497-torn",
        "v533-torn",
    ],
)
def test_recovered_by_rocketc(peers, tmp_path, name):
    golden = stores.unpack(name, tmp_path)
    turns = Turns(golden.path, golden.about["config"])
    with ours.open_store(turns.root, turns.settings) as store:
        assert store.max_phy_offset == golden.recovered["afterLoad"]["maxPhyOffset"]
    turns.ledger.messages = ours.scan(turns.root)
    peer = peers(golden.about["rocketmq"])
    for n in range(2):
        turns.rocketc_puts(plan(2 * n, 50))
        turns.rocketmq_puts(peer, plan(2 * n + 1, 50))
