"""Messages of transactions: the half message of a send, the committed message, op marks, and the body of a check.

Knows the contents only: nothing here stores, sends or reads a clock.
Source: RocketMQ TransactionalMessageBridge, TransactionalMessageUtil, EndTransactionProcessor.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rocketc._layout import (
    FLAG_BORN_HOST_V6,
    FLAG_COMMIT,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_MASK,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    MSG_BODY_V4_AT,
    MSG_BORN_HOST_AT,
    MSG_PHYSICAL_OFFSET_AT,
    MSG_QUEUE_ID_AT,
    MSG_QUEUE_OFFSET_AT,
    PROP_CRC_BYTES,
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
)
from rocketc.broker import names
from rocketc.config_fields import INT32_MOST
from rocketc.errors import BadRequestError
from rocketc.read._message import Message

OP_TAG = "d"
HALF_QUEUE = 0
_TIMESTAMP_BYTES = 8  # of the store timestamp, between the hosts
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_DIGITS = 18  # of a queue offset, at most


def number_in(text: str | None, missing: int) -> int:
    """Return the number in the value of a property; `missing` if it is not one.

    >>> number_in("12", -1), number_in("x", -1), number_in(None, 0)
    (12, -1, 0)
    """
    return int(text) if text is not None and _NUMBER.fullmatch(text) else missing


# the send


def is_transaction(properties: Mapping[str, str]) -> bool:
    """Whether the properties of a send ask for a half message.

    >>> is_transaction({names.TRANSACTION: "TRUE"}), is_transaction({})
    (True, False)
    """
    return properties.get(names.TRANSACTION, "").lower() == "true"


def make_half(properties: dict[str, str], topic: str, queue_id: int) -> tuple[str, int]:
    """Change the properties of a send into those of its half message; return the topic and the queue of that.

    The transaction comes before a delay, as in RocketMQ's clients since 4.6: with a delay, RocketMQ's broker answers
    SEND_OK, and then loses the message.

    >>> properties = {"UNIQ_KEY": "K1", "TRAN_MSG": "true", "DELAY": "3"}
    >>> make_half(properties, "orders", 2)
    ('RMQ_SYS_TRANS_HALF_TOPIC', 0)
    >>> properties
    {'UNIQ_KEY': 'K1', 'TRAN_MSG': 'true', '__transactionId__': 'K1', 'REAL_TOPIC': 'orders', 'REAL_QID': '2'}
    """
    for name in (PROPERTY_DELAY, *names.TIMER):
        properties.pop(name, None)
    if key := properties.get(PROPERTY_UNIQUE_KEY):
        properties[names.TRANSACTION_ID] = key
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QUEUE] = str(queue_id)
    return names.HALF_TOPIC, HALF_QUEUE


# the end


class Place(NamedTuple):
    """The topic and the queue that a half message is for."""

    topic: str
    queue_id: int


def place_of(properties: Mapping[str, str]) -> Place | None:
    """Return where a committed message goes; None if the half message does not say.

    >>> place_of({"REAL_TOPIC": "orders", "REAL_QID": "2"}), place_of({"REAL_TOPIC": "orders"})
    (Place(topic='orders', queue_id=2), None)
    """
    topic, queue_id = properties.get(names.REAL_TOPIC), number_in(properties.get(names.REAL_QUEUE), -1)
    return Place(topic, queue_id) if topic and 0 <= queue_id <= INT32_MOST else None


def committed_flags(sys_flag: int) -> int:
    """Return the sysFlag of a committed message.

    >>> committed_flags(1), committed_flags(4)
    (9, 8)
    """
    return sys_flag & ~FLAG_TRANSACTION_MASK | FLAG_COMMIT


def immunity_ms(text: str | None, timeout: int) -> int:
    """Return for how long the producer of a half message may end it, in ms since the message was born.

    text     CHECK_IMMUNITY_TIME_IN_SECONDS
    timeout  transactionTimeOut: the least, also for a text that is not a number

    >>> [immunity_ms(text, 6000) for text in ("1", None, "-1", "100.5", "7", "100")]
    [6000, 6000, 6000, 6000, 7000, 100000]
    """
    return max(1000 * number_in(text, -1), timeout)


# op marks


def op_body(offsets: Iterable[int]) -> bytes:
    """Return the body of an op mark.

    offsets  queue offsets of half messages

    >>> op_body([12, 15])
    b'12,15,'
    """
    return "".join(f"{offset}," for offset in offsets).encode()


def op_offsets(body: bytes) -> list[int]:
    """Return the queue offsets in an op mark, of RocketMQ 5.x or 4.x. What is not a number is left out.

    >>> op_offsets(b"12,15,"), op_offsets(b"7"), op_offsets(b"x,3"), op_offsets(b"")
    ([12, 15], [7], [3], [])
    """
    parts = body.replace(b" ", b"").split(b",")
    return [int(part) for part in parts if part.isdigit() and len(part) <= _DIGITS]


# in the store


class HalfMessage:
    """A message of the half topic, or of the topic of those that are given up.

    place       where it goes when it is committed; None if it does not say
    properties  without the CRC of its record
    """

    def __init__(self, message: Message) -> None:
        self.message = message
        self.properties = message.properties
        self._has_crc = self.properties.pop(PROPERTY_CRC32, None) is not None
        self.place = place_of(self.properties)
        self._born = HOST_V6_BYTES if message.sys_flag & FLAG_BORN_HOST_V6 else HOST_V4_BYTES
        self._store = HOST_V6_BYTES if message.sys_flag & FLAG_STORE_HOST_V6 else HOST_V4_BYTES

    @property
    def store_timestamp(self) -> int:
        return self.message.store_timestamp

    @property
    def born_timestamp(self) -> int:
        return self.message.born_timestamp

    @property
    def born_host(self) -> bytes:
        """The address of the producer, in stored form."""
        return self.message.record[MSG_BORN_HOST_AT : MSG_BORN_HOST_AT + self._born]

    @property
    def store_host(self) -> bytes:
        """The address of the broker that stored it, in stored form."""
        at = MSG_BORN_HOST_AT + self._born + _TIMESTAMP_BYTES
        return self.message.record[at : at + self._store]

    @property
    def _body_end(self) -> int:
        return MSG_BODY_V4_AT + self._born + self._store - 2 * HOST_V4_BYTES + len(self.message.stored_body)

    @property
    def property_string(self) -> bytes:
        """The properties in stored form."""
        record, topic = self.message.record, self.message.topic.encode()
        at = self._body_end + self.message.version + len(topic) + 2
        return record[at : len(record) - (PROP_CRC_BYTES if self._has_crc else 0)]

    def asked(self, times: int) -> dict[str, str]:
        """Return the properties of the copy that is stored when the producer is asked.

        times  how often it has been asked, with this time
        """
        return {**self.properties, names.CHECK_TIMES: str(times)}

    def immune(self, times: int) -> dict[str, str]:
        """Return the properties of the copy that is stored while the producer is not asked; it names the first copy."""
        first = self.properties.get(names.PREPARED_QUEUE_OFFSET, str(self.message.queue_offset))
        return {**self.asked(times), names.PREPARED_QUEUE_OFFSET: first, PROPERTY_WAIT: "false"}

    def check_body(self, phy_offset: int, queue_offset: int, properties: bytes) -> bytes:
        """Return the record that a check request has as body: this one with the topic and queue that it is for.

        phy_offset, queue_offset  of the copy that was stored for the check
        properties                of the copy, in stored form
        Raises BadRequestError if it does not say where it goes, or if the topic is too long for the record.
        """
        record, topic = self.message.record, b"" if self.place is None else self.place.topic.encode()
        if self.place is None or len(topic) > (0xFF if self.message.version == 1 else 0x7FFF):
            raise BadRequestError(f"the topic {topic[:20]!r} of a half message does not fit into its check")
        size = struct.pack(">B" if self.message.version == 1 else ">h", len(topic))
        out = bytearray(record[: self._body_end] + size + topic + struct.pack(">h", len(properties)) + properties)
        struct.pack_into(">i", out, 0, len(out))
        struct.pack_into(">i", out, MSG_QUEUE_ID_AT, self.place.queue_id)
        struct.pack_into(">q", out, MSG_QUEUE_OFFSET_AT, queue_offset)
        struct.pack_into(">q", out, MSG_PHYSICAL_OFFSET_AT, phy_offset)
        return bytes(out)
