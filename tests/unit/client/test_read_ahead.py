"""ReadAhead on virtual time: blocks are joined, errors come after them, and what waits has a limit."""

import asyncio

import pytest
from simulation import virtual

from rocketc.client import read_ahead
from rocketc.client.read_ahead import ReadAhead
from rocketc.client.topic_merge import BLOCK_BYTES
from rocketc.read.record_block import RecordBlock


class Source:
    """Blocks, each after some seconds; an exception is raised."""

    def __init__(self, *steps):
        self.steps, self.reads = list(steps), 0

    async def read(self):
        self.reads += 1
        seconds, block = self.steps.pop(0) if self.steps else (0, b"")
        await asyncio.sleep(seconds)
        if isinstance(block, Exception):
            raise block
        return RecordBlock(block)


def play(source, work):
    async def main():
        ahead = ReadAhead(source.read)
        try:
            return await work(ahead)
        finally:
            await ahead.close()

    return virtual.run(main())


async def all_of(ahead):
    found = []
    while block := await ahead.next():
        found.append(block.records)
    return found


def test_blocks_that_come_at_once_are_joined():
    assert play(Source((0, b"a"), (0.001, b"b"), (0.001, b"c")), all_of) == [b"abc"]
    assert play(Source(), all_of) == []


def test_a_block_does_not_wait_long_for_the_next_one():
    async def work(ahead):
        loop = asyncio.get_running_loop()
        began = loop.time()
        first, after = await ahead.next(), loop.time() - began
        return first.records, after, (await ahead.next()).records, loop.time() - began

    first, after, second, end = play(Source((0, b"a"), (5, b"b")), work)
    assert (first, second) == (b"a", b"b")
    assert after < 0.05 and end == pytest.approx(5, abs=0.1)


def test_an_error_comes_after_the_blocks_before_it():
    async def work(ahead):
        found = [(await ahead.next()).records]
        for _ in range(2):
            with pytest.raises(OSError, match="gone"):
                await ahead.next()
        return found

    assert play(Source((0, b"a"), (0, b"b"), (0.001, OSError("gone"))), work) == [b"ab"]


def test_what_waits_has_a_limit():
    source = Source(*[(0, bytes(BLOCK_BYTES))] * 20)

    async def work(ahead):
        await asyncio.sleep(1)
        assert source.reads == read_ahead._MOST // BLOCK_BYTES
        return sum(map(len, await all_of(ahead)))

    assert play(source, work) == 20 * BLOCK_BYTES


@pytest.mark.parametrize("most", [1, read_ahead._MOST])
def test_it_is_closed_in_the_middle(monkeypatch, most):
    monkeypatch.setattr(read_ahead, "_MOST", most)
    source = Source((0, b"a"), (1000, b"b"))

    async def work(ahead):
        return (await ahead.next()).records

    assert play(source, work) == b"a"
