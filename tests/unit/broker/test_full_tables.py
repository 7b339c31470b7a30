"""Tables that can't be written: requests say so, nothing else ends, and the tables are written when there is room."""

import asyncio
import errno
import json

import pytest
from simulation.tools import create, heartbeat, play

from rocketc.errors import StoreFullError, StoreIOError
from rocketc.remoting.codes import Code
from rocketc.tables import config_manager
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.growing_file import GrowingFile
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.tables.topics import Topics

ENOSPC, EACCES = (
    StoreFullError(errno.ENOSPC, "No space left on device"),
    StoreIOError(errno.EACCES, "Permission denied"),
)


class Disk:
    """A disk that refuses some files."""

    def __init__(self, monkeypatch):
        self.error, self.refuses, self.tries = None, "", 0

        def refusing(write, path_of):
            def wrapped(first, *more, **options):
                path = path_of(first)
                if self.error is not None and self.refuses in path:
                    self.tries += 1
                    raise type(self.error)(self.error.errno, self.error.strerror, path)
                return write(first, *more, **options)

            return wrapped

        monkeypatch.setattr(config_manager, "write_table", refusing(config_manager.write_table, str))
        for name in ("write", "append"):
            write = refusing(getattr(GrowingFile, name), lambda file: file.path)
            monkeypatch.setattr(GrowingFile, name, write)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


GROUP = json.dumps({"groupName": "audit", "retryMaxTimes": 3}).encode()
GROUPS = json.dumps({"groupConfigList": [{"groupName": "audit"}]}).encode()
TOPICS = json.dumps({"topicConfigList": [{"topicName": "new1"}, {"topicName": "new2"}]}).encode()
NEW_TOPIC = {"topic": "new", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
NEW_TOPIC |= {"topicFilterType": "SINGLE_TAG"}
REQUESTS = [
    (17, NEW_TOPIC, b"", "topics.json"),
    (17, {**NEW_TOPIC, "topic": "orders", "perm": 4}, b"", "topics.json"),
    (18, {}, TOPICS, "topics.json"),
    (200, {}, GROUP, "subscriptionGroup.json"),
    (225, {}, GROUPS, "subscriptionGroup.json"),
    (207, {"groupName": "known"}, b"", "subscriptionGroup.json"),
    (207, {"groupName": "known", "cleanOffset": True}, b"", "subscriptionGroup.json"),
    (207, {"groupName": "known", "cleanOffset": True}, b"", "consumerOffset.json"),
    (215, {"topic": "orders"}, b"", "topics.json"),
    (222, {"topic": "orders", "group": "known", "timestamp": -1, "isForce": True}, b"", "consumerOffset.json"),
    (314, {"srcGroup": "known", "destGroup": "twin", "topic": "orders"}, b"", "consumerOffset.json"),
    (353, {"group": "known", "topic": "orders", "readable": False}, b"", "subscriptionGroup.json"),
]


@pytest.mark.parametrize("error", [ENOSPC, EACCES], ids=["ENOSPC", "EACCES"])
@pytest.mark.parametrize(("code", "values", "body", "file"), REQUESTS)
def test_a_request_that_waits_for_the_disk_gets_the_fault(memory_path, disk, error, code, values, body, file):
    async def main(stage, client):
        assert (await create(client)).code == 0
        await client.call(34, heartbeat(group="known"))
        await client.send()
        await client.call(15, consumerGroup="known", topic="orders", queueId=0, commitOffset=1)
        await asyncio.sleep(6)
        disk.error, disk.refuses = error, file
        answer = await client.call(code, body, **values)
        assert answer.code == Code.SYSTEM_ERROR
        assert file in answer.remark and error.strerror in answer.remark and "repeat the request" in answer.remark
        disk.error = None
        answer = await client.call(code, body, **values)
        assert answer.code == Code.SUCCESS, answer.remark

    play(memory_path, main)


def test_a_topic_that_is_not_written_is_tried_again(memory_path, disk, caplog):
    async def main(stage, client):
        disk.error, disk.refuses = ENOSPC, "topics.json"
        answer = await create(client)
        assert answer.code == Code.SYSTEM_ERROR and "topics.json is not written: No space left" in answer.remark
        topics = stage.broker.topics
        assert not topics.is_written("orders") and topics.table.changed
        for n in range(20):  # a known fault: sends are stored and acknowledged, and do not try the disk each time
            tries = disk.tries
            assert (await client.send(topic="orders", queueId=0, body=b"%d" % n)).code == Code.SUCCESS
            assert disk.tries - tries <= 1
        assert disk.tries < 10
        assert (await client.send(topic="by-send")).code == Code.SUCCESS
        assert not topics.is_written("by-send")
        await asyncio.sleep(60)
        assert "orders" not in Topics(memory_path)
        disk.error = None
        await asyncio.sleep(6)
        assert topics.is_written("orders") and topics.is_written("by-send") and not topics.table.changed
        assert {"orders", "by-send"} <= set(Topics(memory_path))
        sent = stage.broker.path.sent
        assert (await client.send(topic="orders", queueId=0)).code == Code.SUCCESS
        assert stage.broker.path.sent > sent  # on the compiled path again

    play(memory_path, main)
    assert caplog.text.count("is tried again every") == 1


def test_a_group_that_is_not_written_is_tried_again(memory_path, disk):
    async def main(stage, client):
        disk.error, disk.refuses = EACCES, "subscriptionGroup.json"
        assert (await client.call(34, heartbeat(group="audit"))).code == Code.SUCCESS
        await asyncio.sleep(20)
        assert "audit" not in SubscriptionGroups(memory_path)
        disk.error = None
        await asyncio.sleep(6)
        assert "audit" in SubscriptionGroups(memory_path)

    play(memory_path, main)


@pytest.mark.parametrize("file", ["delayOffset.json", "consumerOffset.json", "topics.json", "subscriptionGroup.json"])
def test_at_the_end_each_table_that_can_be_written_is(memory_path, disk, caplog, file):
    async def main(stage, client):
        disk.error, disk.refuses = ENOSPC, "json"
        await create(client)
        await client.call(34, heartbeat(group="audit"))
        await client.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=0)
        await client.send(properties="DELAY\x011\x02")
        await asyncio.sleep(3)
        disk.refuses = file
        caplog.clear()

    play(memory_path, main)
    written = {
        "delayOffset.json": (memory_path / "config/delayOffset.json").exists(),
        "consumerOffset.json": ConsumerOffsets(memory_path).get("orders", "audit", 0) == 0,
        "topics.json": "orders" in Topics(memory_path),
        "subscriptionGroup.json": "audit" in SubscriptionGroups(memory_path),
    }
    assert written == {name: name != file for name in written}
    assert "the last write failed, and its latest changes are lost: [Errno 28] No space left" in caplog.text
