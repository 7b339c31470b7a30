"""A program that copies a log: `python log_reader.py slave|replica|stream MASTER RATE FOLDER BROKER FILE_SIZE`

`slave` is the slave of a broker, which acknowledges, without its store: it keeps nothing. `replica` is `rocketc
replicate`, which writes its copy into FOLDER. Both copy at the RATE in bytes per second. `stream` reads the same bytes
over TCP from ha_sender.py, which limits the rate, and keeps nothing. For each line of its input the program prints how
many bytes it has received; it prints the first line when the first bytes have come. The end of its input ends it.
"""

import os
import random
import socket
import sys
import threading
from collections.abc import Callable

import rocketc
from rocketc.config import StoreConfig
from rocketc.ha.slave import Slave
from rocketc.remoting.loops import run_on_loop

BLOCK = 1 << 20


def answer(received: Callable[[], int]):
    print(received(), flush=True)
    for _ in sys.stdin:
        print(received(), flush=True)


def replica(master: str, rate: int, folder: str, broker: str, file_size: int):
    options = {"start": 0, "rate_limit": rate, "broker": broker, "mapped_file_size": file_size, "interval": 0.02}
    with rocketc.replicate(master, folder, **options) as copy:
        while next(copy).received_bytes == 0:
            pass
        answer(lambda: next(copy).received_bytes)


class Nothing:
    """What a slave needs of a store; it keeps no bytes."""

    def __init__(self, file_size: int):
        self.config = StoreConfig(mapped_file_size_commit_log=file_size)
        self.min_phy_offset = self.max_phy_offset = 0

    def read_log(self, phy_offset: int, max_bytes: int) -> bytes:
        return b""

    def append_raw(self, phy_offset: int, data: memoryview) -> int:
        self.max_phy_offset = phy_offset + len(data)
        return self.max_phy_offset


def slave(master: str, rate: int, file_size: int):
    host, _, port = master.rpartition(":")

    async def main():
        made = Slave(Nothing(file_size), (host, int(port)), from_start=0, chance=random.Random(1), rate_limit=rate)
        in_thread(lambda: made.received_bytes)
        await made.run()

    run_on_loop(main())


def in_thread(received: Callable[[], int]):
    """Answer in a thread, and end the process with the input."""

    def run():
        while received() == 0:
            threading.Event().wait(0.02)
        answer(received)
        os._exit(0)

    threading.Thread(target=run, daemon=True).start()


def stream(master: str):
    host, _, port = master.rpartition(":")
    received = 0
    in_thread(lambda: received)
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall((-1).to_bytes(8, "big", signed=True))
        room = bytearray(BLOCK)
        while count := peer.recv_into(room):
            received += count
    threading.Event().wait()


def main():
    kind, master, rate, folder, broker, file_size = sys.argv[1:]
    if kind == "slave":
        slave(master, int(rate), int(file_size))
    elif kind == "replica":
        replica(master, int(rate), folder, broker, int(file_size))
    else:
        stream(master)


if __name__ == "__main__":
    main()
