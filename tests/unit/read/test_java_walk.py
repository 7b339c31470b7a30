"""The scan of a file by RocketMQ's rules: it ends at the first invalid record, and returns the reason."""

import random
import struct
import zlib

import pytest
from support import oracle
from support.promise_counts import count

from rocketc.errors import StoreIOError
from rocketc.files._mapped_file import MappedFile
from rocketc.read._java_walk import JavaWalk

pytestmark = pytest.mark.promise(5)

SIZE = 4096
BASE = 5 * SIZE
NONE, BODY, FULL = 0, 1, 2
BODY_AT = 88  # of a record with two IPv4 hosts


def log_file(*changed, count=6, **fields):
    """Return the bytes of a file with `count` records, and the records. `changed`: fields of the third record."""
    sent = [
        {"topic": "t", "body": b"%d" % n * 100, "queue_offset": n, "properties": {"a": "b"}, **fields}
        for n in range(count)
    ]
    for more in changed:
        sent[2] |= more
    (data,) = (data for start, data in oracle.lay_out(sent, SIZE, base=BASE))
    return bytearray(data), oracle.records(oracle.walk_log([(BASE, bytes(data))]))


def walk(data, crc=BODY):
    found = JavaWalk(bytes(data), BASE, crc=crc)
    return found.end - BASE, found.stop - BASE, found.blank, found.reason


def spoilt(at, new, **fields):
    """Scan a file whose third record has other bytes at a position. Return the result, its start and its end."""
    data, records = log_file(**fields)
    start = records[2]["start"] - BASE
    data[start + at : start + at + len(new)] = new
    return walk(data), start, records[2]["stop"] - BASE


def test_a_whole_file():
    data, records = log_file()
    assert walk(data) == (records[-1]["stop"] - BASE, records[-1]["stop"] - BASE, False, None)
    assert walk(b"") == (0, 0, False, None)
    assert walk(bytes(SIZE)) == (0, 0, False, None)


def test_a_blank_record_ends_the_file_whatever_its_size_is():
    data, records = log_file()
    end = records[-1]["stop"] - BASE
    for size in (SIZE - end, 8, 0, -1, 1 << 30):
        data[end : end + 8] = size.to_bytes(4, "big", signed=True) + bytes.fromhex("cbd43194")
        assert walk(data) == (end, end, True, None), size


@pytest.mark.parametrize(
    ("at", "new", "reason"),
    [
        (0, b"\0\0\0\x07", "bad_size"),
        (0, b"\xff", "bad_size"),
        (0, b"\0\0\x7f\xff", "truncated"),
        (4, b"lost", "bad_magic"),
        (0, bytes(8), "zeroed"),
        (0, (91).to_bytes(4, "big"), "bad_body_length"),
        (BODY_AT - 4, b"\x7f", "bad_body_length"),
        (BODY_AT + 100, b"\xff", "bad_topic_length"),
        (BODY_AT + 100, b"\x7f", "bad_topic_length"),
        (BODY_AT + 102, b"\x7f", "bad_properties_length"),
        (BODY_AT + 102, b"\0\x01", "bad_length"),
        (8, b"\0\0\0\0", "bad_body_crc"),
        (BODY_AT, b"lost", "bad_body_crc"),
    ],
)
def test_it_ends_at_an_invalid_record(at, new, reason):
    """The next valid record shows where the damage ends."""
    assert spoilt(at, new)[0] == (*spoilt(at, new)[1:], False, reason)


@pytest.mark.parametrize(
    ("at", "new", "fields"),
    [
        (12, b"queueId, flag, queueOffset, physic", {}),  # 24 bytes of numbers that are not checked
        (40, b"born at!", {}),
        (BODY_AT - 4, b"\xff", {"body": b""}),
        (BODY_AT + 2, b"\xff", {"body": b"", "properties": {}}),
        (8, b"lost", {"body": b""}),
    ],
)
def test_it_continues_if_only_unchecked_fields_are_damaged(at, new, fields):
    (end, _, _, reason), _, _ = spoilt(at, new[:24], **fields)
    assert reason is None
    assert end == log_file(**fields)[1][-1]["stop"] - BASE


def test_the_rest_of_a_file_without_a_record():
    data, records = log_file()
    start = records[4]["start"] - BASE
    data[start : start + 8] = b"rubbish!"
    del data[records[4]["stop"] - BASE :]
    data += bytes(100)
    end, stop, blank, reason = walk(data)
    assert (end, blank, reason) == (start, False, "bad_magic")
    assert stop == len(data.rstrip(b"\0"))


def test_checksums():
    for crc, at, says in [
        (NONE, BODY_AT, None),
        (BODY, BODY_AT, "bad_body_crc"),
        (FULL, BODY_AT, "bad_property_crc"),
        (FULL, 16, "bad_property_crc"),
        (FULL, -5, "bad_property_crc"),
        (FULL, -20, "missing_property_crc"),
        (BODY, -20, None),
    ]:
        data, records = log_file(property_crc=True)
        at += records[2]["start"] - BASE if at >= 0 else records[2]["stop"] - BASE
        data[at] ^= 1
        end, stop, _, reason = walk(data, crc)
        assert reason == says, (crc, at)
        if says:
            assert (end, stop) == (records[2]["start"] - BASE, records[2]["stop"] - BASE)
    data, records = log_file()
    assert walk(data, FULL) == (0, records[0]["stop"] - BASE, False, "missing_property_crc")


def test_the_body_is_not_checked_where_the_property_crc_is():
    data, records = log_file(property_crc=True)
    record = data[records[2]["start"] - BASE : records[2]["stop"] - BASE]
    record[8] ^= 1  # the body CRC
    value = oracle.crc32(bytes(record[:-20]))
    record[-20:] = oracle.crc_property(value)
    data[records[2]["start"] - BASE : records[2]["stop"] - BASE] = record
    assert walk(data, FULL)[3] is None
    assert walk(data, BODY)[3] == "bad_body_crc"


DELAYED = {"topic": "SCHEDULE_TOPIC_XXXX"}


@pytest.mark.parametrize(
    ("fields", "good"),
    [
        ({**DELAYED, "properties": {"DELAY": "3"}}, True),
        ({**DELAYED, "properties": {"DELAY": "-2147483648"}}, True),
        ({**DELAYED, "properties": {"DELAY": "+7"}}, True),
        ({**DELAYED, "properties": {"DELAY": "2147483648"}}, False),
        ({**DELAYED, "properties": {"DELAY": "3x"}}, False),
        ({**DELAYED, "properties": {"DELAY": "-"}}, False),
        ({**DELAYED, "properties": {"DELAY": "9" * 30}}, False),
        ({"properties": {"DELAY": "3x"}}, True),
        ({"topic": "SCHEDULE_TOPIC_XXXY", "properties": {"DELAY": "3x"}}, True),
        ({"properties": {"INNER_BASE": "7", "INNER_NUM": "5"}}, True),
        ({"properties": {"INNER_BASE": "7", "INNER_NUM": "32768"}}, False),
        ({"properties": {"INNER_BASE": "7", "INNER_NUM": "q"}}, False),
        ({"properties": {"INNER_BASE": "q", "INNER_NUM": "5"}}, False),
        ({"properties": {"INNER_NUM": "q"}}, True),
        ({"properties": {"INNER_BASE": "q"}}, True),
    ],
)
def test_properties_that_rocketmq_reads_as_numbers(fields, good):
    data, records = log_file(fields)
    end, stop, _, reason = walk(data)
    if good:
        assert (end, reason) == (records[-1]["stop"] - BASE, None)
    else:
        assert (end, stop, reason) == (records[2]["start"] - BASE, records[2]["stop"] - BASE, "bad_property")


def test_ipv6_hosts_and_long_topics():
    hosts = {"born_host": ("::1", 1), "store_host": ("fe80::1", 2)}
    for fields in (hosts, {"topic": "t" * 200}, {"topic": "t" * 200, **hosts}):
        data, records = log_file(**fields)
        assert walk(data)[0] == records[-1]["stop"] - BASE
        data[records[2]["start"] - BASE + 39] ^= 0x10  # another length of the born host
        assert walk(data)[0] == records[2]["start"] - BASE


def test_each_torn_length_ends_the_log_at_the_record_or_before():
    data, records = log_file()
    start, stop = records[-1]["start"] - BASE, records[-1]["stop"] - BASE
    for keep in range(start, stop - 4):  # the last bytes are text that is not checked
        torn = data[:keep] + bytes(SIZE - keep)
        assert walk(torn)[0] == start, keep
        assert walk(data[:keep])[0] == start, keep


def test_a_file_that_is_cut_while_it_is_read(tmp_path):
    """Zeros in place of missing pages are not the end of a log."""
    path = tmp_path / "00000000000000000000"
    record = oracle.encode("t", b"x" * 3000)
    path.write_bytes(record * 40)
    mapped = MappedFile(path)
    path.write_bytes(record[:100])
    with pytest.raises(StoreIOError, match="00000000000000000000"):
        JavaWalk(mapped, 0)


# --------------------------------------------------------------------------------------------- a second implementation


def reference(data: bytes) -> tuple[int, bool]:
    """Return where the scan ends, and whether at a blank record, by RocketMQ's checks in the order in which it reads
    the fields. What raises an exception in Java raises one here, and is not a record."""
    pos = 0
    while True:
        try:
            size = java_size(data[pos:])
        except (struct.error, ValueError, IndexError):
            return pos, False
        if size == 0:
            return pos, True
        pos += size


def java_size(data: bytes) -> int:
    """Return the size of the record at the start of the data; 0 for a blank record."""

    def take(n: int) -> bytes:
        nonlocal pos
        if n < 0 or pos + n > len(data):
            raise IndexError
        pos += n
        return data[pos - n : pos]

    pos = 0
    size, magic = struct.unpack(">iI", take(8))
    if magic == 0xCBD43194:
        return 0
    if magic not in (0xDAA320A7, 0xDAA320AB):
        raise ValueError
    crc, _, _, _, _, flags, _ = struct.unpack(">iiiqqiq", take(40))
    take(20 if flags & 0x10 else 8)
    take(8)
    take(20 if flags & 0x20 else 8)
    take(12)
    (length,) = struct.unpack(">i", take(4))
    if length > 0 and zlib.crc32(take(length)) & 0x7FFFFFFF != crc:
        raise ValueError
    (length,) = struct.unpack(">b", take(1)) if magic == 0xDAA320A7 else struct.unpack(">h", take(2))
    topic = take(length)
    (length,) = struct.unpack(">h", take(2))
    properties = oracle.decode_properties(take(max(length, 0)))
    if topic == b"SCHEDULE_TOPIC_XXXX" and "DELAY" in properties:
        int(properties["DELAY"])
    if pos != size:
        raise ValueError
    return size


@pytest.mark.parametrize("seed", range(8))
def test_damaged_bytes_have_the_same_result_in_both(seed):
    chance = random.Random(seed)
    ends = set()
    for _ in range(500):
        fields = chance.choice(
            [{}, {"body": b""}, {"topic": "t" * 200}, {"properties": {}}, DELAYED, {"store_host": ("::1", 1)}]
        )
        data, records = log_file(**fields)
        end = records[-1]["stop"] - BASE
        for _ in range(chance.choice([1, 1, 2, 5])):
            at = chance.randrange(end)
            if chance.random() < 0.5:  # the position of a field
                at = chance.choice(records)["start"] - BASE + chance.choice([*range(8), *range(36, 40), *range(84, 90)])
            data[at] = chance.choice([0, 0xFF, data[at] ^ 1 << chance.randrange(8), chance.randrange(256)])
        found = walk(data)
        assert (found[0], found[2]) == reference(bytes(data)), f"seed {seed}"
        assert found[0] <= found[1] <= SIZE
        ends.add(found[0])
    assert len(ends) > 5
    count("inputs", 500)
