"""Log files expire and are deleted; queue offsets continue."""

import json
import os
import time

import pytest
from interop import ours
from interop.ledger import of_size, plan
from interop.turns import SETTINGS, Turns
from support.command import rocketc as rocketc_command

import rocketc

pytestmark = pytest.mark.promise(9)


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


def derived(root):
    """The files of queues and index by path."""
    files = [path for kind in ("consumequeue", "index") for path in (root / kind).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_rocketmq_continues_after_the_clean_command(peer, tmp_path):
    """Its queues begin where the log does, keys of deleted messages are not found, and nothing is rebuilt."""
    root, settings = tmp_path / "store", {**SETTINGS, "mappedFileSizeConsumeQueue": 400, "maxIndexNum": 100}
    peer.open(root, settings)
    peer.put(root, [{**of_size(500), "queueId": n % 3, "properties": {"KEYS": f"n{n}"}} for n in range(600)])
    peer.close(root)
    logs = sorted(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()[:8]))
    assert len(logs) > 4
    for path in logs[:3]:
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    before = derived(root)
    done = rocketc_command("clean", root, "--yes", "--older-than", "1h", "--json")
    assert done.returncode == 0, done.stderr
    deleted = json.loads(done.stdout)["deleted"]
    assert {one["kind"] for one in deleted} == {"commitlog", "consumequeue", "index"}
    after = derived(root)
    assert after.items() < before.items() and len(before) - len(after) == len(deleted) - 3

    peer.open(root, settings)
    answer = peer.read(root)
    found = [peer.query(root, "a", key) for key in ("n0", "n599")]
    peer.close(root)
    records = list(rocketc.scan(root))
    assert answer["min"] == int(logs[3].name) == records[0].phy_offset
    places = {(m["topic"], m["queueId"], m["queueOffset"]): m["physicalOffset"] for m in answer["messages"]}
    assert places == {(m.topic, m.queue_id, m.queue_offset): m.phy_offset for m in records}
    least = {queue_id: min(m.queue_offset for m in records if m.queue_id == queue_id) for queue_id in range(3)}
    queues = [queue for queue in answer["queues"] if queue[0] == "a"]  # 4.x also has the queues of delayed messages
    assert queues == [["a", queue_id, least[queue_id], 200] for queue_id in range(3)]
    assert found == [[], [records[-1].phy_offset]]
    assert {name: raw for name, raw in derived(root).items() if name.startswith("consumequeue")} == {
        name: raw for name, raw in after.items() if name.startswith("consumequeue")
    }
