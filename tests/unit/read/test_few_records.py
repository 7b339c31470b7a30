"""_few_records: the fast path of decode() has the same result as the general one, or leaves the buffer to it."""

import array
import mmap
import random
import zlib

import pytest
from support import oracle

import rocketc
from rocketc.read._few_records import few_messages


def records(*bodies, base=0, **fields):
    """Return consecutive records, as in a log from physical offset `base` on."""
    out = b""
    for n, body in enumerate(bodies):
        out += rocketc.encode("orders", body, queue_offset=n, phy_offset=base + len(out), **fields)
    return out


def outcome(scan):
    """Return the result of a pass: messages or an error, and the report."""
    try:
        found = [(m, m.file, m.record, m.body) for m in scan]
    except (rocketc.CorruptRecordError, rocketc.MissingCodecError, ValueError, TypeError) as error:
        return type(error), str(error)
    return found, scan.report


def both(data, *base, **options):
    """Run the same pass on the fast path, if possible, and on the general one, by options without other effect."""
    return outcome(rocketc.decode(data, *base, **options)), outcome(
        rocketc.decode(data, *base, batch_bytes=1 << 30, **options)
    )


@pytest.mark.parametrize("base", [0, 4096, None, 5, 1 << 62])
def test_messages_and_report(base):
    at = 0 if base is None else base
    data = records(b"one", b"", b"three" * 100, base=at, properties={"TAGS": "A"})
    assert [m.body for m in few_messages(data, base, None)] == [b"one", b"", b"three" * 100]
    short, long = both(data, base, file="buffer.log")
    assert short == long
    scan = rocketc.decode(data, base)
    assert scan.report == rocketc.ScanReport()
    assert [m.queue_offset for m in scan] == [m.queue_offset for m in scan] == [0, 1, 2]
    assert scan.report == rocketc.ScanReport(records=3, bytes=len(data), files=1, end=at + len(data))
    assert scan.count() == 3 and scan.column_names == list(rocketc.COLUMN_NAMES)


def test_any_buffer(tmp_path):
    data = records(b"one", b"twelve bytes")
    data += bytes(0)
    (tmp_path / "log").write_bytes(data)
    with (tmp_path / "log").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for buffer in (data, bytearray(data), memoryview(data), mapped):
            assert [m.body for m in rocketc.decode(buffer)] == [b"one", b"twelve bytes"]
    padded = records(bytes(3 - (len(records(b"")) - 1) % 4))
    words = array.array("I", padded)
    assert [m.record for m in rocketc.decode(words)] == [padded]
    with pytest.raises(TypeError):
        rocketc.decode("text")
    with pytest.raises((ValueError, TypeError, BufferError)):
        list(rocketc.decode(memoryview(data)[::2]))


def test_a_message_does_not_change_with_its_buffer():
    data = bytearray(records(b"one"))
    [message] = rocketc.decode(data)
    data[:] = bytes(len(data))
    assert message.body == b"one"


def test_one_record_of_bytes_is_not_copied():
    data = records(b"one")
    [message] = rocketc.decode(data)
    assert message.record is data


def test_buffers_for_the_general_path():
    one = records(b"one")
    packed = records(zlib.compress(b"plain"), sys_flag=0x301)
    body = oracle.encode_batch([(n, b"%d" % n, {}) for n in range(3)])
    batch = records(body, sys_flag=0xC0, properties={"INNER_NUM": "3", "INNER_BASE": "0"})
    many = records(*[b"x"] * 33)
    large = records(bytes(65536))
    blank = rocketc.encode_blank(20)
    for data in (b"", one + bytes(1), one + bytes(100), one + blank, one[:-1], packed, batch, many, large, b"junk" * 9):
        assert few_messages(data, 0, None) is None
        short, long = both(data)
        assert short == long
    assert len(few_messages(records(*[b"x"] * 32), 0, None)) == 32
    assert few_messages(one, 1, None) is None
    assert few_messages(one, 1 << 70, None) is None
    assert few_messages(one, True, None) is None
    assert [m.body for m in rocketc.decode(packed)] == [b"plain"]
    assert [m.body for m in rocketc.decode(batch)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("base", [0, None, 7])
def test_every_cut_and_every_changed_byte(base):
    data = records(b"one", b"two", base=base or 0, properties={"TAGS": "A"})
    chance = random.Random(11)
    for stop in range(len(data)):
        short, long = both(data[:stop], base)
        assert short == long
    for pos in range(len(data)):
        noise = bytearray(data)
        noise[pos] ^= 1 << chance.randrange(8)
        short, long = both(bytes(noise), base)
        assert short == long, pos
