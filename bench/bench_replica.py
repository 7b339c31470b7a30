"""How fast does a replica catch up with its master, against the same bytes over TCP, and against a slave of RocketMQ?

For TCP, another process sends the log over loopback, and measures from the first report of a replica to the one of the
end. For RocketMQ, both slaves are brokers that copy from one `rocketc broker`, which says how far they are. Other rows
measure how much a slave slows the sends at its master, see rows_copied.py.
"""

import asyncio
import mmap
import os
import random
import shutil
import socket
import sys
from pathlib import Path

import brokers
import java_peer
import rows_copied
from common import MIB, Bench, clock, same
from rows_raw import wait_until_idle
from rows_replicas import slave_of
from writing import scratch

import rocketc
from rocketc import client
from rocketc.ha.slave import Slave
from rocketc.remoting.loops import run_on_loop

bench = Bench("replica", __doc__)
bench.rounds = 3
SIZE = (64 if bench.quick else 1024) * MIB
GOAL, JAVA_GOAL = 0.5, 3
FILE_SIZE = 3 * SIZE // 2  # of the master's log: a slave of RocketMQ begins at the last file
CATCH_UP_SECONDS = 120


class Sender(brokers.Process):
    """The process that sends; see ha_sender.py."""

    def __init__(self, log: str, folder: Path):
        script = Path(__file__).with_name("ha_sender.py")
        super().__init__("sender", [sys.executable, script, log], folder / "sender.log")
        brokers.printed_port(self)

    def seconds(self) -> float:
        return float(self.popen.stdout.readline())


def replica(sender: Sender, folder: Path, first: bytes) -> float:
    """Copy the log into a store whose file is created and touched before."""
    shutil.rmtree(folder / "copy", ignore_errors=True)
    fields = {"mapped_file_size_commit_log": SIZE, "warm_maped_file_enable": True, "broker_role": "SLAVE"}
    with rocketc.open(folder / "copy", **fields) as store:
        store.append_raw(0, first)
        store.wait_dispatched()
        wait_until_idle()

        async def copy():
            slave = Slave(store, ("127.0.0.1", sender.port), chance=random.Random(1))
            running = asyncio.create_task(slave.run())
            while slave.position < SIZE and not running.done():
                await asyncio.sleep(0.001)
            running.cancel()
            await asyncio.wait({running})

        run_on_loop(copy())
        seconds = sender.seconds()
        same(store.max_phy_offset, SIZE, "the replica (end of the log)")
    return seconds


def stream(sender: Sender, folder: Path) -> float:
    """Receive the same bytes into a file that is mapped and touched before."""
    with open(folder / "stream", "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, SIZE)
        with mmap.mmap(file.fileno(), SIZE) as room, memoryview(room) as view:
            room.madvise(mmap.MADV_RANDOM)  # small pages, as for a log
            for at in range(0, SIZE, mmap.PAGESIZE):
                room[at] = 0
            with socket.create_connection(("127.0.0.1", sender.port)) as peer:
                peer.sendall((-1).to_bytes(8, "big", signed=True))
                at = 0
                while at < SIZE:
                    at += peer.recv_into(view[at : at + MIB])
                peer.sendall(SIZE.to_bytes(8, "big"))
                return sender.seconds()


class Master:
    """A `rocketc broker` with the log, and brokers that copy it, each time into a new store."""

    def __init__(self, folder: Path):
        self._folder, self._ha_port = folder, brokers.free_port()
        root = brokers.make_store(folder)
        with rocketc.open(root / "store", mapped_file_size_commit_log=FILE_SIZE) as store:
            while store.max_phy_offset < SIZE:
                store.put_many("BenchTopic", [bytes(1024)] * 1000)
        sizes = {"mappedFileSizeCommitLog": FILE_SIZE}
        self._process = brokers.ours(folder, root, brokerRole="ASYNC_MASTER", haListenPort=self._ha_port, **sizes)
        self._sizes = sizes

    def ours(self) -> float:
        address = f"127.0.0.1:{self._ha_port}"
        slave = brokers.ours(self._folder, brokerRole="SLAVE", brokerId=1, haMasterAddress=address, **self._sizes)
        return self._followed(slave)

    def java(self, release: str) -> float:
        sizes = {f"store.{name}": value for name, value in self._sizes.items()}
        return self._followed(slave_of(self._folder, release, self._process, **sizes))

    def _followed(self, slave: brokers.Process) -> float:
        """Return the seconds from the first answer that shows the slave to the one in which it has the whole log."""

        async def follow() -> float:
            began, end = None, clock() + CATCH_UP_SECONDS
            async with client.Admin(self._process.name_server) as admin:
                while clock() < end:
                    for one in (await admin.replicas())["broker-a"]:
                        began = clock() if began is None else began
                        if one.behind == 0:
                            return clock() - began
                    await asyncio.sleep(0.002)
            return slave.fail("does not catch up")

        with slave:
            return run_on_loop(follow())

    def close(self):
        self._process.close()


def beside_java(folder: Path):
    release = java_peer.RELEASES[-1]
    master = Master(folder)
    try:
        bench.row(
            f"broker as a slave, catching up a log of {SIZE // MIB} MiB",
            against=f"Java {release} as a slave",
            goal=JAVA_GOAL,
            work=SIZE / 1e9,
            unit="GB/s",
            ours=master.ours,
            theirs=lambda: master.java(release),
        )
    finally:
        master.close()


def main():
    case = f"catching up a log of {SIZE // MIB} MiB"
    log = bench.log(body=1024, size=SIZE, file_size=SIZE)
    with rocketc.open(log.path, read_only=True) as master:
        first = master.read_raw(0)
    same(os.path.getsize(log.files[0]), SIZE, "the log")
    with scratch(bench) as folder, Sender(log.files[0], folder) as sender:
        bench.row(
            case,
            against="a TCP stream into a warmed file",
            goal=GOAL,
            work=SIZE / 1e9,
            unit="GB/s",
            ours=lambda: replica(sender, folder, first),
            theirs=lambda: stream(sender, folder),
        )
    with scratch(bench) as folder:
        rows_copied.beside_copies(bench, folder)
    if brokers.has_java(bench.name):
        with scratch(bench) as folder:
            beside_java(folder)


if __name__ == "__main__":
    main()
