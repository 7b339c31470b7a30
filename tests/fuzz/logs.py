"""The commit log's readers on any bytes, compared with tests/support/oracle.py: a buffer, a file in parts, batches."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from support import compare, oracle

import rocketc
from rocketc.files.paths import LogFile, resolve

LIMIT = 1 << 16  # bytes of a decompressed body
CRC = ("none", "body", "full", "body")
BASES = (0, 4096, None, 1 << 62)
HERE = 4096  # physical offset of a log in a file


def record(data: bytes, folder: Path) -> None:
    """A buffer as one commit log: a scan must return what the oracle reads.

    Byte 0 holds the options: bits 0-1 crc, 2-3 base_offset, 4 decompress=False, 5 unwrap=False.
    """
    if not data:
        return
    how, log = data[0], data[1:]
    crc, base = CRC[how & 3], BASES[how >> 2 & 3]
    open_bodies: dict[str, Any] = {"decompress": not how & 16, "unwrap": not how & 32}
    options: dict[str, Any] = {"crc": crc, "max_decompressed": LIMIT, **open_bodies}
    walked = oracle.walk(log, base, crc=crc)
    expected = compare.expected(walked, limit=LIMIT, **open_bodies)
    told, lost = compare.outline(expected)

    scan = rocketc.decode(log, base, errors="skip", **options)
    first = list(scan)
    assert [compare.of_message(message) for message in first] == told
    compare.check_report(scan.report, walked, expected, oracle.learn_base(log) if base is None else base)
    report = scan.report
    assert list(scan) == first and scan.report == report, "the second pass must return the same"
    # count() does not decompress bodies
    assert scan.count() == len(oracle.records(compare.expected(walked, **{**open_bodies, "decompress": False})))
    records = oracle.records(expected)
    assert compare.table_rows(scan.to_arrow()) == [compare.row_of_record(one) for one in records]
    assert compare.lost(scan.report.damage) == lost
    for message, one in zip(first, records, strict=True):
        assert json.loads(message.to_json()) == oracle.json_form(one)
        assert rocketc.Message.of(message.record).record == message.record

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", rocketc.DamageWarning)
        assert sum(1 for _ in rocketc.decode(log, base, errors="report", **options)) == len(first)
    assert len(warned) == len(lost)
    _stops_at_the_first_damage(rocketc.decode(log, base, **options), expected)


def _stops_at_the_first_damage(scan: rocketc.Scan, expected: list[oracle.Item]) -> None:
    before, damage = compare.first_damage(expected)
    found = []
    try:
        for message in scan:
            found.append(compare.of_message(message))
    except rocketc.CorruptRecordError as error:
        assert damage is not None and (error.offset, error.reason) == (damage.start, damage.reason), str(error)
    else:
        assert damage is None
    assert found == before


def parts(data: bytes, folder: Path) -> None:
    """A log in a file: it must be read as from a buffer, and each record and damage once, wherever it is split.

    Byte 0 is crc, bytes 1 and 2 are the places of the splits, in 255ths of the log's length.
    """
    if len(data) < 4:
        return
    crc, log = CRC[data[0] & 3], data[3:]
    path = folder / f"{HERE:020d}"
    path.write_bytes(log)
    whole = _found([path], crc)
    scan = rocketc.decode(log, HERE, errors="skip", crc=crc, max_decompressed=LIMIT)
    assert [(m.phy_offset, m.record) for m in scan] == whole[0]
    assert [(d.start, d.stop, d.reason) for d in scan.report.damage] == whole[1]
    if _has_hidden_records(log, crc):
        return
    [one] = resolve(path)
    [file] = one.files
    cuts = sorted(HERE + len(log) * at // 255 for at in data[1:3])
    for places in (cuts, cuts[:1]):
        pieces = [replace(file, start=start, stop=stop) for start, stop in pairwise([None, *places, None])]
        assert _found(pieces, crc) == whole, places


def _found(pieces: Iterable[LogFile | Path], crc: Any) -> tuple[list[Any], list[Any], int]:
    """Messages, damage and bytes of all parts, in order."""
    messages, damage, read = [], [], 0
    for piece in pieces:
        scan = rocketc.scan(piece, errors="skip", crc=crc, max_decompressed=LIMIT)
        messages += [(m.phy_offset, m.record) for m in scan]
        damage += [(d.start, d.stop, d.reason) for d in scan.report.damage]
        read += scan.report.bytes
    return messages, damage, read


def _has_hidden_records(log: bytes, crc: str) -> bool:
    """Whether a valid record is inside another item: a reader that starts there cannot know."""
    starts = {i["start"] if isinstance(i, dict) else i.start for i in oracle.walk(log, HERE, crc=crc)}
    for pos in range(len(log)):
        if log[pos + 4 : pos + 5] not in (b"\xda", b"\xcb") or HERE + pos in starts:
            continue
        try:
            oracle.valid_at(log, pos, HERE, crc="full" if crc == "full" else "body")
        except oracle.Invalid:
            continue
        return True
    return False


def batch(data: bytes, folder: Path) -> None:
    """A client batch, also as the body of an inner batch: decoded as the oracle does, and encoded again unchanged."""
    wanted = None
    try:
        wanted = oracle.decode_batch(data)
    except oracle.Invalid:
        pass
    found = None
    try:
        found = rocketc.decode_batch(data)
    except ValueError:
        pass
    assert found == wanted
    if found is not None:
        again = rocketc.encode_batch(found)
        assert again == _without_unused(data)
        assert rocketc.decode_batch(again) == found
    flags = oracle.NEED_UNWRAP | oracle.INNER_BATCH
    log = oracle.encode("t", data, sys_flag=flags, queue_offset=7)
    scan = rocketc.decode(log, errors="skip")
    messages = [(message.flag, message.body) for message in scan]
    assert messages == [(flag, body) for flag, body, _ in wanted or []]
    assert [damage.reason for damage in scan.report.damage] == (["bad_inner_batch"] if wanted is None else [])
    assert scan.to_arrow().num_rows == len(messages)


def _without_unused(batch: bytes) -> bytes:
    """Replace by zeros a batch's magic and CRC, which no reader uses."""
    out = bytearray(batch)
    pos = 0
    while pos < len(out):
        out[pos + 4 : pos + 12] = bytes(8)
        pos += struct.unpack_from(">i", batch, pos)[0]
    return bytes(out)
