"""ReadAhead: blocks of a source on an event loop, read before another thread asks for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from rocketc.client.topic_merge import BLOCK_BYTES
from rocketc.read.record_block import RecordBlock, joined_blocks

_MOST = 4 * BLOCK_BYTES  # bytes that wait
_SECONDS = 0.02  # for more bytes, once there are some


class ReadAhead:
    """Reads blocks, and joins them: each call from another thread costs as much as some hundred records.

    read  returns the next block, nothing at the end
    Use it on one event loop, from its creation on.

    >>> async def main():
    ...     blocks = [RecordBlock(b"one"), RecordBlock(b"two"), RecordBlock()]
    ...     async def read():
    ...         return blocks.pop(0)
    ...     ahead = ReadAhead(read)
    ...     return (await ahead.next()).records, (await ahead.next()).records
    >>> asyncio.run(main())
    (b'onetwo', b'')
    """

    def __init__(self, read: Callable[[], Awaitable[RecordBlock]]) -> None:
        self._read = read
        self._blocks: deque[RecordBlock] = deque()
        self._size = 0
        self._is_full, self._has_room = asyncio.Event(), asyncio.Event()
        self._reading = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while block := await self._read():
                self._blocks.append(block)
                self._size += len(block)
                if self._size >= BLOCK_BYTES:
                    self._is_full.set()
                while self._size >= _MOST:
                    self._has_room.clear()
                    await self._has_room.wait()
        finally:
            self._is_full.set()

    async def next(self) -> RecordBlock:
        """Return what is there, about BLOCK_BYTES if that does not take long; nothing at the end.

        Raises the error of `read` after the blocks before it.
        """
        while not self._is_full.is_set():
            try:
                await asyncio.wait_for(self._is_full.wait(), _SECONDS)
            except asyncio.TimeoutError:
                if self._blocks:
                    break
        found = joined_blocks(self._blocks)
        self._blocks.clear()
        self._size = 0
        self._has_room.set()
        if self._reading.done():
            if not found:
                self._reading.result()
        else:
            self._is_full.clear()
        return found

    async def close(self) -> None:
        """End the reading."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
