"""A broker that gets twice what it can take, and one with 1,000 hostile clients. Rows for bench_broker."""

import contextlib
import shutil
import socket
import sys
from pathlib import Path

import brokers
import load
from common import Bench, each_second
from rows_delays import kept
from rows_sends import files
from writing import less_is_better

import rocketc

CONNECTIONS, WINDOW = 16, 256  # with more frames in flight, a busy machine refuses some of them after 200 ms
HOSTILE = 1000  # clients
ALLOWED_MB = 80.0  # of private memory, as for all sends
WAIT_MS = 200.0  # waitTimeMillsInSendQueue
SLOWER = 2.0  # allowed for the 99th percentile beside hostile clients


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
