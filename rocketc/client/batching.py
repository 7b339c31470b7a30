"""Batches: many messages of one topic in one request.

Source: RocketMQ MessageBatch, MessageDecoder.encodeMessages.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from rocketc.client._batching import results
from rocketc.client._unique_ids import UniqueIds  # noqa: F401 (of the example)
from rocketc.client.outgoing import Body, Outgoing, Packer, checked_text
from rocketc.client.send_results import SendResult
from rocketc.errors import AnswerError

_END = object()


@dataclass(frozen=True)
class NewMessage:
    """One message of send_many(), for messages that are more than a body. The fields are those of Producer.send().

    >>> NewMessage(b"one", tags="web").tags
    'web'
    """

    body: Body
    tags: str | None = None
    keys: str | Iterable[str] | None = None
    properties: Mapping[str, str] | None = None
    flag: int = 0


@dataclass(frozen=True)
class BulkMessage(NewMessage):
    """One message of a BulkProducer. The fields are those of NewMessage and of Producer.send(), and:

    key       its unique id (property UNIQ_KEY), which a client makes otherwise; None: a new one
    queue_id  the number of its queue; None: any

    >>> BulkMessage(b"one", key="o-1").checked_key()
    'o-1'
    """

    key: str | None = None
    queue_id: int | None = None
    shard: str | None = None
    delay_level: int | str = 0
    delay: float | None = None
    deliver_at: int | datetime.datetime | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether consumers get it later. Brokers refuse it in a batch."""
        return self.delay_level != 0 or self.delay is not None or self.deliver_at is not None

    def checked_key(self) -> str | None:
        """Return its key. Raises TypeError, IllegalMessageError for a text that cannot be one."""
        return None if self.key is None else checked_text("the unique id", self.key)


@dataclass(frozen=True)
class Batch:
    """Messages of one request.

    message  what is sent
    keys     the unique ids of the messages, in order
    is_last  whether all messages are in this batch and those before it
    """

    message: Outgoing
    keys: tuple[str, ...]
    is_last: bool = True


def batches(packer: Packer, topic: str, messages: Iterable[Body | NewMessage], most: int) -> Iterator[Batch]:
    """Divide messages into batches whose encoded size is `most` bytes at most.

    Raises TypeError and IllegalMessageError for a message; the batches before it are returned first.

    >>> ids = UniqueIds("10.0.0.1", pid=2620, mark=0x18B4AAC2, clock=lambda: 757_041.004)
    >>> packer = Packer(ids, max_message_size=100, compress_over=4096)
    >>> found = batches(packer, "orders", [b"one", b"two", b"three"], most=180)
    >>> [[key[-4:] for key in batch.keys] for batch in found]
    [['0000', '0001'], ['0002']]
    """
    if isinstance(messages, str | bytes | bytearray | memoryview) or not isinstance(messages, Iterable):
        raise TypeError(f"messages: expected several messages, got {type(messages).__name__}")
    each: Iterator[object] = iter(messages)
    first = next(each, _END)
    if first is _END:
        return
    packer.check_topic(topic)
    each, encoder = itertools.chain((first,), each), packer.batch_encoder(NewMessage, most)
    while not encoder.fill(each):
        message = _packed(packer, topic, encoder.left)
        properties = message.properties.encode("utf-8", "replace")
        if not encoder.fits(len(message.body), len(properties)):
            yield batch_of(topic, *encoder.take(), is_last=False)
        encoder.add(message.flag, message.body, properties, message.key)
    if len(encoder):
        yield batch_of(topic, *encoder.take())


def _packed(packer: Packer, topic: str, one: object) -> Outgoing:
    if isinstance(one, NewMessage):
        key, shard = (one.checked_key(), one.shard) if isinstance(one, BulkMessage) else (None, None)
        return packer.pack(
            topic, one.body, tags=one.tags, keys=one.keys, properties=one.properties, flag=one.flag, shard=shard,
            is_in_batch=True, key=key,
        )  # fmt: skip
    return packer.pack(topic, cast(Body, one), is_in_batch=True)


def batch_of(topic: str, body: bytes, keys: tuple[str, ...], *, is_last: bool = True) -> Batch:
    """Return a batch from what an encoder has made.

    >>> batch_of("orders", b"...", ("K1", "K2")).message.key
    'K1,K2'
    """
    # Without properties of its own: brokers of RocketMQ 5 would give its unique id to all messages.
    return Batch(Outgoing(topic, body, "", ",".join(keys)), keys, is_last)


def results_of(batch: Batch, result: SendResult) -> list[SendResult]:
    """Return the results of the messages of a batch. Raises AnswerError if the broker counts them in another way.

    >>> from rocketc.client.routes import MessageQueue
    >>> from rocketc.client.send_results import SendStatus
    >>> queue = MessageQueue("orders", "a", 1)
    >>> batch = Batch(Outgoing("orders", b"...", "", "K1,K2"), ("K1", "K2"))
    >>> [one[1:] for one in results_of(batch, SendResult(SendStatus.SEND_OK, "K1,K2", queue, 5, "O1,O2"))][1][2:4]
    (6, 'O2')
    """
    ids = result.offset_msg_id.split(",")
    if len(ids) != len(batch.keys):
        raise AnswerError(
            result.queue.broker_name, f"a batch of {len(batch.keys)} messages was answered with {len(ids)} ids"
        )
    return results(batch.keys, ids, result)
