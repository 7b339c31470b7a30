"""How much a producer has sent without an answer, and who waits until there is less."""

from __future__ import annotations

import asyncio
from collections import deque

from rocketc.client._send_path import InFlightCore
from rocketc.errors import BackpressureError, ClosedError


class InFlight(InFlightCore):
    """Counts messages and bytes in flight. Use it on one event loop.

    messages, bytes  the most of each; a message that is larger than `bytes` is let through alone

    >>> import asyncio
    >>> async def main():
    ...     window = InFlight(messages=1, bytes=100)
    ...     window.take_now(10)
    ...     try:
    ...         window.take_now(10)
    ...     except BackpressureError as error:
    ...         return str(error)
    >>> asyncio.run(main())
    '1 messages of 10 bytes are in flight; the limits are 1 messages and 100 bytes'
    """

    def __init__(self, messages: int, bytes: int) -> None:
        super().__init__(messages, bytes)
        self._waiting = deque()

    def take_now(self, size: int) -> None:
        """Count a message. Raises BackpressureError if there is no room, or if others wait for it."""
        if self._waiting or not self._has_room(size):
            raise self._full()
        self.messages += 1
        self.bytes += size

    async def take(self, size: int, deadline: float) -> None:
        """Count a message, as soon as there is room; the first who waits is the first who gets it.

        deadline  loop.time() at which this raises BackpressureError
        Raises ClosedError after close().
        """
        if self._is_closed:
            raise ClosedError("the producer is closed")
        if not self._waiting and self._has_room(size):
            self.messages += 1
            self.bytes += size
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append((size, turn))
        try:
            await asyncio.wait({turn}, timeout=max(0.0, deadline - loop.time()))
        except asyncio.CancelledError:
            if turn.cancel():
                self._let_in()  # the callers that wait after it
            elif turn.exception() is None:
                self.give_back(size)  # the room came at the moment of the cancellation
            raise
        if turn.cancel():
            self._let_in()
            raise self._full()
        turn.result()

    def _full(self) -> BackpressureError:
        return BackpressureError(
            f"{self.messages} messages of {self.bytes} bytes are in flight; "
            f"the limits are {self._messages_most} messages and {self._bytes_most} bytes"
        )

    def give_back(self, size: int) -> None:
        """End a message."""
        self.messages -= 1
        self.bytes -= size
        if self.messages == 0 and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)
        self._let_in()

    def _let_in(self) -> None:
        """Give room to those who wait, as far as there is some."""
        while self._waiting and (self._waiting[0][1].done() or self._has_room(self._waiting[0][0])):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self.messages += 1
                self.bytes += wanted
                turn.set_result(None)

    async def wait_empty(self, seconds: float) -> None:
        """Wait until nothing is in flight, at most for this time."""
        if self.messages == 0:
            return
        if self._empty is None or self._empty.done():
            self._empty = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._empty}, timeout=seconds)

    def close(self) -> None:
        """End the waits for room with ClosedError, and refuse later ones."""
        self._is_closed = True
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(ClosedError("the producer is closed"))
