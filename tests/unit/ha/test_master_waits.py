"""What a master acknowledges, and when: messages that wait for its slaves, on virtual time."""

import asyncio

from unit.ha.staged_master import FILE_SIZE, NOT_AVAILABLE, OK, TIMEOUT, report

from rocketc.ha.master import MasterSettings

# ---------------------------------------------------------------------------------------------- waits


def test_a_message_is_acknowledged_when_a_slave_has_it(play):
    """HATest: PUT_OK means that the slave has the record at the same physical offset."""

    async def main(stage):
        slave = stage.slave(0, delay=(0.1, 0.1))
        await asyncio.sleep(1)
        stage.put()
        stage.wait()
        await asyncio.sleep(0.15)
        assert stage.answers == []
        await asyncio.sleep(0.15)
        assert stage.answers == [(OK, 1.2)] and slave.log == stage.log(0)

    play(main)


def test_two_slaves_of_which_one_is_slow(play):
    async def main(stage):
        stage.slave(0, delay=(0.1, 0.1))
        slow = stage.slave(0, delay=(1.0, 1.0))
        await asyncio.sleep(5)
        stage.put()
        stage.wait()
        await asyncio.sleep(0.5)
        assert stage.answers == [(OK, 5.2)] and slow.log == b""
        await asyncio.sleep(1)
        assert slow.log == stage.log(0)

    play(main)


def test_three_replicas_wait_for_both_slaves(play):
    async def main(stage):
        stage.slave(0, delay=(0.1, 0.1)), stage.slave(0, delay=(1.0, 1.0))
        await asyncio.sleep(5)
        stage.put()
        stage.wait()
        await asyncio.sleep(3)
        assert stage.answers == [(OK, 7.0)]

    play(main, in_sync_replicas=3)


def test_no_slave_and_a_slow_slave(play):
    """HATest: after the slave has stopped, 4.9.7 answers SLAVE_NOT_AVAILABLE at once, and so does this master."""

    async def main(stage):
        stage.put()
        stage.wait()
        await asyncio.sleep(1)
        slave = stage.slave(0, reports=False)
        await asyncio.sleep(1)
        stage.wait()
        await asyncio.sleep(5)
        slave.transport.abort()
        await asyncio.sleep(1)
        stage.wait()
        await asyncio.sleep(1)
        assert stage.answers == [(NOT_AVAILABLE, 0.0), (TIMEOUT, 5.0), (NOT_AVAILABLE, 8.0)]

    play(main)


def test_a_copy_that_acknowledges_nothing(play):
    """It reports its start again and again: no message is ever acknowledged by it."""

    async def main(stage):
        copy = stage.slave(0, reports=False)
        for _ in range(20):
            await asyncio.sleep(1)
            stage.put()
            stage.wait()
            copy.report(0)
        await asyncio.sleep(5)
        assert len(stage.answers) == 20 and {status for status, _ in stage.answers} == {TIMEOUT}
        assert copy.log == stage.log(0) and not copy.ended

    play(main)


def test_the_end_waits_for_the_last_messages(play):
    async def main(stage):
        slave = stage.slave(0, delay=(0.1, 0.1))
        await asyncio.sleep(1)
        stage.put()
        stage.wait()
        await stage.master.close()
        assert stage.answers == [(OK, 1.2)] and slave.log == stage.log(0)
        await stage.master.close()
        stage.wait()
        await asyncio.sleep(1)
        assert stage.answers[1:] == [(TIMEOUT, 1.2)] and slave.ended
        late = stage.slave(0)
        await asyncio.sleep(1)
        assert late.ended, "no connection after the end"

    play(main)


def test_the_end_does_not_wait_for_a_dead_slave(play):
    async def main(stage):
        stage.slave(0, reports=False)
        await asyncio.sleep(1)
        stage.put()
        stage.wait()
        await stage.master.close(grace=0.5)
        assert stage.answers == [(TIMEOUT, 1.5)]

    play(main)


def test_an_end_that_is_canceled_is_one(play):
    async def main(stage):
        slave = stage.slave(0, reports=False)
        await asyncio.sleep(1)
        stage.put()
        stage.wait()
        closing = asyncio.ensure_future(stage.master.close(grace=30.0))
        await asyncio.sleep(0.1)
        closing.cancel()
        await asyncio.sleep(0.1)
        assert closing.cancelled() and slave.ended and stage.answers == [(TIMEOUT, 1.1)]

    play(main)


def test_two_ends_at_the_same_time(play):
    async def main(stage):
        slave = stage.slave(0, reports=False)
        await asyncio.sleep(1)
        stage.put()
        stage.wait()
        await asyncio.gather(stage.master.close(grace=2.0), stage.master.close(grace=0.5))
        assert slave.ended and stage.answers == [(TIMEOUT, 1.5)]

    play(main)


# ---------------------------------------------------------------------------------------------- slaves that come


def test_a_slave_that_comes_does_not_acknowledge_what_it_was_not_sent(play):
    """It may have another log, whose records fit by their offsets. RocketMQ counts its first report."""

    async def main(stage):
        stage.put(3)
        hangs = stage.slave(0, reports=False)
        await asyncio.sleep(1)
        stage.wait()
        late = stage.slave(stage.store.max_phy_offset, reports=False)
        await asyncio.sleep(0.1)
        stage.put()
        stage.wait()
        await report(late, stage.store.max_phy_offset)
        assert [status for status, _ in stage.answers] == [OK]
        await asyncio.sleep(5)
        assert stage.answers[1:] == [(TIMEOUT, 4.0)] and len(hangs.log) == stage.store.max_phy_offset

    play(main)


def test_an_empty_slave_does_not_acknowledge_earlier_files(play):
    async def main(stage):
        stage.slave(0, reports=False)
        await asyncio.sleep(1)
        stage.put(200)
        stage.wait()
        stage.put(400)
        late = stage.slave(0)
        await asyncio.sleep(0.5)
        assert late.first_offset == FILE_SIZE
        stage.put()
        stage.wait()
        await asyncio.sleep(5)
        assert [status for status, _ in stage.answers] == [OK, TIMEOUT]

    play(main)


# ---------------------------------------------------------------------------------------------- other settings


def test_other_settings_for_connected_slaves(play):
    async def main(stage):
        slave, silent = stage.slave(0, reports=False), stage.slave(None)
        await asyncio.sleep(1)
        stage.master.configure(MasterSettings(ha_send_heartbeat_interval=1000, ha_housekeeping_interval=4000))
        await asyncio.sleep(2.5)
        assert len(slave.heartbeats_at) == 3
        await report(slave, 0)
        await asyncio.sleep(1)
        assert silent.ended and not slave.ended
        stage.master.configure(MasterSettings(max_ha_transfer_byte_in_second=1000, ha_transfer_batch_size=100))
        stage.put(20)
        await asyncio.sleep(1.5)
        assert 1000 <= len(slave.log) <= 3000
        stage.master.configure(MasterSettings())
        await asyncio.sleep(0.1)
        assert slave.log == stage.log(0)

    play(main)


def test_other_numbers_of_replicas(play):
    async def main(stage):
        stage.slave(0)
        await asyncio.sleep(1)
        stage.master.configure(MasterSettings(in_sync_replicas=3, slave_timeout=500))
        stage.put()
        stage.wait()
        await asyncio.sleep(1)
        assert stage.answers == [(TIMEOUT, 1.5)]
        stage.put()
        stage.wait()
        await asyncio.sleep(0.1)
        stage.master.configure(MasterSettings())
        assert [status for status, _ in stage.answers[1:]] == [OK]
        stage.master.configure(MasterSettings(in_sync_replicas=1))
        stage.wait()
        await asyncio.sleep(0)
        assert [status for status, _ in stage.answers[2:]] == [OK]

    play(main)
