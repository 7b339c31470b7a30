"""Groups created, changed, listed and deleted by tools; codes and remarks were seen on a 5.3.3 broker."""

import json

from simulation.tools import heartbeat, play, recorded

from rocketc.remoting.codes import Code
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.tables.topics import Topics


async def put(client, **settings):
    return await client.call(200, json.dumps(settings).encode())


def test_answers_as_recorded(memory_path):
    async def main(stage, client):
        exchange = recorded(200)
        answer = await client.call(200, exchange["requestBody"].encode())
        assert (answer.code, answer.remark, answer.body) == (0, None, b"")
        asked = json.loads(exchange["requestBody"])
        assert json.loads((await client.call(352, group=asked["groupName"])).body) == asked
        ours, theirs = json.loads((await client.call(201)).body), json.loads(recorded(201)["answerBody"])
        assert ours.keys() == theirs.keys() and ours["dataVersion"].keys() == theirs["dataVersion"].keys()
        both = ours["subscriptionGroupTable"].keys() & theirs["subscriptionGroupTable"].keys()
        assert len(both) == 8  # RocketMQ's own groups
        for name in both:
            assert ours["subscriptionGroupTable"][name] == theirs["subscriptionGroupTable"][name]
        answer = await client.call(207, **recorded(207)["request"])
        assert (answer.code, answer.remark, answer.body) == (0, None, b"")

    play(memory_path, main)


def test_a_group_is_on_the_disk_before_the_answer(memory_path):
    async def main(stage, client):
        assert (await put(client, groupName="audit", retryMaxTimes="3", consumeEnable=False)).code == 0
        on_disk = SubscriptionGroups(memory_path)["audit"]
        assert (on_disk.retry_max_times, on_disk.consume_enable) == (3, False)
        assert (await client.pull(group="audit")).code == Code.NO_PERMISSION
        version = SubscriptionGroups(memory_path).version
        assert (await put(client, groupName="audit", retryMaxTimes=4)).code == 0
        assert SubscriptionGroups(memory_path).version > version
        answer = await client.call(225, b'{"groupConfigList":[{"groupName":"a"},{"groupName":"b","brokerId":1}]}')
        assert answer.code == 0 and SubscriptionGroups(memory_path)["b"].broker_id == 1
        assert (await client.call(225, b'{"groupConfigList":[]}')).code == 0
        policy = {"type": 0, "exponentialRetryPolicy": {"initial": 5}}  # the number of EXPONENTIAL
        assert (await put(client, groupName=7, groupRetryPolicy=policy, retryMaxTimes="5")).code == 0
        named = {**policy, "type": "EXPONENTIAL"}
        assert SubscriptionGroups(memory_path)["7"].group_retry_policy == named

    play(memory_path, main)


REFUSED = [
    (200, b"", "the body is not a JSON object"),
    (200, b"x", "the body is not JSON"),
    (200, b"{}", "'' is not a name of a consumer group"),
    (200, b'{"groupName":"my group"}', "'my group' is not a name of a consumer group"),
    (200, b'{"groupName":{}}', "the member groupName is not a text"),
    (200, json.dumps({"groupName": "g" * 256}).encode(), f"'{'g' * 40}' is not a name of a consumer group"),
    (200, b'{"groupName":"g","retryMaxTimes":"x"}', "the member retryMaxTimes is not a whole number"),
    (200, b'{"groupName":"g","retryMaxTimes":9999999999}', "the member retryMaxTimes is not a whole number"),
    (200, b'{"groupName":"g","consumeEnable":"7"}', "the member consumeEnable is neither true nor false"),
    (200, b'{"groupName":"g","groupRetryPolicy":[]}', "the member groupRetryPolicy is not a JSON object"),
    (200, b'{"groupName":"g","groupRetryPolicy":{"type":2}}', "the member type is neither a name nor one of"),
    (200, b'{"groupName":"g","subscriptionDataSet":{}}', "the member subscriptionDataSet is not a list"),
    (200, b'{"groupName":"g","attributes":{"+a":"b"}}', "unsupported key: a"),
    (225, b"{}", "the body lacks the list groupConfigList"),
    (225, b'{"groupConfigList":[{"groupName":"g"},7]}', "a group is not a JSON object"),
]


def test_bodies_that_are_refused(memory_path):
    async def main(stage, client):
        for code, body, remark in REFUSED:
            answer = await client.call(code, body)
            assert answer.code == Code.SYSTEM_ERROR and answer.remark.startswith(remark), answer.remark
        assert len(stage.broker.groups.table) == 8

    play(memory_path, main)


def test_a_missing_group_is_created_by_the_question_if_the_broker_may(memory_path):
    async def main(stage, client):
        assert json.loads((await client.call(352, group="new")).body)["retryMaxTimes"] == 16
        answer = await client.call(352, group="no good")
        assert answer.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST

    async def refuses(stage, client):
        answer = await client.call(352, group="other")
        assert (answer.code, answer.remark) == (
            Code.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker. group: other",
        )  # fmt: skip

    play(memory_path, main)
    play(memory_path, refuses, auto_create_subscription_group=False)


async def used(stage, client):
    """A group with an offset and a message in the topic of its retries."""
    await client.send(queueId=0)
    await client.call(34, heartbeat())
    assert (await client.send(topic="%RETRY%audit")).code == 0
    await stage.settle()
    for topic in ("orders", "%RETRY%audit"):
        assert (await client.call(15, consumerGroup="audit", topic=topic, queueId=0, commitOffset=1)).code == 0
    assert ("%RETRY%audit", 0) in stage.store.queues()


def test_a_deleted_group_keeps_its_offsets_unless_they_are_cleaned_too(memory_path):
    async def main(stage, client):
        await used(stage, client)
        assert (await client.call(207, groupName="audit", cleanOffset=False)).code == 0
        assert "audit" not in SubscriptionGroups(memory_path) and "%RETRY%audit" in stage.broker.topics.table
        assert stage.broker.offsets.query("audit", "orders", 0) == 1
        await client.call(34, heartbeat())  # it comes back with its next heartbeat
        assert "audit" in SubscriptionGroups(memory_path)
        assert (await client.call(207, groupName="audit", cleanOffset=True)).code == 0
        assert "audit" not in SubscriptionGroups(memory_path) and "%RETRY%audit" not in Topics(memory_path)
        assert ("%RETRY%audit", 0) not in stage.store.queues()
        assert list(ConsumerOffsets(memory_path).items()) == []
        assert stage.broker.offsets.query("audit", "orders", 0) == -1
        for name in ("audit", "no such group", "TOOLS_CONSUMER"):
            assert (await client.call(207, groupName=name, cleanOffset=True)).code == 0

    play(memory_path, main)


def test_tools_of_4_9_clean_offsets_by_another_name(memory_path):
    async def main(stage, client):
        await used(stage, client)
        assert (await client.call(207, groupName="audit", removeOffset=True)).code == 0
        assert list(ConsumerOffsets(memory_path).items()) == []

    play(memory_path, main)


def test_a_group_that_is_forbidden_to_read_a_topic(memory_path):
    async def main(stage, client):
        async def ask(**values):
            answer = await client.call(353, group="audit", topic="orders", **values)
            assert answer.code == 0 and not answer.remark
            return json.loads(answer.body)

        await used(stage, client)
        assert await ask() == {"group": "audit", "readable": True, "topic": "orders"}
        assert await ask(readable=False) == {"group": "audit", "readable": False, "topic": "orders"}
        assert SubscriptionGroups(memory_path).forbidden == {"audit": {"orders": 4}}
        assert json.loads((await client.call(201)).body)["forbiddenTable"] == {"audit": {"orders": 4}}
        answer = await client.pull(sysFlag=0)
        assert (answer.code, answer.remark) == (
            Code.NO_PERMISSION,
            "the consumer group[audit] is forbidden for topic[orders]",
        )
        assert (await client.pull(sysFlag=0, topic="%RETRY%audit")).code != Code.NO_PERMISSION
        assert (await ask(readable=True))["readable"]
        assert SubscriptionGroups(memory_path).forbidden == {}
        assert (await client.pull(sysFlag=0)).code == Code.PULL_RETRY_IMMEDIATELY  # read, but of other tags
        assert (await client.call(353, group="no good", topic="t", readable=False)).code == Code.INVALID_PARAMETER
        assert (await client.call(353, group="audit", topic="t" * 256, readable=False)).code == Code.INVALID_PARAMETER

    play(memory_path, main)


def test_only_groups_and_topics_that_exist_are_forbidden(memory_path):
    """The table grew with each name that anybody sent."""

    async def main(stage, client):
        await used(stage, client)
        table, topics = stage.broker.groups.table, stage.broker.topics.table
        for n in range(100):
            answer = await client.call(353, group=f"g{n}", topic="orders", readable=False)
            assert (answer.code, answer.remark) == (
                Code.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: g{n}",
            )  # fmt: skip
            answer = await client.call(353, group="audit", topic=f"t{n}", readable=False)
            assert (answer.code, answer.remark) == (Code.TOPIC_NOT_EXIST, f"No topic in this broker. topic: t{n}")
        assert table.forbidden == {}
        assert (await client.call(353, group="g1", topic="t1", readable=True)).code == 0  # it changes nothing
        table.set_readable("gone", "orders", False)
        await client.call(353, group="audit", topic="orders", readable=False)
        assert table.forbidden == {"gone": {"orders": 4}, "audit": {"orders": 4}}  # there is room
        for n in range(len(table) * len(topics)):
            table.set_readable("gone", f"t{n}", False)
        assert (await client.call(353, group="audit", topic="%RETRY%audit", readable=False)).code == 0
        assert table.forbidden == {"audit": {"orders": 4, "%RETRY%audit": 4}}
        assert SubscriptionGroups(memory_path).forbidden == table.forbidden

    play(memory_path, main)
