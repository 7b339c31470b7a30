"""Requests and replies: a message that asks, and the message that answers it, which a broker brings to who asked.

Source: RocketMQ DefaultMQProducerImpl.request, RequestFutureHolder, MessageUtil, ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping

from rocketc._layout import FLAG_COMPRESSED, FLAG_COMPRESSION_MASK
from rocketc.client.large_bodies import decoded_messages
from rocketc.client.names import (
    ARRIVE_TIME,
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    REPLY_TOPIC,
    TTL,
)
from rocketc.errors import ClosedError, IllegalMessageError
from rocketc.format._encoding import encode
from rocketc.read._message import Message
from rocketc.read._opened_records import pulled_messages
from rocketc.remoting.addresses import split_address
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES, REQUESTS

PUSH_REPLY, SEND_REPLY = CODES["PUSH_REPLY_MESSAGE_TO_CLIENT"], CODES["SEND_REPLY_MESSAGE_V2"]

_UNKNOWN = "0.0.0.0", 0
_COMPRESSION = FLAG_COMPRESSED | FLAG_COMPRESSION_MASK


def request_properties(correlation: str, client_id: str, timeout: int) -> dict[str, str]:
    """Return the properties that make a message a request.

    correlation  a new id of the request; its reply has it, too
    client_id    who gets the reply
    timeout      ms that the requester waits

    >>> request_properties("7f", "10.0.0.1@2620#7", 3000)
    {'CORRELATION_ID': '7f', 'REPLY_TO_CLIENT': '10.0.0.1@2620#7', 'TTL': '3000'}
    """
    return {CORRELATION_ID: correlation, REPLY_TO_CLIENT: client_id, TTL: str(timeout)}


def reply_topic(cluster: str) -> str:
    """Return the topic that replies are sent to.

    >>> reply_topic("DefaultCluster")
    'DefaultCluster_REPLY_TOPIC'
    """
    return cluster + REPLY_TOPIC


def reply_to(properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the topic and the properties of the reply to a message.

    properties  of the message
    Raises IllegalMessageError if it does not ask for a reply.

    >>> reply_to({"CLUSTER": "c", "CORRELATION_ID": "7f", "REPLY_TO_CLIENT": "10.0.0.1@2620#7", "TTL": "3000"})[0]
    'c_REPLY_TOPIC'
    """
    for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT):
        if not properties.get(name):
            raise IllegalMessageError(f"the message is not a request: it lacks the property {name}")
    kept = {name: properties[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if properties.get(name)}
    return reply_topic(properties[CLUSTER]), {MESSAGE_TYPE: REPLY, **kept}


class Replies:
    """The requests of one producer that wait for their replies. Use it on one event loop.

    clock  ms since 1970
    late   replies that came when nothing waited for them any more
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._is_closed = False
        self.late = 0

    def begin(self, correlation: str) -> asyncio.Future[Message]:
        """Return the future of a reply. The caller must call end()."""
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            raise ClosedError("the producer is closed")
        self._waiting[correlation] = waiting
        return waiting

    def end(self, correlation: str) -> None:
        """Forget a request. A reply that comes later is dropped."""
        waiting = self._waiting.pop(correlation, None)
        if waiting is not None and waiting.done():
            waiting.exception()  # asyncio does not warn of the error of close() if the request ends with another one

    async def pushed(self, request: Command) -> Command:
        """Take a reply that a broker brings. Return the answer: success also if nothing waits for it any more.

        Raises ValueError and BadRequestError if it is not a reply.
        """
        message = await decoded_messages(pushed_reply, request, self._clock())
        waiting = self._waiting.get(message.properties.get(CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            self.late += 1
        else:
            waiting.set_result(message)
        return Command(Code.SUCCESS)

    def close(self) -> None:
        """End all waits with ClosedError."""
        self._is_closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ClosedError("the producer is closed"))


def pushed_reply(request: Command, now: int, *, plain_bytes: int | None = None) -> Message:
    """Return the message in PUSH_REPLY_MESSAGE_TO_CLIENT. Raises ValueError and BadRequestError.

    now          ms since 1970, for the property ARRIVE_TIME
    plain_bytes  see pulled_messages()

    >>> fields = dict(producerGroup="g", topic="c_REPLY_TOPIC", defaultTopic="TBW102", defaultTopicQueueNums="4",
    ...     queueId="0", sysFlag="0", bornTimestamp="5", flag="0", bornHost="127.0.0.1:7", storeHost="127.0.0.1:10911",
    ...     storeTimestamp="6", properties="CORRELATION_ID" + chr(1) + "7f" + chr(2))
    >>> message = pushed_reply(Command(326, fields, b"yes"), 9)
    >>> message.body, message.properties
    (b'yes', {'CORRELATION_ID': '7f', 'ARRIVE_TIME': '9'})
    """
    fields = REQUESTS[PUSH_REPLY].decode(request.fields)
    text = fields.get("properties") or ""
    if text and not text.endswith("\x02"):
        text += "\x02"
    record = encode(
        fields["topic"],
        request.body,
        queue_id=fields["queueId"],
        flag=fields["flag"],
        sys_flag=fields["sysFlag"] & _COMPRESSION,
        born_timestamp=fields["bornTimestamp"],
        born_host=_host(fields["bornHost"]),
        store_timestamp=fields["storeTimestamp"],
        store_host=_host(fields["storeHost"]),
        properties=f"{text}{ARRIVE_TIME}\x01{now}\x02".encode("utf-8", "replace"),
    )
    messages, errors, _ = pulled_messages(record, plain_bytes=plain_bytes)
    if errors:
        raise errors[0]
    return messages[0]


def _host(text: str) -> tuple[str, int]:
    """The address of a peer; brokers may send a name instead."""
    try:
        host, port = split_address(text)
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        return _UNKNOWN
