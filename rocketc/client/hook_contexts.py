"""What hooks of sends and of listeners see.

Source: RocketMQ SendMessageContext, ConsumeMessageContext.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketc.client.consume_results import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    concurrently_status,
    orderly_status,
)
from rocketc.client.hooks import Hooks
from rocketc.client.orderly_context import OrderlyContext
from rocketc.client.outgoing import Outgoing
from rocketc.client.retry_later import RetryLater
from rocketc.client.routes import MessageQueue
from rocketc.client.send_results import SendResult
from rocketc.client.transaction_states import LocalTransactionState
from rocketc.errors import RocketcError
from rocketc.read._message import Message

_CONSUMED = (ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.COMMIT, ConsumeConcurrentlyStatus.CONSUME_SUCCESS)


@dataclass
class SendContext:
    """One attempt of a send, for hooks.

    group       of the producer
    message     what is sent: topic, body, properties as text, key; it is a batch if the properties are empty
    queue       where it goes
    address     of the broker; empty if no master of it is known now
    is_oneway   the broker does not answer
    began       ms since 1970
    properties  a hook before the send adds properties here; not for batches
    result      after the send, if the broker stored it
    error       after the send, if it failed
    ended       ms since 1970, after the send
    answer      fields of the broker's answer
    state       for the hooks' own use
    """

    group: str
    message: Outgoing
    queue: MessageQueue
    address: str
    is_oneway: bool
    began: int
    properties: dict[str, str] = field(default_factory=dict)
    result: SendResult | None = None
    error: BaseException | None = None
    ended: int = 0
    answer: Mapping[str, str] = field(default_factory=dict)
    state: dict[Any, Any] = field(default_factory=dict)


@dataclass
class EndTransactionContext:
    """The end of a transaction, for hooks: END_TRANSACTION was written, or that failed.

    group           of the producer
    message         as the local transaction or the check function got it
    address         of the broker; empty if no master of it is known now
    msg_id          the unique id of the message
    transaction_id  of the transaction
    state           what END_TRANSACTION says
    is_from_check   the broker had asked
    ended           ms since 1970
    error           why END_TRANSACTION was not written; None: it was
    """

    group: str
    message: Message
    address: str
    msg_id: str
    transaction_id: str
    state: LocalTransactionState
    is_from_check: bool
    ended: int
    error: RocketcError | None = None


@dataclass
class ConsumeContext:
    """One call of a listener, for hooks. For a consumer without listeners: messages that the program got.

    group     of the consumer
    messages  that the listener gets
    began     ms since 1970
    ended     ms since 1970, after the call
    status    after the call: CONSUME_SUCCESS or another name of RocketMQ's statuses
    success   whether the messages are consumed
    error     what the listener raised
    state     for the hooks' own use
    """

    group: str
    messages: Sequence[Message]
    began: int
    ended: int = 0
    status: str = ""
    success: bool = False
    error: BaseException | None = None
    state: dict[Any, Any] = field(default_factory=dict)

    def succeed(self, ended: int) -> None:
        """Note that the messages are consumed, without a listener."""
        self.ended, self.status, self.success = ended, ConsumeConcurrentlyStatus.CONSUME_SUCCESS.name, True


def hooked_listener(
    listener: Callable[..., object], hooks: Hooks, group: str, clock: Callable[[], int], *, is_orderly: bool
) -> Callable[..., object]:
    """Return a listener that calls the hooks before and after another one. Without hooks, it is that one.

    clock  ms since 1970

    >>> hooks = Hooks("consume")
    >>> hooks.add(before=None, after=lambda context: print(context.status))
    >>> hooked_listener(lambda message: None, hooks, "billing", lambda: 0, is_orderly=False)("a message")
    CONSUME_SUCCESS
    """
    if not hooks.all:
        return listener

    def begin(argument: Any) -> ConsumeContext:
        context = ConsumeContext(group, argument if isinstance(argument, list) else [argument], clock())
        hooks.before(context)
        return context

    def end(
        context: ConsumeContext, returned: object, error: BaseException | None, decision: Sequence[OrderlyContext]
    ) -> None:
        context.ended, context.error = clock(), error
        if error is None and decision:  # the listener commits manually
            returned = decision[0].decided(returned)
        context.status, context.success = _status(returned, error, is_orderly)
        hooks.after(context)

    async def finish(
        context: ConsumeContext, returned: Awaitable[object], decision: Sequence[OrderlyContext]
    ) -> object:
        try:
            result = await returned
        except BaseException as error:
            end(context, None, error, decision)
            raise
        end(context, result, None, decision)
        return result

    async def call_coroutine(argument: Any, *decision: OrderlyContext) -> object:
        return await finish(begin(argument), listener(argument, *decision), decision)  # type: ignore[arg-type]

    def call(argument: Any, *decision: OrderlyContext) -> object:
        context = begin(argument)
        try:
            returned = listener(argument, *decision)
        except BaseException as error:
            end(context, None, error, decision)
            raise
        if inspect.isawaitable(returned):
            return finish(context, returned, decision)
        end(context, returned, None, decision)
        return returned

    return call_coroutine if inspect.iscoroutinefunction(listener) else call


def _status(returned: object, error: BaseException | None, is_orderly: bool) -> tuple[str, bool]:
    """The name of the status that follows from a call, and whether the messages are consumed."""
    status: ConsumeConcurrentlyStatus | ConsumeOrderlyStatus
    if error is None:
        try:
            status = orderly_status(returned) if is_orderly else concurrently_status(returned)
            consumed = (
                ConsumeOrderlyStatus.SUCCESS,
                ConsumeOrderlyStatus.COMMIT,
                ConsumeConcurrentlyStatus.CONSUME_SUCCESS,
            )
            return status.name, status in consumed
        except TypeError:
            pass
    if is_orderly:
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT.name, False
    return ConsumeConcurrentlyStatus.RECONSUME_LATER.name, False


def is_failure(error: BaseException | None) -> bool:
    """Whether a listener failed, and did not only ask for a later delivery.

    >>> is_failure(ValueError()), is_failure(RetryLater("10s"))
    (True, False)
    """
    return error is not None and not isinstance(error, RetryLater)
