"""What a consumer answers to brokers, which pass on what operators ask and order: mqadmin, and rocketc admin.

Source: RocketMQ ClientRemotingProcessor, ConsumerRunningInfo, MQClientInstance.resetOffset.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import sys
import threading
import traceback
from collections.abc import Collection, Mapping
from typing import Any

from rocketc.client.bodies import parse_fields
from rocketc.client.concurrent_service import Listener
from rocketc.client.consume_results import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    concurrently_status,
    directly_result,
    orderly_status,
)
from rocketc.client.group_member import GroupMember
from rocketc.client.instance import Handler
from rocketc.client.large_bodies import decoded_messages
from rocketc.client.listener_pool import ListenerPool
from rocketc.client.offset_stores import decode_offsets, encode_offsets
from rocketc.client.orderly_context import OrderlyContext, bound
from rocketc.client.routes import MessageQueue
from rocketc.client.send_backs import retry_topic
from rocketc.client.settings import ConsumerSettings, PullSettings
from rocketc.client.strategies import strategy_of
from rocketc.read._message import Message
from rocketc.read._opened_records import pulled_messages
from rocketc.remoting.codes import Code
from rocketc.remoting.command import VERSION, Command
from rocketc.remoting.requests import CODES, REQUESTS
from rocketc.remoting.subscribing import ConsumeType
from rocketc.remoting.versions import version_name
from rocketc.tables.config_manager import camel
from rocketc.tables.fastjson import to_bytes


class AskedConsumer:
    """Answers for one consumer.

    listeners  by topic; empty for a consumer that is read by an iterator or by poll()
    manual     topics whose listeners commit manually
    begun      ms since 1970 when it was made
    """

    def __init__(
        self,
        member: GroupMember,
        group: str,
        settings: ConsumerSettings | PullSettings,
        listeners: Mapping[str, Listener],
        name_servers: str,
        begun: int,
        *,
        is_orderly: bool,
        manual: Collection[str] = (),
    ) -> None:
        self._member, self._group, self._settings = member, group, settings
        self._listeners, self._name_servers, self._begun = listeners, name_servers, begun
        self._is_orderly, self._manual = is_orderly, manual
        self._pool: ListenerPool | None = None

    def handlers(self) -> dict[int, Handler]:
        """Return the functions that answer, by request code."""
        return {
            CODES["RESET_CONSUMER_CLIENT_OFFSET"]: self._reset,
            CODES["GET_CONSUMER_STATUS_FROM_CLIENT"]: self._offsets,
            CODES["GET_CONSUMER_RUNNING_INFO"]: self._running_info,
            CODES["CONSUME_MESSAGE_DIRECTLY"]: self._consume_directly,
        }

    async def _reset(self, request: Command) -> None:
        """Continue at other offsets. A broker sends it without waiting for an answer."""
        fields = REQUESTS[request.code].decode(request.fields)
        if fields["group"] == self._group:
            offsets = decode_offsets(parse_fields(request.body))
            await self._member.reset(
                {queue: offset for queue, offset in offsets.items() if queue.topic == fields["topic"]}
            )

    def _offsets(self, request: Command) -> Command:
        fields = REQUESTS[request.code].decode(request.fields)
        known = self._member.offsets.offsets() if fields["group"] == self._group else {}
        of_topic = {queue: offset for queue, offset in known.items() if queue.topic == fields["topic"]}
        table = encode_offsets(of_topic)["offsetTable"]
        return Command(Code.SUCCESS, body=to_bytes({"messageQueueTable": table}, compact=True))

    def _running_info(self, request: Command) -> Command:
        fields = REQUESTS[request.code].decode(request.fields)
        if fields["consumerGroup"] != self._group:
            return Command(
                Code.SYSTEM_ERROR, remark=f"The Consumer Group <{fields['consumerGroup']}> not exist in this consumer"
            )
        info: dict[str, Any] = {
            "mqPopTable": {},
            "mqTable": self._member.queue_infos(),
            "properties": self._properties(),
            "statusTable": self._member.counts.status(sorted(self._member.subscriptions), self._member.now() / 1000),
            "subscriptionSet": [one.members() for one in self._member.subscriptions.values()],
            "userConsumerInfo": {},
        }
        if fields.get("jstackEnable"):
            info["jstack"] = stacks()
        return Command(Code.SUCCESS, body=to_bytes(info, compact=True))

    def _properties(self) -> dict[str, str]:
        names = [field.name for field in dataclasses.fields(self._settings)]
        settings = {camel(name): str(getattr(self._settings, name)) for name in names}
        settings["allocateMessageQueueStrategy"] = strategy_of(self._settings.allocate_message_queue_strategy).name
        if isinstance(self._settings, ConsumerSettings):
            settings["PROP_THREADPOOL_CORE_SIZE"] = str(self._settings.consume_thread_max)
            kind = ConsumeType.CONSUME_PASSIVELY
        else:
            kind = ConsumeType.CONSUME_ACTIVELY
        return {
            **settings,
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMEORDERLY": str(self._is_orderly).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._begun),
            "PROP_CONSUME_TYPE": kind.name,
            "PROP_NAMESERVER_ADDR": self._name_servers,
            "consumerGroup": self._group,
        }

    async def _consume_directly(self, request: Command) -> Command:
        """Give a message to the listener, and answer with its result. Nothing is committed or sent back."""
        retry, broker = retry_topic(self._group).encode(), request.fields.get("brokerName")
        messages, errors, _ = await decoded_messages(
            functools.partial(pulled_messages, request.body, retry_topic=retry, broker=broker)
        )
        if not messages:
            return Command(Code.SYSTEM_ERROR, remark=str(errors[0]) if errors else "the request lacks a message")
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = await self._outcome(messages[0])
        spent = int((loop.time() - began) * 1000)
        auto_commit = messages[0].topic not in self._manual
        result = directly_result(outcome, spent, is_orderly=self._is_orderly, auto_commit=auto_commit)
        return Command(Code.SUCCESS, body=to_bytes(result, compact=True))

    async def _outcome(self, message: Message) -> ConsumeConcurrentlyStatus | ConsumeOrderlyStatus | Exception:
        listener = self._listeners.get(message.topic)
        if listener is None:
            return LookupError(f"there is no listener for the topic {message.topic}")
        is_alone = isinstance(self._settings, PullSettings) or self._settings.consume_message_batch_max_size == 1
        argument: Any = message if is_alone else [message]
        context = OrderlyContext(MessageQueue(message.topic, "", message.queue_id))
        if message.topic in self._manual:
            listener = bound(listener, context)
        try:
            if inspect.iscoroutinefunction(listener):
                returned = await listener(argument)
            else:
                returned = await self._on_a_thread(listener, argument)
            if message.topic in self._manual:
                return context.decided(returned)
            return orderly_status(returned) if self._is_orderly else concurrently_status(returned)
        except Exception as error:
            return error

    async def _on_a_thread(self, listener: Listener, argument: Any) -> object:
        if self._pool is None:
            self._pool = ListenerPool(1)
        return await self._pool.call(listener, argument)

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.close()


def stacks() -> str:
    """Return what each thread of this process does, as Java's jstack.

    >>> "MainThread" in stacks()
    True
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"{names.get(ident, 'unknown')} TID: {ident}\n{lines}")
    return "\n".join(parts)
