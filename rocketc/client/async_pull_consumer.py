"""AsyncPullConsumer: messages that a coroutine polls, from topics of a group or from chosen queues.

Source: RocketMQ DefaultLitePullConsumer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from rocketc.client.access import access_to, check_consumer_group
from rocketc.client.contexts import AsyncContext, check_loop
from rocketc.client.counts import ConsumerCounts
from rocketc.client.group_subscriptions import note_change
from rocketc.client.hooked_consumer import HookedConsumer
from rocketc.client.hooks import Hooks
from rocketc.client.pull_core import Poll, PullCore
from rocketc.client.routes import MessageQueue
from rocketc.client.security import Credentials, Tls
from rocketc.client.settings import PullOptions, PullSettings, settings_of
from rocketc.client.subscriptions import SubscriptionData, subscribe_all, subscription_of
from rocketc.client.timed import milliseconds
from rocketc.client.tracing import Tracer
from rocketc.errors import AssignmentError, ClosedError
from rocketc.read._message import Message

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class AsyncPullConsumer(HookedConsumer, AsyncContext):
    """Returns messages when a coroutine asks for them, and pulls some ahead.

        async with AsyncPullConsumer("billing", "127.0.0.1:9876", topics=["orders"]) as consumer:
            while True:
                for message in await consumer.poll(): ...

    With topics, it is a member of its group: the members share the queues, and queues change their member at any time.
    With assign(), it reads the queues that you choose, and is not a member. In both cases the group has the offsets.

    With auto_commit, a poll() commits, each auto_commit_interval_millis, what earlier ones returned; close() commits
    the rest. If an exception ends the `async with` block, the messages of the last poll() are not committed: they come
    again. A message may come twice after a crash, or when queues change their member.

    group        name of the consumer group
    topics       names, or a mapping from names to tags between `||`; None: call subscribe() or assign()
    sql          an expression of SQL92 for all topics instead of tags, or a mapping from some of them to expressions;
                 the brokers must have enablePropertyFilter
    name_server, credentials, tls  see AsyncProducer
    options      fields of PullSettings, with RocketMQ's names; times are in ms
    Raises TypeError, ValueError and IllegalMessageError for wrong arguments; start() raises AnswerError if a broker
    refuses an expression. Methods raise ClosedError before start()
    and after close(). Use it on one event loop; it is also an asynchronous iterator of single messages.

    >>> import asyncio, rocketc
    >>> async def main(name_server):
    ...     async with AsyncPullConsumer("billing", name_server, topics=["orders"]) as consumer:
    ...         return [message.body for message in await consumer.poll()]
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one")
    ...     asyncio.run(main(broker.name_server))
    [b'one']
    """

    def __init__(
        self,
        group: str,
        name_server: str | None = None,
        *,
        topics: Iterable[str] | Mapping[str, str] | None = None,
        sql: str | Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        **options: Unpack[PullOptions],
    ) -> None:
        self.group = check_consumer_group(group)
        self._access = access_to(name_server, credentials, tls)
        self._settings = settings_of(PullSettings, options)
        self._hooks = Hooks("consume")
        self._tracer: Tracer | None = None
        if topics is None and sql is not None:
            raise ValueError("sql needs topics; subscribe() and assign() have an argument sql, too")
        found = [] if topics is None else subscribe_all(topics, sql)
        self._topics = {one.topic: one for one in found}  # until start()
        self._assigned: tuple[list[MessageQueue], dict[str, SubscriptionData]] | None = None  # until start()
        self._core: PullCore | None = None

    @property
    def client_id(self) -> str:
        """The id of this client; brokers show it in their lists of connections."""
        return self._open().client_id

    def counts(self) -> ConsumerCounts:
        """Return what this consumer has counted. Any thread may call it. See rocketc.metrics.client_measures()."""
        return self._open().counts()

    async def start(self) -> None:
        """Join the group, and begin to pull. `async with` does it. After an error, it may be called again."""
        if self._core is not None:
            raise ClosedError("the consumer was started before; a consumer cannot be started twice")
        self._loop = asyncio.get_running_loop()
        core = self._core = PullCore(self._access, self.group, self._settings, self._hooks)
        self._tracer = core.tracer
        try:
            for subscription in self._topics.values():
                await core.subscribe(subscription)
            await core.start()
            if self._assigned is not None:
                await core.assign(*self._assigned)
        except BaseException:
            try:
                await core.close(is_failed=True)
            finally:
                self._core = None  # start() may be called again
            raise

    # topics or queues

    async def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Receive the messages of a topic, as a member of the group; or change the expression of one: that is logged.

        tags  between `||`; "*": all messages. Messages that were pulled before a change are still returned
        sql   an expression of SQL92 instead of tags; the broker must have enablePropertyFilter
        Raises AssignmentError after assign(), IllegalMessageError for the name of the topic, SubscriptionError or
        SqlError for the expression, AnswerError if a broker refuses it, and the error of the name servers. The topic
        does not need to exist yet. Raises SubscriptionError also if another consumer of the group in this process has
        other subscriptions; start() does so, too.
        """
        subscription = subscription_of(topic, tags, sql)
        self._note_topic(subscription)
        if self._core is not None:
            await self._opened().subscribe(subscription)

    def _note_topic(self, subscription: SubscriptionData) -> None:
        """Keep a subscription for start()."""
        if self._core is None:
            if self._assigned is not None:
                raise AssignmentError("this consumer has assigned queues: use another one to subscribe to topics")
            note_change(self.group, self._topics.get(subscription.topic), subscription)
            self._topics[subscription.topic] = subscription

    async def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic: other members get its queues."""
        self._topics.pop(topic, None)
        if self._core is not None:
            await self._opened().unsubscribe(topic)

    async def assign(self, queues: Collection[MessageQueue], tags: str = "*", *, sql: str | None = None) -> None:
        """Read these queues and no others; this consumer is not a member of its group.

        A queue that it has already continues where it is. Others begin at the offset of the group, or where
        consume_from_where says.
        queues  for example of fetch_message_queues()
        tags    between `||`; "*": all messages
        sql     an expression of SQL92 instead of tags; the brokers must have enablePropertyFilter
        Raises AssignmentError after subscribe(), and for a queue that does not exist. Raises TopicNotFoundError for the
        topic, ValueError for an empty list, SubscriptionError or SqlError for the expression, AnswerError if a broker
        refuses it, and the error of the name servers.
        """
        chosen = self._chosen(queues, tags, sql)
        self._note_queues(*chosen)
        if self._core is not None:
            await self._opened().assign(*chosen)

    @staticmethod
    def _chosen(
        queues: Collection[MessageQueue], tags: str, sql: str | None
    ) -> tuple[list[MessageQueue], dict[str, SubscriptionData]]:
        wanted = _queues(queues)
        if not wanted:
            raise ValueError("queues: at least one queue is needed")
        return wanted, {queue.topic: subscription_of(queue.topic, tags, sql) for queue in wanted}

    def _note_queues(self, queues: list[MessageQueue], subscriptions: dict[str, SubscriptionData]) -> None:
        """Keep the queues for start()."""
        if self._core is None:
            if self._topics:
                raise AssignmentError("this consumer has subscribed to topics: use another one to assign queues")
            self._assigned = queues, subscriptions

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer has now, sorted."""
        return self._open().member.assignment()

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Ask for all queues of a topic that can be read. Raises TopicNotFoundError, an error of the name servers."""
        return await self._opened().member.read_queues(subscription_of(topic, "*").topic)

    # messages

    async def poll(self, timeout: int | None = None, max_records: int | None = None) -> list[Message]:
        """Return the next messages: at least one if it comes in time. Those of a queue come in order.

        timeout      ms to wait for the first one; None: poll_timeout_millis
        max_records  the most; None: pull_batch_size
        A poll() that is canceled loses nothing. Raises AssignmentError without topics and queues.
        """
        return await self._poll(timeout, max_records)

    async def _poll(self, timeout: int | None, max_records: int | None, poll: Poll | None = None) -> list[Message]:
        wait = _number("timeout", self._settings.poll_timeout_millis if timeout is None else timeout, 0)
        most = _number("max_records", self._settings.pull_batch_size if max_records is None else max_records, 1)
        return await self._opened().poll(wait / 1000, most, poll)

    def _give_back(self, poll: Poll) -> None:
        if self._core is not None:
            self._core.give_back(poll)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._core is not None:
            check_loop(self._loop)
        try:
            return (await self._next())[0]
        except ClosedError:
            if self._core is None:
                raise
            raise StopAsyncIteration from None

    async def _next(self, poll: Poll | None = None) -> list[Message]:
        core = self._started()
        check_loop(self._loop)
        return await core.poll(None, 1, poll)

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Return no messages of these queues until resume(). Those that were pulled wait, too: RocketMQ returns them.

        Raises AssignmentError for a queue that this consumer does not have.
        """
        self._opened().pause(_queues(queues), True)

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """End pause(). Raises AssignmentError for a queue that this consumer does not have."""
        self._opened().pause(_queues(queues), False)

    # offsets

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset. Messages that were pulled before are not returned any more.

        Raises AssignmentError for a queue that this consumer does not have, QueueOffsetError for an offset outside of
        the queue, and the error of the broker.
        """
        await self._opened().member.seek(_queue(queue), _number("offset", offset))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message of a queue. Raises as seek()."""
        member = self._opened().member
        member.check([_queue(queue)])
        member.begin_at(queue, await member.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the last message of a queue. Raises as seek()."""
        member = self._opened().member
        member.check([_queue(queue)])
        member.begin_at(queue, await member.max_offset(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what poll() returned so far, and wait until the brokers have it.

        offsets  None: of all queues of this consumer; otherwise the offset of the next message for some of its queues
        Raises AssignmentError for a queue that this consumer does not have, QueueOffsetError for an offset after what
        poll() returned, and the error of the first broker that fails.
        """
        core = self._opened()
        if offsets is not None:
            if not isinstance(offsets, Mapping):
                raise TypeError(f"offsets: expected a mapping, got {type(offsets).__name__}")
            offsets = {_queue(queue): _number("offset", offset) for queue, offset in offsets.items()}
        await core.member.commit(offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask for the offset that the group has in any queue. None: there is none."""
        return await (await self._asking(queue)).member.committed(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset of the first message of any queue."""
        return await (await self._asking(queue)).member.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset after the last message of any queue."""
        return await (await self._asking(queue)).member.max_offset(queue)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp: int | datetime) -> int:
        """Ask for the offset of the first message of any queue that was stored at or after a time.

        timestamp  ms since 1970, or a datetime; without a time zone, it is local time
        Without such a message, it is the offset after the last one. A broker of 4.x may return the message before.
        """
        at = milliseconds("timestamp", timestamp)
        return await (await self._asking(queue)).member.search_offset(queue, at)

    async def _asking(self, queue: MessageQueue) -> PullCore:
        core = self._opened()
        await core.member.know(_queue(queue))
        return core

    # the end

    async def close(self) -> None:
        """Commit what poll() returned, if commits are automatic, and leave the group."""
        await self._close(is_failed=False)

    async def _close(self, is_failed: bool) -> None:
        if self._core is not None:
            await self._core.close(is_failed)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._close(is_failed=kind is not None)

    @property
    def _state(self) -> str:
        core = self._core
        return "not started" if core is None else "closed" if core.is_closed else "open"

    def _check_not_started(self) -> None:
        if self._core is not None:
            raise ClosedError("hooks are added before a client starts")

    def _opened(self) -> PullCore:
        core = self._open()
        check_loop(self._loop)
        return core

    def _open(self) -> PullCore:
        core = self._started()
        core.check_open()
        return core

    def _started(self) -> PullCore:
        if self._core is None:
            raise ClosedError("the consumer is not started: use it as an async context manager, or await start()")
        return self._core


def _queue(queue: MessageQueue) -> MessageQueue:
    if not isinstance(queue, MessageQueue):
        raise TypeError(f"queue: expected MessageQueue, got {type(queue).__name__}")
    return queue


def _queues(queues: Collection[MessageQueue]) -> list[MessageQueue]:
    if isinstance(queues, MessageQueue) or not isinstance(queues, Collection):
        raise TypeError(f"queues: expected a list of MessageQueue, got {type(queues).__name__}")
    return [_queue(queue) for queue in queues]


def _number(name: str, value: int, least: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected int, got {type(value).__name__}")
    if least is not None and value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")
    return value
