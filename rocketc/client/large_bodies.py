"""Messages with large compressed bodies: a thread decompresses them, and the event loop continues meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rocketc.read._opened_records import LargeBodies

T = TypeVar("T")

AT_ONCE_BYTES = 1 << 20  # decompressed on the loop: some ms


async def decoded_messages(decode: Callable[..., T], *arguments: object) -> T:
    """Return decode(*arguments). It runs on a thread if it decompresses more than AT_ONCE_BYTES.

    decode  has the keyword plain_bytes of pulled_messages(), and no effect: it may be called twice

    >>> import rocketc
    >>> from rocketc.read._opened_records import pulled_messages
    >>> messages, errors, end = asyncio.run(decoded_messages(pulled_messages, rocketc.encode("orders", b"one")))
    >>> messages[0].body
    b'one'
    """
    try:
        return decode(*arguments, plain_bytes=AT_ONCE_BYTES)
    except LargeBodies:
        pass
    try:
        return await asyncio.to_thread(decode, *arguments)
    except RuntimeError:  # the process ends, so there are no more threads
        return decode(*arguments)
