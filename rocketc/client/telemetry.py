"""Spans of OpenTelemetry for sends and listeners: `pip install 'rocketc[opentelemetry]'`, and an SDK that exports them.

    telemetry = Telemetry()
    producer = telemetry.producer(Producer("shop"))
    consumer.subscribe("orders", listener=telemetry.listener(on_message, group="billing"))

A message carries the context of its send in its properties (`traceparent`), so that the span of its listener belongs to
the same trace, in whatever process and language. Names and attributes are the semantic conventions for messaging.
A client that is not given to Telemetry does nothing for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rocketc._layout import PROPERTY_UNIQUE_KEY
from rocketc.client.async_producer import AsyncProducer
from rocketc.client.async_transaction_producer import AsyncTransactionProducer
from rocketc.client.batching import NewMessage
from rocketc.client.concurrent_service import Listener
from rocketc.client.half_messages import Half
from rocketc.client.names import CLUSTER
from rocketc.client.producer import Producer
from rocketc.client.replies import reply_topic
from rocketc.client.send_results import SendResult
from rocketc.client.transaction_producer import TransactionProducer
from rocketc.read._message import Message

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    raise ImportError(
        "rocketc.client.telemetry needs opentelemetry-api: pip install 'rocketc[opentelemetry]'"
    ) from None

P = TypeVar("P", bound=Producer | AsyncProducer)
L = TypeVar("L", bound=Listener)

_SYSTEM = {"messaging.system": "rocketmq"}
_ERROR = "error.type"


class Telemetry:
    """Makes spans.

    provider  of the tracer; None: the global one

    >>> import queue, rocketc
    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    >>> provider, spans = TracerProvider(), InMemorySpanExporter()
    >>> provider.add_span_processor(SimpleSpanProcessor(spans))
    >>> with rocketc.Broker() as broker:
    ...     with Telemetry(provider).producer(rocketc.client.Producer("shop", broker.name_server)) as producer:
    ...         _ = producer.send("orders", b"one")
    >>> [(span.name, span.kind.name) for span in spans.get_finished_spans()]
    [('send orders', 'PRODUCER')]
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("rocketc.client", tracer_provider=provider)

    # sends

    def producer(self, producer: P) -> P:
        """Make a span for each later send of this producer, and return the producer. Call it once for a producer."""
        one: Any = producer  # its methods are replaced on this object only
        if isinstance(producer, AsyncProducer):
            for name in ("send", "send_oneway", "request"):
                setattr(one, name, self._awaited(producer, getattr(one, name)))
            one.reply = self._awaited(producer, one.reply, _topic_of_reply)
            one.send_many = self._many_awaited(producer, one.send_many)
            if isinstance(producer, AsyncTransactionProducer):
                one._send_half = self._awaited(producer, one._send_half)
        else:
            for name in ("send", "send_oneway", "request"):
                setattr(one, name, self._called(producer, getattr(one, name)))
            one.reply = self._called(producer, one.reply, _topic_of_reply)
            one.send_async = self._future(producer, one.send_async)
            one.send_many = self._many(producer, one.send_many)
            if isinstance(producer, TransactionProducer):
                one._send_half = self._called(producer, one._send_half)
        return producer

    def _begin(self, group: str, topic: object, attributes: Mapping[str, Any]) -> trace.Span:
        return self._tracer.start_span(
            f"send {topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes={
                **_SYSTEM,
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": str(topic),
                "messaging.rocketmq.client_group": group,
                **attributes,
            },
        )

    def _begin_one(
        self, group: str, topic: object, body: object, options: dict[str, Any]
    ) -> tuple[trace.Span, dict[str, Any]]:
        """Begin the span of a message; return it, and the options of the send with the context."""
        attributes: dict[str, Any] = {}
        if isinstance(body, bytes | bytearray | memoryview):
            attributes["messaging.message.body.size"] = len(body)
        if isinstance(options.get("tags"), str):
            attributes["messaging.rocketmq.message.tag"] = options["tags"]
        keys = options.get("keys")
        if keys is not None:
            try:
                keys = [keys] if isinstance(keys, str) else list(keys)
                options = {**options, "keys": keys}  # an iterator gives its keys only once
                attributes["messaging.rocketmq.message.keys"] = [str(key) for key in keys]
            except TypeError:
                pass  # send() refuses it
        if isinstance(options.get("shard"), str):
            attributes["messaging.rocketmq.message.group"] = options["shard"]
        span = self._begin(group, topic, attributes)
        options = {**options, "properties": _with_context(options.get("properties"), span)}
        return span, options

    def _called(
        self, producer: Producer, send: Callable[..., Any], topic_of: Callable[[Any], object] = lambda topic: topic
    ) -> Callable[..., Any]:
        @functools.wraps(send)
        def traced(topic: Any, body: Any, **options: Any) -> Any:
            span, options = self._begin_one(producer.group, topic_of(topic), body, options)
            with _ending(span):
                return _sent(span, send(topic, body, **options))

        return traced

    def _awaited(
        self, producer: AsyncProducer, send: Callable[..., Any], topic_of: Callable[[Any], object] = lambda topic: topic
    ) -> Callable[..., Any]:
        @functools.wraps(send)
        async def traced(topic: Any, body: Any, **options: Any) -> Any:
            span, options = self._begin_one(producer.group, topic_of(topic), body, options)
            with _ending(span):
                return _sent(span, await send(topic, body, **options))

        return traced

    def _future(self, producer: Producer, send: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(send)
        def traced(topic: str, body: Any, **options: Any) -> Any:
            span, options = self._begin_one(producer.group, topic, body, options)
            try:
                future: concurrent.futures.Future[SendResult] = send(topic, body, **options)
            except BaseException as error:
                _failed(span, error)
                span.end()
                raise
            future.add_done_callback(functools.partial(_finish, span))
            return future

        return traced

    def _many(self, producer: Producer, send: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(send)
        def traced(topic: str, messages: Any, **options: Any) -> Any:
            span, messages = self._begin_many(producer.group, topic, messages)
            with _ending(span):
                return send(topic, messages, **options)

        return traced

    def _many_awaited(self, producer: AsyncProducer, send: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(send)
        async def traced(topic: str, messages: Any, **options: Any) -> Any:
            span, messages = self._begin_many(producer.group, topic, messages)
            with _ending(span):
                return await send(topic, messages, **options)

        return traced

    def _begin_many(self, group: str, topic: str, messages: Any) -> tuple[trace.Span, Any]:
        if not isinstance(messages, Iterable) or isinstance(messages, str | bytes | bytearray | memoryview):
            return self._begin(group, topic, {}), messages  # send_many() refuses it
        messages = list(messages)
        span = self._begin(group, topic, {"messaging.batch.message_count": len(messages)})
        return span, [
            dataclasses.replace(one, properties=_with_context(one.properties, span))
            if isinstance(one, NewMessage)
            else NewMessage(one, properties=_with_context(None, span))
            for one in messages
        ]

    # listeners

    def listener(self, function: L, group: str) -> L:
        """Return a listener that calls `function` within a span. It is a coroutine function if `function` is one.

        group  of the consumer

        The span of one message belongs to the trace of its send. That of several messages is a new trace, unless there
        is a current span. Both have links to the sends.
        """
        call = getattr(function, "__call__", None)  # noqa: B004
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):

            @functools.wraps(function)
            async def awaited(messages: Any, *decision: Any) -> object:
                with self.process(messages, group):
                    return await function(messages, *decision)  # type: ignore[misc]

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(messages: Any, *decision: Any) -> object:
            with self.process(messages, group):
                return function(messages, *decision)

        return called  # type: ignore[return-value]

    @contextlib.contextmanager
    def process(self, messages: Message | Sequence[Message], group: str) -> Iterator[trace.Span]:
        """Make a span for the work on one message or several, for example of an AsyncConsumer. An error ends it, too.

        group  of the consumer
        """
        batch = [messages] if isinstance(messages, Message) else list(messages)
        first = batch[0]
        contexts = [propagate.extract(_carried(one)) for one in batch]
        links = [
            trace.Link(span.get_span_context())
            for span in map(trace.get_current_span, contexts)
            if span.get_span_context().is_valid
        ]
        attributes: dict[str, Any] = {
            **_SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": first.topic,
            "messaging.rocketmq.client_group": group,
            "messaging.consumer.group.name": group,
        }
        if isinstance(messages, Message):
            attributes |= {
                "messaging.message.id": first.properties.get(PROPERTY_UNIQUE_KEY) or first.msg_id,
                "messaging.message.body.size": len(first.body),
                "messaging.destination.partition.id": str(first.queue_id),
            }
            if first.tags:
                attributes["messaging.rocketmq.message.tag"] = first.tags
            if first.keys:
                attributes["messaging.rocketmq.message.keys"] = first.keys.split()
        else:
            attributes["messaging.batch.message_count"] = len(batch)
        has_parent = isinstance(messages, Message) and links and not trace.get_current_span().is_recording()
        span = self._tracer.start_span(
            f"process {first.topic}",
            contexts[0] if has_parent else None,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        around = _within(contexts[0]) if has_parent else contextlib.nullcontext()
        with around, trace.use_span(span, record_exception=False, set_status_on_exception=False), _ending(span):
            yield span


def _topic_of_reply(message: Any) -> object:
    """The topic of the reply to a request. What is not a message is left to reply(), to refuse."""
    return reply_topic(message.properties.get(CLUSTER, "")) if isinstance(message, Message) else message


def _carried(message: Message) -> dict[str, str]:
    """The properties of a message, in which a propagator looks for a context."""
    return dict(message.properties)


def _with_context(properties: Any, span: trace.Span) -> Any:
    """The properties of a message with the context of its span. What is not a mapping is left to send(), to refuse."""
    if properties is not None and not isinstance(properties, Mapping):
        return properties
    carrier = dict(properties or {})
    propagate.inject(carrier, trace.set_span_in_context(span))
    return carrier


def _sent(span: trace.Span, result: Any) -> Any:
    sent = result
    if isinstance(result, Half):
        span.set_attribute("messaging.rocketmq.message.type", "transaction")
        sent = result.sent
    if isinstance(sent, SendResult):
        span.set_attribute("messaging.message.id", sent.msg_id)
        span.set_attribute("messaging.destination.partition.id", str(sent.queue.queue_id))
    return result


def _failed(span: trace.Span, error: BaseException) -> None:
    span.set_attribute(_ERROR, type(error).__qualname__)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
    if isinstance(error, Exception):
        span.record_exception(error)


@contextlib.contextmanager
def _within(carried: context.Context) -> Iterator[None]:
    """Make the context of a message the current one, with its baggage."""
    token = context.attach(carried)
    try:
        yield
    finally:
        context.detach(token)


@contextlib.contextmanager
def _ending(span: trace.Span) -> Iterator[None]:
    """End a span, with the error if there is one."""
    try:
        yield
    except BaseException as error:
        _failed(span, error)
        raise
    finally:
        span.end()


def _finish(span: trace.Span, future: concurrent.futures.Future[SendResult]) -> None:
    if future.cancelled():
        _failed(span, asyncio.CancelledError())
    elif (error := future.exception()) is not None:
        _failed(span, error)
    else:
        _sent(span, future.result())
    span.end()
