"""The bytes of one connection to a whole broker, or to a server with TLS, on virtual time."""

from __future__ import annotations

import asyncio
import functools
import random
from pathlib import Path
from unittest import mock

from simulation import virtual
from simulation.brokers import scene

from rocketc.remoting import server
from rocketc.remoting.tls import HANDSHAKE, TlsGate, tls_gate
from rocketc.remoting.tls_settings import TlsMode, TlsSettings

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


def tls(data: bytes, folder: Path) -> None:
    """Bytes of a connection that begins as TLS, after a byte that says how they are cut.

    The connection ends, nothing of it stays, and no call of the loop fails.
    """
    if data:
        virtual.run(_tls(data[0] + 1, data[1:]))


async def _tls(step: int, data: bytes) -> None:
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: failures.append(context))
    async with server.Server([], tls=_gate(), grace=1.0) as serving:
        near, _ = virtual.link(_Peer(), serving.connection(), random.Random(1), (0.0, 0.0))
        near.write(bytes((HANDSHAKE,)))
        for at in range(0, len(data), step):
            near.write(data[at : at + step])
        await asyncio.sleep(1.0)
        near.abort()
        await asyncio.sleep(1.0)
        assert not serving.connections
    assert not failures, failures


@functools.cache
def _gate() -> TlsGate:
    """With the certificate of the test mode, which is made once."""
    found = tls_gate(TlsSettings(TlsMode.ENFORCING), in_thread=False)
    assert found is not None
    return found
