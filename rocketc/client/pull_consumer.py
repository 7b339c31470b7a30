"""PullConsumer: messages that a program polls, from any thread. It is the AsyncPullConsumer on an event loop in the
background."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rocketc.client.async_pull_consumer import AsyncPullConsumer
from rocketc.client.contexts import Context
from rocketc.client.counts import ConsumerCounts
from rocketc.client.hooked_consumer import HookedConsumer, state_of
from rocketc.client.loop_thread import LoopThread, check_caller, end_dropped, give_back_loop, shared_loop
from rocketc.client.pull_core import Poll
from rocketc.client.routes import MessageQueue
from rocketc.client.security import Credentials, Tls
from rocketc.client.settings import PullOptions
from rocketc.client.subscriptions import subscription_of
from rocketc.errors import ClosedError
from rocketc.read._message import Message

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")


class PullConsumer(HookedConsumer, Context):
    """Returns messages when the program asks for them, and pulls some ahead.

        with PullConsumer("billing", "127.0.0.1:9876", topics=["orders"]) as consumer:
            while True:
                for message in consumer.poll(): ...

    group, name_server, topics, sql, credentials, tls, options  see AsyncPullConsumer; it also says what is committed
    It is also an iterator of single messages: `for message in consumer`.
    Methods raise ClosedError before start(), after close(), and in a forked child. Threads may share it; then use
    auto_commit=False, because a poll() means that its caller has finished the messages of all earlier ones.

    >>> import rocketc
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one")
    ...     with PullConsumer("billing", broker.name_server, topics=["orders"]) as consumer:
    ...         [message.body for message in consumer.poll()]
    [b'one']
    """

    def __init__(
        self,
        group: str,
        name_server: str | None = None,
        *,
        topics: Iterable[str] | Mapping[str, str] | None = None,
        sql: str | Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        **options: Unpack[PullOptions],
    ) -> None:
        self._consumer = AsyncPullConsumer(
            group, name_server, topics=topics, sql=sql, credentials=credentials, tls=tls, **options
        )
        self.group = group
        self._access, self._hooks = self._consumer._access, self._consumer._hooks
        self._thread: LoopThread | None = None
        self._is_closed = False
        self._turn = threading.RLock()  # of start() and close(); a signal handler may call close() in start()

    def __del__(self) -> None:
        if (thread := getattr(self, "_thread", None)) is not None:
            end_dropped(type(self).__name__, self.group, thread, self._consumer.close)

    @property
    def client_id(self) -> str:
        """The id of this client; brokers show it in their lists of connections."""
        self._opened()
        return self._consumer.client_id

    def counts(self) -> ConsumerCounts:
        """Return what this consumer has counted. See rocketc.metrics.client_measures()."""
        self._opened()
        return self._consumer.counts()

    @property
    def dropped_traces(self) -> int:
        """The records of message trace that were not written: too many waited, or a send of them failed."""
        return self._consumer.dropped_traces

    def start(self) -> None:
        """Join the group, and begin to pull. `with` does it."""
        check_caller()
        with self._turn:
            if self._is_closed:
                raise ClosedError("the consumer is closed; a consumer cannot be started twice")
            if self._thread is not None:
                return
            thread = shared_loop()
            try:
                thread.run(self._consumer.start())
            except BaseException:
                give_back_loop(thread)
                raise
            self._thread = thread

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Receive the messages of a topic, as a member of the group. See AsyncPullConsumer.subscribe()."""
        check_caller()
        subscription = subscription_of(topic, tags, sql)
        with self._turn:
            if self._is_new():
                self._consumer._note_topic(subscription)
                return
        self._run(self._consumer.subscribe(topic, tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic: other members get its queues."""
        check_caller()
        with self._turn:
            if self._is_new():
                self._consumer._topics.pop(topic, None)
                return
        self._run(self._consumer.unsubscribe(topic))

    def assign(self, queues: Collection[MessageQueue], tags: str = "*", *, sql: str | None = None) -> None:
        """Read these queues and no others, not as a member of the group. See AsyncPullConsumer.assign()."""
        check_caller()
        chosen = self._consumer._chosen(queues, tags, sql)
        with self._turn:
            if self._is_new():
                self._consumer._note_queues(*chosen)
                return
        self._run(self._consumer.assign(queues, tags, sql=sql))

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer has now, sorted."""
        return self._run(_called(self._consumer.assignment))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Ask for all queues of a topic that can be read. Raises TopicNotFoundError, an error of the name servers."""
        return self._run(self._consumer.fetch_message_queues(topic))

    def poll(self, timeout: int | None = None, max_records: int | None = None) -> list[Message]:
        """Return the next messages: at least one if it comes in time. Those of a queue come in order.

        timeout      ms to wait for the first one; None: poll_timeout_millis
        max_records  the most; None: pull_batch_size
        Ctrl-C ends it, and the next poll() returns the messages.
        """
        return self._polled(lambda poll: self._consumer._poll(timeout, max_records, poll))

    def _polled(self, begin: Callable[[Poll], Coroutine[Any, Any, list[Message]]]) -> list[Message]:
        thread, poll = self._opened(), Poll()
        try:
            return thread.run(begin(poll))
        except BaseException:
            with contextlib.suppress(ClosedError):
                thread.call(lambda: self._consumer._give_back(poll))
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Wait for the next message: a poll() of one. The iteration ends when another thread calls close()."""
        try:
            return self._polled(self._consumer._next)[0]
        except ClosedError:
            if not self._is_closed:
                raise
            raise StopIteration from None

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Return no messages of these queues until resume(). See AsyncPullConsumer.pause()."""
        self._run(_called(lambda: self._consumer.pause(queues)))

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """End pause(). Raises AssignmentError for a queue that this consumer does not have."""
        self._run(_called(lambda: self._consumer.resume(queues)))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset. See AsyncPullConsumer.seek()."""
        self._run(self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message of a queue. Raises as seek()."""
        self._run(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the last message of a queue. Raises as seek()."""
        self._run(self._consumer.seek_to_end(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what poll() returned so far, or these offsets. See AsyncPullConsumer.commit()."""
        self._run(self._consumer.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Ask for the offset that the group has in any queue. None: there is none."""
        return self._run(self._consumer.committed(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset of the first message of any queue."""
        return self._run(self._consumer.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset after the last message of any queue."""
        return self._run(self._consumer.max_offset(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp: int | datetime) -> int:
        """Ask for the offset of the first message that was stored at or after a time. See AsyncPullConsumer."""
        return self._run(self._consumer.offset_for_timestamp(queue, timestamp))

    def close(self) -> None:
        """Commit what poll() returned, if commits are automatic, and leave the group."""
        self._close(is_failed=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._close(is_failed=kind is not None)

    def _close(self, is_failed: bool) -> None:
        check_caller()
        thread = self._thread
        if thread is not None and not thread.is_here:
            return  # the parent of this process has it, and maybe the lock
        with self._turn:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._consumer._close(is_failed))
            finally:
                give_back_loop(thread)

    @property
    def _state(self) -> str:
        return state_of(self._thread, self._is_closed)

    def _check_not_started(self) -> None:
        if not self._is_new():
            raise ClosedError("hooks are added before a client starts")

    def _is_new(self) -> bool:
        return self._thread is None and not self._is_closed

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            thread = self._opened()
        except BaseException:
            work.close()
            raise
        return thread.run(work)

    def _opened(self) -> LoopThread:
        thread = self._thread  # once: another thread may close the consumer
        if thread is None:
            raise ClosedError(
                "the consumer is not started, or it is closed: use it as a context manager, or call start()"
            )
        thread.check_process()
        return thread


async def _called(function: Callable[[], T]) -> T:
    return function()
