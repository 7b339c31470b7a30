"""Producer: sends messages, from any thread. It is the AsyncProducer on an event loop in the background."""

from __future__ import annotations

import concurrent.futures
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import TYPE_CHECKING

from rocketc.client.async_producer import AsyncProducer, unknown_of_many
from rocketc.client.batching import NewMessage
from rocketc.client.contexts import Context
from rocketc.client.counts import ProducerCounts
from rocketc.client.hook_contexts import SendContext
from rocketc.client.in_flight import InFlight
from rocketc.client.loop_thread import LoopThread, check_caller, end_dropped, give_back_loop, shared_loop
from rocketc.client.outgoing import Body
from rocketc.client.routes import MessageQueue
from rocketc.client.security import Tls
from rocketc.client.send_results import SendResult
from rocketc.client.settings import ProducerOptions
from rocketc.client.waiters import Waiter
from rocketc.errors import ClosedError
from rocketc.read._message import Message
from rocketc.remoting.command import Command
from rocketc.remoting.signing import Credentials

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack

    from rocketc.client.async_producer import ReplyOptions, SendOptions


class Producer(Context):
    """Sends messages to the topics of a cluster, RocketMQ's or this project's. Threads may share it.

    group, name_server, credentials, tls, options  see AsyncProducer
    Methods raise ClosedError after the end of the context, and in a forked child.

    >>> import rocketc
    >>> with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
    ...     sent = producer.send("orders", b"one", tags="web", keys="o-1 c-7")
    >>> sent.status, sent.queue.topic, sent.queue_offset
    (<SendStatus.SEND_OK: 0>, 'orders', 0)
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
        self._begin_with(AsyncProducer(group, name_server, credentials=credentials, tls=tls, **options))

    def _begin_with(self, producer: AsyncProducer) -> None:
        self._producer = producer
        self.group = self._producer.group
        self._thread: LoopThread | None = None
        self._turn = threading.RLock()  # of start() and close(); a signal handler may call close() in start()
        self._lock = threading.RLock()  # of `_in_flight`; the loop never waits for it
        self._ended: deque[int] = deque()  # sizes that `_in_flight` has not got back yet
        settings = self._producer.settings
        self._in_flight = InFlight(settings.max_in_flight, settings.max_bytes_in_flight)  # of send_async()

    def __del__(self) -> None:
        if (thread := getattr(self, "_thread", None)) is not None:
            end_dropped(type(self).__name__, self.group, thread, self._producer.close)

    def __repr__(self) -> str:
        thread, producer = self._thread, self._producer
        state = producer._state if thread is None or thread.is_here else "closed"  # a forked child cannot use it
        return f"<{type(self).__name__} {self.group}, name server {';'.join(producer._access.addresses)}, {state}>"

    @property
    def client_id(self) -> str:
        """The id of this client; brokers show it in their lists of connections."""
        self._opened()
        return self._producer.client_id

    def counts(self) -> ProducerCounts:
        """Return what this producer has counted. See rocketc.metrics.client_measures()."""
        self._opened()
        return self._producer.counts()

    @property
    def dropped_traces(self) -> int:
        """The records of message trace that were not written. See AsyncProducer.dropped_traces."""
        return self._producer.dropped_traces

    def start(self) -> None:
        """Begin. `with` does it."""
        check_caller()
        with self._turn:
            if self._thread is not None:
                return
            thread = shared_loop()
            try:
                thread.run(self._producer.start())
            except BaseException:
                give_back_loop(thread)
                raise
            self._thread = thread

    def add_send_hook(
        self,
        before: Callable[[SendContext], object] | None = None,
        after: Callable[[SendContext], object] | None = None,
    ) -> None:
        """Call functions before and after each attempt of a send, on the thread of the clients: they must not block.

        Call this before start(). See AsyncProducer.add_send_hook().

        >>> import rocketc
        >>> with rocketc.Broker() as broker:
        ...     producer = Producer("shop", broker.name_server)
        ...     producer.add_send_hook(after=lambda context: print(context.message.topic, context.result.status.name))
        ...     with producer:
        ...         _ = producer.send("orders", b"one")
        orders SEND_OK
        """
        self._producer.add_send_hook(before, after)

    def add_rpc_hook(
        self,
        before: Callable[[str, Command], object] | None = None,
        after: Callable[[str, Command, Command], object] | None = None,
    ) -> None:
        """Call functions with each request to servers, and with its answer. See AsyncProducer.add_rpc_hook()."""
        self._producer.add_rpc_hook(before, after)

    def close(self) -> None:
        """Wait for the sends that are under way, leave the group, and close the connections."""
        check_caller()
        thread = self._thread
        if thread is not None and not thread.is_here:
            return  # the parent of this process has it, and maybe the lock
        with self._turn:
            thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._producer.close())
            finally:
                give_back_loop(thread)

    def send(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> SendResult:
        """Send a message, and return where it is stored. Arguments and errors: see AsyncProducer.send()."""
        return self._opened().result(Waiter[SendResult](), self._producer._begin_send, topic, body, options)

    def send_async(
        self, topic: str, body: Body, **options: Unpack[SendOptions]
    ) -> concurrent.futures.Future[SendResult]:
        """Send a message, and return the future of its result at once.

        Raises BackpressureError if too much is in flight; otherwise errors are those of the future.

        >>> import rocketc
        >>> with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        ...     producer.send_async("orders", b"one").result().queue_offset
        0
        """
        thread = self._opened()
        size = len(body) if isinstance(body, Sized) else 0  # the future has the TypeError of send()
        with self._lock:
            while self._ended:
                self._in_flight.give_back(self._ended.popleft())
            self._in_flight.take_now(size)
        try:
            future = thread.submit_to(self._producer._begin_send, topic, body, options)
        except BaseException:
            self._ended.append(size)
            raise
        future.add_done_callback(lambda done: self._ended.append(size))
        return future

    def send_oneway(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> None:
        """Send a message without an answer: whether it is stored is not known. See AsyncProducer.send_oneway()."""
        self._opened().run(self._producer.send_oneway(topic, body, **options))

    def request(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> Message:
        """Send a message that asks for a reply, and return the reply. See AsyncProducer.request().

        >>> import rocketc
        >>> with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        ...     producer.request("prices", b"a bell?", timeout=50)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rocketc.errors.RequestTimeoutError: topic 'prices': no reply came in 50 ms; the request is stored, its id is ...
        """
        return self._opened().run(self._producer.request(topic, body, **options))

    def reply(self, message: Message, body: Body, **options: Unpack[ReplyOptions]) -> SendResult:
        """Reply to a message that was sent by request(). See AsyncProducer.reply()."""
        return self._opened().run(self._producer.reply(message, body, **options))

    def recall(self, topic: str, recall_handle: str, *, timeout: int | None = None) -> str:
        """Take a timed message back before its time, and return its id. See AsyncProducer.recall()."""
        return self._opened().run(self._producer.recall(topic, recall_handle, timeout=timeout))

    def send_many(
        self,
        topic: str,
        messages: Iterable[Body | NewMessage],
        *,
        queue: MessageQueue | None = None,
        timeout: int | None = None,
        **unknown: Never,
    ) -> list[SendResult]:
        """Send messages as batches, and return their results in order. See AsyncProducer.send_many().

        >>> import rocketc
        >>> with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        ...     [sent.queue_offset for sent in producer.send_many("orders", [b"one", b"two"])]
        [0, 1]
        """
        if unknown:
            raise unknown_of_many(unknown)
        waiter = Waiter[list[SendResult]]()
        return self._opened().result(waiter, self._producer._begin_send_many, topic, messages, queue, timeout)

    def _opened(self) -> LoopThread:
        thread = self._thread  # once: another thread may close the producer
        if thread is None:
            raise ClosedError(
                "the producer is not started, or it is closed: use it as a context manager, or call start()"
            )
        thread.check_process()
        return thread
