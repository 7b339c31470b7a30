"""rocketc gives RocketMQ's answers to queries about each whole golden store.

The stores have RocketMQ's own queues and index, or those that rocketc builds from the log. They are open for writing,
or read-only.
"""

import os

import pytest
from support import stores
from support.derived import FOLDERS
from support.queries import Known
from test_golden_queues import only_the_log

import rocketc

pytestmark = pytest.mark.promise(9)


@pytest.fixture(scope="module", params=stores.WHOLE)
def told(request, golden):
    """The golden store as RocketMQ left it."""
    return golden(request.param)


@pytest.fixture(scope="module", params=["theirs-writing", "theirs-reading", "built-writing", "built-reading"])
def store(request, told, tmp_path_factory):
    """The same store open in rocketc."""
    derived, access = request.param.split("-")
    folder = tmp_path_factory.mktemp("store")
    if derived == "theirs":
        root = stores.unpack(told.name, folder).path
    else:
        root = only_the_log(told, folder)
        rocketc.open(root, config=told.config).close()
        set_times(told, root)
    with rocketc.open(root, config=told.config, read_only=access == "reading") as opened:
        yield opened


def set_times(told, root):
    """Set the files' modification times, which RocketMQ 4.x compares with message times."""
    for kind in FOLDERS[:2]:
        for path in (root / kind).rglob("*"):
            if path.is_file():
                was = (told.path / path.relative_to(root)).stat()
                os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


@pytest.fixture(scope="module")
def known(told):
    return Known(told.messages, told.about["rocketmq"])


def asked(told, kind):
    """A golden store's file holds each query together with its answer."""
    return [{"kind": kind, **question} for question in told.queries[kind]]


def test_bounds(told, store):
    queries = told.queries
    assert (store.min_phy_offset, store.max_phy_offset) == (queries["minPhyOffset"], queries["maxPhyOffset"])
    assert sorted(store.queues()) == sorted((queue["topic"], queue["queueId"]) for queue in queries["queues"])
    for queue in queries["queues"]:
        where = queue["topic"], queue["queueId"]
        assert (store.min_offset(*where), store.max_offset(*where)) == (queue["min"], queue["max"])


@pytest.mark.some(13)
@pytest.mark.parametrize("kind", ["getMessage", "getOffsetInQueueByTime", "queryMessage"])
def test_answers(told, known, store, kind):
    questions = asked(told, kind)
    wrong = known.differences(store, questions, questions)
    assert wrong[:3] == [], f"{len(wrong)} of {len(questions)} answers differ"


@pytest.mark.some(8)
def test_tags_are_compared_as_text(told, store):
    """A queue as a client of RocketMQ sees it: without messages whose tags only have the same hash."""
    asked = {(q["topic"], q["queueId"], tuple(q["tags"])) for q in told.queries["getMessage"] if q["tags"]}
    for topic, queue_id, tags in sorted(asked):
        found, at = [], store.min_offset(topic, queue_id)
        while at < store.max_offset(topic, queue_id):
            got = store.get(topic, queue_id, at, 20, tags=tags)
            assert got.next_offset > at
            found += got.phy_offsets
            at = got.next_offset
        assert found == [m["phyOffset"] for m in told.messages if has_tag(m, topic, queue_id, tags)]


def has_tag(message, topic, queue_id, tags):
    properties = message["properties"]
    if message["sysFlag"] & 0xC not in (0, 8) or properties.get("TAGS") not in tags:
        return False
    light = topic in properties.get("INNER_MULTI_DISPATCH", "").split(",")
    return light or (message["topic"], message["queueId"]) == (topic, queue_id)


def test_message(told, store):
    for question in told.queries["lookMessageByOffset"]:
        message = store.message(question["phyOffset"])
        assert (message is not None) == question["found"]
        if message is not None:
            found = message.topic, message.queue_id, message.queue_offset, message.msg_id, message.store_size
            assert found == tuple(question[name] for name in ("topic", "queueId", "queueOffset", "msgId", "storeSize"))
            assert store.message_by_id(message.msg_id).phy_offset == question["phyOffset"]


def test_messages_by_unique_id(told, store):
    known = {}
    for message in told.messages:
        if "UNIQ_KEY" in message["properties"] and message["sysFlag"] & 0xC != 0xC:
            known.setdefault((message["topic"], message["properties"]["UNIQ_KEY"]), []).append(message["phyOffset"])
    some = list(known.items())[:: max(1, len(known) // 200)]
    for (topic, uniq), offsets in some:
        assert store.message_by_id(uniq, topic=topic).phy_offset in offsets


def test_every_message_of_every_queue(told, store):
    """Every record of the log, unit by unit, complete and as RocketMQ reads it."""
    queued = [message for message in told.messages if message["sysFlag"] & 0xC in (0, 8)]
    known = {message["phyOffset"]: message for message in queued}
    seen = []
    for topic, queue_id in store.queues():
        at = store.min_offset(topic, queue_id)
        while at < store.max_offset(topic, queue_id):
            got = store.get(topic, queue_id, at, unwrap=False)
            assert got.status.name == "FOUND"
            assert got.next_offset > at
            for message in got:
                record = known[message.phy_offset]
                assert (message.store_timestamp, message.properties) == (record["storeTimestamp"], record["properties"])
                if not topic.startswith("%LMQ%"):
                    assert (message.topic, message.queue_id) == (topic, queue_id)
                    seen.append(message.phy_offset)
            at = got.next_offset
        assert at == store.max_offset(topic, queue_id)
    assert sorted(set(seen)) == sorted(known)


def test_store_time(told, store):
    for message in told.messages[::7]:
        if message["sysFlag"] & 0xC in (0, 8) and not message["sysFlag"] & 0x80:
            where = message["topic"], message["queueId"], message["queueOffset"]
            assert store.store_time(*where) == message["storeTimestamp"]
            assert store.phy_offset_of(*where) == message["phyOffset"]
    assert store.store_time("never-seen", 0, 0) == -1
