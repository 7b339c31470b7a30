"""A message that was read and is put again: what of it can be kept."""

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

# Columns that the store gives a message anew.
ASSIGNED_ON_PUT = frozenset(
    {"queueOffset", "physicalOffset", "storeTimestamp", "msgId", "storeHost", "storeSize", "file"}
)

# Column -> argument of store.put() that takes its value as it is.
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
_FLAGS_V6 = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6  # of sysFlag: how hosts are stored, which the store itself says
# What the stored body is: compressed, an inner batch.
_FLAGS_BODY = FLAG_COMPRESSED | FLAG_COMPRESSION_MASK | FLAG_NEED_UNWRAP | FLAG_INNER_BATCH


def host_of(text: str) -> tuple[str, int]:
    """The address and port that the column bornHost says. Raises ValueError for another text.

    >>> host_of("127.0.0.1:10911"), host_of("[::1]:10911")
    (('127.0.0.1', 10911), ('::1', 10911))
    """
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError(f"bornHost is {text!r}, not as in 127.0.0.1:10911 or [::1]:10911")
    return match[1] or match[2], int(match[3])


def put_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of store.put() for a message that was read, from its columns; ASSIGNED_ON_PUT are left out.

    message  bornTimestamp in ms, properties as a mapping; what has no value is left out
    Raises ValueError for a bornHost that is none.

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
    """The properties of a copy: the CRC of the whole record goes, for a copy is another record.

    >>> copied_properties({"__CRC32#": "1234567890", "TAGS": "A", "x": "y"}, tags="B")
    {'TAGS': 'B', 'x': 'y'}
    """
    made = {name: value for name, value in properties.items() if name != PROPERTY_CRC32}
    made |= {name: value for name, value in ((PROPERTY_KEYS, keys), (PROPERTY_TAGS, tags)) if value is not None}
    return made or None


def copied_flags(sys_flag: int, body_crc: int | None, body: bytes) -> int:
    """The sysFlag of a copy: what it says of the body goes, if that was decompressed or taken out of a batch.

    body_crc  of the body as it was stored; None: this one is it

    >>> copied_flags(1, 7, b"decompressed"), copied_flags(1, None, b"as it is")
    (0, 1)
    """
    stored = body_crc is None or body_crc == zlib.crc32(body) & 0x7FFFFFFF
    return sys_flag & ~(_FLAGS_V6 if stored else _FLAGS_V6 | _FLAGS_BODY)
