"""An orderly consumer at brokers that answer as a test says, on virtual time."""

import asyncio
import json

from unit.client.scripted import play
from unit.client.scripted_push import PushCluster

from rocketc.client.orderly_service import OrderlyService
from rocketc.client.routes import MessageQueue
from rocketc.client.subscriptions import subscribe
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer

ME, OTHER = "10.0.9.9@me", "10.0.0.1@other"


def test_a_queue_that_goes_during_a_call_and_comes_back_is_taken_again():
    """The queue is not unlocked before the call ends. Meanwhile the other member has gone."""

    async def main():
        stage, ids, got = PushCluster("a"), [ME], []
        stage.put(3)
        members = CODES["GET_CONSUMER_LIST_BY_GROUP"]
        stage.brokers["a"].answers[members] = lambda call: Answer(body=json.dumps({"consumerIdList": ids}).encode())

        async def listener(message):
            await asyncio.sleep(5)
            got.append(message.body)

        core = stage.consumer(OrderlyService, instance_name="me")
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(1)
        ids.append(OTHER)
        core._member.members_changed()
        await asyncio.sleep(1)
        ids.remove(OTHER)
        core._member.members_changed()
        await asyncio.sleep(40)
        assert got == [b"0", b"0", b"1", b"2"]  # the first result came after the queue had gone
        await core.close()
        assert stage.committed["a", "orders", 0] == 3

    play(main())


def test_a_turn_that_waits_while_its_queue_goes_consumes_nothing():
    async def main():
        stage, got = PushCluster("a"), []

        async def listener(message):
            got.append(message.body)

        core = stage.consumer(OrderlyService)
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        owned = core._member.owned[MessageQueue("orders", "a", 0)]
        await owned.consuming.acquire()  # as the end of the queue does before it unlocks the queue
        stage.put(3)
        await asyncio.sleep(5)
        assert len(owned.process_queue) == 3 and got == []
        owned.process_queue.is_dropped = True
        owned.consuming.release()
        await asyncio.sleep(5)
        assert got == []
        await core.close()

    play(main())


def test_a_queue_that_is_taken_while_locks_are_renewed_keeps_its_lock():
    async def main():
        stage, code, late = PushCluster("a"), CODES["LOCK_BATCH_MQ"], [True]
        core = stage.consumer(OrderlyService)
        await core.subscribe(subscribe("orders"), lambda message: None)
        await core.start()
        usual = stage.brokers["a"].answers[code]

        def lock(call):
            if not late:
                return usual(call)
            late.clear()
            asyncio.get_running_loop().call_later(0.5, lambda: call.later(usual(call)))
            return None

        stage.brokers["a"].answers[code] = lock
        await asyncio.sleep(20.1)
        assert not late
        await core.subscribe(subscribe("bills"), lambda message: None)
        await asyncio.sleep(1)
        locked = {queue.topic: one.process_queue.is_locked for queue, one in core._member.owned.items()}
        await core.close()
        return locked

    assert play(main())["bills"]


def test_a_renewal_that_a_broker_does_not_answer_is_repeated_soon():
    async def main():
        stage, code, got = PushCluster("a"), CODES["LOCK_BATCH_MQ"], []
        core, loop = stage.consumer(OrderlyService), asyncio.get_running_loop()

        async def listener(message):
            got.append(loop.time())

        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        usual = stage.brokers["a"].answers[code]
        stage.brokers["a"].answers[code] = lambda call: None
        await asyncio.sleep(23.5)
        stage.brokers["a"].answers[code] = usual
        again = loop.time()
        stage.put(1)
        await asyncio.sleep(30)
        await core.close()
        return [one - again for one in got]

    [seconds] = play(main())
    assert seconds < 6
