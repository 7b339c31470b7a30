"""What all consumers have for hooks and message trace: the methods that add hooks, and the count of lost traces.

Source: RocketMQ DefaultMQPushConsumerImpl, DefaultLitePullConsumerImpl.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketc.client.hook_contexts import ConsumeContext
from rocketc.remoting.command import Command

if TYPE_CHECKING:
    from rocketc.client.access import Access
    from rocketc.client.hooks import Hooks
    from rocketc.client.loop_thread import LoopThread
    from rocketc.client.tracing import Tracer


class HookedConsumer(ABC):
    """A consumer that calls hooks, and writes traces."""

    _access: Access
    _hooks: Hooks
    _tracer: Tracer | None  # stays after close(), which writes the last traces

    group: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group}, name server {';'.join(self._access.addresses)}, {self._state}>"

    @property
    @abstractmethod
    def _state(self) -> str:
        """What repr() says: not started, open or closed."""

    @property
    def dropped_traces(self) -> int:
        """The records of message trace that were not written: too many waited, or a send of them failed."""
        return 0 if self._tracer is None else self._tracer.dropped

    def add_consume_hook(
        self,
        before: Callable[[ConsumeContext], object] | None = None,
        after: Callable[[ConsumeContext], object] | None = None,
    ) -> None:
        """Call functions with the messages that are consumed. Call this before start().

        - PushConsumer: before and after each call of a listener, on its thread.
        - AsyncConsumer: `before` when a message is read, `after` when it is committed.
        - PullConsumer, AsyncPullConsumer: both when poll() returns messages, once for each queue. RocketMQ 5 does so.

        The hooks of all but PushConsumer run on the event loop, and must not block. What hooks raise is logged, and
        changes nothing. Raises TypeError, ClosedError after start().
        """
        self._check_not_started()
        self._hooks.add(before, after)

    def add_rpc_hook(
        self,
        before: Callable[[str, Command], object] | None = None,
        after: Callable[[str, Command, Command], object] | None = None,
    ) -> None:
        """Call functions with each request to servers, and with its answer. See AsyncProducer.add_rpc_hook()."""
        self._check_not_started()
        self._access.rpc_hooks.add(before, after)

    @abstractmethod
    def _check_not_started(self) -> None:
        """Raise ClosedError after start()."""


def state_of(thread: LoopThread | None, is_closed: bool) -> str:
    """Return the state of a consumer on the thread of the clients.

    >>> state_of(None, False), state_of(None, True)
    ('not started', 'closed')
    """
    if is_closed or (thread is not None and not thread.is_here):  # a forked child cannot use it
        return "closed"
    return "not started" if thread is None else "open"
