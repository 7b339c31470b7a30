"""RocketMQ's Java client at both brokers; memory, idle CPU, connections, time to start. Rows for bench_broker."""

import contextlib
import json
import socket
import statistics
import time
from collections import defaultdict
from pathlib import Path

import brokers
import java_peer
import load
from brokers import Process
from common import Bench, clock, same
from rows_pulls import exchanged
from rows_sends import BODY, Loaded, costs, files
from rows_sends import beside_java as sends_beside_java
from writing import less_is_better

from rocketc.remoting.command import Command

STUB_TOPIC = "StubTopic"
CPU_GOAL = 5  # our broker uses at most a fifth of the CPU
START_SECONDS, SOONER = 0.3, 20
IDLE_MB, BUSY_MB = 50, 80
IDLE_KIB, HEARTBEAT_KIB = 2, 4  # of a connection
IDLE_CPU = 0.5  # % of a core
MIB = 1.048576  # MB

starts: dict[str, list[float]] = defaultdict(list)  # seconds from start to the first send, by server


# ---------------------------------------------------------------- Java's client
class ClientSide:
    """A side: a round of the Java client at one broker.

    words    of the round, after the name server: see Client.java
    before   called before the clock starts
    """

    def __init__(self, client, server: Process, name_server: str, words: str, count: int, before=lambda: None):
        self._client, self._server, self._count, self._before = client, server, count, before
        self._words = f"{name_server} {words} {count}"
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        self._before()
        used = self._server.used()
        done = self._client.round(self._words)
        used = self._server.used() - used
        same(done.records >= self._count // 32 * 32, True, f"{self._server.name}: {done.records} of {self._count} sent")
        self.figures.append({"cpu_us": used.all / done.records * 1e6, **done.more})
        return done.seconds


def register_stub(broker: Process, stub: Process):
    """Tell our name server that a topic is at the stub. It forgets this after two minutes."""
    fields = {
        **{"brokerName": "stub", "brokerAddr": f"127.0.0.1:{stub.port}", "clusterName": "DefaultCluster"},
        **{"haServerAddr": "127.0.0.1:1", "brokerId": "0", "bodyCrc32": "0", "compressed": "false"},
    }
    topic = {"topicName": STUB_TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
    version = {"counter": 1, "stateVersion": 0, "timestamp": time.time_ns() // 1_000_000}
    # A new broker with only one topic is refused: RocketMQ takes this for a request about one topic.
    table = {name: {**topic, "topicName": name} for name in (STUB_TOPIC, "StubTopic2")}
    wrapper = {"topicConfigTable": table, "dataVersion": version}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
    one = socket.create_connection(("127.0.0.1", broker.ports["nameServer"]))
    one.sendall(Command(103, fields, body).encode())
    if b'"code":0' not in (answer := one.recv(1 << 16)):
        raise SystemExit(f"bench: the name server does not take the stub: {answer!r}")
    return one  # the name server forgets a broker whose connection ends


def beside_java(bench: Bench, folder: Path, release: str):
    """RocketMQ's client of 5.3.3, the same process for both brokers, alternately."""
    scale = 1 if bench.quick else 15
    modes = {
        "sync, 1 thread": ("sync 1", 1000, 1.5),
        "sync, 16 threads": ("sync 16", 4000, 2),
        "async, 1000 in flight": ("async 1000", 8_000, 1.5),
        "batches of 32, 1 thread": ("batch 1", 16_000, 1.5),
        "batches of 32, 4 threads": ("batch 4", 32_000, 1.5),
        "transactions: half + commit, 16 threads": ("transact 16", 2000, 1.5),
        "push consumer": ("consume 1", 33_334, 1.2),
    }
    with brokers.ours(folder) as broker, brokers.java(folder, release) as java, brokers.stub(folder) as stub:
        starts[java.name].append(first_send(java))
        idle(bench, java, f"Java {release}")
        sends_beside_java(bench, folder, broker, java)
        client = java_peer.start(bench, "client", warm=-1, heap="512m", body=BODY)
        with client, contextlib.ExitStack() as stack:
            is_filled = False
            for name, (words, number, goal) in modes.items():
                case, count = f"Java client: {name}, {BODY} B", number * scale
                if not bench.wanted(case, java.name) and not bench.wanted(f"{case}: CPU of the broker", java.name):
                    continue
                topic = "BenchTopic"
                if words.startswith("consume"):
                    topic = "ConsumeTopic"
                    if not is_filled:
                        frames = load.kept(folder, "consumer", lambda: load.sends("ConsumeTopic", 4, BODY))
                        for server in (broker, java):
                            load.run("frames", server.port, frames, 1, 200, count)
                        is_filled = True
                ours = ClientSide(client, broker, broker.name_server, f"{topic} {words}", count)
                theirs = ClientSide(client, java, java.name_server, f"{topic} {words}", count)
                all_rounds, is_slow = bench.rounds, bench.quick and topic == "ConsumeTopic"
                if is_slow:
                    bench.rounds = 1  # starting and ending a consumer takes 2 s
                else:
                    warm_up(bench, ours, theirs)
                rounds = bench.row(
                    case, against=java.name, goal=goal, work=count / 1e3, unit="k/s", ours=ours, theirs=theirs
                )
                costs(bench, rounds, case, java.name, ours, theirs, goal=CPU_GOAL)
                bench.rounds = all_rounds
                if words.startswith("sync") and release == java_peer.RELEASE:
                    one = register_stub(broker, stub)
                    stack.callback(one.close)
                    at_stub = ClientSide(client, stub, broker.name_server, f"{STUB_TOPIC} {words}", count)
                    warm_up(bench, at_stub)
                    bench.row(
                        case, against="C stub that stores nothing", goal=0.9, work=count / 1e3, unit="k/s", ours=ours,
                        theirs=at_stub,
                    )  # fmt: skip


def warm_up(bench: Bench, *sides):
    end = clock() + (0.3 if bench.quick else 4) * len(sides)
    while clock() < end:
        for side in sides:
            side()
    for side in sides:
        side.figures.clear()


# ---------------------------------------------------------------- start
def first_send(server: Process) -> float:
    """Return the seconds from the start of a process until a send was answered with success."""
    answer = exchanged(server.port, load.send("BenchTopic", "0", 0, b"x" * BODY))
    if b'"code":0' not in answer:
        server.fail(f"does not accept a send: {answer!r}")
    return clock() - server.began


def start_rows(bench: Bench, folder: Path, releases):
    case = "start until the first send is answered"
    if not bench.wanted(case, "Java"):
        return
    rounds = 3 if bench.quick else 11
    for _ in range(rounds):
        with brokers.ours(folder) as broker:
            starts["ours"].append(first_send(broker))
    mine = starts["ours"]
    less_is_better(bench, rounds, case, f"{START_SECONDS:g} s", mine, [START_SECONDS] * rounds, "s", 1)
    for name in (f"Java {release}" for release in releases):
        if not starts[name]:
            continue
        if not bench.quick:
            for _ in range(2):
                with brokers.java(folder, name.split()[1]) as java:
                    starts[name].append(first_send(java))
        theirs = starts[name]
        middle = statistics.median(mine)
        less_is_better(bench, len(theirs), case, name, [middle] * len(theirs), theirs, "s", SOONER)
    for found in (brokers.redis(folder, "everysec"), brokers.nats(folder, always=False)):
        if found:
            took = clock() - found.began
            brokers.end(found)
            less_is_better(bench, 1, f"{case} (theirs: until it answers)", found.name, mine[:1], [took], "s")


# ---------------------------------------------------------------- memory
def idle(bench: Bench, server: Process, name: str) -> tuple[float, float]:
    """Return MB of private memory and % of a core of a server without work; print them for a peer."""
    time.sleep(0.5 if bench.quick else 5)
    start, before = clock(), server.used()
    time.sleep(1 if bench.quick else 10)
    share = 100 * (server.used() - before).all / (clock() - start)
    anon = server.anon() * MIB
    if name:
        starts[f"{name} idle"] += [anon, share]
    return anon, share


def memory(bench: Bench, folder: Path):
    if not bench.wanted("memory idle connections CPU", "MB KiB %"):
        return
    connections = 2000 if bench.quick else 10_000

    def most(case, value, limit, unit):
        less_is_better(bench, 1, case, f"{limit:g} {unit}", [value], [limit], unit, 1)

    with brokers.ours(folder) as broker:
        anon, share = idle(bench, broker, "")
        starts["ours idle"] = [anon, share]
        most("memory, idle", anon, IDLE_MB, "MB")
        most("CPU, idle", max(share, 1e-3), IDLE_CPU, "% of a core")
        sends, _, _ = files(folder)
        side = Loaded(broker, sends, 1, 1000, 100_000 if bench.quick else 1_000_000)
        for _ in range(3):
            side()
        most("memory, while sends arrive", max(one["anon_mb"] for one in side.figures), BUSY_MB, "MB")

    for case, limit, frame in (
        (f"memory of a connection, {connections:,} idle", IDLE_KIB, None),
        (f"memory of a connection, {connections:,} with heartbeats", HEARTBEAT_KIB, load.heartbeat),
    ):
        with brokers.ours(folder) as broker:  # a new one: freed memory of other connections would be used again
            most(case, of_a_connection(broker, connections, frame), limit, "KiB")


def of_a_connection(broker: Process, count: int, frame) -> float:
    """Return the KiB of private memory that each of `count` connections needs. frame: what each sends."""

    def connect(numbers):
        for number in numbers:
            one = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            if frame is not None:
                one.sendall(frame(number))
                one.recv(4096)

    with contextlib.ExitStack() as stack:
        connect(range(count, count + 100))  # costs of the first ones
        before = broker.anon()
        connect(range(count))
        time.sleep(0.3)
        return max(0.01, (broker.anon() - before) * 1024 / count)


def idle_rows(bench: Bench, releases):
    """Java's broker without work, for information."""
    for release in releases:
        theirs = starts[f"Java {release} idle"]
        for n, (case, unit) in enumerate((("memory, idle", "MB"), ("CPU, idle", "% of a core"))):
            if theirs and starts["ours idle"]:
                mine = max(starts["ours idle"][n], 1e-3)
                less_is_better(bench, 1, case, f"Java {release}", [mine], [theirs[n]], unit)
