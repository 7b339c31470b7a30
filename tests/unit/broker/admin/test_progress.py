"""What tools ask about the progress of topics and groups, and who is connected; compared with a 5.3.3 broker."""

import asyncio
import json

from simulation.brokers import EPOCH
from simulation.tools import create, heartbeat, lax, play, recorded, shape

from rocketc.remoting.codes import Code


async def used(stage, client, **heart):
    """Topic orders with 3 messages in queue 0 and 1 in queue 1; group audit has consumed 2 of queue 0."""
    await create(client)
    for queue in (0, 0, 0, 1):
        assert (await client.send(queueId=queue)).code == 0
        await asyncio.sleep(1)
    await stage.settle()
    await client.call(34, heartbeat(**heart))
    await client.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=2)


def times(stage, queue=0):
    found = stage.store.get("orders", queue, 0, 32).messages
    return [message.store_timestamp for message in found]


def test_topic_stats(memory_path):
    async def main(stage, client):
        await used(stage, client)
        found = lax((await client.call(202, topic="orders")).body)
        assert shape(found) == shape(lax(recorded(202)["answerBody"]))
        assert found["offsetTable"] == {
            ("orders", 0): {"lastUpdateTimestamp": times(stage)[-1], "maxOffset": 3, "minOffset": 0},
            ("orders", 1): {"lastUpdateTimestamp": times(stage, 1)[-1], "maxOffset": 1, "minOffset": 0},
        }
        await asyncio.sleep(60)
        await create(client, "empty", 1)
        empty = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        found = lax((await client.call(202, topic="empty")).body)
        assert found == {"offsetTable": {("empty", 0): empty}, "topicPutTps": 0.0}
        for read, write in ((3, 1), (1, 3)):  # a queue that only one side uses has messages, too
            await create(client, "uneven", read, writeQueueNums=write)
            found = lax((await client.call(202, topic="uneven")).body)
            assert list(found["offsetTable"]) == [("uneven", queue) for queue in range(3)]
        answer = await client.call(202, topic="nope")
        assert (answer.code, answer.remark) == (Code.TOPIC_NOT_EXIST, "topic[nope] not exist")

    play(memory_path, main)


def test_consume_stats(memory_path):
    async def main(stage, client):
        await used(stage, client)
        await client.pull(queue_id=0, offset=0, maxMsgNums=3, subscription="*")
        found = lax((await client.call(208, consumerGroup="audit")).body)
        assert shape(found) == shape(lax(recorded(208)["answerBody"]))
        of_0 = {"brokerOffset": 3, "consumerOffset": 2, "lastTimestamp": times(stage)[1], "pullOffset": 3}
        of_1 = {"brokerOffset": 1, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}
        assert found["offsetTable"] == {("orders", 0): of_0, ("orders", 1): of_1}
        for asked in ({"topic": "orders"}, {"topicList": "orders;x"}, {"topicList": "x", "topic": "orders"}):
            assert lax((await client.call(208, consumerGroup="audit", **asked)).body) == found
        for asked in ({"consumerGroup": "nope"}, {"consumerGroup": "audit", "topic": "nope"}):
            assert (await client.call(208, **asked)).body == b'{"consumeTps":0.0,"offsetTable":{}}'

    play(memory_path, main)


def test_statistics_exist_as_soon_as_something_is_counted(memory_path):
    """As on a 5.3.3 broker, which shows zeros until its next sample."""

    async def main(stage, client):
        zeros = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
        await used(stage, client)
        await client.pull(queue_id=0, offset=0, maxMsgNums=3, subscription="*")
        for name, key in (
            ("TOPIC_PUT_NUMS", "orders"), ("TOPIC_PUT_SIZE", "orders"), ("QUEUE_PUT_NUMS", "orders@0"),
            ("GROUP_GET_NUMS", "orders@audit"),
        ):  # fmt: skip
            answer = await client.call(315, statsName=name, statsKey=key)
            assert answer.code == 0
            assert lax(answer.body) == {"statsDay": zeros, "statsHour": zeros, "statsMinute": zeros}
        await asyncio.sleep(20)
        found = lax((await client.call(315, statsName="TOPIC_PUT_NUMS", statsKey="orders")).body)
        assert found["statsMinute"]["sum"] == 4

    play(memory_path, main)


def test_subscriptions_that_pulls_have_are_remembered(memory_path):
    """As on a 5.3.3 broker: a lite pull consumer sends its subscription with each pull."""

    async def main(stage, client):
        await create(client, "other")
        await used(stage, client, topics=("other",))
        asked = {"group": "audit", "topic": "orders"}
        assert lax((await client.call(345, **asked)).body) == asked
        assert lax((await client.call(208, consumerGroup="audit")).body)["offsetTable"] == {}
        for _ in range(2):  # the second one is taken by the compiled way
            await client.pull(queue_id=0, offset=0, subscription="x || y", subVersion=7)
            found = lax((await client.call(345, **asked)).body)["subscriptionData"]
            assert (found["subString"], found["topic"]) == ("x || y", "orders")
            assert ("orders", 0) in lax((await client.call(208, consumerGroup="audit")).body)["offsetTable"]
        await client.call(200, json.dumps({"groupName": "copy"}).encode())
        await client.call(15, consumerGroup="copy", topic="orders", queueId=1, commitOffset=1)
        assert (await client.call(314, srcGroup="audit", destGroup="copy", topic="orders", offline=False)).code == 0
        assert stage.broker.offsets.queues("orders", "copy") == {0: 2}  # replaced as a whole
        for _ in range(4):
            await client.pull(queue_id=0, offset=0, subscription="x || y", subVersion=7)
            await asyncio.sleep(299)
        assert "subscriptionData" in lax((await client.call(345, **asked)).body)
        await asyncio.sleep(600)
        assert lax((await client.call(345, **asked)).body) == asked

    play(memory_path, main)


def test_topics_that_online_consumers_no_longer_subscribe_to_are_left_out(memory_path):
    async def main(stage, client):
        await used(stage, client, topics=("other",))
        assert lax((await client.call(208, consumerGroup="audit")).body)["offsetTable"] == {}
        await client.call(35, clientID="c1", consumerGroup="audit")
        assert ("orders", 0) in lax((await client.call(208, consumerGroup="audit")).body)["offsetTable"]

    play(memory_path, main)


def test_the_progress_of_all_groups(memory_path):
    async def main(stage, client):
        await used(stage, client)
        await create(client, "steps", order=True)
        found = lax((await client.call(317, isOrder=False)).body)
        theirs = lax(recorded(317)["answerBody"])
        assert found.keys() == theirs.keys() and found["brokerAddr"] == "127.0.0.1:10911"
        [audit] = [one["audit"] for one in found["consumeStatsList"] if "audit" in one]
        assert shape(audit) == shape(theirs["consumeStatsList"][0]["AG_38ee9271a8b"])
        assert audit[0]["offsetTable"][("orders", 0)]["consumerOffset"] == 2
        assert (found["totalDiff"], found["totalInflightDiff"]) == (2, -2)  # RocketMQ counts pulled offsets as 0
        found = lax((await client.call(317, isOrder=True)).body)
        assert found["totalDiff"] == 0 and {"audit": []} in found["consumeStatsList"]

    play(memory_path, main)


def test_times_that_a_group_has_reached(memory_path):
    async def main(stage, client):
        await used(stage, client)
        await create(client, queues=3)
        now = EPOCH + int(asyncio.get_running_loop().time() * 1000)
        found = json.loads((await client.call(303, topic="orders", group="audit")).body)["consumeTimeSpanSet"]
        assert [one["messageQueue"]["queueId"] for one in found] == [0, 1, 2]
        first, second, empty = found
        assert first["consumeTimeStamp"] == times(stage)[1]
        assert (first["minTimeStamp"], first["maxTimeStamp"]) == (times(stage)[0], times(stage)[2])
        assert first["delayTime"] == now - times(stage)[2]
        assert second["consumeTimeStamp"] == times(stage, 1)[0] and second["delayTime"] == now  # nothing committed
        assert (empty["consumeTimeStamp"], empty["minTimeStamp"], empty["maxTimeStamp"]) == (-1, -1, -1)
        for name in ("consumeTimeStamp", "minTimeStamp", "maxTimeStamp"):
            assert first[f"{name}Str"].endswith(f":{first[name] % 1000:03d}") and first[f"{name}Str"][10] == "#"
        await client.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=3)
        found = json.loads((await client.call(303, topic="orders", group="audit")).body)["consumeTimeSpanSet"]
        assert found[0]["delayTime"] == 0
        assert (await client.call(303, topic="nope", group="audit")).code == Code.TOPIC_NOT_EXIST

    play(memory_path, main)


def test_statistics_of_topics_and_groups(memory_path):
    async def main(stage, client):
        await create(client)
        for _ in range(12):
            for _ in range(10):
                await client.send(queueId=0)
            await stage.settle()
            await client.pull(maxMsgNums=6)
            await asyncio.sleep(10)
        for name, key, total, avgpt in (
            ("TOPIC_PUT_NUMS", "orders", 60, 1.0),
            ("GROUP_GET_NUMS", "orders@audit", 36, 6.0),
            ("BROKER_PUT_NUMS", "DefaultCluster", 60, 0.0),
            ("BROKER_GET_NUMS", "DefaultCluster", 36, 0.0),
            ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 60, 0.0),
            ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 36, 0.0),
        ):
            answer = await client.call(315, statsName=name, statsKey=key)
            found = json.loads(answer.body)
            assert shape(found) == shape(json.loads(recorded(315)["answerBody"]))
            assert (found["statsMinute"]["sum"], found["statsMinute"]["avgpt"]) == (total, avgpt), name
        for name in ("TOPIC_PUT_SIZE", "GROUP_GET_SIZE"):
            key = "orders" if name.startswith("TOPIC") else "orders@audit"
            assert json.loads((await client.call(315, statsName=name, statsKey=key)).body)["statsMinute"]["sum"] > 5000
        exchange = recorded(315, 1)
        answer = await client.call(315, **exchange["request"])
        assert (answer.code, answer.remark) == (exchange["answerCode"], exchange["remark"])
        assert lax((await client.call(202, topic="orders")).body)["topicPutTps"] > 0.5
        assert lax((await client.call(208, consumerGroup="audit", topic="orders")).body)["consumeTps"] > 0.3
        await client.call(215, topic="orders")
        await asyncio.sleep(11)
        assert (await client.call(315, statsName="TOPIC_PUT_NUMS", statsKey="orders")).code == Code.SYSTEM_ERROR

    play(memory_path, main)


def test_connections(memory_path):
    async def main(stage, client):
        await used(stage, client)
        found = json.loads((await client.call(203, consumerGroup="audit")).body)
        theirs = json.loads(recorded(203)["answerBody"])
        assert found.keys() == theirs.keys()
        assert found["connectionSet"][0].keys() == theirs["connectionSet"][0].keys()
        assert found["connectionSet"][0]["clientId"] == "c1" and found["connectionSet"][0]["version"] == 479
        assert found["subscriptionTable"]["orders"] == {
            "classFilterMode": False, "codeSet": [97, 98], "expressionType": "TAG", "subString": "a || b",
            "subVersion": 5, "tagsSet": ["a", "b"], "topic": "orders",
        }  # fmt: skip
        assert (found["consumeType"], found["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
        exchange = recorded(203, 1)
        answer = await client.call(203, **exchange["request"])
        assert (answer.code, answer.remark) == (exchange["answerCode"], exchange["remark"])
        found = json.loads((await client.call(204, producerGroup="shop")).body)
        assert shape(found) == shape(json.loads(recorded(204)["answerBody"]))
        answer = await client.call(204, producerGroup="nope")
        assert (answer.code, answer.remark) == (1, "the producer group[nope] not exist")
        [producer] = json.loads((await client.call(328)).body)["data"]["shop"]
        assert producer.keys() == {"clientId", "language", "lastUpdateTimestamp", "remoteIP", "version"}

    play(memory_path, main)


def test_groups_of_topics_and_topics_of_groups(memory_path):
    async def main(stage, client):
        async def ask(code, **values):
            return json.loads((await client.call(code, **values)).body)

        await used(stage, client)
        await client.call(352, group="late")
        await client.call(15, consumerGroup="late", topic="orders", queueId=1, commitOffset=0)
        assert await ask(300, topic="orders") == {"groupList": ["audit", "late"]}
        assert await ask(300, topic="nope") == {"groupList": []}
        assert await ask(343, group="late") == {"brokerAddr": "127.0.0.1:10911", "topicList": ["orders"]}
        assert (await ask(343, group="nope"))["topicList"] == []
        found = await ask(345, group="audit", topic="orders")
        assert found["subscriptionData"]["tagsSet"] == ["a", "b"]
        assert await ask(345, group="late", topic="orders") == {"group": "late", "topic": "orders"}

    play(memory_path, main)


def test_units_of_a_queue(memory_path):
    async def main(stage, client):
        async def ask(**values):
            return await client.call(321, **{"topic": "orders", "queueId": 0, "index": 0, "count": 2, **values})

        await used(stage, client)
        exchange = recorded(321)
        answer = await ask(consumerGroup="audit")
        found, theirs = json.loads(answer.body), json.loads(exchange["answerBody"])
        assert (answer.code, answer.remark) == (0, exchange["remark"])
        assert found.keys() == theirs.keys() and shape(found["queueData"]) == shape(theirs["queueData"])
        messages = stage.store.get("orders", 0, 0, 2).messages
        assert [unit["physicOffset"] for unit in found["queueData"]] == [one.phy_offset for one in messages]
        assert [unit["physicSize"] for unit in found["queueData"]] == [one.store_size for one in messages]
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
        assert json.loads((await ask(consumerGroup="x")).body)["filterData"] == "x@orders is not online!"
        assert len(json.loads((await ask(index=1, count=(1 << 31) - 1)).body)["queueData"]) == 2
        assert json.loads((await ask(count=-2)).body)["queueData"] == []
        for values, code, remark in (
            ({"queueId": 9}, 1, "9@orders is not exist!"),
            ({"queueId": -1}, 1, "-1@orders is not exist!"),
            ({"topic": "nope"}, 1, "0@nope is not exist!"),
            ({"index": -1}, 0, "Index -1 of 0@orders is not exist!"),
            ({"index": 3}, 0, "Index 3 of 0@orders is not exist!"),
            ({"index": (1 << 63) - 1}, 0, f"Index {(1 << 63) - 1} of 0@orders is not exist!"),
        ):
            answer = await ask(**values)
            assert (answer.code, answer.remark, answer.body) == (code, remark, b"")

    play(memory_path, main)


def test_statistics_of_queues_and_latencies(memory_path):
    """Names and keys are those for which a 5.3.3 broker has numbers."""

    async def main(stage, client):
        await create(client)
        await asyncio.sleep(11)  # the first sample is the base
        for queue in (0, 0, 1):
            await client.send(queueId=queue)
        await stage.settle()
        await client.pull(queue_id=0)
        pulls = stage.broker.pulls.path
        pulls.count("orders", "audit", 1, 1, 200, 0.25)  # a pull that took long
        pulls.count("orders", "audit", 1, 1, 200, 0.0005)
        await client.call(34, heartbeat(group="audit"))
        offset = stage.store.get("orders", 0, 0, 1)[0].phy_offset
        for level in (0, -1):
            answer = await client.call(36, offset=offset, group="audit", delayLevel=level)
            assert answer.code == Code.SUCCESS
        await asyncio.sleep(21)
        for name, key, total, avgpt in (
            ("QUEUE_PUT_NUMS", "orders@0", 2, 1.0),
            ("QUEUE_PUT_NUMS", "orders@1", 1, 1.0),
            ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@2", 1, 1.0),
            ("QUEUE_GET_NUMS", "orders@0@audit", 2, 2.0),
            ("QUEUE_GET_NUMS", "orders@1@audit", 2, 1.0),
            ("QUEUE_GET_SIZE", "orders@1@audit", 400, 200.0),
            ("GROUP_GET_NUMS", "orders@audit", 4, 4 / 3),
            ("GROUP_GET_LATENCY", "0@orders@audit", 0, 0.0),
            ("GROUP_GET_LATENCY", "1@orders@audit", 250, 125.0),
            ("SNDBCK_PUT_NUMS", "orders@audit", 2, 1.0),
            ("PRODUCER_REGISTER_TIME", "DefaultCluster", 0, 0.0),
            ("CONSUMER_REGISTER_TIME", "DefaultCluster", 0, 0.0),
        ):
            answer = await client.call(315, statsName=name, statsKey=key)
            assert answer.code == Code.SUCCESS, (name, key)
            found = json.loads(answer.body)["statsMinute"]
            assert (found["sum"], found["avgpt"]) == (total, avgpt), (name, key)
        size = json.loads((await client.call(315, statsName="QUEUE_PUT_SIZE", statsKey="orders@0")).body)
        assert size["statsMinute"]["sum"] > 200
        for name, key in (
            ("QUEUE_PUT_NUMS", "orders@2"),
            ("QUEUE_GET_NUMS", "orders@0@other"),
            ("GROUP_GET_LATENCY", "2@orders@audit"),
            ("SNDBCK_PUT_NUMS", "orders@other"),
            ("GROUP_GET_FALL_SIZE", "0@orders@audit"),  # 5.3.3 does not answer these two either
            ("GROUP_GET_FALL_TIME", "0@orders@audit"),
        ):
            answer = await client.call(315, statsName=name, statsKey=key)
            assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")

    play(memory_path, main)


def test_a_sample_that_fails_ends_nothing(memory_path, caplog):
    async def main(stage, client):
        statistics = stage.broker.admin.statistics
        store, statistics._store = statistics._store, type("Broken", (), {"background": False})()

        def fail():
            raise OSError(5, "Input/output error")

        statistics._store.measurements = fail
        await asyncio.sleep(21)
        assert [record.getMessage() for record in caplog.records] == [
            "the statistics lack a sample: [Errno 5] Input/output error"
        ] * 2
        statistics._store = store  # the broker ends with it
        assert (await client.send(queueId=0)).code == Code.SUCCESS

    play(memory_path, main)
