"""What AsyncConsumer reads from, at brokers that answer as a test says, on virtual time."""

import asyncio

from unit.client.scripted import play
from unit.client.scripted_push import PushCluster

from rocketc.client.async_consumer import AsyncConsumer, _Iterated
from rocketc.client.routes import MessageQueue
from rocketc.client.subscriptions import subscribe
from rocketc.format._encoding import encode
from rocketc.read._opened_records import pulled_messages

FIRST = MessageQueue("orders", "a", 0)


async def reading(stage):
    core = stage.consumer(_Iterated)
    await core.subscribe(subscribe("orders"), lambda message: None)
    await core.start()
    return core


def test_messages_of_a_queue_that_went_are_left_out():
    async def main():
        stage = PushCluster("a")
        stage.put(3)
        core = await reading(stage)
        assert (await core.service.next()).body == b"0"
        core._member.owned[FIRST].process_queue.is_dropped = True
        assert core.service.next_now() is None
        await core.close()

    play(main())


def test_a_reader_that_is_canceled_leaves_its_message_to_another_one():
    async def main():
        stage = PushCluster("a")
        core = await reading(stage)
        readers = [asyncio.create_task(core.service.next()) for _ in range(2)]
        stage.put(1)
        submit = core.service.submit

        def submitted(*what):
            submit(*what)
            readers[0].cancel()  # at the moment when it is woken

        core._member._work = type("Work", (), {"submit": staticmethod(submitted)})
        await asyncio.sleep(5)
        assert readers[0].cancelled() and readers[1].done() and readers[1].result().body == b"0"
        await core.close()

    play(main())


def test_getmany_that_is_canceled_at_each_moment_loses_nothing():
    async def main(turns):
        stage = PushCluster("a")
        core = await reading(stage)
        consumer = AsyncConsumer("g", topics=["orders"])
        consumer._core, consumer._read, consumer._loop = core, core.service, asyncio.get_running_loop()
        [message] = pulled_messages(encode("orders", b"one", queue_offset=1))[0]
        core._member.owned[FIRST].process_queue.put([message], 0)
        call = asyncio.ensure_future(consumer.getmany(timeout=5_000))
        await asyncio.sleep(0.1)
        core.service.submit(core._member.owned[FIRST], [message], True)
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        found = (await asyncio.gather(call, return_exceptions=True))[0]
        if not isinstance(found, list):
            found = await consumer.getmany(timeout=100)
        await core.close()
        return [one.body for one in found]

    for turns in range(6):
        assert play(main(turns)) == [b"one"]
