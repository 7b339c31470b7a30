"""SEND_REPLY_MESSAGE: a consumer's reply to a request message, which is pushed to the client that asked.

Source: RocketMQ ReplyMessageProcessor, Broker2Client.callClient.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rocketc._layout import PROPERTY_DELAY
from rocketc.broker import names
from rocketc.broker._send_path import SendPath, peer_host
from rocketc.broker.answer_waits import AnswerWaits
from rocketc.broker.config import BrokerConfig
from rocketc.broker.producers import ProducerManager
from rocketc.broker.send import MOST_PROPERTIES, decode_properties, encode_properties
from rocketc.errors import RocketcError
from rocketc.format.ids import OffsetId
from rocketc.remoting.addresses import join_address
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.server import Answer, Call
from rocketc.tables.topics import TopicConfig

PUSH_REPLY = 326
PUSH_SECONDS = 10.0
_NOT_STORED = {"msgId": "0", "queueOffset": 0}
_NOT_DELIVERED_LATER = (PROPERTY_DELAY, *names.TIMER)


class CallsClient(Protocol):
    """Sends a request to the client at a connection: Server.call."""

    def __call__(
        self, connection: Any, code: int, values: Mapping[str, Any], body: bytes, timeout: float
    ) -> asyncio.Future[Command]: ...


class ReplyProcessor:
    """Pushes replies to the clients that wait for them, and stores them.

    check      returns the topic of a reply, created if the broker may, or the answer that refuses it
    call       pushes to a client
    path       appends to the store
    waits      of answers until a flush or a report of a slave; None: nothing waits
    host       (address, port) that clients know
    clock      ms since the epoch
    """

    codes = (324, 325)

    def __init__(
        self,
        check: Callable[[dict[str, Any]], TopicConfig | Answer],
        call: CallsClient,
        path: SendPath,
        waits: AnswerWaits | None,
        producers: ProducerManager,
        config: BrokerConfig,
        host: tuple[str, int],
        clock: Callable[[], int],
        chance: random.Random,
    ) -> None:
        self._check, self._call_client = check, call
        self._path, self._waits, self._producers = path, waits, producers
        self._config, self._host, self._clock, self._chance = config, host, clock, chance
        self._told = {names.MSG_REGION: config.region_id, names.TRACE_ON: str(config.trace_on).lower()}

    def process(self, call: Call) -> Answer | None:
        answer = self._refuse_early(call)
        if answer is None:
            topic = self._check(call.values)
            if isinstance(topic, TopicConfig):
                self._push(call, topic)
                return None
            answer = topic
        answer.fields = {**answer.fields, **self._told}
        return answer

    def _refuse_early(self, call: Call) -> Answer | None:
        start = self._config.start_accept_send_request_time_stamp
        if self._clock() < start:
            return Answer(Code.SYSTEM_ERROR, remark=f"broker unable to service, until {start}")
        if not call.command.body:
            return Answer(Code.SYSTEM_ERROR, remark="the reply lacks a body")
        return None

    # pushing

    def _push(self, call: Call, topic: TopicConfig) -> None:
        """Send the reply to the client that asked; _pushed() follows."""
        properties = decode_properties(call.values.get("properties") or "") | self._told
        client = properties.get(names.REPLY_TO_CLIENT)
        if not client:
            self._finish(call, topic, properties, f"reply message properties[{names.REPLY_TO_CLIENT}] is null")
            return
        connection = self._producers.connection_of(client)
        if connection is None:
            self._finish(call, topic, properties, f"push reply message fail, channel of <{client}> not found.")
            return
        try:
            pushed = self._call_client(
                connection, PUSH_REPLY, self._header(call, properties), call.command.body, PUSH_SECONDS
            )
        except ValueError:  # the frame is too large
            self._finish(call, topic, properties, f"push reply message to {client}fail.")
            return
        pushed.add_done_callback(lambda done: self._pushed(call, topic, properties, client, done))

    def _header(self, call: Call, properties: dict[str, str]) -> dict[str, Any]:
        now = self._clock()
        peer = call.connection.peer
        return {
            "reconsumeTimes": 0,
            "unitMode": False,
            **call.values,
            "properties": encode_properties({**properties, names.PUSH_REPLY_TIME: str(now)}).decode(),
            "bornHost": join_address(*peer[:2]) if isinstance(peer, tuple) else str(peer),
            "storeHost": join_address(*self._host),
            "storeTimestamp": now,
        }

    def _pushed(
        self,
        call: Call,
        topic: TopicConfig,
        properties: dict[str, str],
        client: str,
        done: asyncio.Future[Command],
    ) -> None:
        is_ok = not done.cancelled() and done.exception() is None and done.result().code == Code.SUCCESS
        self._finish(call, topic, properties, None if is_ok else f"push reply message to {client}fail.")

    # storing

    def _finish(self, call: Call, topic: TopicConfig, properties: dict[str, str], fault: str | None) -> None:
        """Store a reply, whether it was pushed or not, and answer.

        fault  why the client does not have it; None: it has
        """
        queue_id = call.values["queueId"]
        if queue_id < 0:
            queue_id = self._chance.randrange(max(topic.write_queue_nums, 1))
        answer = Answer(remark=fault, fields=self._told)
        if fault is not None:
            answer.code = Code.SYSTEM_ERROR
        stored = self._store(call, topic, queue_id, properties) if self._config.store_reply_message_enable else None
        if stored is not None:
            offset, queue_offset, end = stored
            answer.values = {
                "msgId": OffsetId(*self._host, offset).encode(),
                "queueId": queue_id,
                "queueOffset": queue_offset,
            }
            if self._waits is not None:
                self._waits.add(end, lambda code: call.later(answer))
                return
        elif fault is None:
            answer.values = {**_NOT_STORED, "queueId": queue_id}
        call.later(answer)

    def _store(
        self, call: Call, topic: TopicConfig, queue_id: int, properties: dict[str, str]
    ) -> tuple[int, int, int] | None:
        """Append a reply. Return its physical offset, its queue offset and its end; None if it is not stored."""
        encoded = encode_properties(properties)
        if len(encoded) > MOST_PROPERTIES or any(name in properties for name in _NOT_DELIVERED_LATER):
            return None
        if call.connection.host is None:
            call.connection.host = peer_host(call.connection.peer)
        sent = call.values
        try:
            status, offsets, queue_offset, end = self._path.append(
                topic.topic_name.encode(),
                queue_id,
                [(sent["flag"], call.command.body, encoded)],
                sent["sysFlag"],
                sent["bornTimestamp"],
                call.connection.host,
                sent.get("reconsumeTimes", 0),
                False,
            )
        except (RocketcError, OSError):
            return None
        return (offsets[0], queue_offset, end) if status.is_stored else None
