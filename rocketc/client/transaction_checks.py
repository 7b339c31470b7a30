"""Answers brokers that ask how a local transaction ended, because END_TRANSACTION did not come or said UNKNOW.

Source: RocketMQ ClientRemotingProcessor.checkTransactionState, DefaultMQProducerImpl.checkTransactionState.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from rocketc._layout import PROPERTY_UNIQUE_KEY
from rocketc.client.large_bodies import decoded_messages
from rocketc.client.listener_pool import ListenerPool
from rocketc.client.names import PRODUCER_GROUP
from rocketc.client.transaction_states import (
    UNKNOWN,
    LocalTransactionState,
    State,
    end_fields,
    remark_of,
    state_of,
    text_of,
)
from rocketc.client.user_coroutines import result_of
from rocketc.read._message import Message
from rocketc.read._opened_records import pulled_messages
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES, REQUESTS

_log = logging.getLogger("rocketc.client")

CHECK_TRANSACTION_STATE = CODES["CHECK_TRANSACTION_STATE"]

Check = Callable[[Message], State | Awaitable[State]]  # what a program gives to a producer


class Asked(NamedTuple):
    """One question of a broker.

    address  of the broker
    fields   of the request, by name
    message  the half message, with its real topic and queue
    """

    address: str
    fields: dict[str, Any]
    message: Message

    @property
    def msg_id(self) -> str:
        """The unique id of the message."""
        return self.message.properties.get(PROPERTY_UNIQUE_KEY) or self.message.msg_id

    def end_fields(self, group: str, state: LocalTransactionState) -> dict[str, Any]:
        """Return the fields of END_TRANSACTION. The offsets are those of the request: each check moves the message."""
        return end_fields(
            group,
            state,
            topic=self.fields.get("topic"),
            offset=self.fields["tranStateTableOffset"],
            place=self.fields["commitLogOffset"],
            msg_id=self.msg_id,
            transaction_id=self.fields.get("transactionId"),
            is_checked=True,
        )


def asked(address: str, request: Command, *, plain_bytes: int | None = None) -> Asked:
    """Return the question in CHECK_TRANSACTION_STATE. Raises ValueError and BadRequestError.

    plain_bytes  see pulled_messages()

    >>> from rocketc.format._encoding import encode
    >>> record = encode("orders", b"one", properties={"UNIQ_KEY": "0A00", "PGROUP": "shop"})
    >>> fields = {"tranStateTableOffset": "7", "commitLogOffset": "4096"}
    >>> asked("10.0.0.1:10911", Command(CHECK_TRANSACTION_STATE, fields, record)).msg_id
    '0A00'
    """
    fields = REQUESTS[CHECK_TRANSACTION_STATE].decode(request.fields)
    messages, errors, _ = pulled_messages(request.body, plain_bytes=plain_bytes)
    if errors:
        raise errors[0]
    if not messages:
        raise ValueError("the request lacks a message")
    return Asked(address, fields, messages[0])


def check_function(check: object) -> Check:
    """Return the check function of a producer. Raises TypeError.

    >>> check_function(None)
    Traceback (most recent call last):
    TypeError: check: expected a function that gets a message and returns its LocalTransactionState, got None
    """
    if not callable(check):
        raise TypeError(
            f"check: expected a function that gets a message and returns its LocalTransactionState, got {check!r}"
        )
    return check


class Checks:
    """The questions of brokers to one producer. Use it on one event loop; a plain function runs on a thread of its own.

    group     of the producer
    check     the program's function
    at_once   calls of it at the same time (RocketMQ: checkThreadPoolMaxSize)
    waiting   questions that wait for it (RocketMQ: checkRequestHoldMax); more are dropped, and brokers ask again
    answer    sends the state and a remark to the broker; it must not raise
    """

    def __init__(
        self,
        group: str,
        check: Check,
        at_once: int,
        waiting: int,
        answer: Callable[[Asked, LocalTransactionState, str | None], Awaitable[object]],
    ) -> None:
        self._group, self._check, self._answer = group, check, answer
        self._at_once, self._waiting_most = at_once, waiting
        self._waiting: deque[Asked] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._busy = 0  # workers that will look into `_waiting` again; a task that is done stays in the set for a turn
        self._pool: ListenerPool | None = None
        call = getattr(check, "__call__", None)  # noqa: B004
        self._is_coroutine = inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(call)
        self._is_closed = False

    async def take(self, address: str, request: Command) -> None:
        """Take a question of a broker. One that cannot be read, or of another group, is logged and not answered."""
        try:
            question = await decoded_messages(asked, address, request)
        except ValueError as error:
            _log.warning("%s: CHECK_TRANSACTION_STATE cannot be read: %s", address, error)
            return
        group = question.message.properties.get(PRODUCER_GROUP)
        if group != self._group:
            _log.warning("%s: asks the producer group %s about a transaction of the group %s; it is not answered",
                         address, self._group, group)  # fmt: skip
        elif self._is_closed:
            _log.debug("%s: the producer ends; the broker asks for %s again", address, question.msg_id)
        elif self._busy < self._at_once:
            self._begin(question)
        elif len(self._waiting) < self._waiting_most:
            self._waiting.append(question)
        else:
            _log.warning("%s: %d checks wait already; the one of %s is dropped, and the broker asks again",
                         address, len(self._waiting), question.msg_id)  # fmt: skip

    def _begin(self, question: Asked) -> None:
        self._busy += 1
        worker = asyncio.get_running_loop().create_task(self._work(question))
        self._workers.add(worker)
        worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        """A worker has ended, also one that was canceled before its first step: another one takes what waits."""
        self._workers.discard(worker)
        self._busy -= 1
        if self._waiting and not self._is_closed:
            self._begin(self._waiting.popleft())

    async def _work(self, question: Asked) -> None:
        while True:
            state, remark = await self._state(question)
            await self._answer(question, state, remark)
            if not self._waiting:
                return
            question = self._waiting.popleft()

    async def _state(self, question: Asked) -> tuple[LocalTransactionState, str | None]:
        try:
            if self._is_coroutine:
                returned: object = await result_of(self._check(question.message))  # type: ignore[arg-type]
            else:
                if self._pool is None:
                    self._pool = ListenerPool(self._at_once)
                returned = await self._pool.call(self._check, question.message)
            return state_of(returned), None
        except GeneratorExit:
            raise
        except BaseException as error:  # SystemExit would end the loop of all clients
            if isinstance(error, asyncio.CancelledError) and self._is_closed:
                raise
            _log.warning("%s: the check of %s failed; the broker asks again: %s", self._group, question.msg_id,
                         text_of(error), exc_info=error)  # fmt: skip
            return UNKNOWN, remark_of(error)

    async def close(self, seconds: float) -> None:
        """Answer what is running, and forget what waits: brokers ask again. Calls that take longer are not answered."""
        self._is_closed = True
        self._waiting.clear()
        try:
            if self._workers:
                await asyncio.wait(self._workers, timeout=seconds)
        finally:  # also if this is canceled
            for worker in self._workers:
                worker.cancel()
            if self._pool is not None:
                self._pool.close()
