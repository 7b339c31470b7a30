"""_consume_queue_ext: compared with the bytes of the specification; cuts, damage and a full disk."""

import os
import struct
from pathlib import Path

import pytest

from rocketc.derived._consume_queue_ext import ConsumeQueueExt
from rocketc.errors import StoreIOError

UNIT = struct.Struct(">hqqh")
FIRST = -(1 << 63)  # address of offset 0
MAX_ADDRESS = -2147483649


@pytest.fixture
def ext(tmp_path):
    """ext(file_size=200): the extension in `ext/T/0`, loaded."""

    def make(file_size=200, **fields):
        one = ConsumeQueueExt(tmp_path / "ext" / "T" / "0", file_size, **fields)
        assert one.load() == 0
        return one

    return make


def encoded(tags_code, time, bit_map=b""):
    return UNIT.pack(20 + len(bit_map), tags_code, time, len(bit_map)) + bit_map


def contents(one):
    folder = Path(one.folder)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.exists() else {}


def fill(one, count, bit_map=b""):
    return [one.put(n * 7, 1000 + n, bit_map) for n in range(count)]


def test_units_are_those_of_the_specification(ext):
    one = ext()
    assert one.put(-5, 1_700_000_000_123) == FIRST
    assert one.put(1 << 40, 7, b"\1\2\3") == FIRST + 20
    data = encoded(-5, 1_700_000_000_123) + encoded(1 << 40, 7, b"\1\2\3")
    assert contents(one) == {"0" * 20: data.ljust(200, b"\0")}
    assert one.get(FIRST) == (-5, 1_700_000_000_123, b"")
    assert one.get(FIRST + 20) == (1 << 40, 7, b"\1\2\3")


def test_addresses_and_units_with_and_without_a_bit_map(ext):
    """RocketMQ's putAndGet: each address is negative and returns an equal unit."""
    one = ext(1000)
    told = {}
    for n in range(100):
        bit_map = bytes([n]) * (n % 3 * 8)
        told[one.put(n, 10 * n, bit_map)] = (n, 10 * n, bit_map)
    assert len(told) == 100
    assert all(address <= MAX_ADDRESS for address in told)
    assert {address: one.get(address) for address in told} == told


def test_other_addresses_are_without_a_unit(ext):
    one = ext()
    fill(one, 3)
    for address in (0, 1, -1, MAX_ADDRESS + 1, MAX_ADDRESS, FIRST + 60, FIRST + 10, one.max_address):
        assert one.get(address) is None


def test_four_bytes_of_each_file_stay_free(ext):
    """A file of 64 bytes has 3 units, which end at 60. The end of a file says where the next unit is."""
    one = ext(64)
    addresses = fill(one, 7)
    assert addresses == [FIRST + at for at in (0, 20, 40, 64, 84, 104, 128)]
    units = [encoded(n * 7, 1000 + n) for n in range(7)]
    assert contents(one) == {
        f"{0:020}": b"".join(units[:3]) + b"\xff\xff\0\0",
        f"{64:020}": b"".join(units[3:6]) + b"\xff\xff\0\0",
        f"{128:020}": units[6].ljust(64, b"\0"),
    }
    assert (one.min_address, one.max_address) == (FIRST, FIRST + 148)


def test_a_unit_larger_than_a_file(ext):
    one = ext(64)
    assert one.put(1, 2, bytes(41)) is None
    assert one.put(1, 2, bytes(32768)) is None
    assert contents(one) == {}
    assert one.put(1, 2, bytes(40)) == FIRST
    assert one.put(1, 2) == FIRST + 64


@pytest.mark.parametrize("count", range(13))
def test_existing_units_are_loaded(ext, count):
    """As in RocketMQ's recovery, min is -2**63 and max is after the last unit. The next put continues there."""
    one = ext(64)
    addresses = fill(one, count)
    end = one.max_address
    one.flush()
    del one
    one = ext(64)
    assert one.min_address == FIRST
    assert one.max_address == end
    assert [one.get(a) for a in addresses] == [(n * 7, 1000 + n, b"") for n in range(count)]
    assert one.put(1, 2) == FIRST + count // 3 * 64 + count % 3 * 20
    assert one.get(one.max_address - 20) == (1, 2, b"")


def test_truncate_by_min(ext):
    """RocketMQ's test: truncation to 1.5 files deletes the first one."""
    one = ext(64)
    addresses = fill(one, 9)
    assert one.truncate_by_min(FIRST + 96) == 1
    assert one.min_address == FIRST + 64
    assert one.get(addresses[0]) is None
    assert one.get(addresses[3]) == (21, 1003, b"")
    assert one.truncate_by_min(FIRST + 128) == 0  # a file that ends there is kept
    assert one.truncate_by_min(FIRST + (1 << 40)) == 1  # the last file is kept
    assert one.min_address == FIRST + 128
    assert one.truncate_by_min(0) == 0


@pytest.mark.parametrize("keep", range(1, 10))
def test_truncate_by_max(ext, keep):
    """RocketMQ's test: the rest ends after that unit, and putting the same units again writes the same bytes."""
    one = ext(64)
    addresses = fill(one, 9)
    before = contents(one)
    one.truncate_by_max(addresses[keep - 1])
    assert one.max_address == addresses[keep - 1] + 20
    assert [one.get(a) is not None for a in addresses] == [n < keep for n in range(9)]
    assert sum(len(data.rstrip(b"\0")) > 0 for data in contents(one).values()) == (keep + 2) // 3
    assert [one.put(n * 7, 1000 + n) for n in range(keep, 9)] == addresses[keep:]
    assert contents(one) == before


def test_truncate_by_max_without_such_a_unit(ext):
    one = ext(64)
    fill(one, 4)
    before = contents(one)
    for address in (0, FIRST + 1, FIRST + 400, MAX_ADDRESS):
        one.truncate_by_max(address)
    assert contents(one) == before


def test_clear(ext):
    one = ext(64)
    fill(one, 9)
    one.clear()
    assert contents(one) == {}
    assert one.put(1, 2) == FIRST


@pytest.mark.parametrize("keep", range(10))
@pytest.mark.parametrize("damage", [None, 5, 62, 70, 140])
def test_units_are_written_again(ext, keep, damage):
    """Units are written again from some unit on: only damaged bytes change, and addresses stay."""
    one = ext(64)
    addresses = fill(one, 9)
    one.flush()
    before = contents(one)
    for path in Path(one.folder).iterdir():
        if damage is not None and int(path.name) <= damage < int(path.name) + 64:
            data = bytearray(path.read_bytes())
            data[damage - int(path.name)] ^= 1
            path.write_bytes(bytes(data))
        os.utime(path, (1, 1))
    del one
    one = ext(64)
    last = addresses[keep - 1] if keep else 0
    one.begin(last, addresses[keep] if keep < 9 else 0)
    assert [one.put(n * 7, 1000 + n) for n in range(keep, 9)] == addresses[keep:]
    changed = one.finish()
    at = {5: 0, 62: 2, 70: 3, 140: 6}.get(damage, 9)  # the damaged unit, or the last one before damage
    assert changed == (at >= keep and damage is not None)
    if at >= keep:
        assert contents(one) == before
    if damage is None:
        assert {path.stat().st_mtime for path in Path(one.folder).iterdir()} == {1}


def test_fewer_units_are_written_again(ext):
    one = ext(64)
    addresses = fill(one, 9)
    one.begin(addresses[1], addresses[2])
    assert one.put(1, 2) == addresses[2]
    assert one.finish() == 2, "the unit and the later ones"
    assert one.max_address == addresses[2] + 20
    assert list(contents(one)) == [f"{0:020}"]
    one.begin()
    assert one.put(3, 4) == FIRST
    assert one.finish() == 2
    assert contents(one) == {f"{0:020}": encoded(3, 4).ljust(64, b"\0")}


def test_other_files_are_left_alone(ext):
    one = ext(64)
    fill(one, 4)
    folder = Path(one.folder)
    (folder / "notes").write_text("x")
    (folder / f"{128:020}").write_bytes(bytes(10))
    (folder / f"{100:020}").write_bytes(bytes(64))
    (folder / f"{256:020}").write_bytes(bytes(64))  # after a missing file
    other = ConsumeQueueExt(folder, 64)
    assert other.load() == 3
    assert other.max_address == FIRST + 84
    assert len(os.listdir(folder)) == 6


@pytest.mark.parametrize("at", [0, 1, 18, 19, 20, 21])
@pytest.mark.parametrize("byte", [0, 1, 0x7F, 0x80, 0xFF])
def test_random_bytes_are_not_a_unit(ext, at, byte):
    """Whatever the file contains, get() returns a unit or None."""
    one = ext(64)
    addresses = fill(one, 3)
    path = Path(one.folder) / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[at] = byte
    path.write_bytes(bytes(data))
    del one
    one = ext(64)
    for address in addresses:
        one.get(address)
    assert one.put(1, 2) is not None


def test_a_file_cut_short(ext):
    one = ext(1 << 16)
    addresses = fill(one, 1000)
    os.truncate(Path(one.folder) / f"{0:020}", 4096)
    with pytest.raises(StoreIOError, match="shorter"):
        one.get(addresses[-1])


def test_read_only(ext):
    one = ext(64)
    addresses = fill(one, 5)
    reader = ext(64, read_only=True)
    assert [reader.get(a) for a in addresses] == [(n * 7, 1000 + n, b"") for n in range(5)]
    assert reader.get(one.max_address) is None
    sixth, seventh = one.put(1, 2), one.put(3, 4)  # another process continues to write
    assert reader.get(sixth) == (1, 2, b"")
    assert reader.get(seventh) is None  # in a new file
    assert reader.load() == 0
    assert reader.get(seventh) == (3, 4, b"")


def test_sizes(tmp_path):
    for size in (0, 39, 1 << 31):
        with pytest.raises(ValueError, match="file_size"):
            ConsumeQueueExt(tmp_path, size)
