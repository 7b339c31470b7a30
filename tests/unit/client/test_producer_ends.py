"""What a producer has in flight, its heartbeats, and its end."""

import asyncio

import pytest
from unit.client.producing import refusing, run
from unit.client.scripted import Cluster, play, stored

from rocketc.client.in_flight import InFlight
from rocketc.client.send_results import SendStatus
from rocketc.errors import BackpressureError, ClosedError
from rocketc.remoting.codes import Code


def test_heartbeats_and_the_end():
    async def main():
        stage = Cluster({"a": stored})
        async with stage.producer() as producer:
            await producer.send("orders", b"one")
            client = producer.client_id
            await asyncio.sleep(65)
            assert stage.brokers["a"].count(34) == 3
        beat = next(call for call in stage.brokers["a"].asked if call.command.code == 34)
        assert beat.command.body == (
            f'{{"clientID":"{client}","consumerDataSet":[],"producerDataSet":[{{"groupName":"shop"}}]}}'.encode()
        )
        [leave] = [call.values for call in stage.brokers["a"].asked if call.command.code == 35]
        assert leave == {"clientID": client, "producerGroup": "shop"}
        with pytest.raises(ClosedError, match="the client is closed"):
            await producer.send("orders", b"one")
        assert len(asyncio.all_tasks()) == 1

    play(main())


def test_a_broker_that_does_not_accept_the_heartbeat(caplog):
    async def work(producer, stage):
        stage.brokers["a"].answers[34] = refusing(Code.SYSTEM_ERROR)
        await producer.send("orders", b"one")
        await asyncio.sleep(1)

    run(work, {"a": stored})
    assert "broker a does not accept the heartbeat: 10.0.1.0:10911: HEART_BEAT was answered with 1" in caplog.text


def test_a_send_that_waits_when_the_producer_is_closed_is_answered_first():
    def slow(call):
        asyncio.get_running_loop().call_later(1.0, call.later, stored(call))

    async def work(producer, stage):
        waiting = asyncio.ensure_future(producer.send("orders", b"one"))
        await asyncio.sleep(0.1)
        await producer.close()
        return waiting.result().status

    assert run(work, {"a": slow}) is SendStatus.SEND_OK


def test_a_limit_on_what_is_in_flight():
    async def work(producer, stage):
        most = 0

        def slow(call):
            nonlocal most
            most = max(most, stage.brokers["a"].count(310) - done)
            asyncio.get_running_loop().call_later(1.0, later, call)

        def later(call):
            nonlocal done
            done += 1
            call.later(stored(call))

        done = 0
        stage.brokers["a"].answers[310] = slow
        sends = [asyncio.ensure_future(producer.send("orders", b"one", timeout=9000)) for _ in range(7)]
        await asyncio.sleep(0.5)
        sends[5].cancel()
        await asyncio.wait(sends)
        assert [one.cancelled() for one in sends] == [False] * 5 + [True, False]
        return most

    assert run(work, {"a": stored}, max_in_flight=2) == 2
    assert run(work, {"a": stored}, max_bytes_in_flight=6) == 2
    assert run(work, {"a": stored}, max_bytes_in_flight=1) == 1


def test_a_send_does_not_wait_for_room_after_its_time():
    async def work(producer, stage):
        first = asyncio.ensure_future(producer.send("orders", b"one", timeout=9000))
        await asyncio.sleep(0.1)
        with pytest.raises(BackpressureError, match="1 messages of 3 bytes are in flight; the limits are 1 messages"):
            await producer.send("orders", b"two", timeout=200)
        assert producer._in_flight.messages == 1
        first.cancel()

    run(work, {"a": None}, max_in_flight=1)


def test_a_canceled_send_leaves_nothing():
    async def work(producer, stage):
        for delay in (0.0, 0.0005, 0.002, 0.02, 0.1):
            sending = asyncio.ensure_future(producer.send("orders", b"one"))
            await asyncio.sleep(delay)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        assert producer._in_flight.messages == 0
        stage.brokers["a"].answers[310] = stored
        assert (await producer.send("orders", b"one")).status is SendStatus.SEND_OK

    run(work, {"a": None})


@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.1, 0.55, 1.2])
def test_a_canceled_close_leaves_nothing(seconds):
    async def main():
        stage = Cluster({"a": stored})
        stage.brokers["a"].answers[35] = lambda call: None
        async with stage.producer() as producer:
            await producer.send("orders", b"one")
            stage.brokers["a"].answers[310] = lambda call: None
            sending = asyncio.create_task(producer.send("orders", b"two", timeout=500))
            await asyncio.sleep(0.1)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.close(), seconds)
        await asyncio.gather(sending, return_exceptions=True)
        await asyncio.sleep(0.2)
        assert [address for address, link in stage.links if not link.is_closing()] == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(main())


def test_who_waits_for_room_does_not_wait_for_one_that_gave_up():
    async def main():
        window, loop = InFlight(messages=10, bytes=100), asyncio.get_running_loop()
        window.take_now(50)
        with pytest.raises(BackpressureError):
            await window.take(60, loop.time() + 1)
        window.take_now(10)
        large = asyncio.create_task(window.take(60, loop.time() + 99))
        await asyncio.sleep(0)
        small = asyncio.create_task(window.take(10, loop.time() + 99))
        await asyncio.sleep(1)
        large.cancel()
        await asyncio.sleep(0.001)
        assert small.done() and window.bytes == 70
        large = asyncio.create_task(window.take(60, loop.time() + 1))
        await asyncio.sleep(0)
        small = asyncio.create_task(window.take(10, loop.time() + 99))
        await asyncio.sleep(1.001)
        assert small.done() and window.bytes == 80
        with pytest.raises(BackpressureError):
            await large
        window.close()
        with pytest.raises(ClosedError):
            await window.take(1, loop.time() + 1)

    play(main())
