"""Sends of prepared frames by a load generator in C, against floors, Java, Redis and NATS. Rows for bench_broker."""

import csv
import re
import statistics
import subprocess
import sys
from collections import deque
from pathlib import Path

import brokers
import load
from brokers import Process
from common import Bench, Point
from writing import Side, less_is_better, scratch, text

import rocketc

BODY = 128
NATS_STREAM = "benchstream"
LOOP_USER_US = {1: 1.8}  # depth -> allowed us of user CPU of the loop's thread, a message
DEFAULT_USER_US = 1.5
LOOP_US, OTHERS_US = 1.5, 0.5  # all of its CPU from 16 frames a read event on; all other threads
ALL_US = 2.0  # of 1,000 in flight over 16 connections
FULL_GENERATOR = 0.97  # of a core: then the generator may be what limits the rate


class Loaded:
    """A side: one round sends frames of a file to a server.

    each     messages of a frame
    figures  of each round: seconds, us of CPU of the server a message, percentiles of a frame, MB of private memory
    """

    def __init__(self, server: Process, frames: Path, connections: int, window: int, count: int, each: int = 1):
        self._server, self._count, self._each = server, count, each
        self._words = ("frames", server.port, frames, connections, window, count)
        self._ticks = [0.0, 0.0]  # seconds of user and system time of the loop's thread, of all rounds
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        before = self._server.used()
        done = load.run(*self._words)
        used, messages = self._server.used() - before, self._count * self._each / 1e6
        self._ticks = [a + b for a, b in zip(self._ticks, (used.user, used.system), strict=True)]
        share = self._ticks[0] / max(1e-9, sum(self._ticks))
        self.figures.append(
            {
                **{"seconds": done["seconds"], "p50_us": done["p50_us"], "p99_us": done["p99_us"]},
                **{"cpu_us": used.all / messages, "loop_us": used.loop / messages},
                **{"user_us": used.loop / messages * share, "others_us": (used.all - used.loop) / messages},
                **{"anon_mb": self._server.anon() * 1.048576, "generator": done["own_cpu"] / done["seconds"]},
            }
        )
        return done["seconds"]


def busy_generator(bench: Bench, case: str, *sides: Loaded):
    """Report rounds in which the load generator needed a whole core."""
    for side in sides:
        share = statistics.median(one["generator"] for one in side.figures)
        if share > FULL_GENERATOR:
            print(f"{bench.name}: {case}: the load generator used {share:.2f} of a core", file=sys.stderr)


def costs(bench: Bench, rounds: int, case: str, against: str, ours, theirs, goal: float | None = None):
    """Print the row of the server's CPU a message for a row that was measured."""
    a, b = ([one["cpu_us"] for one in side.figures] for side in (ours, theirs))
    if rounds and all(a):
        less_is_better(bench, rounds, f"{case}: CPU of the broker", against, a, b, "us a message", goal)


def allowed(bench: Bench, rounds: int, case: str, side: Loaded, name: str, most: float, unit: str = "us a message"):
    """Print the row of one figure of our rounds against what is allowed."""
    found = [one[name] for one in side.figures][-rounds:]
    if rounds:
        less_is_better(bench, rounds, case, f"{most:g} {unit.split()[0]}", found, [most] * len(found), unit, goal=1)


def counts(bench: Bench) -> dict[int, int]:
    """Return the messages of a round by frames in flight."""
    if bench.quick:
        return {1: 3_000, 4: 8_000, 16: 25_000, 200: 60_000, 1000: 60_000}
    return {1: 40_000, 4: 120_000, 16: 300_000, 200: 500_000, 1000: 500_000}


def files(folder: Path) -> tuple[Path, Path, int]:
    """Return the files of sends and of their answer, and the bytes of a send."""
    sends = load.kept(folder, "sends", lambda: load.sends("BenchTopic", 4, BODY))
    return sends, load.kept(folder, "sent", load.sent), len(sends.read_bytes()) // load.KINDS


# ---------------------------------------------------------------- floors
def floors(bench: Bench, folder: Path, broker: Process):
    sends, answer, size = files(folder)
    many = counts(bench)
    lean = [(1, 1, 0.9), (16, 1, 0.7)]
    deep = [(1, depth, 0.5 if depth >= 200 else None) for depth in (4, 16, 200, 1000)]
    with brokers.echo(folder, "sends", size, answer) as echo, brokers.echo(folder, "lengths", size, answer) as lengths:
        for connections, depth, goal in [*lean, *deep]:
            case = f"sends, {plural(connections)}, {depth} in flight{' each' * (connections > 1)}"
            count = many[depth] * (4 if connections > 1 else 1)
            for floor, name, wanted in ((echo, "uvloop echo", goal), (lengths, "uvloop echo, lengths read", None)):
                if floor is lengths and (depth < 200 or bench.quick):
                    continue
                ours = Loaded(broker, sends, connections, depth, count)
                theirs = Loaded(floor, sends, connections, depth, count)
                rounds = bench.row(
                    case, against=name, goal=wanted, work=count / 1e3, unit="k/s", ours=ours, theirs=theirs,
                    point=Point("broker, depth", "sends", depth) if connections == 1 else None,
                )  # fmt: skip
                if not rounds:
                    continue
                busy_generator(bench, case, ours, theirs)
                if floor is echo:
                    costs(bench, rounds, case, name, ours, theirs)
                    of_loop(bench, rounds, case, connections, depth, ours)
        spread_out(bench, broker, sends, many[1000])


def of_loop(bench: Bench, rounds: int, case: str, connections: int, depth: int, ours: Loaded):
    """The rows of CPU a message by thread."""
    if connections > 1:
        return
    most = LOOP_USER_US.get(depth, DEFAULT_USER_US)
    allowed(bench, rounds, f"{case}: user CPU of the loop's thread", ours, "user_us", most)
    if depth >= 16:
        allowed(bench, rounds, f"{case}: CPU of the loop's thread", ours, "loop_us", LOOP_US)
        allowed(bench, rounds, f"{case}: CPU of the other threads", ours, "others_us", OTHERS_US)


def spread_out(bench: Bench, broker: Process, sends: Path, count: int):
    case = "sends, 16 connections, 62 in flight each"
    if not bench.wanted(f"{case}: CPU of the broker", f"{ALL_US:g} us"):
        return
    side = Loaded(broker, sends, 16, 62, count)
    side()
    for _ in range(bench.rounds):
        side()
    allowed(bench, bench.rounds, f"{case}: CPU of the broker", side, "cpu_us", ALL_US)


def plural(count: int) -> str:
    return "one connection" if count == 1 else f"{count} connections"


# ---------------------------------------------------------------- Java
def beside_java(bench: Bench, folder: Path, broker: Process, java: Process):
    sends, _, _ = files(folder)
    for depth, goal in ((1, None), (1000, 5)):
        case, count = f"sends, one connection, {depth} in flight", counts(bench)[depth]
        their_count = count if depth == 1 else count // 5
        ours, theirs = Loaded(broker, sends, 1, depth, count), Loaded(java, sends, 1, depth, their_count)
        rounds = bench.row(
            case, against=java.name, goal=goal, work=count / 1e3, unit="k/s", ours=ours, theirs=theirs,
            their_work=their_count / 1e3,
        )  # fmt: skip
        costs(bench, rounds, case, java.name, ours, theirs, goal=5)


# ---------------------------------------------------------------- Redis and NATS, by their own load tools
class RedisSide:
    """redis-benchmark with XADD; its clock."""

    def __init__(self, server: Process, clients: int, pipelined: int, count: int):
        self._server, self._count = server, count
        self._command = ["redis-benchmark", "-p", server.port, "-c", clients, "-P", pipelined, "-n", count, "--csv"]
        self._command += ["XADD", "s", "*", "b", "x" * BODY]
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        before = self._server.used()
        done = run(self._command)
        used = self._server.used() - before
        rows = [row for row in csv.reader(done.splitlines()) if len(row) == 8 and row[0] != "test"]
        self.figures.append({"cpu_us": used.all / self._count * 1e6})
        run(["redis-cli", "-p", self._server.port, "DEL", "s"])
        return self._count / float(rows[-1][1])

    @staticmethod
    def filled(server: Process, count: int):
        run(["redis-benchmark", "-p", server.port, "-P", 32, "-n", count, "-q", "XADD", "s", "*", "b", "x" * BODY])


class NatsSide:
    """`nats bench js pub` into a stream in a file; its clock."""

    def __init__(self, server: Process, kind: str, clients: int, count: int):
        self._server, self._count = server, count
        self._url = f"nats://127.0.0.1:{server.port}"
        batch = ["--batch=1000"] if kind == "async" else []
        self._words = ["bench", "js", "pub", kind, "--create", "--storage=file", "--maxbytes=4GB", "--no-progress"]
        self._words += [f"--clients={clients}", f"--msgs={count}", f"--size={BODY}B", *batch, "bench"]
        self._after = ["stream", "rm", "-f", NATS_STREAM]
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        before = self._server.used()
        told = re.sub(r"\x1b\[[0-9;]*m", "", run([brokers.PEERS / "nats", "-s", self._url, *self._words]))
        used = self._server.used() - before
        rate = re.findall(r"([\d,]+) msgs/sec", told)[-1]
        self.figures.append({"cpu_us": used.all / self._count * 1e6})
        run([brokers.PEERS / "nats", "-s", self._url, *self._after])
        return self._count / float(rate.replace(",", ""))


def run(command: list) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(words[:4])}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def beside_peers(bench: Bench, folder: Path, broker: Process, *, always: bool):
    """Rows against Redis and NATS; always: each send waits for the disk."""
    sends, _, _ = files(folder)
    small = bench.quick
    many = 60_000 if small else 500_000
    few = 8_000 if small else 150_000
    alone = 3_000 if small else 30_000
    synced = (3_000, 400) if small else (100_000, 15_000)
    redis, nats = brokers.redis(folder, "always" if always else "everysec"), brokers.nats(folder, always=always)
    for name, found in (("Redis", redis), ("NATS", nats)):
        if found is None:
            missing = f"{name} is not installed (tools/setup.sh peers): its rows are left out"
            print(f"{bench.name}: {missing}", file=sys.stderr)

    def row(case, connections, window, count, goal, theirs, their_count, what):
        ours = Loaded(broker, sends, connections, window, count)
        rounds = bench.row(
            case, against=what, goal=goal, work=count / 1e3, their_work=their_count / 1e3, unit="k/s", ours=ours,
            theirs=theirs,
        )  # fmt: skip
        costs(bench, rounds, case, what, ours, theirs)

    one = "sends, one connection, 1 in flight"
    lean, deep = "sends, 16 connections, 1 in flight each", "sends, 16 connections, 62 in flight each"
    sync = "sends, sync flush, 50 connections, 1 in flight each"
    try:
        if redis and always:
            row(sync, 50, 1, synced[0], 1, RedisSide(redis, 50, 1, synced[0]), synced[0], "Redis XADD, AOF always")
        elif redis:
            row(one, 1, 1, alone, None, RedisSide(redis, 1, 1, alone), alone, "Redis XADD, AOF everysec")
            row(lean, 16, 1, few, 1, RedisSide(redis, 16, 1, few), few, "Redis XADD, AOF everysec")
            row(deep, 16, 62, many, 1, RedisSide(redis, 16, 32, many), many, "Redis XADD -P 32, AOF everysec")
        if nats and always:
            row(sync, 50, 1, synced[0], 8, NatsSide(nats, "sync", 50, synced[1]), synced[1], "NATS JetStream, always")
        elif nats:
            row(lean, 16, 1, few, 2, NatsSide(nats, "sync", 16, few // 2), few // 2, "NATS JetStream, file")
            row(deep, 16, 62, many, 2.5, NatsSide(nats, "async", 4, many // 2), many // 2, "NATS JetStream, async")
    finally:
        for found in (redis, nats):
            if found:
                brokers.end(found)


# ---------------------------------------------------------------- sync flush
def synced(bench: Bench, folder: Path, broker: Process):
    """1,000 sends in flight against put_async of a store in this process, which waits for the same flushes."""
    sends, _, _ = files(folder)
    count, body = 15_000 if bench.quick else 200_000, text(BODY)
    case = "sends, sync flush, one connection, 1000 in flight"
    with scratch(bench) as place, rocketc.open(place / "rocketc", flush="sync") as store:

        def put():
            waiting: deque = deque()
            for n in range(count):
                if len(waiting) == 1000:
                    waiting.popleft().result()
                waiting.append(store.put_async("BenchTopic", body, tags="TagA", keys=f"order-{n}", queue_id=n % 4))
            while waiting:
                waiting.popleft().result()

        ours = Loaded(broker, sends, 1, 1000, count)
        theirs = Side(put, count, place)
        rounds = bench.row(
            case, against="put_async of the store", goal=0.7, work=count / 1e3, unit="k/s", ours=ours, theirs=theirs
        )
        costs(bench, rounds, case, "put_async of the store", ours, theirs)
