"""The requests of a server that wait for the answers of its peers.

Source: RocketMQ NettyRemotingAbstract.invokeImpl, scanResponseTable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from rocketc.errors import ConnectionLostError, NoAnswerError
from rocketc.remoting.command import Command

SWEEP_SECONDS = 0.1  # a call ends at most this late
_OPAQUE_MOST = 0x7FFFFFFF

Answered = asyncio.Future[Command]


class Calls:
    """Gives requests their numbers, and answers their futures. Peers are only keys.

    One timer ends all calls that are due, because a timer each costs more than a call.
    """

    def __init__(self) -> None:
        self._opaque = 0
        self._waiting: dict[Hashable, dict[int, tuple[float, Answered]]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def next_opaque(self) -> int:
        """Return the number of the next request to any peer."""
        self._opaque = self._opaque + 1 & _OPAQUE_MOST
        return self._opaque

    def begin(self, peer: Hashable, deadline: float) -> tuple[int, Answered]:
        """Register a call before its request is sent. Return its number, and its answer.

        deadline  loop.time() at which it ends with NoAnswerError
        """
        loop = asyncio.get_running_loop()
        opaque, answer = self.next_opaque(), loop.create_future()
        self._waiting.setdefault(peer, {})[opaque] = deadline, answer
        answer.add_done_callback(lambda done: self._forget(peer, opaque))
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP_SECONDS, self._expire)
        return opaque, answer

    def answered(self, peer: Hashable, command: Command) -> bool:
        """Pass an answer on. Return whether a call to this peer waits for it."""
        _, answer = self._waiting.get(peer, {}).get(command.opaque, (0.0, None))
        if answer is None or answer.done():
            return False
        answer.set_result(command)
        return True

    def lost(self, peer: Hashable) -> None:
        """End all calls to a peer with ConnectionLostError."""
        for _, answer in self._waiting.pop(peer, {}).values():
            if not answer.done():
                answer.set_exception(ConnectionLostError("the connection ended; the request may have been carried out"))

    def _forget(self, peer: Hashable, opaque: int) -> None:
        calls = self._waiting.get(peer, {})
        calls.pop(opaque, None)
        if not calls:
            self._waiting.pop(peer, None)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for calls in self._waiting.values():
            for deadline, answer in calls.values():
                if deadline <= now and not answer.done():
                    answer.set_exception(NoAnswerError("no answer in time; the request may have been carried out"))
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._expire) if self._waiting else None

    def close(self) -> None:
        """End all calls, and the timer."""
        for peer in list(self._waiting):
            self.lost(peer)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
