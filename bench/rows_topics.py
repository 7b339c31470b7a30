"""Sends that create topics, beside few and many existing topics. Rows for bench_broker."""

import selectors
import socket
import statistics
import time
from pathlib import Path

import brokers
import load
from brokers import Process
from common import Bench, clock
from writing import less_is_better

FEW, MANY = 100, (10_000, 100_000)  # topics that exist before
DEARER = 1.5  # allowed for the CPU of a creation beside many topics
CLIENTS = 1000  # that create a topic each, at once
ALLOWED_SECONDS = 3.0  # for the 99th percentile of them


def creations(bench: Bench, folder: Path):
    """Measure the CPU of a send that creates its topic, until the topic is on the disk and at the name server.

    Few and many topics take turns, in brokers of their own. Each broker is idle before the clock starts: its start does
    not count, which reads the whole table.
    """
    rounds, count = (3, 50) if bench.quick else (7, 200)
    cases = {number: f"a send that creates a topic, beside {number:,} topics: CPU" for number in MANY}
    against = f"beside {FEW} topics"
    wanted = [number for number in MANY if bench.wanted(cases[number], against)]
    if wanted:
        with started(folder, FEW) as few:
            for number in wanted:
                with started(folder, number) as many:
                    pairs = [(cpu_of(many, count), cpu_of(few, count)) for _ in range(rounds)]
                less_is_better(bench, rounds, cases[number], against, *zip(*pairs, strict=True), "us", 1 / DEARER)
    for number in (FEW, *MANY):
        case, against = f"{CLIENTS:,} clients create a topic each, beside {number:,} topics", f"{ALLOWED_SECONDS:g} s"
        if bench.wanted(f"{case}: p99", against):
            with started(folder, number) as broker:
                took = [at_once(broker, f"Crowd{n}-") for n in range(rounds)]
            worst = [statistics.quantiles(one, n=100)[98] for one in took]
            less_is_better(bench, rounds, f"{case}: p99", against, worst, [ALLOWED_SECONDS] * rounds, "s", 1)


def started(folder: Path, number: int) -> Process:
    """Start a broker with many topics, and wait until it is idle."""
    root = brokers.make_store(folder, {f"Topic{n:06d}": 4 for n in range(number)})
    broker = brokers.ours(folder, root)
    settle(broker)
    return broker


def settle(broker: Process):
    """Wait until a server has used hardly any CPU for a moment."""
    before, quiet = broker.used().all, 0
    while quiet < 3:
        time.sleep(0.1)
        now = broker.used().all
        quiet = quiet + 1 if now - before < 0.005 else 0
        before = now


def cpu_of(broker: Process, count: int) -> float:
    """Return the us of CPU of a creation."""
    first = time.monotonic_ns()
    before = broker.used()
    with socket.create_connection(("127.0.0.1", broker.port)) as one:
        for n in range(count):
            one.sendall(load.send(f"New{first}-{n}", "0000", n, b"x"))
            check(answer_of(one))
    settle(broker)
    return (broker.used() - before).all / count * 1e6


def at_once(broker: Process, name: str) -> list[float]:
    """Let each client create a topic, all at once. Return the seconds until its answer came."""
    sockets = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(CLIENTS)]
    frames = [load.send(f"{name}{n}", "0000", n, b"x") for n in range(CLIENTS)]
    took = []
    with selectors.DefaultSelector() as selector:
        began = clock()
        for one, frame in zip(sockets, frames, strict=True):
            selector.register(one, selectors.EVENT_READ)
            one.sendall(frame)
        while len(took) < CLIENTS:
            for key, _ in selector.select():
                check(answer_of(key.fileobj))
                took.append(clock() - began)
    for one in sockets:
        one.close()
    settle(broker)
    return took


def answer_of(one: socket.socket) -> bytes:
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        part = one.recv(1 << 16)
        if not part:
            raise SystemExit("bench: the broker has closed a connection")
        answer += part
    return answer


def check(answer: bytes):
    if b'"code":0' not in answer:
        raise SystemExit(f"bench: a send that creates a topic was refused: {answer!r}")
