"""Hooks: functions of a program that see each send, each call of a listener, or each request and answer.

An exception of a hook is logged, and nothing else follows from it.

Source: RocketMQ SendMessageHook, ConsumeMessageHook, RPCHook.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import NamedTuple

_log = logging.getLogger("rocketc.client")


class Hook(NamedTuple):
    """What is called before and after something; None: nothing."""

    before: Callable[..., object] | None
    after: Callable[..., object] | None


class Hooks:
    """The hooks of one kind, in the order of their registration.

    kind  for the log

    >>> hooks = Hooks("send")
    >>> hooks.add(before=lambda text: print("before", text), after=None)
    >>> hooks.before("it")
    before it
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.all: list[Hook] = []

    def add(self, before: Callable[..., object] | None, after: Callable[..., object] | None) -> None:
        """Register a hook. Raises TypeError."""
        for name, function in (("before", before), ("after", after)):
            if function is not None and (not callable(function) or inspect.iscoroutinefunction(function)):
                raise TypeError(f"{name}: expected a plain function, got {function!r}")
        if before is None and after is None:
            raise TypeError("a hook needs before, after or both")
        self.all.append(Hook(before, after))

    def with_one(self, hook: Hook) -> Hooks:
        """Return these hooks and another one."""
        hooks = Hooks(self.kind)
        hooks.all = [*self.all, hook]
        return hooks

    def before(self, *arguments: object) -> None:
        """Call the functions `before`."""
        for hook in self.all:
            if hook.before is not None:
                self._call(hook.before, arguments)

    def after(self, *arguments: object) -> None:
        """Call the functions `after`."""
        for hook in self.all:
            if hook.after is not None:
                self._call(hook.after, arguments)

    def _call(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        try:
            function(*arguments)
        except Exception as error:
            _log.warning("a %s hook failed: %s", self.kind, error, exc_info=error)
