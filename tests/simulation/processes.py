"""Processes on one virtual loop. One may hang and continue, as with SIGSTOP and SIGCONT, and leaves nothing behind.

Everything that a process begins runs in its context: tasks, timers, and what arrives on its connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from simulation import virtual

_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Process:
    """One process: what it runs, and what it left."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hangs = False
        self._context = contextvars.copy_context()
        self._context.run(_PROCESS.set, self)
        self._late: list[_Call] = []  # what was due while it hung
        self._timers: set[_Call] = set()
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return self._context.copy().run(asyncio.ensure_future, work)

    def hang(self) -> None:
        """Do nothing from now on; other processes and time continue."""
        self.hangs = True

    def go_on(self) -> None:
        """Do what was due meanwhile, and continue."""
        self.hangs = False
        late, self._late = self._late, []
        for call in late:
            call.loop.call_soon(call, context=contextvars.Context())

    def left(self) -> list[str]:
        """What still runs or would run: tasks and timers."""
        tasks = [task for task in self.tasks if not task.done() and task is not asyncio.current_task()]
        timers = [call for call in self._timers if not call.is_canceled and not call.is_on_its_way]
        return [*sorted(map(repr, tasks)), *sorted(repr(call.callback) for call in timers)]


class _Call:
    """One call of the loop that belongs to a process."""

    handle: asyncio.Handle

    def __init__(self, process: Process, loop: ProcessLoop, callback: Any, arguments: Any, context: Any) -> None:
        self.process, self.loop, self.callback, self.arguments = process, loop, callback, arguments
        self.context = contextvars.copy_context() if context is None else context

    @property
    def is_canceled(self) -> bool:
        return self.handle.cancelled()

    @property
    def is_on_its_way(self) -> bool:
        """Whether it belongs to the network, and not to the process."""
        return isinstance(getattr(self.callback, "__self__", None), virtual.MemoryTransport)

    def __call__(self) -> None:
        self.process._timers.discard(self)
        if self.process.hangs:
            self.process._late.append(self)
        elif not self.is_canceled:  # it may be canceled after it was due, in a process that hung
            self.context.run(self.callback, *self.arguments)


class ProcessLoop(virtual.VirtualLoop):
    """A virtual loop that knows to which process each call belongs."""

    def __init__(self) -> None:
        super().__init__()
        self.set_task_factory(_task)

    def call_soon(self, callback: Any, *arguments: Any, context: Any = None) -> asyncio.Handle:
        process = _process_of(context)
        if process is None:
            return super().call_soon(callback, *arguments, context=context)
        call = _Call(process, self, callback, arguments, context)
        call.handle = super().call_soon(call, context=contextvars.Context())
        return call.handle

    def call_at(self, when: float, callback: Any, *arguments: Any, context: Any = None) -> asyncio.TimerHandle:
        process = _process_of(context)
        if process is None:
            return super().call_at(when, callback, *arguments, context=context)
        call = _Call(process, self, callback, arguments, context)
        process._timers.add(call)
        handle = super().call_at(when, call, context=contextvars.Context())
        call.handle = handle
        return handle


def _process_of(context: contextvars.Context | None) -> Process | None:
    return _PROCESS.get() if context is None else context.get(_PROCESS)


def _task(loop: asyncio.AbstractEventLoop, work: Any, **how: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **how)
    if (process := _PROCESS.get()) is not None:
        process.tasks.add(task)
    return task


def own_context() -> contextvars.Context | None:
    """The context of the process that runs now; None if there is none."""
    return None if _PROCESS.get() is None else contextvars.copy_context()


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine function on a new ProcessLoop."""
    return virtual.run(main(), ProcessLoop)
