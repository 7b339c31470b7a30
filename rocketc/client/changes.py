"""Changes that several servers must make: all are asked, and one that fails does not hide what the others did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from rocketc.errors import ChangeError, RocketcError

T = TypeVar("T")


async def change_all(changes: Mapping[str, Awaitable[T]]) -> dict[str, T]:
    """Await all changes at once; return their results by name.

    changes  by name: of a broker, or host:port of a name server
    Raises ChangeError after all have ended, if some of them failed.

    >>> async def five():
    ...     return 5
    >>> asyncio.run(change_all({"broker-a": five()}))
    {'broker-a': 5}
    """
    ended = await asyncio.gather(*changes.values(), return_exceptions=True)
    changed: dict[str, T] = {}
    failed: dict[str, RocketcError] = {}
    for name, one in zip(changes, ended, strict=True):
        if isinstance(one, RocketcError):
            failed[name] = one
        elif isinstance(one, BaseException):
            raise one
        else:
            changed[name] = one
    if failed:
        raise ChangeError(changed, failed)
    return changed
