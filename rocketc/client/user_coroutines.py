"""Runs coroutines of the program, such as listeners, inside tasks of the client.

A task that is thrown away gets a GeneratorExit, and must not continue. If a coroutine of the program raises
GeneratorExit itself, that is an error as any other: it becomes a RuntimeError here.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

Run = Callable[..., Any]  # calls its first argument with the others, in a context for example


def _directly(function: Callable[..., Any], *arguments: object) -> Any:
    return function(*arguments)


@types.coroutine
def result_of(returned: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await what a function of the program returned, in the task of the caller.

    Raises what it raises; RuntimeError instead of GeneratorExit.

    >>> import asyncio
    >>> async def listener():
    ...     raise GeneratorExit
    >>> async def main():
    ...     await result_of(listener())
    >>> asyncio.run(main())
    Traceback (most recent call last):
    RuntimeError: the coroutine raised GeneratorExit
    """
    called = returned if inspect.iscoroutine(returned) else _await(returned)
    try:
        waits_for = called.send(None)
    except StopIteration as ended:
        return ended.value
    except GeneratorExit as error:
        raise _own_exit() from error
    return (yield from _rest(called, waits_for, _directly))


@types.coroutine
def rest_of(called: Coroutine[Any, Any, object], waits_for: Any, run: Run = _directly) -> Generator[Any, Any, Any]:
    """Run a coroutine that has begun to its end. See result_of().

    waits_for  what its first send() returned
    run        calls its methods

    >>> import asyncio
    >>> async def main():
    ...     waiting = asyncio.sleep(0, "done")
    ...     return await rest_of(waiting, waiting.send(None))
    >>> asyncio.run(main())
    'done'
    """
    return (yield from _rest(called, waits_for, run))


def _rest(called: Coroutine[Any, Any, object], waits_for: Any, run: Run) -> Generator[Any, Any, Any]:
    failed: BaseException | None
    while True:
        try:
            sent = yield waits_for
        except GeneratorExit:
            run(called.close)
            raise
        except BaseException as error:
            sent, failed = None, error
        else:
            failed = None
        try:
            waits_for = run(called.send, sent) if failed is None else run(called.throw, failed)
        except StopIteration as ended:
            return ended.value
        except GeneratorExit as error:
            raise _own_exit() from error


def _own_exit() -> RuntimeError:
    return RuntimeError("the coroutine raised GeneratorExit")


async def _await(returned: Awaitable[Any]) -> Any:
    return await returned
