"""One connection of a slave, without a socket and a clock: start, overlap, reports, time-outs."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketc.errors import ConnectionLostError, FrameError, ReplicaError
from rocketc.ha.protocol import ReportDecoder, encode_header
from rocketc.ha.receiving import Difference, Receiver, Start, choose_start

FILE = 100
RECORD = 10
LOG = bytes(n % 251 for n in range(1000))


class Log:
    """A log of bytes, in files of 100 bytes; `readable`: the end of what can be read."""

    def __init__(self, start, end, readable=None):
        self.min_phy_offset, self.max_phy_offset = start, end
        self.config = SimpleNamespace(mapped_file_size_commit_log=FILE)
        self._readable = end if readable is None else readable

    def read_log(self, phy_offset, max_bytes):
        assert max_bytes > 0
        assert self.min_phy_offset <= phy_offset < self.max_phy_offset
        end = min(phy_offset + max_bytes, phy_offset - phy_offset % FILE + FILE, self._readable)
        return LOG[phy_offset:end]

    def read_raw(self, phy_offset, max_bytes, *, upto, views):
        """Records of RECORD bytes."""
        assert phy_offset % RECORD == 0 and views
        whole = (min(upto, phy_offset + max_bytes) - phy_offset) // RECORD * RECORD
        return Bytes(LOG[phy_offset : phy_offset + whole]) if whole else None


class Bytes(bytearray):
    """The view of a store."""

    def release(self):
        pass


def frames(start, *sizes):
    """Transfers of these sizes from a physical offset on."""
    stream = b""
    for size in sizes:
        stream += encode_header(start, size) + LOG[start : start + size]
        start += size
    return stream


def feed(receiver, data, now=0.0, size=1 << 20):
    while data:
        room = receiver.room()
        n = min(len(room), len(data), size)
        room[:n] = data[:n]
        receiver.filled(n, now)
        data = data[n:]


def block(receiver):
    found = receiver.block()
    return None if found is None else (found[0], bytes(found[1]))


def reported(receiver, now=0.0):
    data = receiver.report(now)
    return None if data is None else ReportDecoder().receive(data)


# ---------------------------------------------------------------------------------------------- start


@pytest.mark.parametrize(
    ("log", "most", "report"),
    [
        ((0, 80), 30, 50),
        ((0, 80), 79, 1),
        ((0, 80), 1000, 1),  # 0 would mean the last file
        ((0, 100), 30, 70),  # the end of a file
        ((0, 130), 30, 100),
        ((0, 130), 31, 100),  # not in the file before
        ((0, 130), 1000, 100),
        ((0, 230), 1000, 200),  # files that are smaller than what is compared
        ((0, 300), 250, 200),
        ((0, 301), 1000, 300),
        ((100, 101), 1000, 100),
        ((0, 1), 1000, 1),
        ((100, 100), 1000, 100),  # the file is created, nothing is in it
    ],
)
def test_a_start_is_in_the_last_file(log, most, report):
    start = choose_start(Log(*log), most=most)
    assert start == Start(report, log[1])


def test_an_empty_log_starts_where_it_is_asked_to():
    assert choose_start(Log(0, 0)) == Start(0, 0)
    assert choose_start(Log(0, 0), 300) == Start(300, 0, asked=True)
    assert choose_start(Log(0, 0), 0) == Start(1, 0, lead=b"\0", asked=True)


def test_a_log_that_is_not_empty_ignores_the_start():
    assert choose_start(Log(0, 80), 0, most=30).report == 50


def test_bytes_that_can_not_be_read_yet_are_not_compared():
    receiver = Receiver(Start(50, 80), Log(0, 80, readable=60), 0.0)
    feed(receiver, encode_header(50, 40) + LOG[50:60] + b"?" * 20 + LOG[80:90])
    assert block(receiver) == (80, LOG[80:90])


# ---------------------------------------------------------------------------------------------- overlap


def test_our_own_bytes_are_compared_and_not_appended_again():
    receiver = Receiver(Start(50, 80), Log(0, 80), 0.0)
    assert reported(receiver) == 50
    feed(receiver, frames(50, 20, 5))
    assert (block(receiver), reported(receiver), receiver.is_ahead) == (None, None, True)
    feed(receiver, frames(75, 5))
    assert (block(receiver), reported(receiver), receiver.is_ahead) == (None, 80, False)
    feed(receiver, frames(80, 10))
    assert block(receiver) == (80, LOG[80:90])
    receiver.appended(87)
    assert (reported(receiver), block(receiver)) == (87, (87, LOG[87:90]))


@pytest.mark.parametrize("at", range(50, 80))
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_each_byte_that_differs_is_found(at, cut):
    stream = bytearray(frames(50, 40))
    stream[12 + at - 50] ^= 1
    receiver = Receiver(Start(50, 80), Log(0, 80), 0.0)
    record = at - at % RECORD
    with pytest.raises(Difference) as found:
        feed(receiver, bytes(stream), size=cut)
    assert found.value.phy_offset == record
    assert found.value.is_first == (record > 50)  # the first record that is compared may have one before it
    assert block(receiver) is None or receiver.block_offset < 80  # nothing was offered before


@given(st.data())
@settings(max_examples=40)
def test_cuts_at_any_byte(data):
    """The bytes to append are those of the master, whatever the reads, transfers and takes are."""
    end = data.draw(st.integers(1, 300))
    start = choose_start(Log(0, end), most=data.draw(st.integers(1, 400)))
    sizes = data.draw(st.lists(st.integers(0, 90), max_size=8))
    stream, receiver, ours = frames(start.report, *sizes), Receiver(start, Log(0, start.end), 0.0), LOG[:end]
    while stream:
        n = data.draw(st.integers(1, len(stream)))
        feed(receiver, stream[:n])
        stream = stream[n:]
        found = block(receiver)
        if found is not None:
            assert found[0] == len(ours)
            n = data.draw(st.integers(0, len(found[1])))
            ours += found[1][:n]
            receiver.appended(len(ours))
    received = start.report + sum(sizes)
    assert ours == LOG[: len(ours)]
    assert len(ours) + len((block(receiver) or (0, b""))[1]) == max(end, received)
    assert receiver.is_ahead == (received < end)
    assert receiver.received_bytes == sum(sizes)


def test_another_offset_than_asked_for():
    receiver = Receiver(Start(50, 80), Log(0, 80), 0.0)
    with pytest.raises(FrameError, match="a master continues at the physical offset 51; 50 was expected"):
        feed(receiver, frames(51, 10))


# ---------------------------------------------------------------------------------------------- an empty log


def test_an_empty_log_begins_where_the_master_begins():
    receiver = Receiver(Start(0, 0), Log(0, 0), 0.0)
    assert (reported(receiver), receiver.next_offset) == (0, None)
    feed(receiver, frames(300, 0, 20))
    assert (block(receiver), reported(receiver)) == ((300, LOG[300:320]), None)
    receiver.appended(310)
    assert (reported(receiver), block(receiver)) == (310, (310, LOG[310:320]))


def test_byte_0_is_added():
    log = b"\0" + LOG[1:]
    receiver = Receiver(Start(1, 0, lead=b"\0", asked=True), Log(0, 0), 0.0)
    assert reported(receiver) == 1
    feed(receiver, frames(1, 10))
    assert block(receiver) == (0, log[:11])
    receiver.appended(0)  # no whole record yet
    assert (block(receiver), reported(receiver)) == ((0, log[:11]), None)
    feed(receiver, frames(11, 20))
    receiver.appended(25)
    assert (block(receiver), reported(receiver)) == ((25, log[25:31]), 25)


# ---------------------------------------------------------------------------------------------- reports


def test_a_report_is_repeated_after_the_heartbeat():
    receiver = Receiver(Start(0, 0), Log(0, 0), 10.0, heartbeat=5.0)
    assert reported(receiver, 10.0) == 0
    assert receiver.next_time() == 15.0
    assert (reported(receiver, 14.9), reported(receiver, 15.0), reported(receiver, 19.9)) == (None, 0, None)
    assert receiver.next_time() == 20.0


def test_without_acknowledge_the_start_is_reported_again_and_again():
    receiver = Receiver(Start(50, 80), Log(0, 80), 0.0, acknowledge=False)
    assert reported(receiver) == 50
    feed(receiver, frames(50, 50))
    receiver.appended(100)
    assert [reported(receiver, now) for now in (1.0, 5.0, 9.0, 10.0)] == [None, 50, None, 50]


# ---------------------------------------------------------------------------------------------- silence


def test_a_master_that_sends_nothing():
    receiver = Receiver(Start(0, 0), Log(0, 0), 0.0)
    receiver.check(19.9)
    with pytest.raises(ConnectionLostError, match="the master sent nothing for 20 s"):
        receiver.check(20.0)
    feed(receiver, frames(0, 0), now=21.0)
    receiver.check(40.9)


def heartbeats(receiver, offset, until, since=5):
    """A master that sends only heartbeats, one every 5 s."""
    for now in range(since, until + 1, 5):
        feed(receiver, frames(offset, 0), now=float(now))
        reported(receiver, float(now))
        assert receiver.next_time() <= now + 5.0
        receiver.check(float(now))


@pytest.mark.parametrize(
    ("start", "offset", "why"),
    [
        (Start(50, 80), 50, "it is behind us or has another log, or it has deleted this part"),
        (Start(300, 0, asked=True), 300, "it has deleted this part, or its log ends before it"),
        (Start(1, 0, lead=b"\0", asked=True), 1, "it has deleted this part, or its log ends before it"),
    ],
)
def test_only_heartbeats_where_the_master_must_have_bytes(start, offset, why):
    receiver = Receiver(start, Log(0, start.end), 0.0)
    heartbeats(receiver, offset, 15)
    with pytest.raises(ReplicaError, match=f"no bytes of its log from the physical offset {offset} on: {why}") as found:
        heartbeats(receiver, offset, 20, since=20)
    assert (found.value.phy_offset, found.value.reason) == (offset, "silent")


def test_a_master_whose_log_ends_within_ours():
    receiver = Receiver(Start(50, 80), Log(0, 80), 0.0)
    feed(receiver, frames(50, 20), now=1.0)
    feed(receiver, frames(70, 0), now=15.0)
    receiver.check(20.9)
    with pytest.raises(ReplicaError, match="from the physical offset 70 on: it is behind us"):
        receiver.check(21.0)


@pytest.mark.parametrize("start", [Start(0, 0), Start(50, 80), Start(300, 0, asked=True)])
def test_heartbeats_are_enough_at_the_end_of_the_masters_log(start):
    receiver = Receiver(start, Log(0, start.end), 0.0)
    size = 30 if start.report else 0
    feed(receiver, frames(start.report, size))
    heartbeats(receiver, start.report + size, 1000)


def test_a_pause_of_ours_is_not_the_masters():
    receiver = Receiver(Start(50, 80), Log(0, 80), 0.0)
    receiver.resumed(100.0)
    receiver.check(119.0)
    with pytest.raises(ConnectionLostError):
        receiver.check(120.0)


def test_a_heartbeat_says_that_there_is_no_more():
    receiver = Receiver(Start(0, 0), Log(0, 0), 0.0)
    seen = [receiver.is_idle]
    for data in (frames(0, 0), frames(0, 10), frames(10, 0)[:5], frames(10, 0)[5:], frames(10, 5, 0)):
        feed(receiver, data)
        seen.append(receiver.is_idle)
    assert seen == [False, True, False, False, True, False]
