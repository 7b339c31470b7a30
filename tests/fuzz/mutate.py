"""Mutations that know the format: a record with a changed body gets the body's CRC."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

from fuzz import whole
from support import oracle, strategies

Mutate = Callable[[bytes, int], bytes]  # libFuzzer's function: (data, most bytes)

_MAGICS = (struct.pack(">i", oracle.MAGIC_V1), struct.pack(">i", oracle.MAGIC_V2))
_BLANK = struct.pack(">i", oracle.MAGIC_BLANK)


def in_a_log(skip: int, base: Callable[[bytes], int]) -> Callable[[bytes, int, int, Mutate], bytes]:
    """Make a mutator of inputs that are `skip` bytes of options and a log.

    base(data)  physical offset of the log's first byte
    """

    def mutator(data: bytes, most: int, seed: int, mutate: Mutate) -> bytes:
        chance = random.Random(seed)
        head, log = data[:skip].ljust(skip, b"\0"), data[skip:]
        kind = chance.randrange(4)
        if kind == 0:
            return mutate(data, most)
        if kind == 1:
            log = _with_another_body(log, most - skip, chance, mutate)
        elif kind == 2:
            log = _with_one_more(log, chance)
        else:
            log = mutate(log, most - skip)
        if chance.randrange(4):
            log = mended(log[: most - skip], base(data), chance)
        return head + log[: most - skip]

    return mutator


def record_base(data: bytes) -> int:
    """The base offset that logs.record() derives from the first byte."""
    return (0, 4096, 0, 1 << 62)[data[0] >> 2 & 3] if data else 0


def mended(log: bytes, base: int, chance: random.Random) -> bytes:
    """Repair, in most records of the log, the numbers that have to agree."""
    out = bytearray(log)
    pos = 0
    while pos + oracle.SMALLEST_RECORD <= len(out):
        magic = bytes(out[pos + 4 : pos + 8])
        if magic == _BLANK and chance.randrange(2):
            struct.pack_into(">i", out, pos, len(out) - pos)
        if magic not in _MAGICS or not chance.randrange(12):
            pos += 1
            continue
        stop = _stop_of(out, pos)
        if stop is None:
            pos += 1
            continue
        struct.pack_into(">i", out, pos, stop - pos)
        struct.pack_into(">q", out, pos + 28, base + pos)
        _mend_lengths(out, pos, stop, chance)
        pos = stop if chance.randrange(8) else pos + 1
    return bytes(out)


def _stop_of(out: bytearray, pos: int) -> int | None:
    """Where a record ends: by its size, or before the next record."""
    (size,) = struct.unpack_from(">i", out, pos)
    if oracle.SMALLEST_RECORD <= size <= len(out) - pos:
        return pos + size
    found = [out.find(magic, pos + oracle.SMALLEST_RECORD) for magic in (*_MAGICS, _BLANK)]
    stop = min((at - 4 for at in found if at >= 0), default=len(out))
    return stop if stop - pos >= oracle.SMALLEST_RECORD else None


def _mend_lengths(out: bytearray, pos: int, stop: int, chance: random.Random) -> None:
    """Set lengths that fill the record, and the CRC of the body; sometimes also the CRC of the whole record."""
    (flags,) = struct.unpack_from(">i", out, pos + 36)
    width = 1 if bytes(out[pos + 4 : pos + 8]) == _MAGICS[0] else 2
    body_at = pos + 72 + (20 if flags & oracle.BORN_HOST_V6 else 8) + (20 if flags & oracle.STORE_HOST_V6 else 8)
    left = stop - body_at - width - 2
    if left < 0:
        return
    (body_len,) = struct.unpack_from(">i", out, body_at - 4)
    if not 0 <= body_len <= left:
        body_len = chance.randrange(left + 1)
        struct.pack_into(">i", out, body_at - 4, body_len)
    topic_at = body_at + body_len + width
    topic_len = int.from_bytes(out[topic_at - width : topic_at], "big")
    if topic_len > min(left - body_len, 127):
        topic_len = min(left - body_len, 5)
        out[topic_at - width : topic_at] = topic_len.to_bytes(width, "big")
    rest = left - body_len - topic_len
    if rest < 1 << 15:
        struct.pack_into(">h", out, topic_at + topic_len, rest)
    struct.pack_into(">i", out, pos + 8, oracle.crc32(bytes(out[body_at : body_at + body_len])))
    if rest >= oracle.CRC_BYTES and oracle.ends_in_crc_property(bytes(out[stop - rest : stop])) and chance.randrange(4):
        end = stop - oracle.CRC_BYTES
        out[end:stop] = oracle.crc_property(oracle.crc32(bytes(out[pos:end])))


def _with_another_body(log: bytes, most: int, chance: random.Random, mutate: Mutate) -> bytes:
    """Mutate one record's body; a compressed body is decompressed before and compressed again."""
    records = oracle.records(oracle.walk(log, None, crc="none"))
    if not records:
        return mutate(log, most)
    one = chance.choice(records)
    base = oracle.learn_base(log)
    body, flags = one["storedBody"], one["sysFlag"]
    if flags & oracle.COMPRESSED and body:
        try:
            body = strategies.compress(mutate(oracle.plain_body(one, 4096), 4096), flags >> 8 & 3)
        except (oracle.Invalid, zlib.error):
            body = mutate(body, most)
    else:
        body = mutate(body, most) if body else b"\0"
    start, stop = one["start"] - base, one["stop"] - base
    changed = oracle.encode(
        one["topic"][:60],
        body,
        sys_flag=flags,
        properties=one["storedProperties"],
        version=1 if one["magic"] == "V1" and len(one["topic"][:60].encode()) < 128 else 2,
        queue_offset=one["queueOffset"],
        phy_offset=base + start,
        store_timestamp=one["storeTimestamp"],
    )
    return log[:start] + changed + log[stop:]


def _with_one_more(log: bytes, chance: random.Random) -> bytes:
    """Insert a record of some kind, also at the end."""
    starts = [one["start"] for one in oracle.records(oracle.walk(log, 0, crc="none"))]
    at = chance.choice([*starts, len(log)])
    kind = chance.randrange(6)
    body = b"body" * chance.randrange(20)
    flags = 0
    if kind < 3:
        code = chance.choice((0, 1, 2, 3))
        body, flags = strategies.compress(body, code), oracle.COMPRESSED | code << 8
    if kind in (2, 3):
        entries = [(n, b"%d" % n * chance.randrange(9), {"KEYS": "k"}) for n in range(chance.randrange(4))]
        body, flags = oracle.encode_batch(entries), oracle.INNER_BATCH | oracle.NEED_UNWRAP
    one = oracle.encode(
        "t" * chance.choice((0, 1, 5, 130)),
        body,
        sys_flag=flags,
        phy_offset=at,
        queue_offset=len(starts),
        born_host=chance.choice((("10.0.0.1", 1), ("::1", 2))),
        properties=chance.choice((None, {"TAGS": "A", "KEYS": "k1 k2"}, b"\x01\x02\x02a\x01b", {"UNIQ_KEY": "0" * 32})),
        property_crc=bool(chance.randrange(2)),
    )
    if kind == 5:
        one = oracle.encode_blank(chance.randrange(8, 40))
    return log[:at] + one + log[at:]


_in_first = in_a_log(0, lambda data: 0)
_in_second = in_a_log(0, lambda data: whole.SECOND)


def in_a_store(skip: int) -> Callable[[bytes, int, int, Mutate], bytes]:
    """Make a mutator of inputs that are `skip` bytes of options and a store's files."""

    def mutator(data: bytes, most: int, seed: int, mutate: Mutate) -> bytes:
        chance = random.Random(seed)
        head, files = data[:skip].ljust(skip, b"\0"), whole.split(data[skip:])
        if not files or not chance.randrange(16):
            return mutate(data, most)
        if skip and not chance.randrange(16):
            head = chance.randbytes(skip)
        return head + whole.join(_with_another_file(files, most - skip, seed, chance, mutate))[: most - skip]

    return mutator


def _with_another_file(
    files: dict[str, bytes], most: int, seed: int, chance: random.Random, mutate: Mutate
) -> dict[str, bytes]:
    """Mutate one file by its format, or add a file, or remove one."""
    name = chance.choice(list(files))
    others = sum(3 + len(raw) for other, raw in files.items() if other != name)
    room = max(most - others - 3, 1)
    kind = chance.randrange(16)
    if kind == 0:
        del files[name]
    elif kind == 1:
        files[chance.choice(whole.NAMES)] = files[name][: max(room // 2, 1)]
    elif name.startswith("commitlog/"):
        mutator = _in_first if name.endswith("0" * 20) else _in_second
        files[name] = mutator(files[name], room, seed, mutate)
    else:
        files[name] = mutate(files[name] or b"\0", room)
    return files
