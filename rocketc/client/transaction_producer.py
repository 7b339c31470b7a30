"""TransactionProducer: sends messages that belong to a local transaction. See AsyncTransactionProducer.

Source: RocketMQ TransactionMQProducer.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from rocketc.client.async_transaction_producer import AsyncTransactionProducer
from rocketc.client.half_messages import Half
from rocketc.client.hook_contexts import EndTransactionContext
from rocketc.client.loop_thread import LoopThread
from rocketc.client.open_transaction import OpenTransaction
from rocketc.client.outgoing import Body
from rocketc.client.producer import Producer
from rocketc.client.security import Tls
from rocketc.client.send_results import SendStatus
from rocketc.client.settings import TransactionOptions
from rocketc.client.transaction_checks import Check
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
from rocketc.client.waiters import Waiter
from rocketc.errors import ClosedError, HalfMessageError, RocketcError
from rocketc.read._message import Message
from rocketc.remoting.signing import Credentials

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from rocketc.client.async_transaction_producer import HalfOptions


class TransactionProducer(Producer):
    """Sends messages that consumers get only if a local transaction, for example of a database, is committed.

        with TransactionProducer("shop", check=was_order_stored) as producer:
            with producer.transaction("orders", b"...", keys="o-7"):
                store_order("o-7")

    check, topics, and the other arguments: see AsyncTransactionProducer. The check function runs on a thread of its
    own, a coroutine function on the event loop of the clients; local transactions run on the thread of their caller.
    Methods: those of Producer, and the ones below. Threads may share a producer, but not a transaction.

    >>> def check(message):
    ...     return "COMMIT_MESSAGE" if message.keys in database else "ROLLBACK_MESSAGE"
    >>> TransactionProducer("shop", "127.0.0.1:9876", check=check, topics=["orders"]).group
    'shop'
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
        self._transactions = AsyncTransactionProducer(
            group, name_server, check=check, topics=topics, credentials=credentials, tls=tls, **options
        )
        self._used: LoopThread | None = None  # also while close() waits for the transactions that run
        self._begin_with(self._transactions)

    def add_end_transaction_hook(self, hook: Callable[[EndTransactionContext], object]) -> None:
        """Call a function after each END_TRANSACTION, on the thread of the clients: it must not block.

        Call this before start(). See AsyncTransactionProducer.add_end_transaction_hook().
        """
        self._transactions.add_end_transaction_hook(hook)

    def send_in_transaction(
        self, topic: str, body: Body, local_transaction: Callable[[Message], State], **options: Unpack[HalfOptions]
    ) -> TransactionResult:
        """Send a half message, run the local transaction on this thread, and end the message as it says.

        See AsyncTransactionProducer.send_in_transaction().
        """
        check_local(local_transaction)
        if inspect.iscoroutinefunction(local_transaction):
            raise TypeError("local_transaction: a coroutine function; use AsyncTransactionProducer for it")
        half = self._send_half(topic, body, **options)
        if half.sent.status is not SendStatus.SEND_OK:
            return TransactionResult(half.sent, ROLLBACK, None, self._end(half, ROLLBACK, half.status_remark))
        failure: Exception | None = None
        try:
            state, remark = state_of(local_transaction(half.message)), None
        except Exception as error:
            failure, state, remark = error, UNKNOWN, remark_of(error)
            half.log_failure(error)
        except BaseException as error:
            self._end(half, UNKNOWN, remark_of(error))
            raise
        return TransactionResult(half.sent, state, failure, self._end(half, state, remark))

    def transaction(self, topic: str, body: Body, **options: Unpack[HalfOptions]) -> Transaction:
        """Return a context manager that sends a half message, and ends it as its block ends. See OpenTransaction.

        Arguments and errors: see AsyncTransactionProducer.transaction().
        """
        return Transaction(self, topic, body, options)

    def _send_half(self, topic: str, body: Body, **options: Unpack[HalfOptions]) -> Half:
        self._used = thread = self._opened()
        return thread.run(self._transactions._send_half(topic, body, **options))

    def _end(self, half: Half, state: LocalTransactionState, remark: str | None) -> RocketcError | None:
        """Send END_TRANSACTION; return why it was not written."""
        assert self._used is not None
        try:
            return self._used.result(Waiter(), self._transactions._end_for, half, state, remark)
        except ClosedError as error:  # closed meanwhile; or this is a forked child, and the parent decides
            log_unwritten(half.sent.msg_id, state, error)
            return error


class Transaction(OpenTransaction):
    """What TransactionProducer.transaction() returns: see OpenTransaction."""

    def __init__(self, producer: TransactionProducer, topic: str, body: Body, options: HalfOptions) -> None:
        super().__init__(producer.group, topic)
        self._producer, self._body, self._options = producer, body, options

    def __enter__(self) -> Self:
        self._check_new()
        half = self._producer._send_half(self._topic, self._body, **self._options)
        if half.sent.status is not SendStatus.SEND_OK:
            self._producer._end(half, ROLLBACK, half.status_remark)
            raise HalfMessageError(half.sent, half.status_remark)
        self._half = half
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        half, state, remark = self._end(error)
        self.end_error = self._producer._end(half, state, remark)
