"""Held pulls with SQL92 filters: what wakes them, and what they read again."""

import asyncio

import pytest
from simulation import virtual
from unit.broker.sql_pulls import beat, bodies, hold, known, play_on, put, retried, sql

from rocketc.remoting.codes import Code


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client); see play_on()."""
    return lambda main, **how: virtual.run(play_on(tmp_path, main, **how))


@pytest.mark.parametrize("properties", [{"a": 1}, {"a": None}, {"a": None, "b": "77"}, {"a": "x"}])
def test_a_message_that_does_not_match_wakes_only_the_sweep(play, properties):
    async def main(stage, client):
        waiting = hold(client)
        await asyncio.sleep(0.1)
        put(stage, **properties, body=b"1")
        await stage.settle()
        await asyncio.sleep(4)
        assert not waiting.done() and stage.broker.pulls.held.count == 1
        answer = await waiting
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, "11")

    play(main)


def test_a_message_that_matches_wakes_the_pull(play):
    async def main(stage, client):
        for _ in range(2):
            put(stage, 1)
        await stage.settle()
        end = stage.store.max_offset("orders", 0)
        waiting = hold(client, offset=end)
        await asyncio.sleep(0.1)
        for a in (5, 6, 77, 7):
            put(stage, a)
            await stage.settle()
        answer = await asyncio.wait_for(waiting, 0.5)
        assert bodies(answer) == [77] and answer.fields["nextBeginOffset"] >= str(end + 3)

    play(main)


def test_each_message_is_read_once(play, monkeypatch):
    async def main(stage, client):
        held, asked = stage.broker.pulls.held, []
        find = held._find

        def note(checked, queue_id, offset):
            following = find(checked, queue_id, offset)
            asked.append((offset, following))
            return following

        monkeypatch.setattr(held, "_find", note)
        waiting = hold(client)
        await asyncio.sleep(0.1)
        for a in (1, 2, 3, 77):
            put(stage, a)
            await stage.settle()
        assert bodies(await waiting) == [77]
        assert asked == [(10, 11), (11, 12), (12, 13), (13, -1)]

    play(main)


def test_messages_that_did_not_match_are_not_read_again(play):
    """RocketMQ's broker would answer with an offset 800 messages later, and the next pull would read the others."""

    async def main(stage, client):
        waiting = hold(client)
        await asyncio.sleep(0.1)
        for _ in range(1500):
            put(stage, 1)
        await stage.settle()
        answer = await waiting
        assert (answer.code, answer.remark) == (Code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert answer.fields["nextBeginOffset"] == answer.fields["maxOffset"] == "1510"

    play(main, store={"mapped_file_size_consume_queue": 60_000})


def test_messages_that_match_nothing_wake_the_loop_less_often(play):
    async def main(stage, client):
        woken, changes = [], stage.broker._changes
        original = changes.changes
        changes.changes = lambda: woken.append(asyncio.get_running_loop().time()) or original()
        waiting = hold(client)
        await asyncio.sleep(0.1)
        woken.clear()
        for _ in range(100):
            put(stage, 1)
            stage.store.step()
            await asyncio.sleep(0.0005)
        assert 10 <= len(woken) <= 16
        put(stage, 77)
        stage.store.step()
        assert bodies(await asyncio.wait_for(waiting, 0.0051)) == [77]

    play(main, delay=(0.0, 0.0))


def test_messages_of_other_queues_do_not_delay_a_held_pull(play):
    async def main(stage, client):
        stage.store.create_topic("others", queues=1)
        waiting = hold(client, "*", kind="TAG")
        await asyncio.sleep(0.1)
        for _ in range(20):
            put(stage, 1, "others")
            stage.store.step()
            await asyncio.sleep(0.0005)
        put(stage, 77)
        stage.store.step()
        assert bodies(await asyncio.wait_for(waiting, 0.0002)) == [77]

    play(main, delay=(0.0, 0.0))


def test_a_held_pull_without_a_valid_filter_wakes_with_any_message(play):
    async def main(stage, client):
        waiting = hold(client, "a =")
        await asyncio.sleep(0.1)
        put(stage, 1)
        await stage.settle()
        assert bodies(await asyncio.wait_for(waiting, 0.5)) == [1]

    play(main)


def test_a_held_pull_with_the_filter_of_the_heartbeat(play):
    async def main(stage, client):
        await beat(client, sql("a = 77"))
        waiting = asyncio.ensure_future(known(client, offset=10, sysFlag=2, suspendTimeoutMillis=20_000))
        await asyncio.sleep(0.1)
        put(stage, 1)
        await stage.settle()
        await asyncio.sleep(1)
        assert not waiting.done()
        await beat(client, sql("a = 78", version=2))  # the held pull keeps its filter; the answer has the new one
        put(stage, 78)
        put(stage, 77)
        await stage.settle()
        assert bodies(await asyncio.wait_for(waiting, 0.5)) == [78]

    play(main)


def test_a_held_pull_of_a_retry_topic(play):
    async def main(stage, client):
        await beat(client, sql("a > 1"))
        retry = await retried(stage)
        waiting = hold(client, "a < 100", offset=9, topic=retry)
        await asyncio.sleep(0.1)
        put(stage, 1, retry, RETRY_TOPIC="orders")
        await stage.settle()
        await asyncio.sleep(1)
        assert not waiting.done()
        put(stage, 2, retry, RETRY_TOPIC="orders")
        await stage.settle()
        assert bodies(await asyncio.wait_for(waiting, 0.5)) == [2]

    play(main, filter_support_retry=True)


def test_what_only_a_read_can_tell_wakes_the_pull(play):
    async def main(stage, client):
        path = stage.broker.pulls.path
        checked = stage.broker.pulls._check(11, {
            "consumerGroup": "audit", "topic": "orders", "queueId": 0, "sysFlag": 4, "subVersion": 1,
            "subscription": "a = 77", "expressionType": "SQL92",
        }, None)  # fmt: skip
        assert path.find(checked, 0, 0) == 10 and path.find(checked, 0, 10) == 10
        assert path.find(checked, 0, 11) == -1  # past the end
        assert path.find(checked, 1, 0) == -1  # an empty queue
        assert path.find(checked, 0, -1) == -1
        with pytest.raises(TypeError):
            path.find(None, 0, 0)

    play(main)
