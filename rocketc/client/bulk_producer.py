"""BulkProducer: sends very many messages, some batches at a time, and says which of them a broker refuses.

It is not part of the public API: a message may have an id of the program here. Sinks of other systems use it.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rocketc._layout import RETRY_PREFIX
from rocketc.client.async_producer import AsyncProducer
from rocketc.client.batching import Batch, BulkMessage, NewMessage, batches, results_of
from rocketc.client.connections import UNREACHABLE
from rocketc.client.outgoing import Body, Outgoing
from rocketc.client.queue_choice import queue_of_shard
from rocketc.client.route_table import PublishInfo
from rocketc.client.routes import MessageQueue
from rocketc.client.send_frames import SEND, SEND_BATCH
from rocketc.client.send_results import SendStatus
from rocketc.errors import AnswerError, BackpressureError, IllegalMessageError, RocketcError, TopicNotFoundError
from rocketc.remoting.codes import Code

BATCH_BYTES = 31 << 10  # of a batch, at most; the compiled way takes it
AT_ONCE = 16  # batches without an answer
PATIENCE = 30.0  # seconds for which a send is tried again while brokers are busy, or are not reached

_PAUSE, _PAUSE_MOST = 0.1, 2.0  # seconds between two tries
_BUSY = (Code.SYSTEM_BUSY, Code.SERVICE_NOT_AVAILABLE, Code.FLOW_CONTROL, Code.SYSTEM_ERROR, Code.GO_AWAY)
_AWAY = frozenset(_BUSY) - {Code.SYSTEM_ERROR}  # no message is the reason
_ACL = "AclException"  # in the remark of a SYSTEM_ERROR of ACL 1.0
_NO_QUEUE = (1 << 31) - 1  # the number of a queue that no topic has


class BulkError(Exception):
    """Messages were not stored, or it is not known whether they are.

    rows   their numbers, in order
    error  why
    """

    def __init__(self, rows: Sequence[int], error: Exception) -> None:
        super().__init__(rows, error)
        self.rows, self.error = rows, error


class BulkCounts(NamedTuple):
    """What was stored.

    messages  all
    unsure    those with another status than SEND_OK, by the name of the status. They are stored, as in Java's client
    """

    messages: int
    unsure: dict[str, int]


class _Part(NamedTuple):
    """Messages of one topic that go into one request, or into several.

    rows  their numbers
    """

    topic: str
    messages: list[Body | NewMessage]
    rows: list[int]


_Send = Callable[[_Part, MessageQueue | None], Awaitable[None]]


class BulkProducer(AsyncProducer):
    """An AsyncProducer that sends messages by add(), and waits for all of them in finish().

    Messages without a queue or shard go into the next queue, in batches, several at a time. Those of one queue or shard
    are stored in their order. A batch that no broker takes now is sent again for PATIENCE seconds, with the same ids.

    >>> import asyncio, rocketc
    >>> async def main(name_server):
    ...     async with BulkProducer("shop", name_server) as producer:
    ...         await producer.add("orders", [b"one", b"two"], rows=[0, 1])
    ...         return await producer.finish()
    >>> with rocketc.Broker() as broker:
    ...     asyncio.run(main(broker.name_server))
    BulkCounts(messages=2, unsure={})
    """

    patience = PATIENCE
    batch_bytes = BATCH_BYTES

    async def start(self) -> None:
        """Begin; `async with` does it."""
        await super().start()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()
        self._last: dict[MessageQueue, asyncio.Task[None]] = {}  # of messages whose order matters
        self._fault: BulkError | None = None
        self._statuses: Counter[SendStatus] = Counter()
        self._turn = random.Random().randrange(1 << 16) if self._access.chance is None else 0

    async def close(self) -> None:
        """End what is under way, and close the connections. Call finish() before."""
        if self._instance is not None:
            await self._end_all()
        await super().close()

    async def add(self, topic: str, messages: Sequence[Body | NewMessage], rows: Sequence[int]) -> None:
        """Begin to send messages, and return as soon as no more than AT_ONCE batches of all of them wait.

        messages  bodies, or NewMessage, or BulkMessage; the caller does not change them
        rows      the number of each, for BulkError
        Raises BulkError for a message of this call or of an earlier one.
        """
        self._opened()
        parts: dict[MessageQueue | None, _Part] = {}
        for message, row in zip(messages, rows, strict=True):
            queue = None
            if type(message) is BulkMessage:
                try:
                    queue = await self._queue(topic, message)
                except Exception as error:
                    raise self._failed([row], error) from error
                if message.is_delayed:
                    await self._begin(self._send_alone, _Part(topic, [message], [row]), queue)
                    continue
            part = parts.get(queue)
            if part is None:
                part = parts[queue] = _Part(topic, [], [])
            part.messages.append(message)
            part.rows.append(row)
        for queue, part in parts.items():
            if topic.startswith(RETRY_PREFIX):  # brokers refuse batches for it
                await self._begin(self._send_alone, part, queue)
                continue
            for batch, its in self._divided(part):
                await self._begin(functools.partial(self._send_batch, batch), its, queue)

    async def finish(self) -> BulkCounts:
        """Wait until all messages are stored. Raises BulkError."""
        while self._under_way and self._fault is None:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        await self._end_all()
        if self._fault is not None:
            raise self._fault
        unsure = {status.name: n for status, n in self._statuses.items() if status is not SendStatus.SEND_OK}
        return BulkCounts(sum(self._statuses.values()), unsure)

    # from messages to requests

    def _divided(self, part: _Part) -> Iterator[tuple[Batch, _Part]]:
        """Yield the batches of a part, and what is in each. Raises BulkError for a message that is wrong."""
        read, at = 0, 0

        def counted() -> Iterator[Body | NewMessage]:
            nonlocal read
            for read, message in enumerate(part.messages, 1):  # noqa: B007
                yield message

        most = min(self.batch_bytes, self._settings.max_message_size)
        found = batches(self._packer, part.topic, counted(), most)
        while True:
            try:
                batch = next(found, None)
            except (TypeError, ValueError, RocketcError) as error:
                raise self._failed([part.rows[max(read, 1) - 1]], error) from error
            if batch is None:
                return
            end = at + len(batch.keys)
            yield batch, _Part(part.topic, part.messages[at:end], part.rows[at:end])
            at = end

    async def _queue(self, topic: str, message: BulkMessage) -> MessageQueue | None:
        """Return the queue of a message; None: any."""
        if message.queue_id is None and message.shard is None:
            return None
        info = await self._publish_info(topic)
        if message.queue_id is None:
            assert message.shard is not None
            return queue_of_shard(message.shard, info.queues)
        found = [queue for queue in info.queues if queue.queue_id == message.queue_id]
        if not found:
            most = max(queue.queue_id for queue in info.queues)
            raise IllegalMessageError(f"topic {topic!r} has the queues 0 to {most}, not {message.queue_id}")
        return found[(self._turn + message.queue_id) % len(found)]  # the same one for all messages

    async def _publish_info(self, topic: str) -> PublishInfo:
        assert self._instance is not None
        routes = self._instance.routes
        self._packer.check_topic(topic)
        return routes.publish_info(topic) or await routes.ask_publish_info(topic, self._sender.deadline())

    # sends

    async def _begin(self, send: _Send, part: _Part, queue: MessageQueue | None) -> None:
        """Begin a send as soon as fewer than AT_ONCE are under way. It waits for the earlier ones of its queue."""
        await self._slots.acquire()
        if self._fault is not None:
            self._slots.release()
            raise self._fault
        before = None if queue is None else self._last.get(queue)
        task = self._loop.create_task(self._after(before, send, part, queue))
        if queue is not None:
            self._last[queue] = task
        self._under_way.add(task)
        task.add_done_callback(self._ended_one)

    def _ended_one(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._slots.release()

    async def _after(
        self, before: asyncio.Task[None] | None, send: _Send, part: _Part, queue: MessageQueue | None
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        if self._fault is None:
            try:
                await send(part, queue)
            except Exception as error:
                self._failed(part.rows, error)

    async def _end_all(self) -> None:
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _send_batch(self, batch: Batch, part: _Part, queue: MessageQueue | None) -> None:
        """Send a batch. If a broker refuses it, send its messages one by one: one of them is wrong."""
        try:
            self._statuses.update(await self._send_surely(batch, queue))
        except AnswerError as error:
            if len(part.rows) > 1 and error.code not in _AWAY and not _is_refusal(error):
                await self._send_alone(part, queue, batch.keys)
            else:
                raise

    async def _send_alone(self, part: _Part, queue: MessageQueue | None, keys: Iterable[str] = ()) -> None:
        """Send messages one after the other. keys: their ids, if they have some already."""
        each = iter(keys)
        for message, row in zip(part.messages, part.rows, strict=True):
            try:
                packed = self._packed(part.topic, message, next(each, None))
                self._statuses.update(await self._send_surely(packed, queue))
            except Exception as error:
                self._failed([row], error)
                return

    def _packed(self, topic: str, message: Body | NewMessage, key: str | None) -> Outgoing:
        if not isinstance(message, NewMessage):
            return self._packer.pack(topic, message, key=key)
        how: dict[str, Any] = {}
        if isinstance(message, BulkMessage):
            how = {"delay_level": message.delay_level, "delay": message.delay, "deliver_at": message.deliver_at}
            key = key or message.checked_key()
            how["shard"] = message.shard
        return self._packer.pack(
            topic, message.body, tags=message.tags, keys=message.keys, properties=message.properties,
            flag=message.flag, key=key, **how,
        )  # fmt: skip

    async def _send_surely(self, sent: Batch | Outgoing, queue: MessageQueue | None) -> list[SendStatus]:
        """Send, and try it again while brokers are busy or not reached. Return the status of each message."""
        until, pause = self._loop.time() + self.patience, _PAUSE
        while True:
            try:
                return await self._send_once(sent, queue)
            except (*UNREACHABLE, AnswerError, BackpressureError) as error:
                if isinstance(error, AnswerError) and (error.code not in _BUSY or _is_refusal(error)):
                    raise
                if self._fault is not None or self._loop.time() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MOST)

    async def _send_once(self, sent: Batch | Outgoing, queue: MessageQueue | None) -> list[SendStatus]:
        instance = self._opened()
        if isinstance(sent, Outgoing):
            return [(await self._take_and_send(instance, sent, queue, None, self._sender.deadline(), SEND)).status]
        begun = self._begin_batch(sent.message.topic, sent, queue, None)
        if begun is not None:
            found = await self._first_answer(begun)
            results = found if type(found) is list else await self._rest_of_batch(begun)
        else:
            deadline = self._sender.deadline()
            result = await self._take_and_send(instance, sent.message, queue, None, deadline, SEND_BATCH)
            results = results_of(sent, result)
        return [one.status for one in results]

    def _failed(self, rows: Sequence[int], error: Exception) -> BulkError:
        """Note an error, which ends all: the first one is raised."""
        if self._fault is None:
            self._fault = error if isinstance(error, BulkError) else BulkError(rows, error)
        return self._fault

    # before the first message

    async def check(self, topic: str | None) -> None:
        """Find out at once what all sends would raise: no broker takes requests of this account, or of this topic.

        topic  None: only the brokers are asked
        Nothing is stored: the queue of the request does not exist, and its body is empty.
        Raises TopicNotFoundError, AnswerError of a broker that refuses the account; NotSentError, ConnectionLostError
        or NoAnswerError if no broker is reached.
        """
        instance, masters = self._opened(), dict[str, str]()
        if topic is None:
            masters = (await instance.name_servers.cluster()).masters()
            if not masters:
                raise TopicNotFoundError(f"{instance.name_servers.address}: no broker is registered there")
        else:
            masters = (await self._publish_info(topic)).masters
        exists = topic is not None and instance.routes.route(topic) is not None
        asked = [self._check_at(address, topic if exists else None) for address in masters.values()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for one in answers:
            if isinstance(one, BaseException) and not isinstance(one, UNREACHABLE):
                raise one
        if masters and all(isinstance(one, BaseException) for one in answers):
            raise next(one for one in answers if isinstance(one, BaseException))

    async def _check_at(self, address: str, topic: str | None) -> None:
        instance = self._opened()
        await instance.heartbeats.heartbeat_and_wait(address)
        if topic is None:
            return
        message = Outgoing(topic, b"", "", "")
        values = self._sender.fields_of(message, MessageQueue(topic, "", _NO_QUEUE))
        try:
            await instance.connections.call(address, SEND, values)
        except AnswerError as error:
            if _is_refusal(error):
                raise


def _is_refusal(error: AnswerError) -> bool:
    """Whether a broker refuses an account, or every message of a topic."""
    return error.code in (Code.NO_PERMISSION, Code.TOPIC_NOT_EXIST) or _ACL in str(error)
