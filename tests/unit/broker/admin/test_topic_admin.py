"""Topics created, changed, listed and deleted by tools; codes and remarks were seen on a 5.3.3 broker."""

import asyncio
import json
import types

import pytest
from simulation.tools import create, heartbeat, play, recorded, shape

from rocketc.remoting.codes import Code
from rocketc.tables.topics import Topics


async def config(client, topic="orders"):
    answer = await client.call(351, topic=topic)
    return json.loads(answer.body) if answer.code == Code.SUCCESS else answer.remark


def test_answers_as_recorded(memory_path):
    async def main(stage, client):
        for index in (0, 1):
            exchange = recorded(17, index)
            answer = await client.call(17, **exchange["request"])
            assert (answer.code, answer.remark, answer.fields) == (0, exchange["remark"], {})
        exchange = recorded(18)
        answer = await client.call(18, exchange["requestBody"].encode())
        assert (answer.code, answer.remark, answer.body) == (0, exchange["remark"], b"")
        exchange = recorded(351, 1)
        await create(client, exchange["request"]["topic"])
        answer = await client.call(351, **exchange["request"])
        assert bytes(answer.body).decode() == exchange["answerBody"]
        exchange = recorded(21)
        ours, theirs = json.loads((await client.call(21)).body), json.loads(exchange["answerBody"])
        assert ours.keys() == theirs.keys() and ours["dataVersion"].keys() == theirs["dataVersion"].keys()
        for name in ours["topicConfigTable"].keys() & theirs["topicConfigTable"].keys():
            assert ours["topicConfigTable"][name] == theirs["topicConfigTable"][name], name
        assert shape(ours["mappingDataVersion"]) == shape(theirs["mappingDataVersion"])
        ours, theirs = json.loads((await client.call(305)).body), json.loads(recorded(305)["answerBody"])
        assert sorted(ours["topicList"]) == sorted(theirs["topicList"])
        answer = await client.call(215, **recorded(215)["request"])
        assert (answer.code, answer.remark, answer.body) == (0, None, b"")

    play(memory_path, main)


def test_a_topic_is_on_the_disk_before_the_answer(memory_path):
    async def main(stage, client):
        assert (await create(client, perm=4, order=True, topicSysFlag=2)).code == 0
        on_disk = Topics(memory_path)["orders"]
        assert (on_disk.write_queue_nums, on_disk.perm, on_disk.order, on_disk.topic_sys_flag) == (2, 4, True, 2)
        assert (await create(client, readQueueNums=8, writeQueueNums=4)).code == 0
        assert (await config(client))["readQueueNums"] == Topics(memory_path)["orders"].read_queue_nums == 8
        version = Topics(memory_path).version
        assert (await create(client, readQueueNums=8, writeQueueNums=4)).code == 0  # equal: nothing changes
        assert stage.broker.topics.table.version == version

    play(memory_path, main)


def test_a_change_applies_to_sends_and_pulls(memory_path):
    async def main(stage, client):
        await create(client)
        assert (await client.send(queueId=1)).code == 0
        assert (await client.send(queueId=2)).code == Code.INVALID_PARAMETER
        await create(client, queues=4)
        assert (await client.send(queueId=3)).code == 0
        await create(client, perm=2)
        assert (await client.pull()).code == Code.NO_PERMISSION
        await create(client, perm=6)
        assert (await client.pull(queue_id=1)).code == Code.SUCCESS

    play(memory_path, main)


NAMES_THAT_ARE_REFUSED = [
    ("", "The specified topic is blank."),
    ("bad name", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
    ("x" * 128, "The specified topic is longer than topic max length."),
    *(
        (name, f"The topic[{name}] is conflict with system topic.")
        for name in ("TBW102", "broker-a", "DefaultCluster", "SELF_TEST_TOPIC", "rmq_sys_x")
    ),
]


def test_names_that_are_refused(memory_path):
    async def main(stage, client):
        for topic, remark in NAMES_THAT_ARE_REFUSED:
            await refused(client, topic, remark)
        assert "fine" not in stage.broker.topics.table

    async def refused(client, topic, remark):
        for answer in (await create(client, topic), await client.call(215, topic=topic)):
            assert (answer.code, answer.remark) == (Code.INVALID_PARAMETER, remark)
        listed = await client.call(
            18, json.dumps({"topicConfigList": [{"topicName": "fine"}, {"topicName": topic}]}).encode()
        )
        assert (listed.code, listed.remark) == (Code.INVALID_PARAMETER, remark)

    play(memory_path, main)


VALUES_THAT_ARE_REFUSED = [
    ({"topicFilterType": "NOPE"}, 1, "topicFilterType = [NOPE] value invalid"),
    ({"perm": 300}, 29, "orders: perm is 300; allowed are 0 to 15"),
    ({"readQueueNums": -1}, 29, "orders: read_queue_nums is -1; allowed are 0 to 2147483647"),
    ({"readQueueNums": None}, 1, "UPDATE_AND_CREATE_TOPIC lacks the field readQueueNums"),
    ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
    ({"attributes": "+foo=1"}, 1, "unsupported key: foo"),
    ({"attributes": "message.type=FIFO"}, 1, "add/alter attribute format is wrong: message.type"),
    ({"attributes": "xx"}, 1, "delete attribute format is wrong: xx"),
    ({"attributes": "++message.type=FIFO"}, 1, "kv string format wrong."),
    ({"attributes": "-message.type"}, 1, "only add attribute is supported while creating topic. key: message.type"),
    ({"attributes": "+reserve.time=-5"}, 1, "value is not in range(-1, 9223372036854775807)"),
    ({"attributes": "+message.type=A,+message.type=B"}, 1, "key duplication: +message.type"),
]


def test_values_that_are_refused(memory_path):
    async def main(stage, client):
        for values, code, remark in VALUES_THAT_ARE_REFUSED:
            answer = await create(client, **values)
            assert (answer.code, answer.remark) == (code, remark)
        assert await config(client) == "No topic in this broker. topic: orders"

    play(memory_path, main)


def test_attributes_are_added_changed_and_removed(memory_path):
    async def main(stage, client):
        for changes, code, after in (
            ("+message.type=FIFO,+reserve.time=5", 0, {"message.type": "FIFO", "reserve.time": "5"}),
            ("+message.type=NOPE", 1, {"message.type": "FIFO", "reserve.time": "5"}),
            ("+queue.type=BatchCQ", 1, {"message.type": "FIFO", "reserve.time": "5"}),
            ("-reserve.time", 0, {"message.type": "FIFO"}),
            ("-reserve.time", 1, {"message.type": "FIFO"}),
            ("", 0, {"message.type": "FIFO"}),
        ):
            assert (await create(client, attributes=changes)).code == code, changes
            assert (await config(client))["attributes"] == after

    play(memory_path, main)


LISTS_THAT_ARE_REFUSED = [
    (b"", "the body is not a JSON object"),
    (b"{}", "the body lacks the list topicConfigList"),
    (b"xx", "the body is not JSON, or nested too deep"),
    (b'{"topicConfigList":{}}', "the body lacks the list topicConfigList"),
    (b'{"topicConfigList":[7]}', "a topic is not a JSON object"),
    (b'{"topicConfigList":[{"topicName":"t","perm":"x"}]}', "the member perm is not a whole number of the allowed"),
    (b'{"topicConfigList":[{"topicName":"t","attributes":[1]}]}', "the member attributes is not a JSON object"),
    (b'{"topicConfigList":[{"topicName":"t","attributes":{"+a":{}}}]}', "the member +a is not a text"),
    (b'{"topicConfigList":[{"topicName":"t","attributes":{"a":"b"}}]}', "kv string format wrong."),
]


def test_lists_that_are_refused(memory_path):
    async def main(stage, client):
        for body, remark in LISTS_THAT_ARE_REFUSED:
            answer = await client.call(18, body)
            assert answer.code == Code.SYSTEM_ERROR and answer.remark.startswith(remark)
        assert "t" not in stage.broker.topics.table

    play(memory_path, main)


def test_a_list_of_topics(memory_path):
    async def main(stage, client):
        topics = [{"topicName": "a", "readQueueNums": 2, "attributes": {"+message.type": "FIFO"}}, {"topicName": "b"}]
        topics.append({"topicName": "c", "topicFilterType": 1, "perm": "4", "order": 1})  # as numbers and texts
        assert (await client.call(18, json.dumps({"topicConfigList": topics}).encode())).code == 0
        assert (await config(client, "b"))["readQueueNums"] == 16
        assert Topics(memory_path)["a"].message_type == "FIFO"
        made = Topics(memory_path)["c"]
        assert (made.topic_filter_type, made.perm, made.order) == ("MULTI_TAG", 4, True)
        assert (await client.call(18, b'{"topicConfigList":[]}')).code == 0

    play(memory_path, main)


def test_a_deleted_topic_loses_its_queues_and_offsets(memory_path):
    async def main(stage, client):
        await create(client)
        for queue in (0, 1):
            assert (await client.send(queueId=queue)).code == 0
        await stage.settle()
        await client.call(34, heartbeat())
        assert (await client.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=1)).code == 0
        before = stage.broker.topics.table.version
        assert (await client.call(215, topic="orders")).code == 0
        assert "orders" not in Topics(memory_path) and Topics(memory_path).version > before
        assert ("orders", 0) not in stage.store.queues()
        assert stage.broker.offsets.query("audit", "orders", 0) == -1
        assert (await client.pull()).code == Code.TOPIC_NOT_EXIST
        assert (await client.call(215, topic="orders")).code == 0  # as in RocketMQ: nothing to do
        answer = await client.send(queueId=0)  # a send creates it again, with empty queues
        assert answer.fields["queueOffset"] == "0"

    play(memory_path, main)


def test_sends_to_a_topic_that_is_being_deleted_are_refused(memory_path):
    async def main(stage, client):
        await create(client)
        assert (await client.send()).code == 0
        calls = []
        stage.broker.admin.topics._work.run = lambda work, done: calls.append((work, done))
        task = asyncio.ensure_future(client.call(215, topic="orders"))
        await asyncio.sleep(1)
        assert (await client.send()).code == Code.TOPIC_NOT_EXIST
        [(work, done)] = calls
        work()
        done(None)
        assert (await task).code == 0
        assert (await client.send()).code == 0

    play(memory_path, main)


def test_a_topic_is_created_after_its_deletion_that_is_under_way(memory_path):
    async def main(stage, client):
        await create(client)
        work, calls = stage.broker.admin.topics._work, []
        work.run = lambda *call: calls.append(call)
        tasks = [asyncio.ensure_future(client.call(215, topic="orders"))]
        await asyncio.sleep(1)
        tasks.append(asyncio.ensure_future(create(client, queues=8)))
        await asyncio.sleep(1)
        assert len(calls) == 2 and not any(task.done() for task in tasks)
        for act, done in calls:
            act()
            done(None)
        assert [(await task).code for task in tasks] == [0, 0]
        assert Topics(memory_path)["orders"].write_queue_nums == 8
        assert (await client.send(queueId=7)).code == 0

    play(memory_path, main)


def test_a_topic_with_queues_of_batches(memory_path):
    async def main(stage, client):
        assert (await create(client, attributes="+queue.type=BatchCQ", order=True)).code == 0
        topics = [{"topicName": "listed", "attributes": {"+queue.type": "BatchCQ"}}, {"topicName": "other"}]
        assert (await client.call(18, json.dumps({"topicConfigList": topics}).encode())).code == 0
        assert Topics(memory_path)["orders"].queue_type == Topics(memory_path)["listed"].queue_type == "BatchCQ"
        assert Topics(memory_path)["orders"].order and "other" in Topics(memory_path)
        assert (await create(client, attributes="", perm=4)).code == 0
        assert Topics(memory_path)["orders"].queue_type == "BatchCQ" and Topics(memory_path)["orders"].perm == 4
        stage.store.put("orders", b"one")
        await stage.settle()
        assert (memory_path / "batchconsumequeue" / "orders").is_dir()

    play(memory_path, main)


def test_a_deletion_that_fails_is_answered_with_the_error(memory_path):
    async def main(stage, client):
        await create(client)

        def fail(names, retain):
            raise OSError(28, "No space left on device")

        stage.broker.admin.topics._store = type("Full", (), {"delete_topics": staticmethod(fail)})
        answer = await client.call(215, topic="orders")
        assert (answer.code, answer.remark) == (1, "OSError: [Errno 28] No space left on device")
        assert (await client.send()).code == 0  # it is still there

    play(memory_path, main)


def test_queues_without_a_topic_are_cleaned(memory_path):
    async def main(stage, client):
        await create(client)
        await client.send()
        await stage.settle()
        for code in (306, 316, 329):
            answer = await client.call(code)
            assert (answer.code, answer.remark, answer.body) == (0, None, b"")
        assert ("orders", 0) in stage.store.queues()
        stage.broker.topics.table.delete("orders")
        assert (await client.call(316)).code == 0
        assert ("orders", 0) not in stage.store.queues()

    play(memory_path, main)


@pytest.mark.parametrize("by", ["a send", "a program"])
def test_a_topic_that_comes_while_unused_ones_are_cleaned(memory_path, by):
    """No topic is deleted to which a message was acknowledged after the topics to delete were found."""

    async def main(stage, client):
        for topic in ("orders", "old"):
            await create(client, topic)
            await client.send(topic)
        await stage.settle()
        stage.broker.topics.table.delete(["orders", "old"])
        store, topics, held = stage.store, stage.broker.admin.topics, []

        def delete_topics(names, retain=()):  # what the thread does, at any later time
            held.append(lambda: store.delete_topics(names, retain=retain))

        run = topics._work.run
        topics._store = types.SimpleNamespace(delete_topics=delete_topics, queues=store.queues)
        topics._work.run = lambda work, done: held.append(done) or run(work, lambda fault: None)
        cleaning = asyncio.ensure_future(client.call(316))
        while len(held) < 2:
            await asyncio.sleep(0.01)
        done, delete = held
        if by == "a send":
            answer = await client.send("orders", body=b"new")
            assert answer.code == Code.TOPIC_NOT_EXIST  # not acknowledged
        else:
            store.keep_topics().auto_create("orders")
            store.put("orders", b"new")
        assert not cleaning.done()
        delete()
        done(None)
        assert (await cleaning).code == Code.SUCCESS
        await stage.settle()
        assert ("old", 0) not in store.queues()
        if by == "a program":
            assert [m.body for m in store.get("orders")] == [b"body", b"new"]
        assert (await client.send("orders", body=b"later")).code == 0
        await stage.settle()
        assert store.get("orders")[-1].body == b"later"
        assert (await client.call(316)).code == Code.SUCCESS  # nothing to do
        assert store.queues() == [("orders", 0)]

    play(memory_path, main)


def test_the_number_of_queues_has_a_limit(memory_path):
    """Requests about a topic look at all of its queues."""

    async def main(stage, client):
        for number, code in ((65_536, 0), (65_537, Code.INVALID_PARAMETER), ((1 << 31) - 1, Code.INVALID_PARAMETER)):
            fields = {"topic": f"t{number}", "readQueueNums": number, "writeQueueNums": 1, "perm": 6}
            assert (await client.call(17, **fields, topicFilterType="SINGLE_TAG")).code == code

    play(memory_path, main)


def test_a_topic_that_is_deleted_twice_stays_hidden(memory_path):
    async def main(stage, client):
        await create(client)
        topics, path = stage.broker.topics, stage.broker.pulls.path
        before = path.generation()
        topics.hide(["orders"])
        topics.hide(["orders"])
        topics.unhide(["orders"])
        assert topics.is_hidden("orders") and topics.get("orders") is None and path.generation() > before
        for permission in (4, 6):  # they set the topics of the compiled path again
            assert (await client.call(25, f"brokerPermission={permission}".encode())).code == 0
        assert (await client.send()).code == Code.TOPIC_NOT_EXIST
        topics.unhide(["orders"])
        assert not topics.is_hidden("orders") and (await client.send()).code == 0

    play(memory_path, main)
