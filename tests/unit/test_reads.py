"""_reads: get() over logs and queues that the oracle laid out."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from laid_down import FILE, bodies, lay_down, reader

from rocketc import CorruptRecordError, CorruptUnitError, GetStatus
from rocketc._reads import QueueReader


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., QueueReader]:
    """read(messages, **fields): a QueueReader over a log of them."""

    def make(messages: Iterable[Mapping[str, Any]], *, base: int = 0, batch: Iterable[str] = (), **fields: Any) -> Any:
        lay_down(tmp_path, messages, base=base, batch=batch)
        return reader(tmp_path, **fields)

    return make


# 8.1: statuses and next offsets


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, "OFFSET_TOO_SMALL", 0),
        (0, "FOUND", 3),
        (2, "FOUND", 3),
        (3, "OFFSET_OVERFLOW_ONE", 3),
        (4, "OFFSET_OVERFLOW_BADLY", 3),
        (1 << 62, "OFFSET_OVERFLOW_BADLY", 3),
    ],
)
def test_status_and_next_offset(read, offset, status, next_offset):
    found = read(bodies(3)).get("orders", 1, offset)
    assert (found.status.name, found.next_offset) == (status, next_offset)
    assert (found.min_offset, found.max_offset) == (0, 3)
    assert [m.body for m in found] == [b"0", b"1", b"2"][max(offset, 0) :] * (status == "FOUND")
    assert bool(found) == (status == "FOUND")


def test_an_unknown_queue_has_no_messages(read):
    reader = read(bodies(1))
    for where in [("none", 1), ("orders", 0), ("orders", -1), ("\udcff", 1)]:
        found = reader.get(*where, 7)
        assert (found.status, found.next_offset, found.max_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)
        assert list(found) == [] and found.buffer == b"" and not found


@pytest.mark.parametrize("check", [False, True])
def test_a_slave_keeps_the_offset_unless_told(read, check):
    reader = read(bodies(3), broker_role="SLAVE", offset_check_in_slave=check)
    assert reader.get("orders", 1, 9).next_offset == (3 if check else 9)
    assert reader.get("orders", 1, -5).next_offset == (0 if check else -5)
    assert reader.get("none", 1, 5).next_offset == (0 if check else 5)


def test_a_message_is_what_was_stored(read):
    reader = read(bodies(2, properties={"TAGS": "A", "KEYS": "k1 k2", "x": "y"}, born_host=("10.1.2.3", 5)))
    found = reader.get("orders", 1)
    [first, second] = found
    assert (first.topic, first.queue_id, first.queue_offset, first.phy_offset) == ("orders", 1, 0, 0)
    assert first.properties == {"TAGS": "A", "KEYS": "k1 k2", "x": "y"}
    assert (second.tags, second.keys, second.born_host) == ("A", "k1 k2", "10.1.2.3:5")
    assert first.record + second.record == found.buffer
    assert found.phy_offsets == [first.phy_offset, second.phy_offset] and found.queue_offsets == [0, 1]
    assert second.file.endswith("/commitlog/" + "0" * 20)
    assert found[1] == second and found[-2:] == [first, second] and len(found) == 2


def test_messages_of_several_log_files_say_which(read, tmp_path):
    found = read(bodies(150, properties={"x": "y" * 1000})).get("orders", 1, 0, 1000)
    assert [m.queue_offset for m in found] == list(range(150))
    assert {m.file for m in found} == {str(path) for path in (tmp_path / "commitlog").iterdir()}
    for m in found:
        assert int(os.path.basename(m.file)) == m.phy_offset // FILE * FILE


# damage


@pytest.mark.parametrize("to", [b"\0" * 8, b"\x7f" * 8, b"\0\0\0\0\0\0\0\x01"])
def test_a_unit_that_names_no_record_is_damage(read, tmp_path, to):
    read(bodies(3))
    path = tmp_path / "consumequeue/orders/1" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[20:28] = to
    path.write_bytes(data)
    again = reader(tmp_path)
    first = again.get("orders", 1)
    assert [m.queue_offset for m in first] == [0] and first.next_offset == 1
    assert first.buffer == first[0].record
    with pytest.raises(CorruptUnitError, match=r"damage at byte 20: .*rocketc rebuild") as caught:
        again.get("orders", 1, 1)
    assert (caught.value.file, caught.value.offset) == (str(path), 20)
    assert [m.queue_offset for m in again.get("orders", 1, 2)] == [2]


def test_a_damaged_body_is_told(read, tmp_path):
    read(bodies(2))
    log = tmp_path / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[88] ^= 1
    log.write_bytes(data)
    again = reader(tmp_path)
    with pytest.raises(CorruptRecordError, match="bad_body_crc; crc='none'"):
        again.get("orders", 1)
    assert [m.body for m in again.get("orders", 1, crc="none")] == [b"1", b"1"]
