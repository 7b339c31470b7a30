"""Log files expire and are deleted; queues go on counting where they were."""

from interop import ours
from interop.ledger import of_size, plan
from interop.turns import SETTINGS, Turns

import rocketc


def test_a_queue_without_messages_keeps_its_count(peer, tmp_path):
    turns = Turns(tmp_path / "store")
    old = of_size(200, "Old")
    peer.open(turns.root, SETTINGS)
    peer.put(turns.root, 30 * [old])
    peer.put(turns.root, plan(0, 200))
    peer.close(turns.root)
    first, *others = sorted((turns.root / "commitlog").iterdir())
    assert len(others) > 1
    first.unlink()

    with ours.open_store(turns.root, turns.settings) as store:
        assert store.min_phy_offset == int(others[0].name)
        (answer,) = ours.put(store, [old])
        assert answer["queueOffset"] == 30
    peer.open(turns.root, SETTINGS)
    (again,) = peer.put(turns.root, [old])
    assert again["queueOffset"] == 31
    answer = peer.read(turns.root)
    peer.close(turns.root)

    assert ["Old", 0, 30, 32] in answer["queues"]
    found = {(m["topic"], m["queueId"], m["queueOffset"]): m["physicalOffset"] for m in answer["messages"]}
    records = rocketc.scan(turns.root)
    assert found == {(m.topic, m.queue_id, m.queue_offset): m.phy_offset for m in records if m.sys_flag & 0xC in (0, 8)}
