"""Salvaged stores: RocketMQ opens them, finds all readable messages at their offsets, and can continue."""

import pytest
from interop import ours
from interop.ledger import ROLLBACK, is_queued, of_size
from interop.turns import SETTINGS, Turns
from support import stores

import rocketc
from rocketc.jobs.salvage_files import TOPIC

pytestmark = pytest.mark.promise(5, 9)


def is_ours(message):
    """Whether the message was written by salvage in place of a lost one."""
    return message["sysFlag"] == ROLLBACK and TOPIC.startswith(message["topic"])


def reachable(peer, root, queues):
    """{physical offset: (topic, queue id)} of all messages that RocketMQ returns to a consumer that pulls."""
    found = {}
    for topic, queue_id in queues:
        at = 0
        while True:
            question = {"kind": "getMessage", "topic": topic, "queueId": queue_id, "offset": at, "maxMsgNums": 32}
            (got,) = peer.answers(root, [{**question, "tags": None}])
            found |= dict.fromkeys(got["phyOffsets"], (topic, queue_id))
            if got["nextBeginOffset"] <= at:
                break
            at = got["nextBeginOffset"]
    return found


def salvaged(tmp_path, name, compact):
    """The golden store, the salvaged one, and the messages that rocketc reads in the golden store."""
    golden = stores.unpack(name, tmp_path)
    old = ours.scan(golden.path, unwrap=False)
    rocketc.salvage(golden.path, tmp_path / "new", compact=compact)
    return golden, tmp_path / "new", old


@pytest.mark.some(2)
@pytest.mark.parametrize("compact", [False, True], ids=["kept", "compact"])
@pytest.mark.parametrize("name", stores.DAMAGED)
def test_rocketmq_continues_a_salvaged_store(peer, tmp_path, name, compact):
    golden, root, old = salvaged(tmp_path, name, compact)
    turns = Turns(root, golden.about["config"])
    new = [m for m in ours.scan(root, unwrap=False) if not is_ours(m)]
    if compact:
        moved = dict.fromkeys(("physicalOffset", "msgId"))
        assert [{**m, **moved} for m in new] == [{**m, **moved} for m in old]
    else:
        assert new == old
    peer.open(root, turns.settings)
    queued = [m for m in new if is_queued(m)]
    found = reachable(peer, root, {(m["topic"], m["queueId"]) for m in queued})
    assert found == {m["physicalOffset"]: (m["topic"], m["queueId"]) for m in queued}
    seen = peer.look(root, [m["physicalOffset"] for m in new])
    assert [(m["msgId"], m["body"]) for m in seen] == [(m["msgId"], m["body"]) for m in new]
    ends = {}
    for m in queued:
        ends[m["topic"], m["queueId"]] = m["queueOffset"] + 1
    (topic, _), *_ = ends
    answers = peer.put(root, [of_size(300, topic=topic), of_size(300, topic=topic)])
    assert [a["queueOffset"] for a in answers] == [ends.get((topic, 0), 0), ends.get((topic, 0), 0) + 1]
    peer.close(root)
    with ours.open_store(root, turns.settings) as store:
        assert store.get(topic, 0, answers[0]["queueOffset"]).next_offset == answers[1]["queueOffset"] + 1


@pytest.mark.some(2)
@pytest.mark.parametrize("compact", [False, True], ids=["kept", "compact"])
def test_messages_after_a_loss_in_the_first_file(peer, tmp_path, compact):
    """A long range, some records, a blank record and a whole file are lost.

    RocketMQ takes the unit of a lost message for a unit whose log file was deleted. If that file is the one at physical
    offset 0, RocketMQ skips the queue's later units of that file. So compact logs do not begin at 0.
    """
    turns = Turns(tmp_path / "old")
    messages = [{**of_size(500, topic), "queueId": n % 2} for n in range(400) for topic in ("A", "B")]
    with ours.open_store(turns.root, turns.settings) as store:
        list(ours.put(store, messages))
    files = sorted((turns.root / "commitlog").iterdir())
    for at, size in [(2500, 8), (20_000, 5000), (131 * 500 - 8, 36), (65536, 1000), (2 * 65536 + 60_000, 5536)]:
        with files[at // 65536].open("r+b") as file:
            file.seek(at % 65536)
            file.write(b"\xee" * size)
    files[3].unlink()
    root = tmp_path / "new"
    report = rocketc.salvage(turns.root, root, compact=compact)
    assert len(report.lost) == 5 and report.missing == [(3 * 65536, 4 * 65536)]
    new = {m["physicalOffset"]: (m["topic"], m["queueId"]) for m in ours.scan(root) if not is_ours(m)}
    assert len(new) > 600
    with ours.open_store(root, turns.settings, read_only=True) as store:
        got = {m.phy_offset: queue for queue in store.queues() for m in store.get(*queue, max_count=1000)}
    peer.open(root, turns.settings)
    found = reachable(peer, root, {*new.values()})
    peer.close(root)
    assert got == new and {*found.items()} <= {*new.items()}
    assert all(at < SETTINGS["mappedFileSizeCommitLog"] and not compact for at in {*new} - {*found})
