"""Message trace: writes to a topic what a client sends and consumes, in the background.

Source: RocketMQ AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl; what clients of 4.9.7 and
5.3.3 wrote.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from rocketc._layout import PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rocketc.client.hook_contexts import ConsumeContext, EndTransactionContext, SendContext, is_failure
from rocketc.client.hooks import Hook
from rocketc.client.instance import ClientInstance
from rocketc.client.names import MSG_REGION, TRACE_ON, TRANSACTION
from rocketc.client.outgoing import Packer
from rocketc.client.send_results import SendStatus
from rocketc.client.sender import Sender
from rocketc.client.settings import ProducerSettings
from rocketc.client.unique_ids import Clock
from rocketc.format.traces import encode_trace
from rocketc.read._message import Message

_log = logging.getLogger("rocketc.client")

GROUP = "_INNER_TRACE_PRODUCER"
RECORDS_MOST = 2_048  # that wait; more are dropped
_BATCH_RECORDS, _BATCH_BYTES, _KEYS_MOST = 100, 128_000, 30_000
_EVERY_SECONDS = 0.5
_END_SECONDS = 3.0  # for the last records
_NORMAL, _HALF, _COMMITTED, _DELAYED = range(4)  # message types
_REGION = "DefaultRegion"  # of a message that has not been at a broker
_SUCCESS, _TIME_OUT, _EXCEPTION, _FAILED = 0, 1, 2, 4  # of ConsumeReturnType


class _Record(NamedTuple):
    text: bytes
    keys: tuple[str, ...]


class Tracer:
    """The traces of one client. Functions of hooks may run on any thread, everything else on the event loop.

    topic            where traces go
    clock            the Unix time in seconds
    consume_timeout  minutes; a listener that takes longer has timed out
    dropped          records that were not written: too many waited, or a send failed
    """

    def __init__(self, instance: ClientInstance, topic: str, clock: Clock, consume_timeout: int = 15) -> None:
        settings = ProducerSettings()
        self._instance, self._topic, self._timeout = instance, topic, consume_timeout * 60_000
        self._sender = Sender(instance, GROUP, settings, clock)
        self._packer = Packer(
            instance.unique_ids,
            max_message_size=settings.max_message_size,
            compress_over=settings.compress_msg_body_over_howmuch,
        )
        self._waiting: deque[_Record] = deque()
        self._writing = asyncio.Lock()  # close() waits for the batch that is on its way
        self._was_logged = False
        self.dropped = 0
        self.send_hook = Hook(None, self._sent)
        self.end_hook = Hook(None, self._ended)
        self.consume_hook = Hook(self._consuming, self._consumed)

    def start(self) -> None:
        """Begin to write."""
        self._instance.begin(self._run())

    async def close(self) -> None:
        """Write what waits, for 3 s at most. Call it before the instance is closed."""
        last = asyncio.ensure_future(self._flush())
        try:
            await asyncio.wait({last}, timeout=_END_SECONDS)
        finally:
            last.cancel()
        if self._waiting:
            self._lose(len(self._waiting), "the client ended")
            self._waiting.clear()

    # hooks

    def _sent(self, context: SendContext) -> None:
        result, message = context.result, context.message
        if result is None or message.topic == self._topic or context.answer.get(TRACE_ON) == "false":
            return
        properties = dict(one.split("\x01", 1) for one in message.properties.split("\x02") if one)
        keys = properties.get(PROPERTY_KEYS)
        is_delayed = message.is_timed or PROPERTY_DELAY in properties
        self._add(
            [message.key, *(keys or "").split()],
            type="Pub",
            timestamp=context.began,
            regionId=context.answer.get(MSG_REGION),
            group=context.group,
            topic=message.topic,
            msgId=message.key,
            tags=properties.get(PROPERTY_TAGS),
            keys=keys,
            storeHost=context.address,
            bodyLength=len(message.body),
            costTime=context.ended - context.began,
            msgType=_HALF if TRANSACTION in properties else _DELAYED if is_delayed else _NORMAL,
            offsetMsgId=result.offset_msg_id,
            success=result.status is SendStatus.SEND_OK,
        )

    def _ended(self, context: EndTransactionContext) -> None:
        message = context.message
        if context.error is not None or message.properties.get(TRACE_ON) == "false":
            return
        self._add(
            [context.msg_id, *(message.keys or "").split()],
            type="EndTransaction",
            timestamp=context.ended,
            regionId=message.properties.get(MSG_REGION, _REGION),
            group=context.group,
            topic=message.topic,
            msgId=context.msg_id,
            tags=message.tags,
            keys=message.keys,
            storeHost=context.address,
            msgType=_COMMITTED,
            transactionId=context.transaction_id,
            transactionState=context.state.name,
            fromTransactionCheck=context.is_from_check,
        )

    def _consuming(self, context: ConsumeContext) -> None:
        request = context.state[self] = f"{self._instance.chance.getrandbits(128):032X}"
        for message in context.messages:
            properties = message.properties
            if properties.get(TRACE_ON) != "false":
                key = _key(message)
                self._add(
                    [key, *(message.keys or "").split()],
                    type="SubBefore",
                    timestamp=context.began,
                    regionId=properties.get(MSG_REGION),
                    group=context.group,
                    requestId=request,
                    msgId=key,
                    retryTimes=message.reconsume_times,
                    keys=message.keys,
                )

    def _consumed(self, context: ConsumeContext) -> None:
        spent = context.ended - context.began
        if is_failure(context.error):
            code = _EXCEPTION
        elif spent >= self._timeout:
            code = _TIME_OUT
        else:
            code = _SUCCESS if context.success else _FAILED
        for message in context.messages:
            if message.properties.get(TRACE_ON) != "false":
                key = _key(message)
                self._add(
                    [key, *(message.keys or "").split()],
                    type="SubAfter",
                    requestId=context.state.get(self),
                    msgId=key,
                    costTime=spent // len(context.messages),
                    success=context.success,
                    keys=message.keys,
                    contextCode=code,
                    timestamp=context.ended,
                    group=context.group,
                )

    def _add(self, names: Iterable[str], **fields: object) -> None:
        if len(self._waiting) >= RECORDS_MOST:
            self._lose(1, "too many wait")
        else:
            self._waiting.append(_Record(encode_trace(fields), tuple(names)))

    def _lose(self, count: int, fault: object) -> None:
        self.dropped += count
        level = logging.DEBUG if self._was_logged else logging.WARNING
        self._was_logged = True
        _log.log(level, "%d traces are not written (later ones are logged as DEBUG): %s", count, fault)

    # writing

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            await self._write_all()

    async def _write_all(self) -> None:
        while self._waiting:
            batch = self._take()
            keys: dict[str, None] = {}
            for record in batch:
                keys |= dict.fromkeys(record.keys)
            text = " ".join(keys)
            if len(text) > _KEYS_MOST // 4:
                text = _cut(keys)
            try:
                message = self._packer.pack(self._topic, b"".join(record.text for record in batch), keys=text)
                await self._sender.send(message, self._sender.deadline())
            except asyncio.CancelledError:
                self._lose(len(batch), "the client ended")
                raise
            except Exception as error:
                self._lose(len(batch), error)

    def _take(self) -> list[_Record]:
        """The next records, as many as one message has."""
        batch, size = [self._waiting.popleft()], 0
        while self._waiting and len(batch) < _BATCH_RECORDS:
            size += len(batch[-1].text)
            if size + len(self._waiting[0].text) > _BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch


def _cut(keys: Iterable[str]) -> str:
    """As many keys as the properties of a message can hold."""
    out, size = list[str](), 0
    for key in keys:
        size += len(key.encode("utf-8", "replace")) + 1
        if size > _KEYS_MOST:
            break
        out.append(key)
    return " ".join(out) or "too-long"


def _key(message: Message) -> str:
    return message.properties.get(PROPERTY_UNIQUE_KEY) or message.msg_id
