"""The first offset that a consumer writes to a broker for a topic: alone, before the others.

RocketMQ's brokers keep the offsets of a group in a topic in one map. If two offsets of a new group come at the same
time, each makes that map. The map that is made first is lost with its offset (observed on 4.3.2 to 5.3.3).
Source: RocketMQ ConsumerOffsetManager.commitOffset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, RocketcError


class FirstCommits:
    """Orders the writes of one group.

    >>> async def main():
    ...     first, written = FirstCommits(), []
    ...     async def write(kind, number):
    ...         written.append((kind, number))
    ...         await asyncio.sleep(0)
    ...     queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    ...     await asyncio.gather(*(
    ...         first.write(queue, lambda n=n: write("alone", n), lambda n=n: write("then", n))
    ...         for n, queue in enumerate(queues)
    ...     ))
    ...     return written
    >>> asyncio.run(main())
    [('alone', 0), ('then', 1), ('then', 2)]
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()  # broker name and topic
        self._under_way: dict[tuple[str, str], asyncio.Future[RocketcError | None]] = {}  # how the first one ended

    async def write(
        self, queue: MessageQueue, alone: Callable[[], Awaitable[None]], then: Callable[[], Awaitable[None]]
    ) -> None:
        """Write an offset of a queue. Raises the errors of alone() and then().

        alone  writes the first one, and returns when the broker has it. If the broker is not reached, the others that
               wait for it raise the same error, and the next call tries again
        then   writes later ones
        """
        key = queue.broker_name, queue.topic
        while key not in self._known:
            first = self._under_way.get(key)
            if first is None:
                await self._write_alone(key, alone)
                return
            if (error := await asyncio.shield(first)) is not None:
                raise error
        await then()

    async def _write_alone(self, key: tuple[str, str], alone: Callable[[], Awaitable[None]]) -> None:
        first = self._under_way[key] = asyncio.get_running_loop().create_future()
        error: RocketcError | None = None
        try:
            await alone()
            self._known.add(key)
        except AnswerError:
            self._known.add(key)  # the broker refuses it, and it may accept the others
            raise
        except RocketcError as one:
            error = one
            raise
        finally:  # after a cancellation, a waiting write is the first one
            del self._under_way[key]
            first.set_result(error)
