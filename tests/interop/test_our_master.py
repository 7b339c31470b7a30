"""A slave of RocketMQ copies the log of our master: byte for byte, across rolls, and after cuts within records."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path

import pytest
from interop import scenarios
from interop.our_broker import OurBroker, wait_for
from interop.peer import RELEASES
from net.proxy import Proxy, Rule
from support import oracle
from support.ports import free_port

from rocketc import client
from rocketc.client import SendStatus

pytestmark = [pytest.mark.long]

FILE_SIZE = 1 << 20
ELSEWHERE = "127.0.0.2"  # where the proxy listens, on the same port
SIZES = {"mapped_file_size_commit_log": FILE_SIZE, "max_hash_slot_num": 5000, "max_index_num": 20000}


class Between:
    """A proxy between slaves and their port, on a thread of its own; it cuts connections by rules."""

    def __init__(self, port: int, rules: list[Rule]) -> None:
        self._ready, self._rules, self._port = threading.Event(), rules, port
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._ready.wait()

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with Proxy(("127.0.0.1", self._port), ELSEWHERE, self._port, self._rules) as proxy:
            self.pieces = proxy.pieces
            self._ready.set()
            await self._end.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


def log_of(store: Path) -> dict[str, bytes]:
    """The files of a log by their starts, without those that were only made ahead."""
    return {start: data for start, data, _ in oracle.read_log(store / "commitlog") if data.strip(b"\0")}


def java_slave(begin, release, folder, name_server):
    """Start a slave of RocketMQ. It learns from the name server where its master is."""
    folder.mkdir(exist_ok=True)
    settings = {
        "broker.brokerId": 1, "store.brokerRole": "SLAVE", "store.mappedFileSizeCommitLog": FILE_SIZE,
        "store.haSendHeartbeatInterval": 500,
    }  # fmt: skip
    return begin(scenarios.JavaCluster, release, folder, namePort="none", nameServer=name_server, **settings)


@pytest.mark.parametrize("release", RELEASES)
def test_a_java_slave_copies_our_log(begin, tmp_path, release):
    """The slave begins at the master's last file. Its connection is cut twice, within records. SEND_OK comes only
    while it follows, and its log is the master's."""
    chance, port = random.Random(5), free_port()
    fields = {**SIZES, "broker_role": "SYNC_MASTER", "ha_listen_port": port, "slave_timeout": 1000}
    fields["broker_ip2"] = ELSEWHERE
    master = begin(OurBroker, tmp_path / "master", "--port", 0, **fields)
    cuts = [
        Rule("cut", to_server=False, after=40_000 + chance.randrange(5000), connection=0),
        Rule("reset", to_server=False, after=3 * FILE_SIZE // 2 + chance.randrange(5000), connection=1),
    ]
    between = begin(Between, port, cuts)
    with client.Producer("shop", master.name_server) as producer:
        statuses = []

        def send(count, size):
            for _ in range(count):
                statuses.append(producer.send("orders", chance.randbytes(chance.randrange(1, size))).status)

        send(150, 20_000)  # more than a file, before there is a slave
        assert set(statuses) == {SendStatus.SLAVE_NOT_AVAILABLE}
        java_slave(begin, release, tmp_path / "slave", master.name_server)
        deadline = time.monotonic() + 60
        while statuses[-1] is not SendStatus.SEND_OK and time.monotonic() < deadline:
            send(1, 2000)
        assert statuses[-1] is SendStatus.SEND_OK
        del statuses[:]
        while len({piece.connection for piece in between.pieces}) < 3 and time.monotonic() < deadline + 60:
            send(20, 8000)
        assert len({piece.connection for piece in between.pieces}) == 3, "both cuts, and a connection that stays"
        for _ in range(600):
            send(1, 8000)
            if statuses[-5:] == [SendStatus.SEND_OK] * 5:
                break
        send(100, 20_000)
        assert set(statuses[-100:]) == {SendStatus.SEND_OK}
        assert set(statuses) <= {
            SendStatus.SEND_OK, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE,
        }  # fmt: skip
    written = log_of(tmp_path / "master")
    copied = wait_for(lambda: same(log_of(tmp_path / "slave" / "store"), written))
    assert copied, "the slave's log differs"
    assert len(copied) >= 3, "files, so at least two rolls"


def same(copied, written):
    """The copied files if they are the last ones of the log, byte for byte."""
    names = sorted(written)[-len(copied) :] if copied else []
    return copied if names == sorted(copied) and all(copied[name] == written[name] for name in names) else None
