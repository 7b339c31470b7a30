"""Copy a message that was read: which of its columns a new put can take over."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

from rocketc._layout import (
    FLAG_BORN_HOST_V6,
    FLAG_COMPRESSED,
    FLAG_COMPRESSION_MASK,
    FLAG_INNER_BATCH,
    FLAG_NEED_UNWRAP,
    FLAG_STORE_HOST_V6,
    PROPERTY_CRC32,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
)

# Columns to which the store gives new values.
ASSIGNED_ON_PUT = frozenset(
    {"brokerName", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "storeHost", "storeSize", "file"}
)

# Columns whose value is passed unchanged -> argument of store.put().
PLAIN = {
    "topic": "topic",
    "body": "body",
    "queueId": "queue_id",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "bornTimestamp": "born_timestamp",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}

_HOST = re.compile(r"(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\]):([0-9]{1,10})", re.ASCII)
_FLAGS_V6 = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6  # of sysFlag: how hosts are stored, which the store sets itself
# Properties of the stored body: compressed, an inner batch.
_FLAGS_BODY = FLAG_COMPRESSED | FLAG_COMPRESSION_MASK | FLAG_NEED_UNWRAP | FLAG_INNER_BATCH


def host_of(text: str) -> tuple[str, int]:
    """Return the address and port of a value of the column bornHost. Raises ValueError for another text.

    >>> host_of("127.0.0.1:10911"), host_of("[::1]:10911")
    (('127.0.0.1', 10911), ('::1', 10911))
    """
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError(f"bornHost {text!r} must have the form 127.0.0.1:10911 or [::1]:10911")
    return match[1] or match[2], int(match[3])


def put_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of store.put() for the columns of a message, without ASSIGNED_ON_PUT.

    message  bornTimestamp in ms, properties as a mapping; columns without a value are left out
    Raises ValueError for an invalid bornHost.

    >>> put_arguments({"topic": "orders", "body": b"paid", "queueId": 3, "keys": "k1", "physicalOffset": 4096})
    {'topic': 'orders', 'body': b'paid', 'queue_id': 3, 'properties': {'KEYS': 'k1'}}
    """
    made = {argument: message[column] for column, argument in PLAIN.items() if column in message}
    if "bornHost" in message:
        made["born_host"] = host_of(message["bornHost"])
    properties = copied_properties(message.get("properties", {}), message.get("keys"), message.get("tags"))
    if properties is not None:
        made["properties"] = properties
    if "sysFlag" in message:
        made["sys_flag"] = copied_flags(message["sysFlag"], message.get("bodyCRC"), message["body"])
    return made


def copied_properties(
    properties: Mapping[str, str], keys: str | None = None, tags: str | None = None
) -> dict[str, str] | None:
    """Return the properties of a copy, without the CRC of the record, because a copy is another record.

    >>> copied_properties({"__CRC32#": "1234567890", "TAGS": "A", "x": "y"}, tags="B")
    {'TAGS': 'B', 'x': 'y'}
    """
    made = {name: value for name, value in properties.items() if name != PROPERTY_CRC32}
    made |= {name: value for name, value in ((PROPERTY_KEYS, keys), (PROPERTY_TAGS, tags)) if value is not None}
    return made or None


def copied_flags(sys_flag: int, body_crc: int | None, body: bytes) -> int:
    """Return the sysFlag of a copy, without the flags of the body if the body was decompressed or taken out of a batch.

    body_crc  CRC of the body as it was stored; None: `body` is the stored one

    >>> copied_flags(1, 7, b"decompressed"), copied_flags(1, None, b"as it is")
    (0, 1)
    """
    stored = body_crc is None or body_crc == zlib.crc32(body) & 0x7FFFFFFF
    return sys_flag & ~(_FLAGS_V6 if stored else _FLAGS_V6 | _FLAGS_BODY)
