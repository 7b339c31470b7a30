"""Pulls of prepared frames, 1,000 held pulls, and sends beside peers that are slow. Rows for bench_broker."""

import contextlib
import json
import os
import re
import socket
import subprocess
import threading
import time
from itertools import islice
from pathlib import Path

import brokers
import load
from brokers import Process
from common import Bench, clock, same
from rows_sends import BODY, Loaded, NatsSide, RedisSide, busy_generator, costs, files, run
from writing import less_is_better

import rocketc

BATCH = 32  # messages of a pull
UNMATCHED = "price > 10 AND region = 'eu' AND kind IS NOT NULL"  # a filter that no message of load.py matches
FILTERED = 0.9  # rate of sends beside a held consumer whose filter matches nothing, against the same sends alone
LARGE = 1024  # bytes of a body
PIPELINED = 8  # pulls in flight
SCAN = 0.6  # bytes a second of a scan over the wire, against those of the pulls
HELD = 1000  # connections with a held pull
EVENLY_MS = 5.0  # allowed for the delivery of a message to a held pull, p99
SMALL_FILES = 8 << 20  # bytes of a log file: several are filled in a round
UNREAD = 2000  # pulls of the peer that does not read
SLOWER = 1.5  # allowed p99 of sends beside slow peers, against the same alone


def exchanged(port: int, frame: bytes, open_sockets: list | None = None) -> bytes:
    """Return the frame that answers one request. open_sockets: gets the socket, so that another thread may end it."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        if open_sockets is not None:
            open_sockets.append(one)
        one.sendall(frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            part = one.recv(1 << 20)
            if not part:
                raise SystemExit("bench: the broker has closed a connection")
            answer += part
    return answer


def fill(server: Process, folder: Path, topic: str, body: int, count: int, queues: int = 1):
    """Send messages to the first queues of a topic."""
    frames = load.kept(folder, f"fill-{topic}-{body}", lambda: load.sends(topic, queues, body))
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
    scanned(bench, folder, broker, Loaded(broker, frames, 1, PIPELINED, count, each=BATCH), count * answer / 1e9)
    consumed(bench, folder, broker)


class Scanned:
    """A side: one round reads a topic over the wire into Arrow batches, in this process."""

    def __init__(self, server: Process, topic: str, count: int):
        self._url, self._server, self._count = f"rocketmq://{server.name_server}/{topic}", server, count
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        before, began = self._server.used(), clock()
        rows = sum(batch.num_rows for batch in rocketc.scan(self._url).batches())
        seconds = clock() - began
        same(rows, self._count, "rows")
        self.figures.append({"cpu_us": (self._server.used() - before).all / self._count * 1e6})
        return seconds


def scanned(bench: Bench, folder: Path, broker: Process, raw: Loaded, work: float):
    """A scan of a topic of 4 queues into Arrow, against the pulls of the load generator, which does not decode.

    raw, work  the pulls, and the GB of a round
    """
    messages = 32_768 if bench.quick else 262_144
    case = "scan of a topic over the wire into Arrow, 4 queues, 1 KiB"
    if not bench.wanted(case, "raw pulls"):
        return
    fill(broker, folder, "ConsumeTopic", LARGE, messages, queues=4)
    ours = Scanned(broker, "ConsumeTopic", messages)
    size = sum(message.store_size for message in islice(rocketc.scan(ours._url, columns=[]), 100)) / 100
    rounds = bench.row(
        case, against="raw pulls", goal=SCAN, work=messages * size / 1e9, their_work=work, unit="GB/s", ours=ours,
        theirs=raw,
    )  # fmt: skip
    costs(bench, rounds, case, "raw pulls", ours, raw)


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


class UnmatchedConsumer:
    """Holds a pull at each queue of BenchTopic, with a filter or a tag that no message matches, until close()."""

    def __init__(self, broker: Process, kind: str, expression: str):
        self._broker, self._subscription = broker, {"expressionType": kind, "subscription": expression}
        self._ended, self.woken = threading.Event(), 0
        self._threads = [threading.Thread(target=self._hold, args=(f"{queue:04d}",)) for queue in range(4)]
        self._sockets = []
        for thread in self._threads:
            thread.start()

    def _hold(self, queue: str):
        offset = str(2**62)  # the answer says where the end is
        while not self._ended.is_set():
            frame = load.pull("BenchTopic", queue, offset, load.SUBSCRIPTION | load.SUSPEND, **self._subscription)
            try:
                answer = exchanged(self._broker.port, frame, self._sockets)
            except OSError:
                return
            offset = json.loads(answer[8 : 8 + int.from_bytes(answer[5:8], "big")])["extFields"]["nextBeginOffset"]
            self.woken += 1

    def close(self):
        self._ended.set()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


class BesideUnmatched(Loaded):
    """A side: sends while a consumer is held whose filter matches nothing."""

    def __init__(self, *loaded, kind: str, expression: str):
        super().__init__(*loaded)
        self._how = kind, expression

    def __call__(self) -> float:
        consumer = UnmatchedConsumer(self._server, *self._how)
        try:
            time.sleep(0.2)  # until its pulls are held
            return super().__call__()
        finally:
            consumer.close()


def beside_filters(bench: Bench, folder: Path):
    """Sends beside a held consumer that wants none of the messages: by an SQL92 filter, and by a tag."""
    with brokers.ours(folder, enablePropertyFilter="true") as broker:
        sends, _, _ = files(folder)
        few = bench.rounds
        for depth, count, times in ((1, 40_000, 1), (16, 300_000, 1), (1000, 500_000, 3)):
            count = count // 10 if bench.quick else count
            bench.rounds = times * few  # the rounds of a second differ by a fifth and more
            for kind, expression, goal in (("SQL92", UNMATCHED, FILTERED), ("TAG", "TagB", None)):
                case = f"sends, 1 connection, {depth} in flight, beside a held {kind} filter that matches nothing"
                ours = BesideUnmatched(broker, sends, 1, depth, count, kind=kind, expression=expression)
                theirs = Loaded(broker, sends, 1, depth, count)
                rounds = bench.row(
                    case, against="the same sends alone", goal=goal, work=count / 1e3, unit="k/s", ours=ours,
                    theirs=theirs,
                )  # fmt: skip
                if rounds:
                    busy_generator(bench, case, ours, theirs)
                costs(bench, rounds, case, "the same sends alone", ours, theirs)
        bench.rounds = few


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
