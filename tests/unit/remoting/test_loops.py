"""LoopExecutor: it does what a loop asks of a ThreadPoolExecutor."""

import threading

import pytest

from rocketc.remoting.loops import LoopExecutor, new_event_loop


def test_no_more_threads_than_calls_at_once():
    with LoopExecutor(2) as executor:
        for n in range(20):
            assert executor.submit(pow, n, 2).result(20) == n * n
        gate = threading.Event()
        held = [executor.submit(gate.wait, 20) for _ in range(5)]
        names = {thread.name for thread in executor._started}
        gate.set()
        assert [future.result(20) for future in held] == [True] * 5
    assert names == {"rocketc-work-0", "rocketc-work-1"}
    assert not any(thread.is_alive() for thread in executor._started)


def test_the_caller_gets_the_error_and_the_thread_continues():
    with LoopExecutor(1) as executor:
        for error in (ValueError, SystemExit):
            with pytest.raises(error):
                executor.submit(raise_it, error).result(20)
        assert executor.submit(int, "7").result(20) == 7


def raise_it(error):
    raise error


def test_shutdown():
    executor, gate, begun = LoopExecutor(1), threading.Event(), threading.Event()
    running = executor.submit(lambda: (begun.set(), gate.wait(20)))
    assert begun.wait(20)
    waiting = executor.submit(int)
    executor.shutdown(wait=False, cancel_futures=True)
    executor.shutdown(wait=False)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)
    gate.set()
    executor.shutdown()
    assert running.done()


def test_a_canceled_call_does_not_run():
    executor, gate = LoopExecutor(1), threading.Event()
    executor.submit(gate.wait, 20)
    ran = []
    waiting = executor.submit(ran.append, 1)
    assert waiting.cancel()
    gate.set()
    executor.shutdown()
    assert ran == []


def test_a_new_loop_has_one():
    async def name():
        return await loop.run_in_executor(None, lambda: threading.current_thread().name)

    loop = new_event_loop()
    assert loop.run_until_complete(name()) == "rocketc-work-0"
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
