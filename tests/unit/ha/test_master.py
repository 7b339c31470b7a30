"""The master with a real store: on virtual time and a network in memory, and once on real sockets."""

import asyncio
import contextlib
import os
import random
import struct

import pytest
from simulation import virtual
from simulation.slaves import Slave
from unit.ha.staged_master import FILE_SIZE, OK, TIMEOUT

import rocketc
from rocketc.ha.master import CONNECTIONS_MOST, READ_BYTES, UNREAD_BYTES, Master
from rocketc.ha.protocol import encode_report

# ---------------------------------------------------------------------------------------------- transfers


@pytest.mark.parametrize("start", [0, 1, 57, FILE_SIZE - 1, FILE_SIZE, FILE_SIZE + 100])
def test_a_slave_gets_the_log_from_its_offset_on(play, start):
    async def main(stage):
        stage.put(1500)
        slave = stage.slave(start)
        await asyncio.sleep(1)
        begin = start or stage.store.max_phy_offset // FILE_SIZE * FILE_SIZE
        assert slave.first_offset == begin and slave.log == stage.log(begin)
        stage.put(700)  # across the end of a file
        await asyncio.sleep(1)
        assert slave.log == stage.log(begin) and stage.store.max_phy_offset > 4 * FILE_SIZE
        [replica] = stage.master.replicas
        assert replica.acknowledged == stage.store.max_phy_offset == stage.master.replicas.replicated

    play(main)


@pytest.mark.parametrize("batch", [1, 100, 32 << 10])
def test_transfers_never_cross_the_end_of_a_file(play, batch):
    async def main(stage):
        stage.put(700)
        got = bytearray()

        class Raw(Slave):
            def data_received(self, data):
                got.extend(data)

        virtual.link(Raw(1), stage.master.connection(), stage.chance)
        await asyncio.sleep(1)
        at, next_offset, log = 0, 1, b""
        while at < len(got):
            offset, size = struct.unpack_from(">qi", got, at)
            assert offset == next_offset and 0 < size <= batch
            assert offset // FILE_SIZE == (offset + size - 1) // FILE_SIZE
            log += got[at + 12 : at + 12 + size]
            at, next_offset = at + 12 + size, next_offset + size
        assert log == stage.log(1) and len(log) > FILE_SIZE

    play(main, ha_transfer_batch_size=batch)


def test_an_append_wakes_without_a_poll(play):
    """Between appends nothing runs but heartbeats."""

    async def main(stage):
        slave = stage.slave(0, delay=(0.001, 0.001))
        await asyncio.sleep(1)
        [connection], reads = stage.master.connections, []
        pump = connection.pump

        def counted():
            reads.append(asyncio.get_running_loop().time())
            pump()

        connection.pump = counted
        await asyncio.sleep(100)
        assert reads == []
        stage.put()
        began = asyncio.get_running_loop().time()
        while len(slave.log) < stage.store.max_phy_offset:
            await asyncio.sleep(0.0001)
        assert asyncio.get_running_loop().time() - began < 0.003 and 1 <= len(reads) <= 3

    play(main)


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_bytes_that_are_not_durable_are_sent(play, flush):
    async def main(stage):
        slave = stage.slave(0)
        await asyncio.sleep(1)
        put = stage.store.put_async("orders", b"one")
        await asyncio.sleep(1)
        assert len(slave.log) == stage.store.max_phy_offset > stage.store.flushed_phy_offset
        stage.store.flush()
        assert put.result(timeout=5)

    play(main, store={"flush": flush})


def test_readers_that_are_held_back_do_not_hold_back_slaves(play):
    async def main(stage):
        slave = stage.slave(0)
        stage.put()
        await asyncio.sleep(1)
        assert len(slave.log) == stage.store.max_phy_offset > stage.store.confirmed_phy_offset == 0

    play(main, store={"hold_readers": True})


def test_bytes_of_a_pool_are_sent_when_they_are_in_the_file(play):
    async def main(stage):
        slave = stage.slave(0)
        stage.put()
        await asyncio.sleep(1)
        assert slave.log == b""
        stage.store.flush()
        await asyncio.sleep(1)
        assert len(slave.log) == stage.store.max_phy_offset

    play(main, store={"transient_store_pool_enable": True, "transient_store_pool_size": 2})


def test_a_rate(play):
    async def main(stage):
        stage.put(500)
        slave, end = stage.slave(1), stage.store.max_phy_offset
        await asyncio.sleep(0.9)
        assert len(slave.log) == 30_000
        await asyncio.sleep(2)
        assert len(slave.log) == min(90_000, end - 1)
        [connection] = stage.master.connections
        assert connection.sending.sent_in_second(asyncio.get_running_loop().time()) > 20_000
        await asyncio.sleep(3)
        assert slave.log == stage.log(1)

    play(main, max_ha_transfer_byte_in_second=30_000)


# ---------------------------------------------------------------------------------------------- reconnecting


def test_cuts_in_the_middle_of_everything(play):
    """A slave that keeps what has arrived, whole records or not, ends with the master's log."""

    async def main(stage):
        kept = b""
        for _ in range(150):
            stage.put(stage.chance.randint(0, 20), stage.chance.randint(0, 900))
            slave = stage.slave(1 + len(kept), delay=(0.0, 0.005))
            await asyncio.sleep(stage.chance.uniform(0, 0.03))
            slave.transport.cut()
            kept += slave.log
            await asyncio.sleep(0.01)
        slave = stage.slave(1 + len(kept))
        await asyncio.sleep(1)
        assert kept + slave.log == stage.log(1) and stage.store.max_phy_offset > 4 * FILE_SIZE

    play(main)


# ---------------------------------------------------------------------------------------------- times


def test_heartbeats_and_housekeeping(play):
    """HATest: heartbeat 1 s, housekeeping 2 s."""

    async def main(stage):
        slave = stage.slave(0, reports=False, delay=(0.0, 0.0))
        await asyncio.sleep(1.9)
        assert slave.heartbeats_at == [1.0] and not slave.ended
        slave.report(0)
        await asyncio.sleep(1.9)
        assert slave.heartbeats_at == [1.0, 2.0, 3.0] and not slave.ended
        await asyncio.sleep(0.5)
        assert slave.ended and len(stage.master.replicas) == 0

    play(main, ha_send_heartbeat_interval=1000, ha_housekeeping_interval=2000)


def test_a_slave_before_its_first_report_gets_nothing(play):
    async def main(stage):
        stage.put()
        slave = stage.slave(None)
        await asyncio.sleep(19.9)
        assert slave.first_offset is None and not slave.ended
        await asyncio.sleep(0.2)
        assert slave.ended

    play(main)


# ---------------------------------------------------------------------------------------------- slow slaves


def test_a_slave_that_does_not_read_costs_only_itself(play):
    async def main(stage):
        stage.put()
        stuck, good = stage.slave(1), stage.slave(1)
        await asyncio.sleep(0.5)
        stuck.transport.pause_reading()
        for _ in range(40):
            stage.put(100, 1000)
            await asyncio.sleep(0.1)
        assert stage.store.max_phy_offset > 4 << 20 and good.log == stage.log(1)
        most = UNREAD_BYTES + READ_BYTES + 100_000
        assert stuck.transport.other.get_write_buffer_size() <= most
        stuck.transport.resume_reading()
        await asyncio.sleep(2)
        assert stuck.log == stage.log(1)

    play(main)


# ---------------------------------------------------------------------------------------------- hostile peers


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        struct.pack(">q", -1),
        struct.pack(">q", 1 << 62),
        b"\xff" * 100_000,
        b"\x00" * 7 + b"\xff",
    ],
)
def test_garbage_costs_its_own_connection(play, data, caplog):
    async def main(stage):
        good = stage.slave(0)
        bad = stage.slave(None)
        bad.transport.write(data)
        await asyncio.sleep(1)
        stage.put()
        stage.wait()
        await asyncio.sleep(1)
        assert bad.ended and bad.log == b"" and not good.ended and good.log == stage.log(0)
        assert [status for status, _ in stage.answers] == [OK] and len(stage.master.connections) == 1

    play(main)
    assert "a slave reports the physical offset" in caplog.text and "the connection is closed" in caplog.text


@pytest.mark.parametrize("lie", [1, 1000, 1 << 40])
def test_a_false_report_acknowledges_nothing(play, lie):
    """It reports what it was not sent."""

    async def main(stage):
        liar = stage.slave(0, reports=False)
        await asyncio.sleep(1)
        liar.transport.pause_reading()
        stage.put(1, 50)
        stage.wait()
        liar.report(stage.store.max_phy_offset + lie)
        await asyncio.sleep(5)
        assert stage.answers == [(TIMEOUT, 4.0)] and liar.ended and stage.master.replicas.pushed == 0

    play(main)


def test_an_offset_before_the_log(play, caplog):
    """The files were deleted: the slave only gets heartbeats, as from RocketMQ."""

    async def main(stage):
        stage.put(2000)
        stage.store.step()
        stage.store.delete_before(2 * FILE_SIZE)
        slave = stage.slave(100)
        for _ in range(3):
            await asyncio.sleep(6)
            slave.report(100)
            stage.put()
        assert slave.log == b"" and not slave.ended and slave.decoder.next_offset == 100
        assert len(slave.heartbeats_at) >= 3

    play(main)
    assert caplog.text.count("the slave gets nothing") == 1 and f"the log begins at {2 * FILE_SIZE}" in caplog.text


def test_a_slave_whose_next_bytes_are_deleted_meanwhile_has_to_connect_again(play, caplog):
    """Heartbeats would say that it has the whole log, for ever."""

    async def main(stage):
        stage.put(1)
        slave = stage.slave(1)
        await asyncio.sleep(1)
        slave.transport.pause_reading()
        stage.put(3000, 1000)
        await asyncio.sleep(1)
        stage.store.step()
        stage.store.delete_before(40 * FILE_SIZE)
        slave.transport.resume_reading()
        await asyncio.sleep(1)
        assert slave.ended and 1 < len(slave.log) < 40 * FILE_SIZE

    play(main)
    assert "the next bytes of the slave were deleted" in caplog.text


def test_an_empty_log_that_begins_later_than_its_slave(play, tmp_path):
    """A slave that is a master too: its log begins at the last file of its master."""

    async def main(stage):
        slave = stage.slave(0)
        await asyncio.sleep(1)
        with rocketc.open(tmp_path / "first", mapped_file_size_commit_log=FILE_SIZE) as first:
            first.put_many("orders", [bytes(1000)] * 100)
            stage.store.append_raw(FILE_SIZE, first.read_raw(FILE_SIZE))
        await asyncio.sleep(1)
        assert slave.ended and slave.log == b""
        slave = stage.slave(0)
        await asyncio.sleep(1)
        assert slave.first_offset == FILE_SIZE and slave.log == stage.log(FILE_SIZE) != b""

    play(main, store={"broker_role": "SLAVE"})


def test_peers_that_do_not_replicate_are_logged_once(play, caplog):
    """A health check, or a slave with another log that connects again and again, does not fill the log."""
    caplog.set_level("INFO", "rocketc.ha")

    async def main(stage):
        for start in [1000, 2000, None, 1 << 60]:
            for _ in range(10):
                slave = stage.slave(start)
                await asyncio.sleep(1)
                assert slave.ended is (start is not None)
                if not slave.ended:
                    slave.transport.close()
        await asyncio.sleep(1)
        assert len(caplog.records) == 1 and "reports the physical offset 1000" in caplog.text
        stage.slave(0)
        await asyncio.sleep(1)
        stage.slave(1 << 60)
        await asyncio.sleep(1)
        assert [one.levelname for one in caplog.records] == ["WARNING", "INFO", "WARNING"]

    play(main)


def test_a_limit_on_connections(play):
    """Peers that never report make room for slaves; slaves do not."""

    async def main(stage):
        first = stage.slave(0)
        await asyncio.sleep(1)
        silent = [stage.slave(None) for _ in range(5)]
        await asyncio.sleep(1)
        assert not first.ended and [one.ended for one in silent] == [True, True, False, False, False]
        others = [stage.slave(0) for _ in range(3)]
        await asyncio.sleep(1)
        assert not any(one.ended for one in [first, *others]) and all(one.ended for one in silent)
        late = stage.slave(0)
        await asyncio.sleep(1)
        assert late.ended and stage.master.refused == 1 and len(stage.master.replicas) == 4

    assert CONNECTIONS_MOST > 100
    play(main, connections=4)


def test_a_closed_store_is_refused_and_nothing_is_left(tmp_path):
    store = rocketc.open(tmp_path, mapped_file_size_commit_log=FILE_SIZE)
    store.close()

    async def main():
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(ValueError, match="the store is closed"):
                Master(store, FILE_SIZE)
        assert len(os.listdir("/proc/self/fd")) == before

    virtual.run(main())


def test_a_store_that_is_closed_first(play):
    async def main(stage):
        slave = stage.slave(0)
        await asyncio.sleep(1)
        stage.store.close()
        await asyncio.sleep(1)
        assert slave.ended

    play(main)


def test_a_store_that_is_read_only(tmp_path):
    async def main():
        with (
            rocketc.open(tmp_path, mapped_file_size_commit_log=FILE_SIZE),
            rocketc.open(tmp_path, read_only=True) as reader,
            pytest.raises(ValueError, match="open for reading only"),
        ):
            Master(reader, FILE_SIZE)

    virtual.run(main())


# ---------------------------------------------------------------------------------------------- real sockets


def loops():
    kinds = [asyncio.new_event_loop]
    with contextlib.suppress(ImportError):
        import uvloop

        kinds.append(uvloop.new_event_loop)
    return kinds


@pytest.mark.parametrize("new_loop", loops(), ids=lambda kind: kind.__module__)
def test_real_sockets(tmp_path, new_loop):
    """A store with threads, 3 MiB before the slave comes and 3 MiB while it follows, and a peer that does not read."""

    async def main():
        with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
            master = Master(store, 1 << 20)
            host, port = await master.listen("127.0.0.1", 0)
            loop = asyncio.get_running_loop()
            for _ in range(3000):
                store.put("orders", os.urandom(1000))
            _, stuck = await asyncio.open_connection(host, port)
            stuck.transport.pause_reading()
            stuck.write(encode_report(1))
            _, slave = await loop.create_connection(lambda: Slave(1, reports=True), host, port)
            for n in range(3000):
                store.put("orders", os.urandom(1000))
                if n % 100 == 0:
                    await asyncio.sleep(0)
            assert await master.replicated(20)
            starts = [1, *range(1 << 20, store.max_phy_offset, 1 << 20)]
            assert slave.log == b"".join(store.read_log(at, 1 << 20) for at in starts)
            [late] = [one for one in master.connections if one.replica.acknowledged == 1]
            assert late._transport.get_write_buffer_size() <= UNREAD_BYTES + READ_BYTES + 1000
            stuck.close()
            await master.close()

    loop = new_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), 60))
    finally:
        loop.close()


def test_cold_bytes_are_read_by_a_thread(tmp_path, monkeypatch):
    """The loop does not wait for the disk. The bytes are the same."""

    async def main():
        with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
            for _ in range(2000):
                store.put("orders", bytes(1000))
            master, loads = Master(store, 1 << 20), []
            loop = asyncio.get_running_loop()
            run_in_executor = loop.run_in_executor
            monkeypatch.setattr(loop, "run_in_executor", lambda *how: (loads.append(how), run_in_executor(*how))[1])
            cold = "rocketc.ha.master.SlaveConnection._is_cold"
            monkeypatch.setattr(cold, lambda self, view: view.start < 1 << 20)
            slave = Slave(1, reports=True)
            virtual.link(slave, master.connection(), random.Random(1), (0.0, 0.0))
            await asyncio.sleep(0.05)
            assert await master.replicated(20)
            assert len(loads) >= 4 and len(slave.log) == store.max_phy_offset - 1
            await master.close()

    asyncio.run(main())
