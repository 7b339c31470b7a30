"""Tables are written on a thread, once for changes that come together."""

import asyncio
import threading

import pytest
from simulation import virtual

from rocketc.broker.table_writer import TableWriter, fault_text, reason
from rocketc.errors import StoreFullError


class Table:
    """A table that notes who writes it."""

    def __init__(self, path, fails=0):
        self.path, self.writes, self.fails = path, [], fails

    def persist(self):
        self.writes.append(threading.current_thread() is threading.main_thread())
        if self.fails:
            self.fails -= 1
            raise StoreFullError(28, "No space left on device", self.path)
        return True


def test_changes_that_come_together_are_written_once():
    async def main():
        writer, one, two, done = TableWriter(), Table("one"), Table("two"), []
        for n in range(100):
            writer.save(one, lambda fault, n=n: done.append(n))
            writer.save(two)
        await writer.close()
        assert done == list(range(100)) and one.writes == two.writes == [False]
        writer.save(one, lambda fault: done.append("more"))
        await writer.close()
        assert done[-1] == "more" and len(one.writes) == 2

    asyncio.run(main())


def test_a_fault_goes_to_those_who_wait(caplog):
    async def main():
        writer, table, done = TableWriter(), Table("one", fails=2), []
        writer.save(table, done.append)
        writer.save(Table("two"), done.append)
        await writer.close()
        assert done[1] is None and done[0].startswith("one is not written: No space left on device; ")
        assert "repeat the request" in done[0]
        writer.save(table, done.append)
        await writer.close()
        writer.save(table, done.append)
        await writer.close()
        assert done[2] == done[0] and done[3] is None and writer.failed == 2 and len(table.writes) == 3

    asyncio.run(main())
    assert caplog.text.count("one is not written") == 1  # at WARNING, once


def test_a_table_is_tried_again_until_it_is_written():
    async def main():
        loop = asyncio.get_running_loop()
        writer, table, done, tried = TableWriter(in_thread=False), Table("one", fails=3), [], []

        def again(fault):
            tried.append((loop.time(), fault is None))
            if fault is not None:
                writer.after_retry(table, again)

        start = loop.time()
        writer.save(table, again)
        await asyncio.sleep(1)
        writer.wait(table, done.append)  # it does not write
        await asyncio.sleep(0)
        assert len(table.writes) == 1 and "one is not written" in done[0]
        await asyncio.sleep(60)
        assert [(round(at - start), good) for at, good in tried] == [(0, False), (5, False), (10, False), (15, True)]
        assert len(table.writes) == 4
        writer.wait(table, done.append)
        writer.after_retry(table, done.append)
        await asyncio.sleep(0)
        assert done[1:] == [None, None] and len(table.writes) == 6
        await writer.close()

    virtual.run(main())


def test_another_change_tries_again_at_once():
    async def main():
        writer, table, done = TableWriter(in_thread=False), Table("one", fails=1), []
        writer.save(table, lambda fault: writer.after_retry(table, done.append))
        await asyncio.sleep(1)
        writer.save(table, done.append)
        await asyncio.sleep(0.1)
        assert done == [None, None] and len(table.writes) == 2
        await asyncio.sleep(60)
        assert len(table.writes) == 2
        await writer.close()

    virtual.run(main())


def test_close_ends_the_retries():
    async def main():
        writer, table = TableWriter(in_thread=False), Table("one", fails=9)
        writer.save(table)
        await writer.close()
        await asyncio.sleep(60)
        assert len(table.writes) == 1

    virtual.run(main())


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ValueError("too large"), "too large"), (KeyError(), "KeyError"), (OSError("odd"), "odd")],
)
def test_reasons(error, expected):
    assert reason(error) == expected
    assert len(fault_text("x" * 5000, error)) <= 1000


@pytest.mark.parametrize("fails", [0, 1])
def test_without_threads_it_writes_at_once(fails):
    async def main():
        writer, table, done = TableWriter(in_thread=False), Table("one", fails), []
        writer.save(table, lambda fault: done.append(1))
        assert table.writes == [True]
        await asyncio.sleep(0)
        assert done == [1]
        await writer.close()

    asyncio.run(main())


def test_no_error_ends_the_writer(caplog):
    """Neither one of a table nor one of the code that waits for it."""

    async def main():
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
        writer, table, done = TableWriter(), Table("one"), []
        table.persist = lambda: "x".index("y")  # a ValueError
        writer.save(table, lambda fault: done.append(1))
        writer.save(Table("two"), lambda fault: {}["missing"])
        writer.save(Table("three"), lambda fault: done.append(3))
        await asyncio.wait_for(writer.close(), 5)
        assert done == [1, 3] and isinstance(errors[0], KeyError)
        writer.save(Table("four"), lambda fault: done.append(4))
        await asyncio.wait_for(writer.close(), 5)
        assert done == [1, 3, 4]

    asyncio.run(main())
    assert "one is not written" in caplog.text


def test_it_tells_whether_a_table_is_saved():
    async def main():
        writer, table, seen = TableWriter(), Table("one"), []
        table.changed = True
        assert not writer.is_saved(table)

        def persist():
            table.changed = False  # as a ConfigManager does before it writes the file
            seen.append(writer.is_saved(table))

        table.persist = persist
        writer.save(table)
        await writer.close()
        assert seen == [False] and writer.is_saved(table)

    asyncio.run(main())
