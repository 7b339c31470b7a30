"""Gives the messages of a consumer to listeners, those of one queue one after the other.

Source: RocketMQ ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import Any

from rocketc.client.concurrent_service import Listener, ServiceParts
from rocketc.client.consume_results import ConsumeOrderlyStatus, orderly_status
from rocketc.client.listener_pool import ListenerPool
from rocketc.client.orderly_context import AS_CONSUMER, OrderlyContext, bound
from rocketc.client.orderly_results import LOCK_REFUSED_MS, SOON_MS, OrderlyQueue, Turn, check_times, turn
from rocketc.client.owned_queue import Owned
from rocketc.client.send_backs import Failed, attempt_of, dead_letter_topic, most_times, retry_send
from rocketc.client.transaction_states import text_of
from rocketc.client.user_coroutines import result_of
from rocketc.errors import RocketcError
from rocketc.read._message import Message
from rocketc.remoting.subscribing import MessageModel

_log = logging.getLogger("rocketc.client")


class OrderlyService:
    """Runs the listeners of an orderly consumer. Use it on one event loop; plain functions run on threads of its own.

    A message that failed too many times goes to the retry topic: the broker makes it a dead letter.
    """

    def __init__(self, parts: ServiceParts) -> None:
        self._member, self._group, self._settings, self._listeners, self._retry, *_, self._manual = parts
        self._model = MessageModel[parts.settings.message_model]
        self._most = most_times(parts.settings.max_reconsume_times, is_orderly=True)
        self._pool: ListenerPool | None = None
        self._turns: set[asyncio.Task[None]] = set()
        self._calls = 0  # of listeners, that run now
        self._is_ending = False

    def submit(self, owned: Owned, messages: Sequence[Message], begins: bool) -> None:
        """Begin a turn of the queue, if there is none."""
        if begins:
            task = asyncio.ensure_future(self._turn(owned))
            self._turns.add(task)
            task.add_done_callback(self._turns.discard)

    async def _turn(self, owned: Owned) -> None:
        """Consume a queue until it is empty or dropped."""
        held, begun = owned.process_queue, None
        orderly = OrderlyQueue(
            owned.queue, held, self._member.offsets, self._settings.suspend_current_queue_time_millis
        )
        while not self._is_ending:
            now = self._member.now()
            what, delay = turn(held, now, begun, self._model)
            if what is Turn.END:
                return
            if what is not Turn.TAKE:
                await asyncio.sleep(delay / 1000)
                if what is Turn.LOCK:
                    has_lock = await self._lock(owned)
                    await asyncio.sleep((SOON_MS if has_lock else LOCK_REFUSED_MS) / 1000)
                begun = None
                continue
            begun = now if begun is None else begun
            async with owned.consuming:
                if held.is_dropped:
                    return
                messages = held.take(self._settings.consume_message_batch_max_size, now)
                if not messages:
                    return
                delay = await self._consume(owned, orderly, messages)
            self._member.consumed(owned)
            if delay:
                await asyncio.sleep(delay / 1000)
                begun = None

    async def _lock(self, owned: Owned) -> bool:
        locks = self._member.locks
        return locks is None or await locks.relock(owned)

    async def _consume(self, owned: Owned, orderly: OrderlyQueue[Message], messages: Sequence[Message]) -> int:
        """Give messages to the listener; return the ms until the next ones."""
        context = OrderlyContext(owned.queue) if messages[0].topic in self._manual else None
        status = await self._status(owned, messages, context)
        suspended: list[Failed] | None = None
        if status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            check = check_times(messages, orderly.retries, self._most)
            suspended = list(check.suspend)
            for message in check.dead:
                if not await self._bury(message, orderly.retries.times(message)):
                    suspended.append(message)
        later_ms = AS_CONSUMER if context is None else context.pause_ms
        step = orderly.apply(messages, status, auto_commit=context is None, later_ms=later_ms, suspended=suspended)
        if step.is_misuse:
            _log.warning("%s: a listener returned %s, but commits are automatic", self._group, status.name)
        return 0 if step.continues else step.delay

    async def _bury(self, message: Any, times: int) -> bool:
        """Send a message to the retry topic, where it becomes a dead letter; return whether that succeeded."""
        if self._model is MessageModel.BROADCASTING:
            _log.warning("%s: %s is dropped after %d attempts, because dead letters need the model CLUSTERING",
                         self._group, message.msg_id, times + 1)  # fmt: skip
            return True
        try:
            await self._retry(retry_send(self._group, message, times, self._most, is_orderly=True))
        except RocketcError as error:
            _log.warning("%s: %s does not become a dead letter yet: %s", self._group, message.msg_id, error)
            return False
        return True

    async def _status(
        self, owned: Owned, messages: Sequence[Message], context: OrderlyContext | None
    ) -> ConsumeOrderlyStatus:
        listener = self._listeners.get(messages[0].topic)
        argument: Any = messages[0] if self._settings.consume_message_batch_max_size == 1 else list(messages)
        self._calls += 1
        began, is_ok = self._member.now(), False
        self._member.count_wait(owned, messages, began)
        try:
            if listener is None:
                raise LookupError(f"there is no listener for the topic {messages[0].topic}")
            if context is not None:
                listener = bound(listener, context)
            if inspect.iscoroutinefunction(listener):
                returned = await result_of(listener(argument))
            else:
                returned = await self._on_a_thread(listener, argument)
            status = orderly_status(returned) if context is None else context.decided(returned)
            is_ok = status not in (ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, ConsumeOrderlyStatus.ROLLBACK)
            return status
        except GeneratorExit:
            raise
        except BaseException as error:  # SystemExit would end the loop of all clients
            if isinstance(error, asyncio.CancelledError) and self._is_ending:
                raise  # stop() has canceled the call
            if context is not None:
                context.pause_ms = AS_CONSUMER
            times = owned.retries.times(messages[0])
            follows = "the queue waits, and the message comes again"
            if times >= self._most:
                follows = f"the message goes to the topic {dead_letter_topic(self._group)}"
            _log.warning(
                "%s: the listener failed for %s: %s; %s",
                self._group, attempt_of(self._group, messages[0], times), text_of(error), follows, exc_info=error,
            )  # fmt: skip
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        finally:
            self._calls -= 1
            is_ok = is_ok and not owned.process_queue.is_dropped  # the offset is another member's matter now
            self._member.count_call(owned, len(messages), began, is_ok=is_ok)

    async def _on_a_thread(self, listener: Listener, argument: Any) -> object:
        if self._pool is None:
            self._pool = ListenerPool(self._settings.consume_thread_max)
        return await self._pool.call(listener, argument)

    async def wait_idle(self, seconds: float, but: int = 0) -> bool:
        """Begin no further call, and wait for those that run; return whether they ended in time.

        but  calls that may run: of the listener that waits for this itself
        """
        self._is_ending = True
        if self._turns:
            sleeping = list(self._turns)
            loop = asyncio.get_running_loop()
            end = loop.time() + seconds
            while self._calls > but and loop.time() < end:
                await asyncio.wait(sleeping, timeout=min(0.05, end - loop.time()), return_when=asyncio.FIRST_COMPLETED)
                sleeping = list(self._turns)
        return self._calls <= but

    def is_called_by_listener(self) -> bool:
        """Whether the calling thread is one of this service, in a listener."""
        return self._pool is not None and self._pool.is_here

    async def stop(self) -> None:
        """Call no listener any more. A coroutine that runs is canceled, and its messages are not consumed."""
        self._is_ending = True
        tasks = list(self._turns)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._pool is not None:
            self._pool.close()
