"""TimerService: damage, power cuts, a full disk and odd clocks lose no timed message."""

import asyncio
import contextlib
import os
import shutil
import struct

import pytest
from unit.broker.timed import EPOCH, SECOND, Timed, copy_of, timed

from rocketc.broker import names
from rocketc.derived._timer_wheel import SLOT_BYTES, SLOTS
from rocketc.errors import StoreIOError


@pytest.mark.parametrize(("before", "after"), [(1000, 100), (100, 1000), (1000, 10_000)])
def test_another_precision(tmp_path, before, after, caplog):
    async def main():
        t = await Timed(tmp_path, timer_precision_ms=before).open()
        t.put("early", TIMER_DELAY_SEC=3)
        for n in range(10):
            t.put(f"m{n}", TIMER_DELIVER_MS=EPOCH + 60_000 + 300 * n)
        await t.at(EPOCH + 20_000)
        assert t.bodies() == ["early"]
        t.end()
        for _ in range(2):
            t = await Timed(tmp_path, timer_precision_ms=after).open()
            t.now = EPOCH + 20_000
            await t.run()
            assert t.service.pending == 10
            t.end()
        await t.open()
        await t.at(EPOCH + 50_000)
        assert t.bodies() == ["early"]
        await t.at(EPOCH + 75_000)
        assert sorted(t.bodies()[1:]) == [f"m{n}" for n in range(10)]
        t.end()

    asyncio.run(main())
    assert caplog.text.count("timerPrecisionMs was changed") == 1


def test_a_hole_in_the_log_after_a_power_cut(tmp_path):
    """Pages of the last file but one were not written, those of the last one were: the messages are read again."""

    async def main():
        t = await Timed(tmp_path / "a", mapped_file_size_timer_log=4096).open()
        for n in range(100):
            t.put(f"m{n}", TIMER_DELAY_SEC=30)
            if n == 50:
                await t.run()
                t.service.persist()
        await t.run()
        t.store.flush()
        after = copy_of(t, tmp_path / "b")
        t.end()
        with open(after / "timerlog" / f"{0:020}", "r+b") as file:
            file.seek(60 * 52)
            file.write(bytes(4096 - 60 * 52))
        t = Timed(after, mapped_file_size_timer_log=4096)
        await t.open()
        await t.run()
        await t.at(EPOCH + 31_000)
        assert t.bodies() == [f"m{n}" for n in range(100)]
        t.end()

    asyncio.run(main())


def test_a_power_cut_before_the_first_check_is_written(tmp_path):
    """The timer log was written, and one of two pages of the wheel: its slot is the first one of the wheel."""

    async def main():
        t = await Timed(tmp_path / "a").open()
        t.put("soon", TIMER_DELAY_SEC=3)
        t.put("late", TIMER_DELAY_SEC=600)
        await t.run()
        t.store.flush()
        after = copy_of(t, tmp_path / "b")
        t.end()
        assert not (after / "config" / "timercheck").exists()
        with open(after / "timerwheel", "r+b") as file:
            slot = (EPOCH // 1000 + 3) % SLOTS * SLOT_BYTES
            file.seek(slot - slot % 4096)
            file.write(bytes(4096))
        t = await Timed(after).open()
        await t.at(EPOCH + 5000)
        assert t.bodies() == ["soon"] and t.service.pending == 1
        await t.at(EPOCH + 601_000)
        assert t.bodies() == ["soon", "late"]
        t.end()

    asyncio.run(main())


@pytest.mark.parametrize("left", [0, 100])
def test_a_commit_log_that_lost_many_messages(tmp_path, left):
    async def main():
        t = await Timed(tmp_path / "a", mapped_file_size_timer_log=4096).open()
        for n in range(left):
            t.put(f"m{n}", TIMER_DELAY_SEC=30)
        await t.run()
        t.service.persist()
        early = copy_of(t, tmp_path / "b")
        for n in range(1000):
            t.put(f"lost{n}", TIMER_DELAY_SEC=30)
        await t.run()
        assert len(t.service.timers.log.files) > 10
        t.end()
        shutil.rmtree(early / "timerlog", ignore_errors=True)
        shutil.copytree(t.root / "timerlog", early / "timerlog")
        t = await Timed(early, mapped_file_size_timer_log=4096).open()
        log = t.service.timers.log
        assert log.unit(log.last) is None if left == 0 else log.unit(log.last)[4] < t.store.max_phy_offset
        assert sum(log.unit(52 * n) is not None for n in range(78)) == min(left, 78)
        await t.at(EPOCH + 31_000)
        assert t.bodies() == [f"m{n}" for n in range(left)]
        t.end()

    asyncio.run(main())


@timed
async def test_a_kill_after_the_clock_was_set_back(t):
    """Messages that came into slots that were delivered before are not taken for delivered ones."""
    t.put("one", TIMER_DELAY_SEC=1)
    await t.at(EPOCH + 3_600_000)
    t.service.persist()
    await t.at(EPOCH + 4000)
    t.put("again", TIMER_DELIVER_MS=EPOCH + 60_001)
    await t.run()
    killed = copy_of(t, t.root.parent / "killed")
    after = Timed(killed)
    after.now = EPOCH + 5000
    await after.open()
    await after.run()
    await after.at(EPOCH + 62_000)
    assert after.bodies()[-1] == "again"
    after.end()


@timed
async def test_no_slot_is_overwritten(t):
    """The clock was ahead by the span of the wheel, and each second of more than an hour has a message."""
    t.put("first", TIMER_DELAY_SEC=1)
    await t.run()
    span, count = t.service.timers.wheel.span_ms, 4500
    t.now = EPOCH + span + 1
    for n in range(count):
        t.put(f"far{n}", TIMER_DELAY_SEC=100 + n)
    await t.run()
    t.now = EPOCH + 1
    await t.run()
    t.put("near", TIMER_DELAY_SEC=100)
    await t.run()
    for second in (100, 101, 4000, 100 + count, 102 + count):
        await t.at(EPOCH + second * SECOND)
    assert t.bodies() == ["first", "near"]
    await t.at(EPOCH + span + (101 + count) * SECOND)
    assert t.bodies()[2:] == [f"far{n}" for n in range(count)]


@timed
async def test_a_damaged_message_does_not_stop_the_others(t, caplog):
    for n in range(6):
        t.put(f"m{n}", TIMER_DELAY_SEC=5)
    with open(next((t.root / "commitlog").iterdir()), "r+b") as file:
        for message in t.got(names.TIMER_TOPIC)[1:3]:
            file.seek(message.phy_offset)
            file.write(struct.pack(">i", 1))  # its size
    await t.run()
    await t.at(EPOCH + 6000)
    assert t.bodies() == ["m0", "m3", "m4", "m5"]
    assert caplog.text.count("is damaged, it is skipped") == 2


@contextlib.contextmanager
def no_room_in(path):
    """No page of a file gets disk space: its descriptor is replaced by one that only reads."""
    [fd] = [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == str(path)]
    saved, reading = os.dup(fd), os.open(path, os.O_RDONLY)
    os.dup2(reading, fd)
    try:
        yield
    finally:
        os.dup2(saved, fd)
        os.close(saved)
        os.close(reading)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_full_disk_does_not_lose_a_slot(tmp_path, monkeypatch, restarts):
    """The log has room for a unit, but the wheel lacks room for its slot."""

    async def main():
        t = await Timed(tmp_path / "a").open()
        t.put("one", TIMER_DELAY_SEC=1)
        await t.run()
        t.put("other page", TIMER_DELAY_SEC=1000)
        t.got(names.TIMER_TOPIC)
        with no_room_in(t.service.timers.wheel.path), pytest.raises(StoreIOError):
            await t.service._step()
        t.service.persist()
        assert t.service.timers.log.end == 52
        if restarts:
            copy = Timed(copy_of(t, tmp_path / "b"))
            t.end()
            t = await copy.open()
        await t.run()
        await t.at(EPOCH + 1_001_000)
        assert t.bodies() == ["one", "other page"]
        t.end()

    asyncio.run(main())


@timed
async def test_a_damaged_last_unit_does_not_delete_its_file(t):
    t.end()
    t.config.mapped_file_size_timer_log = 4096
    await t.open()
    for n in range(100):
        t.put(f"m{n}", TIMER_DELAY_SEC=90)
    await t.run()
    with open(t.service.timers.log.files[0], "r+b") as file:
        file.seek(77 * 52)
        file.write(bytes(52))
    await t.at(EPOCH + 70_000)
    t.put("more", TIMER_DELAY_SEC=90)
    await t.run()
    assert len(t.service.timers.log.files) == 2
