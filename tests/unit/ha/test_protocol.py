"""Frames of the HA protocol: whole, cut anywhere, and with values that can't be."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.errors import FrameError
from rocketc.ha.protocol import TRANSFER_MOST, ReportDecoder, TransferDecoder, encode_header, encode_report

REPORTS = [0, 1, 133, 1 << 40, (1 << 63) - 1]
STREAM = b"".join(map(encode_report, REPORTS))
BODIES = [b"abc", b"", b"d" * 500, b"", b"", b"e"]


def transfers(start, bodies):
    stream = b""
    for body in bodies:
        stream += encode_header(start, len(body)) + body
        start += len(body)
    return stream


def feed(decoder, data, read=1 << 30):
    """Give the decoder bytes as a transport does, at most `read` at once."""
    while data:
        room = decoder.room()
        n = min(len(data), len(room), read)
        room[:n] = data[:n]
        decoder.filled(n)
        data = data[n:]


# ---------------------------------------------------------------------------------------------- reports


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_reports_in_pieces_of_each_size(size):
    decoder = ReportDecoder()
    found = [decoder.receive(STREAM[i : i + size]) for i in range(0, len(STREAM), size)]
    whole = [min(i + size, len(STREAM)) // 8 for i in range(0, len(STREAM), size)]
    expected = [REPORTS[b - 1] if b > a else None for a, b in itertools.pairwise([0, *whole])]
    assert found == expected


@pytest.mark.parametrize("offset", [-1, -(1 << 63)])
def test_a_negative_report(offset):
    with pytest.raises(FrameError, match=f"a slave reports the physical offset {offset}"):
        ReportDecoder().receive(struct.pack(">q", offset))


# ---------------------------------------------------------------------------------------------- transfers


def test_each_cut_of_transfers_gives_the_same_block():
    stream = transfers(1000, BODIES)
    for cut in range(len(stream) + 1):
        decoder = TransferDecoder()
        feed(decoder, stream[:cut])
        feed(decoder, stream[cut:])
        assert (decoder.block_offset, bytes(decoder.block)) == (1000, b"".join(BODIES))
        assert (decoder.next_offset, decoder.heartbeats) == (1504, 3)


@given(st.data())
def test_blocks_that_are_taken_in_parts(data):
    """Any reads, any takes, a small buffer: the bytes are those of the log, in its order."""
    bodies = data.draw(st.lists(st.binary(max_size=100_000), max_size=6))
    stream, log, taken = transfers(7, bodies), b"".join(bodies), b""
    decoder = TransferDecoder(expected=7, capacity=64 << 10)
    while stream:
        room = decoder.room()
        assert len(room) >= 64 << 10
        n = data.draw(st.integers(1, min(len(stream), len(room))))
        room[:n] = stream[:n]
        decoder.filled(n)
        stream = stream[n:]
        assert decoder.block_offset == 7 + len(taken)
        part = data.draw(st.integers(0, len(decoder.block)))
        taken += decoder.block[:part]
        decoder.take(part)
    assert taken + bytes(decoder.block) == log
    assert decoder.next_offset == 7 + len(log)


def test_a_long_record_grows_the_buffer():
    decoder = TransferDecoder(capacity=64 << 10, most=1 << 20)
    feed(decoder, transfers(0, [b"x" * 300_000]))
    assert len(decoder.block) == 300_000


def test_a_record_that_does_not_end():
    decoder = TransferDecoder(capacity=64 << 10, most=256 << 10)
    with pytest.raises(FrameError, match=r"a record of the master at 5 does not end within \d+ bytes"):
        feed(decoder, transfers(5, [b"x" * 300_000]))


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (struct.pack(">qi", 0, -1), "announces -1 bytes at the physical offset 0"),
        (struct.pack(">qi", 0, -(1 << 31)), "announces -2147483648 bytes"),
        (struct.pack(">qi", 0, TRANSFER_MOST + 1), "a transfer has 0 to 4194292"),
        (struct.pack(">qi", -1, 1), "sends the physical offset -1; it must not be negative"),
        (struct.pack(">qi", 1, 1), "continues at the physical offset 1; 0 was expected"),
        (struct.pack(">qi", 1, 0), "continues at the physical offset 1; 0 was expected"),
        (b"HTTP/1.1 400", "announces 540291120 bytes"),
    ],
)
def test_headers_that_can_not_be(header, error):
    decoder = TransferDecoder(expected=0)
    with pytest.raises(FrameError, match=error):
        feed(decoder, header)
    with pytest.raises(FrameError, match=error):  # corrupt stays
        feed(decoder, transfers(0, [b"abc"]))
    assert bytes(decoder.block) == b""


def test_a_transfer_after_a_gap_keeps_what_came_before():
    decoder = TransferDecoder()
    with pytest.raises(FrameError, match="continues at the physical offset 200; 103 was expected"):
        feed(decoder, transfers(100, [b"abc"]) + transfers(200, [b"def"]))
    assert (decoder.block_offset, bytes(decoder.block)) == (100, b"abc")


@pytest.mark.parametrize("count", [-1, 4])
def test_more_than_the_block_is_not_taken(count):
    decoder = TransferDecoder()
    feed(decoder, transfers(0, [b"abc"]))
    with pytest.raises(ValueError, match=f"take\\({count}\\): the block has 3 bytes"):
        decoder.take(count)
