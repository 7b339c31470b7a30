"""A record is lost in the middle of the log: rocketc keeps the queue offsets of the later ones, and RocketMQ finds
them.
"""

import pytest
from interop import ours
from interop.ledger import is_queued, of_size
from interop.turns import SETTINGS, Turns

import rocketc

pytestmark = pytest.mark.promise(5, 9)

SIZE = int(str(SETTINGS["mappedFileSizeCommitLog"]))


@pytest.mark.parametrize("which", ["middle", "last of its queue"])
def test_rocketmq_finds_the_others(peer, tmp_path, which):
    """The damage is in the second file; the first one has expired."""
    turns = Turns(tmp_path / "store")
    messages = [{**of_size(500, topic), "queueId": n % 2} for n in range(400) for topic in ("A", "B")]
    rare = {**of_size(500, "Rare"), "queueId": 0}
    with ours.open_store(turns.root, turns.settings) as store:
        answers = list(ours.put(store, [rare, *messages[:150], rare, rare, *messages[150:]]))
    lost = answers[152] if which == "last of its queue" else answers[160]
    assert SIZE < lost["phyOffset"] < 2 * SIZE
    first, second, *others = sorted((turns.root / "commitlog").iterdir())
    assert len(others) > 4
    first.unlink()
    with second.open("r+b") as file:
        file.seek(lost["phyOffset"] - SIZE + 4)
        file.write(b"lost")  # overwrites the magic number of the record
    with ours.open_store(turns.root, turns.settings) as store:
        assert store.max_phy_offset == answers[-1]["phyOffset"] + 500
    kept = {m["physicalOffset"]: (m["topic"], m["queueId"], m["queueOffset"]) for m in ours.scan(turns.root)}
    assert len(kept) > 600
    assert lost["phyOffset"] not in kept

    peer.open(turns.root, turns.settings)
    answer = peer.ask(do="ask", root=str(turns.root), questions=[])
    assert answer == []
    found = {}
    for topic, queue_id in {(topic, queue_id) for topic, queue_id, _ in kept.values()} | {("Rare", 0)}:
        at = 0
        while True:
            question = {"kind": "getMessage", "topic": topic, "queueId": queue_id, "offset": at, "maxMsgNums": 32}
            (got,) = peer.answers(turns.root, [{**question, "tags": None}])
            found |= dict.fromkeys(got["phyOffsets"], (topic, queue_id))
            if got["nextBeginOffset"] <= at:
                break
            at = got["nextBeginOffset"]
    peer.close(turns.root)
    assert sorted(found) == sorted(kept)
    assert {m.phy_offset for m in rocketc.scan(turns.root, errors="skip")} == {*kept}
    assert all(is_queued(m) for m in ours.scan(turns.root))
