"""Large compressed bodies are decompressed on other threads than that of the event loop."""

import asyncio
import queue
import threading
import zlib

import pytest

import rocketc
from rocketc._layout import COMPRESSION_ZLIB, FLAG_COMPRESSED, FLAG_COMPRESSION_SHIFT
from rocketc.client import AsyncConsumer, Producer, PullConsumer, PushConsumer, TransactionProducer
from rocketc.client.large_bodies import AT_ONCE_BYTES, decoded_messages
from rocketc.errors import CorruptRecordError
from rocketc.format import compression
from rocketc.read._opened_records import LargeBodies, pulled_messages

LARGE, SMALL = bytes(3 << 20), bytes(100_000)
PACKED = FLAG_COMPRESSED | COMPRESSION_ZLIB << FLAG_COMPRESSION_SHIFT


@pytest.fixture
def decompressed(monkeypatch):
    """The size of each body that was decompressed, and the thread on which that ended."""
    real, found = compression.decompress, []

    def decompress(kind, body, limit):
        plain = real(kind, body, limit)
        found.append((len(plain), threading.current_thread()))
        return plain

    monkeypatch.setattr(compression, "decompress", decompress)
    return found


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        yield one


def send(broker, topic, *bodies):
    if topic not in broker.topics:
        broker.topics.create(topic, 1)
    with Producer("large", broker.name_server) as producer:
        for body in bodies:
            producer.send(topic, body)


def check(found, loop):
    """found: of decompressed; loop: the thread of the event loop"""
    large = [thread for size, thread in found if size > AT_ONCE_BYTES]
    small = [thread for size, thread in found if size <= AT_ONCE_BYTES]
    assert large and loop not in large and small and set(small) <= {loop, *large}


def loop_thread():
    return next(one for one in threading.enumerate() if one.name == "rocketc-client")


def test_a_push_consumer(broker, decompressed):
    found = queue.Queue()
    with PushConsumer("push", broker.name_server) as consumer:
        consumer.subscribe("push", listener=lambda message: found.put(message.body))
        send(broker, "push", SMALL, LARGE, SMALL)
        assert sorted(len(found.get(timeout=10)) for _ in range(3)) == [len(SMALL), len(SMALL), len(LARGE)]
        check(decompressed, loop_thread())


def test_a_pull_consumer(broker, decompressed):
    send(broker, "pull", LARGE, SMALL)
    with PullConsumer("pull", broker.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer:
        consumer.subscribe("pull")
        found = []
        while len(found) < 2:
            found += [message.body for message in consumer.poll(timeout=5)]
        assert found == [LARGE, SMALL]
        check(decompressed, loop_thread())


def test_an_async_consumer(broker, decompressed):
    send(broker, "async", LARGE, SMALL)

    async def main():
        first = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
        async with AsyncConsumer("async", broker.name_server, topics=["async"], **first) as consumer:
            return [(await anext(consumer)).body for _ in range(2)]

    assert asyncio.run(main()) == [LARGE, SMALL]
    check(decompressed, threading.current_thread())


def test_a_reply(broker, decompressed):
    broker.topics.create("questions", 1)
    with Producer("asks", broker.name_server) as producer, PushConsumer("replies", broker.name_server) as consumer:
        consumer.subscribe("questions", listener=lambda message: producer.reply(message, message.body * 30))
        assert producer.request("questions", SMALL, timeout=10_000).body == SMALL * 30
        check(decompressed, loop_thread())


def test_many_small_bodies_count_together():
    packed = zlib.compress(SMALL)
    body = b"".join(rocketc.encode("orders", packed, phy_offset=i * 1000, sys_flag=PACKED) for i in range(11))
    with pytest.raises(LargeBodies):
        pulled_messages(body, plain_bytes=AT_ONCE_BYTES)
    assert len(pulled_messages(body, plain_bytes=11 * len(SMALL))[0]) == 11
    assert len(pulled_messages(body)[0]) == 11


def test_a_damaged_body_is_left_out_on_each_thread():
    bodies = [zlib.compress(LARGE)[:-9], b"none", zlib.compress(b"end")]
    body = b"".join(rocketc.encode("orders", one, phy_offset=9, sys_flag=PACKED) for one in bodies)
    messages, errors, _ = asyncio.run(decoded_messages(pulled_messages, body))
    assert [one.body for one in messages] == [b"end"]
    assert [one.reason for one in errors] == ["bad_compression"] * 2
    assert {type(one) for one in errors} == {CorruptRecordError}


def test_without_another_thread(monkeypatch):
    """While the interpreter ends, no thread begins any more."""

    async def ended(*arguments):
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(asyncio, "to_thread", ended)
    body = rocketc.encode("orders", zlib.compress(LARGE), sys_flag=PACKED)
    assert asyncio.run(decoded_messages(pulled_messages, body))[0][0].body == LARGE


def test_a_check_of_a_transaction(broker, decompressed):
    asked = queue.Queue()

    def check_state(message):
        asked.put(len(message.body))
        return rocketc.client.LocalTransactionState.COMMIT_MESSAGE

    with TransactionProducer("shop", broker.name_server, check=check_state) as producer:
        checks = producer._producer._checks
        record = rocketc.encode("orders", zlib.compress(LARGE), sys_flag=PACKED, properties={"PGROUP": "shop"})
        fields = {"tranStateTableOffset": "7", "commitLogOffset": "4096"}
        request = rocketc.remoting.command.Command(39, fields, record)
        producer._opened().run(checks.take(broker.address, request))
        assert asked.get(timeout=10) == len(LARGE)
        assert [size for size, thread in decompressed if thread is loop_thread()] == []
