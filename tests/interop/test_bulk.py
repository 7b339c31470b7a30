"""Messages that rocketc puts in bulk, RocketMQ reads one by one."""

import pytest
from interop import ledger, ours
from interop.turns import SYNC, Turns

pytestmark = pytest.mark.promise(9)


def test_put_many_and_put_async(peer, tmp_path):
    turns = Turns(tmp_path / "store", SYNC)
    bodies = [bytes([n % 256]) * n for n in range(400)]
    with ours.open_store(turns.root, turns.settings) as store:
        bulk = store.put_many("Bulk", bodies, tags="TagA", keys="k1 k2", queue_id=2)
        futures = [store.put_async("Single", body, queue_id=n % 3) for n, body in enumerate(bodies)]
        singles = [future.result(60) for future in futures]

    peer.open(turns.root, turns.settings)
    messages = ledger.read(peer, turns.root)
    assert len(peer.query(turns.root, "Bulk", "k2")) == 64
    peer.close(turns.root)
    first, others = messages[: len(bodies)], messages[len(bodies) :]
    assert [(m["topic"], m["queueId"], m["queueOffset"], m["body"]) for m in first] == [
        ("Bulk", 2, n, body) for n, body in enumerate(bodies)
    ]
    assert all(m["properties"] == {"TAGS": "TagA", "KEYS": "k1 k2"} for m in first)
    assert (bulk.phy_offset, bulk.count, bulk.size) == (0, len(bodies), sum(m["storeSize"] for m in first))
    assert [(m["queueOffset"], m["physicalOffset"], m["storeSize"], m["body"]) for m in others] == [
        (r.queue_offset, r.phy_offset, r.size, body) for r, body in zip(singles, bodies, strict=True)
    ]
