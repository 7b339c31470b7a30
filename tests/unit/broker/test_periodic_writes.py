"""What is written now and then, and at the end: a write that fails does not end the others."""

import asyncio
import threading

import pytest
from simulation import virtual

from rocketc.broker.periodic_writes import PeriodicWrites
from rocketc.errors import StoreFullError


def test_a_write_that_fails_is_tried_after_the_next_period(caplog):
    began, outcomes = [], iter([None, StoreFullError("the disk is full"), None])

    def persist():
        began.append(asyncio.get_running_loop().time())
        if (error := next(outcomes)) is not None:
            raise error

    async def main():
        first = asyncio.get_running_loop().time()
        writing = asyncio.ensure_future(PeriodicWrites(in_thread=False).repeat(persist, "consumers", lambda: 5.0))
        await asyncio.sleep(16)
        writing.cancel()
        return [round(at - first) for at in began]

    assert virtual.run(main()) == [5, 10, 15]
    assert caplog.messages == ["the offsets of consumers are not written: the disk is full; it is tried again"]


def test_an_error_of_the_program_ends_the_writes():
    def persist():
        raise LookupError("x")

    async def main():
        with pytest.raises(LookupError):
            await PeriodicWrites(in_thread=False).repeat(persist, "consumers", lambda: 5.0)

    virtual.run(main())


def test_each_of_the_last_writes_happens(caplog):
    written = []

    def wrong():
        raise OSError(28, "No space left on device")

    async def main():
        await PeriodicWrites().do_last(
            [
                ("one", lambda: written.append(threading.current_thread())),
                ("two", wrong),
                ("three", lambda: written.append(3)),
            ]
        )

    asyncio.run(main())
    assert written[0] is not threading.main_thread() and written[1:] == [3]
    assert caplog.messages == [
        "two: the last write failed, and its latest changes are lost: [Errno 28] No space left on device"
    ]
