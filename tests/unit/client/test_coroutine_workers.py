"""Coroutines that are called in runs: what waits, what fails, how many run at a time."""

import asyncio
import contextvars
import itertools
import sys
import time

import pytest

from rocketc.client.coroutine_workers import CoroutineWorkers
from rocketc.client.ready_items import Part


class Stage:
    """Workers whose items are coroutine functions without arguments; each owner is a letter."""

    def __init__(self, most=4, good=None):
        self.events, self.tasks, self.now, self.most = [], set(), 0, 0
        self.workers = CoroutineWorkers(self, most, self.begin, good)

    def give(self, items):
        for owner, of_owner in itertools.groupby(items, lambda item: item[0]):
            self.workers.give(Part(owner, [function for _, function in of_owner]))

    def begin(self, work):
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        return task

    def function(self, owner):
        return None if owner == "dropped" else lambda function: function()

    def waits(self, owner, item, began):
        assert 0 <= asyncio.get_running_loop().time() - began < 60
        self.now += 1
        self.most = max(self.most, self.now)
        self.events.append(("waits", owner))

    def finished(self, owner, item, outcome):
        self.events.append((owner, repr(outcome)))

    def finished_run(self, owner, items, seconds):
        assert seconds >= 0
        self.events.append(("run", *[owner] * len(items)))

    async def end(self):
        self.workers.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


def run(main):
    return asyncio.run(main())


async def soon():
    await asyncio.sleep(0.02)


async def returns():
    return None


async def fails():
    raise LookupError("no such order")


async def waits():
    await asyncio.sleep(0.005)


def test_items_of_one_queue_are_one_run():
    async def main():
        stage = Stage()
        stage.give([("a", returns), ("a", returns), ("b", returns), ("a", returns)])
        assert stage.events == []
        await soon()
        assert stage.events == [("run", "a", "a"), ("run", "b"), ("run", "a")] and len(stage.tasks) == 1
        stage.give([("a", returns)])
        await soon()
        assert stage.events[3:] == [("run", "a")] and len(stage.tasks) == 1
        await stage.end()

    run(main)


def test_another_value_is_an_outcome_of_its_own():
    async def value():
        return 7

    async def good():
        return "good"

    async def main():
        stage = Stage(good="good")
        stage.give([("a", returns), ("a", good), ("a", value), ("a", returns)])
        await soon()
        assert stage.events == [("run", "a", "a"), ("a", "7"), ("run", "a")]
        await stage.end()

    run(main)


@pytest.mark.parametrize("error", [LookupError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("pause", [None, 0.001])
def test_what_a_coroutine_raises(error, pause):
    async def raises():
        if pause is not None:
            await asyncio.sleep(pause)
        raise error("x")

    async def main():
        stage = Stage()
        stage.give([("a", returns), ("a", raises), ("a", returns)])
        await soon()
        assert (("a", f"{error.__name__}('x')")) in stage.events
        assert sum(event.count("a") for event in stage.events if event[0] == "run") == 2
        await stage.end()

    run(main)


def test_a_call_that_fails_and_one_that_is_dropped():
    def wrong():
        raise TypeError("takes 0 arguments")

    async def main():
        stage = Stage()
        stage.give([("a", returns), ("a", wrong), ("dropped", returns), ("a", returns)])
        await soon()
        assert stage.events == [("run", "a"), ("a", "TypeError('takes 0 arguments')"), ("dropped", "None"),
                                ("run", "a")]  # fmt: skip
        await stage.end()

    run(main)


def test_the_owner_is_asked_again_after_a_wait():
    async def main():
        stage = Stage()
        stage.function = lambda owner: None if stage.now else lambda function: function()
        stage.give([("a", returns), ("a", waits), ("a", returns)])
        await soon()
        assert stage.events == [("run", "a"), ("waits", "a"), ("a", "None"), ("a", "None")]
        await stage.end()

    run(main)


def test_a_worker_that_has_waited_is_followed_by_another_one_again():
    async def main():
        stage, go = Stage(), asyncio.Event()
        stage.give([("a", waits), ("b", returns)])
        await soon()
        stage.give([("c", waits), ("c", go.wait), ("c", returns)])
        await soon()
        assert stage.events[-2:] == [("run", "c"), ("c", "None")]
        await stage.end()

    run(main)


@pytest.mark.parametrize("most", [1, 3])
def test_those_that_wait_run_at_the_same_time(most):
    async def main():
        stage, now = Stage(most), 0
        highest = 0

        async def counted():
            nonlocal now, highest
            now += 1
            highest = max(highest, now)
            await asyncio.sleep(0.01)
            now -= 1

        stage.give([("a", counted)] * 7 + [("a", returns)])
        await asyncio.sleep(0.3)
        assert highest == most == len(stage.tasks)
        assert stage.events.count(("a", "None")) == 7 and ("run", "a") in stage.events
        await stage.end()

    run(main)


def test_results_before_a_wait_are_not_kept_back():
    async def main():
        stage, go = Stage(), asyncio.Event()
        stage.give([("a", returns), ("a", go.wait), ("a", returns)])
        await soon()
        assert stage.events == [("run", "a"), ("waits", "a"), ("run", "a")]
        go.set()
        await soon()
        assert stage.events[3:] == [("a", "True")]
        await stage.end()

    run(main)


def test_a_coroutine_keeps_its_task_and_context():
    """asyncio.timeout() ends the task in which it began."""
    of = contextvars.ContextVar("of")

    async def one():
        of.set("mine")
        task = asyncio.current_task()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.sleep(5), 0.001)
        assert asyncio.current_task() is task and of.get() == "mine"
        return "ended"

    async def main():
        stage = Stage()
        stage.give([("a", one)])
        await asyncio.sleep(0.1)
        assert stage.events == [("waits", "a"), ("a", "'ended'")]
        await stage.end()

    run(main)


def test_what_a_coroutine_sets_in_its_context_is_not_seen_by_the_next_one():
    """As if each had a task of its own: the id of an order in a log must not be that of the message before."""
    of, seen = contextvars.ContextVar("of", default=None), []

    def item(name, pause):
        async def call():
            seen.append((name, of.get()))
            of.set(name)
            if pause:
                await asyncio.sleep(0)
                seen.append((name, of.get()))

        return ("a", call)

    async def main():
        stage = Stage(most=1)
        stage.give([item("1", False), item("2", True), item("3", True), item("4", False)])
        await soon()
        await stage.end()

    run(main)
    assert seen == [("1", None), ("2", None), ("2", "2"), ("3", None), ("3", "3"), ("4", None)]


@pytest.mark.parametrize("owners", ["a" * 12, "abcdefghijkl"])
def test_a_long_run_lets_others_work(owners):
    turns = []

    async def slow():
        time.sleep(0.002)
        turns.append("run")

    async def main():
        stage = Stage()

        async def other():
            for _ in range(3):
                turns.append("other")
                await asyncio.sleep(0)

        stage.give([(owner, slow) for owner in owners])
        await asyncio.gather(other(), asyncio.sleep(0.2))
        assert turns.index("other", turns.index("run")) < 8 and turns.count("run") == 12
        await stage.end()

    run(main)


def test_the_end_cancels_what_waits_and_calls_nothing_more():
    ended = []

    async def waits_for_ever():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("yes")

    async def main():
        stage = Stage(most=1)
        stage.give([("a", waits_for_ever), ("a", returns)])
        await soon()
        await stage.end()
        stage.give([("a", returns)])
        await soon()
        assert ended == ["yes"] and stage.events == [("waits", "a")]

    run(main)


def test_a_coroutine_that_is_canceled_may_continue():
    async def stubborn():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            return "stayed"

    async def main():
        stage = Stage()
        stage.give([("a", stubborn)])
        await soon()
        next(iter(stage.tasks)).cancel()
        await soon()
        assert stage.events == [("waits", "a"), ("a", "'stayed'")]
        await stage.end()

    run(main)


@pytest.mark.parametrize("most", [1, 2])
def test_a_worker_that_is_canceled_before_its_first_step_is_followed_by_another_one(most):
    async def main():
        stage = Stage(most=most)
        stage.give([("a", returns)])
        for task in stage.tasks:
            task.cancel()
        await soon()
        stage.give([("a", returns)])
        await soon()
        assert stage.events == [("run", "a"), ("run", "a")]
        await stage.end()

    run(main)


@pytest.mark.parametrize("waits", [False, True])
def test_a_coroutine_that_raises_generator_exit_stops_no_later_ones(waits):
    async def leaves():
        if waits:
            await asyncio.sleep(0)
        raise GeneratorExit

    async def main():
        stage = Stage(most=1)
        stage.give([("a", leaves), ("a", returns)])
        await soon()
        stage.give([("b", returns)])
        await soon()
        error = "RuntimeError('the coroutine raised GeneratorExit')" if waits else "GeneratorExit()"
        assert stage.events == [("waits", "a")] * waits + [("a", error), ("run", "a"), ("run", "b")]
        await stage.end()

    run(main)


def test_a_worker_that_is_thrown_away_closes_its_coroutine():
    closed = []

    async def waits_for_ever():
        try:
            await asyncio.Event().wait()
        except GeneratorExit:
            closed.append("yes")
            raise

    async def main():
        stage = Stage()
        works = []

        def begin(work):
            works.append(work)
            return asyncio.get_running_loop().create_future()

        stage.workers = CoroutineWorkers(stage, 1, begin)
        stage.give([("a", waits_for_ever)])
        works[0].send(None)
        works[0].close()
        assert closed == ["yes"]

    run(main)


@pytest.mark.parametrize("others", [0, 1])
def test_a_coroutine_that_cancels_its_own_task_stops_no_later_ones(others):
    async def cancels():
        asyncio.current_task().cancel()

    async def main():
        stage = Stage(most=1)
        stage.give([("A", cancels)] + [("B", returns)] * others)
        await soon()
        stage.give([("C", returns)])
        await soon()
        stage.give([("D", returns)])
        await soon()
        await stage.end()
        return [event for event in stage.events if event != ("waits", "A")]

    expected = [("run", *"A"), *[("run", "B")] * others, ("run", "C"), ("run", "D")]
    assert run(main) == expected


def test_a_free_worker_that_is_canceled_is_followed_by_another_one():
    async def main():
        stage = Stage(most=1)
        stage.give([("A", returns)])
        await soon()
        [task] = stage.tasks
        task.cancel()
        await soon()
        stage.give([("B", returns)])
        await soon()
        [task] = stage.tasks - {task}
        stage.give([("C", returns)])  # it is woken up, and canceled before it runs
        task.cancel()
        await soon()
        await stage.end()
        return stage.events

    assert run(main) == [("run", "A"), ("run", "B"), ("run", "C")]


def test_the_end_of_the_loop_waits_for_no_worker_whose_coroutine_was_canceled():
    events = []

    async def waits():
        await asyncio.sleep(60)

    async def catches():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            events.append("caught")

    async def main():
        stage = Stage(most=2)
        stage.give([("A", waits), ("B", catches if sys.version_info >= (3, 11) else waits)])
        await soon()
        return stage  # asyncio.run() cancels all tasks, and waits for them

    stage = run(main)
    assert all(task.done() for task in stage.tasks)
    assert ("A", "CancelledError()") in stage.events
