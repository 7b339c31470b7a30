"""The state of one slave at the master: reports, transfers, heartbeats, silence, and offsets that can't be."""

import struct

import pytest

from rocketc.errors import FrameError
from rocketc.ha.protocol import TRANSFER_MOST, TransferDecoder, encode_report
from rocketc.ha.sending import Sending

FILE_SIZE = 1024


def report(sending, offset, now=0.0, end=10_000):
    return sending.received(encode_report(offset), now, log_end=end, file_size=FILE_SIZE)


@pytest.mark.parametrize("offset", [1, 133, 1024, 9_999, 10_000])
def test_the_first_report_is_the_start(offset):
    sending = Sending(0.0)
    assert sending.next_offset is None
    assert report(sending, offset) == offset
    assert (sending.first_offset, sending.next_offset) == (offset, offset)


@pytest.mark.parametrize(("end", "start"), [(0, 0), (1, 0), (1023, 0), (1024, 1024), (1025, 1024), (10_000, 9216)])
def test_a_slave_with_an_empty_log_begins_at_the_last_file(end, start):
    sending = Sending(0.0)
    assert report(sending, 0, end=end) == 0
    assert sending.next_offset == start


def test_later_reports_do_not_move_the_next_transfer():
    sending = Sending(0.0)
    report(sending, 100)
    sending.transfers(memoryview(bytes(50)), 0.0)
    for offset in (100, 150, 120, 0):
        assert report(sending, offset) == offset
        assert sending.next_offset == 150


def test_the_last_whole_report_counts():
    sending = Sending(0.0)
    data = encode_report(5) + encode_report(7) + encode_report(9)[:3]
    assert sending.received(data, 0.0, log_end=10, file_size=FILE_SIZE) == 7
    assert sending.received(encode_report(9)[3:7], 0.0, log_end=10, file_size=FILE_SIZE) is None
    assert sending.next_offset == 7


# ---------------------------------------------------------------------------------------------- hostile


@pytest.mark.parametrize("offset", [10_001, 1 << 40, (1 << 63) - 1])
def test_a_first_offset_beyond_the_log(offset):
    with pytest.raises(FrameError, match=rf"reports the physical offset {offset}; the log ends at 10000"):
        report(Sending(0.0), offset)


def test_more_than_was_sent():
    """Such a slave would acknowledge messages that it can't have."""
    sending = Sending(0.0)
    report(sending, 100)
    sending.transfers(memoryview(bytes(50)), 0.0)
    with pytest.raises(FrameError, match="reports the physical offset 151; it was sent 150"):
        report(sending, 151)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", struct.pack(">q", -1)])
def test_bytes_of_another_protocol(data):
    with pytest.raises(FrameError):
        Sending(0.0).received(data, 0.0, log_end=10_000, file_size=FILE_SIZE)


# ---------------------------------------------------------------------------------------------- transfers


@pytest.mark.parametrize("batch", [1, 7, 32, 100, 1 << 20])
def test_transfers(batch):
    sending, log = Sending(0.0, batch=batch), bytes(range(200))
    report(sending, 3)
    decoder = TransferDecoder(expected=3)
    for size in (100, 1, 64):
        at = sending.next_offset
        buffers = sending.transfers(memoryview(log)[at : at + size], 0.0)
        assert all(len(one) <= max(batch, 12) for one in buffers)
        assert len(buffers) == 2 * -(-size // batch)
        stream = b"".join(buffers)
        decoder.room()[: len(stream)] = stream
        decoder.filled(len(stream))
    assert (bytes(decoder.block), sending.next_offset, sending.transferred) == (log[3:168], 168, 165)


def test_transfers_are_not_copied():
    data = bytearray(b"abc")
    sending = Sending(0.0)
    report(sending, 3)
    buffers = sending.transfers(memoryview(data), 0.0)
    data[0] = 0x7A
    assert bytes(buffers[1]) == b"zbc"


@pytest.mark.parametrize("batch", [0, -5])
def test_a_batch_has_a_byte_at_least(batch):
    sending = Sending(0.0, batch=batch)
    report(sending, 3)
    assert len(sending.transfers(memoryview(b"abc"), 0.0)) == 6


def test_a_batch_fits_into_the_buffer_of_a_slave():
    sending = Sending(0.0, batch=1 << 30)
    report(sending, 3)
    buffers = sending.transfers(memoryview(bytes(5 << 20)), 0.0)
    assert [len(one) for one in buffers[1::2]] == [TRANSFER_MOST, (5 << 20) - TRANSFER_MOST]


def test_the_rate():
    sending = Sending(0.0, rate=1000)
    report(sending, 3)
    assert sending.budget(0.1, 700) == 700
    sending.transfers(memoryview(bytes(700)), 0.1)
    assert sending.budget(0.2, 700) == 300
    sending.transfers(memoryview(bytes(300)), 0.2)
    assert (sending.budget(0.999, 700), sending.next_second(0.999)) == (0, 1.0)
    assert sending.budget(1.0, 5000) == 1000
    assert Sending(0.0).budget(0.0, 5000) == 5000


def test_the_bytes_of_the_last_second():
    sending = Sending(0.0)
    report(sending, 3)
    sending.transfers(memoryview(bytes(700)), 0.5)
    assert [sending.sent_in_second(now) for now in (0.9, 1.0, 1.9, 2.0)] == [0, 700, 700, 0]
    sending.transfers(memoryview(bytes(300)), 2.5)
    assert [sending.sent_in_second(now) for now in (3.1, 5.0)] == [300, 0]


# ---------------------------------------------------------------------------------------------- times


def test_heartbeats():
    sending = Sending(0.0, heartbeat=5.0)
    assert sending.heartbeat(9.0) is None, "nothing is sent before the first report"
    report(sending, 0x85, 9.0)
    assert sending.heartbeat(9.0).hex() == "000000000000008500000000", "more than an interval without a transfer"
    sending.transfers(memoryview(b"abc"), 10.0)
    assert [sending.heartbeat(now) for now in (10.1, 14.9)] == [None, None]
    assert sending.heartbeat(15.0).hex() == "000000000000008800000000"
    assert sending.heartbeat(19.9) is None and sending.heartbeat(20.0) is not None


def test_silence():
    sending = Sending(0.0, housekeeping=20.0)
    assert not sending.is_dead(19.9) and sending.is_dead(20.0)
    report(sending, 100, 19.0)
    assert not sending.is_dead(38.9) and sending.is_dead(39.0)
    sending.received(b"\0", 38.0, log_end=200, file_size=FILE_SIZE)
    assert not sending.is_dead(57.9), "a part of a report is a sign of life"
    sending.transfers(memoryview(b"abc"), 57.0)
    assert sending.is_dead(58.0), "what the master sends is not"


def test_bytes_before_the_first_report_do_not_keep_a_connection():
    sending = Sending(0.0, housekeeping=20.0)
    for now in (5.0, 10.0, 15.0):
        sending.received(b"\0", now, log_end=200, file_size=FILE_SIZE)
    assert sending.is_dead(20.0)


def test_when_to_look_again():
    sending = Sending(0.0, heartbeat=5.0, housekeeping=20.0)
    assert sending.next_time(0.0) == 20.0
    report(sending, 100, 2.0)
    assert sending.next_time(2.0) == 5.0
    assert sending.next_time(30.0) == 30.625, "something is overdue: not at once again"
