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

from rocketc.remoting.loops import run_on_loop

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def serve(main: Callable[[asyncio.Event], Awaitable[int]], level: int = logging.INFO) -> int:
    """Run a server on a new event loop, of uvloop where it is installed. Return the exit code that it returns.

    main   runs the server until the event is set, ends it in order, and returns the exit code. The first SIGINT,
           SIGTERM or SIGHUP sets the event; the second one ends the process at once: exit code 128 + its number
    level  of the log, which goes to stderr
    Call it on the main thread. Signals that the caller ignores stay ignored, as SIGHUP under nohup. Raises what main
    raises.
    """
    usual = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number in _SIGNALS if usual[number] in (signal.SIG_DFL, signal.default_int_handler)]
    with _log_to_stderr(level):
        try:
            return run_on_loop(_until_signal(main, handled))
        finally:
            for number, handler in usual.items():
                signal.signal(number, handler)


async def _until_signal(main: Callable[[asyncio.Event], Awaitable[int]], handled: list[signal.Signals]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        for each in handled:
            loop.remove_signal_handler(each)
            signal.signal(each, _end_at_once)  # not on the loop, which may be busy
        logging.getLogger("rocketc").info("%s: ending", number.name)  # from here on, a second signal is not lost
        stop.set()

    for number in handled:
        loop.add_signal_handler(number, first, number)
    return await main(stop)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


@contextlib.contextmanager
def _log_to_stderr(level: int) -> Iterator[None]:
    log = logging.getLogger("rocketc")
    usual = log.level
    handler = logging.StreamHandler() if sys.stderr is not None else logging.NullHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    log.addHandler(handler)
    log.setLevel(level)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(usual)
