"""TimerService: timed messages on a clock that the test sets; restarts, kills, clock jumps, recalls, damage."""

import asyncio
import logging
import struct
import threading

import pytest
from unit.broker.timed import DAY, EPOCH, SMALL, Timed, copy_of, timed

import rocketc
from rocketc.broker import names, timers
from rocketc.broker._timers import ENQUEUED_AT_ONCE
from rocketc.broker.config import BrokerConfig
from rocketc.broker.timed_puts import Refused
from rocketc.broker.timers import TimerService
from rocketc.derived._timer_log import DELETE, NORMAL, ROLL
from rocketc.errors import StoreFullError
from rocketc.status import PutStatus


@timed
async def test_a_message_is_delivered_a_step_after_its_time(t):
    t.now += 300
    assert t.put("one", queue_id=2, TIMER_DELAY_SEC=3) == EPOCH + 3000
    await t.run()
    assert t.service.pending == t.service.count(EPOCH + 3000) == 1
    await t.at(EPOCH + 3999)
    assert t.bodies(queue_id=2) == []
    await t.at(EPOCH + 4005)
    [message] = t.got(queue_id=2)
    [waits] = t.got(names.TIMER_TOPIC)
    assert message.properties == waits.properties | {
        "TIMER_ENQUEUE_MS": str(EPOCH),
        "TIMER_DEQUEUE_MS": str(EPOCH + 4005),
    }
    assert message.properties["TIMER_OUT_MS"] == str(EPOCH + 3000) and message.properties["REAL_QID"] == "2"
    for name in ("flag", "sys_flag", "born_timestamp", "born_host", "store_host", "body_crc", "stored_body"):
        assert getattr(message, name) == getattr(waits, name)
    assert t.service.pending == 0 and t.service.timers.wheel.slot(EPOCH + 3000) == (0, 0, 1)


@timed
async def test_due_times_up_to_three_days(t):
    delays = [1, 2, 59, 60, 3600, DAY // 1000, 172_799, 172_800, 172_801, 200_000, 259_200]
    due = {str(delay): t.put(str(delay), TIMER_DELAY_SEC=delay) for delay in delays}
    assert t.put("more", TIMER_DELAY_SEC=259_201).status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert "should not be bigger than the max delay 259200000ms" in t.put("x", TIMER_DELAY_SEC=259_201).remark
    await t.run()
    marks = sorted({moment for one in due.values() for moment in (one + 999, one + 1000)})
    marks += [EPOCH + 1000 * roll for roll in (86_400, 86_401, 172_800, 172_801)]
    for mark in sorted(marks):
        await t.at(mark)
        assert set(t.bodies()) == {body for body, one in due.items() if one + 1000 <= mark}
    assert t.bodies() == [str(delay) for delay in delays]
    assert {one.properties.get("TIMER_ROLL_TIMES") for one in t.got()[7:]} == {"1"}
    assert all("TIMER_ROLL_TIMES" not in one.properties for one in t.got()[:7])


def test_thirty_days(tmp_path):
    async def main():
        t = await Timed(tmp_path, timer_max_delay_sec=30 * 86_400).open()
        due = t.put("month", TIMER_DELAY_SEC=30 * 86_400)
        assert isinstance(t.put("more", TIMER_DELAY_SEC=30 * 86_400 + 1), Refused)
        await t.run()
        t.service._kept = ()
        for day in range(1, 31):
            if day % 7 == 0:  # a restart
                t.end()
                await t.open()
            await t.at(EPOCH + day * DAY)
        assert t.bodies() == []
        await t.at(due + 1000)
        [message] = t.got()
        assert message.body == b"month" and 9 <= int(message.properties["TIMER_ROLL_TIMES"]) <= 16
        assert t.service.counts.get("orders") == 0 and t.service.pending == 0
        t.end()

    asyncio.run(main())


@timed
async def test_the_rounds_of_rocketmq(t):
    """As observed on 5.3.3 with a roll window of 20 steps: 7 s, 2.5 s and 2 s ahead of a window of 2 s."""
    t.end()
    t.config.timer_precision_ms, t.config.timer_roll_window_slot = 100, 20
    await t.open()
    for delay in (7000, 2500, 2100, 2000, 1900):
        t.put(str(delay), TIMER_DELIVER_MS=EPOCH + delay + 1)
    await t.run()
    log = t.service.timers.log
    assert [log.unit(52 * n)[1:4] for n in range(5)] == [
        (NORMAL | ROLL, EPOCH, 2000), (NORMAL | ROLL, EPOCH, 1000), (NORMAL | ROLL, EPOCH, 1000),
        (NORMAL | ROLL, EPOCH, 1000), (NORMAL, EPOCH, 1900),
    ]  # fmt: skip
    await t.at(EPOCH + 1100)
    assert [log.unit(52 * n)[1:4] for n in range(5, 8)] == [
        (NORMAL, EPOCH + 1100, 1400), (NORMAL, EPOCH + 1100, 1000), (NORMAL, EPOCH + 1100, 900),
    ]  # fmt: skip
    for tick in range(12, 73):
        await t.at(EPOCH + 100 * tick)
    assert t.bodies() == ["1900", "2000", "2100", "2500", "7000"]
    assert [one.properties.get("TIMER_ROLL_TIMES") for one in t.got()] == [None, "1", "1", "1", "3"]
    assert t.service.counts.get("orders") == 0


@timed
async def test_messages_that_are_due_at_once(t):
    """They were put into the topic, and their time passed before they came into the wheel."""
    t.put("late", TIMER_DELAY_SEC=1)
    t.put("takes back", TIMER_DELAY_SEC=1, TIMER_DEL_UNIQKEY="orders+x")
    t.put("later", TIMER_DELAY_SEC=60)
    t.put("late too", TIMER_DELAY_SEC=2)
    await t.at(EPOCH + 5000)
    first, second = t.got()
    assert (first.body, second.body) == (b"late", b"late too")
    assert first.properties["TIMER_ENQUEUE_MS"] == str(ENQUEUED_AT_ONCE) == str((1 << 63) - 1)
    assert t.service.timers.log.end == 52 and t.service.counts.get("orders") == 1
    assert t.service.offset_behind == 0


@timed
async def test_what_waits_is_counted_once(t):
    """Recalls do not count: of a waiting message, of an unknown one, in further rounds, and if the store refuses."""
    t.end()
    t.config.timer_precision_ms, t.config.timer_roll_window_slot = 100, 20
    await t.open()
    counts = t.service.counts
    for i in range(4):
        t.put(f"m{i}", TIMER_DELIVER_MS=EPOCH + 7001)
    t.put("-", TIMER_DELIVER_MS=EPOCH + 7001, TIMER_DEL_UNIQKEY="orders+m1")
    t.put("-", TIMER_DELIVER_MS=EPOCH + 7001, TIMER_DEL_UNIQKEY="orders+unknown")
    await t.run()
    assert counts.get("orders") == 4
    for tick in range(1, 70):
        await t.at(EPOCH + 100 * tick)
        assert counts.get("orders") == 4 and t.service.pending >= 0
    t.store._set_full(True)
    with pytest.raises(StoreFullError):
        await t.at(EPOCH + 7200)
    t.store._set_full(False)
    await t.at(EPOCH + 7200)
    assert t.bodies() == ["m0", "m2", "m3"] and t.service.timers.recalled == 1
    assert counts.get("orders") == 0 and t.service.pending == 0


@timed
async def test_a_message_in_the_wheel_is_taken_back(t):
    """The key is that of the topic and the message, and the units may come in any order."""
    for body, back in (("a", "orders+a"), ("b", "b"), ("c", "other+c"), ("d", None)):
        t.put(body, TIMER_DELAY_SEC=5)
        if back is not None:
            t.put("-" + body, TIMER_DELAY_SEC=5, TIMER_DEL_UNIQKEY=back)
    t.put("-e", TIMER_DELAY_SEC=5, TIMER_DEL_UNIQKEY="orders+e")
    t.put("e", TIMER_DELAY_SEC=5)
    t.put("f", TIMER_DELAY_SEC=6)
    t.put("-f", TIMER_DELAY_SEC=5, TIMER_DEL_UNIQKEY="orders+f")  # at another moment
    await t.run()
    assert [t.service.timers.log.unit(52 * n)[1] for n in (0, 1)] == [NORMAL, NORMAL | DELETE]
    await t.at(EPOCH + 10_000)
    assert t.bodies() == ["b", "c", "d", "f"]
    assert t.service.timers.recalled == 2 and t.service.counts.get("orders") == 0


@timed
async def test_what_rolls_can_be_taken_back(t):
    t.put("a", TIMER_DELAY_SEC=200_000)
    await t.run()
    t.put("-a", TIMER_DELAY_SEC=200_000, TIMER_DEL_UNIQKEY="orders+a")
    await t.run()
    assert t.service.timers.log.unit(52)[1] == NORMAL | ROLL | DELETE
    for day in (1, 2, 3):
        await t.at(EPOCH + day * DAY)
    assert t.bodies() == [] and t.service.timers.recalled == 1
    assert [one.body for one in t.got(names.TIMER_TOPIC)] == [b"a", b"-a", b"a", b"-a"]


@timed
async def test_what_rolls_and_is_due_meanwhile(t):
    """The broker was down until the time had passed: the message is delivered, or taken back, without another round."""
    t.put("kept", TIMER_DELAY_SEC=200_000)
    t.put("a", TIMER_DELAY_SEC=200_000)
    t.put("-a", TIMER_DELAY_SEC=200_000, TIMER_DEL_UNIQKEY="orders+a")
    await t.run()
    await t.at(EPOCH + 3 * DAY)
    assert t.bodies() == ["kept"] and t.service.timers.recalled == 1
    assert len(t.got(names.TIMER_TOPIC)) == 3 and "TIMER_ROLL_TIMES" not in t.got()[0].properties


@timed
async def test_a_recall_that_was_stored_before_the_clock_was_set_forward(t):
    """Message and recall are due when the recall is read: it deletes the message."""
    t.put("kept", TIMER_DELAY_SEC=60)
    t.put("a", TIMER_DELAY_SEC=60)
    await t.run()
    t.put("-a", TIMER_DELAY_SEC=60, TIMER_DEL_UNIQKEY="orders+a")
    await t.at(EPOCH + 300_000)
    assert t.bodies() == ["kept"] and t.service.timers.recalled == 1


def test_a_recall_that_was_stored_before_a_kill(tmp_path):
    """No message had come into the wheel, or only the recalled one, and both are due at the start."""

    async def check(is_read):
        t = Timed(tmp_path / f"store{is_read}")
        await t.open()
        await t.run()
        t.put("first", TIMER_DELAY_SEC=2)
        await t.at(EPOCH + 5000)
        t.put("kept", TIMER_DELAY_SEC=60)
        t.put("a", TIMER_DELAY_SEC=60)
        if is_read:
            await t.run()
        t.put("-a", TIMER_DELAY_SEC=60, TIMER_DEL_UNIQKEY="orders+a")
        t.service.persist()
        while t.store.step():
            pass
        t.store.flush()
        left = Timed(copy_of(t, tmp_path / f"left{is_read}"))
        t.end()
        left.now = EPOCH + 300_000
        await left.open()
        await left.run()
        assert left.bodies() == ["first", "kept"]
        left.end()

    for is_read in (False, True):
        asyncio.run(check(is_read))


def test_a_deletion_must_be_in_time(tmp_path):
    async def main():
        t = await Timed(tmp_path).open()
        for when in (t.now, t.now - 1, 5):
            refused = t.put("-a", TIMER_DELIVER_MS=when, TIMER_DEL_UNIQKEY="orders+a")
            assert refused.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        t.end()

    asyncio.run(main())


# 100,000 at once


def test_100000_messages_of_one_second(tmp_path):
    """They are delivered in bounded parts, in their order, and each once."""

    async def main():
        t = Timed(tmp_path)
        t.store_settings = {**t.store_settings, "mapped_file_size_commit_log": 1 << 26}
        t.config.mapped_file_size_timer_log = 1 << 20
        await t.open()
        properties = {"TIMER_OUT_MS": str(EPOCH + 5000), "REAL_TOPIC": "orders", "REAL_QID": "0"}
        t.store.put_many(names.TIMER_TOPIC, [b"%d" % n for n in range(100_000)], properties=properties)
        await t.run()
        assert t.service.pending == t.service.count(EPOCH + 5000) == 100_000
        service, before, most, slices = t.service.timers, 0, 0, 0
        t.now = EPOCH + 6000
        while not service.dequeue(t.now).is_done:
            slices += 1
            most, before = max(most, service.delivered - before), service.delivered
        assert most == 512 and slices <= 100_000 / 512 + 10
        assert t.bodies() == [str(n) for n in range(100_000)]
        t.end()

    asyncio.run(main())


# the clock


@timed
async def test_a_clock_that_is_set_back(t, caplog):
    for n in range(1, 20):
        t.put(f"m{n}", TIMER_DELAY_SEC=n)
    await t.at(EPOCH + 10_500)
    assert t.bodies() == [f"m{n}" for n in range(1, 10)]
    await t.at(EPOCH + 4000)
    t.put("again", TIMER_DELIVER_MS=EPOCH + 7001)
    await t.run()
    await t.at(EPOCH + 7999)
    assert t.bodies()[9:] == []
    await t.at(EPOCH + 8000)
    assert t.bodies()[9:] == ["again"]
    await t.at(EPOCH + 30_000)
    assert t.bodies()[10:] == [f"m{n}" for n in range(10, 20)]
    assert "the clock was set back by 6000 ms" in caplog.text


@timed
async def test_a_clock_that_is_set_back_while_the_broker_is_down(t):
    t.put("one", TIMER_DELAY_SEC=5)
    t.put("two", TIMER_DELAY_SEC=100)
    await t.run()
    await t.at(EPOCH + 50_000)
    t.end()
    t.now = EPOCH - 20 * DAY
    await t.open()
    await t.run()
    assert t.bodies() == ["one"]
    t.put("three", TIMER_DELAY_SEC=5)
    await t.run()
    await t.at(t.now + 6000)
    assert t.bodies() == ["one", "three"]
    await t.at(EPOCH + 101_000)
    assert t.bodies() == ["one", "three", "two"]


@timed
async def test_a_clock_that_is_set_forward(t):
    for n in range(1, 5):
        t.put(f"m{n}", TIMER_DELAY_SEC=1000 * n)
    await t.run()
    await t.at(EPOCH + 3_500_000)
    assert t.bodies() == ["m1", "m2", "m3"]
    await t.at(EPOCH + 40_000 * DAY)
    assert t.bodies() == ["m1", "m2", "m3", "m4"]
    await t.at(EPOCH + 3_600_000)
    t.put("m5", TIMER_DELAY_SEC=10)
    await t.run()
    await t.at(EPOCH + 3_611_000)
    assert t.bodies()[4:] == ["m5"]


@timed
async def test_two_moments_with_one_slot(t):
    """After the clock was set back by the span of the wheel, new messages do not overwrite slots that wait."""
    span = t.service.timers.wheel.span_ms if t.service.timers else 2 * 7 * DAY
    t.put("far", TIMER_DELAY_SEC=100)
    await t.run()
    t.now = EPOCH - span
    t.put("near", TIMER_DELAY_SEC=100)
    await t.run()
    await t.at(EPOCH - span + 99_000)
    assert t.bodies() == []
    await t.at(EPOCH - span + 104_000)
    assert t.bodies() == ["near"]
    await t.at(EPOCH + 101_000)
    assert t.bodies() == ["near", "far"]


@timed
async def test_a_broker_that_was_down_for_a_month(t):
    t.put("old", TIMER_DELAY_SEC=100)
    await t.run()
    t.end()
    t.now = EPOCH + 30 * DAY
    await t.open()
    t.put("new", TIMER_DELAY_SEC=100)
    await t.run()
    assert t.bodies() == ["old"]
    await t.at(t.now + 101_000)
    assert t.bodies() == ["old", "new"]


# what goes wrong


@timed
async def test_records_that_are_no_timed_messages(t, caplog):
    wrong = [
        {}, {"TIMER_OUT_MS": "x"}, {"TIMER_OUT_MS": "-5"}, {"TIMER_OUT_MS": "9" * 19}, {"TIMER_OUT_MS": str(EPOCH)},
        {"TIMER_OUT_MS": str(EPOCH + 1000)},
    ]  # fmt: skip
    for properties in wrong:
        t.store.put(names.TIMER_TOPIC, b"x", properties=properties)
    lost = {"TIMER_OUT_MS": str(EPOCH + 1000), "REAL_TOPIC": "orders", "REAL_QID": "zero"}
    t.store.put(names.TIMER_TOPIC, b"no queue", properties=lost)
    t.store.put(names.TIMER_TOPIC, b"no queue, late", properties=lost | {"TIMER_OUT_MS": str(EPOCH - 5000)})
    t.put("good", TIMER_DELAY_SEC=1)
    await t.at(EPOCH)
    await t.at(EPOCH + 2000)
    assert t.bodies() == ["good"] and t.service.timers.skipped == len(wrong) + 2
    assert "timed messages before" in caplog.text and "they are skipped" in caplog.text


@timed
async def test_a_chain_that_is_damaged(t):
    for n in range(10):
        t.put(f"m{n}", TIMER_DELAY_SEC=5)
    await t.run()
    with open(t.service.timers.log.files[0], "r+b") as file:
        file.seek(4 * 52 + 4)
        file.write(struct.pack(">q", 4 * 52))  # a loop
    await t.at(EPOCH + 6000)
    assert t.bodies() == [f"m{n}" for n in range(5, 10)] and t.service.timers.skipped == 1


@timed
async def test_a_record_that_is_damaged(t, caplog):
    """The others do not wait for it, whether it is damaged before or after it came into the wheel."""
    for body in ("early", "one", "two", "late"):
        t.put(body, TIMER_DELAY_SEC=5)
    while t.store.step():
        pass
    log = t.root / "commitlog" / f"{0:020}"
    places = [one.phy_offset for one in t.got(names.TIMER_TOPIC)]
    with open(log, "r+b") as file:
        file.seek(places[1] + 4)
        magic = file.read(4)
        file.seek(places[1] + 4)
        file.write(b"\1\2\3\4")
    await t.run()
    with open(log, "r+b") as file:
        file.seek(places[1] + 4)
        file.write(magic)
        file.seek(places[2] + 4)
        file.write(b"\1\2\3\4")
    await t.at(EPOCH + 7000)
    assert t.bodies() == ["early", "late"] and t.service.timers.queue_offset == 4
    assert "timed message 1 is damaged, it is skipped" in caplog.text


@timed
async def test_a_full_disk_delays(t, monkeypatch):
    t.put("one", TIMER_DELAY_SEC=1)
    await t.run()
    t.now += 2000
    t.store._set_full(True)
    with pytest.raises(StoreFullError):
        await t.service._step()
    assert t.service.pending == 1
    t.store._set_full(False)
    await t.run()
    assert t.bodies() == ["one"]


@timed
async def test_files_of_deleted_messages_are_deleted(t):
    for n in range(3000):
        t.put(f"m{n}", TIMER_DELAY_SEC=1)
    await t.run()
    await t.at(EPOCH + 5000)
    assert len(t.service.timers.log.files) == 3
    t.store._roll()
    t.put("last", TIMER_DELAY_SEC=1)
    await t.run()
    t.store.delete_before(t.store.max_phy_offset)
    assert t.store.min_phy_offset > 0
    await t.at(EPOCH + 5000 + timers.CLEAN_MS)
    assert len(t.service.timers.log.files) == 1


@timed
async def test_a_store_without_timed_messages_has_no_files(t):
    await t.run()
    assert await t.service._step() == timers.IDLE_SECONDS
    assert t.service.persist(last=True) is False and t.service.timers is None
    assert not (t.root / "timerwheel").exists() and not (t.root / "timerlog").exists()
    assert (t.service.pending, t.service.count(EPOCH), t.service.read_behind, t.service.offset_behind) == (0, 0, 0, 0)


@timed
async def test_the_order_of_writes(t, monkeypatch):
    """The check is written last, after the messages, the log and the wheel."""
    t.put("one", TIMER_DELAY_SEC=1)
    await t.at(EPOCH)
    done = []
    real = t.service.timers
    monkeypatch.setattr(timers.timer_check, "write", lambda path, check: done.append(check))

    class Watched:
        def __init__(self, inner, name):
            self.inner, self.name = inner, name

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def flush(self):
            done.append(self.name)
            return self.inner.flush()

    class Core:
        def __getattr__(self, name):
            return getattr(real, name)

        log, wheel = Watched(real.log, "log"), Watched(real.wheel, "wheel")

    monkeypatch.setattr(t.service, "timers", Core())
    monkeypatch.setattr(t.service, "_store", Watched(t.store, "store"))
    assert t.service.persist() is True
    assert done[:3] == ["store", "log", "wheel"] and done[3].last_timer_log_flush_pos == 52
    assert done[3].last_timer_queue_offset == 1 and t.service.persist() is False


def test_errors_are_logged_once(tmp_path, caplog, monkeypatch):
    async def main():
        t = await Timed(tmp_path).open()

        async def fails():
            raise OSError("no disk")

        naps = []

        async def nap(seconds, *_):
            naps.append(seconds)
            if len(naps) > 4:
                raise asyncio.CancelledError

        monkeypatch.setattr(t.service, "_step", fails)
        monkeypatch.setattr(timers.asyncio, "sleep", nap)
        monkeypatch.setattr(t.service, "_pause", nap)
        with pytest.raises(asyncio.CancelledError):
            await t.service.run()
        monkeypatch.undo()
        assert naps == [timers.START_SECONDS, *[timers.ERROR_SECONDS] * 4]
        t.end()

    caplog.set_level(logging.WARNING)
    asyncio.run(main())
    assert caplog.text.count("timed messages are not delivered: no disk; it is tried again") == 1


def test_a_store_with_threads_reads_on_threads(tmp_path, monkeypatch):
    """In real time; the loop itself reads neither new messages nor those that are due."""

    async def main():
        with rocketc.open(tmp_path, **SMALL) as store:
            now = [EPOCH + 1]
            service = TimerService(store, BrokerConfig(), lambda: now[0])
            properties = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": str(EPOCH + 5000)}
            store.put_many(names.TIMER_TOPIC, [b"x"] * 1000, properties=properties)
            assert store.wait_dispatched(5)
            get, threads = service._get, []
            monkeypatch.setattr(service, "_get", lambda *what: threads.append(threading.current_thread()) or get(*what))
            await service._step()
            assert service.pending == 1000
            now[0] = EPOCH + 6000
            in_thread, works = service._in_thread, []

            async def watched(work):
                works.append(work)
                return await in_thread(work)

            monkeypatch.setattr(service, "_in_thread", watched)
            assert await service._step() == timers.IDLE_SECONDS and service.timers.delivered == 1000
            assert len(works) == 1  # the messages that are due
            here = threading.current_thread()
            assert [one is here for one in threads] == [False, True, True]
            reading = asyncio.ensure_future(service._read(0))
            await asyncio.sleep(0)
            reading.cancel()  # as at the end of the broker: the thread ends first
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert service.persist(last=True)
            service.close()

    asyncio.run(main())
