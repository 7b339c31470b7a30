"""A broker that gets twice what it can take, and one with 1,000 hostile clients. Rows for bench_broker."""

import contextlib
import socket
from pathlib import Path

import brokers
import load
from common import Bench
from rows_delays import kept
from rows_sends import files
from writing import less_is_better

CONNECTIONS, WINDOW = 16, 1000
HOSTILE = 1000  # clients
ALLOWED_MB = 80.0  # of private memory, as for all sends
SLOWER = 2.0  # allowed for the 99th percentile beside hostile clients


def overload(bench: Bench, folder: Path):
    """Send at twice the rate that was measured before, whatever the answers are.

    The generator counts answers with code 0 and with code 2, and fails if one is missing or has another code. What the
    sockets do not take is not sent.
    """
    case = f"sends at twice the most, {CONNECTIONS} connections: stored"
    memory_case = f"sends at twice the most, {CONNECTIONS} connections: private memory"
    if not (bench.wanted(case, "the most of the same round") or bench.wanted(memory_case, f"{ALLOWED_MB:g} MB")):
        return
    frames, _, _ = files(folder)
    seconds, count = (3, 1_000_000) if bench.quick else (60, 8_000_000)
    stored, most, memory, answers = [], [], [], []
    rounds = 1 if bench.quick else 3
    with brokers.ours(folder) as broker:
        for _ in range(rounds):
            most.append(count / load.run("frames", broker.port, frames, CONNECTIONS, WINDOW, count)["seconds"])
            done = load.run("flood", broker.port, frames, CONNECTIONS, 2 * most[-1], seconds)
            stored.append(done["ok"] / done["seconds"])
            memory.append(broker.anon() * 1.048576)
            answers.append(done)
    kept(bench, case, stored, most, against="the most of the same round")
    less_is_better(bench, rounds, memory_case, f"{ALLOWED_MB:g} MB", memory, [ALLOWED_MB] * rounds, "MB", 1)
    for done in answers:
        told = {name: done[name] for name in ("offered", "sent", "ok", "busy", "p50_us", "p99_us")}
        print("overload: " + ", ".join(f"{name} {value:,.0f}" for name, value in told.items()))


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
