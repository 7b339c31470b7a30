"""Faults that are put into clients and brokers on purpose: net.fault_days must find each.

MUTANTS has what breaks the process of an embedded broker, and words of what is then found. Those of clients change
nothing there: break_client() does it in their processes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.client.async_producer import AsyncProducer
from rocketc.client.process_queue import ProcessQueue


def _commits_what_it_holds() -> None:
    """The offset moves past messages that no listener has finished: a kill loses them."""
    strip = ProcessQueue._strip

    def moved(self: Any) -> int:
        return max(strip(self), self.queue_offset_max + 1)

    ProcessQueue._strip = moved  # type: ignore[method-assign]


def _never_closes() -> None:
    """A producer does not end after a send that failed."""
    close = AsyncProducer.close

    async def slow(self: Any, *given: Any) -> None:
        await close(self, *given)
        await asyncio.Event().wait()

    AsyncProducer.close = slow  # type: ignore[method-assign]


def _skips() -> None:
    """A broker stores greater offsets than those that clients commit."""
    commit = ConsumerOffsetManager.commit

    def more(self: Any, group: str, topic: str, queue_id: int, offset: int) -> Any:
        return commit(self, group, topic, queue_id, offset + 5)

    ConsumerOffsetManager.commit = more  # type: ignore[method-assign]


_CLIENT = {"commits what it holds": _commits_what_it_holds, "never closes": _never_closes}


def break_client(name: str) -> None:
    """Break this process of a client, if the mutant is one of clients."""
    _CLIENT.get(name, _nothing)()


def _nothing() -> None:
    pass


MUTANTS = {
    "commits what it holds": (_nothing, "never consumed"),
    "never closes": (_nothing, "does not end"),
    "skips": (_skips, "never consumed"),
}
