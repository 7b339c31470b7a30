"""Look-ups over the wire: offsets by time, messages by key and by offset."""

import asyncio
import threading

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, scene

import rocketc
from rocketc.broker.config import BrokerConfig
from rocketc.broker.lookups import LookupProcessor
from rocketc.errors import BadRequestError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.server import Answer, Call

ALL_TIME = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client); the topic `orders` has ten messages in queue 0, one a second."""

    def run(main):
        async def whole():
            async with scene(tmp_path, delay=(0.0, 0.0)) as stage:
                client = stage.client()
                for n in range(10):
                    await client.send(body=b"%d" % n, properties=f"UNIQ_KEY\1U{n}\2KEYS\1k{n} all\2")
                    await asyncio.sleep(1)
                await stage.settle()
                await main(stage, client)

        virtual.run(whole())

    return run


def bodies(data):
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(rocketc.Message.of(data[at : at + size]).body)
        at += size
    return found


def test_offsets_of_a_queue(play):
    async def main(stage, client):
        async def offset(code, **values):
            answer = await client.call(code, topic="orders", queueId=0, **values)
            assert answer.code == 0
            return int(answer.fields["offset"])

        assert (await offset(30), await offset(31), await offset(30, committed=False)) == (10, 0, 10)
        times = [m.store_timestamp for m in stage.store.get("orders", 0, 0, 32).messages]
        assert await offset(29, timestamp=0) == 0
        assert await offset(29, timestamp=times[4]) == 4
        assert await offset(29, timestamp=times[4] + 1) == 5
        assert await offset(29, timestamp=times[4] + 1, boundaryType="UPPER") == 4
        assert await offset(29, timestamp=EPOCH * 2) == 10
        answer = await client.call(32, topic="orders", queueId=0)
        assert answer.fields == {"timestamp": str(times[0])}

    play(main)


@pytest.mark.parametrize(("code", "fields"), [(29, "offset"), (30, "offset"), (31, "offset"), (32, "timestamp")])
@pytest.mark.parametrize(("topic", "queue_id"), [("unknown", 0), ("orders", 99), ("orders", -1)])
def test_unknown_queues(play, code, fields, topic, queue_id):
    async def main(stage, client):
        answer = await client.call(code, topic=topic, queueId=queue_id, timestamp=1)
        assert (answer.code, answer.fields[fields]) == (0, "-1" if code == 32 else "0")

    play(main)


def test_messages_by_key(play):
    async def main(stage, client):
        answer = await client.call(12, topic="orders", key="k7", maxNum=32, **ALL_TIME)
        assert answer.code == 0 and bodies(answer.body) == [b"7"]
        assert answer.fields.keys() == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
        answer = await client.call(12, topic="orders", key="all", maxNum=4, **ALL_TIME)
        assert len(bodies(answer.body)) == 4
        answer = await client.call(12, topic="orders", key="U3", maxNum=32, **ALL_TIME)
        assert bodies(answer.body) == [b"3"]

    play(main)


@pytest.mark.parametrize(
    "values", [{"key": "none"}, {"topic": "unknown"}, {"beginTimestamp": EPOCH * 2}, {"maxNum": 0}]
)
def test_nothing_for_a_key(play, values):
    async def main(stage, client):
        answer = await client.call(12, **{"topic": "orders", "key": "k1", "maxNum": 32, **ALL_TIME, **values})
        if "maxNum" in values:
            assert len(bodies(answer.body)) == 1  # as RocketMQ: at least one
        else:
            assert answer.code == Code.QUERY_NOT_FOUND and answer.body == b""

    play(main)


def test_a_message_by_its_offset(play):
    async def main(stage, client):
        at = stage.store.phy_offset_of("orders", 0, 5)
        answer = await client.call(33, offset=at)
        assert answer.code == 0 and bodies(answer.body) == [b"5"]
        for wrong in (at + 1, -1, 1 << 40):
            answer = await client.call(33, offset=wrong)
            assert answer.code == Code.SYSTEM_ERROR and f"offset, {wrong}" in answer.remark

    play(main)


class SlowStore:
    """A store with threads; a look-up waits until `may_read` is set, and then fails with `error`."""

    background = True

    def __init__(self, error=None):
        self.may_read, self.error = threading.Event(), error

    def offset_by_time(self, *_):
        assert self.may_read.wait(10) and threading.current_thread() is not threading.main_thread()
        if self.error is not None:
            raise self.error
        return 7

    def max_offset(self, *_, committed):
        assert threading.current_thread() is threading.main_thread()
        return 9


class Peer:
    """A connection, for the processor."""

    peer = ("here", 1)


@pytest.mark.parametrize("error", [None, BadRequestError("no"), KeyError("missing")])
def test_a_look_up_that_waits_for_the_disk_delays_no_other(error, caplog):
    async def main():
        store, answers = SlowStore(error), asyncio.Queue()
        processor = LookupProcessor(store, BrokerConfig())

        def ask(code, **values):
            return processor.process(Call(Command(code), values, Peer(), answers.put_nowait))

        assert ask(29, topic="orders", queueId=0, timestamp=5) is None
        assert ask(30, topic="orders", queueId=0).values == {"offset": 9} and answers.empty()
        store.may_read.set()
        return await asyncio.wait_for(answers.get(), 10)

    answer = asyncio.run(main())
    if error is None:
        assert (answer.code, answer.values) == (0, {"offset": 7})
    else:
        assert answer.code == Code.SYSTEM_ERROR and answer.remark in ("no", "KeyError: 'missing'")
    assert ("here" in caplog.text) == isinstance(error, KeyError)


def test_a_look_up_that_ends_after_the_broker():
    loop = asyncio.new_event_loop()
    loop.close()
    call = Call(Command(29), {}, Peer(), print)
    LookupProcessor(SlowStore(), BrokerConfig())._answer_later(loop, call, lambda call: Answer())  # raises nothing
