"""Consume queues of all kinds, index files and the checkpoint with any bytes, as commands and stores read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import oracle

from rocketc.derived._consume_queue_ext import ConsumeQueueExt
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._index_reader import IndexFile
from rocketc.derived._key_index import KeyIndex
from rocketc.errors import CorruptRecordError
from rocketc.files import _checkpoint
from rocketc.format import _queue_units as cq
from rocketc.jobs.file_kinds import Files
from rocketc.jobs.unit_files import FAULTS, Fault, Faults, read_ext, read_index, read_queue

INT64_MAX = (1 << 63) - 1
SHORT = 32  # most units of a file


def _laid(data: bytes, size: int, folder: Path, first: int = 0) -> tuple[str, ...]:
    """Write the bytes as files of one folder; each has this size, except the last one."""
    folder.mkdir(parents=True)
    paths = []
    for at in range(0, max(len(data), 1), size):
        path = folder / f"{first + at:020d}"
        path.write_bytes(data[at : at + size])
        paths.append(str(path))
    return tuple(paths)


def _read(files: Files, reader: Any) -> tuple[list[Any], list[Fault]]:
    """Read units and faults as a command does; a second read must return the same."""
    out: list[tuple[list[Any], list[Fault]]] = []
    for _ in range(2):
        told: list[Fault] = []
        units = [unit for _, some in reader(files, Faults(told.append)) for unit in some]
        assert all(fault.reason in FAULTS and str(fault) for fault in told)
        out.append((units, told))
    assert out[0] == out[1]
    return out[0]


def queue(data: bytes, folder: Path) -> None:
    """A consume queue; byte 0 is the number of units of a file, byte 1 the number of its first file."""
    if len(data) < 3:
        return
    raw, size, first = data[2:], 20 * (data[0] % SHORT + 3), data[1] >> 5
    wanted = {first * size // 20 + n: u for n, u in enumerate(oracle.queue_units(raw)) if any(u)}
    decoded = cq.decode_units(raw, first * size // 20)
    assert {unit[0]: unit[1:4] for unit in decoded} == wanted
    for _, phy_offset, length, _, fault in decoded:
        good = length > 0 and 0 <= phy_offset <= INT64_MAX - length
        assert good == (fault in (None, cq.PRE_BLANK))
    paths = _laid(raw, size, folder / "consumequeue/t/0", first * size)
    _all_are_told(_read(Files("consumequeue", paths, "t", 0), read_queue), decoded)
    _as_a_store_reads(folder, size, wanted)


def batch_queue(data: bytes, folder: Path) -> None:
    """A batch queue; bytes 0 and 1 as in queue()."""
    if len(data) < 3:
        return
    raw, size, first = data[2:], 46 * (data[0] % SHORT + 1), data[1] >> 5
    units = oracle.batch_queue_units(raw)
    wanted = {first * size // 46 + n: u for n, u in enumerate(units) if any(raw[46 * n : 46 * n + 46])}
    decoded = cq.decode_batch_units(raw, first * size // 46)
    assert {unit[0]: unit[1:9] for unit in decoded} == wanted
    paths = _laid(raw, size, folder / "batchconsumequeue/t/0", first * size)
    _all_are_told(_read(Files("batchconsumequeue", paths, "t", 0), read_queue), decoded)
    _as_a_store_reads(folder, size, wanted)


def _all_are_told(read: tuple[list[Any], list[Fault]], decoded: list[Any]) -> None:
    """Assert that each unit was returned, or is among the faults."""
    units, faults = read
    assert units == [unit for unit in decoded if unit[-1] in (None, cq.PRE_BLANK)]
    told = {n for fault in faults for n in range(fault.first, fault.last + 1) if fault.reason != "zeroed"}
    if len(faults) < Faults.MOST:
        assert {unit[0] for unit in decoded if unit[-1] not in (None, cq.PRE_BLANK)} <= told


def _as_a_store_reads(folder: Path, size: int, wanted: dict[int, Any]) -> None:
    """Assert that a store open for reading returns units of the files, and the same ones twice."""
    found = []
    for _ in range(2):
        queues = ConsumeQueues(str(folder), *_sizes(folder, size), read_only=True)
        queues.load()
        told = queues.range("t", 0)
        units = queues.units("t", 0) + (queues.units("t", 0, told[0]) if told is not None and told[0] > 0 else [])
        for number, phy_offset, length, tags_code, *_ in units:
            stored = wanted.get(number)
            assert (stored[:3] if stored else (0, 0, 0)) == (phy_offset, length, tags_code)
            queues.tags_code("t", 0, number)
        found.append((told, units, queues.items(), queues.phy_ends(), queues.summed(), list(queues.errors)))
        queues.close()
    assert found[0] == found[1]


def _sizes(folder: Path, size: int) -> tuple[int, int]:
    return (size, 46) if (folder / "consumequeue").exists() else (60, size)


def ext(data: bytes, folder: Path) -> None:
    """A consume queue extension; byte 0 is the size of its files."""
    if len(data) < 2:
        return
    raw, size = data[1:], 40 + data[0] % 128
    paths = _laid(raw, size, folder / "consumequeue_ext/t/0")
    units, taken, why = cq.decode_ext_units(raw[:size])
    assert taken == sum(unit[1] for unit in units) <= len(raw)
    assert why in (cq.EXT_MORE, cq.EXT_END, cq.EXT_UNUSED, "bad_size", "bad_bit_map_size")
    read, _ = _read(Files("consumequeue_ext", paths, "t", 0), read_ext)
    assert read[: len(units)] == units
    one = ConsumeQueueExt(folder / "consumequeue_ext/t/0", size, read_only=True)
    one.load()
    assert one.min_address <= one.max_address
    for pos, length, tags_code, when, bit_map in read:
        assert raw[pos + 20 : pos + length] == bit_map
        got = one.get(pos - (1 << 63))
        assert got is None or got == (tags_code, when, bit_map)
    for address in (one.min_address, one.max_address, *range(-(1 << 63), len(raw) - (1 << 63), 13)):
        one.get(address)


def index(data: bytes, folder: Path) -> None:
    """An index file; byte 0 is the number of hash slots, 0: find it out."""
    if len(data) < 2:
        return
    raw, slots = data[1:], data[0] or None
    (folder / "index").mkdir()
    path = folder / "index/20240101000000000"
    path.write_bytes(raw)
    try:
        found = [_index_of(path, slots) for _ in range(2)]
    except ValueError:
        assert slots is not None and 40 + 4 * slots > len(raw), "the file is too small for this number of slots"
        return
    assert found[0] == found[1]
    has, room, units = found[0]
    with IndexFile(path) as file:
        if not has or not room or file.slots != has:  # the index does not trust the given number of slots
            return
    _, _, entries = oracle.index_file(raw, has)
    for number, key_hash, phy_offset, _, previous, _, _ in units:
        assert entries[number][:2] == (key_hash, phy_offset) and entries[number].previous == previous
    offsets = {entry.phy_offset for entry in entries}
    for read_only in (True, False):
        keys = KeyIndex(folder / "index", has, room + 1, read_only=read_only)
        keys.load()
        keys.check()
        for key in ("k1", "k2", "Aa", "BB", ""):
            assert _looked_up(keys, key) <= offsets
        keys.close()


def _index_of(path: Path, slots: int | None) -> tuple[int | None, int | None, list[Any]]:
    with IndexFile(path, slots) as file:
        told: list[Fault] = []
        good = [unit for some in read_index(file, Faults(told.append)) for unit in some]
        units = [unit for some in file.units() for unit in some]
        assert good == [unit for unit in units if unit[-1] is None]
        used, bad, where = file.check_slots()
        assert bad <= used and len(where) == min(bad, 100)
        return file.slots, file.capacity, units


def _looked_up(keys: KeyIndex, key: str) -> set[int]:
    """Offsets that the index has for a key, up to the damage: each unit at most once, whatever its chains are."""
    found: list[int] = []
    try:
        for phy_offset in keys.offsets("topic", key):
            found.append(phy_offset)
            assert len(found) <= keys.units * (len(keys.files) + 1), "an endless chain"
    except CorruptRecordError as error:
        assert error.reason == "bad_chain"
    return set(found)


def checkpoint(data: bytes, folder: Path) -> None:
    path = folder / "checkpoint"
    path.write_bytes(data)
    found = _checkpoint.read(path)
    assert _checkpoint.flushed_offset(path, found) >= -1
    try:
        decoded = _checkpoint.decode(data)
    except ValueError:
        assert len(data) < _checkpoint.LEAST_BYTES and found == _checkpoint.NOTHING
        return
    assert tuple(decoded) == tuple(oracle.checkpoint(data))
    assert found in (decoded, _checkpoint.NOTHING)
    assert _checkpoint.encode(decoded)[:40] == data[:40]
    assert _checkpoint.decode(_checkpoint.encode(decoded)) == decoded
    _checkpoint.write(path, decoded)
    assert path.read_bytes()[:40] == data[:40]
