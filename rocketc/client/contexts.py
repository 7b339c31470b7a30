"""Objects with start() and close() as context managers."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from rocketc.errors import ClosedError

if TYPE_CHECKING:
    from typing_extensions import Self


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise ClosedError unless the caller runs on the event loop on which its client was started.

    >>> async def main():
    ...     check_loop(asyncio.get_running_loop())
    >>> asyncio.run(main())
    """
    if asyncio.get_running_loop() is not loop:
        raise ClosedError("this client was started on another event loop: open one on this loop")


class Context:
    """`with` calls start() and close()."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class AsyncContext:
    """`async with` awaits start() and close()."""

    async def start(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()
