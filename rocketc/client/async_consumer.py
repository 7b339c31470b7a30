"""AsyncConsumer: the messages of topics as an asynchronous iterator, as a member of a consumer group.

Source: RocketMQ DefaultMQPushConsumerImpl, for the groups and queues; the iterator is this project's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rocketc._arguments import whole_number
from rocketc.client.access import access_to, check_consumer_group
from rocketc.client.concurrent_service import ServiceParts
from rocketc.client.contexts import AsyncContext, check_loop
from rocketc.client.counts import ConsumerCounts
from rocketc.client.hook_contexts import ConsumeContext
from rocketc.client.hooked_consumer import HookedConsumer
from rocketc.client.hooks import Hooks
from rocketc.client.owned_queue import Owned
from rocketc.client.push_core import PushCore
from rocketc.client.security import Credentials, Tls
from rocketc.client.settings import AsyncConsumerOptions, settings_without_listeners
from rocketc.client.subscriptions import subscribe_all
from rocketc.client.tracing import Tracer
from rocketc.config_fields import INT32_MOST
from rocketc.errors import ClosedError
from rocketc.read._message import Message

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class AsyncConsumer(HookedConsumer, AsyncContext):
    """A member of a consumer group, whose messages a coroutine reads one after the other.

        async with AsyncConsumer("billing", "127.0.0.1:9876", topics=["orders"]) as consumer:
            async for message in consumer:
                ...
                await consumer.commit()

    A message that was read and not committed comes again: to another member, or at the next start. Messages of one
    queue come in order; queues change their member at any time.

    group        name of the consumer group. All members must have the same topics and expressions
    topics       names, or a mapping from names to tags between `||`
    sql          an expression of SQL92 for all topics instead of tags, or a mapping from some of them to expressions;
                 the brokers must have enablePropertyFilter
    name_server, credentials, tls  see AsyncProducer
    options      fields of ConsumerSettings but those of listeners, with RocketMQ's names; times are in ms if it does
                 not say otherwise
    Raises TypeError, ValueError and IllegalMessageError for wrong arguments; start() raises AnswerError if a broker
    refuses an expression. Use it on one event loop.

    >>> import asyncio, rocketc
    >>> async def main(name_server):
    ...     async with AsyncConsumer("billing", name_server, topics=["orders"]) as consumer:
    ...         async for message in consumer:
    ...             await consumer.commit()
    ...             return message.body
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one")
    ...     asyncio.run(main(broker.name_server))
    b'one'
    """

    def __init__(
        self,
        group: str,
        name_server: str | None = None,
        *,
        topics: Iterable[str] | Mapping[str, str],
        sql: str | Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        **options: Unpack[AsyncConsumerOptions],
    ) -> None:
        self.group = check_consumer_group(group)
        self._subscriptions = subscribe_all(topics, sql)
        if not self._subscriptions:
            raise ValueError("topics: at least one topic is needed")
        self._access = access_to(name_server, credentials, tls)
        self._settings = settings_without_listeners(options)
        self._hooks = Hooks("consume")
        self._tracer: Tracer | None = None
        self._core: PushCore | None = None
        self._read: _Iterated | None = None

    @property
    def client_id(self) -> str:
        """The id of this client; brokers show it in their lists of connections."""
        return self._started()[0].client_id

    def counts(self) -> ConsumerCounts:
        """Return what this consumer has counted. Any thread may call it. See rocketc.metrics.client_measures()."""
        core = self._started()[0]
        core.check_open()
        return core.counts()

    async def start(self) -> None:
        """Join the group, and begin to receive. `async with` does it. After an error, it may be called again."""
        if self._core is not None:
            raise ClosedError("the consumer was started before; a consumer cannot be started twice")
        self._loop = asyncio.get_running_loop()
        core = self._core = PushCore(self._access, self.group, self._settings, _Iterated, self._hooks)
        self._tracer = core.tracer
        assert isinstance(core.service, _Iterated)
        self._read = core.service
        try:
            for subscription in self._subscriptions:
                await core.subscribe(subscription, _never)
            await core.start()
        except BaseException:
            try:
                await core.close()
            finally:
                self._core = self._read = None  # start() may be called again
            raise

    async def commit(self) -> None:
        """Note that all messages that were read so far are consumed, and write the offsets to the brokers."""
        core, read = self._opened()
        core.check_open()
        read.commit()
        await core.persist()

    async def getone(self) -> Message:
        """Return the next message; wait for it. Raises ClosedError after close()."""
        return await self._opened()[1].next()

    async def getmany(self, max_records: int = 500, timeout: int = 1_000) -> list[Message]:
        """Return the messages that are there, at least one if it comes in time.

        max_records  the most
        timeout      ms to wait for the first one; the list is empty if none comes
        """
        max_records = whole_number("max_records", max_records, 1, INT32_MOST)
        timeout = whole_number("timeout", timeout, 0, INT32_MOST)
        read = self._opened()[1]
        found: list[Message] = []
        message = await read.next_within(timeout / 1000)
        while message is not None:
            found.append(message)
            message = read.next_now() if len(found) < max_records else None
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        read = self._opened()[1]
        try:
            return await read.next()
        except ClosedError:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Leave the group: write the offsets that were committed, and give the queues to the other members."""
        if self._core is not None:
            await self._core.close()

    @property
    def _state(self) -> str:
        core = self._core
        return "not started" if core is None else "closed" if core.is_closed else "open"

    def _check_not_started(self) -> None:
        if self._core is not None:
            raise ClosedError("hooks are added before a client starts")

    def _opened(self) -> tuple[PushCore, _Iterated]:
        parts = self._started()
        check_loop(self._loop)
        return parts

    def _started(self) -> tuple[PushCore, _Iterated]:
        if self._core is None or self._read is None:
            raise ClosedError("the consumer is not started: use it as an async context manager, or await start()")
        return self._core, self._read


def _never(message: object) -> None:
    """The listener of a topic that is read by an iterator."""


class _Iterated:
    """The messages that were pulled and not read yet, and those that were read and not committed."""

    def __init__(self, parts: ServiceParts) -> None:
        self._member, self._group, self._hooks, self._wall = parts.member, parts.group, parts.hooks, parts.wall
        self._ready: deque[tuple[Owned, Message]] = deque()
        self._uncommitted: dict[Owned, list[Message]] = {}
        self._hooked: list[ConsumeContext] = []  # of the uncommitted messages; empty without hooks
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def submit(self, owned: Owned, messages: Sequence[Message], begins: bool) -> None:
        self._ready.extend((owned, message) for message in messages)
        self._wake(len(messages))

    def _wake(self, count: int) -> None:
        while self._waiting and count:
            one = self._waiting.popleft()
            if not one.done():
                one.set_result(None)
                count -= 1

    def next_now(self) -> Message | None:
        """The next message if there is one. Those of a queue that another member has now are left out."""
        while self._ready:
            owned, message = self._ready.popleft()
            if not owned.process_queue.is_dropped:
                self._uncommitted.setdefault(owned, []).append(message)
                if self._hooks.all:
                    context = ConsumeContext(self._group, [message], self._wall())
                    self._hooks.before(context)
                    self._hooked.append(context)
                return message
        return None

    async def next(self) -> Message:
        while (message := self.next_now()) is None:
            if self._is_closed:
                raise ClosedError("the consumer is closed")
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._wake(1)  # another one gets the message
                elif turn in self._waiting:
                    self._waiting.remove(turn)
                raise
        return message

    async def next_within(self, seconds: float) -> Message | None:
        """The next message; None if none comes in this time. Nothing is lost if this is canceled."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (message := self.next_now()) is None:
            if self._is_closed:
                raise ClosedError("the consumer is closed")
            turn = loop.create_future()
            self._waiting.append(turn)
            try:
                await asyncio.wait({turn}, timeout=max(0.0, end - loop.time()))
            except asyncio.CancelledError:
                if turn.done():
                    self._wake(1)  # another one gets the message
                raise
            finally:
                if not turn.done():
                    self._waiting.remove(turn)
            if not turn.done():
                return None
        return message

    def commit(self) -> None:
        taken, self._uncommitted = self._uncommitted, {}
        for owned, messages in taken.items():
            self._member.count_call(owned, len(messages), None, is_ok=True)
            self._member.finish(owned, messages)
        hooked, self._hooked = self._hooked, []
        for context in hooked:
            context.succeed(self._wall())
            self._hooks.after(context)

    async def wait_idle(self, seconds: float, but: int = 0) -> bool:
        return True

    def is_called_by_listener(self) -> bool:
        return False

    async def stop(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._wake(len(self._waiting))
