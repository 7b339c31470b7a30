"""Timed messages against a model: puts, recalls, restarts, kills and clock changes in any order."""

import asyncio
import random
import shutil

import pytest
from unit.broker.timed import Timed

pytestmark = pytest.mark.promise(12)

SECOND = 1000
KINDS = {  # of steps, with the largest number of each
    "put": 40_000, "put and wait": 20_000, "wait": 25_000, "recall": 30, "restart": 0, "kill": 1, "back": 30_000,
}  # fmt: skip
WEIGHTS = (6, 2, 5, 2, 2, 1, 2)


def course(seed):
    """The steps of a seed."""
    chance = random.Random(seed)
    kinds = chance.choices(list(KINDS), WEIGHTS if seed % 2 else (*WEIGHTS[:-2], 0, 3), k=chance.randint(4, 16))
    return [(kind, chance.randint(min(1, KINDS[kind]), KINDS[kind])) for kind in kinds]


async def play(root, steps):
    t = await Timed(root / "0", timer_roll_window_slot=9).open()
    sent = kills = 0
    due: dict[str, int] = {}
    taken: set[str] = set()
    latest = t.now
    try:
        for what, number in steps:
            if what in ("put", "put and wait"):
                body, sent = f"m{sent}", sent + 1
                due[body] = t.put(body, TIMER_DELIVER_MS=t.now + number)
                if what == "put":
                    await t.run()
                else:
                    t.now += number // 2
            elif what == "recall" and sent:
                body = f"m{number % sent}"
                if due[body] >= t.now:
                    t.put("-" + body, TIMER_DELIVER_MS=due[body] + 1, TIMER_DEL_UNIQKEY=f"orders+{body}")
                    taken.add(body)
                    await t.run()
            elif what == "wait":
                await t.at(t.now + number)
            elif what == "back":
                await t.run()
                t.now -= number
                await t.run()
            elif what == "restart":
                await t.run()
                t.end()
                await t.open()
            elif what == "kill":
                kills += 1
                if number:
                    t.service.persist()
                to = root / str(kills)
                shutil.copytree(t.root, to)
                (to / "lock").unlink(missing_ok=True)
                now = t.now
                t.end()
                t.root, t.now = to, now
                await t.open()
            latest = max(latest, t.now)
            got = t.got()
            for one in got:
                assert one.store_timestamp >= due[one.body.decode()]  # never early
            bodies = [one.body.decode() for one in got]
            assert kills or len(bodies) == len(set(bodies))
            wanted = {body for body, moment in due.items() if moment + 2 * SECOND <= t.now} - taken
            if what in ("put", "wait", "restart"):
                assert wanted <= set(bodies)
        for _ in range(12):
            await t.at(max(t.now, latest) + 9 * SECOND)
        bodies = t.bodies()
        assert set(due) - taken <= set(bodies) <= set(due)
        assert kills or len(bodies) == len(set(bodies))
        assert t.service.pending == 0 or taken
    finally:
        t.end()


@pytest.mark.parametrize("seed", range(8))
def test_any_course(tmp_path, seed):
    asyncio.run(play(tmp_path, course(seed)))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_more_courses(tmp_path, seed):
    for n in range(10):
        steps = course(1000 * seed + n)
        try:
            asyncio.run(play(tmp_path / str(n), steps))
        except AssertionError as error:
            raise AssertionError(f"seed {1000 * seed + n}: {steps}") from error
        shutil.rmtree(tmp_path / str(n))
