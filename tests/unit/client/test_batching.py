"""Batches are those that the packer and the encoder of batches make, message by message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.client._batching import BatchEncoder
from rocketc.client._unique_ids import UniqueIds
from rocketc.client.batching import Batch, NewMessage, batches, results_of
from rocketc.client.outgoing import Outgoing, Packer
from rocketc.client.routes import MessageQueue
from rocketc.client.send_results import SendResult, SendStatus
from rocketc.errors import AnswerError, IllegalMessageError
from rocketc.format._encoding import decode_batch, encode_batch

HEAD = 22


def packer(**options):
    ids = UniqueIds("10.0.0.1", 2620, 0x18B4AAC2, lambda: 757_041.004)
    return Packer(ids, **{"max_message_size": 300, "compress_over": 50, **options})


def one_by_one(packer, topic, messages, most):
    """What batches() did before there was a compiled encoder."""
    size, taken = 0, []

    def batch(is_last):
        entries = [(one.flag, one.body, one.properties.encode("utf-8", "replace")) for one in taken]
        keys = tuple(one.key for one in taken)
        return Batch(Outgoing(topic, encode_batch(entries), "", ",".join(keys)), keys, is_last)

    for one in messages:
        how = {}
        if isinstance(one, NewMessage):
            how = {"tags": one.tags, "keys": one.keys, "properties": one.properties, "flag": one.flag}
            one = one.body
        message = packer.pack(topic, one, is_in_batch=True, **how)
        needed = HEAD + len(message.body) + len(message.properties.encode("utf-8", "replace"))
        if taken and size + needed > most:
            yield batch(is_last=False)
            size, taken = 0, []
        size += needed
        taken.append(message)
    if taken:
        yield batch(is_last=True)


def all_of(found):
    out = []
    try:
        out.extend(found)  # an error leaves what was returned before
    except (IllegalMessageError, TypeError, ValueError) as error:
        out.append((type(error), str(error)))
    return out


class Own(bytes):
    """Bytes of a program's own class."""


BODIES = st.sampled_from([b"one", b"x" * 60, b"y" * 300, bytearray(b"array"), memoryview(b"view"), Own(b"own")])
BAD = st.sampled_from([b"", b"z" * 301, "text", None, 7, NewMessage(b"one", tags=""), NewMessage(b"one", flag=1 << 31)])
TEXTS = st.sampled_from([None, "web", "d\u00e9j\u00e0", 'a "b"', "x" * 2048, "x" * 2049, "\ud800", "\1"])
NEW = st.builds(
    NewMessage,
    BODIES,
    tags=TEXTS,
    keys=st.one_of(TEXTS, st.just(("a", "b"))),
    properties=st.sampled_from([None, None, None, {}, {"own": "x"}]),
    flag=st.sampled_from([0, 5, -(1 << 31), True]),
)
MESSAGES = st.lists(st.one_of(BODIES, NEW, NEW), max_size=12)


@given(MESSAGES, st.lists(BAD, max_size=1), MESSAGES, st.sampled_from([1, 100, 300, 500, 100_000]))
def test_equal_to_messages_that_are_packed_one_by_one(before, bad, after, most):
    messages = [*before, *bad, *after]
    expected = all_of(one_by_one(packer(), "orders", messages, most))
    assert all_of(batches(packer(), "orders", messages, most)) == expected


def test_bodies_of_a_class_that_derives_from_bytes():
    messages = [Own(b"one"), NewMessage(Own(b"two"), tags="web")]
    found = list(batches(packer(), "orders", messages, 1000))
    assert [entry[1] for batch in found for entry in decode_batch(batch.message.body)] == [b"one", b"two"]


@pytest.mark.parametrize("topic", ["my orders", "", 7, "x" * 200])
def test_the_topic_is_checked_with_the_first_message(topic):
    assert all_of(batches(packer(), topic, [], 100)) == []
    expected = all_of(one_by_one(packer(), topic, [b"", b"one"], 100))
    assert all_of(batches(packer(), topic, [b"", b"one"], 100)) == expected


def test_messages_are_read_as_they_are_needed():
    read = []

    def messages():
        for n in range(10):
            read.append(n)
            yield b"x" * 20

    found = batches(packer(), "orders", messages(), most=220)
    assert len(next(found).keys) == 2 and read == [0, 1, 2]


def test_properties_that_are_as_long_as_they_may_be():
    message = NewMessage(b"one", tags="t" * 2048, keys="\u00e9" * 1024)
    [batch] = batches(packer(), "orders", [message] * 3, most=1 << 20)
    assert [one[2].count(b"t" * 2048) for one in decode_batch(batch.message.body)] == [1, 1, 1]


def test_most_messages_are_not_packed_one_by_one(monkeypatch):
    one = packer()
    one.check_topic("orders")
    monkeypatch.setattr(one, "pack", None)
    messages = [b"one", NewMessage(b"two", tags="web", keys="k", flag=3)] * 16
    [batch] = batches(one, "orders", messages, most=1 << 20)
    assert len(set(batch.keys)) == 32
    assert [(flag, body) for flag, body, _ in decode_batch(batch.message.body)] == [(0, b"one"), (3, b"two")] * 16


def test_an_encoder_that_is_used_again():
    encoder = BatchEncoder(UniqueIds("10.0.0.1", 1, 2, lambda: 1.0), NewMessage, 100, 1000)
    assert encoder.take() == (b"", ())
    assert encoder.fill(iter([b"one"])) and len(encoder) == 1
    first, second = encoder.take(), (encoder.fill(iter([b"one"])), encoder.take())[1]
    assert first[1] != second[1] and len(first[0]) == len(second[0]) and len(encoder) == 0


def test_results():
    queue = MessageQueue("orders", "a", 1)
    batch = Batch(Outgoing("orders", b"...", "", "K1,K2"), ("K1", "K2"))
    sent = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "K1,K2", queue, 5, "O1,O2", "T", "H")
    expected = [
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "K1", queue, 5, "O1", "T", "H"),
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "K2", queue, 6, "O2", "T", "H"),
    ]
    assert results_of(batch, sent) == expected
    assert all(type(one) is SendResult for one in results_of(batch, sent))
    with pytest.raises(AnswerError, match="a batch of 2 messages was answered with 1 ids"):
        results_of(batch, sent._replace(offset_msg_id="O1"))
    assert [one.queue_offset for one in results_of(batch, sent._replace(queue_offset=1 << 70))][:2] == [
        1 << 70, (1 << 70) + 1,
    ]  # fmt: skip


@pytest.mark.parametrize("clock", [0.0, -1.0, 1.0])
def test_ids_of_a_clock_that_was_never_set(clock):
    ids = UniqueIds("10.0.0.1", 2620, 0x18B4AAC2, lambda: clock)
    first, second = ids.next(), ids.next()
    assert first[:20] == "0A0000010A3C18B4AAC2" and first[20:-4] == second[20:-4] and int(first[20:], 16) >= 0
    assert first[-4:] == "0000" and second[-4:] == "0001"
