"""Queues that only some messages have: light queues (%LMQ%) that many topics share, and batch queues."""

import random

import pytest
from interop import ours
from interop.ledger import of_size
from interop.turns import SETTINGS, both_answer
from support import oracle
from support.derived import FOLDERS, files_of

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


@pytest.mark.parametrize("release", ["5.3.3"])
def test_queues_of_inner_batches(peers, tmp_path, release):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(TOPICS)
    take_turns(peers(release), tmp_path, BATCHES, inner, we_put=False)  # we do not assign INNER_BASE yet
