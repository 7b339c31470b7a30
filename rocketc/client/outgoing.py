"""A message as a producer sends it: checked, with its properties as text, and its body compressed if it is large.

Source: RocketMQ Validators, Message, MessageDecoder, DefaultMQProducerImpl.tryToCompressMessage.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rocketc._arguments import shown, whole_number
from rocketc._layout import (
    COMPRESSION_ZLIB,
    FLAG_COMPRESSED,
    FLAG_COMPRESSION_SHIFT,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
)
from rocketc.client._batching import BatchEncoder
from rocketc.client._unique_ids import UniqueIds
from rocketc.client.names import RESERVED, SHARDING_KEY
from rocketc.client.timed import timer_property
from rocketc.errors import IllegalMessageError
from rocketc.format.message_keys import joined_keys
from rocketc.tables.topics import topic_name_error

_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # a broker may have others
DELAY_LEVELS = _LEVELS.split()

_ZLIB_LEVEL = 5
_COMPRESSED = FLAG_COMPRESSED | COMPRESSION_ZLIB << FLAG_COMPRESSION_SHIFT
_NAME_END, _PROPERTY_END = "\x01", "\x02"
_WAITS, _DOES_NOT_WAIT = (f"\x02{PROPERTY_WAIT}\x01{value}\x02" for value in ("true", "false"))
PROPERTIES_MOST = 32_767  # bytes

Body = bytes | bytearray | memoryview
_BODIES = (bytes, bytearray, memoryview)  # isinstance() is slower with the type above


class Outgoing(NamedTuple):
    """One message of a producer.

    body        compressed if sys_flag says so
    properties  name U+0001 value U+0002, for each property
    key         its unique id, SendResult.msg_id
    shard       messages of one shard go into one queue, in order; None: into any queue
    reconsume_times, max_reconsume_times  of a message for a retry topic
    is_timed    the broker must know timed messages
    """

    topic: str
    body: bytes
    properties: str
    key: str
    flag: int = 0
    sys_flag: int = 0
    shard: str | None = None
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    is_timed: bool = False


class Packer:
    """Makes outgoing messages.

    ids               of the messages
    max_message_size  bytes of a body before it is compressed (RocketMQ: maxMessageSize)
    compress_over     larger bodies are compressed (RocketMQ: compressMsgBodyOverHowmuch)

    >>> ids = UniqueIds("10.0.0.1", pid=2620, mark=0x18B4AAC2, clock=lambda: 757_041.004)
    >>> packer = Packer(ids, max_message_size=4 << 20, compress_over=4096)
    >>> packer.pack("orders", b"one", tags="web").properties.replace(chr(1), "=").split(chr(2))
    ['TAGS=web', 'UNIQ_KEY=0A0000010A3C18B4AAC22D1F876C0000', 'WAIT=true', '']
    >>> packer.pack("my orders", b"one")
    Traceback (most recent call last):
    rocketc.errors.IllegalMessageError: topic 'my orders': a topic name may only have letters, digits and %|_-
    """

    def __init__(self, ids: UniqueIds, *, max_message_size: int, compress_over: int) -> None:
        self._ids, self._most, self._compress_over = ids, max_message_size, compress_over
        self._topics: set[str] = set()  # names that were checked

    def pack(
        self,
        topic: str,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        shard: str | None = None,
        delay_level: int | str = 0,
        delay: float | None = None,
        deliver_at: int | datetime.datetime | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        system: Mapping[str, str] | None = None,
        wait_store_msg_ok: bool | None = True,
        is_in_batch: bool = False,
        key: str | None = None,
    ) -> Outgoing:
        """Check a message, and return what is sent. The arguments are those of Producer.send().

        system             properties that RocketMQ gives a meaning
        wait_store_msg_ok  None: without this property
        is_in_batch        its body is not compressed
        key                the unique id; None: a new one
        Raises TypeError, IllegalMessageError.
        """
        self.check_topic(topic)
        if not isinstance(body, _BODIES):
            raise TypeError(f"body: expected bytes, got {type(body).__name__}; encode text with .encode()")
        sent, sys_flag = body if type(body) is bytes else bytes(body), 0  # compiled code needs this class
        size = len(sent)
        if not 0 < size <= self._most:
            raise IllegalMessageError(
                f"topic {topic!r}: an empty body; brokers refuse it"
                if size == 0
                else f"topic {topic!r}: a body of {size} bytes; max_message_size allows {self._most}"
            )
        entries: dict[str, str] = {} if properties is None else _own(properties)
        if tags is not None:
            entries[PROPERTY_TAGS] = checked_text("tags", tags)
        if keys is not None:
            entries[PROPERTY_KEYS] = checked_text("keys", joined_keys(keys))
        if shard is not None:
            entries[SHARDING_KEY] = checked_text("shard", shard)
        if delay_level != 0:
            entries[PROPERTY_DELAY] = str(level_of(delay_level))
        if is_timed := delay is not None or deliver_at is not None:
            if delay_level != 0:
                raise IllegalMessageError("give delay_level, or delay or deliver_at, not both")
            entries |= timer_property(delay, deliver_at)
        if system is not None:
            entries |= system
        if key is None:
            key = self._ids.next()
        waits = _WAITS if wait_store_msg_ok else _PROPERTY_END if wait_store_msg_ok is None else _DOES_NOT_WAIT
        text = f"{PROPERTY_UNIQUE_KEY}\x01{key}{waits}"
        if entries:
            text = "".join([f"{name}\x01{value}\x02" for name, value in entries.items()]) + text
        if len(text) > PROPERTIES_MOST // 4 and len(text.encode("utf-8", "replace")) > PROPERTIES_MOST:
            raise IllegalMessageError(f"topic {topic!r}: properties of more than {PROPERTIES_MOST} bytes")
        if flag != 0:
            whole_number("flag", flag, -(1 << 31), (1 << 31) - 1)
        if size > self._compress_over and not is_in_batch:
            sent, sys_flag = zlib.compress(sent, _ZLIB_LEVEL), _COMPRESSED
        if is_timed:
            return Outgoing(topic, sent, text, key, flag, sys_flag, shard, is_timed=True)
        return Outgoing(topic, sent, text, key, flag, sys_flag, shard)

    def batch_encoder(self, kind: type, most: int) -> BatchEncoder:
        """Return an encoder of batches of `most` bytes. It does what pack() does, for most messages.

        kind  of a message that is not a body
        """
        return BatchEncoder(self._ids, kind, self._most, most)

    def check_topic(self, topic: str) -> None:
        """Raise TypeError or IllegalMessageError for a text that is not the name of a topic."""
        if topic in self._topics:
            return
        if not isinstance(topic, str):
            raise TypeError(f"topic: expected str, got {type(topic).__name__}")
        if error := topic_name_error(topic):
            raise IllegalMessageError(f"topic {shown(topic)}: {error}")
        if len(self._topics) < 1000:
            self._topics.add(topic)


def level_of(delay_level: int | str) -> int:
    """Return the number of a delay level. Raises IllegalMessageError.

    delay_level  1 to 18, or its name in RocketMQ's usual list, such as "10s"

    >>> level_of("10s"), level_of(18)
    (3, 18)
    """
    if isinstance(delay_level, str):
        if delay_level not in DELAY_LEVELS:
            raise IllegalMessageError(f"delay_level: {delay_level!r} is not one of {', '.join(DELAY_LEVELS)}")
        return DELAY_LEVELS.index(delay_level) + 1
    try:
        return whole_number("delay_level", delay_level, 1, (1 << 31) - 1)
    except ValueError as error:
        raise IllegalMessageError(str(error)) from None


def added_properties(properties: Mapping[str, str]) -> str:
    """Return properties of a program as text. Raises TypeError, IllegalMessageError.

    >>> added_properties({"own": "x"})
    'own\\x01x\\x02'
    """
    return "".join(f"{name}\x01{value}\x02" for name, value in _own(properties).items())


def _own(properties: Mapping[str, str]) -> dict[str, str]:
    """Check the properties that a program gives."""
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties: expected a mapping, got {type(properties).__name__}")
    out = {}
    for name, value in properties.items():
        if checked_text("a property's name", name) in RESERVED or name == SHARDING_KEY:
            raise IllegalMessageError(f"property {name!r}: RocketMQ uses this name; choose another one")
        out[name] = checked_text(f"property {name!r}", value)
    return out


def checked_text(what: str, value: str) -> str:
    """Return a text that can be in a property. Raises TypeError, IllegalMessageError, which say what it is.

    >>> checked_text("keys", "o-1")
    'o-1'
    """
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected str, got {type(value).__name__}")
    if not value or _NAME_END in value or _PROPERTY_END in value:
        raise IllegalMessageError(
            f"{what}: {shown(value)} is empty or contains U+0001 or U+0002, which separate properties"
        )
    return value
