"""Timed messages over restarts, kills, and with files that are lost or damaged."""

import asyncio
import os
import random
import shutil
import struct

import pytest
from unit.broker.timed import DAY, EPOCH, SECOND, Timed, copy_of

from rocketc.derived import timer_check
from rocketc.tables.table_file import read_table


@pytest.mark.parametrize("persisted", [False, True])
def test_a_kill_loses_nothing(tmp_path, persisted):
    async def main():
        t = await Timed(tmp_path / "a").open()
        for n in range(1, 40):
            t.put(f"m{n}", TIMER_DELAY_SEC=n)
        await t.run()
        await t.at(EPOCH + 10_000)
        if persisted:
            t.service.persist()
        t.put("late", TIMER_DELIVER_MS=EPOCH + 17_001)
        await t.at(EPOCH + 15_000)
        after = Timed(copy_of(t, tmp_path / "b"))
        before = t.bodies()
        assert before == [f"m{n}" for n in range(1, 15)]
        t.end()
        after.now = EPOCH + 15_500
        await after.open()
        await after.run()
        assert after.service.pending == 26
        repeated = after.bodies()[len(before) :]
        assert repeated == [f"m{n}" for n in range(10 if persisted else 14, 15)]  # at least once
        for second in range(16, 45):
            await after.at(EPOCH + second * SECOND)
            assert f"m{min(second, 40) - 1}" in after.bodies()[-2:] and f"m{second}" not in after.bodies()
        rest = after.bodies()[len(before) + len(repeated) :]
        assert sorted(rest) == sorted([f"m{n}" for n in range(15, 40)] + ["late"])
        after.end()

    asyncio.run(main())


def test_a_close_repeats_nothing(tmp_path):
    async def main():
        t = await Timed(tmp_path).open()
        for n in range(1, 20):
            t.put(f"m{n}", TIMER_DELAY_SEC=n)
            if n % 5 == 0:
                await t.run()
        for second in (1, 2, 7, 15, 25):
            await t.at(EPOCH + second * SECOND)
            t.end()
            await t.open()
        assert t.bodies() == [f"m{n}" for n in range(1, 20)]
        check = timer_check.read(tmp_path / "config" / "timercheck")
        assert check.last_timer_queue_offset == 19 and check.last_timer_log_flush_pos == 19 * 52
        assert read_table(tmp_path / "config" / "timermetrics").data["timingCount"]["orders"]["count"] == 0
        t.end()

    asyncio.run(main())


@pytest.mark.parametrize(
    "lost", ["timerwheel", "timerlog", "config/timercheck", "wheel+check", "garbage", "other size", "log end"]
)
def test_lost_files(tmp_path, lost, caplog):
    """Messages that wait are delivered, each at its time, whatever file is lost."""

    async def main():
        t = await Timed(tmp_path).open()
        for n in range(1, 10):
            t.put(f"m{n}", TIMER_DELAY_SEC=10 * n)
        t.put("far", TIMER_DELAY_SEC=200_000)
        await t.at(EPOCH + 35_000)
        assert t.bodies() == ["m1", "m2", "m3"]
        t.end()
        if lost in ("timerwheel", "wheel+check"):
            os.unlink(tmp_path / "timerwheel")
        if lost == "timerlog":
            shutil.rmtree(tmp_path / "timerlog")
        if lost in ("config/timercheck", "wheel+check"):
            os.unlink(tmp_path / "config" / "timercheck")
        if lost == "garbage":
            with open(tmp_path / "timerwheel", "r+b") as file:
                file.seek((EPOCH + 50_000) // 1000 % 1_209_600 * 32 + 8)
                file.write(struct.pack(">qq", 1 << 40, 1 << 40))
        if lost == "other size":
            (tmp_path / "timerwheel").write_bytes(b"x" * 100)
        if lost == "log end":
            with open(tmp_path / "timerlog" / f"{0:020}", "r+b") as file:
                file.seek(5 * 52)
                file.write(bytes(52))
        await t.open()
        for second in range(36, 100):
            await t.at(EPOCH + second * SECOND)
        got = t.bodies()[3:]
        assert [body for body in got if body not in ("m1", "m2", "m3")] == [f"m{n}" for n in range(4, 10)]
        if lost not in ("config/timercheck", "wheel+check"):
            assert len(got) == 6
        for day in (1, 2, 3):
            await t.at(EPOCH + day * DAY)
        assert set(t.bodies()[3 + len(got) :]) == {"far"}
        t.end()

    asyncio.run(main())
    ends = "the timer log ends at"
    expected = {"garbage": "slots do not match", "timerlog": f"{ends} 0", "log end": f"{ends} 260"}
    assert expected.get(lost, "") in caplog.text


def test_a_commit_log_that_lost_its_end(tmp_path):
    """Units of messages that are gone are cut off; the same places then belong to other messages."""

    async def main():
        t = await Timed(tmp_path / "a").open()
        t.put("kept", TIMER_DELAY_SEC=30)
        await t.run()
        t.service.persist()
        end = t.store.max_phy_offset
        early = copy_of(t, tmp_path / "b")
        for n in range(5):
            t.put(f"lost{n}", TIMER_DELAY_SEC=20)
        await t.run()
        t.service.timers.log.flush()
        t.service.timers.wheel.flush()
        shutil.rmtree(early / "timerlog")
        shutil.copytree(t.root / "timerlog", early / "timerlog")
        shutil.copy(t.root / "timerwheel", early / "timerwheel")
        t.end()
        after = await Timed(early).open()
        assert after.store.max_phy_offset == end and after.service.timers.log.end == 52
        after.put("new", TIMER_DELAY_SEC=20)
        await after.run()
        await after.at(EPOCH + 25_000)
        assert after.bodies() == ["new"]
        await after.at(EPOCH + 35_000)
        assert after.bodies() == ["new", "kept"]
        after.end()

    asyncio.run(main())


@pytest.mark.parametrize("times", [4, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["timerwheel", "timerlog", "config/timercheck"])
def test_any_bytes_in_the_files(tmp_path, name, times):
    """Changed bytes cost at most the messages that they belong to: the broker opens, delivers, and ends."""
    chance = random.Random(f"{name} {times}")

    async def main():
        t = await Timed(tmp_path / "base", timer_roll_window_slot=30).open()
        for n in range(1, 25):
            t.put(f"m{n}", TIMER_DELIVER_MS=EPOCH + 1000 * n + 1)
        t.put("far", TIMER_DELAY_SEC=100)
        await t.at(EPOCH + 10_500)
        t.end()
        for n in range(times):
            root = tmp_path / str(n)
            shutil.copytree(t.root, root)
            path = root / (f"timerlog/{0:020}" if name == "timerlog" else name)
            with open(path, "r+b") as file:
                flips = chance.choice([1, 1, 2, 40])
                for _ in range(flips):
                    at = chance.randrange({"timerlog": 26 * 52 + 40, "timerwheel": 60 * 32}.get(name, 60))
                    at += (EPOCH // 1000 - 10) % 1_209_600 * 32 if name == "timerwheel" else 0
                    file.seek(at)
                    file.write(bytes([chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])]))
            after = Timed(root, timer_roll_window_slot=30)
            after.now = EPOCH + 11_000
            await after.open()
            for second in (12, 20, 40, 80, 120):
                await after.at(EPOCH + 1000 * second)
            bodies = after.bodies()
            assert set(bodies) <= {f"m{n}" for n in range(1, 25)} | {"far"}
            if name == "timerwheel" or (name == "config/timercheck" and flips == 1):
                assert len(set(bodies)) >= 25 - flips
            after.put("new", TIMER_DELAY_SEC=3)
            await after.at(EPOCH + 130_000)
            assert after.bodies()[-1] == "new"
            after.end()
            shutil.rmtree(root)

    asyncio.run(main())
