"""_index_reader compared with the oracle and with RocketMQ's files and output; damaged and hostile files."""

import json
import os
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle, stores
from support.index_files import SPECIFIED, T0, index_bytes

from rocketc import errors
from rocketc.derived._index_reader import IndexFile

TOLD = json.loads((stores.FOLDER / "queues-and-index.json").read_text())


def some_entries(count, step=7919):
    return [((i * step * 104729) & 0x7FFFFFFF, 100 * i, i // 10) for i in range(1, count + 1)]


@pytest.fixture
def index(tmp_path):
    """index(data, slots=None): the IndexFile of these bytes."""

    def make(data, slots=None):
        path = tmp_path / "20261121081424858"
        path.write_bytes(data)
        return IndexFile(path, slots)

    return make


def all_units(file):
    return [unit for block in file.units() for unit in block]


def faults(file):
    return {number: fault for number, *_, fault in all_units(file) if fault}


# ---------------------------------------------------------------- golden files


def test_the_file_of_the_specification(index):
    with index(SPECIFIED) as file:
        assert file.header == (T0, T0 + 3999, 0, 266, 2, 4)
        assert (file.slots, file.capacity, file.count, file.fault) == (10, 3, 3, None)
        assert file.check_slots() == (2, 0, [])
        assert all_units(file) == [
            (1, 2746024, 0, T0, 0, 4, None),
            (2, 2746024, 133, T0 + 2000, 1, 4, None),
            (3, 2746025, 266, T0 + 3000, 0, 5, None),
        ]
        assert [unit[0] for block in file.units(3) for unit in block] == [3]
        assert list(file.units(4)) == []


@pytest.mark.parametrize("name", stores.NAMES)
def test_files_are_read_as_by_the_oracle(golden, name):
    store = golden(name)
    slots = int(store.about["config"]["maxHashSlotNum"])
    for path in sorted((store.path / "index").iterdir()):
        header, chains, entries = oracle.index_file(path.read_bytes(), slots)
        with IndexFile(path) as file:
            assert (file.slots, file.capacity, file.fault) == (slots, len(entries) - 1, None)
            assert (file.header, file.count) == (header, header.index_count - 1)
            assert file.check_slots() == (header.hash_slot_count, 0, [])
            assert [(u[0], u[1], u[2], u[3], u[4], u[5], u[6]) for u in all_units(file)] == [
                (n, e.key_hash, e.phy_offset, header.begin_timestamp + 1000 * e.seconds, e.previous,
                 e.key_hash % slots, None)
                for n, e in enumerate(entries[1 : header.index_count], 1)
            ]  # fmt: skip
        assert sum(chain > 0 for chain in chains) == header.hash_slot_count


@pytest.mark.parametrize("name", stores.WHOLE)
def test_headers_are_those_that_rocketmq_prints(golden, name):
    for told in TOLD[name]["index"]:
        with IndexFile(golden(name).path / "index" / told.pop("file")) as file:
            assert dict(zip(told, file.header, strict=True)) == told


@pytest.mark.parametrize("name", stores.DAMAGED)
def test_headers_of_damaged_stores_are_those_that_rocketmq_loads(golden, name):
    """Only the first file: RocketMQ deleted the second one and built it again."""
    store = golden(name)
    told = (store.recovered.get("clean start") or store.recovered)["afterLoad"]["index"][0]
    with IndexFile(min((store.path / "index").iterdir())) as file:
        assert file.header == (
            told["beginTimestamp"], told["endTimestamp"], told["beginPhyOffset"], told["endPhyOffset"],
            told["hashSlotCount"], told["indexCount"],
        )  # fmt: skip


@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "flights-2013-01"])
def test_units_refer_to_the_messages_with_their_keys(golden, name):
    store = golden(name)
    messages = {m["phyOffset"]: m for m in store.messages}
    seen = 0
    for path in sorted((store.path / "index").iterdir()):
        with IndexFile(path) as file:
            for number, key_hash, phy_offset, when, _, _, _ in all_units(file):
                m = messages[phy_offset]
                keys = [m["properties"].get("UNIQ_KEY", ""), *m["properties"].get("KEYS", "").split(" ")]
                assert key_hash in {oracle.key_hash(m["topic"], key) for key in keys if key}
                if number > 1:  # the first unit of a file counts from the end of the previous file
                    assert 0 <= m["storeTimestamp"] - when < 1000
                seen += 1
    assert seen > len(messages)


# ---------------------------------------------------------------- how many slots


@given(st.integers(1, 400), st.integers(1, 120), st.data())
@settings(max_examples=150)
def test_the_number_of_slots_is_detected(tmp_path_factory, slots, count, data):
    room = count + 1 + data.draw(st.integers(0, 300))
    hashes = data.draw(st.lists(st.integers(1, 2**31 - 1), min_size=count, max_size=count))
    entries = [(key_hash, 1 + 100 * i, i) for i, key_hash in enumerate(hashes)]
    path = tmp_path_factory.mktemp("index") / "20261121081424858"
    path.write_bytes(index_bytes(slots, room, entries))
    with IndexFile(path) as file:
        assert (file.slots, file.count, file.capacity, file.fault) == (slots, count, room - 1, None)
        assert [unit[1:3] for unit in all_units(file)] == [entry[:2] for entry in entries]
        assert faults(file) == {}


def test_no_layout_is_detected_in_an_empty_file_of_unusual_size(index):
    with index(bytes(40 + 4 * 10 + 20 * 4)) as file:
        assert (file.slots, file.capacity, file.count, file.fault) == (None, None, 0, None)
        assert (all_units(file), file.check_slots()) == ([], (0, 0, []))


@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
def test_the_last_unit_may_not_be_counted_yet(index, count):
    """The writer was killed, or is between writing the unit and the header."""
    data = bytearray(index_bytes(100, 90, some_entries(count + 1)))
    data[36:40] = struct.pack(">i", count + 1)
    with index(data) as file:
        assert (file.slots, file.count, faults(file)) == (100, count, {})


def test_no_layout_is_detected_if_units_and_slots_disagree(index):
    data = bytearray(index_bytes(100, 90, some_entries(50)))
    data[36:40] = struct.pack(">i", 40)  # the header is not up to date
    with index(data) as file:
        assert (file.slots, file.fault, all_units(file)) == (None, "unknown_slots", [])
    with index(data, slots=100) as file:
        assert (file.slots, file.fault, len(all_units(file))) == (100, None, 39)


@pytest.mark.parametrize("count", [8, 200])
def test_a_few_damaged_units_do_not_hide_the_layout(index, count):
    data = bytearray(index_bytes(100, 300, some_entries(count)))
    for number in range(2, count, 7):
        data[440 + 20 * number] ^= 0x80
    with index(data) as file:
        assert file.slots == 100
        assert faults(file).keys() >= set(range(2, count, 7))


@pytest.mark.parametrize("slots", [0, -1, 31, 1 << 31, 1 << 80])
def test_more_slots_than_the_file_can_have(index, slots):
    with pytest.raises(ValueError, match=f"an index file of 160 bytes can't have {slots} slots"):
        index(SPECIFIED, slots)


@pytest.mark.measure
def test_a_file_of_the_default_size(tmp_path):
    """5,000,000 slots and 20,000,000 units, nearly all of it a hole: read in one call, with little memory."""
    path = tmp_path / "20261121081424858"
    slots, entries = 5_000_000, some_entries(3000)
    with open(path, "wb") as out:
        out.truncate(420_000_040)
        chains = {}
        for number, (key_hash, phy_offset, seconds) in enumerate(entries, 1):
            slot = key_hash % slots
            out.seek(40 + 4 * slots + 20 * number)
            out.write(struct.pack(">iqii", key_hash, phy_offset, seconds, chains.get(slot, 0)))
            chains[slot] = number
            out.seek(40 + 4 * slot)
            out.write(struct.pack(">i", number))
        out.seek(0)
        out.write(struct.pack(">qqqqii", T0, T0, 100, 300_000, len(chains), len(entries) + 1))
    tracemalloc.start()
    with IndexFile(path) as file:
        assert (file.slots, file.capacity, file.count, file.fault) == (slots, 19_999_999, 3000, None)
        assert [unit[1:3] for unit in all_units(file)] == [entry[:2] for entry in entries]
        assert faults(file) == {}
        assert file.check_slots() == (len(chains), 0, [])
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


def test_an_empty_file_of_the_default_size(tmp_path):
    path = tmp_path / "20261121081424858"
    with open(path, "wb") as out:
        out.truncate(420_000_040)
    with IndexFile(path) as file:
        assert (file.slots, file.count, file.fault, all_units(file)) == (5_000_000, 0, None, [])


# ---------------------------------------------------------------- damage


def damaged(number, **fields):
    """Return a file of 100 slots and 50 units in which one unit has other values."""
    data = bytearray(index_bytes(100, 90, some_entries(50)))
    at = 40 + 400 + 20 * number
    values = dict(zip(["key_hash", "phy_offset", "seconds", "previous"], struct.unpack_from(">iqii", data, at)))  # noqa: B905
    struct.pack_into(">iqii", data, at, *(values | fields).values())
    return data


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"key_hash": -1}, "bad_key_hash"),
        ({"phy_offset": -1}, "bad_phy_offset"),
        ({"seconds": -1}, "bad_time_diff"),
        ({"previous": -1}, "bad_previous"),
        ({"previous": 20}, "bad_previous"),  # the unit itself
        ({"previous": 21}, "bad_previous"),
        ({"previous": 1 << 30}, "bad_previous"),
        ({"previous": 1}, "bad_chain"),  # a unit of another slot
    ],
)
def test_every_error_of_a_unit(index, fields, fault):
    with index(damaged(20, **fields)) as file:
        assert faults(file)[20] == fault


def test_a_unit_that_cannot_be_reached_from_its_slot(index):
    data = bytearray(index_bytes(100, 90, some_entries(50)))
    with index(data) as file:
        newest = {unit[5]: unit[0] for unit in all_units(file)}
    slot, number = newest.popitem()
    for value in (0, number - 1, -1, 51, 1 << 30):
        data[40 + 4 * slot : 44 + 4 * slot] = struct.pack(">i", value)
        with index(data) as file:
            in_use, bad, where = file.check_slots()
            assert (number in faults(file)) is (value != 51)  # 51: a writer is about to write this unit
            assert (bad, where) == ((1, [slot]) if value in (-1, 1 << 30) else (0, []))
            assert in_use == len(newest) + (value != 0)


def test_zeroed_units_are_skipped(index):
    data = bytearray(index_bytes(100, 90, some_entries(50)))
    data[440 + 20 * 10 : 440 + 20 * 12] = bytes(40)
    with index(data) as file:
        assert [unit[0] for unit in all_units(file)] == [*range(1, 10), *range(12, 51)]


def test_more_units_than_fit(index):
    data = bytearray(index_bytes(100, 51, some_entries(50)))
    for count in (52, 1 << 30, (1 << 31) - 1, -5):
        data[36:40] = struct.pack(">i", count)
        with index(data, slots=100) as file:
            assert (file.fault, file.count) == ("bad_count", 50 if count > 0 else 0)
            assert len(all_units(file)) == file.count


def test_a_file_cut_short(index):
    data = index_bytes(100, 60, some_entries(50))
    for length in (0, 1, 39):
        with index(data[:length]) as file:
            assert (file.fault, all_units(file)) == ("short_header", [])
    for length in range(40, len(data), 13):
        with index(data[:length]) as file:
            assert file.slots in (None, 100)
            list(file.units())
        if length >= 440:
            with index(data[:length], slots=100) as file:
                assert file.fault == ("torn" if (length - 440) % 20 else "bad_count" if length < 1460 else None)
                assert len(all_units(file)) == max(min(50, (length - 440) // 20 - 1), 0)


@given(st.binary(max_size=400), st.none() | st.integers(1, 90))
def test_garbage_is_read_to_its_end(tmp_path_factory, data, slots):
    path = tmp_path_factory.mktemp("index") / "20261121081424858"
    path.write_bytes(data)
    try:
        file = IndexFile(path, slots)
    except ValueError:
        assert 40 + 4 * slots > len(data)
        return
    with file:
        assert len(all_units(file)) <= max(len(data) // 20, 0)
        file.check_slots()


def test_the_time_of_a_unit_wraps_as_javas_does(index):
    data = index_bytes(10, 5, [(7, 100, 2**31 - 1)], begin=(1 << 63) - 1 - 2000 * (2**31 - 1))
    data = struct.pack(">q", (1 << 63) - 1) + data[8:]
    with index(data, slots=10) as file:
        [unit] = all_units(file)
        assert unit[3] == (1 << 63) - 1 + 1000 * (2**31 - 1) - (1 << 64)


def test_missing_folder_and_closed(tmp_path, index):
    with pytest.raises(errors.StoreIOError, match="No such file"):
        IndexFile(tmp_path / "none")
    with pytest.raises(errors.StoreIOError, match="directory"):
        IndexFile(tmp_path)
    file = index(SPECIFIED)
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 1
    file.close()
    file.close()
    assert before == 1 or len(os.listdir("/proc/self/fd")) == before - 1
    with pytest.raises(errors.StoreIOError):
        list(file.units())
