"""PushConsumer: gives the messages of topics to functions, as a member of a consumer group.

Source: RocketMQ DefaultMQPushConsumer.
"""

from __future__ import annotations

import ssl
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from rocketc.client.access import Access, access_to, check_consumer_group
from rocketc.client.concurrent_service import ConcurrentService, Listener
from rocketc.client.contexts import Context
from rocketc.client.counts import ConsumerCounts
from rocketc.client.hooked_consumer import HookedConsumer, state_of
from rocketc.client.hooks import Hooks
from rocketc.client.loop_thread import LoopThread, check_caller, end_dropped, give_back_loop, shared_loop
from rocketc.client.orderly_context import OrderlyContext
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.push_core import PushCore
from rocketc.client.security import Credentials, Tls
from rocketc.client.settings import ConsumerOptions, ConsumerSettings, settings_of
from rocketc.client.subscriptions import SubscriptionData, subscription_of
from rocketc.client.tracing import Tracer
from rocketc.errors import ClosedError, SubscriptionError

if TYPE_CHECKING:
    from typing_extensions import Unpack

L = TypeVar("L", bound=Listener)
M = TypeVar("M", bound=Callable[[Any, OrderlyContext], object])


class PushConsumer(HookedConsumer, Context):
    """A member of a consumer group: the members share the messages of their topics.

        with PushConsumer("billing", "127.0.0.1:9876") as consumer:
            @consumer.subscribe("orders", tags="web || app")
            def on_message(message): ...
            consumer.wait()

    A listener that returns has consumed its message. One that raises gets the message again, later each time; after
    max_reconsume_times it goes to the topic %DLQ% and the group. RetryLater sets the time. Plain functions run on up to
    consume_thread_max threads, coroutine functions on the event loop of the clients; a message may come twice.

    group        name of the consumer group. All members must have the same subscriptions
    name_server  addresses of the name servers, separated by `;`; None: those in NAMESRV_ADDR, or 127.0.0.1:9876
    orderly      the messages of one queue are consumed one after the other. If one fails, its queue waits, and the
                 message comes again; without max_reconsume_times, for ever
    credentials, tls  see AsyncProducer
    options      fields of ConsumerSettings, with RocketMQ's names; times are in ms if it does not say otherwise
    Raises TypeError and ValueError for wrong arguments. Methods raise ClosedError after the end of the context.

    >>> import queue, rocketc
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one")
    ...     found = queue.Queue()
    ...     with PushConsumer("billing", broker.name_server) as consumer:
    ...         _ = consumer.subscribe("orders", listener=found.put)
    ...         found.get(timeout=10).body
    b'one'
    """

    def __init__(
        self,
        group: str,
        name_server: str | None = None,
        *,
        orderly: bool = False,
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.group = check_consumer_group(group)
        self._access: Access = access_to(name_server, credentials, tls)
        self._is_orderly = orderly
        self._settings = settings_of(ConsumerSettings, options)
        self._subscriptions: dict[str, tuple[SubscriptionData, Listener, bool]] = {}
        self._without_listener: set[str] = set()  # topics of subscribe() whose decorator has not got its function
        self._hooks = Hooks("consume")
        self._thread: LoopThread | None = None
        self._core: PushCore | None = None
        self._tracer: Tracer | None = None
        self._is_closed = False
        self._end = threading.Event()
        self._turn = threading.RLock()  # of start() and close(); a signal handler may call close() in start()

    def __del__(self) -> None:
        thread, core = getattr(self, "_thread", None), getattr(self, "_core", None)
        if thread is not None and core is not None:
            end_dropped(type(self).__name__, self.group, thread, core.close)

    @property
    def client_id(self) -> str:
        """The id of this client; brokers show it in their lists of connections."""
        return self._running()[1].client_id

    def counts(self) -> ConsumerCounts:
        """Return what this consumer has counted. See rocketc.metrics.client_measures()."""
        return self._running()[1].counts()

    @overload
    def subscribe(
        self, topic: str, *, tags: str = "*", sql: str | None = None, auto_commit: Literal[True] = True
    ) -> Callable[[L], L]: ...

    @overload
    def subscribe(
        self, topic: str, *, tags: str = "*", sql: str | None = None, listener: L, auto_commit: Literal[True] = True
    ) -> Callable[[L], L]: ...

    @overload
    def subscribe(
        self, topic: str, *, tags: str = "*", sql: str | None = None, auto_commit: Literal[False]
    ) -> Callable[[M], M]: ...

    @overload
    def subscribe(
        self, topic: str, *, tags: str = "*", sql: str | None = None, listener: M, auto_commit: Literal[False]
    ) -> Callable[[M], M]: ...

    def subscribe(
        self,
        topic: str,
        *,
        tags: str = "*",
        sql: str | None = None,
        listener: Callable[..., object] | None = None,
        auto_commit: bool = True,
    ) -> Callable[[Any], Any]:
        """Give the messages of a topic to a function. It is a decorator, or the function is an argument.

        tags      tags between `||`; "*": all messages
        sql       an expression of SQL92 instead of tags; the broker must have enablePropertyFilter
        listener  called with a Message, or with a list of them if consume_message_batch_max_size is above 1
        auto_commit  False, of an orderly consumer: the listener is called with an OrderlyContext, too, and commits
        Raises IllegalMessageError for the name of the topic, SubscriptionError or SqlError for the expression,
        AnswerError if a broker refuses it. SubscriptionError also if the topic has a listener already, or if another
        consumer of the group in this process has other subscriptions. To change one, call unsubscribe() before.
        Without a function, start() and wait() raise SubscriptionError.
        """
        subscription = subscription_of(topic, tags, sql)
        if not auto_commit and not self._is_orderly:
            raise ValueError("auto_commit=False needs a consumer with orderly=True")
        if self._is_closed:
            raise ClosedError("the consumer is closed")

        def add(function: Callable[..., object]) -> None:
            self._without_listener.discard(topic)
            if not callable(function):
                raise TypeError(f"a listener must be a function, not {type(function).__name__}")
            check_caller()
            with self._turn:  # a start() in another thread comes to its end
                if topic in self._subscriptions:
                    raise SubscriptionError(
                        f"topic {topic!r} has a listener already: give all tags in one call, or call unsubscribe() "
                        "before you replace it"
                    )
                self._subscriptions[topic] = subscription, function, auto_commit
                if self._thread is None and not self._is_closed:
                    return
            try:
                thread, core = self._running()
                thread.run(core.subscribe(subscription, function, auto_commit=auto_commit))
            except BaseException:
                self._subscriptions.pop(topic, None)
                raise

        if listener is None:
            self._without_listener.add(topic)
        else:
            add(listener)
        return _Decorator(topic, add, is_used=listener is not None)

    def _check_listeners(self) -> None:
        """Raise SubscriptionError if a subscribe() has not got its function."""
        for topic in sorted(self._without_listener):
            raise SubscriptionError(_without_listener(topic))

    @property
    def _state(self) -> str:
        return state_of(self._thread, self._is_closed)

    def _check_not_started(self) -> None:
        if self._thread is not None or self._is_closed:
            raise ClosedError("hooks are added before a client starts")

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic, but for those that failed before: they still come to its listener."""
        check_caller()
        with self._turn:
            self._without_listener.discard(topic)
            self._subscriptions.pop(topic, None)
            if self._thread is None and not self._is_closed:
                return
        thread, core = self._running()
        thread.run(core.unsubscribe(topic))

    def start(self) -> None:
        """Join the group, and begin to receive. `with` does it."""
        check_caller()
        with self._turn:
            if self._is_closed:
                raise ClosedError("the consumer is closed; a consumer cannot be started twice")
            if self._thread is not None:
                return
            self._check_listeners()
            thread = shared_loop()
            try:
                self._core = thread.run(self._open())
                self._tracer = self._core.tracer
            except BaseException:
                give_back_loop(thread)
                raise
            self._thread = thread
        if self._end.is_set():  # close() was called by a signal handler, or by another thread
            self.close()
            raise ClosedError("the consumer was closed while it started")

    async def _open(self) -> PushCore:
        kind = OrderlyService if self._is_orderly else ConcurrentService
        core = PushCore(self._access, self.group, self._settings, kind, self._hooks)
        try:
            for subscription, listener, auto_commit in self._subscriptions.values():
                await core.subscribe(subscription, listener, auto_commit=auto_commit)
            await core.start()
        except BaseException:
            await core.close()
            raise
        return core

    def suspend(self) -> None:
        """Pull nothing until resume(); messages that were pulled are still given to the listeners."""
        thread, core = self._running()
        thread.call(core.suspend)

    def resume(self) -> None:
        """End suspend()."""
        thread, core = self._running()
        thread.call(core.resume)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until another thread calls close(); return whether one did.

        timeout  seconds; None: for ever. Ctrl-C, and what a signal handler raises, end the wait
        Raises SubscriptionError if a subscribe() lacks a listener: no message would come.
        """
        if not self._end.is_set():
            self._running()
            self._check_listeners()
        return self._end.wait(timeout)

    def close(self) -> None:
        """Leave the group: wait for the listeners, write the offsets, give the queues to the other members.

        It waits for await_termination_millis_when_shutdown at most. Messages that are not consumed then come again, to
        another member or at the next start. If a listener calls it, the messages of this call are among them.
        """
        check_caller()
        self._is_closed = True
        self._end.set()
        thread = self._thread
        if thread is not None and not thread.is_here:
            return  # the parent of this process has it, and maybe the lock
        with self._turn:
            thread, core = self._thread, self._core
            self._thread = self._core = None
        if thread is not None and core is not None:
            try:
                thread.run(core.close(int(core.is_called_by_listener())))
            finally:
                give_back_loop(thread)

    def _running(self) -> tuple[LoopThread, PushCore]:
        thread, core = self._thread, self._core  # once: another thread may close the consumer
        if thread is None or core is None:
            raise ClosedError(
                "the consumer is not started, or it is closed: use it as a context manager, or call start()"
            )
        thread.check_process()
        return thread, core


class _Decorator:
    """What subscribe() returns: it gives the topic to the function that it decorates."""

    def __init__(self, topic: str, add: Callable[[Callable[..., object]], None], *, is_used: bool) -> None:
        self._topic, self._add, self._is_used = topic, add, is_used

    def __call__(self, function: Callable[..., object]) -> Callable[..., object]:
        self._is_used = True
        self._add(function)
        return function

    def __del__(self) -> None:
        if not self._is_used:
            warnings.warn(_without_listener(self._topic), RuntimeWarning, stacklevel=2)


def _without_listener(topic: str) -> str:
    return f"subscribe({topic!r}) lacks a listener: decorate a function with it, or give listener="
