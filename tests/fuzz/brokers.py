"""The bytes of one connection to a whole broker, on virtual time."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from unittest import mock

from simulation import virtual
from simulation.brokers import scene

from rocketc.remoting import server

SMALL = {"mapped_file_size_commit_log": 1 << 16}


def requests(data: bytes, folder: Path) -> None:
    """Bytes that a client sends, after a byte that says how they are cut.

    No processor fails unexpectedly, the broker ends in order, and before that it serves the next client.
    """
    if data:
        virtual.run(_requests(data[0] + 1, data[1:], folder))


async def _requests(step: int, data: bytes, folder: Path) -> None:
    with mock.patch.object(server._log, "exception", _fail):
        async with scene(folder, delay=(0.0, 0.0), store=SMALL) as stage:
            near, _ = virtual.link(_Peer(), stage.broker.server.connection(), random.Random(1), (0.0, 0.0))
            for at in range(0, len(data), step):
                near.write(data[at : at + step])
                if at < 64 * step:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(1.0)
            near.abort()
            assert (await stage.client().send()).code == 0
            await stage.settle()
            assert (await stage.client().pull()).code == 0


def _fail(text: str, *values: object) -> None:
    raise AssertionError(text % values)


class _Peer(asyncio.Protocol):
    """A client that reads, and leaves it at that."""

    def data_received(self, data: bytes) -> None:
        pass
