"""Gives the messages of a consumer to listeners, many at a time, and does what follows from their results.

Source: RocketMQ ConsumeMessageConcurrentlyService.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import types
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, cast

from rocketc.client.connections import UNREACHABLE
from rocketc.client.consume_results import (
    RETRY_LOCALLY_MS,
    ConsumeConcurrentlyStatus,
    batches,
    concurrent_result,
    concurrently_status,
)
from rocketc.client.coroutine_workers import CoroutineWorkers
from rocketc.client.group_member import GroupMember
from rocketc.client.hooks import Hooks
from rocketc.client.listener_threads import ListenerThreads
from rocketc.client.owned_queue import Owned
from rocketc.client.ready_items import Part
from rocketc.client.retry_later import RetryLater
from rocketc.client.send_backs import (
    BROKER_DECIDES,
    EXPIRED_LEVEL,
    SEND_BACK_TIMEOUT_MS,
    RetrySend,
    attempt_of,
    dead_letter_topic,
    most_times,
    retry_send,
    retry_topic,
    send_back_fields,
)
from rocketc.client.settings import ConsumerSettings
from rocketc.client.transaction_states import text_of
from rocketc.errors import AnswerError, RocketcError
from rocketc.read._message import Message
from rocketc.remoting.requests import CODES
from rocketc.remoting.subscribing import MessageModel

_log = logging.getLogger("rocketc.client")

Listener = Callable[[Any], object]  # gets a message, or a list of them if there are batches
Outcome = object | BaseException  # what a listener returned or raised

_EXPIRED_MOST = 16  # messages of a queue that one look sends back


Item = Message | Sequence[Message]  # of one call: a message; or several ones, if the listener gets lists


class _Called(NamedTuple):
    """Whose listener is called."""

    owned: Owned
    topic: str


class ServiceParts(NamedTuple):
    """What a service of a consumer works with.

    listeners  by topic
    retry      sends a message to the retry topic: if a send-back fails, or for a dead letter of an orderly consumer
    hooks      of consumption, for a service that does not call listeners
    wall       ms since 1970
    manual     topics whose listeners commit manually: they get an OrderlyContext, too
    """

    member: GroupMember
    group: str
    settings: ConsumerSettings
    listeners: Mapping[str, Listener]
    retry: Callable[[RetrySend], Awaitable[None]]
    hooks: Hooks
    wall: Callable[[], int]
    manual: Collection[str] = ()


class ConcurrentService:
    """Runs the listeners of a consumer. Use it on one event loop; plain functions run on threads of its own."""

    def __init__(self, parts: ServiceParts) -> None:
        self._member, self._group, self._settings, self._listeners, self._retry, *_ = parts
        self._model = MessageModel[parts.settings.message_model]
        self._size = parts.settings.consume_message_batch_max_size
        self._retry_topic = retry_topic(parts.group)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        good = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        most = parts.settings.consume_thread_max
        self._workers = CoroutineWorkers[_Called, Item](self, most, self._begin, good)
        self._threads = ListenerThreads[_Called, Item](_OnThreads(self), most, parts.member.now, good)
        self._is_stopped = False
        self._unfinished = 0
        self._idle: asyncio.Future[None] | None = None
        self._idle_but = 0
        if self._model is MessageModel.CLUSTERING:
            self._begin(self._clean_expired())

    def submit(self, owned: Owned, messages: Sequence[Message], begins: bool) -> None:
        """Give the messages of a pull to the listeners, in batches."""
        if not messages:
            return
        if owned.queue.topic != self._retry_topic:
            self._give(_Called(owned, messages[0].topic), messages)
            return
        for topic, of_topic in itertools.groupby(messages, lambda message: message.topic):
            self._give(_Called(owned, topic), list(of_topic))

    def _give(self, called: _Called, messages: Sequence[Message]) -> None:
        """Call a listener for some messages of one queue."""
        items: Sequence[Item] = messages if self._size == 1 else list(batches(messages, self._size))
        self._unfinished += len(items)
        pool = self._workers if inspect.iscoroutinefunction(self._listeners.get(called.topic)) else self._threads
        pool.give(Part(called, items))

    def _messages(self, item: Item) -> Sequence[Message]:
        return (item,) if isinstance(item, Message) else item

    # coroutines

    def function(self, called: _Called) -> Callable[[Item], Coroutine[Any, Any, object]] | None:
        """Return what starts the listener of a queue as a coroutine; None: the messages are of another consumer now."""
        if called.owned.process_queue.is_dropped:
            return None
        listener = self._listeners.get(called.topic)
        if listener is None:
            return _missing(called.topic)
        if self._size == 1 and _is_async_def(listener):
            return cast(Callable[[Item], Coroutine[Any, Any, object]], listener)
        return lambda item: _awaited(listener(item if isinstance(item, Message) else list(item)))

    def waits(self, called: _Called, item: Item, began: float) -> None:
        called.owned.process_queue.start(self._messages(item), int(began * 1000))

    def finished_run(self, called: _Called, items: list[Item], seconds: float) -> None:
        """The listener returned without a wait for these items of one queue: they are consumed."""
        began = self._member.now() - int(1000 * seconds)
        self._consumed(called.owned, items, began, 1000 * seconds / len(items))

    def _consumed(self, owned: Owned, items: list[Item], began: int, ms: float) -> None:
        """Each of these calls began about then, and succeeded in this time. All items are of one queue."""
        self._unfinished -= len(items)
        if not owned.process_queue.is_dropped:
            messages = list(itertools.chain.from_iterable(map(self._messages, items)))
            self._member.count_run(owned, len(messages), ms)
            self._member.count_wait(owned, messages, began)
            self._member.finish(owned, messages)
        self._look_idle()

    # threads

    def call_on_thread(self, called: _Called, item: Item, now: int) -> Outcome:
        """Call a listener, on a thread of its own. now: the time of the member"""
        owned = called.owned
        if owned.process_queue.is_dropped:
            return None
        listener = self._listeners.get(called.topic)
        if listener is None:
            return _no_listener(called.topic)
        owned.process_queue.start(self._messages(item), now)
        return listener(item if isinstance(item, Message) else list(item))

    def finished_on_threads(self, called: _Called, items: list[Item], began: int) -> None:
        """Calls of listeners have succeeded that began at this time, for items of one queue."""
        self._consumed(called.owned, items, began, self._member.now() - began)

    # results

    async def _await(self, called: _Called, item: Item, returned: Awaitable[object]) -> None:
        """A plain function returned a coroutine: a lambda around one, for example."""
        try:
            outcome: Outcome = await returned
        except Exception as error:
            outcome = error
        self.finished(called, item, outcome)

    def finished(self, called: _Called, item: Item, outcome: Outcome) -> None:
        """A call of a listener has ended."""
        if inspect.isawaitable(outcome):
            self._begin(self._await(called, item, outcome))
            return
        self._unfinished -= 1
        owned, messages = called.owned, self._messages(item)
        level, failed = BROKER_DECIDES, messages
        if not isinstance(outcome, BaseException):
            try:
                status = concurrently_status(outcome)
            except TypeError as error:
                outcome = error
        if isinstance(outcome, BaseException):
            status = ConsumeConcurrentlyStatus.RECONSUME_LATER
            if isinstance(outcome, RetryLater):
                level = outcome.level
                failed = outcome.failed_of(messages)
            else:
                times = owned.retries.times(messages[0])
                _log.warning(
                    "%s: the listener failed for %s: %s; %s",
                    self._group, attempt_of(self._group, messages[0], times), text_of(outcome), self._follows(times),
                    exc_info=outcome,
                )  # fmt: skip
        if not owned.process_queue.is_dropped:
            bad = 0 if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS else len(failed)
            good = len(messages) - bad
            began = owned.process_queue.started(messages[0].queue_offset)
            if began is not None:
                self._member.count_wait(owned, messages, began)
            if good:
                self._member.count_call(owned, good, began, is_ok=True)
            if bad:
                self._member.count_call(owned, bad, began, is_ok=False)
        result = concurrent_result(failed, status, owned.process_queue, self._model)
        if result is not None:
            for message in result.ignored:
                _log.warning("%s: %s of %s is dropped, because broadcasting consumers get each message only once",
                             self._group, message.msg_id, owned.queue)  # fmt: skip
            if result.failed:
                self._unfinished += 1
                self._begin(self._send_back_and_finish(called, messages, result.failed, level))
            else:
                self._member.finish(owned, messages)
        self._look_idle()

    def _follows(self, times: int) -> str:
        """What happens to a message that was delivered again some times, and has failed again."""
        if self._model is MessageModel.BROADCASTING:
            return "the message does not come again"
        if times < most_times(self._settings.max_reconsume_times, is_orderly=False):
            return "the message comes again later"
        return f"the message goes to the topic {dead_letter_topic(self._group)}"

    async def _send_back_and_finish(
        self, called: _Called, messages: Sequence[Message], failed: Sequence[Message], level: int
    ) -> None:
        owned = called.owned
        unsent = [one for one in failed if not await self._send_back(owned, one, level)]
        self._member.counts.returned += len(failed) - len(unsent)
        again = self._member.finish(owned, messages, unsent)
        self._unfinished -= 1
        if again:
            owned.retries.add(again)
            self._begin(self._again(called, again))
        self._look_idle()

    async def _again(self, called: _Called, messages: Sequence[Message]) -> None:
        await asyncio.sleep(RETRY_LOCALLY_MS / 1000)
        if not called.owned.process_queue.is_dropped:
            self._give(called, messages)

    async def _send_back(self, owned: Owned, message: Message, level: int) -> bool:
        """Return a message to its broker; return whether that succeeded."""
        most = self._settings.max_reconsume_times
        fields = send_back_fields(self._group, message, level, most)
        try:
            await self._member.call_master(
                owned.queue, CODES["CONSUMER_SEND_MSG_BACK"], fields, SEND_BACK_TIMEOUT_MS / 1000
            )
            return True
        except (*UNREACHABLE, AnswerError) as error:
            _log.warning(
                "%s: %s is not sent back; it is sent to the retry topic: %s", self._group, message.msg_id, error
            )
        times = owned.retries.times(message)
        try:
            await self._retry(
                retry_send(self._group, message, times, most_times(most, is_orderly=False), is_orderly=False)
            )
        except Exception as error:
            _log.warning("%s: %s is not sent to the retry topic; the listener gets it again in 5 s: %s",
                         self._group, message.msg_id, error,
                         exc_info=not isinstance(error, RocketcError))  # fmt: skip
            return False
        return True

    async def _clean_expired(self) -> None:
        """Messages whose listener takes too long come again. Their first result counts no more."""
        minutes = self._settings.consume_timeout
        while True:
            await asyncio.sleep(minutes * 60)
            for one in list(self._member.owned.values()):
                for _ in range(_EXPIRED_MOST):
                    message = one.process_queue.expired(self._member.now(), minutes * 60_000)
                    if message is None or not await self._send_back(one, message, EXPIRED_LEVEL):
                        break
                    one.process_queue.remove_first(message)

    # the end

    def _begin(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait_idle(self, seconds: float, but: int = 0) -> bool:
        """Wait until no listener runs and no message waits for one; return whether that came in time.

        but  calls that may run: of the listener that waits for this itself
        """
        if self._unfinished > but:
            self._idle, self._idle_but = self._loop.create_future(), but
            await asyncio.wait({self._idle}, timeout=seconds)
        return self._unfinished <= but

    def _look_idle(self) -> None:
        if self._idle is not None and self._unfinished <= self._idle_but and not self._idle.done():
            self._idle.set_result(None)

    def is_called_by_listener(self) -> bool:
        """Whether the calling thread is one of this service, in a listener."""
        return self._threads.is_here

    async def stop(self) -> None:
        """Call no listener any more. Those that run on threads end by themselves, and their results count no more."""
        self._is_stopped = True
        self._workers.stop()
        self._threads.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class _OnThreads:
    """What the threads of a service do with an item."""

    def __init__(self, service: ConcurrentService) -> None:
        self.call, self.finished = service.call_on_thread, service.finished
        self.finished_run = service.finished_on_threads


def _no_listener(topic: str) -> LookupError:
    return LookupError(f"there is no listener for the topic {topic}")


def _missing(topic: str) -> Callable[[Item], Coroutine[Any, Any, object]]:
    def raises(item: Item) -> Coroutine[Any, Any, object]:
        raise _no_listener(topic)

    return raises


def _is_async_def(listener: Listener) -> bool:
    """Whether each call returns a coroutine; other functions may only be marked as coroutine functions."""
    code = getattr(listener, "__code__", None)  # also of a bound method
    return isinstance(code, types.CodeType) and bool(code.co_flags & inspect.CO_COROUTINE)


def _awaited(returned: Any) -> Coroutine[Any, Any, object]:
    """A function that counts as a coroutine function may return something else that can be awaited."""
    return returned if inspect.iscoroutine(returned) else _await(returned)


async def _await(returned: Any) -> object:
    return await returned
