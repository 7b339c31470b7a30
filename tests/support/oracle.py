"""The message store's format, implemented a second time from its specification alone, with struct and zlib.

It is slow and plain on purpose: what rocketc writes and reads is compared with this file, so a reader must be able to
trust it. It shares no code with rocketc and imports nothing of it.

`walk` returns the items of a file in order:

- a message record is a dict with the keys of the JSON form and a few more, see `record_at`;
- a blank record is a `Blank`;
- lost bytes are a `Damage`.

All positions in items are physical offsets, half open.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MAGIC_V1 = 0xDAA320A7 - (1 << 32)  # the length of the topic is one byte
MAGIC_V2 = 0xDAA320AB - (1 << 32)  # ... two bytes
MAGIC_BLANK = 0xCBD43194 - (1 << 32)
SMALLEST_RECORD = 91  # V1, both hosts IPv4, no body, no topic, no properties
BLANK_HEADER = 8

COMPRESSED = 0x1
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

NAME_END = "\x01"
PAIR_END = "\x02"
CRC_NAME = "__CRC32#"
CRC_BYTES = 20  # name, U+0001, ten digits, U+0002

Record = dict[str, Any]
Properties = Mapping[str, str | None] | bytes | None
Host = tuple[str, int]


class Blank(NamedTuple):
    start: int
    stop: int
    file: str | None = None


class Damage(NamedTuple):
    start: int
    stop: int
    reason: str
    file: str | None = None


Item = Record | Blank | Damage


class Invalid(Exception):
    """There is no valid record here. `size` is the record's size if all its lengths agree, otherwise 0."""

    def __init__(self, reason: str, size: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.size = size


# ---------------------------------------------------------------------------------------------- helpers


def crc32(data: bytes) -> int:
    """CRC-32 without its highest bit."""
    return zlib.crc32(data) & 0x7FFFFFFF


def java_hash(text: str) -> int:
    """Java's String.hashCode."""
    raw = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for (unit,) in struct.iter_unpack(">H", raw):
        h = (31 * h + unit) & 0xFFFFFFFF
    return h - (1 << 32) if h & 0x80000000 else h


def tags_code(tags: str | None) -> int:
    return java_hash(tags) if tags else 0


def ipv6_bytes(text: str) -> bytes:
    """`1050::5` as 16 bytes; at most one `::`, no dotted part."""
    head, gap, tail = text.partition("::")
    left = [int(g, 16) for g in head.split(":") if g]
    right = [int(g, 16) for g in tail.split(":") if g]
    zeros = [0] * (8 - len(left) - len(right)) if gap else []
    return struct.pack(">8H", *left, *zeros, *right)


def ipv6_text(address: bytes, *, short: bool = True) -> str:
    """RFC 5952: the first longest run of two or more zero groups becomes `::`. Java compresses nothing."""
    groups = [f"{g:x}" for g in struct.unpack(">8H", address)]
    if short:
        for length in range(8, 1, -1):
            for at in range(0, 9 - length):
                if groups[at : at + length] == ["0"] * length:
                    return ":".join(groups[:at]) + "::" + ":".join(groups[at + length :])
    return ":".join(groups)


def host_bytes(host: Host) -> bytes:
    address, port = host
    packed = ipv6_bytes(address) if ":" in address else bytes(int(part) for part in address.split("."))
    assert len(packed) in (4, 16), address
    return packed + struct.pack(">i", port)


def host_text(raw: bytes) -> str:
    """`ip:port` or `[v6]:port`; the port is a signed 32-bit number and printed as one."""
    (port,) = struct.unpack(">i", raw[-4:])
    if len(raw) == 8:
        return ".".join(str(part) for part in raw[:4]) + f":{port}"
    return f"[{ipv6_text(raw[:16])}]:{port}"


def host_pair(text: str) -> Host:
    """The inverse of `host_text`."""
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def java_host(text: str) -> str:
    """A host as the golden files print it: IPv6 with all eight groups."""
    address, port = host_pair(text)
    return f"[{ipv6_text(ipv6_bytes(address), short=False)}]:{port}" if ":" in address else text


def message_id(store_host: bytes, phy_offset: int) -> str:
    return (store_host + struct.pack(">q", phy_offset)).hex().upper()


# ---------------------------------------------------------------------------------------------- properties


def encode_properties(properties: Properties, *, trailing_separator: bool = True) -> bytes:
    """The property string. Releases 4.9.1 to 5.1.4 omit the last U+0002 (trailing_separator=False). Bytes are not
    changed, null values are skipped.
    """
    if properties is None:
        return b""
    if isinstance(properties, bytes):
        return properties
    pairs = [name + NAME_END + value for name, value in properties.items() if value is not None]
    text = PAIR_END.join(pairs)
    if text and trailing_separator:
        text += PAIR_END
    return text.encode()


def decode_properties(raw: bytes) -> dict[str, str]:
    """The properties; a value may contain U+0001. Of duplicates the last value is used, in the place of the first."""
    text = raw.decode("utf-8", "replace")
    found: dict[str, str] = {}
    i = 0
    while i < len(text):
        e = text.find(PAIR_END, i)
        if e < 0:
            e = len(text)
        k = text.find(NAME_END, i)
        if e - i >= 3 and i < k < e - 1:
            found[text[i:k]] = text[k + 1 : e]
        i = e + 1
    return found


def delete_property(raw: bytes, name: str) -> bytes:
    """Remove every `name U+0001 value [U+0002]` at the start or right after a U+0002."""
    kept = b""
    while raw:
        pair, end, raw = raw.partition(PAIR_END.encode())
        if not pair.startswith((name + NAME_END).encode()):
            kept += pair + end
    return kept


def crc_property(crc: int) -> bytes:
    """20 bytes; the ten digits begin with the least significant one."""
    digits = f"{crc:010d}"[::-1]
    return (CRC_NAME + NAME_END + digits + PAIR_END).encode()


def ends_in_crc_property(properties: bytes) -> bool:
    """Whether the last pair is the reserved one: its name at the start of a pair, exactly 20 bytes before the end."""
    before, last = properties[:-CRC_BYTES], properties[-CRC_BYTES:]
    starts_a_pair = not before or before.endswith(PAIR_END.encode())
    return starts_a_pair and len(last) == CRC_BYTES and last.startswith((CRC_NAME + NAME_END).encode())


# ---------------------------------------------------------------------------------------------- encoding


def encode(
    topic: str,
    body: bytes,
    *,
    queue_id: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    phy_offset: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: Host = ("127.0.0.1", 0),
    store_timestamp: int = 0,
    store_host: Host = ("127.0.0.1", 0),
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    properties: Properties = None,
    version: int | None = None,
    property_crc: bool = False,
    trailing_separator: bool = True,
) -> bytes:
    """Encode one message record.

    version=None: V2 if the topic has more than 127 UTF-16 units, as Java counts, otherwise V1. The two V6 bits of
    sys_flag always follow from the hosts.
    """
    born, store = host_bytes(born_host), host_bytes(store_host)
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if len(born) == 20 else 0
    sys_flag |= STORE_HOST_V6 if len(store) == 20 else 0

    name = topic.encode()
    if version is None:
        version = 2 if len(topic.encode("utf-16-be")) // 2 > 127 else 1
    pairs = encode_properties(properties, trailing_separator=trailing_separator)
    reserved = 0
    if property_crc:
        pairs = delete_property(pairs, CRC_NAME)
        if pairs and not pairs.endswith(PAIR_END.encode()):
            pairs += PAIR_END.encode()
        reserved = CRC_BYTES

    rest = b"".join(
        [
            struct.pack(">i", MAGIC_V1 if version == 1 else MAGIC_V2),
            struct.pack(">i", crc32(body)),
            struct.pack(">i", queue_id),
            struct.pack(">i", flag),
            struct.pack(">q", queue_offset),
            struct.pack(">q", phy_offset),
            struct.pack(">i", sys_flag),
            struct.pack(">q", born_timestamp),
            born,
            struct.pack(">q", store_timestamp),
            store,
            struct.pack(">i", reconsume_times),
            struct.pack(">q", prepared_transaction_offset),
            struct.pack(">i", len(body)),
            body,
            struct.pack(">b" if version == 1 else ">h", len(name)),
            name,
            struct.pack(">h", len(pairs) + reserved),
            pairs,
        ]
    )
    record = struct.pack(">i", 4 + len(rest) + reserved) + rest
    if property_crc:
        record += crc_property(crc32(record))
    return record


def encode_blank(size: int, fill: bytes = b"\0") -> bytes:
    """A blank record over the last `size` bytes of a file; only its first 8 bytes have a meaning."""
    return (struct.pack(">ii", size, MAGIC_BLANK) + fill * size)[:size]


def encode_batch(entries: Iterable[tuple[int, bytes, Properties]], *, trailing_separator: bool = True) -> bytes:
    """A client batch as sent: (flag, body, properties) each, one right after the other."""
    wire = b""
    for flag, body, properties in entries:
        pairs = encode_properties(properties, trailing_separator=trailing_separator)
        wire += struct.pack(">iiiii", 22 + len(body) + len(pairs), 0, 0, flag, len(body)) + body
        wire += struct.pack(">h", len(pairs)) + pairs
    return wire


def encode_inner_batch(
    topic: str,
    entries: Sequence[tuple[int, bytes, Properties]],
    *,
    properties: Mapping[str, str | None] | None = None,
    queue_offset: int = 0,
    sys_flag: int = 0,
    **fields: Any,
) -> bytes:
    """A batch that is stored as one record."""
    pairs = {**(properties or {}), "INNER_NUM": str(len(entries)), "INNER_BASE": str(queue_offset)}
    return encode(
        topic,
        encode_batch(entries),
        properties=pairs,
        queue_offset=queue_offset,
        sys_flag=sys_flag | NEED_UNWRAP | INNER_BATCH,
        **fields,
    )


def lay_out(
    messages: Iterable[Mapping[str, Any]], file_size: int, *, base: int = 0, stale: bytes = b"\0"
) -> list[tuple[int, bytes]]:
    """Append messages (arguments of `encode` except phy_offset) as a store does.

    Returns (first offset, bytes) of each file, all of them file_size long. A message goes to the next file unless 8
    bytes remain after it.
    """
    files: list[tuple[int, bytes]] = []
    data = b""
    for message in messages:
        record = encode(**message, phy_offset=base + len(data))
        if len(record) + BLANK_HEADER > file_size:
            raise ValueError("message larger than a file")
        if len(record) + BLANK_HEADER > file_size - len(data):
            files.append((base, data + encode_blank(file_size - len(data), stale)))
            base, data = base + file_size, b""
            record = encode(**message, phy_offset=base)
        data += record
    if data:
        files.append((base, data.ljust(file_size, b"\0")))
    return files


# ---------------------------------------------------------------------------------------------- one record


def record_at(data: bytes, pos: int, *, file: str | None = None) -> Record:
    """The message record at `pos`, whose size and magic were checked; its lengths are checked here.

    Keys: those of the JSON form except `body`, and in addition: magic ("V1", "V2"), storedBody (as stored),
    storedBodyLen, propertiesLen, storedProperties (bytes), start and stop (positions in data).
    """
    size, magic = struct.unpack_from(">ii", data, pos)
    record = data[pos : pos + size]
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    born_len = 20 if sys_flag & BORN_HOST_V6 else 8
    store_len = 20 if sys_flag & STORE_HOST_V6 else 8

    # A length is invalid if it is negative, or leaves too little room for the fields that must follow.
    width, code = (1, ">b") if magic == MAGIC_V1 else (2, ">h")
    body_at = 72 + born_len + store_len
    left = size - body_at - width - 2
    if left < 0:
        raise Invalid("bad_body_length")
    (body_len,) = struct.unpack_from(">i", record, body_at - 4)
    if body_len < 0 or body_len > left:
        raise Invalid("bad_body_length")
    left -= body_len

    topic_at = body_at + body_len + width
    (topic_len,) = struct.unpack_from(code, record, topic_at - width)
    if topic_len < 0 or topic_len > left:
        raise Invalid("bad_topic_length")
    left -= topic_len

    properties_at = topic_at + topic_len + 2
    (properties_len,) = struct.unpack_from(">h", record, properties_at - 2)
    if properties_len < 0 or properties_len > left:
        raise Invalid("bad_properties_length")
    if properties_len != left:
        raise Invalid("bad_length")

    body_crc, queue_id, flag, queue_offset, phy_offset = struct.unpack_from(">iiiqq", record, 8)
    (born_timestamp,) = struct.unpack_from(">q", record, 40)
    born_host = record[48 : 48 + born_len]
    at = 48 + born_len
    (store_timestamp,) = struct.unpack_from(">q", record, at)
    store_host = record[at + 8 : at + 8 + store_len]
    reconsume_times, prepared = struct.unpack_from(">iq", record, at + 8 + store_len)
    stored_properties = record[properties_at:]
    properties = decode_properties(stored_properties)
    return {
        "topic": record[topic_at : topic_at + topic_len].decode("utf-8", "replace"),
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "physicalOffset": phy_offset,
        "storeTimestamp": store_timestamp,
        "bornTimestamp": born_timestamp,
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "properties": properties,
        "msgId": message_id(store_host, phy_offset),
        "flag": flag,
        "sysFlag": sys_flag,
        "reconsumeTimes": reconsume_times,
        "bodyCRC": body_crc,
        "bornHost": host_text(born_host),
        "storeHost": host_text(store_host),
        "preparedTransactionOffset": prepared,
        "storeSize": size,
        "file": file,
        "brokerName": None,
        "magic": "V1" if magic == MAGIC_V1 else "V2",
        "storedBody": record[body_at : body_at + body_len],
        "storedBodyLen": body_len,
        "storedProperties": stored_properties,
        "propertiesLen": properties_len,
        "start": pos,
        "stop": pos + size,
    }


def is_zero_space(data: bytes, pos: int) -> bool:
    """Whether TOTALSIZE and MAGIC are both 0, or the rest is shorter than these fields and all zero."""
    return not any(data[pos : pos + 8])


def valid_at(
    data: bytes,
    pos: int,
    base: int | None,
    *,
    crc: str = "body",
    need_property_crc: bool = False,
    file: str | None = None,
) -> Record | Blank:
    """The valid record or blank at `pos` of a file that starts at physical offset `base`.

    Raises Invalid with the reason. The order of the checks is part of the contract. base=None: accept any
    PHYSICALOFFSET.
    """
    left = len(data) - pos
    if left < 8:
        raise Invalid("truncated")
    size, magic = struct.unpack_from(">ii", data, pos)
    if size < BLANK_HEADER:
        raise Invalid("bad_size")
    if magic == MAGIC_BLANK:
        if size != left:
            raise Invalid("bad_blank")
        return Blank((base or 0) + pos, (base or 0) + pos + size, file)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise Invalid("bad_magic")
    if size < SMALLEST_RECORD:
        raise Invalid("bad_size")
    if size > left:
        raise Invalid("truncated")

    record = record_at(data, pos, file=file)
    if crc in ("body", "full") and record["storedBody"] and crc32(record["storedBody"]) != record["bodyCRC"]:
        raise Invalid("bad_body_crc", size)
    if ends_in_crc_property(record["storedProperties"]):
        if crc == "full":
            expected = crc_property(crc32(data[pos : pos + size - CRC_BYTES]))
            if record["storedProperties"][-CRC_BYTES:] != expected:
                raise Invalid("bad_property_crc", size)
    elif need_property_crc:
        raise Invalid("missing_property_crc", size)
    if base is not None:
        if record["physicalOffset"] != base + pos:
            raise Invalid("bad_physical_offset", size)
        record["start"] += base
        record["stop"] += base
    return record


# ---------------------------------------------------------------------------------------------- files


def walk(
    data: bytes,
    base: int | None = 0,
    *,
    last: bool = True,
    crc: str = "body",
    need_property_crc: bool = False,
    file: str | None = None,
) -> list[Item]:
    """All items of one file whose first byte has the physical offset `base` (None: find it out).

    `last`: the log ends in this file, so zeros up to its end are space that was never written.
    """
    data = bytes(data)
    if base is None:
        base = learn_base(data)
    searching = "full" if crc == "full" else "body"

    def stands_at(pos: int, crc: str) -> bool:
        """Whether a valid record or blank starts here."""
        try:
            valid_at(data, pos, base, crc=crc, need_property_crc=need_property_crc)
        except Invalid:
            return False
        return True

    def lost_until(pos: int) -> int:
        """Where the lost bytes that start at `pos` end. The search verifies bodies even if crc is "none"."""
        for there in range(pos + 1, len(data)):
            if stands_at(there, searching):
                return there
        return len(data.rstrip(b"\0")) if last else len(data)

    items: list[Item] = []
    pos = 0
    while pos < len(data):
        if is_zero_space(data, pos):
            if last and not any(data[pos:]):
                break
            stop = lost_until(pos)
            items.append(Damage(base + pos, base + stop, "zeroed", file))
            pos = stop
            continue
        try:
            item = valid_at(data, pos, base, crc=crc, need_property_crc=need_property_crc, file=file)
        except Invalid as e:
            stop = pos + e.size
            go_on = e.size > 0 and (stop == len(data) or is_zero_space(data, stop) or stands_at(stop, crc))
            if not go_on:
                stop = lost_until(pos)
            items.append(Damage(base + pos, base + stop, e.reason, file))
        else:
            items.append(item)
            stop = (item.stop if isinstance(item, Blank) else item["stop"]) - base
        pos = stop
    return items


def walk_log(files: Iterable[tuple[int, bytes] | tuple[int, bytes, str]], **options: Any) -> list[Item]:
    """All items of a log: (first offset, bytes[, path]) of each file, in order.

    The log ends in the last file that has a byte other than zero; later files were only prepared.
    """
    given = list(files)
    while given and not any(given[-1][1]):
        given.pop()
    items: list[Item] = []
    for n, entry in enumerate(given):
        path = entry[2] if len(entry) == 3 else None
        items += walk(entry[1], entry[0], last=n == len(given) - 1, file=path, **options)
    return items


def read_log(folder: str | Path) -> list[tuple[int, bytes, str]]:
    """The files of a commitlog folder, for `walk_log`."""
    paths = sorted(p for p in Path(folder).iterdir() if p.name.isdigit())
    return [(int(p.name), p.read_bytes(), str(p)) for p in paths]


def learn_base(data: bytes) -> int:
    """The physical offset of the first byte.

    It follows from the first record that is valid except for its PHYSICALOFFSET; the result must not be negative.
    """
    for pos in range(len(data)):
        try:
            item = valid_at(data, pos, None)
        except Invalid:
            continue
        if not isinstance(item, Blank) and item["physicalOffset"] >= pos:
            offset: int = item["physicalOffset"]
            return offset - pos
    return 0


def records(items: Iterable[Item]) -> list[Record]:
    return [i for i in items if isinstance(i, dict)]


def blanks(items: Iterable[Item]) -> list[Blank]:
    return [i for i in items if isinstance(i, Blank)]


def damage(items: Iterable[Item]) -> list[Damage]:
    return [i for i in items if isinstance(i, Damage)]


def log_end(items: Sequence[Item], default: int = 0) -> int:
    """The physical offset after the last item."""
    if not items:
        return default
    last = items[-1]
    stop: int = last["stop"] if isinstance(last, dict) else last.stop
    return stop


# ---------------------------------------------------------------------------------------------- content


def _inflate(engine: Any, failure: type[Exception], stored: bytes, limit: int) -> bytes:
    """Decompress the stored bytes with one of three decompressors; bytes after the end of its stream are ignored."""
    try:
        plain: bytes = engine.decompress(stored, limit + 1)
    except failure:
        raise Invalid("bad_compression") from None
    if len(plain) > limit:
        raise Invalid("too_large")
    if not engine.eof:
        raise Invalid("bad_compression")
    return plain


def plain_body(record: Record, limit: int = 64 << 20) -> bytes:
    """The decompressed body: zlib, LZ4 frame or zstd, by bits 8 to 10 of sysFlag (0: zlib, from old clients).

    An empty stored body is an empty body, whatever sysFlag says. Raises Invalid: bad_compression, too_large.
    """
    stored: bytes = record["storedBody"]
    if not record["sysFlag"] & COMPRESSED or not stored:
        return stored
    kind = record["sysFlag"] >> 8 & 7
    if kind in (0, 3):
        return _inflate(zlib.decompressobj(), zlib.error, stored, limit)
    if kind == 1:
        import lz4.frame

        return _inflate(lz4.frame.LZ4FrameDecompressor(), RuntimeError, stored, limit)
    if kind == 2:
        try:
            from compression import zstd  # Python 3.14
        except ImportError:
            from backports import zstd

        return _inflate(zstd.ZstdDecompressor(), zstd.ZstdError, stored, limit)
    raise Invalid("bad_compression")


def decode_batch(wire: bytes) -> list[tuple[int, bytes, bytes]]:
    """(flag, body, properties as stored) of each message of a batch. Raises Invalid: bad_inner_batch."""
    entries = []
    pos = 0
    while pos < len(wire):
        if len(wire) - pos < 22:
            raise Invalid("bad_inner_batch")
        size, _magic, _crc, flag, body_len = struct.unpack_from(">iiiii", wire, pos)
        body_at = pos + 20
        if body_len < 0 or body_at + body_len + 2 > len(wire):
            raise Invalid("bad_inner_batch")
        (properties_len,) = struct.unpack_from(">h", wire, body_at + body_len)
        properties_at = body_at + body_len + 2
        stop = properties_at + properties_len
        if properties_len < 0 or stop > len(wire) or stop - pos != size:
            raise Invalid("bad_inner_batch")
        entries.append((flag, wire[body_at : body_at + body_len], wire[properties_at:stop]))
        pos = stop
    return entries


def unwrap(record: Record) -> list[Record]:
    """The messages of a record with a `body`: the record itself, or those of an inner batch (both bits set).

    A message of an inner batch has its own flag, body, properties and queue offset; all other fields are the record's.
    """
    both = NEED_UNWRAP | INNER_BATCH
    if record["sysFlag"] & both != both:
        return [record]
    messages = []
    for n, (flag, body, raw) in enumerate(decode_batch(record["body"])):
        properties = decode_properties(raw)
        own = {
            "flag": flag,
            "body": body,
            "properties": properties,
            "keys": properties.get("KEYS"),
            "tags": properties.get("TAGS"),
            "queueOffset": record["queueOffset"] + n,
            "storedProperties": raw,
        }
        messages.append({**record, **own})
    return messages


def read(
    items: Iterable[Item], *, decompress: bool = True, unwrapping: bool = True, limit: int = 64 << 20
) -> list[Item]:
    """Items as a reader returns them.

    Each message has its `body`, inner batches are read as their messages, and a record with unreadable content becomes
    a Damage. Compressed batches stay whole if decompress is off.
    """
    out: list[Item] = []
    for item in items:
        if not isinstance(item, dict):
            out.append(item)
            continue
        try:
            record = {**item, "body": plain_body(item, limit) if decompress else item["storedBody"]}
            still_compressed = not decompress and item["sysFlag"] & COMPRESSED
            out += unwrap(record) if unwrapping and not still_compressed else [record]
        except Invalid as e:
            out.append(Damage(item["start"], item["stop"], e.reason, item["file"]))
    return out


JSON_KEYS = [
    "topic",
    "queueId",
    "brokerName",
    "queueOffset",
    "physicalOffset",
    "storeTimestamp",
    "bornTimestamp",
    "keys",
    "tags",
    "body",
    "properties",
    "msgId",
    "flag",
    "sysFlag",
    "reconsumeTimes",
    "bodyCRC",
    "bornHost",
    "storeHost",
    "preparedTransactionOffset",
    "storeSize",
    "file",
]


def json_form(message: Record) -> dict[str, Any]:
    """A message of `read` in the JSON form: body as text or bodyBase64, without absent values."""
    told: dict[str, Any] = {}
    for key in JSON_KEYS:
        value = message[key]
        if key == "body":
            try:
                told["body"] = value.decode()
            except UnicodeDecodeError:
                told["bodyBase64"] = base64.b64encode(value).decode()
        elif value is not None:
            told[key] = value
    return told


# ---------------------------------------------------------------------------------------------- the other files


class QueueUnit(NamedTuple):
    phy_offset: int
    size: int
    tags_code: int


class BatchQueueUnit(NamedTuple):
    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int
    reserved: int


class IndexHeader(NamedTuple):
    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


class IndexEntry(NamedTuple):
    key_hash: int
    phy_offset: int
    seconds: int
    previous: int


class Checkpoint(NamedTuple):
    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int


def queue_units(data: bytes) -> list[QueueUnit]:
    """Every unit of a consume queue file, including unused ones (all zero)."""
    return [QueueUnit(*u) for u in struct.iter_unpack(">qiq", data[: len(data) // 20 * 20])]


def batch_queue_units(data: bytes) -> list[BatchQueueUnit]:
    return [BatchQueueUnit(*u) for u in struct.iter_unpack(">qiqqqhii", data[: len(data) // 46 * 46])]


def index_file(data: bytes, slots: int) -> tuple[IndexHeader, list[int], list[IndexEntry]]:
    """Header, slots and units of an index file of `slots` slots, including unused units and number 0."""
    body = 40 + 4 * slots
    header = IndexHeader(*struct.unpack_from(">qqqqii", data))
    chains = [n for (n,) in struct.iter_unpack(">i", data[40:body])]
    rest = data[body : body + (len(data) - body) // 20 * 20]
    return header, chains, [IndexEntry(*e) for e in struct.iter_unpack(">iqii", rest)]


def key_hash(topic: str, key: str) -> int:
    h = abs(java_hash(topic + "#" + key))
    return h if h < 1 << 31 else 0


def checkpoint(data: bytes) -> Checkpoint:
    return Checkpoint(*struct.unpack_from(">5q", data))
