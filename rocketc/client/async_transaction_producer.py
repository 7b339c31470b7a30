"""AsyncTransactionProducer: sends messages that belong to a local transaction, from a coroutine.

Source: RocketMQ TransactionMQProducer, DefaultMQProducerImpl.sendMessageInTransaction, endTransaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rocketc.client.async_producer import AsyncProducer, PlainOptions, check_keywords
from rocketc.client.connections import UNREACHABLE
from rocketc.client.counts import ProducerCounts
from rocketc.client.half_messages import Half, check_options, half_properties, prepared
from rocketc.client.hook_contexts import EndTransactionContext
from rocketc.client.hooks import Hooks
from rocketc.client.instance import AddressHandler, ClientInstance
from rocketc.client.open_transaction import OpenTransaction
from rocketc.client.outgoing import Body
from rocketc.client.routes import MessageQueue
from rocketc.client.security import Tls
from rocketc.client.send_results import SendStatus
from rocketc.client.sender import Selector
from rocketc.client.settings import TransactionOptions, TransactionSettings, settings_of
from rocketc.client.transaction_checks import CHECK_TRANSACTION_STATE, Asked, Check, Checks, check_function
from rocketc.client.transaction_states import (
    ROLLBACK,
    UNKNOWN,
    LocalTransactionState,
    State,
    TransactionResult,
    check_local,
    log_unwritten,
    remark_of,
    state_of,
)
from rocketc.client.user_coroutines import result_of
from rocketc.client.waiters import End, end_with
from rocketc.errors import AnswerError, HalfMessageError, NotSentError, RocketcError
from rocketc.read._message import Message
from rocketc.remoting.requests import CODES
from rocketc.remoting.signing import Credentials
from rocketc.tables.topics import topic_name_error

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_log = logging.getLogger("rocketc.client")

END_TRANSACTION = CODES["END_TRANSACTION"]

LocalTransaction = Callable[[Message], State | Awaitable[State]]


class HalfOptions(PlainOptions, total=False):
    """The keywords of send_in_transaction() and transaction(), for type checkers: those of send() without a delay."""

    queue: MessageQueue | None
    selector: Selector | None
    timeout: int | None


class AsyncTransactionProducer(AsyncProducer):
    """Sends messages that consumers get only if a local transaction, for example of a database, is committed.

        async with AsyncTransactionProducer("shop", check=was_order_stored) as producer:
            async with producer.transaction("orders", b"...", keys="o-7"):
                await store_order("o-7")

    check   function or coroutine function that gets a message and returns the LocalTransactionState of its transaction.
            Brokers ask any producer of the group if a transaction did not end, for example because a process died: look
            into the database. A plain function runs on a thread. If it raises, the broker asks again
    topics  brokers of these topics may ask from the start on. Without topics, only brokers that create topics
            may ask, and those that this producer has sent to
    options  fields of TransactionSettings; for the other arguments see AsyncProducer
    Methods: those of AsyncProducer, and the ones below.

    >>> import asyncio, rocketc
    >>> async def check(message):
    ...     return "COMMIT_MESSAGE" if message.keys in database else "ROLLBACK_MESSAGE"
    >>> producer = AsyncTransactionProducer("shop", "127.0.0.1:9876", check=check, topics=["orders"])
    >>> producer.settings.check_request_hold_max
    2000
    """

    def __init__(
        self,
        group: str,
        name_server: str | None = None,
        *,
        check: Check,
        topics: Iterable[str] = (),
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        **options: Unpack[TransactionOptions],
    ) -> None:
        super().__init__(group, name_server, credentials=credentials, tls=tls, **options)  # type: ignore[misc]
        self._check = check_function(check)
        self._topics = _topics(topics)
        self._end_hooks = Hooks("transaction")
        self._open: dict[Half, asyncio.Future[None]] = {}  # halves whose transaction runs; done at its end
        self._ends: Counter[str] = Counter()  # those that were written, by the name of the state
        self._ending: set[asyncio.Task[Any]] = set()  # write END_TRANSACTION, also if their caller is canceled

    def counts(self) -> ProducerCounts:
        """Return what this producer has counted, also the ends of transactions. Any thread may call it."""
        return replace(super().counts(), ends=dict(self._ends))

    def _settings_of(self, options: Mapping[str, Any]) -> TransactionSettings:
        return settings_of(TransactionSettings, options)

    def _address_handlers(self) -> Mapping[int, AddressHandler]:
        return {CHECK_TRANSACTION_STATE: self._checks.take}

    def add_end_transaction_hook(self, hook: Callable[[EndTransactionContext], object]) -> None:
        """Call a function after each END_TRANSACTION, on the event loop. Call this before start().

        What it raises is logged. Raises TypeError, ClosedError after start().
        """
        self._check_not_started()
        self._end_hooks.add(None, hook)

    async def start(self) -> None:
        """Begin. `async with` does it. Brokers that may ask get to know this producer, in the background."""
        if self._instance is not None:
            self._opened()
            return
        settings = self._settings
        assert isinstance(settings, TransactionSettings)
        self._checks = Checks(
            self.group, self._check, settings.check_thread_pool_max_size, settings.check_request_hold_max,
            self._answer_check,
        )  # fmt: skip
        await super().start()
        instance = self._opened()
        if self._tracer is not None:
            self._end_hooks = self._end_hooks.with_one(self._tracer.end_hook)
        instance.begin(self._meet_askers(instance))

    async def _meet_askers(self, instance: ClientInstance) -> None:
        """Send heartbeats to the brokers that may ask. What fails here is done again by the refresh of the routes."""
        for topic in (*self._topics, self._settings.create_topic_key):
            try:
                await instance.routes.watch(topic, self._loop.time() + self._settings.mq_client_api_timeout / 1000)
            except (*UNREACHABLE, AnswerError) as error:
                _log.warning("the route of topic %s cannot be asked for: %s", topic, error)
        for address, name in instance.routes.brokers().items():
            instance.heartbeats.heartbeat_to(name, address)

    async def close(self) -> None:
        """Wait for transactions and checks that run, for send_msg_timeout at most; then leave the group.

        Transactions that run longer end with UNKNOW: the broker asks another producer of the group.
        """
        if self._instance is None:
            return
        seconds = self._settings.send_msg_timeout / 1000
        try:
            self._in_flight.close()
            checks = asyncio.ensure_future(self._checks.close(seconds))
            try:
                if self._open:
                    await asyncio.wait(list(self._open.values()), timeout=seconds)
                for half in list(self._open):
                    self._begin_end(half, UNKNOWN, "the producer was closed")
                await checks
                if self._ending:
                    await asyncio.wait(list(self._ending))
            finally:  # also if this is canceled
                checks.cancel()
        finally:
            await super().close()

    async def send_in_transaction(
        self, topic: str, body: Body, local_transaction: LocalTransaction, **options: Unpack[HalfOptions]
    ) -> TransactionResult:
        """Send a half message, run the local transaction, and end the message as it says.

        local_transaction  function or coroutine function that gets the message, and returns its LocalTransactionState.
                           A plain function runs on the event loop. If it raises, the state is UNKNOW, the result has
                           the exception, and the check function decides later
        Other arguments and errors: see send(); a message of a transaction cannot be delayed.
        If the broker stored the half message with another status than SEND_OK, the local transaction does not run, and
        the message is rolled back. Ctrl-C or a cancellation in the local transaction ends it with UNKNOW.
        """
        check_local(local_transaction)
        half = await self._send_half(topic, body, **options)
        if half.sent.status is not SendStatus.SEND_OK:
            return TransactionResult(half.sent, ROLLBACK, None, await self._end(half, ROLLBACK, half.status_remark))
        failure: Exception | None = None
        try:
            returned: object = local_transaction(half.message)
            if inspect.isawaitable(returned):
                returned = await result_of(returned)
            state, remark = state_of(returned), None
        except Exception as error:
            failure, state, remark = error, UNKNOWN, remark_of(error)
            half.log_failure(error)
        except GeneratorExit:
            self._forget(half)
            raise
        except BaseException as error:
            self._begin_end(half, UNKNOWN, remark_of(error))
            raise
        return TransactionResult(half.sent, state, failure, await self._end(half, state, remark))

    def transaction(self, topic: str, body: Body, **options: Unpack[HalfOptions]) -> AsyncTransaction:
        """Return a context manager that sends a half message, and ends it as its block ends. See OpenTransaction.

        Arguments and errors: see send_in_transaction(). `async with` raises HalfMessageError if the broker stored the
        half message with another status than SEND_OK; the block does not run then.
        """
        return AsyncTransaction(self, topic, body, options)

    async def _send_half(self, topic: str, body: Body, **options: Unpack[HalfOptions]) -> Half:
        """Send a half message. Errors: see send()."""
        instance = self._opened()
        check_keywords(options)
        check_options(options)
        queue, selector = options.pop("queue", None), options.pop("selector", None)
        deadline = self._sender.deadline(options.pop("timeout", None))
        packed = self._packer.pack(topic, body, system=half_properties(self.group), **_plain(options))
        messages, born = [prepared(packed)], self._now()  # of each attempt, with what hooks have added
        sent = await self._take_and_send(instance, messages[0], queue, selector, deadline, note=messages.append)
        half = Half(messages[-1], sent, born)
        half.address = self._master(half)
        self._open[half] = self._loop.create_future()
        return half

    def _now(self) -> int:
        return int(self._access.clock() * 1000)

    def _master(self, half: Half) -> str:
        """The address of the broker of a half message; the last known one if there is none now."""
        assert self._instance is not None
        info = self._instance.routes.publish_info(half.topic)
        return half.address if info is None else info.masters.get(half.sent.queue.broker_name, half.address)

    async def _end(self, half: Half, state: LocalTransactionState, remark: str | None) -> RocketcError | None:
        """Send END_TRANSACTION; return why it was not written. It is written also if the caller is canceled."""
        return await asyncio.shield(self._begin_end(half, state, remark))

    def _end_for(self, end: End, half: Half, state: LocalTransactionState, remark: str | None) -> None:
        """Do what _end() does for a thread, which gets the result through `end`."""
        end_with(self._begin_end(half, state, remark), end)
        end.cancel = None  # it is written also if the thread does not wait any more

    def _begin_end(
        self, half: Half, state: LocalTransactionState, remark: str | None
    ) -> asyncio.Task[RocketcError | None]:
        self._forget(half)
        context = EndTransactionContext(
            self.group, half.message, self._master(half), half.sent.msg_id, half.transaction_id, state, False, 0
        )
        task = self._loop.create_task(self._write_end(context, half.end_fields(self.group, state), remark))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def _forget(self, half: Half) -> None:
        """The transaction of this half message ends."""
        ended = self._open.pop(half, None)
        if ended is not None and not ended.done():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and collects what was left
                ended.set_result(None)

    async def _answer_check(self, asked: Asked, state: LocalTransactionState, remark: str | None) -> None:
        fields = asked.end_fields(self.group, state)
        transaction_id = fields["transactionId"] or asked.msg_id
        context = EndTransactionContext(
            self.group, asked.message, asked.address, asked.msg_id, transaction_id, state, True, 0
        )
        await self._write_end(context, fields, remark)

    async def _write_end(
        self, context: EndTransactionContext, fields: Mapping[str, Any], remark: str | None
    ) -> RocketcError | None:
        assert self._instance is not None
        try:
            if not context.address:
                raise NotSentError("no master of the broker that has the half message is known now")
            try:
                await self._instance.connections.send(context.address, END_TRANSACTION, fields, remark=remark)
            except ValueError as error:  # the broker gave an id that is larger than a request
                raise NotSentError(f"{context.address}: {error}") from None
        except RocketcError as error:
            context.error = error
            log_unwritten(context.msg_id, context.state, error)
        else:
            self._ends[context.state.name] += 1
        context.ended = self._now()
        self._end_hooks.after(context)
        return context.error


class AsyncTransaction(OpenTransaction):
    """What AsyncTransactionProducer.transaction() returns: see OpenTransaction."""

    def __init__(self, producer: AsyncTransactionProducer, topic: str, body: Body, options: HalfOptions) -> None:
        super().__init__(producer.group, topic)
        self._producer, self._body, self._options = producer, body, options

    async def __aenter__(self) -> Self:
        self._check_new()
        half = await self._producer._send_half(self._topic, self._body, **self._options)
        if half.sent.status is not SendStatus.SEND_OK:
            await self._producer._end(half, ROLLBACK, half.status_remark)
            raise HalfMessageError(half.sent, half.status_remark)
        self._half = half
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        half, state, remark = self._end(error)
        if isinstance(error, GeneratorExit):
            self._producer._forget(half)
        else:
            self.end_error = await self._producer._end(half, state, remark)


def _topics(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise TypeError(f"topics: expected several topics, got the text {topics!r}; write [{topics!r}]")
    names = list(topics)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"topics: expected texts, got {type(name).__name__}")
        if error := topic_name_error(name):
            raise ValueError(f"topic {name!r}: {error}")
    return names


def _plain(options: HalfOptions) -> PlainOptions:
    return options
