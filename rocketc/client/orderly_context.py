"""Manual commit and rollback: what an orderly listener with auto_commit=False decides about its messages.

Source: RocketMQ ConsumeOrderlyContext.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rocketc.client.consume_results import ConsumeOrderlyStatus, orderly_status
from rocketc.client.orderly_results import LATER_MS
from rocketc.client.routes import MessageQueue

AS_CONSUMER = -1  # pause_ms: that of the consumer


class OrderlyContext:
    """Decides about the messages of one queue. The last decision counts, when the listener returns.

    A listener that returns without a decision leaves its messages uncommitted: a later commit() or rollback() is for
    them, too. They come again after a crash, and to the next owner of the queue. If a listener raises, its decision
    does not count, and the messages of this call come again.

    queue     of the messages
    status    the decision so far
    pause_ms  that the queue waits after a rollback() or suspend(); -1: suspend_current_queue_time_millis

    >>> context = OrderlyContext(MessageQueue("orders", "broker-a", 0))
    >>> context.rollback(pause_ms=200)
    >>> context.status.name, context.pause_ms
    ('ROLLBACK', 200)
    """

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.status = ConsumeOrderlyStatus.SUCCESS
        self.pause_ms = AS_CONSUMER

    def commit(self) -> None:
        """Commit all messages of the queue so far, those of this call included."""
        self.status = ConsumeOrderlyStatus.COMMIT

    def rollback(self, pause_ms: int | None = None) -> None:
        """Take back all messages since the last commit: they come again after a pause.

        pause_ms  10 to 30,000; None: suspend_current_queue_time_millis
        """
        self._again(ConsumeOrderlyStatus.ROLLBACK, pause_ms)

    def suspend(self, pause_ms: int | None = None) -> None:
        """Take back the messages of this call: they come again after a pause, and earlier ones stay uncommitted.

        An exception does the same. It counts as a failure: after max_reconsume_times the message is a dead letter.
        pause_ms  10 to 30,000; None: suspend_current_queue_time_millis
        """
        self._again(ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, pause_ms)

    def _again(self, status: ConsumeOrderlyStatus, pause_ms: int | None) -> None:
        if pause_ms is not None and (isinstance(pause_ms, bool) or not isinstance(pause_ms, int)):
            raise TypeError(f"pause_ms: expected int, got {type(pause_ms).__name__}")
        if pause_ms is not None and pause_ms not in LATER_MS:
            raise ValueError(f"pause_ms is {pause_ms}; allowed are {LATER_MS[0]} to {LATER_MS[-1]}")
        self.status, self.pause_ms = status, AS_CONSUMER if pause_ms is None else pause_ms

    def decided(self, returned: object) -> ConsumeOrderlyStatus:
        """Return the decision of a listener that returned; a status that it returned counts most."""
        return orderly_status(returned) if isinstance(returned, ConsumeOrderlyStatus) else self.status


def bound(listener: Callable[..., object], context: OrderlyContext) -> Callable[[Any], object]:
    """Return a listener of one argument that gives this context to a listener of two.

    >>> context = OrderlyContext(MessageQueue("orders", "broker-a", 0))
    >>> bound(lambda message, context: context.commit(), context)(b"")
    >>> context.status.name
    'COMMIT'
    """
    if inspect.iscoroutinefunction(listener):

        async def with_context(argument: Any) -> object:
            return await listener(argument, context)

        return with_context
    return lambda argument: listener(argument, context)
