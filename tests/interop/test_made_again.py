"""A topic that RocketMQ deleted and that came back: its numbers begin anew, while the log has the first ones still."""

import pytest
from derived import files_of
from interop import ours
from interop.ledger import of_size
from interop.turns import SETTINGS


def told(peer, root):
    """(topic, queue offset, physical offset) of all messages that RocketMQ hands out."""
    return [(m["topic"], m["queueOffset"], m["physicalOffset"]) for m in peer.read(root)["messages"]]


@pytest.mark.parametrize("log", ["small", "large"])
@pytest.mark.parametrize("old", [1, 3, 400])
def test_its_messages_are_those_that_came_then(peer, tmp_path, monkeypatch, log, old):
    if log == "large":
        monkeypatch.setattr("rocketc.catch_up.SMALL_BYTES", 0)
    root = tmp_path / "store"
    peer.open(root, SETTINGS)
    peer.put(root, [of_size(200, topic="a"), of_size(200, topic="b")] * old)
    peer.read(root)  # all of it is dispatched
    peer.ask(do="retain", root=str(root), topics=["b"])
    assert {topic for topic, *_ in told(peer, root)} == {"b"}
    answers = peer.put(root, [of_size(200, topic=topic) for topic in "aab"])
    assert [answer["queueOffset"] for answer in answers] == [0, 1, old]
    wanted = told(peer, root)
    peer.close(root)
    before = files_of(root, "consumequeue")
    with ours.open_store(root, SETTINGS) as store:
        assert [m.phy_offset for m in store.get("a")] == [answer["phyOffset"] for answer in answers[:2]]
        assert files_of(root, "consumequeue") == before
        put = store.put("a", b"third")
        assert put.queue_offset == 2
    peer.open(root, SETTINGS)
    assert sorted(told(peer, root)) == sorted([*wanted, ("a", 2, put.phy_offset)])
    peer.close(root)
