"""Running a server until a signal ends it. For the commands that serve."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def serve(main: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Run a server on a new event loop, of uvloop where it is installed. Return the exit code that it returns.

    main  runs the server until the event is set, ends it in order, and returns the exit code. The first SIGINT, SIGTERM
          or SIGHUP sets the event; the second signal ends the process at once, with the exit code 128 + its number
    The log goes to stderr from INFO on. Call it on the main thread. Signals that the caller ignores stay ignored, as
    SIGHUP under nohup. Raises what main raises.
    """
    loop = _new_loop()
    usual = {number: signal.getsignal(number) for number in _SIGNALS}
    with _log_to_stderr():
        try:
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(_until_signal(main, loop))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()
            for number, handler in usual.items():
                signal.signal(number, handler)


async def _until_signal(main: Callable[[asyncio.Event], Awaitable[int]], loop: asyncio.AbstractEventLoop) -> int:
    stop = asyncio.Event()
    handled = [n for n in _SIGNALS if signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler)]

    def first(number: signal.Signals) -> None:
        logging.getLogger("rocketc").info("%s: ending", number.name)
        for each in handled:
            loop.remove_signal_handler(each)
            signal.signal(each, _end_at_once)  # not on the loop, which may be busy
        stop.set()

    for number in handled:
        loop.add_signal_handler(number, first, number)
    return await main(stop)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@contextlib.contextmanager
def _log_to_stderr() -> Iterator[None]:
    log = logging.getLogger("rocketc")
    usual = log.level
    handler = logging.StreamHandler() if sys.stderr is not None else logging.NullHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(usual)
