"""AsyncConsumer at a broker of this project: the iterator, commits, members, and the end."""

import asyncio
import threading

import pytest

import rocketc
from rocketc.client import AsyncConsumer, AsyncProducer, AsyncPullConsumer, PullConsumer
from rocketc.errors import AnswerError, ClosedError, IllegalMessageError, NotSentError

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        yield one


def run(work, seconds=30):
    async def main():
        return await asyncio.wait_for(work(), seconds)

    return asyncio.run(main())


async def sent(broker, topic, count, **options):
    async with AsyncProducer("shop", broker.name_server) as producer:
        for i in range(count):
            await producer.send(topic, b"%d" % i, **options)


def consumer(broker, group, topics, **options):
    return AsyncConsumer(group, broker.name_server, topics=topics, **{**FIRST, **options})


async def first(one, count):
    found = []
    async for message in one:
        found.append(message)
        if len(found) == count:
            return found
    return found


def test_messages_and_commits(broker):
    async def work():
        await sent(broker, "read", 20, tags="web")
        async with consumer(broker, "read", ["read"]) as one:
            messages = await first(one, 12)
            await one.commit()
            rest = await first(one, 8)  # not committed
        assert sorted(int(m.body) for m in messages + rest) == list(range(20))
        async with consumer(broker, "read", ["read"]) as one:
            again = await first(one, 8)
            assert {m.msg_id for m in again} == {m.msg_id for m in rest}
            assert await one.getmany(timeout=200) == []
            await one.commit()
        async with consumer(broker, "read", ["read"]) as one:
            assert await one.getmany(timeout=300) == []

    run(work)


def test_tags_and_several_messages(broker):
    async def work():
        for tag in ("web", "app", "other"):
            await sent(broker, "several", 5, tags=tag, shard="s")
        async with consumer(broker, "several", {"several": "web || app"}) as one:
            found = []
            while len(found) < 10:
                found += await one.getmany(max_records=4)
            assert [m.tags for m in found] == ["web"] * 5 + ["app"] * 5
            assert [int(m.body) for m in found] == [*range(5), *range(5)]
            waiting = asyncio.ensure_future(one.getone())
            await asyncio.sleep(0.05)
            await sent(broker, "several", 1, tags="web")
            assert (await waiting).body == b"0"

    run(work)


def test_a_canceled_read_loses_nothing(broker):
    async def work():
        async with consumer(broker, "canceled", ["canceled"]) as one:
            for delay in (0, 0.001, 0.01, 0.1):
                waiting = [asyncio.ensure_future(one.getone()) for _ in range(2)]
                await asyncio.sleep(delay)
                waiting[0].cancel()
                await sent(broker, "canceled", 1)
                assert (await waiting[1]).body == b"0"
            assert await one.getmany(timeout=100) == []

    run(work)


def test_reads_in_vain_leave_nothing(broker):
    async def work():
        async with consumer(broker, "vain", ["vain"]) as one:
            for _ in range(20):
                assert await one.getmany(timeout=1) == []
            await asyncio.sleep(0)  # the last one ends
            assert not one._read._waiting

    run(work)


def test_members_share(broker):
    async def work():
        await sent(broker, "members", 1)
        async with consumer(broker, "members", ["members"]) as a:
            await first(a, 1)
            await a.commit()
            async with consumer(broker, "members", ["members"]) as b:
                got_a, got_b = [], []
                for _ in range(100):
                    await sent(broker, "members", 8)
                    got_a += await a.getmany(timeout=50)
                    got_b += await b.getmany(timeout=50)
                    await a.commit()
                    await b.commit()
                    if got_b:
                        break
                assert {m.queue_id for m in got_b} and len({m.queue_id for m in got_b}) <= 2

    run(work)


def test_the_end_of_an_iteration(broker):
    async def work():
        one = consumer(broker, "ends", ["ends"])
        with pytest.raises(ClosedError, match="the consumer is not started"):
            await one.getone()
        await one.start()
        reading = asyncio.ensure_future(first(one, 1))
        await asyncio.sleep(0.1)
        await one.close()
        assert await reading == []
        with pytest.raises(ClosedError, match="cannot be started twice"):
            await one.start()
        await one.close()
        assert len(asyncio.all_tasks()) == 2  # this one, and that of wait_for()

    run(work)


def test_wrong_use():
    with pytest.raises(TypeError, match=r"topics: expected names, got the text 'orders'; .* write \['orders'\]"):
        AsyncConsumer("g", topics="orders")
    with pytest.raises(ValueError, match="topics: at least one topic"):
        AsyncConsumer("g", topics=[])
    with pytest.raises(IllegalMessageError, match="may only have letters"):
        AsyncConsumer("g", topics=["my orders"])
    with pytest.raises(ValueError, match="a group name may only have letters"):
        AsyncConsumer("my group", topics=["orders"])

    async def work():
        with pytest.raises(NotSentError, match=r"127.0.0.1:1: no connection"):
            await AsyncConsumer("g", "127.0.0.1:1", topics=["orders"], mq_client_api_timeout=500).start()
        assert len(asyncio.all_tasks()) == 2

    run(work)


KINDS = pytest.mark.parametrize("kind", [AsyncConsumer, AsyncPullConsumer])


@KINDS
def test_an_iteration_without_a_start(broker, kind):
    one = kind("early", broker.name_server, topics=["early"])
    with pytest.raises(ClosedError, match="the consumer is not started"):
        run(lambda: first(one, 1))


@KINDS
def test_an_iteration_on_another_loop(broker, kind):
    errors = []

    def read_elsewhere(one):
        with pytest.raises(ClosedError, match="another event loop") as error:
            run(lambda: first(one, 1))
        errors.append(error)

    async def work():
        async with kind("elsewhere", broker.name_server, topics=["elsewhere"]) as one:
            thread = threading.Thread(target=read_elsewhere, args=[one])
            thread.start()
            await asyncio.to_thread(thread.join)
        assert errors
        assert await first(one, 1) == []  # it is closed: this is the end

    run(work)


@KINDS
def test_a_second_start_after_a_canceled_one(broker, kind):
    async def work():
        group = f"again-{kind.__name__}"
        await sent(broker, "again", 1)
        one = kind(group, broker.name_server, topics=["again"], **FIRST)
        for turns in range(30):  # it is canceled at different places
            starting = asyncio.ensure_future(one.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled():
                break
            with pytest.raises(ClosedError, match="the consumer is not started"):
                await anext(one)
        else:
            await one.start()
        assert [message.body for message in await first(one, 1)] == [b"0"]
        await one.close()
        with pytest.raises(ClosedError, match="cannot be started twice"):
            await one.start()

    run(work)


def test_a_second_start_after_one_that_failed():
    """The same for PullConsumer: its topic is there, but its broker does not take SQL92 filters yet."""
    with rocketc.Broker() as plain:
        run(lambda: sent(plain, "late", 1))
        one = PullConsumer("late", plain.name_server, topics=["late"], sql="a = 'b'", **FIRST)
        with pytest.raises(AnswerError, match="does not support consumer to filter message by SQL92"):
            one.start()
        one.unsubscribe("late")
        one.subscribe("late")
        with one:
            assert [message.body for message in one.poll(10_000)] == [b"0"]
