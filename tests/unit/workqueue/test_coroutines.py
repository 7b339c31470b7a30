"""coroutines: rocketc.Queue on event loops. A coroutine that waits blocks no loop; a canceled one takes nothing."""

import asyncio
import logging
import queue as python_queue
import random
import threading
import time
from collections import Counter

import pytest
from support.queue_checks import numbers, write_at

import rocketc


async def ticks(task):
    """Count how often the loop runs other tasks until a task ends."""
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    return count


async def aget(queue, timeout=10.0):
    return await queue.aget(timeout)


def test_a_get_that_waits_blocks_no_loop(open_queue):
    queue = open_queue()

    async def main():
        waiting = asyncio.create_task(aget(queue))
        asyncio.get_running_loop().call_later(0.05, queue.put, b"1")
        assert await ticks(waiting) > 10
        return waiting.result()

    assert asyncio.run(main()) == b"1"


def test_a_put_that_waits_for_room_blocks_no_loop(open_queue):
    queue = open_queue(maxsize=1)

    async def main():
        assert (await queue.aput(b"1", tags="web")).queue_offset == 0
        with pytest.raises(python_queue.Full):
            await queue.aput(b"2", timeout=0.01)
        waiting = asyncio.create_task(queue.aput(b"2", keys=["k"]))
        asyncio.get_running_loop().call_later(0.05, queue.get)
        assert await ticks(waiting) > 10
        return (await waiting).queue_offset

    assert asyncio.run(main()) == 1
    item = queue.get()
    assert (item, item.message.keys) == (b"2", "k")


def test_many_that_wait_get_messages_in_their_order(open_queue):
    queue = open_queue()

    async def main():
        tasks = [asyncio.create_task(aget(queue)) for _ in range(300)]
        await asyncio.sleep(0)
        queue.put_many([b"%d" % n for n in range(300)])
        return numbers(await asyncio.gather(*tasks))

    assert asyncio.run(main()) == list(range(300))


def test_timeouts(open_queue):
    queue = open_queue()

    async def main():
        for timeout in (0, 0.01):
            with pytest.raises(python_queue.Empty):
                await queue.aget(timeout)
        queue.put(b"1")
        return await queue.aget(0)  # maybe not dispatched yet: get(False) waits for it, too

    assert asyncio.run(main()) == b"1"


@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_are_canceled_take_nothing(open_queue, seed):
    """Tasks on two loops wait with all kinds of limits and are canceled at any time; a thread takes messages, too."""
    choose = random.Random(seed)
    queue = open_queue(maxsize=20)
    count, done = 400, Counter()

    async def work(number):
        for _ in range(60):
            task = asyncio.create_task(queue.aget(choose.choice([None, 0, 0.001, 0.5])))
            if choose.random() < 0.5:
                await asyncio.sleep(choose.choice([0, 0, 0.001]))
                if task.cancel():
                    await asyncio.wait([task])
            else:
                await asyncio.wait([task], timeout=choose.choice([0.001, 0.02]))
                if task.cancel():
                    await asyncio.wait([task])
            if task.cancelled() or isinstance(task.exception(), python_queue.Empty):
                continue
            done[task.result()] += 1
            await queue.aack(task.result())

    async def workers():
        await asyncio.gather(*map(work, range(10)))

    async def puts():
        for n in range(count):
            while True:
                put = asyncio.create_task(queue.aput(b"%d" % n))
                if choose.random() < 0.2:
                    await asyncio.sleep(0)
                    put.cancel()
                await asyncio.wait([put])
                if not put.cancelled():
                    break
                if queue.store.max_offset("queue", 0, committed=False) > n:
                    raise AssertionError("a put that was canceled is stored")

    def takes():
        for item in queue.items(timeout=0.3):
            done[item] += 1

    threads = [threading.Thread(target=asyncio.run, args=(each(),)) for each in (workers, workers, puts)]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join()
    last = threading.Thread(target=takes)
    last.start()
    threads[2].join()
    last.join()
    assert done == Counter(b"%d" % n for n in range(count))
    assert (queue.position, queue.qsize()) == (count, 0)


def test_all_that_wait_end_when_the_queue_is_closed(open_queue):
    queue = open_queue(maxsize=1)
    queue.put(b"1")
    audit = queue.consumer("audit")
    audit.get()

    async def main():
        gets = [asyncio.create_task(aget(audit, None)) for _ in range(3)]
        puts = [asyncio.create_task(queue.aput(b"2")) for _ in range(3)]
        await asyncio.sleep(0.02)
        async with queue:
            pass
        return await asyncio.gather(*gets, *puts, return_exceptions=True)

    assert {type(result) for result in asyncio.run(main())} == {rocketc.ClosedError}


def test_messages_that_are_due_again(open_queue):
    queue = open_queue(visibility_timeout=0.05)
    queue.put(b"1")

    async def main():
        item = await queue.aget(10)
        again = await queue.aget(10)  # after the visibility timeout
        queue.nack(again, delay=0.03)
        last = await queue.aget(10)
        return [one.attempts for one in (item, again, last)]

    assert asyncio.run(main()) == [1, 2, 3]


def test_a_loop_acks_its_items(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1", b"2", b"3"])

    async def main():
        found = []
        async for item in queue:
            found.append(item)
            if item == b"1":
                break  # it is not done
        for _ in range(3):
            await asyncio.sleep(0)  # the loop closes the generator
        assert (queue.position, queue.qsize()) == (1, 3)
        with pytest.raises(ZeroDivisionError):
            async for item in queue.aitems(timeout=0):
                found.append((item, item.attempts))
                raise ZeroDivisionError
        for _ in range(3):
            await asyncio.sleep(0)
        async for item in queue.aitems(timeout=0):
            found.append((item, item.attempts))
        return found

    assert asyncio.run(main()) == [b"0", b"1", (b"1", 2), (b"1", 3), (b"2", 1), (b"3", 1)]
    assert queue.position == 4


def test_task_done_belongs_to_the_task(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1"])

    async def work():
        item = await queue.aget(10)
        await asyncio.sleep(0.01)
        if item == b"1":
            queue.task_done()

    async def main():
        await asyncio.gather(work(), work())

    asyncio.run(main())
    assert (queue.position, queue.qsize()) == (0, 0)
    assert queue._in_flight.finished == 1


def test_damage_is_raised_once(open_queue, tmp_path):
    queue = open_queue()
    first = queue.put(b"0")
    queue.put(b"1")
    write_at(tmp_path / "jobs", first.phy_offset + 88, b"X")  # one byte of the body

    async def main():
        tasks = [asyncio.create_task(aget(queue)) for _ in range(2)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    damage, item = asyncio.run(main())
    assert isinstance(damage, rocketc.CorruptRecordError) and item == b"1"


def test_a_loop_that_ends_while_a_task_waits(open_queue, caplog):
    queue = open_queue()

    async def main():
        with pytest.raises(python_queue.Empty):
            await queue.aget(0.01)

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
        time.sleep(0.15)  # the thread's wait has ended
    assert caplog.records == []
    queue.put(b"1")
    assert asyncio.run(aget(queue)) == b"1"
