"""_queue_units against the oracle, against what RocketMQ wrote, and with bytes that nobody wrote."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle, stores

from rocketc._layout import BCQ_UNIT_BYTES, CQ_UNIT_BYTES
from rocketc.format import _queue_units as cq

I64, I32, I16 = (st.integers(-1 << bits, (1 << bits) - 1) for bits in (63, 31, 15))
TOLD = json.loads((stores.FOLDER / "queues-and-index.json").read_text())


def queue_files(store, kind="consumequeue"):
    """(topic, queue id) -> its files in order."""
    out: dict[tuple[str, int], list[Path]] = {}
    for path in sorted(store.path.glob(f"{kind}/*/*/*")):
        out.setdefault((path.parent.parent.name, int(path.parent.name)), []).append(path)
    return out


def units_of(files, decode=cq.decode_units, size=CQ_UNIT_BYTES):
    return [unit for path in files for unit in decode(path.read_bytes(), int(path.name) // size)]


# ---------------------------------------------------------------- golden stores


@pytest.mark.parametrize("name", stores.NAMES)
def test_units_are_those_of_the_oracle(golden, name):
    seen = 0
    for files in queue_files(golden(name)).values():
        for path in files:
            mine = cq.decode_units(path.read_bytes(), int(path.name) // 20)
            plain = oracle.queue_units(path.read_bytes())
            assert [u[1:4] for u in mine] == [tuple(u) for u in plain if u != (0, 0, 0)]
            assert [u[0] for u in mine] == [int(path.name) // 20 + i for i in range(len(mine))]  # no hole in between
            assert {u[4] for u in mine} <= {None}
            seen += len(mine)
    assert seen > 500


@pytest.mark.parametrize("name", stores.WHOLE)
def test_units_are_those_that_rocketmq_tells_of(golden, name):
    queues, batches = queue_files(golden(name)), queue_files(golden(name), "batchconsumequeue")
    for told in TOLD[name]["queues"]:
        queue = told["topic"], told["queueId"]
        if queue in batches:
            last = units_of(batches[queue], cq.decode_batch_units, BCQ_UNIT_BYTES)[-1]
            assert last[5] + last[6] == told["max"]
        else:
            assert len(units_of(queues.get(queue, []))) == told["max"] - told["min"]


@pytest.mark.parametrize("name", stores.WHOLE)
def test_units_say_where_the_messages_are(golden, name):
    """Each message of the log has its unit, with the hash of its tags; and no queue but LMQs has others."""
    store = golden(name)
    units = {(*queue, unit[0]): unit[1:] for queue, files in queue_files(store).items() for unit in units_of(files)}
    for m in store.messages:
        transaction, is_batch = m["sysFlag"] & 0xC, m["sysFlag"] & oracle.INNER_BATCH
        if transaction in (0x4, 0xC) or is_batch:  # prepared, rolled back: not for consumers
            continue
        phy_offset, size, code, fault = units.pop((m["topic"], m["queueId"], m["queueOffset"]))
        assert (phy_offset, size, fault) == (m["phyOffset"], m["size"], None)
        if m["topic"] == "SCHEDULE_TOPIC_XXXX" and int(m["properties"].get("DELAY", 0)) > 0:
            assert m["storeTimestamp"] + 1000 <= code <= m["storeTimestamp"] + 7_200_000
        else:
            assert code == oracle.tags_code(m["properties"].get("TAGS"))
    assert all(topic.startswith("%LMQ%") for topic, _, _ in units)


def test_batch_units_are_those_of_the_oracle_and_of_the_log(golden):
    store = golden("v533-broker")
    batches = {m["phyOffset"]: m for m in store.messages if m["sysFlag"] & oracle.INNER_BATCH}
    queues = queue_files(store, "batchconsumequeue")
    assert len(queues) == 2
    for (topic, queue_id), files in queues.items():
        for path in files:
            mine = cq.decode_batch_units(path.read_bytes())
            assert [u[1:9] for u in mine] == [tuple(u) for u in oracle.batch_queue_units(path.read_bytes()) if any(u)]
            for _, phy_offset, size, _, when, base, count, compacted, reserved, fault in mine:
                m = batches.pop(phy_offset)
                assert (topic, queue_id, size) == (m["topic"], m["queueId"], m["size"])
                assert (base, str(count)) == (m["queueOffset"], m["properties"]["INNER_NUM"])
                assert (when, compacted, reserved, fault) == (m["storeTimestamp"], -1, 0, None)
    assert not batches


# ---------------------------------------------------------------- bytes of our own


def why(phy_offset, size):
    if size <= 0:
        return "bad_size"
    return "bad_phy_offset" if phy_offset < 0 or phy_offset + size >= 1 << 63 else None


@given(st.lists(st.tuples(I64, I32, I64) | st.just((0, 0, 0)) | st.just((0, 0x7FFFFFFF, 0))), st.integers(0, 1 << 40))
def test_any_units_are_read_as_the_oracle_reads_them(rows, first):
    data = b"".join(struct.pack(">qiq", *row) for row in rows)
    assert [tuple(u) for u in oracle.queue_units(data)] == rows
    expected = [
        (first + i, *row, cq.PRE_BLANK if row == (0, 0x7FFFFFFF, 0) else why(*row[:2]))
        for i, row in enumerate(rows)
        if row != (0, 0, 0)
    ]
    assert cq.decode_units(data, first) == expected


@given(st.lists(st.tuples(I64, I32, I64, I64, I64, I16, I32, I32) | st.just((0,) * 8)), st.integers(0, 1 << 40))
def test_any_batch_units_are_read_as_the_oracle_reads_them(rows, first):
    data = b"".join(struct.pack(">qiqqqhii", *row) for row in rows)
    assert [tuple(u) for u in oracle.batch_queue_units(data)] == rows
    mine = cq.decode_batch_units(data, first)
    assert [u[:9] for u in mine] == [(first + i, *row) for i, row in enumerate(rows) if any(row)]
    for _, phy_offset, size, _, _, base, count, _, _, fault in mine:
        expected = why(phy_offset, size)
        if expected is None and count <= 0:
            expected = "bad_batch_size"
        if expected is None and not 0 <= base < (1 << 63) - count:
            expected = "bad_base_offset"
        assert fault == expected


@pytest.mark.parametrize(
    ("decode", "unit"),
    [
        (cq.decode_units, struct.pack(">qiq", 100, 91, 5)),
        (cq.decode_batch_units, struct.pack(">qiqqqhii", 100, 91, 5, 6, 7, 8, -1, 0)),
    ],
)
def test_a_torn_unit_is_left_alone(decode, unit):
    whole = decode(2 * unit)
    for length in range(2 * len(unit) + 1):
        assert decode((2 * unit)[:length]) == whole[: length // len(unit)]
    assert decode(memoryview(bytearray(2 * unit))) == whole


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ((0, 91, 0, 0, 0, 1, -1, 0), None),
        ((0, 0, 1, 0, 0, 1, -1, 0), "bad_size"),
        ((0, -91, 0, 0, 0, 1, -1, 0), "bad_size"),
        ((-1, 91, 0, 0, 0, 1, -1, 0), "bad_phy_offset"),
        (((1 << 63) - 91, 91, 0, 0, 0, 1, -1, 0), "bad_phy_offset"),
        (((1 << 63) - 92, 91, 0, 0, 0, 1, -1, 0), None),
        ((0, 91, 0, 0, 0, 0, -1, 0), "bad_batch_size"),
        ((0, 91, 0, 0, 0, -5, -1, 0), "bad_batch_size"),
        ((0, 91, 0, 0, -1, 1, -1, 0), "bad_base_offset"),
        ((0, 91, 0, 0, (1 << 63) - 1, 1, -1, 0), "bad_base_offset"),
    ],
)
def test_every_fault_of_a_batch_unit(fields, fault):
    [unit] = cq.decode_batch_units(struct.pack(">qiqqqhii", *fields))
    assert unit[-1] == fault


# ---------------------------------------------------------------- ext files


def ext_unit(bits=b"", tags_code=1, when=2):
    return struct.pack(">hqqh", 20 + len(bits), tags_code, when, len(bits)) + bits


@given(st.lists(st.tuples(st.binary(max_size=40), I64, I64)), st.integers(0, 1 << 40))
def test_any_ext_units(rows, start):
    data = b"".join(ext_unit(*row) for row in rows)
    expected, pos = [], start
    for bits, code, when in rows:
        expected.append((pos, 20 + len(bits), code, when, bits))
        pos += 20 + len(bits)
    assert cq.decode_ext_units(data, start) == (expected, len(data), cq.EXT_MORE)
    assert cq.decode_ext_units(data + b"\xff\xff", start) == (expected, len(data), cq.EXT_END)
    assert cq.decode_ext_units(data + bytes(2), start) == (expected, len(data), cq.EXT_UNUSED)
    for torn in range(1, len(data[-20:])):
        units, taken, reason = cq.decode_ext_units(data[:-torn], start)
        assert (units, reason) == (expected[:-1], cq.EXT_MORE)
        assert taken == sum(unit[1] for unit in units)


def test_the_longest_ext_unit():
    unit = ext_unit(bytes(range(256)) * 127 + bytes(32767 - 20 - 256 * 127))
    assert len(unit) == 32767
    [(pos, size, _, _, bits)], taken, reason = cq.decode_ext_units(unit + unit[:-1])
    assert (pos, size, bits, taken, reason) == (0, 32767, unit[20:], 32767, cq.EXT_MORE)


@pytest.mark.parametrize("size", [1, 19, -2, -32768])
def test_a_size_that_no_ext_unit_has(size):
    data = ext_unit(b"ab") + struct.pack(">h", size) + bytes(100)
    units, taken, reason = cq.decode_ext_units(data)
    assert (len(units), taken, reason) == (1, 22, "bad_size")


@pytest.mark.parametrize("bit_map_size", [-1, 0, 1, 3, 32767])
def test_a_bit_map_that_does_not_fill_its_unit(bit_map_size):
    data = struct.pack(">hqqh", 22, 1, 2, bit_map_size) + bytes(100)
    assert cq.decode_ext_units(data) == ([], 0, "bad_bit_map_size")


@given(st.binary(max_size=300))
def test_garbage_is_no_ext_unit_by_chance_beyond_its_bytes(data):
    units, taken, reason = cq.decode_ext_units(data)
    assert taken == sum(unit[1] for unit in units) <= len(data)
    assert reason in {cq.EXT_MORE, cq.EXT_END, cq.EXT_UNUSED, "bad_size", "bad_bit_map_size"}
