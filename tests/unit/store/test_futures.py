"""put_async and aput: waiting for a put without a thread for each wait."""

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import threading
import time

import pytest

import rocketc
from rocketc.status import PutStatus
from rocketc.store.futures import LoopWaiters, PutFuture

SLOW = 200_000_000


def run(main, runner=asyncio.run):
    """Run a coroutine with a time limit that no machine should need."""

    async def within():
        return await asyncio.wait_for(main, 60)

    return runner(within())


@pytest.fixture
def sync_store(open_store):
    return lambda **fields: open_store(flush="sync", mapped_file_size_commit_log=1 << 20, **fields)


# ------------------------------------------------------------------------------------------------ put_async


def test_put_async_in_async_mode_is_done_at_once(open_store):
    store = open_store()
    future = store.put_async("t", b"hello", tags="A", queue_id=2)
    assert isinstance(future, PutFuture)
    assert isinstance(future, concurrent.futures.Future)
    assert future.done()
    assert not future.running()
    assert not future.cancelled()
    assert future.exception(0) is None
    assert future.result(0).queue_offset == 0
    assert future.result() is future.result()
    assert store.message(0).tags == "A"


def test_put_async_in_sync_mode_is_done_when_durable(sync_store):
    store = sync_store()
    store._hook("slow_ns", 2_000_000_000)
    future = store.put_async("t", b"x")
    assert store.max_phy_offset > 0  # the record is already in the log
    assert not future.done()
    assert future.running()
    time.sleep(0.3)  # the thread of the store flushes; an earlier result() would flush on the caller's thread
    for call in (future.result, future.exception):
        with pytest.raises(concurrent.futures.TimeoutError):
            call(0.01)
    r = future.result(60)
    assert r.status is PutStatus.PUT_OK
    assert future.done()
    assert store.flushed_phy_offset >= r.end


def test_put_async_is_done_without_a_call_of_result(sync_store):
    store = sync_store()
    future = store.put_async("t", b"x")
    while not future.done():
        time.sleep(0.001)
    assert store.flushed_phy_offset == store.max_phy_offset


def test_a_put_that_does_not_wait(sync_store):
    store = sync_store()
    store._hook("slow_ns", SLOW)
    assert store.put_async("t", b"x", wait_store_ok=False).done()


def test_a_future_cannot_be_canceled(sync_store):
    store = sync_store()
    future = store.put_async("t", b"x")
    assert not future.cancel()
    assert not future.cancelled()
    assert future.result(60).queue_offset == 0


def test_wrong_arguments_are_refused_at_once(sync_store):
    store = sync_store()
    with pytest.raises(rocketc.IllegalMessageError):
        store.put_async("", b"x")
    with pytest.raises(TypeError):
        store.put_async("t", "text")
    store._hook("busy_ms", 5000)
    with pytest.raises(rocketc.PageCacheBusyError):
        store.put_async("t", b"x")


def test_put_async_after_the_timeout(sync_store):
    """The result is FLUSH_DISK_TIMEOUT in each way to ask for it."""
    store = sync_store(sync_flush_timeout=30)
    store._hook("slow_ns", 1_000_000_000)
    futures = [store.put_async("t", b"x") for _ in range(3)]
    time.sleep(0.01)  # the thread of the store is flushing, so a waiting caller does not flush itself
    called = []
    futures[1].add_done_callback(lambda f: called.append(f.result().status))
    done, _ = concurrent.futures.wait(futures[1:2], timeout=60)
    assert futures[0].result(60).status is PutStatus.FLUSH_DISK_TIMEOUT
    assert [f.result().status for f in done] == [PutStatus.FLUSH_DISK_TIMEOUT] == called
    assert futures[2].done()


def test_callbacks(sync_store):
    """Each is called once, in order, with the future, or at once if it is done. One that fails does not stop others."""
    store = sync_store()
    store._hook("slow_ns", SLOW)
    future = store.put_async("t", b"x")
    called, finished = [], threading.Event()
    future.add_done_callback(lambda f: called.append(("first", f)))
    future.add_done_callback(lambda f: 1 / 0)
    future.add_done_callback(lambda f: finished.set())
    assert called == []
    assert finished.wait(60)
    future.add_done_callback(lambda f: called.append(("late", f)))
    assert called == [("first", future), ("late", future)]
    assert future.result() is future.result()


def test_callback_of_async_mode(open_store):
    store = open_store()
    finished = threading.Event()
    store.put_async("t", b"x").add_done_callback(lambda f: finished.set())
    assert finished.wait(60)


def test_wait_and_as_completed(sync_store):
    store = sync_store()
    futures = [store.put_async("t", b"%d" % n) for n in range(200)]
    done, left = concurrent.futures.wait(futures[:100], timeout=60)
    assert (len(done), len(left)) == (100, 0)
    seen = [f.result().queue_offset for f in concurrent.futures.as_completed(futures, timeout=60)]
    assert sorted(seen) == list(range(200))
    done, _ = concurrent.futures.wait(futures, timeout=60, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert len(done) == 200


def test_wrap_future(sync_store):
    store = sync_store()

    async def main():
        return await asyncio.gather(*(asyncio.wrap_future(store.put_async("t", b"x")) for _ in range(20)))

    assert [r.queue_offset for r in run(main())] == list(range(20))


def test_results_do_not_need_a_thread(sync_store):
    """A caller that only asks for the result does not start a thread."""
    store = sync_store()
    before = set(threading.enumerate())
    futures = [store.put_async("t", b"x") for _ in range(1000)]
    assert [f.result(60).queue_offset for f in futures] == list(range(1000))
    assert not set(threading.enumerate()) - before
    assert store.stats()["flushes"] < 1000


def test_the_thread_of_callbacks_ends(sync_store):
    store = sync_store()
    before = set(threading.enumerate())
    concurrent.futures.wait([store.put_async("t", b"x")], timeout=60)
    end = time.monotonic() + 60
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.05)
    assert not set(threading.enumerate()) - before


def test_results_after_close(sync_store, tmp_path):
    """close() flushes the rest, and the futures have their results."""
    store = sync_store()
    futures = [store.put_async("t", b"%d" % n) for n in range(10)]
    store.close()
    assert [f.result(0).queue_offset for f in futures] == list(range(10))
    concurrent.futures.wait(futures, timeout=60)
    assert len(list(rocketc.scan(tmp_path))) == 10


def test_a_future_does_not_keep_the_store_open(sync_store):
    """A future does not prevent close(), and has its result after the store is gone."""
    store = sync_store()
    future = store.put_async("t", b"x")
    store.close()
    del store
    gc.collect()
    assert future.result(0).queue_offset == 0


def test_threads_put_async(sync_store):
    store = sync_store()
    found = []

    def put():
        futures = [store.put_async("t", b"x") for _ in range(200)]
        found.extend(f.result(60).queue_offset for f in futures)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(800))


# ------------------------------------------------------------------------------------------------ aput


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_aput(open_store, flush, loop):
    runner = pytest.importorskip(loop).run
    store = open_store(flush=flush, mapped_file_size_commit_log=1 << 20)

    async def main():
        first = await store.aput("t", b"x", tags="A")
        assert first.status is PutStatus.PUT_OK
        many = await asyncio.gather(*(store.aput("t", b"x") for _ in range(1000)))
        assert flush == "async" or store.flushed_phy_offset == store.max_phy_offset
        return [first.queue_offset, *(r.queue_offset for r in many)]

    assert run(main(), runner) == list(range(1001))
    assert store.stats()["flushes"] < 500


def test_aput_does_not_block_the_loop(sync_store):
    """The event loop runs other tasks during a flush."""
    store = sync_store()

    async def main():
        store._hook("slow_ns", 1_000_000_000)
        waiting = store.aput("t", b"x")
        ticks = 0
        while not waiting.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks, (await waiting).status

    ticks, status = run(main())
    assert status is PutStatus.PUT_OK
    assert ticks > 3


def test_aput_has_stored_the_message_when_it_returns(sync_store):
    """The message is in the log before the caller awaits."""
    store = sync_store()

    async def main():
        store._hook("slow_ns", SLOW)
        waiting = store.aput("t", b"x")
        assert store.max_phy_offset > 0
        assert not waiting.done()
        assert store.aput("t", b"x", wait_store_ok=False).done()
        await waiting

    run(main())


def test_aput_canceled(sync_store):
    """The canceled task does not get its result; the others do."""
    store = sync_store()

    async def main():
        store._hook("slow_ns", SLOW)
        waiting = [store.aput("t", b"x") for _ in range(5)]
        waiting[0].cancel()
        waiting[3].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        return [r.queue_offset for r in await asyncio.gather(waiting[1], waiting[2], waiting[4])]

    assert run(main()) == [1, 2, 4]
    assert store.max_phy_offset == 5 * 93


def test_aput_after_the_timeout(sync_store):
    store = sync_store(sync_flush_timeout=30)

    async def main():
        store._hook("slow_ns", 1_000_000_000)
        first = store.aput("t", b"x")
        await asyncio.sleep(0.01)
        rest = [store.aput("t", b"x") for _ in range(3)]
        return [r.status for r in await asyncio.gather(first, *rest)]

    assert run(main()) == [PutStatus.FLUSH_DISK_TIMEOUT] * 4


def test_aput_wrong_arguments(sync_store):
    store = sync_store()

    async def main():
        with pytest.raises(rocketc.IllegalMessageError):
            store.aput("", b"x")
        with pytest.raises(TypeError):
            store.aput("t", "text")
        assert (await store.aput("t", b"x")).queue_offset == 0

    run(main())


def test_aput_needs_a_loop(sync_store):
    store = sync_store()
    with pytest.raises(RuntimeError, match="no running event loop"):
        store.aput("t", b"x")
    assert store.max_phy_offset == 0


def test_aput_of_a_store_that_is_not_open(open_store, tmp_path):
    """ClosedError, whatever its descriptor refers to by then."""
    store = open_store()
    store.put("t", b"x")

    async def main():
        with rocketc.open(tmp_path, read_only=True) as reader, pytest.raises(rocketc.ClosedError):
            reader.aput("t", b"x")
        await store.aput("t", b"x")
        store.close()
        with pytest.raises(rocketc.ClosedError):
            store.aput("t", b"x")

    run(main())


def test_one_loop_after_the_other(sync_store):
    store = sync_store()

    async def main():
        return (await store.aput("t", b"x")).queue_offset

    assert [run(main()) for _ in range(5)] == list(range(5))


def test_a_loop_that_ended_while_it_waited(sync_store):
    store = sync_store()

    async def main():
        store._hook("slow_ns", SLOW)
        store.aput("t", b"x")

    async def again():
        store._hook("slow_ns", 0)
        return (await store.aput("t", b"x")).queue_offset

    run(main())
    assert run(again()) == 1


def test_several_loops_at_a_time(sync_store):
    """Each event loop is woken for its own messages while others wait."""
    store = sync_store()

    async def main(n):
        found = [(await store.aput("t", b"x", queue_id=n)).queue_offset for _ in range(20)]
        many = await asyncio.gather(*(store.aput("t", b"x", queue_id=n) for _ in range(200)))
        assert all(store.flushed_phy_offset >= r.end for r in many)
        return found + [r.queue_offset for r in many]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: run(main(n)), range(4)))
    assert found == [list(range(220))] * 4


def test_a_loop_waits_while_another_is_answered(sync_store):
    """One flush answers both."""
    store = sync_store()

    async def main():
        store._hook("slow_ns", SLOW)
        first = store.aput("t", b"x")

        def other():
            async def inner():
                return (await store.aput("t", b"y")).queue_offset

            return run(inner())

        assert await asyncio.to_thread(other) == 1
        return (await first).queue_offset

    assert run(main()) == 0


def test_close_while_several_loops_wait(sync_store):
    store = sync_store()
    ready = threading.Barrier(4)

    async def main():
        waiting = store.aput("t", b"x")
        await asyncio.to_thread(ready.wait, 60)
        return (await waiting).queue_offset

    store._hook("slow_ns", SLOW)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = [pool.submit(run, main()) for _ in range(3)]
        ready.wait(60)
        store.close()
        assert sorted(one.result(60) for one in found) == [0, 1, 2]


@pytest.mark.parametrize("slow", [0, SLOW])
def test_close_while_aput_waits(sync_store, slow):
    """close() flushes, and waiting tasks get their results."""
    store = sync_store()

    async def main():
        store._hook("slow_ns", slow)
        waiting = [store.aput("t", b"x") for _ in range(5)]
        store.close()
        with pytest.raises(rocketc.ClosedError):
            store.aput("t", b"x")
        return [r.queue_offset for r in await asyncio.gather(*waiting)]

    assert run(main()) == list(range(5))


@pytest.mark.parametrize("debug", [False, True])
def test_close_in_another_thread_while_aput_waits(sync_store, debug):
    """The result is set in the event loop, as asyncio requires in debug mode, and a sleeping loop is woken for it."""
    store = sync_store()
    raised = []

    def close():
        try:
            store.close()
        except BaseException as error:
            raised.append(error)

    async def put():
        return await store.aput("t", b"x")

    async def main():
        store._hook("slow_ns", SLOW)
        waiting = [asyncio.create_task(put()) for _ in range(5)]
        await asyncio.sleep(0)  # now they wait
        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
        began = time.monotonic()
        answers = [r.queue_offset for r in await asyncio.wait_for(asyncio.gather(*waiting), 6)]
        return answers, time.monotonic() - began

    answers, took = run(main(), lambda main: asyncio.run(main, debug=debug))
    assert not raised
    assert answers == list(range(5))
    assert took < 3  # sync_flush_timeout is 5 s
    assert sync_store().put("t", b"y").queue_offset == 5


def test_close_between_a_put_and_its_answer(sync_store, monkeypatch):
    """The message is stored, so aput() returns its result, although the store is closed when the call ends."""
    store = sync_store()
    wait = LoopWaiters.wait
    threads = []

    def closed_first(*arguments):
        threads.append(threading.Thread(target=store.close))
        threads[0].start()
        threads[0].join(0.3)
        assert not store.closed
        return wait(*arguments)

    async def main():
        monkeypatch.setattr(LoopWaiters, "wait", closed_first)
        return (await store.aput("t", b"x")).queue_offset

    assert run(main()) == 0
    threads[0].join()
    assert store.closed


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc/self/fd to count descriptors")
def test_aput_takes_one_descriptor(sync_store):
    """One descriptor for any number of waiting tasks, which is closed afterwards."""

    def fds():
        """Descriptors that can wake an event loop; the threads of the store may open other files."""
        links = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/self/fd/{name}"))
        return sum("eventfd" in link or "pipe:" in link for link in links)

    at_first = fds()
    store = sync_store()
    store.put("t", b"x")

    async def main():
        before = fds()
        await store.aput("t", b"x")
        used = fds() - before
        await asyncio.gather(*(store.aput("t", b"x") for _ in range(100)))
        assert fds() - before == used
        return used

    used = run(main())
    assert used <= 2  # a pipe has two, where eventfd is missing
    store.close()
    assert fds() == at_first


def test_threads_and_a_loop(sync_store):
    """put, put_async and aput at the same time."""
    store = sync_store()
    found = []

    def put():
        found.extend(store.put("t", b"x").queue_offset for _ in range(50))
        found.extend(f.result(60).queue_offset for f in [store.put_async("t", b"x") for _ in range(50)])

    async def main():
        threads = [threading.Thread(target=put) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            found.extend(r.queue_offset for r in await asyncio.gather(*(store.aput("t", b"x") for _ in range(10))))
        for thread in threads:
            await asyncio.to_thread(thread.join)

    run(main())
    assert sorted(found) == list(range(500))
