"""Queues that only some messages have: light queues (%LMQ%) that many topics share, and batch queues."""

import random

import pytest
from interop import ours
from interop.ledger import of_size
from interop.turns import SETTINGS, both_answer
from support import oracle
from support.derived import FOLDERS, files_of

import rocketc

pytestmark = pytest.mark.promise(9)

LIGHT = {**SETTINGS, "enableLmq": "true", "enableMultiDispatch": "true"}
BATCHES = {**SETTINGS, "mapperFileSizeBatchConsumeQueue": 4600, "batchTopics": "Inner"}
INNER = 0xC0  # an inner batch, which a client has to unwrap
TOPICS = """{
	"dataVersion":{"counter":1,"timestamp":1795248689217},
	"topicConfigTable":{
		"Inner":{
			"attributes":{"queue.type":"BatchCQ"},
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"Inner",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""


def light(chance, count):
    names = [f"%LMQ%{n}" for n in range(4)]
    for _ in range(count):
        message = {**of_size(200 + chance.randrange(300), "Parent"), "queueId": chance.randrange(2)}
        some = chance.sample(names, chance.randrange(1, 4))
        yield {**message, "properties": {"TAGS": chance.choice("ab"), "INNER_MULTI_DISPATCH": ",".join(some)}}


def inner(chance, count):
    for _ in range(count):
        entries = [(0, chance.randbytes(chance.randrange(100)), {"KEYS": "k"}) for _ in range(chance.randrange(1, 9))]
        message = {**of_size(100, "Inner"), "queueId": chance.randrange(2), "sysFlag": INNER}
        message["body"] = oracle.encode_batch(entries)
        yield {
            **message,
            "properties": {"INNER_NUM": str(len(entries)), "UNIQ_KEY": chance.randbytes(16).hex().upper()},
        }


def take_turns(peer, root, settings, messages, *, we_put=True):
    """Two rounds; the side that opens a closed store leaves its files unchanged."""
    chance = random.Random(7)
    for _ in range(2):
        with ours.open_store(root, settings) as store:
            if we_put:
                assert all(answer["ok"] for answer in ours.put(store, messages(chance, 60)))
        before = files_of(root, *FOLDERS)
        both_answer(peer, root, settings)
        assert files_of(root, *FOLDERS) == before
        peer.open(root, settings)
        assert all(answer["ok"] for answer in peer.put(root, messages(chance, 60)))
        peer.close(root)
        before = files_of(root, *FOLDERS)
        both_answer(peer, root, settings)
        assert files_of(root, *FOLDERS) == before


@pytest.mark.some(1)
def test_light_queues(peer, tmp_path):
    take_turns(peer, tmp_path, LIGHT, light)
    with ours.open_store(tmp_path, LIGHT, read_only=True) as store:
        assert {(f"%LMQ%{n}", 0) for n in range(4)} < {*store.queues()}


TOPICS_OF_LIGHT = [
    *("Parent", "%RETRY%g", "%RETRY%", "x%RETRY%g", "%retry%g", "%DLQ%g", "rmq_sys_x", "rmq_sys_", "TBW102"),
    *("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%LMQ%own"),
]


@pytest.mark.parametrize("given", [{}, {"INNER_MULTI_QUEUE_OFFSET": "0"}], ids=["", "given"])
def test_which_topics_have_light_queues(peer, tmp_path, given):
    """One light queue a topic. RocketMQ 5.3.3 and rocketc give the same topics none; 4.9.7 does not have such topics.

    A store of 4.9.7 with units of such messages is not damaged, and rocketc leaves its files unchanged.
    """
    planned = [
        {**of_size(200, topic), "queueId": 0, "properties": {"INNER_MULTI_DISPATCH": f"%LMQ%{n}", **given}}
        for n, topic in enumerate(TOPICS_OF_LIGHT)
    ]
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    peer.open(theirs, LIGHT)
    assert all(answer["ok"] for answer in peer.put(theirs, planned))
    queues = {(topic, queue): (low, high) for topic, queue, low, high in peer.read(theirs)["queues"] if high}
    peer.close(theirs)
    with ours.open_store(mine, LIGHT) as store:
        assert all(answer["ok"] for answer in ours.put(store, planned))
        store.wait_dispatched()
        found = {where: (store.min_offset(*where), store.max_offset(*where)) for where in store.queues()}
    light = {TOPICS_OF_LIGHT[int(name[5:])] for name, _ in queues if name[5:].isdecimal()}
    if peer.release >= "5":
        assert found == queues
        assert [m["properties"] for m in ours.scan(mine)] == [m["properties"] for m in ours.scan(theirs)]
    else:
        assert light == {*TOPICS_OF_LIGHT} and len(found) < len(queues)
    before = files_of(theirs, *FOLDERS)
    for _ in range(2):
        assert rocketc.verify(theirs).derived.findings == []
        with ours.open_store(theirs, LIGHT) as store:
            for (topic, queue), (low, high) in queues.items():
                assert (store.min_offset(topic, queue), store.max_offset(topic, queue)) == (low, high)
                assert store.get(topic, queue).queue_offsets == [*range(low, high)]
        assert files_of(theirs, *FOLDERS) == before
        (theirs / "abort").touch()  # the second time, after a crash
        (theirs / "checkpoint").unlink()
    with ours.open_store(theirs, LIGHT) as store:
        for n in range(len(TOPICS_OF_LIGHT)):
            name = f"%LMQ%{n}"
            end = queues.get((name, 0), (0, 0))[1]
            store.put("Parent", b"more", properties={"INNER_MULTI_DISPATCH": name})
            assert [m.body for m in store.get(name, 0, end)] == [b"more"]
    assert rocketc.verify(theirs).derived.findings == []


@pytest.mark.parametrize("release", ["5.3.3"])
def test_queues_of_inner_batches(peers, tmp_path, release):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(TOPICS)
    take_turns(peers(release), tmp_path, BATCHES, inner, we_put=False)  # we do not assign INNER_BASE yet
