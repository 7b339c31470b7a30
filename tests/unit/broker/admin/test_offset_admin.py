"""Offsets reset, cloned, compared and listed by tools; codes and remarks were seen on a 5.3.3 broker."""

import asyncio
import json

import pytest
from simulation.brokers import EPOCH
from simulation.tools import create, heartbeat, lax, play, recorded, shape

from rocketc.remoting.codes import Code
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets

RESET = {"topic": "orders", "group": "audit", "timestamp": -1, "isForce": True, "queueId": -1, "offset": -1}


async def used(stage, client, online=True):
    """3 messages in queue 0, a second apart, and 1 in queue 1; audit has consumed 2 and 1."""
    await create(client)
    for queue in (0, 0, 0, 1):
        assert (await client.send(queueId=queue)).code == 0
        await asyncio.sleep(1)
    await stage.settle()
    await client.call(34, heartbeat())
    for queue, offset in ((0, 2), (1, 1)):
        await client.call(15, consumerGroup="audit", topic="orders", queueId=queue, commitOffset=offset)
    if not online:
        await client.call(35, clientID="c1", consumerGroup="audit")


async def reset(client, **values):
    answer = await client.call(222, **{**RESET, **values})
    return lax(answer.body)["offsetTable"] if answer.code == 0 else (answer.code, answer.remark)


def test_a_reset_is_answered_to_the_next_pull(memory_path):
    async def main(stage, client):
        await used(stage, client)
        exchange = recorded(222)
        answer = await client.call(222, **{**exchange["request"], "topic": "orders", "group": "audit"})
        assert shape(lax(answer.body)) == shape(lax(exchange["answerBody"]))
        assert lax(answer.body)["offsetTable"] == {("orders", 0): 0, ("orders", 1): 0}
        assert ConsumerOffsets(memory_path).get("orders", "audit", 0) == 0  # on the disk before the answer
        late = await client.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=2)
        assert (late.code, late.remark) == (0, "Offset has been previously reset")
        pulled = await client.pull(offset=2)
        assert (pulled.code, pulled.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "0")
        assert (await client.call(14, consumerGroup="audit", topic="orders", queueId=0)).fields["offset"] == "0"

    play(memory_path, main)


def test_resets_by_time_and_by_offset(memory_path):
    async def main(stage, client):
        await used(stage, client)
        times = [one.store_timestamp for one in stage.store.get("orders", 0, 0, 32).messages]
        both = [("orders", 0), ("orders", 1)]
        for values, expected in (
            ({}, dict(zip(both, (3, 1), strict=True))),
            ({"timestamp": 0}, dict.fromkeys(both, 0)),
            ({"timestamp": times[1]}, dict(zip(both, (1, 0), strict=True))),
            ({"timestamp": times[1] + 1}, dict(zip(both, (2, 0), strict=True))),
            ({"timestamp": EPOCH + 9_999_999}, dict(zip(both, (3, 1), strict=True))),
            ({"timestamp": (1 << 63) - 1}, dict(zip(both, (3, 1), strict=True))),
            ({"queueId": 0, "offset": 1}, {both[0]: 1}),
            ({"queueId": 0, "offset": 4}, {both[0]: 4}),
            ({"queueId": 1}, {both[1]: 1}),
            ({"queueId": None, "offset": None, "timestamp": 0}, dict.fromkeys(both, 0)),
        ):
            assert await reset(client, **values) == expected, values
        for values, code, remark in (
            ({"topic": "nope"}, 17, "Topic nope does not exist"),
            ({"group": "nope"}, 26, "Group nope does not exist"),
            ({"queueId": 0, "offset": 5}, 1, "Target offset 5 not in consume queue range [0-3]"),
            ({"queueId": 0, "offset": -2}, 1, "Target offset -2 not in consume queue range [0-3]"),
            ({"queueId": 7}, 1, "7@orders is not exist!"),
        ):
            assert await reset(client, **values) == (code, remark)

    play(memory_path, main)


@pytest.mark.parametrize("is_here", [True, False])
def test_a_reset_asks_for_no_queue_alone(memory_path, monkeypatch, is_here):
    """It would hold the loop for a second, for a topic with 65,536 queues."""

    async def main(stage, client):
        await used(stage, client)
        for name in ("query", "commit", "reset"):
            monkeypatch.setattr(stage.broker.offsets, name, None)
        assert await reset(client, timestamp=0) == {("orders", 0): 0, ("orders", 1): 0}

    play(memory_path, main, use_server_side_reset_offset=is_here)


def test_a_reset_that_online_consumers_carry_out(memory_path):
    async def main(stage, client):
        await used(stage, client)
        await stage.client().call(34, heartbeat(client_id="c2"))
        assert await reset(client, timestamp=0, isForce=False) == {("orders", 0): 0, ("orders", 1): 0}
        assert await reset(client, isForce=False) == {("orders", 0): 2, ("orders", 1): 1}
        assert await reset(client) == {("orders", 0): 3, ("orders", 1): 1}
        await asyncio.sleep(1)
        pushed = [one for one in client.pushed if one.code == 220]
        assert len(pushed) == 3 and all(one.is_oneway for one in pushed)
        assert pushed[0].fields == {
            "queueId": "-1", "topic": "orders", "isForce": "false", "group": "audit", "timestamp": "0",
        }  # fmt: skip
        assert lax(pushed[0].body) == {"offsetTable": {("orders", 0): 0, ("orders", 1): 0}}
        assert stage.broker.offsets.query("audit", "orders", 0) == 2  # the client commits it
        await client.call(352, group="other")
        for values, code, remark in (
            ({"topic": "nope"}, 17, "[reset-offset] reset offset failed, no topic in this broker. topic=nope"),
            ({"group": "nope"}, 1, "The consumer group <nope> not exist"),
        ):
            assert await reset(client, **values) == (code, remark)
        for channel in stage.broker.consumers.group("audit").channels.values():
            channel.language = "CPP"
        await reset(client, timestamp=0)
        await asyncio.sleep(1)
        [told] = json.loads(client.pushed[-1].body).values()
        assert told[0] == {"brokerName": "broker-a", "queueId": 0, "topic": "orders", "offset": 0} and len(told) == 2
        channel.version = 20
        assert (await reset(client))[1] == "the client does not support this feature. version=20"

    play(memory_path, main, use_server_side_reset_offset=False)


def test_a_reset_without_online_consumers(memory_path):
    async def main(stage, client):
        await used(stage, client, online=False)
        remark = "Consumer not online, so can not reset offset, Group: audit Topic: orders Timestamp: 0"
        assert await reset(client, timestamp=0) == (Code.CONSUMER_NOT_ONLINE, remark)

    play(memory_path, main, use_server_side_reset_offset=False)


def test_offsets_are_cloned(memory_path):
    async def main(stage, client):
        await used(stage, client)
        await create(client, "other", 1)
        await client.call(15, consumerGroup="audit", topic="other", queueId=0, commitOffset=0)
        target = lambda group: [(t, o) for t, g, _, o in ConsumerOffsets(memory_path).items() if g == group]  # noqa: E731
        for values, expected in (
            ({"destGroup": "a", "topic": "orders"}, [("orders", 2), ("orders", 1)]),
            ({"destGroup": "b"}, [("orders", 2), ("orders", 1)]),  # audit is online, and does not subscribe to other
            ({"destGroup": "c", "offline": True}, [("orders", 2), ("orders", 1), ("other", 0)]),
            ({"destGroup": "d", "topic": "nope"}, []),
        ):
            assert (await client.call(314, srcGroup="audit", **values)).code == 0
            assert target(values["destGroup"]) == expected, values
        assert (await client.call(314, srcGroup="nope", destGroup="e")).code == 0

    play(memory_path, main)


def test_the_smallest_offsets_of_all_groups(memory_path):
    async def main(stage, client):
        await used(stage, client)
        await client.call(352, group="late")
        await client.call(15, consumerGroup="late", topic="orders", queueId=0, commitOffset=1)

        async def ask(**values):
            answer = await client.call(308, compareGroup="audit", topic="orders", **values)
            return bytes(answer.body)

        assert await ask() == b'{"correctionOffsets":{0:1,1:1}}'
        assert await ask(filterGroups="late,x") == b'{"correctionOffsets":{0:2,1:1}}'
        assert await ask(filterGroups="late,audit") == b'{"correctionOffsets":{}}'

    play(memory_path, main)


def test_all_offsets(memory_path):
    async def main(stage, client):
        await used(stage, client)
        found = lax((await client.call(43)).body)
        assert found["offsetTable"] == {"orders@audit": {"0": 2, "1": 1}}
        assert found["groupTopicMap"] == {"audit": ["orders"]} and "counter" in found["dataVersion"]
        delays = DelayOffsets(memory_path)
        delays.commit(3, 51)
        delays.persist()
        assert lax((await client.call(45)).body)["offsetTable"] == {"3": 51}

    play(memory_path, main)


def test_a_clone_for_a_group_that_cannot_exist(memory_path):
    async def main(stage, client):
        await used(stage, client)
        for name in ("", "a b", "x" * 200_000):
            answer = await client.call(314, srcGroup="audit", destGroup=name, offline=True)
            assert answer.code == Code.INVALID_PARAMETER and len(answer.remark) < 100

    play(memory_path, main)


@pytest.mark.parametrize(
    ("code", "values", "group", "offset"),
    [(222, {**RESET, "timestamp": 1}, "audit", 0), (314, {"srcGroup": "audit", "destGroup": "twin"}, "twin", 2)],
)
def test_an_answer_means_that_offsets_are_on_the_disk_also_while_topics_are_deleted(
    memory_path, code, values, group, offset
):
    """A reset was answered when it was in memory only."""

    async def main(stage, client):
        await used(stage, client)
        with stage.broker.offsets.paused():
            asked = asyncio.ensure_future(client.call(code, **values))
            await asyncio.sleep(1)
            assert not asked.done()
        assert (await asked).code == Code.SUCCESS
        assert ConsumerOffsets(memory_path).get("orders", group, 0) == offset

    play(memory_path, main)
