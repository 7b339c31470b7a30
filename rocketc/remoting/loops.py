"""The event loop of a process: uvloop's if it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_on_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a loop of its own, as asyncio.run(): uvloop's if it is installed.

    >>> async def main():
    ...     return 1
    >>> run_on_loop(main())
    1
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's if it is installed.

    >>> new_event_loop().close()
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
