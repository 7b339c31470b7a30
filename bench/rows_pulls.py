"""Pulls of prepared frames, 1,000 held pulls, and sends beside peers that are slow. Rows for bench_broker."""

import contextlib
import os
import re
import socket
import subprocess
from pathlib import Path

import brokers
import load
from brokers import Process
from common import Bench, clock
from rows_sends import BODY, Loaded, NatsSide, RedisSide, busy_generator, costs, files, run
from writing import less_is_better

BATCH = 32  # messages of a pull
LARGE = 1024  # bytes of a body
PIPELINED = 8  # pulls in flight
HELD = 1000  # connections with a held pull
EVENLY_MS = 5.0  # allowed for the delivery of a message to a held pull, p99
SMALL_FILES = 8 << 20  # bytes of a log file: several are filled in a round
UNREAD = 2000  # pulls of the peer that does not read
SLOWER = 1.5  # allowed p99 of sends beside slow peers, against the same alone


def exchanged(port: int, frame: bytes) -> bytes:
    """Return the frame that answers one request."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            part = one.recv(1 << 20)
            if not part:
                raise SystemExit("bench: the broker has closed a connection")
            answer += part
    return answer


def fill(server: Process, folder: Path, topic: str, body: int, count: int):
    """Send messages to the first queue of a topic."""
    frames = load.kept(folder, f"fill-{topic}-{body}", lambda: load.sends(topic, 1, body))
    load.run("frames", server.port, frames, 1, 200, count)


# ---------------------------------------------------------------- pulls
def pulls(bench: Bench, folder: Path, broker: Process):
    messages = 8192 if bench.quick else 32_768  # warm, and more than a cache of the processor
    fill(broker, folder, "PullTopic", LARGE, messages)
    frames = load.kept(folder, "pulls", lambda: load.pulls("PullTopic", messages))
    size = 4 + int.from_bytes(frames.read_bytes()[:4], "big")
    answer = len(exchanged(broker.port, frames.read_bytes()[:size]))
    count = 4000 if bench.quick else 40_000
    case = f"pulls of {BATCH} x 1 KiB, {PIPELINED} in flight"
    with brokers.echo(folder, "pulls", size, answer) as echo:
        ours = Loaded(broker, frames, 1, PIPELINED, count, each=BATCH)
        theirs = Loaded(echo, frames, 1, PIPELINED, count, each=BATCH)
        rounds = bench.row(
            case, against="sendmsg of the same bytes", goal=0.6, work=count * answer / 1e9, unit="GB/s", ours=ours,
            theirs=theirs,
        )  # fmt: skip
        if rounds:
            busy_generator(bench, case, ours, theirs)
        costs(bench, rounds, case, "sendmsg of the same bytes", ours, theirs)
    consumed(bench, folder, broker)


class RedisConsumer:
    """XREADGROUP of 32, then XACK of them, on one connection; a new group each round."""

    def __init__(self, server: Process, count: int):
        self._server, self._count = server, count
        RedisSide.filled(server, count)
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        group = f"group-{len(self.figures)}"
        before = self._server.used()
        with socket.create_connection(("127.0.0.1", self._server.port)) as one:
            one.sendall(f"XGROUP CREATE s {group} 0\r\n".encode())
            one.recv(100)
            read = f"XREADGROUP GROUP {group} c COUNT {BATCH} STREAMS s >\r\n".encode()
            find = re.compile(rb"\r\n(\d+-\d+)\r\n").findall
            start, seen = clock(), 0
            while seen < self._count:
                one.sendall(read)
                ids: list[bytes] = []
                answer = b""
                while len(ids) < min(BATCH, self._count - seen) or not answer.endswith(b"x\r\n"):
                    answer += one.recv(1 << 20)
                    ids = find(answer)
                one.sendall(b"XACK s %b %b\r\n" % (group.encode(), b" ".join(ids)))
                one.recv(100)
                seen += len(ids)
            seconds = clock() - start
        used = self._server.used() - before
        self.figures.append({"cpu_us": used.all / self._count * 1e6})
        return seconds


class NatsConsumer(NatsSide):
    """`nats bench js consume` with explicit acks, from a stream that is filled before."""

    def __init__(self, server: Process, count: int):
        super().__init__(server, "async", 1, count)
        run([brokers.PEERS / "nats", "-s", self._url, *self._words])
        self._words = ["bench", "js", "consume", "--batch=500", "--no-progress", f"--msgs={count}", "--clients=1"]
        self._after = ["consumer", "rm", "-f", "benchstream", "nats-bench"]


def consumed(bench: Bench, folder: Path, broker: Process):
    count = 32_000 if bench.quick else 320_000
    case = f"pulls of {BATCH} x {BODY} B, one connection, 1 in flight, offsets committed"
    fill(broker, folder, "BenchTopic", BODY, 32_000)
    flag = load.SUBSCRIPTION | load.COMMIT
    frames = load.kept(folder, "consume", lambda: load.pulls("BenchTopic", 32_000, flag))

    def row(goal: float, against: str, theirs, their_count: int):
        ours = Loaded(broker, frames, 1, 1, count // BATCH, each=BATCH)
        rounds = bench.row(
            case, against=against, goal=goal, work=count / 1e3, their_work=their_count / 1e3, unit="k/s", ours=ours,
            theirs=theirs,
        )  # fmt: skip
        costs(bench, rounds, case, against, ours, theirs)

    with contextlib.ExitStack() as stack:
        if redis := brokers.redis(folder, "everysec"):
            stack.callback(brokers.end, redis)
            if bench.wanted(case, "Redis XREADGROUP + XACK"):
                row(3, "Redis XREADGROUP + XACK", RedisConsumer(redis, count // 4), count // 4)
        if nats := brokers.nats(folder, always=False):
            stack.callback(brokers.end, nats)
            if bench.wanted(case, "NATS JetStream, explicit ack"):
                row(2, "NATS JetStream, explicit ack", NatsConsumer(nats, count // 2), count // 2)


# ---------------------------------------------------------------- held pulls
def held(bench: Bench, folder: Path, broker: Process):
    """1,000 held pulls: a message to each at once, and 1,000 messages a second spread evenly."""
    bursts, evenly = (5, HELD) if bench.quick else (20, 10 * HELD)
    frames = load.kept(folder, "held", lambda: load.held("HeldTopic", BODY))
    case = f"{HELD:,} held pulls"
    if not bench.wanted(case, "uvloop echo"):
        return
    frame = load.send("HeldTopic", f"{HELD}", 0, b"x" * BODY)
    exchanged(broker.port, frame)
    answer = load.kept(folder, "held-answer", lambda: exchanged(broker.port, load.pull("HeldTopic", f"{HELD}", "0")))
    rounds = 1 if bench.quick else 3
    last: dict[str, list[float]] = {"ours": [], "theirs": []}
    p99, first = [], 0
    with brokers.echo(folder, "held", HELD, answer) as echo:
        for _ in range(rounds):
            mine = load.run("held", broker.port, frames, HELD, first, bursts, evenly)
            first += bursts + evenly // HELD
            last["ours"] += mine["last_us"]
            p99.append(mine["p99_us"] / 1e3)
            last["theirs"] += load.run("held", echo.port, frames, HELD, 0, bursts, 0)["last_us"]
    a, b = last["ours"], last["theirs"]
    less_is_better(
        bench, len(a), f"{case}, a message to each at once: until the last is answered", "uvloop echo", a, b, "us", 0.5
    )
    less_is_better(
        bench, len(p99), f"{case}, 1,000 messages a second spread evenly: p99 of the delivery", f"{EVENLY_MS:g} ms",
        p99, [EVENLY_MS] * len(p99), "ms", 1,
    )  # fmt: skip


# ---------------------------------------------------------------- slow peers
def forget(root: Path):
    """Remove the log of a store from the page cache. Nothing may have it open."""
    for path in (root / "store" / "commitlog").iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class BesideSlowPeers:
    """A side: sends of 16 connections, while one peer does not read, one reads cold data, and log files are filled."""

    def __init__(self, folder: Path, count: int, cold: int):
        self._folder, self._count, self._cold = folder, count, cold
        self._root = brokers.make_store(folder)
        with self._start() as broker:
            fill(broker, folder, "PullTopic", LARGE, cold)
        self._pulls = load.kept(folder, f"cold-{cold}", lambda: load.pulls("PullTopic", cold))
        self.p99_us: list[float] = []

    def _start(self) -> Process:
        return brokers.ours(self._folder, self._root, mappedFileSizeCommitLog=SMALL_FILES)

    def __call__(self) -> float:
        forget(self._root)
        sends, _, _ = files(self._folder)
        with self._start() as broker, socket.create_connection(("127.0.0.1", broker.port)) as unread:
            unread.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                unread.sendall(load.pull("PullTopic", "0", f"{self._cold - 32}") * UNREAD)
            words = ["frames", broker.port, self._pulls, 1, 1, self._cold // BATCH]
            reader = subprocess.Popen([load.build(), *map(str, words)], stdout=subprocess.DEVNULL)
            try:
                done = load.run("frames", broker.port, sends, 16, 1, self._count)
            finally:
                reader.kill()
                reader.wait()
        self.p99_us.append(done["p99_us"])
        return done["seconds"]


class Alone:
    """A side: the same sends, at a new broker that has nothing else to do."""

    def __init__(self, folder: Path, count: int):
        self._folder, self._count = folder, count
        self.p99_us: list[float] = []

    def __call__(self) -> float:
        with brokers.ours(self._folder) as broker:
            done = load.run("frames", broker.port, files(self._folder)[0], 16, 1, self._count)
        self.p99_us.append(done["p99_us"])
        return done["seconds"]


def beside_slow_peers(bench: Bench, folder: Path):
    case, against = "sends, 16 connections, beside slow peers", "the same sends alone"
    if not bench.wanted(f"{case}: p99", against):
        return
    count, cold = (20_000, 30_000) if bench.quick else (200_000, 400_000)
    ours, theirs = BesideSlowPeers(folder, count, cold), Alone(folder, count)
    rounds = 3 if bench.quick else 7
    for _ in range(rounds):
        ours()
        theirs()
    less_is_better(bench, rounds, f"{case}: p99", against, ours.p99_us, theirs.p99_us, "us", round(1 / SLOWER, 3))
