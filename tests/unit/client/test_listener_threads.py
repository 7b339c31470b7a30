"""Listeners on threads: none is lost, none waits for one that blocks, and results come in runs."""

import asyncio
import itertools
import threading
import time

import pytest

from rocketc.client.listener_threads import ListenerThreads
from rocketc.client.ready_items import Part

GOOD = object()


class Stage:
    """Calls that keep what happens: runs of items, and the outcomes of others."""

    def __init__(self, most=4, listener=lambda item: None, now=lambda: 0):
        self.runs, self.others, self.listener = [], [], listener
        self.threads = ListenerThreads(self, most, now, GOOD)
        self.seen = set()

    def give(self, items):
        for owner, of_owner in itertools.groupby(items, lambda item: item[0]):
            self.threads.give(Part(owner, list(of_owner)))

    def call(self, owner, item, now):
        assert self.threads.is_here and item[0] == owner
        self.seen.add(threading.current_thread())
        return self.listener(item)

    def finished(self, owner, item, outcome):
        self.others.append((item, outcome))

    def finished_run(self, owner, items, began):
        self.runs.append((items, began))

    @property
    def done(self):
        return [item for items, _ in self.runs for item in items] + [item for item, _ in self.others]

    async def until(self, count, seconds=20.0):
        end = time.monotonic() + seconds
        while len(self.done) < count and time.monotonic() < end:
            await asyncio.sleep(0.001)
        assert len(self.done) == count


def items(count, queue="a"):
    return [(queue, n) for n in range(count)]


def test_short_calls_end_in_runs_of_one_queue():
    async def main():
        stage = Stage(most=1)
        stage.give([*items(30), *items(3, "b"), *items(2)])
        await stage.until(35)
        assert stage.done == [*items(30), *items(3, "b"), *items(2)] and not stage.others
        assert all(len({queue for queue, _ in run}) == 1 for run, _ in stage.runs)
        assert len(stage.runs) < 15 and not stage.threads.is_here
        stage.threads.close()

    asyncio.run(main())


def test_calls_that_began_at_other_times_are_other_runs():
    async def main():
        times = iter([7, 7, 7, 8, 8, 9])
        stage = Stage(most=1, now=lambda: next(times))
        stage.give(items(6))
        time.sleep(0.05)  # all of them end before the loop looks
        await stage.until(6)
        assert stage.runs == [(items(3), 7), (items(5)[3:], 8), (items(6)[5:], 9)]
        stage.threads.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
def test_other_outcomes_are_passed_on_one_by_one(error):
    def listener(item):
        if item[1] == 1:
            raise error
        return {0: None, 2: GOOD, 3: "later"}.get(item[1])

    async def main():
        stage = Stage(most=1, listener=listener)
        stage.give(items(5))
        await stage.until(5)
        assert [item for run, _ in stage.runs for item in run] == [("a", 0), ("a", 2), ("a", 4)]
        (first, failed), second = stage.others
        assert first == ("a", 1) and second == (("a", 3), "later")
        if isinstance(error, ValueError):
            assert failed is error
        else:
            assert str(failed) == f"the listener raised {type(error).__name__}"
        assert len(stage.seen) == 1 and next(iter(stage.seen)).is_alive()
        stage.threads.close()

    asyncio.run(main())


def test_a_listener_that_blocks_holds_up_no_other():
    async def main():
        barrier = threading.Barrier(4)
        stage = Stage(most=4, listener=lambda item: barrier.wait(10) and None)
        stage.give(items(4))  # each of them waits until all of them run
        await stage.until(4)
        stage.give(items(4))  # the threads are asleep now
        await stage.until(8)
        assert len(stage.seen) == 4
        stage.threads.close()

    asyncio.run(main())


def test_not_more_threads_than_allowed():
    async def main():
        most = []

        def listener(item):
            most.append(threading.active_count())
            time.sleep(0.001)

        before = threading.active_count()  # threads of earlier tests may end from now on
        stage = Stage(most=3, listener=listener)
        stage.give(items(60))
        await stage.until(60)
        assert max(most) <= before + 3 and len(stage.seen) == 3
        stage.threads.close()
        for thread in stage.seen:
            thread.join(5)
        assert not any(thread.is_alive() for thread in stage.seen)

    asyncio.run(main())


def test_nothing_is_lost_between_the_last_item_and_sleep():
    async def main():
        stage, given = Stage(most=3), 0
        for n in range(3000):
            count = n % 4
            stage.give(items(count))
            given += count
            if n % 7 == 0:
                await asyncio.sleep(0)
            if n % 50 == 0:
                await stage.until(given)
        await stage.until(given)
        stage.threads.close()

    asyncio.run(main())


def test_a_closed_object_calls_no_listener():
    async def main():
        entered, leave = threading.Event(), threading.Event()

        def listener(item):
            entered.set()
            leave.wait(10)

        stage = Stage(most=1, listener=listener)
        stage.give(items(5))
        entered.wait(10)
        stage.threads.close()
        stage.give(items(3))
        leave.set()
        await stage.until(1)
        [thread] = stage.seen
        thread.join(5)
        await asyncio.sleep(0.01)
        assert not thread.is_alive() and stage.done == items(1)

    asyncio.run(main())


def test_a_call_that_ends_after_the_loop():
    leave, threads = threading.Event(), []

    async def main():
        stage = Stage(most=1, listener=lambda item: leave.wait(10) and None)
        stage.give(items(1))
        while not stage.seen:
            await asyncio.sleep(0.001)
        threads.extend(stage.seen)

    asyncio.run(main())
    leave.set()
    threads[0].join(5)
    assert not threads[0].is_alive()


def no_thread(self):
    raise RuntimeError("can't start new thread")


def test_the_system_refuses_the_first_thread(monkeypatch, caplog):
    async def main():
        monkeypatch.setattr("rocketc.client.listener_threads.RETRY_SECONDS", 0.01)
        stage = Stage()
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            stage.give(items(3))
            await asyncio.sleep(0.02)
            assert not stage.done
        await stage.until(3)
        stage.threads.close()

    asyncio.run(main())
    assert caplog.messages[0] == "no thread for a listener: can't start new thread; 0 threads work"


def test_the_system_refuses_a_second_thread(monkeypatch, caplog):
    async def main():
        begin = threading.Event()
        stage = Stage(listener=lambda item: begin.wait(20) and None)
        stage.give(items(1))
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            stage.give(items(5)[1:])
            begin.set()
            await stage.until(5)
        assert len(stage.seen) == len(caplog.messages) == 1
        stage.give(items(6)[5:])
        await stage.until(6)
        stage.threads.close()

    asyncio.run(main())
