"""Sends one message: chooses a queue, sends the request, and tries other brokers if that fails.

Source: RocketMQ DefaultMQProducerImpl.sendDefaultImpl, sendKernelImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import cast

from rocketc._arguments import whole_number
from rocketc.client._send_path import QueueWay, SendPath, SentMessage, TopicWay
from rocketc.client.connections import UNREACHABLE
from rocketc.client.counts import TimesByTopic
from rocketc.client.hook_contexts import SendContext
from rocketc.client.hooks import Hooks
from rocketc.client.in_flight import InFlight
from rocketc.client.instance import ClientInstance
from rocketc.client.outgoing import Outgoing, added_properties
from rocketc.client.queue_choice import LatencyFaults, RoundRobin, queue_of_shard
from rocketc.client.route_table import PublishInfo
from rocketc.client.routes import MessageQueue
from rocketc.client.send_frames import END, SEND, SEND_BATCH, SendFrames
from rocketc.client.send_results import RETRY, STORED, SendResult, SendStatus, result_of
from rocketc.client.settings import ProducerSettings
from rocketc.client.timed import check_timers
from rocketc.client.unique_ids import Clock
from rocketc.config_fields import INT32_MOST
from rocketc.errors import (
    AnswerError,
    ConnectionLostError,
    IllegalMessageError,
    NoAnswerError,
    NotSentError,
    RocketcError,
    UnsupportedError,
)

_log = logging.getLogger("rocketc.client")

_DOUBTFUL = (ConnectionLostError, NoAnswerError)  # the broker may have stored the message

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]


class Sender:
    """Sends the messages of one producer group. Use it on one event loop.

    clock  the Unix time in seconds
    hooks  called before and after each attempt; None: no hooks
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: ProducerSettings,
        clock: Clock,
        hooks: Hooks | None = None,
    ) -> None:
        self._group = group
        self._hooks = hooks if hooks is not None and hooks.all else None
        self._instance, self._settings, self._clock = instance, settings, clock
        self._loop = asyncio.get_running_loop()
        self._frames = SendFrames(group, settings.create_topic_key, settings.default_topic_queue_nums)
        self.retries = 0  # attempts after the first one
        self._turns = RoundRobin(instance.chance)
        self._faults = LatencyFaults() if settings.send_latency_fault_enable else None

    def deadline(self, timeout: int | None = None) -> float:
        """Return loop.time() at the end of a send. timeout: ms; None: send_msg_timeout. Raises ValueError."""
        if timeout is None:
            timeout = self._settings.send_msg_timeout
        elif type(timeout) is not int or timeout < 1:
            timeout = whole_number("timeout", timeout, 1, INT32_MOST)
        return self._loop.time() + timeout / 1000

    def path(self, in_flight: InFlight, sends: TimesByTopic, most: int) -> SendPath | None:
        """Return the compiled way of plain sends; None if hooks or settings want to see each of them.

        in_flight, sends  where it counts messages
        most              bytes of a body that is not compressed
        """
        if self._hooks is not None or self._faults is not None:
            return None
        instance, timeout = self._instance, self._settings.send_msg_timeout
        return SendPath(
            instance, in_flight, sends, self._clock, self._way, instance.connections.plain_channel, END.encode(), most,
            timeout,
        )  # fmt: skip

    def _way(self, topic: str, known: TopicWay | None) -> TopicWay | None:
        """What the compiled way needs to know about a topic; None if its route is not known now."""
        info = self._instance.routes.publish_info(topic)
        if info is None or (known is not None and known.info is info):
            return known if info is not None else None
        ways = [
            QueueWay(
                queue,
                info.masters[queue.broker_name],
                self._frames.ends(SEND, queue),
                self._frames.ends(SEND_BATCH, queue),
            )
            if queue.broker_name in info.masters
            else None
            for queue in info.queues
        ]
        return TopicWay(topic, info, ways, self._turns.turn(topic))

    async def send(
        self,
        message: Outgoing,
        deadline: float,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        code: int = SEND,
        begun: SentMessage | None = None,
        note: Callable[[Outgoing], object] | None = None,
    ) -> SendResult:
        """Send a message. The arguments and errors are those of AsyncProducer.send().

        code   SEND or SEND_BATCH
        begun  the compiled way made the first attempt, and this continues with the answer that it has not taken
        note   called with the message of each attempt: hooks may add properties
        """
        topic = message.topic
        info = await self._info(topic, deadline) if begun is None else cast(PublishInfo, begun.topic_way.info)
        is_fixed = queue is not None or selector is not None or message.shard is not None
        attempts = 1 if is_fixed else 1 + self._settings.retry_times_when_send_failed
        tried: list[str] = []
        stored: SendResult | None = None  # with another status than SEND_OK
        doubt: RocketcError | None = None  # of an attempt that a broker may have carried out
        while True:
            chosen = self._choose(info, message, queue, selector, tried) if begun is None else begun.way.queue
            tried.append(chosen.broker_name)
            began = self._loop.time()
            try:
                if self._hooks is None:
                    result = await self._attempt(info, message, chosen, deadline, code, begun=begun)
                else:
                    result = await self._hooked(self._hooks, info, message, chosen, deadline, code, note)
            except (*UNREACHABLE, AnswerError, UnsupportedError) as error:
                if self._faults is not None:
                    self._faults.failed(chosen.broker_name, self._loop.time())
                is_last = len(tried) >= attempts or self._loop.time() >= deadline
                if is_last or (isinstance(error, AnswerError) and error.code not in RETRY):
                    if stored is not None:
                        return stored
                    if doubt is not None and not isinstance(error, _DOUBTFUL):
                        raise _with_attempts(type(doubt)(f"{error}; before that, {doubt}"), topic, tried) from None
                    raise _with_attempts(error, topic, tried) from None
                if isinstance(error, _DOUBTFUL):
                    doubt = error
                self.retries += 1
                _log.debug("%s: attempt %d failed, at %s: %s", topic, len(tried), chosen.broker_name, error)
            else:
                if self._faults is not None:
                    now = self._loop.time()
                    self._faults.sent(chosen.broker_name, (now - began) * 1000, now)
                if (
                    result.status is SendStatus.SEND_OK
                    or not self._settings.retry_another_broker_when_not_store_ok
                    or len(tried) >= attempts
                    or self._loop.time() >= deadline
                ):
                    return result
                stored = result
                self.retries += 1
            info, begun = self._instance.routes.publish_info(topic) or info, None

    async def send_oneway(
        self, message: Outgoing, deadline: float, queue: MessageQueue | None = None, selector: Selector | None = None
    ) -> None:
        """Send a message without an answer. Raises NotSentError."""
        info = await self._info(message.topic, deadline)
        chosen = self._choose(info, message, queue, selector, [])
        address = info.master(chosen.broker_name)
        self._instance.heartbeats.heartbeat_to(chosen.broker_name, address)
        if message.is_timed:
            await self._check_timers(chosen.broker_name, address, deadline)
        if self._hooks is None:
            await self._send_now(message, chosen, address)
            return
        context = SendContext(self._group, message, chosen, address, True, self._now())
        self._hooks.before(context)
        try:
            await self._send_now(_with_properties(message, context, SEND), chosen, address)
        except BaseException as error:
            context.error = error
            raise
        finally:
            context.ended = self._now()
            self._hooks.after(context)

    async def _send_now(self, message: Outgoing, queue: MessageQueue, address: str) -> None:
        values = self.fields_of(message, queue)
        await self._instance.connections.send(address, SEND, values, message.body)

    def fields_of(self, message: Outgoing, queue: MessageQueue) -> dict[str, object]:
        """Return the fields of the request that sends a message to a queue now."""
        return self._frames.values(SEND, message, queue, self._now())

    def _now(self) -> int:
        return int(self._clock() * 1000)

    async def _info(self, topic: str, deadline: float) -> PublishInfo:
        routes = self._instance.routes
        return routes.publish_info(topic) or await routes.ask_publish_info(topic, deadline)

    def _choose(
        self,
        info: PublishInfo,
        message: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | None,
        tried: list[str],
    ) -> MessageQueue:
        if queue is not None:
            if not isinstance(queue, MessageQueue):
                raise TypeError(f"queue: expected a MessageQueue, got {type(queue).__name__}")
            is_known = queue.broker_name in info.masters or queue in info.queues  # that of an ordered topic stays
            if queue.topic != message.topic or not is_known:
                raise ValueError(f"{queue} is not a queue of topic {message.topic!r}")
            return queue
        if selector is not None:
            if not callable(selector):
                raise TypeError(f"selector: expected a function, got {type(selector).__name__}")
            chosen = selector(info.queues)
            if chosen not in info.queues:
                raise ValueError(f"the selector returned {chosen!r}, which is not a queue of topic {message.topic!r}")
            return chosen
        if message.shard is not None:
            return queue_of_shard(message.shard, info.queues)
        avoid = set(tried[-1:])
        if self._faults is not None:
            avoid |= self._faults.avoided(self._loop.time())
        return self._turns.next(message.topic, info.queues, avoid)

    async def _attempt(
        self,
        info: PublishInfo,
        message: Outgoing,
        queue: MessageQueue,
        deadline: float,
        code: int,
        context: SendContext | None = None,
        begun: SentMessage | None = None,
    ) -> SendResult:
        if begun is None:
            address = info.master(queue.broker_name)
            self._instance.heartbeats.heartbeat_to(queue.broker_name, address)
        else:
            address = begun.way.address
        if message.is_timed:
            await self._check_timers(queue.broker_name, address, deadline)
        born = int(self._clock() * 1000) if begun is None else begun.born
        answer = await self._instance.connections.call_frame(
            address,
            code,
            lambda opaque: self._frames.encode(code, message, queue, born, opaque),
            lambda: self._frames.values(code, message, queue, born),
            message.body,
            others=STORED,
            deadline=deadline,
            begun=begun,
        )
        if context is not None:
            context.answer = answer.fields
        return result_of(address, answer, message.key, queue)

    async def _hooked(
        self,
        hooks: Hooks,
        info: PublishInfo,
        message: Outgoing,
        queue: MessageQueue,
        deadline: float,
        code: int,
        note: Callable[[Outgoing], object] | None,
    ) -> SendResult:
        """An attempt with hooks before and after it."""
        context = SendContext(self._group, message, queue, info.masters.get(queue.broker_name, ""), False, self._now())
        hooks.before(context)
        message = _with_properties(message, context, code)
        if note is not None:
            note(message)
        try:
            context.result = await self._attempt(info, message, queue, deadline, code, context)
            return context.result
        except BaseException as error:
            context.error = error
            raise
        finally:
            context.ended = self._now()
            hooks.after(context)

    async def _check_timers(self, broker_name: str, address: str, deadline: float) -> None:
        """Raise UnsupportedError if a broker would deliver a timed message at once."""
        version = await self._instance.heartbeats.version(broker_name, address, deadline)
        if version is None:
            raise NotSentError(
                f"{address}: no answer to a heartbeat, so it is not known if the broker has timed messages"
            )
        check_timers(address, version)


def _with_properties(message: Outgoing, context: SendContext, code: int) -> Outgoing:
    """A message with the properties that hooks have added."""
    if not context.properties or code == SEND_BATCH:
        return message
    try:
        text = added_properties(context.properties)
    except (IllegalMessageError, TypeError) as error:
        _log.warning("%s: the properties of a send hook are left out: %s", message.topic, error)
        return message
    return message._replace(properties=text + message.properties)


def _with_attempts(error: Exception, topic: str, tried: list[str]) -> Exception:
    """The error of the last attempt, with what was sent and where."""
    where = ", ".join(dict.fromkeys(tried))
    attempts = f"{len(tried)} attempt{'s' * (len(tried) > 1)} (broker {where})"
    if isinstance(error, _DOUBTFUL):
        return type(error)(f"topic {topic!r}: the message may be stored; {attempts} did not confirm it: {error}")
    text = f"topic {topic!r} was not sent in {attempts}"
    if isinstance(error, AnswerError):
        return AnswerError(error.address, f"{text}: {error.args[1]}", error.code)
    return type(error)(f"{text}: {error}")
