"""A timercheck that is lost, or names a time ahead of the clock: each message is delivered, few of them again."""

import asyncio
import os
import random
from collections import Counter

import pytest
from unit.broker.timed import EPOCH, SMALL, Timed

import rocketc
from rocketc.broker import names
from rocketc.broker.timer_start import TimerStart
from rocketc.derived import timer_check
from rocketc.derived._timer_log import DELETE, NORMAL, TimerLog
from rocketc.derived._timer_wheel import TimerWheel

SECOND, HOUR = 1000, 3_600_000
LOST = ("missing", "both", "check and wheel", "both and wheel")


def lose(root, how, ahead=HOUR):
    """Damage the files of a store that is closed. "both": the time and the timestamp of timercheck are ahead."""
    path = root / "config" / "timercheck"
    check = timer_check.read(path)
    if "both" in how:
        check.last_read_time_ms += ahead
        check.timestamp += ahead
        timer_check.write(path, check)
    else:
        path.unlink()
    if "wheel" in how:
        (root / "timerwheel").unlink()


@pytest.mark.parametrize("down", [1, 32, 200])
@pytest.mark.parametrize("how", LOST)
def test_each_message_is_delivered(tmp_path, how, down, caplog):
    """Those that were due while the broker was down, too. Only those of the last slot come again."""

    async def main():
        t = await Timed(tmp_path).open()
        for n in range(1, 10):
            for key in "ab":
                t.put(f"m{n}{key}", TIMER_DELAY_SEC=10 * n)
        for n in range(20):  # the queue has other messages, which are later than some of the slots
            t.put(f"plain{n}")
        await t.run()
        await t.at(EPOCH + 35_000)
        t.put("plain")
        t.end()
        lose(tmp_path, how)
        t.now += down * SECOND
        await t.open()
        start = t.now
        for second in range(0, 200, 5):
            await t.at(start + second * SECOND)
        found = Counter(body for body in t.bodies() if body[0] == "m")
        assert set(found) == {f"m{n}{key}" for n in range(1, 10) for key in "ab"}
        assert {body for body, count in found.items() if count > 1} <= {"m3a", "m3b"} and max(found.values()) <= 2
        t.end()

    asyncio.run(main())
    assert "timercheck: it is missing or wrong; timed messages that were due from" in caplog.text


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("seed", range(4))
def test_random_messages(tmp_path, how, seed):
    """Recalled, rolled, in several topics; the broker ends at any time, and for any time."""
    chance = random.Random(seed)

    async def main():
        t = await Timed(tmp_path, timer_roll_window_slot=60).open()
        taken = set()
        for n in range(150):
            due, topic = t.now + chance.randrange(1, 150) * SECOND, chance.choice(["orders", "bills"])
            t.put(f"m{n}", topic=topic, TIMER_DELIVER_MS=due)
            if chance.random() < 0.2:
                t.put(f"r{n}", topic=topic, TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY=f"{topic}+m{n}")
                taken.add(f"m{n}")
            if n % 30 == 29:
                await t.at(t.now + chance.randrange(1, 9) * SECOND)
        await t.at(t.now + chance.randrange(60) * SECOND)
        before = set(t.bodies() + t.bodies("bills"))
        t.end()
        lose(tmp_path, how, chance.choice([5 * SECOND, HOUR, 1000 * HOUR]))
        t.now += chance.randrange(100) * SECOND
        await t.open()
        start = t.now
        for second in range(0, 400, 10):
            await t.at(start + second * SECOND)
        found = Counter(t.bodies() + t.bodies("bills"))
        assert {f"m{n}" for n in range(150)} - taken <= set(found)
        again = sum(count - 1 for body, count in found.items() if body in before)
        assert again <= 40  # a few slots, of 150 messages in 150 slots
        t.end()

    asyncio.run(main())


def test_a_clock_that_was_ahead_when_the_messages_were_delivered(tmp_path, caplog):
    """It is not damage: nothing is delivered again."""

    async def main():
        t = await Timed(tmp_path).open()
        for n in range(1, 6):
            t.put(f"m{n}", TIMER_DELAY_SEC=10 * n)
        await t.run()
        await t.at(EPOCH + 100_000)
        t.end()
        t.now = EPOCH + 5000
        await t.open()
        t.put("new", TIMER_DELAY_SEC=10)
        await t.run()
        await t.at(EPOCH + 200_000)
        assert t.bodies() == ["m1", "m2", "m3", "m4", "m5", "new"]
        t.end()

    asyncio.run(main())
    assert "is missing or wrong" not in caplog.text


def test_a_new_store(tmp_path, caplog):
    async def main():
        t = await Timed(tmp_path).open()
        t.put("one", TIMER_DELAY_SEC=1)
        await t.at(EPOCH + 5000)
        assert t.bodies() == ["one"]
        t.end()

    asyncio.run(main())
    assert "is missing or wrong" not in caplog.text


class Parts:
    """A store with a wheel and a timer log, without a broker."""

    def __init__(self, root):
        self.store = rocketc.open(root, background=False, **SMALL)
        self.wheel, self.log = TimerWheel(os.path.join(root, "timerwheel"), 1000), TimerLog(root / "timerlog", 1 << 16)
        self.start = TimerStart(self.store, self.wheel, self.log)

    def wait(self, time, key="k", queue="0", magic=NORMAL, **properties):
        """Put a message into the timer topic, and a unit into its slot; it may damage both."""
        told = {"UNIQ_KEY": key, names.TIMER_OUT_MS: str(time), "REAL_TOPIC": "orders", "REAL_QID": queue, **properties}
        self.put(names.TIMER_TOPIC, {name: value for name, value in told.items() if value is not None})
        found = self.store.get(names.TIMER_TOPIC, 0, self.store.max_offset(names.TIMER_TOPIC, 0) - 1, 1).messages[0]
        before = self.wheel.slot(time)
        pos = self.log.put(
            -1 if before is None else before[1], magic, time - 5000, 5000, phy_offset=found.phy_offset,
            size=found.store_size, topic_hash=0,
        )  # fmt: skip
        self.wheel.add(time, pos)

    def put(self, topic, properties):
        self.store.put(topic, b"body", properties=properties, born_timestamp=7)
        while self.store.step():
            pass

    def deliver(self, time, key="k", out=None):
        self.put("orders", {"UNIQ_KEY": key, names.TIMER_OUT_MS: str(time if out is None else out)})


@pytest.fixture
def parts(tmp_path):
    one = Parts(tmp_path)
    yield one
    one.wheel.close()
    one.store.close()


NOW = 1_700_000_000_000  # before the clock of the store, so that queues are searched from their first message
TIMES = [NOW - 1000 * n for n in range(40, 0, -1)]


@pytest.mark.parametrize("count", [0, 1, 2, 17, 39, 40])
def test_the_last_slot_that_was_delivered(parts, count):
    for n, time in enumerate(TIMES):
        parts.wait(time, f"k{n}")
    for n, time in enumerate(TIMES[:count]):
        parts.deliver(time, f"k{n}")
    assert parts.start.without_check(NOW) == TIMES[max(count - 1, 0)]
    assert parts.start.without_check(TIMES[0]) == TIMES[0]
    assert parts.start.instead_of(NOW) == (None if count == 40 else TIMES[max(count - 1, 0)])


def test_only_the_same_message_counts(parts):
    parts.wait(TIMES[0])
    parts.wait(TIMES[1], "k")
    parts.deliver(TIMES[0], "other")
    parts.deliver(TIMES[0], out=5)
    parts.put("orders", {})
    assert parts.start.instead_of(NOW) == TIMES[0]
    parts.deliver(TIMES[0])
    parts.deliver(TIMES[1])
    assert parts.start.instead_of(NOW) is None


def test_an_empty_wheel(parts):
    assert parts.start.without_check(NOW) == NOW and parts.start.instead_of(NOW) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"REAL_QID": "x"}, {"REAL_QID": "-1"}, {"REAL_TOPIC": "no topic"}, {"REAL_QID": "9"}, {"REAL_QID": "1" * 10},
        {"REAL_QID": "9" * 30}, {"REAL_QID": None}, {"REAL_TOPIC": None}, {"REAL_TOPIC": "x" * 300},
    ],
)  # fmt: skip
def test_messages_without_a_queue(parts, wrong):
    """They can't be delivered, or are still to be."""
    parts.wait(TIMES[0], **wrong)
    assert parts.start.instead_of(NOW) in (None, TIMES[0])


def test_slots_of_another_precision(parts):
    parts.wait(TIMES[0])
    pos = parts.wheel.slot(TIMES[0])[1]
    parts.wheel.set(TIMES[0], pos, -1, 1)  # unused
    parts.wheel.set(TIMES[0] // 10, pos, pos, 1)
    assert parts.start.instead_of(NOW) is None


def test_slots_whose_units_or_messages_are_gone(parts):
    parts.wheel.set(TIMES[0], 1 << 40, 1 << 40, 1)
    pos = parts.log.put(-1, NORMAL, TIMES[1] - 5000, 5000, phy_offset=1 << 40, size=100, topic_hash=0)
    parts.wheel.add(TIMES[1], pos)
    assert parts.start.instead_of(NOW) is None


@pytest.mark.parametrize(("count", "found"), [(1, None), (2000, TIMES[0])])
def test_units_that_delete(parts, count, found):
    """The last unit that delivers counts; with too many that delete, the slot is delivered again."""
    parts.wait(TIMES[0])
    parts.deliver(TIMES[0])
    for _ in range(count):
        pos = parts.log.put(
            parts.wheel.slot(TIMES[0])[1], DELETE, TIMES[0] - 5000, 5000, phy_offset=0, size=100, topic_hash=0
        )
        parts.wheel.add(TIMES[0], pos, deletes=True)
    assert parts.start.instead_of(NOW) == found
