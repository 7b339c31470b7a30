"""A topic that was deleted with RocketMQ and created again: its queue offsets start at 0, while the log has its old
records.
"""

import pytest
from interop import ours
from interop.ledger import of_size
from interop.turns import SETTINGS
from support.derived import files_of

import rocketc

pytestmark = pytest.mark.promise(9)


def told(peer, root):
    """(topic, queue offset, physical offset) of all messages that RocketMQ returns."""
    return [(m["topic"], m["queueOffset"], m["physicalOffset"]) for m in peer.read(root)["messages"]]


@pytest.mark.some(3)
@pytest.mark.parametrize("log", ["small", "large"])
@pytest.mark.parametrize("old", [1, 3, 400])
def test_its_queue_has_only_the_new_messages(peer, tmp_path, monkeypatch, log, old):
    if log == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    root = tmp_path / "store"
    peer.open(root, SETTINGS)
    peer.put(root, [of_size(200, topic="a"), of_size(200, topic="b")] * old)
    peer.read(root)  # all messages are dispatched
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


@pytest.mark.some(2)
@pytest.mark.parametrize("log", ["small", "large"])
def test_rocketmq_opens_a_store_of_ours_with_deleted_topics(peer, tmp_path, monkeypatch, log):
    """The topic is deleted; created again, its queue has the new messages from offset 0 on, and no others."""
    if log == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    root = tmp_path / "store"
    with ours.open_store(root, SETTINGS) as store:
        for _ in range(100):
            store.put("a", b"deleted", keys="k")
            store.put("b", b"stays")
        assert store.delete_topics("a") == 1
    for _ in range(2):
        peer.open(root, SETTINGS)
        assert [topic for topic, *_ in told(peer, root)] == ["b"] * 100
        peer.close(root)
        with ours.open_store(root, SETTINGS) as store:
            assert store.queues() == [("b", 0)]
    with ours.open_store(root, SETTINGS) as store:
        puts = [store.put("a", b"new") for _ in range(2)]
    wanted = [("a", put.queue_offset, put.phy_offset) for put in puts]
    assert [offset for _, offset, _ in wanted] == [0, 1]
    peer.open(root, SETTINGS)
    assert [found for found in told(peer, root) if found[0] == "a"] == wanted
    (answer,) = peer.put(root, [of_size(200, topic="a")])
    assert answer["queueOffset"] == 2
    peer.close(root)
    before = files_of(root, "consumequeue")
    assert rocketc.verify(root).is_whole
    rocketc.rebuild(root)
    assert files_of(root, "consumequeue") == before
    with ours.open_store(root, SETTINGS) as store:
        assert [m.phy_offset for m in store.get("a")] == [*(put.phy_offset for put in puts), answer["phyOffset"]]


@pytest.mark.parametrize("old", [3, 400])
def test_a_store_of_rocketmq_is_valid_and_rebuilt_unchanged(peer, tmp_path, old):
    root = tmp_path / "store"
    peer.open(root, SETTINGS)
    peer.put(root, [of_size(200, topic="a"), of_size(200, topic="b")] * old)
    peer.read(root)
    peer.ask(do="retain", root=str(root), topics=["b"])
    peer.put(root, [of_size(200, topic=topic) for topic in "aab"])
    wanted = told(peer, root)
    peer.close(root)
    report = rocketc.verify(root)
    assert report.is_log_whole and report.derived.findings == []
    assert list(report.derived.made_again) == [("a", 0)]
    rocketc.rebuild(root)
    assert rocketc.verify(root).derived.findings == []
    peer.open(root, SETTINGS)
    assert told(peer, root) == wanted
    peer.close(root)
