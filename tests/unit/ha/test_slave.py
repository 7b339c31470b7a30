"""The slave on virtual time, with a scripted master and a store of bytes."""

import asyncio
import itertools
import random
import struct
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import virtual
from unit.ha.scripted_master import ADDRESS, ScriptedMaster

from rocketc.errors import (
    ClosedError,
    CorruptRecordError,
    PageCacheBusyError,
    PhyOffsetError,
    ReplicaError,
    StoreFullError,
    StoreIOError,
)
from rocketc.ha.protocol import encode_header
from rocketc.ha.receiving import OVERLAP_BYTES
from rocketc.ha.slave import Slave

RECORD = 10  # bytes of each record of these logs
FILE = 1 << 20


def log_of(size, seed=0):
    return b"\0" + random.Random(seed).randbytes(size - 1) if size else b""


class Bytes(bytearray):
    """The view of a store."""

    def release(self):
        pass


class Store:
    """A log of records of 10 bytes. `refuse`: errors that the next appends raise."""

    def __init__(self, log=b"", start=0, file_size=FILE):
        self.log, self.start = bytearray(log), start
        self.config = SimpleNamespace(mapped_file_size_commit_log=file_size)
        self.refuse = []

    @property
    def min_phy_offset(self):
        return self.start

    @property
    def max_phy_offset(self):
        return self.start + len(self.log)

    def read_log(self, phy_offset, max_bytes):
        size = self.config.mapped_file_size_commit_log
        end = min(phy_offset + max_bytes, phy_offset - phy_offset % size + size)
        return bytes(self.log[phy_offset - self.start : end - self.start])

    def read_raw(self, phy_offset, max_bytes, *, upto, views):
        at = phy_offset - self.start
        whole = (min(upto, phy_offset + max_bytes) - phy_offset) // RECORD * RECORD
        return Bytes(self.log[at : at + whole]) if whole else None

    def append_raw(self, phy_offset, data):
        if self.refuse and self.refuse[0] is not None:
            raise self.refuse.pop(0)
        if not self.log and phy_offset % self.config.mapped_file_size_commit_log == 0:
            self.start = phy_offset
        if phy_offset != self.max_phy_offset:
            raise PhyOffsetError(f"block at {phy_offset}: the log ends at {self.max_phy_offset}", phy_offset)
        whole = len(data) - len(data) % RECORD
        self.log += data[:whole]
        return phy_offset + whole


class Play:
    """A slave and its master on virtual time."""

    def __init__(self, master, store, **options):
        self.master, self.store = master, store
        self.loop = asyncio.get_running_loop()
        options = {"chance": random.Random(7), "connect": master.connector, "settle": 0.0, **options}
        self.slave = Slave(store, ADDRESS, **options)
        self.task = asyncio.create_task(self.slave.run())

    async def until(self, condition, most=600.0):
        end = self.loop.time() + most
        while not condition():
            assert self.loop.time() < end, f"not within {most} s; the last error is {self.slave.last_error}"
            if self.task.done():
                self.task.result()
            await asyncio.sleep(0.01)

    async def has(self, log):
        await self.until(lambda: bytes(self.store.log) == log[self.store.start :][: len(log)])

    async def end(self):
        if not self.task.done():
            self.task.cancel()
        await asyncio.wait({self.task})

    async def fails(self, kind, text=None):
        with pytest.raises(kind, match=text) as found:
            await asyncio.wait_for(asyncio.shield(self.task), 1000.0)
        return found.value


def play(main, master=None, store=None, **options):
    async def whole():
        nonlocal master, store
        master = ScriptedMaster() if master is None else master
        store = Store() if store is None else store
        playing = Play(master, store, **options)
        try:
            await main(playing)
        finally:
            await playing.end()

    virtual.run(whole())


# ---------------------------------------------------------------------------------------------- copying


def test_a_log_is_copied_while_it_grows():
    log = log_of(300_000)

    async def main(p):
        await p.has(log[:200_000])
        assert (p.slave.state, p.slave.connected, p.slave.connections) == ("transferring", True, 1)
        p.master.grow(log[200_000:])
        await p.has(log)
        await asyncio.sleep(0.1)
        assert p.master.reports[-1][1] == p.slave.position == 300_000
        assert (p.slave.received_bytes, p.slave.last_error) == (300_000, None)
        assert p.slave.last_read <= p.loop.time() and p.slave.last_write <= p.loop.time()

    play(main, ScriptedMaster(log[:200_000]))


def test_the_first_report_comes_at_once_and_progress_is_reported():
    async def main(p):
        await p.has(p.master.log)
        await asyncio.sleep(100.0)
        times, offsets = zip(*p.master.reports, strict=True)
        assert times[0] < 0.1 and offsets[0] == 0
        assert list(offsets) == sorted(offsets)
        pauses = [b - a for (a, x), (b, y) in itertools.pairwise(p.master.reports) if x == y]
        assert len(pauses) >= 18 and all(4.9 < pause < 5.1 for pause in pauses)

    play(main, ScriptedMaster(log_of(50_000)))


def test_an_empty_store_begins_at_the_last_file():
    log = log_of(2 * FILE + 5000)

    async def main(p):
        await p.until(lambda: p.slave.position == len(log))
        assert p.store.start == 2 * FILE
        assert bytes(p.store.log) == log[2 * FILE :]

    play(main, ScriptedMaster(log))


@pytest.mark.parametrize("start", [0, FILE])
def test_an_empty_store_begins_where_it_is_asked_to(start):
    log = log_of(FILE + 40_000)[: FILE + 40_000]

    async def main(p):
        await p.until(lambda: p.slave.position >= FILE + 39_990)
        assert p.store.start == start
        assert bytes(p.store.log) == log[start : p.slave.position]
        assert p.master.reports[0][1] == max(start, 1)

    play(main, ScriptedMaster(log), from_start=start)


def test_a_store_continues_after_an_overlap():
    log = log_of(FILE + 30_000)

    async def main(p):
        await p.has(log[: len(log) - len(log) % RECORD])
        assert p.master.reports[0][1] == FILE  # the records before it are in another file

    play(main, ScriptedMaster(log), Store(log[: FILE + 24]))


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_cuts_of_the_connection_at_any_time(data):
    """After any cuts the copy is the log."""
    log = log_of(100_000)
    pauses = data.draw(st.lists(st.floats(0.0, 0.3), max_size=6))

    async def main(p):
        for pause in pauses:
            await asyncio.sleep(pause)
            p.master.cut()
        await p.has(log)
        assert p.slave.received_bytes >= len(log) - 1

    play(main, ScriptedMaster(log, seed=data.draw(st.integers(0, 99)), delay=(0.0, 0.2)), from_start=0)


# ---------------------------------------------------------------------------------------------- a copy


def test_without_acknowledge_only_starts_are_reported():
    log = log_of(3 * FILE)

    async def main(p):
        await p.has(log[: 3 * FILE - 3 * FILE % RECORD])
        await asyncio.sleep(30.0)
        assert {offset for _, offset in p.master.reports} == {1}
        assert len(p.master.reports) >= 6

    play(main, ScriptedMaster(log), acknowledge=False, from_start=0)


def test_without_acknowledge_a_new_start_waits_until_no_producer_does():
    async def main(p):
        await p.has(p.master.log)
        await asyncio.sleep(1.0)
        p.master.grow(log_of(20_000, seed=1)[:10_000])
        await p.until(lambda: p.slave.position == 20_000)
        cut, reports = p.loop.time(), len(p.master.reports)
        p.master.cut()
        await p.until(lambda: len(p.master.reports) > reports)
        assert p.master.reports[-1][0] - cut > 4.8
        assert p.slave.connected

    play(main, ScriptedMaster(log_of(10_000)), acknowledge=False, from_start=0, settle=5.0)


def test_without_acknowledge_a_resumed_copy_waits_too():
    async def main(p):
        await asyncio.sleep(4.9)
        assert (p.master.attempts, p.slave.state) == ([], "waiting")
        await p.has(p.master.log)

    play(main, ScriptedMaster(log_of(10_000)), Store(log_of(10_000)[:500]), acknowledge=False, settle=5.0)


# ---------------------------------------------------------------------------------------------- logs that do not fit


def test_another_log_is_refused_and_nothing_is_appended():
    ours = log_of(5000, seed=1)

    async def main(p):
        error = await p.fails(
            ReplicaError, "another log: it differs from ours from the record at the physical offset 0 on$"
        )
        assert error.reason == "differs"
        assert bytes(p.store.log) == ours

    play(main, ScriptedMaster(log_of(9000)), Store(ours))


@pytest.mark.parametrize("differs_from", [0, 10, 40_000, 2_500_000, 5_000_000, 6_990_000])
def test_the_first_record_that_differs_is_named_wherever_it_is(differs_from):
    """The last MiB is compared at first. If all of it differs, the records before it are compared, too."""
    log = log_of(7_000_000)
    theirs = log[:differs_from] + log_of(8_000_000, seed=1)[differs_from:]

    async def main(p):
        text = f"another log: it differs from ours from the record at the physical offset {differs_from} on$"
        error = await p.fails(ReplicaError, text)
        assert (error.phy_offset, error.reason) == (differs_from, "differs")
        assert bytes(p.store.log) == log and p.loop.time() < 5.0

    play(main, ScriptedMaster(theirs, file_size=2_000_000), Store(log, file_size=2_000_000))


def test_a_master_that_has_deleted_what_is_before_the_difference():
    async def main(p):
        at = 3_000_000 - OVERLAP_BYTES
        text = f"record at the physical offset {at - at % RECORD} on; the master does not send its log before that$"
        assert (await p.fails(ReplicaError, text)).reason == "differs"

    master = ScriptedMaster(log_of(4_000_000, seed=1), file_size=4_000_000, start=1_900_000)
    play(main, master, Store(log_of(3_000_000), file_size=4_000_000))


def test_a_master_that_is_behind_is_refused():
    log = log_of(9000)

    async def main(p):
        error = await p.fails(ReplicaError, "no bytes of its log from the physical offset 5000 on: it is behind us")
        assert error.reason == "silent"
        assert 20.0 <= p.loop.time() < 26.0

    play(main, ScriptedMaster(log[:5000]), Store(log))


def close(link, report):
    link.transport.abort()


def test_a_master_that_is_behind_and_closes_each_connection():
    log = log_of(9000)

    async def main(p):
        p.master.answer = close
        text = "closes each connection, and sends no bytes of its log from the physical offset 1 on: it is behind us"
        error = await p.fails(ReplicaError, text)
        assert (error.phy_offset, error.reason) == (1, "silent")
        assert 20.0 <= p.loop.time() < 30.0 and p.slave.connections > 3

    play(main, ScriptedMaster(log[:5000]), Store(log))


def test_a_master_that_was_down_meanwhile_is_not_behind():
    log = log_of(9000)

    async def main(p):
        p.master.answer = close
        for _ in range(10):
            await asyncio.sleep(10.0)
            p.master.is_reachable = False
            attempts = len(p.master.attempts)
            await p.until(lambda before=attempts: len(p.master.attempts) > before)
            p.master.is_reachable = True
        p.master.answer = None
        await p.has(log)

    play(main, ScriptedMaster(log), Store(log[:5000]))


def test_connections_that_are_lost_after_data_are_made_again_for_ever():
    log = log_of(9000)

    def some(link, report):
        link.transport.write(encode_header(report, 5) + log[report : report + 5])
        link.transport.close()

    async def main(p):
        p.master.answer = some
        await asyncio.sleep(100.0)
        p.master.answer = None
        await p.has(log)

    play(main, ScriptedMaster(log), Store(log[:5000]))


def test_a_start_that_was_deleted():
    async def main(p):
        error = await p.fails(ReplicaError, "it has deleted this part, or its log ends before it")
        assert (error.phy_offset, error.reason) == (FILE, "silent")

    play(main, ScriptedMaster(log_of(3 * FILE), start=2 * FILE), from_start=FILE)


def test_an_empty_master_is_waited_for():
    async def main(p):
        await asyncio.sleep(1000.0)
        assert (p.slave.connected, p.slave.connections) == (True, 1)
        p.master.grow(log_of(500))
        await p.has(log_of(500))

    play(main)


def test_first_bytes_within_a_file():
    async def main(p):
        error = await p.fails(ReplicaError, f"begins at the physical offset {FILE}, not at a multiple of {3 * FILE}")
        assert error.reason == "file_size"

    play(main, ScriptedMaster(log_of(FILE + 500)), Store(file_size=3 * FILE))


def corrupt(at, reason):
    return CorruptRecordError(None, at, reason, "no record of the block was appended")


@pytest.mark.parametrize(
    ("head", "reason", "text"),
    [
        (struct.pack(">ii", 500, -875286124), "bad_blank", "file ends at the physical offset 500, ours at 1048576"),
        (struct.pack(">ii", FILE, 0), "bad_size", "file continues at the physical offset 1048576, where ours ends"),
    ],
)
def test_files_of_another_size(head, reason, text):
    store = Store()
    store.refuse = [corrupt(0, reason)]

    async def main(p):
        error = await p.fails(ReplicaError, text)
        assert (error.reason, error.phy_offset) == ("file_size", 0)
        assert "mapped_file_size_commit_log must be the master's" in str(error)

    play(main, ScriptedMaster(head + log_of(500)), store)


@pytest.mark.parametrize("reason", ["bad_magic", "bad_body_crc", "bad_blank", "bad_size"])
def test_a_damaged_record_is_asked_for_again(reason):
    log = b"\xff" * 20 + log_of(480)
    store = Store()
    store.refuse = [corrupt(0, reason)]

    async def main(p):
        await p.has(log)
        assert p.slave.connections == 2

    play(main, ScriptedMaster(log), store)


def test_a_record_that_is_damaged_twice_ends_the_copy():
    store = Store()
    store.refuse = [corrupt(0, "bad_magic"), corrupt(0, "bad_magic")]

    async def main(p):
        error = await p.fails(ReplicaError, "damaged record at the physical offset 0: bad_magic; verify the log")
        assert (error.reason, p.slave.connections) == ("damaged", 2)

    play(main, ScriptedMaster(log_of(500)), store)


# ---------------------------------------------------------------------------------------------- a store that refuses


def test_a_busy_page_cache_delays_the_append():
    store = Store()
    store.refuse = [PageCacheBusyError("busy")] * 5

    async def main(p):
        await p.has(p.master.log)
        assert (p.slave.connections, p.slave.last_error) == (1, None)
        assert 0.1 <= p.loop.time() < 0.5

    play(main, ScriptedMaster(log_of(50_000)), store)


def test_a_full_disk_stops_reading_but_keeps_the_connection():
    store = Store()
    store.refuse = [StoreFullError(28, "No space left on device", "f")] * 20

    async def main(p):
        await p.until(lambda: p.slave.last_error is not None)
        assert "No space left on device" in p.slave.last_error
        await p.has(p.master.log)
        assert (p.slave.connections, p.slave.last_error) == (1, None)
        assert p.loop.time() > 60.0
        pauses = [b - a for (a, _), (b, _) in itertools.pairwise(p.master.reports)]
        assert max(pauses) < 6.0

    play(main, ScriptedMaster(log_of(200_000)), store)


def test_a_disk_that_becomes_full_within_a_block():
    """The records for the last file are appended, and the next append begins after them."""

    class Filling(Store):
        def append_raw(self, phy_offset, data):
            if self.refuse and len(data) > 100:
                self.log += data[:50]
                raise self.refuse.pop()
            return super().append_raw(phy_offset, data)

    store = Filling()
    store.refuse = [StoreFullError(28, "No space left on device", "f")]

    async def main(p):
        await p.has(p.master.log)
        assert p.slave.connections == 1

    play(main, ScriptedMaster(log_of(50_000)), store)


@pytest.mark.parametrize("error", [ClosedError("closed"), StoreIOError(5, "Input/output error", "f")])
def test_a_store_that_is_unusable_ends_the_slave(error):
    store = Store()
    store.refuse = [error]

    async def main(p):
        assert await p.fails(type(error)) is error
        assert (p.slave.state, p.slave.connected) == ("waiting", False)

    play(main, ScriptedMaster(log_of(500)), store)


def test_another_writer_in_the_store_ends_the_slave():
    async def main(p):
        await p.has(p.master.log)
        p.store.log += b"own record"
        p.master.grow(b"x" * 10)
        await p.fails(PhyOffsetError, "the log ends at 510")

    play(main, ScriptedMaster(log_of(500)))


# ---------------------------------------------------------------------------------------------- connections


def test_attempts_have_pauses_up_to_5_s():
    async def main(p):
        p.master.is_reachable = False
        await p.until(lambda: p.slave.last_error is not None)
        assert (p.slave.connected, p.slave.last_error) == (False, "Connection refused")
        await asyncio.sleep(100.0)
        times = [time for time, *_ in p.master.attempts]
        pauses = [b - a for a, b in itertools.pairwise(times)]
        assert pauses[0] <= 0.1 and max(pauses) <= 5.0 and min(pauses[-10:]) >= 2.5
        p.master.is_reachable = True
        await p.has(p.master.log)
        assert p.slave.last_error is None
        p.master.cut()
        await p.until(lambda: p.slave.connections == 2, 0.2)  # the pauses begin with the shortest again

    async def late(p):
        p.master.is_reachable = False
        await main(p)

    play(late, ScriptedMaster(log_of(500)))


@pytest.mark.parametrize("then", [b"", encode_header(77, 5)])
def test_connections_that_append_nothing_have_longer_and_longer_pauses(then):
    log = log_of(9000)

    def known(link, report):
        link.transport.write(encode_header(report, 4999) + log[report : report + 4999] + then)
        link.transport.close()

    async def main(p):
        p.master.answer = known
        await asyncio.sleep(100.0)
        assert 20 < p.slave.connections < 40
        p.master.answer = None
        await p.has(log)
        await asyncio.sleep(25.0)
        p.master.cut()
        await asyncio.sleep(0.2)
        assert p.slave.connected

    play(main, ScriptedMaster(log), Store(log[:5000]))


def never(host, port):
    return lambda protocol: asyncio.sleep(1e6)


def test_an_attempt_that_does_not_end():
    async def main(p):
        await p.until(lambda: p.slave.last_error is not None)
        assert p.loop.time() < 6.0
        assert p.slave.last_error == "no connection in time"

    play(main, connect=never)


def test_a_name_that_no_host_can_have_is_waited_for():
    """A name server may tell it; `getaddrinfo` raises UnicodeError."""

    async def main(p):
        await p.until(lambda: p.slave.last_error is not None)
        assert p.slave.last_error == "'idna' codec can't encode character: label empty or too long"
        p.slave.change_master(("10.0.0.2", 1))
        await p.has(p.master.log)

    master = ScriptedMaster(log_of(500))

    async def wrong(protocol):
        raise UnicodeError("'idna' codec can't encode character: label empty or too long")

    play(main, master, connect=lambda host, port: wrong if host == ADDRESS[0] else master.connector(host, port))


def test_a_silent_master_is_left_after_20_s():
    def say_nothing(link, report):
        pass

    async def main(p):
        p.master.answer = say_nothing
        await p.until(lambda: p.slave.connections == 2)
        assert 20.0 <= p.loop.time() < 21.0
        assert p.slave.last_error == "the master sent nothing for 20 s"

    play(main)


def test_a_master_that_closes():
    async def main(p):
        p.master.answer = lambda link, report: link.transport.close()
        await p.until(lambda: p.slave.connections >= 3)
        assert "closed" in p.slave.last_error
        p.master.answer = None
        p.master.grow(log_of(500))
        await p.has(log_of(500))

    play(main)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a master announces"),
        (b"\xff" * 40, "a master announces -1 bytes"),
        (struct.pack(">qi", 0, 1 << 30), "a master announces 1073741824 bytes"),
        (struct.pack(">qi", -5, 10), "the physical offset -5; it must not be negative"),
        (struct.pack(">qi", 1 << 62, 10), "continues at the physical offset 4611686018427387904; 1 was expected"),
        (encode_header(1, 3) + b"abc" + encode_header(9, 1), "continues at the physical offset 9; 4 was expected"),
    ],
)
def test_a_hostile_master_changes_nothing(data, text):
    async def main(p):
        p.master.answer = lambda link, report: link.transport.write(data)
        await p.until(lambda: p.slave.connections >= 3)
        assert text in p.slave.last_error
        assert not p.store.log
        assert len(p.master.attempts) <= 4
        p.master.answer = None
        await p.has(p.master.log)

    play(main, ScriptedMaster(log_of(500)), from_start=0)


def test_a_record_that_never_ends():
    class Endless(Store):
        def append_raw(self, phy_offset, data):
            return phy_offset

    def send(link, report):
        at = 0
        for _ in range(40):
            link.transport.write(encode_header(at, 2 << 20) + bytes(2 << 20))
            at += 2 << 20

    async def main(p):
        p.master.answer = send
        await p.until(lambda: p.slave.last_error is not None)
        assert "a record of the master at 0 does not end within" in p.slave.last_error

    play(main, store=Endless())


# ---------------------------------------------------------------------------------------------- another master


def test_another_master_is_copied_at_once():
    log, other = log_of(20_000), ScriptedMaster(log_of(40_000))

    async def main(p):
        await p.has(log)
        p.slave.change_master(("10.0.0.2", 7))
        p.slave.change_master(("10.0.0.2", 7))
        await p.has(other.log)
        assert not p.master.links
        assert other.attempts[-1][1:] == ("10.0.0.2", 7)

    first = ScriptedMaster(log_of(40_000)[:20_000])
    log = first.log
    connectors = {ADDRESS[0]: first.connector, "10.0.0.2": other.connector}
    play(main, first, connect=lambda host, port: connectors[host](host, port))


def test_no_master_is_waited_for():
    async def main(p):
        await p.has(p.master.log)
        p.slave.change_master(None)
        await asyncio.sleep(100.0)
        assert (p.slave.state, p.slave.connected, p.master.links) == ("waiting", False, [])
        p.master.grow(log_of(500, seed=3)[:100])
        p.slave.change_master(ADDRESS)
        await p.until(lambda: p.slave.position == 600, 1.0)

    play(main, ScriptedMaster(log_of(500)))


def test_a_change_ends_a_long_pause():
    async def main(p):
        p.master.is_reachable = False
        await asyncio.sleep(50.0)
        p.master.is_reachable = True
        p.slave.change_master(("10.0.0.3", 1))
        await p.until(lambda: p.slave.connected, 0.1)

    play(main)


# ---------------------------------------------------------------------------------------------- limits, the end


def test_the_rate_limit():
    log = log_of(1_000_000)

    async def main(p):
        await p.has(log)
        assert 9.0 < p.loop.time() < 11.0
        assert p.slave.connections == 1

    play(main, ScriptedMaster(log), rate_limit=100_000)


def test_a_slow_rate_limit_is_not_the_masters_silence():
    log = log_of(100)

    async def main(p):
        await p.until(lambda: p.slave.position == 100)
        assert (p.slave.connections, p.slave.last_error) == (1, None)
        assert p.loop.time() > 20.0

    play(main, ScriptedMaster(log), rate_limit=4)


def test_the_end_closes_the_connection():
    async def main(p):
        await p.has(p.master.log)
        await p.end()
        await asyncio.sleep(1.0)
        assert p.task.cancelled()
        assert (p.slave.state, p.slave.connected, p.master.links) == ("waiting", False, [])

    play(main, ScriptedMaster(log_of(500)))


def test_the_end_while_it_connects():
    async def main(p):
        await asyncio.sleep(1.0)
        assert p.slave.state == "connecting"
        await p.end()
        assert p.task.cancelled()

    play(main, connect=never)
