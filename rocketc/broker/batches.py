"""The body of a batch: messages one after the other. Source: RocketMQ MessageDecoder.decodeMessages."""

from __future__ import annotations

import struct

from rocketc.errors import BadRequestError

_HEAD = struct.Struct(">iiiii")  # size, magic, CRC, flag, size of the body
_PROPERTIES = struct.Struct(">h")


def decode_batch(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return (flag, body, properties in stored form) of each message. Raises BadRequestError.

    >>> import rocketc
    >>> decode_batch(rocketc.encode_batch([(7, b"one", {"KEYS": "k1"}), (0, b"two", None)]))
    [(7, b'one', b'KEYS\\x01k1\\x02'), (0, b'two', b'')]
    """
    messages, at = [], 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise _wrong(at, "it is cut off")
        size, _, _, flag, body = _HEAD.unpack_from(data, at)
        end, properties_at = at + size, at + _HEAD.size + body
        if body < 0 or size < 0 or end > len(data) or properties_at + _PROPERTIES.size > end:
            raise _wrong(at, f"sizes of {size} and {body} bytes that do not fit")
        (count,) = _PROPERTIES.unpack_from(data, properties_at)
        if count < 0 or properties_at + _PROPERTIES.size + count != end:
            raise _wrong(at, f"properties of {count} bytes that do not fit")
        messages.append((flag, data[at + _HEAD.size : properties_at], data[end - count : end]))
        at = end
    return messages


def _wrong(at: int, what: str) -> BadRequestError:
    return BadRequestError(f"the message at byte {at} of the batch is invalid: {what}")
