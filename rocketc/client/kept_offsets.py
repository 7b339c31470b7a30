"""Reads and writes the offsets of a consumer where they are kept: in the brokers of its queues, or in a file.

Source: RocketMQ RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from rocketc.client.connections import UNREACHABLE
from rocketc.client.first_commits import FirstCommits
from rocketc.client.instance import ClientInstance
from rocketc.client.offset_stores import LocalFileOffsetStore, OffsetTable, RemoteBrokerOffsetStore
from rocketc.client.routes import MessageQueue
from rocketc.client.troubles import Troubles
from rocketc.errors import AnswerError, StoreIOError
from rocketc.remoting.requests import CODES

_log = logging.getLogger("rocketc.client")

_TROUBLE = (*UNREACHABLE, AnswerError)
T = TypeVar("T")

Ask = Callable[[MessageQueue, str, dict[str, object]], Awaitable[int]]


class KeptOffsets(Protocol):
    """Where the offsets of a consumer are kept. `table` has those in memory."""

    @property
    def table(self) -> OffsetTable: ...

    async def open(self) -> None:
        """Begin. Raises an error if offsets cannot be kept."""
        ...

    async def stored(self, queue: MessageQueue) -> int:
        """Read the offset of a queue. Returns NOT_FOUND or FAILED instead of an offset."""
        ...

    async def begin(self, queue: MessageQueue) -> None:
        """Keep the offset of a queue that did not have one before."""
        ...

    async def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue. Trouble is logged."""
        ...

    async def persist_all(self, owned: Iterable[MessageQueue]) -> None:
        """Write the offsets of these queues. Trouble is logged."""
        ...

    async def close(self) -> None:
        """End; offsets that were not written are lost."""
        ...


class BrokerOffsets:
    """The offsets of a clustering consumer: each broker keeps those of its queues.

    master  returns the address of the master of a queue; raises AnswerError
    ask     asks the master of a queue for an offset: the queue, the name of the request, its fields
    first   of this consumer
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        master: Callable[[MessageQueue], str],
        ask: Ask,
        first: FirstCommits,
    ) -> None:
        self._instance, self._group, self._master, self._ask = instance, group, master, ask
        self.table = RemoteBrokerOffsetStore(group)
        self._first = first
        self._troubles = Troubles()

    async def open(self) -> None:
        """Nothing is needed."""

    async def stored(self, queue: MessageQueue) -> int:
        """Ask the broker for the offset of a queue: see KeptOffsets."""
        try:
            offset = await self._ask(queue, "QUERY_CONSUMER_OFFSET", self.table.query(queue))
        except _TROUBLE as error:
            return self.table.answered(queue, error)
        return self.table.answered(queue, offset)

    async def begin(self, queue: MessageQueue) -> None:
        """Write it: otherwise the next member would begin later, and leave out what comes meanwhile."""
        await self.persist(queue)

    async def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue, if it is known."""
        values = self.table.persist(queue)
        if values is not None:
            await self._send_offset(queue, values)

    async def persist_all(self, owned: Iterable[MessageQueue]) -> None:
        """Write the offsets of these queues, to all brokers at the same time. Others are forgotten."""
        by_broker: dict[str, list[tuple[MessageQueue, dict[str, Any]]]] = {}
        for queue, values in self.table.persist_all(owned).items():
            by_broker.setdefault(queue.broker_name, []).append((queue, values))
        await asyncio.gather(*[self._send_offsets(of_one) for of_one in by_broker.values()])

    async def close(self) -> None:
        """Nothing is needed."""

    async def _send_offsets(self, offsets: Sequence[tuple[MessageQueue, dict[str, Any]]]) -> None:
        """Write offsets to one broker. If it is not reached, the others are not tried: each would take as long."""
        for queue, values in offsets:
            if not await self._send_offset(queue, values):
                return

    async def _send_offset(self, queue: MessageQueue, values: dict[str, Any]) -> bool:
        """Write one offset; return whether the broker was reached."""
        connections, code = self._instance.connections, CODES["UPDATE_CONSUMER_OFFSET"]

        async def alone() -> None:
            await connections.call(self._master(queue), code, values)

        async def then() -> None:
            await connections.send(self._master(queue), code, values)

        what = f"{self._group}: the write of an offset to {queue.broker_name}"
        try:
            await self._first.write(queue, alone, then)
        except _TROUBLE as error:
            self._troubles.failed(what, error)
            return isinstance(error, AnswerError)
        self._troubles.works(what)
        return True


class FileOffsets:
    """The offsets of a broadcasting consumer: each member has a file of its own. Threads read and write it."""

    def __init__(self, group: str, store: LocalFileOffsetStore) -> None:
        self._group, self.table = group, store
        self._turn = asyncio.Lock()  # one thread at a time
        self._troubles = Troubles()

    async def open(self) -> None:
        """Read the file, and lock it. Raises StoreIOError, ConfigTableError, StoreLockedError: see the store."""
        await self._in_thread(self.table.open)

    async def stored(self, queue: MessageQueue) -> int:
        """Read the offset of a queue in the file: see KeptOffsets."""
        return await self._in_thread(self.table.read, queue)

    async def begin(self, queue: MessageQueue) -> None:
        """It is written with the others, a moment later."""

    async def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue, if it is known."""
        await self.persist_all([queue])

    async def persist_all(self, owned: Iterable[MessageQueue]) -> None:
        """Write the offsets of these queues."""
        what = f"{self._group}: the write of the file of offsets"
        try:
            await self._in_thread(self.table.persist_all, list(owned))
        except StoreIOError as error:
            self._troubles.failed(what, error)
        else:
            self._troubles.works(what)

    async def close(self) -> None:
        """Give the lock of the file back."""
        self.table.close()

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        async with self._turn:
            running = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await asyncio.wait([running])  # the next one must not write at the same time
                raise
