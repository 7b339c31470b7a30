"""Pulls: checks, statuses, holding and waking, on virtual time with a real store."""

import asyncio
import json
import random

import pytest
from simulation import virtual
from simulation.brokers import scene

import rocketc
from rocketc.broker.pull import code_of
from rocketc.remoting.codes import Code
from rocketc.status import GetStatus
from rocketc.tables.groups import SubscriptionGroupConfig


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client) with a topic `orders` that has four queues."""

    def run(main, **how):
        async def whole():
            async with scene(tmp_path, **how) as stage:
                client = stage.client()
                await client.send(queueId=9999)
                await main(stage, client)

        virtual.run(whole())

    return run


async def sent(stage, client, count, tag="", queue_id=0):
    for n in range(count):
        own = f"TAGS\1{tag}\2" if tag else ""
        assert (await client.send(body=b"%d" % n, properties=f"UNIQ_KEY\1K{n}\2{own}", queueId=queue_id)).code == 0
    await stage.settle()


def bodies(answer):
    return messages_of(answer.body)


def messages_of(data):
    """The bodies of stored records, one after the other."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(rocketc.Message.of(data[at : at + size]).body)
        at += size
    return found


async def heartbeat(client, group="audit", topic="orders", expression="*", version=1, model="CLUSTERING"):
    tags = [] if expression == "*" else expression.split(" || ")
    subscription = {
        "topic": topic, "subString": expression, "tagsSet": tags, "subVersion": version, "expressionType": "TAG",
        "codeSet": [],
    }  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = json.dumps({"clientID": "client", "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    assert (await client.call(34, body)).code == 0


def test_answers_have_the_flags_of_topic_and_group(play):
    async def main(stage, client):
        stage.store.create_topic("orders", queues=1)
        topic = {"topic": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "defaultTopic": "TBW102"}
        group = SubscriptionGroupConfig("audit", group_sys_flag=2)
        stage.broker.groups.table.create(group)
        await sent(stage, client, 1)
        for flag in (3, 1):
            answer = await client.call(17, **topic, topicFilterType="SINGLE_TAG", topicSysFlag=flag)
            assert answer.code == 0
            for offset in (0, 1):
                answer = await client.pull(offset=offset)
                assert answer.code == (Code.PULL_NOT_FOUND if offset else Code.SUCCESS)
                assert (answer.fields["topicSysFlag"], answer.fields["groupSysFlag"]) == (str(flag), "2")

    play(main)


def test_records_come_as_they_are_stored(play):
    async def main(stage, client):
        await sent(stage, client, 40)
        answer = await client.pull(offset=0)
        assert (answer.code, answer.remark) == (Code.SUCCESS, "FOUND")
        assert answer.fields == {
            "suggestWhichBrokerId": "0", "nextBeginOffset": "32", "minOffset": "0", "maxOffset": "40",
            "topicSysFlag": "0", "groupSysFlag": "0",
        }  # fmt: skip
        assert bodies(answer) == [b"%d" % n for n in range(32)]
        assert answer.body == stage.store.read_raw(0, len(answer.body))
        answer = await client.pull(offset=35, maxMsgNums=3)
        assert bodies(answer) == [b"35", b"36", b"37"] and answer.fields["nextBeginOffset"] == "38"
        assert stage.broker.pulls.pulled == 35

    play(main)


def test_the_size_of_an_answer_is_limited(play):
    async def main(stage, client):
        for _ in range(4):
            await client.send(body=b"x" * 100_000)
        await stage.settle()
        assert len(bodies(await client.pull())) == 2  # 256 KiB

    play(main)


@pytest.mark.parametrize(
    ("offset", "queue_id", "code", "status", "following"),
    [
        (5, 0, Code.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5),
        (6, 0, Code.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5),
        (0, 1, Code.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
        (7, 1, Code.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0),
        (4, 0, Code.SUCCESS, "FOUND", 5),
        (-1, 0, Code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (-(2**63), 0, Code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (-1, 1, Code.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
def test_each_status(play, offset, queue_id, code, status, following):
    async def main(stage, client):
        await sent(stage, client, 5)
        answer = await client.pull(offset=offset, queue_id=queue_id)
        assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (code, status, str(following))
        assert answer.fields["maxOffset"] == ("0" if queue_id else "5")

    play(main)


@pytest.mark.parametrize("status", GetStatus)
def test_each_status_of_a_store_has_a_code(status):
    codes = {
        "FOUND": 0, "NO_MATCHED_MESSAGE": 20, "MESSAGE_WAS_REMOVING": 20, "OFFSET_FOUND_NULL": 19,
        "OFFSET_OVERFLOW_BADLY": 21, "OFFSET_OVERFLOW_ONE": 19, "OFFSET_TOO_SMALL": 21, "OFFSET_RESET": 21,
        "NO_MATCHED_LOGIC_QUEUE": 21, "NO_MESSAGE_IN_QUEUE": 21,
    }  # fmt: skip
    assert code_of(status, 3) == codes[status.name]


def test_offsets_before_the_first_message(play):
    async def main(stage, client):
        for _ in range(12):
            await client.send(body=b"x" * 300_000)
        await stage.settle()
        stage.store.delete_before(2 << 20)
        first = stage.store.min_offset("orders", 0)
        assert first > 0
        answer = await client.pull(offset=0)
        assert (answer.code, answer.remark) == (Code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
        assert answer.fields["nextBeginOffset"] == answer.fields["minOffset"] == str(first)

    play(main)


def test_tags_are_selected_by_their_hash(play):
    async def main(stage, client):
        for n in range(10):
            await client.send(body=b"%d" % n, properties=f"UNIQ_KEY\1K\2TAGS\1{'AB'[n % 2]}\2")
        await stage.settle()
        answer = await client.pull(subscription="A || C")
        assert bodies(answer) == [b"0", b"2", b"4", b"6", b"8"] and answer.fields["nextBeginOffset"] == "10"
        answer = await client.pull(subscription="C")
        assert (answer.code, answer.remark) == (Code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert answer.fields["nextBeginOffset"] == "10" and answer.body == b""

    play(main)


# checks, in their order

BROKER, GROUP, TOPIC, BROADCAST = "1234"  # forbiddenType, as of 5.3.3


def assert_forbidden(answer, kind):
    assert answer.code == Code.NO_PERMISSION and answer.fields.get("forbiddenType") == kind


def test_a_broker_that_is_not_readable(play):
    async def main(stage, client):
        assert_forbidden(await client.pull(), BROKER)

    play(main, broker_permission=2)


@pytest.mark.parametrize(
    ("config", "values", "code", "remark"),
    [
        ({"broker_permission": 2}, {}, Code.NO_PERMISSION, "pulling message is forbidden"),
        ({"auto_create_subscription_group": False}, {}, Code.SUBSCRIPTION_GROUP_NOT_EXIST, "[audit] does not exist"),
        ({}, {"group": "no name!"}, Code.SUBSCRIPTION_GROUP_NOT_EXIST, "[no name!]"),
        ({}, {"topic": "unknown"}, Code.TOPIC_NOT_EXIST, "topic[unknown] not exist"),
        ({}, {"queue_id": 4}, Code.INVALID_PARAMETER, "queueId[4] is illegal, topic:[orders]"),
        ({}, {"queue_id": -1}, Code.INVALID_PARAMETER, "queueId[-1] is illegal"),
        ({}, {"subscription": "||"}, Code.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"),
        ({}, {"sysFlag": 0}, Code.SUBSCRIPTION_NOT_EXIST, "group info not exist"),
        ({}, {"expressionType": "SQL92", "subscription": "a > 1"}, Code.SYSTEM_ERROR, "filter message by SQL92"),
    ],
)
def test_what_is_refused(play, config, values, code, remark):
    async def main(stage, client):
        answer = await client.pull(**values)
        assert answer.code == code and remark in answer.remark

    play(main, **config)


def test_lite_pulls_may_be_refused(play):
    async def main(stage, client):
        told = {
            "consumerGroup": "audit", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1,
        }  # fmt: skip
        assert_forbidden(await client.call(361, **told), BROKER)
        assert (await client.call(11, **told)).code == Code.PULL_NOT_FOUND

    play(main, lite_pull_message_enable=False)


def test_a_group_that_may_not_consume(play):
    async def main(stage, client):
        stage.broker.groups.table.create(SubscriptionGroupConfig("audit", consume_enable=False))
        assert_forbidden(await client.pull(), GROUP)

    play(main)


def test_a_topic_that_is_not_readable(play):
    async def main(stage, client):
        stage.store.create_topic("secret", perm=2)
        answer = await client.pull(topic="secret")
        assert_forbidden(answer, TOPIC)
        assert "the topic[secret]" in answer.remark

    play(main)


def test_subscriptions_of_heartbeats(play):
    async def main(stage, client):
        await sent(stage, client, 3)
        await heartbeat(client, version=7)
        assert (await client.pull(sysFlag=0, subVersion=7)).code == Code.SUCCESS
        assert (await client.pull(sysFlag=0, subVersion=8)).code == Code.SUBSCRIPTION_NOT_LATEST
        await client.send(topic="other")
        assert (await client.pull(topic="other", sysFlag=0)).code == Code.SUBSCRIPTION_NOT_EXIST

    play(main)


def test_a_group_that_may_not_broadcast(play):
    async def main(stage, client):
        stage.broker.groups.table.create(SubscriptionGroupConfig("audit", consume_broadcast_enable=False))
        await heartbeat(client, model="BROADCASTING")
        assert_forbidden(await client.pull(sysFlag=0), BROADCAST)

    play(main)


def test_the_vip_port_refuses_pulls(play):
    async def main(stage, client):
        vip = stage.client(vip=True)
        assert (await vip.pull()).code == Code.REQUEST_CODE_NOT_SUPPORTED
        assert (await vip.send()).code == Code.SUCCESS

    play(main)


# offsets


def test_a_pull_commits_an_offset(play):
    async def main(stage, client):
        await sent(stage, client, 5)
        await client.pull(offset=3, sysFlag=4 | 1, commitOffset=3)
        assert stage.broker.offsets.query("audit", "orders", 0) == 3
        assert stage.broker.offsets.pull_offset("audit", "orders", 0) == 5
        await client.pull(offset=3, sysFlag=4, commitOffset=1)  # without the bit
        assert stage.broker.offsets.query("audit", "orders", 0) == 3

    play(main)


def test_a_held_pull_commits_once_and_before_it_is_held(play):
    async def main(stage, client):
        await sent(stage, client, 5)
        waiting = asyncio.ensure_future(client.pull(offset=5, wait=15_000, sysFlag=7, commitOffset=5))
        await asyncio.sleep(1)
        assert stage.broker.offsets.query("audit", "orders", 0) == 5
        stage.broker.offsets.commit("audit", "orders", 0, 2)
        await sent(stage, client, 1)
        assert (await waiting).code == Code.SUCCESS and stage.broker.offsets.query("audit", "orders", 0) == 2

    play(main)


def test_a_reset_is_answered_once(play):
    async def main(stage, client):
        await sent(stage, client, 5)
        stage.broker.offsets.reset("audit", "orders", 0, 2)
        answer = await client.pull(offset=5)
        assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (21, "OFFSET_RESET", "2")
        assert (await client.pull(offset=2)).code == Code.SUCCESS

    play(main)


# holding


def elapsed(began):
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("tag", ["", "A"])
def test_a_held_pull_is_woken_by_a_message(play, tag):
    async def main(stage, client):
        began = elapsed(0)
        waiting = asyncio.ensure_future(client.pull(wait=15_000, subscription=tag or "*"))
        await asyncio.sleep(2)
        assert not waiting.done() and stage.broker.pulls.held.count == 1
        await client.send(properties=f"UNIQ_KEY\1K\2TAGS\1{tag}\2")
        answer = await waiting
        assert bodies(answer) == [b"body"] and elapsed(began) < 2.2 and stage.broker.pulls.held.count == 0

    play(main)


def test_a_message_with_another_tag_wakes_only_the_sweep(play):
    async def main(stage, client):
        began = elapsed(0)
        waiting = asyncio.ensure_future(client.pull(wait=15_000, subscription="A"))
        await asyncio.sleep(1)
        await sent(stage, client, 1, tag="B")
        await asyncio.sleep(1)
        assert not waiting.done()
        answer = await waiting
        assert answer.code == Code.PULL_RETRY_IMMEDIATELY and answer.fields["nextBeginOffset"] == "1"
        assert 4.9 < elapsed(began) < 5.2

    play(main)


def test_messages_wake_the_loop_only_while_a_pull_is_held(play):
    """Each wake-up costs as much as a send. A message of the time without pulls does not wake a later pull."""

    async def main(stage, client):
        asked = []
        changes = stage.broker._changes
        original = changes.changes
        changes.changes = lambda: asked.append(stage.broker.pulls.held.count) or original()
        await sent(stage, client, 5)
        assert asked == []
        waiting = asyncio.ensure_future(client.pull(offset=5, sysFlag=6))
        await asyncio.sleep(1)
        assert asked and not waiting.done()
        await sent(stage, client, 1)
        assert bodies(await waiting) == [b"0"]
        asked.clear()
        await sent(stage, client, 5)
        assert asked == []

    play(main)


def test_a_held_pull_ends_with_its_time(play):
    async def main(stage, client):
        began = elapsed(0)
        answer = await client.pull(wait=12_000)
        assert (answer.code, answer.remark) == (Code.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
        assert 12 <= elapsed(began) < 15.2

    play(main)


def test_without_long_polling_it_waits_for_a_second(play):
    async def main(stage, client):
        began = elapsed(0)
        assert (await client.pull(wait=15_000)).code == Code.PULL_NOT_FOUND
        assert 1 <= elapsed(began) < 2.2

    play(main, long_polling_enable=False)


def test_a_pull_without_the_bit_is_not_held(play):
    async def main(stage, client):
        began = elapsed(0)
        assert (await client.pull(sysFlag=4, wait=15_000)).code == Code.PULL_NOT_FOUND and elapsed(began) < 0.1

    play(main)


def test_a_message_between_the_two_looks_is_not_missed(play):
    async def main(stage, client):
        original = stage.broker.pulls.held.add

        def add(pull):
            stage.store.put("orders", b"between")
            while stage.store.step():
                pass
            stage.store.subscribe().close()
            stage.broker._changes.changes()  # the change is taken, and wakes no pull
            original(pull)

        stage.broker.pulls.held.add = add
        began = elapsed(0)
        assert bodies(await client.pull(wait=15_000)) == [b"between"] and elapsed(began) < 0.1

    play(main)


def test_one_message_wakes_all_pulls_of_its_queue_and_no_other(play):
    async def main(stage, client):
        others = [stage.client() for _ in range(50)]
        waiting = [asyncio.ensure_future(one.pull(wait=15_000, group=f"g{n}")) for n, one in enumerate(others)]
        other = asyncio.ensure_future(client.pull(queue_id=1, wait=15_000))
        await asyncio.sleep(1)
        await client.send()
        await asyncio.sleep(0.1)
        assert all(one.done() for one in waiting) and not other.done() and stage.broker.pulls.held.count == 1
        other.cancel()

    play(main)


def test_a_lost_client_does_not_stay_in_the_table(play):
    async def main(stage, client):
        other = stage.client()
        waiting = asyncio.ensure_future(other.pull(wait=600_000))
        await asyncio.sleep(1)
        other.transport.cut()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(6)
        assert stage.broker.pulls.held.count == 0

    play(main)


def test_held_pulls_are_answered_when_the_broker_ends(tmp_path):
    async def whole():
        async with scene(tmp_path) as stage:
            client = stage.client()
            await client.send()
            await stage.settle()
            waiting = asyncio.ensure_future(client.pull(offset=1, wait=15_000))
            await asyncio.sleep(1)
            began = elapsed(0)
        assert (await waiting).code == Code.PULL_NOT_FOUND and elapsed(began) < 1

    virtual.run(whole())


def test_a_pull_that_comes_after_the_end_began_is_not_held(tmp_path):
    async def whole():
        async with scene(tmp_path, delay=(0.0, 0.0)) as stage:
            client = stage.client()
            await client.send()
            await stage.settle()
            stage.broker.pulls.held.close()
            began = elapsed(0)
            assert (await client.pull(offset=1, wait=15_000)).code == Code.PULL_NOT_FOUND and elapsed(began) < 1

    virtual.run(whole())


def test_many_held_pulls_do_not_keep_a_heartbeat_waiting(play):
    """A consumer of a topic with 1024 queues holds 1024 pulls on its one connection."""

    async def main(stage, client):
        held = [asyncio.ensure_future(client.pull("BenchmarkTest", n, wait=15_000)) for n in range(1024)]
        held.append(asyncio.ensure_future(client.pull(wait=15_000)))
        await asyncio.sleep(1)
        assert stage.broker.pulls.held.count == 1025
        began = elapsed(0)
        await heartbeat(client)
        assert elapsed(began) < 1
        assert {answer.code for answer in await asyncio.gather(*held)} == {Code.PULL_NOT_FOUND}

    play(main)


def test_an_error_in_a_held_pull_is_an_answer(play, caplog):
    async def main(stage, client):
        pulls = [asyncio.ensure_future(client.pull(offset=0, wait=15_000)) for _ in range(2)]
        await asyncio.sleep(1)
        stage.broker.pulls._second_answer = lambda held: {}["missing"]
        await sent(stage, client, 1)
        assert [(a.code, a.remark) for a in await asyncio.gather(*pulls)] == [(1, "KeyError: 'missing'")] * 2
        assert (await client.send()).code == 0

    play(main)
    assert "request 11 failed" in caplog.text


@pytest.mark.parametrize("seed", range(5))
def test_consumers_get_each_message_once_and_in_order(tmp_path, seed):
    """Four consumers follow the queues while two producers send; nothing is lost, late or twice."""

    async def consume(client, queue_id, got, chance):
        offset = 0
        while True:
            answer = await client.pull(queue_id=queue_id, offset=offset, wait=15_000, maxMsgNums=chance.randint(1, 32))
            if answer.code == Code.SUCCESS:
                got += messages_of(answer.body)
            offset = int(answer.fields["nextBeginOffset"])

    async def produce(client, sent, chance):
        for n in range(200):
            queue_id = chance.randrange(4)
            body = b"%d of %d" % (n, id(client))
            answer = await client.send(body=body, queueId=queue_id)
            sent[queue_id][int(answer.fields["queueOffset"])] = body
            await asyncio.sleep(chance.expovariate(5))

    async def whole():
        chance = random.Random(seed)
        async with scene(tmp_path, seed=seed, delay=(0.0, 0.2)) as stage:
            client = stage.client()
            await client.send(queueId=9999)
            sent, got = [{} for _ in range(4)], [[] for _ in range(4)]
            consumers = [asyncio.ensure_future(consume(stage.client(), q, got[q], chance)) for q in range(4)]
            await asyncio.gather(*(produce(stage.client(), sent, chance) for _ in range(2)))
            await asyncio.sleep(2)
            assert got == [[body for _, body in sorted(queue.items())] for queue in sent]
            for one in consumers:
                one.cancel()

    virtual.run(whole())
