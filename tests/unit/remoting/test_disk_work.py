"""Work for the disk runs on a thread, in order, and no error stops it."""

import asyncio
import threading

import pytest

from rocketc.remoting.disk_work import DiskWork


def on_main_thread():
    return threading.current_thread() is threading.main_thread()


def test_work_runs_on_a_thread_one_after_the_other():
    async def main():
        disk, found, running = DiskWork(), [], []

        def work(n):
            assert not running and not on_main_thread()
            running.append(n)
            running.remove(n)
            return n

        for n in range(50):
            disk.run(lambda n=n: work(n), lambda n: found.append((n, on_main_thread())))
        assert disk.is_busy and found == []
        await disk.close()
        assert not disk.is_busy and found == [(n, True) for n in range(50)]

    asyncio.run(main())


@pytest.mark.parametrize("place", ["work", "done"])
def test_an_error_goes_to_the_loop_and_later_work_runs(place):
    async def main():
        errors, found = [], []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
        disk = DiskWork()
        if place == "work":
            disk.run(lambda: {}["missing"], found.append)
        else:
            disk.run(lambda: 1, lambda one: {}["missing"])
        disk.run(lambda: 2, found.append)
        await asyncio.wait_for(disk.close(), 5)
        assert found == [2] and [type(error) for error in errors] == [KeyError]

    asyncio.run(main())


def test_without_threads_it_is_done_at_once():
    async def main():
        disk, found = DiskWork(in_thread=False), []
        disk.run(on_main_thread, found.append)
        assert found == [True] and not disk.is_busy
        await disk.close()

    asyncio.run(main())


def test_close_waits_also_for_work_of_a_done():
    async def main():
        disk, found = DiskWork(), []
        disk.run(lambda: 1, lambda one: disk.run(lambda: 2, found.append))
        await disk.close()
        assert found == [2]

    asyncio.run(main())
