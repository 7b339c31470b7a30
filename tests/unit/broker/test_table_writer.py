"""Tables are written on a thread, once for changes that come together."""

import asyncio
import threading

import pytest

from rocketc.broker.table_writer import TableWriter
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
            writer.save(one, lambda n=n: done.append(n))
            writer.save(two)
        await writer.close()
        assert done == list(range(100)) and one.writes == two.writes == [False]
        writer.save(one, lambda: done.append("more"))
        await writer.close()
        assert done[-1] == "more" and len(one.writes) == 2

    asyncio.run(main())


def test_an_error_is_logged_and_the_caller_continues(caplog):
    async def main():
        writer, table, done = TableWriter(), Table("one", fails=1), []
        writer.save(table, lambda: done.append(1))
        await writer.close()
        assert done == [1]
        writer.save(table)
        await writer.close()
        assert len(table.writes) == 2

    asyncio.run(main())
    assert "one is not written" in caplog.text


@pytest.mark.parametrize("fails", [0, 1])
def test_without_threads_it_writes_at_once(fails):
    async def main():
        writer, table, done = TableWriter(in_thread=False), Table("one", fails), []
        writer.save(table, lambda: done.append(1))
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
        writer.save(table, lambda: done.append(1))
        writer.save(Table("two"), lambda: {}["missing"])
        writer.save(Table("three"), lambda: done.append(3))
        await asyncio.wait_for(writer.close(), 5)
        assert done == [1, 3] and isinstance(errors[0], KeyError)
        writer.save(Table("four"), lambda: done.append(4))
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
