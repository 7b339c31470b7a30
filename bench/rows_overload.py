"""A broker that gets twice what it can take, and one with 1,000 hostile clients. Rows for bench_broker."""

import contextlib
import shutil
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import brokers
import load
from common import Bench, each_second
from rows_delays import kept
from rows_sends import BODY, files
from writing import less_is_better

import rocketc

CONNECTIONS, WINDOW = 16, 256  # with more frames in flight, a busy machine refuses some of them after 200 ms
HOSTILE = 1000  # clients
ALLOWED_MB = 80.0  # of private memory, as for all sends
WAIT_MS = 200.0  # waitTimeMillsInSendQueue
SLOWER = 2.0  # allowed for the 99th percentile beside hostile clients
CROWDS = ((4, 12_000), (40, 12_000), (400, 12_000), (4, 80_000))  # connections, and requests in flight of all of them
QUIET_RATE = 100  # requests a second of the client that has one in flight
QUIET_MS = 20.0  # allowed for its 99th percentile, or
QUIET_SLOWER = 5.0  # times that beside a process that burns the CPU of the crowd
CROWD_MS = 1000.0  # allowed for the 99th percentile of the crowd
AFTER_MS = 1000.0  # allowed for the last answer after its last request


def overload(bench: Bench, folder: Path):
    """Send at twice the rate that was measured before, for a minute, whatever the answers are.

    The generator counts answers with code 0 and with code 2, and fails if one is missing or has another code. What the
    sockets do not take is not sent. At the end, the store must hold each message that was answered with code 0. The
    times of answers begin with the write to the socket: they contain the time in the client's own part of the kernel,
    of which a broker can't know.
    """
    name = f"sends at twice the most, {CONNECTIONS} connections"
    rows = {f"{name}: stored": "the most of the same round"}
    rows |= {f"{name}: private memory, the most": f"{ALLOWED_MB:g} MB"}
    rows |= {f"{name}: refused as busy, {share}": f"{WAIT_MS:g} ms" for share in ("p50", "p99")}
    if not any(bench.wanted(case, against) for case, against in rows.items()):
        return
    frames, _, _ = files(folder)
    seconds, count = (3, 1_000_000) if bench.quick else (60, 8_000_000)
    stored, most, memory, answers = [], [], [], []
    rounds = 1 if bench.quick else 3
    for _ in range(rounds):
        root = brokers.make_store(folder)  # a new one each time: a round at full size writes 10 GB
        with brokers.ours(folder, root) as broker:
            most.append(count / load.run("frames", broker.port, frames, CONNECTIONS, WINDOW, count)["seconds"])
            with each_second(lambda process=broker: process.anon() * 1.048576) as curve:
                done = load.run("flood", broker.port, frames, CONNECTIONS, 2 * most[-1], seconds)
        stored.append(done["ok"] / done["seconds"])
        memory.append(curve)
        answers.append(done)
        check_stored(root / "store", count + done["ok"])
        shutil.rmtree(root)
    case, memory_case, *late_cases = rows
    kept(bench, case, stored, most, against=rows[case])
    peaks = [max(curve) for curve in memory]
    less_is_better(
        bench, rounds, memory_case, rows[memory_case], peaks, [ALLOWED_MB] * rounds, "MB", 1,
        curve=max(memory, key=max),
    )  # fmt: skip
    for late, share in zip(late_cases, ("p50", "p99"), strict=True):
        took = [done[f"busy_{share}_us"] / 1e3 for done in answers]
        less_is_better(bench, rounds, late, rows[late], took, [WAIT_MS] * rounds, "ms")
    for done in answers:
        told = {name: done[name] for name in ("offered", "sent", "ok", "busy", "p50_us", "p99_us")}
        print("overload: " + ", ".join(f"{name} {value:,.0f}" for name, value in told.items()), file=sys.stderr)


def check_stored(path: Path, acknowledged: int):
    """Check that no message is lost that was acknowledged."""
    with rocketc.open(path, read_only=True) as store:
        found = sum(store.max_offset("BenchTopic", queue) for queue in range(brokers.TOPICS["BenchTopic"]))
    if found < acknowledged:
        raise SystemExit(f"bench: {acknowledged:,} sends were acknowledged, but {found:,} messages are in the queues")
    print(f"overload: {acknowledged:,} sends acknowledged, {found:,} messages in the queues, 0 lost", file=sys.stderr)


def beside_hostile_clients(bench: Bench, folder: Path):
    case, against = f"sends, {CONNECTIONS} connections, beside {HOSTILE:,} hostile clients: p99", "the same sends alone"
    if not bench.wanted(case, against):
        return
    frames, _, _ = files(folder)
    count = 20_000 if bench.quick else 200_000
    rounds = 3 if bench.quick else 7
    beside, alone = [], []
    for _ in range(rounds):
        with brokers.ours(folder) as broker:
            words = ("frames", broker.port, frames, CONNECTIONS, 1, count)
            alone.append(load.run(*words)["p99_us"])
            with hostile(broker.port, frames.read_bytes()):
                beside.append(load.run(*words)["p99_us"])
    less_is_better(bench, rounds, case, against, beside, alone, "us", 1 / SLOWER)


@contextlib.contextmanager
def hostile(port: int, frames: bytes):
    """Connect the clients: a third sends and never reads, a third pulls and never reads, a third never ends a frame."""
    size = len(frames) // load.KINDS
    said = (frames, load.pull("BenchTopic", "0000", "0000000000") * 200, frames[: size // 2])
    with contextlib.ExitStack() as ending:
        for n in range(HOSTILE):
            client = ending.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.send(said[n % len(said)])
        yield


def fairness(bench: Bench, folder: Path):
    """A client with one request in flight, beside a crowd whose connections keep all that they may in flight.

    The same client beside a process that burns the CPU of the crowd says what the machine alone costs it. A client
    without an answer for 20 s ends the bench.
    """
    seconds = 3 if bench.quick else 10
    for kind in ("sends", "sends on the slow path", "pulls", "requests of tools"):
        for connections, in_flight in CROWDS:
            _beside_a_crowd(bench, folder, kind, connections, in_flight, seconds)


def _beside_a_crowd(bench: Bench, folder: Path, kind: str, connections: int, in_flight: int, seconds: float):
    case = f"{kind}, {connections} connections, {in_flight:,} in flight in all"
    rows = {f"{case}: p99 of a quiet client": f"{QUIET_SLOWER:g} times that beside burned CPU, or {QUIET_MS:g} ms"}
    rows |= {f"{case}: p99": f"{CROWD_MS:g} ms", f"{case}: last answer": f"{AFTER_MS:g} ms"}
    if not any(bench.wanted(row, against) for row, against in rows.items()):
        return
    rounds = 1 if bench.quick else 3
    sends, *_ = files(folder)
    crowd = _frames(folder, kind)
    quiets, allowed, slowest, after = [], [], [], []
    for _ in range(rounds):
        with brokers.ours(folder) as broker, ThreadPoolExecutor(2) as threads:
            load.run("quiet", broker.port, sends, QUIET_RATE, 0.5)  # what the crowd pulls
            words = ("crowd", broker.port, crowd, connections, in_flight // connections, seconds)
            beside = threads.submit(load.run, *words)
            quiet = load.run("quiet", broker.port, sends, QUIET_RATE, seconds)
            done = beside.result()
            burning = threads.submit(load.run, "burn", min(1.0, done["own_cpu"] / done["seconds"]), seconds)
            alone = load.run("quiet", broker.port, sends, QUIET_RATE, seconds)
            burning.result()
        if done["left"]:
            raise SystemExit(f"bench: {case}: {done['left']:,} requests were not answered")
        quiets.append(quiet["p99_us"] / 1e3)
        allowed.append(max(QUIET_SLOWER * alone["p99_us"] / 1e3, QUIET_MS))
        slowest.append(done["p99_us"] / 1e3)
        after.append(1e3 * done["after_s"])
        told = {"sent": quiet["sent"], "p50": quiet["p50_us"], "slowest": quiet["slowest_us"], "alone": alone["p99_us"]}
        print(f"fairness: {case}: quiet client {told}; crowd {done}", file=sys.stderr)
    goals = ((quiets, allowed), (slowest, [CROWD_MS] * rounds), (after, [AFTER_MS] * rounds))
    for (row, against), (ours, most) in zip(rows.items(), goals, strict=True):
        less_is_better(bench, rounds, row, against, ours, most, "ms", 1)


def _frames(folder: Path, kind: str) -> Path:
    """Return the file of what a crowd sends."""
    makes = {
        "sends": None,
        "sends on the slow path": lambda: load.keyless_send("BenchTopic", "0000", b"x" * BODY),
        "pulls": lambda: load.pull("BenchTopic", "0000", "0000000000"),
        "requests of tools": lambda: load.max_offset("BenchTopic", "0000"),
    }
    make = makes[kind]
    return files(folder)[0] if make is None else load.kept(folder, f"crowd of {kind}", lambda: make() * load.KINDS)
