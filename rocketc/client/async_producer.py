"""AsyncProducer: sends messages, from a coroutine.

Source: RocketMQ DefaultMQProducer, DefaultMQProducerImpl.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import ssl
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

from rocketc.client._send_path import SendPath, SentMessage
from rocketc.client.access import Access, access_to, check_producer_group
from rocketc.client.batching import Batch, NewMessage, batch_of, batches, results_of
from rocketc.client.connections import UNREACHABLE
from rocketc.client.contexts import AsyncContext, check_loop
from rocketc.client.counts import SEND_BOUNDS, ProducerCounts, TimesByTopic
from rocketc.client.hook_contexts import SendContext
from rocketc.client.hooks import Hooks
from rocketc.client.in_flight import InFlight
from rocketc.client.instance import AddressHandler, ClientInstance
from rocketc.client.outgoing import Body, Outgoing, Packer
from rocketc.client.queue_choice import check_choice
from rocketc.client.replies import PUSH_REPLY, SEND_REPLY, Replies, reply_to, reply_topic, request_properties
from rocketc.client.routes import MessageQueue
from rocketc.client.security import Tls
from rocketc.client.send_frames import SEND, SEND_BATCH
from rocketc.client.send_results import SendResult
from rocketc.client.sender import Selector, Sender
from rocketc.client.settings import ProducerOptions, ProducerSettings, settings_of
from rocketc.client.timed import broker_of, explained
from rocketc.client.tracing import Tracer
from rocketc.client.waiters import DirectAnswer, End, end_with
from rocketc.config_fields import did_you_mean, nearest
from rocketc.errors import (
    AnswerError,
    ClosedError,
    NotSentError,
    PartlySentError,
    RequestTimeoutError,
)
from rocketc.read._message import Message
from rocketc.remoting.channel import Channel
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES
from rocketc.remoting.signing import Credentials

if TYPE_CHECKING:
    from typing_extensions import Never, Self, Unpack


RECALL = CODES["RECALL_MESSAGE"]

_DIRECT = {"tags", "keys", "flag", "timeout"}  # options of sends without a task


class PlainOptions(TypedDict, total=False):
    """The keywords of each send that are part of the message, for type checkers."""

    tags: str | None
    keys: str | Iterable[str] | None
    shard: str | None
    properties: Mapping[str, str] | None
    flag: int


class MessageOptions(PlainOptions, total=False):
    """The keywords of send() that are part of the message."""

    delay_level: int | str
    delay: float | None
    deliver_at: int | datetime.datetime | None


class ReplyOptions(TypedDict, total=False):
    """The keywords of reply(), for type checkers."""

    tags: str | None
    keys: str | Iterable[str] | None
    properties: Mapping[str, str] | None
    flag: int
    timeout: int | None


class SendOptions(MessageOptions, total=False):
    """The keywords of send(), for type checkers."""

    queue: MessageQueue | None
    selector: Selector | None
    timeout: int | None


_KEYWORDS = {"send": SendOptions.__optional_keys__, "reply": ReplyOptions.__optional_keys__}


class AsyncProducer(AsyncContext):
    """Sends messages to the topics of a cluster, RocketMQ's or this project's.

        async with AsyncProducer("shop", "127.0.0.1:9876") as producer:
            await producer.send("orders", b"...")

    group        name of the producer group
    name_server  addresses of the name servers, separated by `;`; None: those in NAMESRV_ADDR, or 127.0.0.1:9876
    credentials  the account that signs all requests; None: they are not signed
    tls          True, or settings: all connections use TLS. See client.security.Tls
    options      fields of ProducerSettings, with RocketMQ's names; times are in ms
    Raises TypeError and ValueError for wrong arguments. Methods raise ClosedError after the end of the context. Use it
    on one event loop.

    >>> import asyncio, rocketc
    >>> async def main(name_server):
    ...     async with AsyncProducer("shop", name_server) as producer:
    ...         return await producer.send("orders", b"one", tags="web")
    >>> with rocketc.Broker() as broker:
    ...     asyncio.run(main(broker.name_server)).status
    <SendStatus.SEND_OK: 0>
    """

    def __init__(
        self,
        group: str,
        name_server: str | None = None,
        *,
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.group = check_producer_group(group)
        self._access = access_to(name_server, credentials, tls)
        self.settings = self._settings = self._settings_of(options)
        self._instance: ClientInstance | None = None
        self._send_hooks = Hooks("send")
        self._tracer: Tracer | None = None
        self._path: SendPath | None = None

    def _settings_of(self, options: Mapping[str, Any]) -> ProducerSettings:
        return settings_of(ProducerSettings, options)

    def _address_handlers(self) -> Mapping[int, AddressHandler]:
        """What else this producer does with requests of brokers."""
        return {}

    @classmethod
    def _by(cls, access: Access, group: str, **options: Unpack[ProducerOptions]) -> Self:
        """A producer with another clock, random numbers and network: for tests and simulations."""
        made = cls(group, access.addresses[0], **options)
        made._access = access
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group}, name server {';'.join(self._access.addresses)}, {self._state}>"

    @property
    def _state(self) -> str:
        instance = self._instance
        return "not started" if instance is None else "closed" if instance.is_closed else "open"

    @property
    def client_id(self) -> str:
        """The id of this client; brokers show it in their lists of connections."""
        return self._started().client_id

    def counts(self) -> ProducerCounts:
        """Return what this producer has counted. Any thread may call it. See rocketc.metrics.client_measures()."""
        instance, held = self._started(), self._in_flight
        sends = self._sends.items()
        return ProducerCounts(instance.client_id, self.group, sends, self._sender.retries, held.messages, held.bytes)

    @property
    def dropped_traces(self) -> int:
        """The records of message trace that were not written: too many waited, or a send of them failed."""
        return 0 if self._tracer is None else self._tracer.dropped

    async def start(self) -> None:
        """Begin. `async with` does it. No server is asked before the first send."""
        if self._instance is not None:
            self._opened()
            return
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        self._replies = Replies(lambda: int(self._access.clock() * 1000))
        self._reply_clusters: set[str] = set()  # whose brokers know this client
        self._silent_until: dict[str, float] = {}  # brokers that do not answer; times until which none waits for them
        self._instance = ClientInstance(
            self._access,
            settings,
            lambda: {"consumerDataSet": [], "producerDataSet": [{"groupName": self.group}]},
            lambda: [("producerGroup", self.group)],
            create_topic=settings.create_topic_key,
            queue_nums=settings.default_topic_queue_nums,
            handlers={PUSH_REPLY: self._replies.pushed},
            address_handlers=self._address_handlers(),
        )
        self._packer = Packer(
            self._instance.unique_ids,
            max_message_size=settings.max_message_size,
            compress_over=settings.compress_msg_body_over_howmuch,
        )
        self._sends = TimesByTopic(SEND_BOUNDS)
        hooks = self._send_hooks
        if settings.enable_msg_trace:
            self._tracer = Tracer(self._instance, settings.custom_trace_topic, self._access.clock)
            hooks = hooks.with_one(self._tracer.send_hook)
        self._sender = Sender(self._instance, self.group, settings, self._access.clock, hooks)
        self._in_flight = InFlight(settings.max_in_flight, settings.max_bytes_in_flight)
        most = min(settings.max_message_size, settings.compress_msg_body_over_howmuch)
        self._path = self._sender.path(self._in_flight, self._sends, most)
        try:
            self._instance.start()
        except ValueError:  # a client of this process has the same id
            self._instance = None
            raise
        if self._tracer is not None:
            self._tracer.start()

    def add_send_hook(
        self,
        before: Callable[[SendContext], object] | None = None,
        after: Callable[[SendContext], object] | None = None,
    ) -> None:
        """Call functions before and after each attempt of a send, on the event loop. Call this before start().

        What they raise is logged, and the send continues. Raises TypeError, ClosedError after start().
        """
        self._check_not_started()
        self._send_hooks.add(before, after)

    def add_rpc_hook(
        self,
        before: Callable[[str, Command], object] | None = None,
        after: Callable[[str, Command, Command], object] | None = None,
    ) -> None:
        """Call functions with each request to servers, and with its answer. Call this before start().

        before  called with the address and the request, which it may change; a signature is made after it
        after   called with the address, the request and the answer
        What they raise is logged, and the request continues. Raises TypeError, ClosedError after start().
        """
        self._check_not_started()
        self._access.rpc_hooks.add(before, after)

    def _check_not_started(self) -> None:
        if self._instance is not None:
            raise ClosedError("hooks are added before a client starts")

    async def close(self) -> None:
        """Wait for the sends that are under way, leave the group, and close the connections."""
        if self._instance is not None:
            self._in_flight.close()
            try:
                await self._in_flight.wait_empty(self._settings.send_msg_timeout / 1000)
            finally:  # also if this is canceled
                self._replies.close()
                try:
                    if self._tracer is not None:
                        await self._tracer.close()
                finally:
                    await self._instance.close()

    async def send(
        self,
        topic: str,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        shard: str | None = None,
        delay_level: int | str = 0,
        delay: float | None = None,
        deliver_at: int | datetime.datetime | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: int | None = None,
    ) -> SendResult:
        """Send a message, and return where it is stored.

        topic        created by the broker if it does not exist and the broker creates topics
        body         bytes; compressed above compress_msg_body_over_howmuch
        tags         text by which consumers filter
        keys         texts by which the message can be looked up: a list, or one text with blanks between the keys
        shard        messages of one shard go into one queue, in the order of their sends
        delay_level  1 to 18, or the name of a level such as "10s": when consumers get the message
        delay        seconds until consumers get the message; for brokers of RocketMQ 5
        deliver_at   the time instead of the delay: ms since 1970, or a datetime; without a time zone, it is local time
        properties   by name; names that RocketMQ uses are refused
        flag         a number for the program's own use
        queue        the queue to use; None: the next one
        selector     called with the queues of the topic; returns one of them. Give one of queue, selector and shard
        timeout      ms, all attempts included; None: send_msg_timeout
        A send that fails is tried at other brokers, but with `queue`, `selector` or `shard` only there.
        Raises TypeError and IllegalMessageError for the message; TopicNotFoundError; TopicPermissionError if the topic
        may not be written; AnswerError if a broker refuses it; BackpressureError if too much is in flight until the
        timeout; NotSentError if no name server or no broker was reached; ConnectionLostError or NoAnswerError if the
        message may be stored. UnsupportedError if a broker of RocketMQ 4 would ignore `delay` or `deliver_at`.
        """
        if self._path is not None:
            begun = self._path.begin(
                topic,
                body,
                tags,
                keys,
                shard,
                delay_level,
                delay,
                deliver_at,
                properties,
                flag,
                queue,
                selector,
                timeout,
            )
            if begun is not None:
                result = await self._first_answer(begun)
                return result if type(result) is SendResult else await self._rest(begun)
        instance = self._opened()
        check_choice(queue=queue, selector=selector, shard=shard)
        message = self._packer.pack(
            topic,
            body,
            tags=tags,
            keys=keys,
            shard=shard,
            delay_level=delay_level,
            delay=delay,
            deliver_at=deliver_at,
            properties=properties,
            flag=flag,
        )
        return await self._take_and_send(instance, message, queue, selector, self._sender.deadline(timeout))

    async def send_oneway(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> None:
        """Send a message without an answer. It returns when the message is with the operating system.

        Arguments: see send(). Raises NotSentError; whether the broker stores the message is not known.
        """
        instance = self._opened()
        queue, selector, timeout = _taken_out(options)
        message = self._packer.pack(topic, body, **cast(MessageOptions, options))
        instance.check_open()
        await self._sender.send_oneway(message, self._sender.deadline(timeout), queue, selector)

    async def request(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> Message:
        """Send a message that asks for a reply, and return the reply. A consumer of the topic sends it: see reply().

        timeout  ms until the reply is here; None: send_msg_timeout
        Other arguments: see send(). Raises RequestTimeoutError if the request is stored and no reply comes; other
        errors: see send().
        """
        instance = self._opened()
        queue, selector, timeout = _taken_out(options)
        limit = self._settings.send_msg_timeout if timeout is None else timeout
        deadline = self._sender.deadline(limit)
        correlation = str(uuid.UUID(int=instance.chance.getrandbits(128), version=4))
        system = request_properties(correlation, instance.client_id, limit)
        message = self._packer.pack(topic, body, system=system, **cast(MessageOptions, options))
        await self._meet_brokers(instance, topic, deadline)
        waiting = self._replies.begin(correlation)
        try:
            await self._take_and_send(instance, message, queue, selector, deadline)
            await asyncio.wait({waiting}, timeout=max(0.0, deadline - self._loop.time()))
            if waiting.done():
                return waiting.result()
            raise RequestTimeoutError(
                f"topic {topic!r}: no reply came in {limit} ms; the request is stored, its id is {message.key}"
            )
        finally:
            self._replies.end(correlation)

    async def _meet_brokers(self, instance: ClientInstance, topic: str, deadline: float) -> None:
        """Make this client known to all brokers that the reply may come through, or they could not bring it."""
        routes = instance.routes
        if routes.publish_info(topic) is None:
            await routes.ask_publish_info(topic, deadline)
        route = routes.route(topic) or routes.route(self._settings.create_topic_key)
        for cluster in {broker.cluster for broker in route.brokers} if route is not None else ():
            if cluster not in self._reply_clusters:
                with contextlib.suppress(*UNREACHABLE, AnswerError):
                    await routes.watch(reply_topic(cluster), deadline)
                    self._reply_clusters.add(cluster)
        now = self._loop.time()
        new = {one: name for one, name in routes.brokers().items() if self._silent_until.get(one, 0.0) <= now}
        heartbeats = instance.heartbeats
        new = {one: name for one, name in new.items() if one not in heartbeats.versions}
        if new:
            await heartbeats.wait_for_heartbeats(new, now + (deadline - now) / 2)  # the rest is for the request
            until = self._loop.time() + self._settings.heartbeat_broker_interval / 1000
            self._silent_until |= dict.fromkeys(new.keys() - heartbeats.versions.keys(), until)

    async def reply(self, message: Message, body: Body, **options: Unpack[ReplyOptions]) -> SendResult:
        """Reply to a message that was sent by request(); the broker brings the reply to its sender.

        message  that a consumer got
        Other arguments: see send(). Raises IllegalMessageError if the message does not ask for a reply, AnswerError if
        its sender is gone; other errors: see send().
        """
        instance = self._opened()
        check_keywords(options, "reply")
        topic, system = reply_to(message.properties)
        deadline = self._sender.deadline(options.pop("timeout", None))
        outgoing = self._packer.pack(
            topic, body, system=system, wait_store_msg_ok=None, **cast(MessageOptions, options)
        )
        return await self._take_and_send(instance, outgoing, None, None, deadline, SEND_REPLY)

    async def recall(self, topic: str, recall_handle: str, *, timeout: int | None = None) -> str:
        """Take a timed message back before its time, and return its id.

        recall_handle  SendResult.recall_handle of its send
        timeout        ms; None: send_msg_timeout
        Brokers of RocketMQ 5.3.1 and later do it if they have recallMessageEnable=true. A broker does not say whether
        the message was delivered before. Raises IllegalMessageError for another text; AnswerError if the broker
        refuses; NotSentError, ConnectionLostError, NoAnswerError.
        """
        instance = self._opened()
        name, deadline = broker_of(recall_handle), self._sender.deadline(timeout)
        info = instance.routes.publish_info(topic) or await instance.routes.ask_publish_info(topic, deadline)
        address = info.masters.get(name)
        if address is None:
            raise NotSentError(f"{name}: no address of this broker is known now")
        values = {"producerGroup": self.group, "topic": topic, "recallHandle": recall_handle}
        try:
            answer = await instance.connections.call(address, RECALL, values, deadline=deadline)
        except AnswerError as error:
            raise explained(error) from None
        return answer.fields.get("msgId", "")

    async def send_many(
        self,
        topic: str,
        messages: Iterable[Body | NewMessage],
        *,
        queue: MessageQueue | None = None,
        timeout: int | None = None,
        **unknown: Never,
    ) -> list[SendResult]:
        """Send messages in batches of max_message_size bytes at most, and return their results in order.

        messages  bodies, or NewMessage for tags, keys and properties
        queue     all messages go into this queue; None: each batch goes into the next queue
        timeout   ms for each batch
        The batches are sent one after the other, and bodies are not compressed.
        Raises PartlySentError if batches are stored, and then one fails or a message is refused: it has the results
        of the batches before. Without such a batch the error itself is raised: see send().
        """
        if unknown:
            raise unknown_of_many(unknown)
        return await self._send_batches(topic, self._batches(topic, messages), queue, timeout)

    def _batches(self, topic: str, messages: Iterable[Body | NewMessage]) -> Iterator[Batch]:
        self._opened()
        return batches(self._packer, topic, messages, self._settings.max_message_size)

    async def _send_batches(
        self, topic: str, divided: Iterator[Batch], queue: MessageQueue | None, timeout: int | None
    ) -> list[SendResult]:
        instance, out = self._opened(), list[SendResult]()
        try:
            for batch in divided:
                begun = self._begin_batch(topic, batch, queue, timeout)
                if begun is not None:
                    found = await self._first_answer(begun)
                    out += found if type(found) is list else await self._rest_of_batch(begun)
                else:
                    deadline = self._sender.deadline(timeout)
                    sent = await self._take_and_send(instance, batch.message, queue, None, deadline, SEND_BATCH)
                    out += results_of(batch, sent)
        except Exception as error:  # also of the program's own iterator: the results must not be lost
            if not out:
                raise
            raise PartlySentError(out, error) from error
        return out

    def _begin_batch(
        self, topic: str, batch: Batch, queue: MessageQueue | None, timeout: int | None, answer: Any = None
    ) -> SentMessage | None:
        """Let the compiled way begin a batch, and return that, or None."""
        if self._path is None or queue is not None:
            return None
        return self._path.begin_batch(topic, batch.message.body, batch.keys, timeout, answer)

    def _begin_send_many(
        self, end: End, topic: str, messages: Iterable[Body | NewMessage], queue: MessageQueue | None,
        timeout: int | None,
    ) -> None:  # fmt: skip
        """Send batches whose results go to `end`: without a task, if it is one batch that the compiled way takes."""
        if end.is_canceled:
            return
        divided = self._batches(topic, messages)
        first = next(divided, None)
        if first is not None and first.is_last:
            answer = DirectAnswer[list[SendResult]](end, self._rest_of_batch, self._ended, self._give_up)
            answer.begun = self._begin_batch(topic, first, queue, timeout, answer)
            if answer.begun is not None:
                return
        left = itertools.chain(() if first is None else (first,), divided)
        end_with(self._loop.create_task(self._send_batches(topic, left, queue, timeout)), end)

    async def _take_and_send(
        self,
        instance: ClientInstance,
        message: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | None,
        deadline: float,
        code: int = SEND,
        note: Callable[[Outgoing], object] | None = None,
    ) -> SendResult:
        size, began, is_ok = len(message.body), self._loop.time(), False
        await self._in_flight.take(size, deadline)
        try:
            instance.check_open()
            result = await self._sender.send(message, deadline, queue, selector, code, note=note)
            is_ok = True
            return result
        finally:
            self._in_flight.give_back(size)
            self._sends.add(message.topic, is_ok, 1000 * (self._loop.time() - began))

    async def _first_answer(self, begun: SentMessage) -> object:
        """Return what came for a send that the compiled way has begun; None: an error of the connection."""
        try:
            return await begun.answer
        except BaseException as error:
            if begun.is_done:  # this is canceled with the result at hand
                raise
            if not isinstance(error, UNREACHABLE):
                self._give_up(begun)
                raise
            return None

    async def _rest(self, begun: SentMessage) -> SendResult:
        """Continue a send whose first attempt has failed, or got another answer than SEND_OK."""
        is_ok = False
        try:
            message = self._packer.pack(
                begun.topic_way.topic, begun.body, tags=begun.tags, keys=begun.keys, flag=begun.flag, key=begun.key
            )
            result = await self._sender.send(message, begun.deadline, begun=begun)
            is_ok = True
            return result
        finally:
            self._ended(begun, is_ok)

    async def _rest_of_batch(self, begun: SentMessage) -> list[SendResult]:
        """Continue a batch as _rest() does."""
        is_ok, keys = False, begun.batch
        assert keys is not None
        batch = batch_of(begun.topic_way.topic, begun.body, keys)
        try:
            result = await self._sender.send(batch.message, begun.deadline, code=SEND_BATCH, begun=begun)
            is_ok = True
        finally:
            self._ended(begun, is_ok)
        return results_of(batch, result)

    def _give_up(self, begun: SentMessage) -> None:
        """Nothing waits for this send any more."""
        cast(Channel, begun.channel).forget(begun)
        self._ended(begun, is_ok=False)

    def _begin_send(self, end: End, topic: str, body: Body, options: SendOptions) -> None:
        """Send a message whose result goes to `end`: without a task, if the compiled way takes it."""
        if end.is_canceled:
            return
        if self._path is not None and options.keys() <= _DIRECT:
            answer = DirectAnswer[SendResult](end, self._rest, self._ended, self._give_up)
            answer.begun = self._path.begin(
                topic, body, options.get("tags"), options.get("keys"), None, 0, None, None, None,
                options.get("flag", 0), None, None, options.get("timeout"), answer,
            )  # fmt: skip
            if answer.begun is not None:
                return
        check_keywords(options)
        end_with(self._loop.create_task(self.send(topic, body, **options)), end)

    def _ended(self, begun: SentMessage, is_ok: bool = False) -> None:
        """Count the end of a send that the compiled way has begun, once."""
        if begun.is_done:
            return
        begun.is_done = True
        self._in_flight.give_back(len(begun.body))
        self._sends.add(begun.topic_way.topic, is_ok, 1000 * (self._loop.time() - begun.began))

    def _opened(self) -> ClientInstance:
        instance = self._started()
        check_loop(self._loop)
        return instance

    def _started(self) -> ClientInstance:
        if self._instance is None:
            raise ClosedError("the producer is not started: use it as an async context manager, or await start()")
        self._instance.check_open()
        return self._instance


def check_keywords(options: Mapping[str, object], function: str = "send") -> None:
    """Raise TypeError for a keyword that send() or reply() does not have; it names the nearest of those that it has.

    Raises IllegalMessageError if two keywords choose the queue.

    >>> check_keywords({"tag": "web"})
    Traceback (most recent call last):
    TypeError: send(): unknown keyword tag; did you mean tags?
    """
    known = _KEYWORDS[function]
    for name in options:
        if name not in known:
            raise TypeError(f"{function}(): unknown keyword {name}{did_you_mean(name, sorted(known))}")
    check_choice(**{name: options.get(name) for name in ("queue", "selector", "shard")})


def unknown_of_many(unknown: Mapping[str, object]) -> TypeError:
    """Return the exception for a keyword that send_many() does not have; it says where it belongs.

    >>> print(unknown_of_many({"tag": "web"}))
    send_many(): unknown keyword tag; give it with each message: NewMessage(body, tags=...)
    >>> print(unknown_of_many({"delay": 5}))
    send_many(): unknown keyword delay; batches do not have it: use send()
    """
    name = next(iter(unknown))
    near = nearest(name, ["queue", "timeout", *sorted(_KEYWORDS["send"])])
    if near is None:
        hint = ""
    elif near in ("queue", "timeout"):
        hint = f"; did you mean {near}?"
    elif near in NewMessage.__dataclass_fields__:
        hint = f"; give it with each message: NewMessage(body, {near}=...)"
    else:
        hint = "; batches do not have it: use send()"
    return TypeError(f"send_many(): unknown keyword {name}{hint}")


def _taken_out(options: SendOptions) -> tuple[MessageQueue | None, Selector | None, int | None]:
    """Take the keywords of send() that are not part of the message out of the others."""
    check_keywords(options)
    return options.pop("queue", None), options.pop("selector", None), options.pop("timeout", None)
