"""A master of the HA protocol without a broker: `python ha_sender.py FILE [RATE]`

It sends one log file, whose first byte has the physical offset 0, in transfers of 32 KiB, as RocketMQ's master does. A
first report of -1 asks for the same bytes without headers. It prints its port, then for each connection the seconds
from the first report to the one of the end. With a RATE, in bytes a second, it does not send faster. The end of its
input ends it.
"""

import mmap
import os
import socket
import struct
import sys
import threading
import time

TRANSFER = 32 << 10
RAW = -1
HEADER = struct.Struct(">qi")
SHORTEST = 0.005  # seconds; the rate is limited as by a slave: no shorter pauses, and lost time is not made good


def report(peer: socket.socket) -> int:
    data = b""
    while len(data) < 8:
        more = peer.recv(8 - len(data))
        if not more:
            raise ConnectionError("the slave has gone")
        data += more
    return int.from_bytes(data, "big", signed=True)


def send_all(peer: socket.socket, pieces: list):
    size, sent = sum(map(len, pieces)), peer.sendmsg(pieces)
    if sent < size:
        peer.sendall(b"".join(pieces)[sent:])


def serve(peer: socket.socket, log: memoryview, rate: int | None):
    first = report(peer)
    start = free_at = time.perf_counter()
    at = max(first, 0)
    while at < len(log):
        block = log[at : at + TRANSFER - at % TRANSFER]
        send_all(peer, [block] if first == RAW else [HEADER.pack(at, len(block)), block])
        at += len(block)
        if rate is not None:
            now = time.perf_counter()
            free_at = max(free_at, now) + len(block) / rate
            if free_at - now > SHORTEST:
                time.sleep(free_at - now)
    while report(peer) < len(log):
        pass
    print(time.perf_counter() - start, flush=True)


def main():
    rate = int(sys.argv[2]) if len(sys.argv) > 2 else None
    with open(sys.argv[1], "rb") as file:
        log = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    bytes(log[:: mmap.PAGESIZE])  # into the page cache
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            peer, _ = listening.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with peer:
                try:
                    serve(peer, log, rate)
                except ConnectionError:
                    pass


if __name__ == "__main__":
    main()
