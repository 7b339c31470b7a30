"""Brokers and their peers as processes: ours, Java's, Redis, NATS, and the floors; CPU and memory of each.

with brokers.ours(folder) as broker, brokers.java(folder, "5.3.3") as java:
    before = broker.used()
    ...
    used = broker.used() - before       # seconds of CPU: loop thread (user, system), other threads
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import java_peer
import load
from common import clock, memory_of

PEERS = Path(__file__).resolve().parents[1] / "build" / "bench-peers"  # programs that tools/setup.sh peers builds
TOPICS = {"BenchTopic": 4, "PullTopic": 1, "ConsumeTopic": 4, "HeldTopic": 1001}  # name -> queues
START_SECONDS = 60
JAVA_HEAP = ("-Xms1g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g")


class Used(NamedTuple):
    """Seconds of CPU of a process: of its first thread, on which a loop runs, and of all its threads.

    user, system  of the first thread; the system counts them in steps of 10 ms
    """

    user: float
    system: float
    loop: float
    all: float

    def __sub__(self, other: "Used") -> "Used":
        return Used(*(a - b for a, b in zip(self, other, strict=True)))


class Process:
    """A server in a process of its own.

    ports  that the server has printed when it was ready
    """

    def __init__(self, name: str, command: list, log: Path, *, executable: str | None = None):
        self.name, self._log, self.ports = name, log, {}
        self.began = clock()
        with open(log, "ab") as errors:
            self.popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                executable=executable,
            )

    @property
    def port(self) -> int:
        return self.ports["broker"]

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self.ports['nameServer']}"

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def fail(self, what: str):
        raise SystemExit(f"bench: {self.name} {what}\n{self.said()[-2000:]}")

    def wait(self, ready):
        """Call ready() until it returns the ports."""
        while (found := ready()) is None:
            if self.popen.poll() is not None or clock() - self.began > START_SECONDS:
                self.fail("does not start")
            time.sleep(0.001)
        self.ports = found

    def used(self) -> Used:
        tick = os.sysconf("SC_CLK_TCK")
        folder = Path(f"/proc/{self.popen.pid}/task")
        total, loop = 0, 0.0
        for task in folder.iterdir():
            with contextlib.suppress(OSError):
                ns = int((task / "schedstat").read_text().split()[0])
                total += ns
                if task.name == str(self.popen.pid):
                    loop = ns / 1e9
        stat = (folder / str(self.popen.pid) / "stat").read_text().rpartition(")")[2].split()
        return Used(int(stat[11]) / tick, int(stat[12]) / tick, loop, total / 1e9)

    def anon(self) -> float:
        """Return the MiB of private memory."""
        return memory_of(Path(f"/proc/{self.popen.pid}/status"), "RssAnon") or 0.0

    def close(self):
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


# ---------------------------------------------------------------- brokers
def make_store(folder: Path, topics: dict[str, int] = TOPICS) -> Path:
    """Return the root of an empty store whose broker has topics. topics: their queues, by name"""
    root = Path(tempfile.mkdtemp(dir=folder))
    config = root / "store" / "config"
    config.mkdir(parents=True)
    table = {
        name: {
            **{"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "order": False},
            **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0},
        }
        for name, queues in topics.items()
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_764_000_000_000}
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))
    return root


def ours(folder: Path, root: Path | None = None, flush: str = "async", **settings: object) -> Process:
    """Start `rocketc broker` on uvloop. settings: of broker.conf, by RocketMQ's names."""
    root = make_store(folder) if root is None else root
    words = ["--port", 0, "--namesrv-port", 0, "--flush", flush]
    if settings:
        conf = root / "broker.conf"
        named = {"brokerName": "broker-a", "bindAddress": "127.0.0.1", **settings}
        conf.write_text("".join(f"{name}={value}\n" for name, value in named.items()))
        words += ["--conf", conf]
    command = [sys.executable, "-m", "rocketc", "broker", root / "store", *words]
    found = Process("rocketc broker", command, root / f"broker-{time.monotonic_ns()}.log")

    def ready():
        told = re.search(r"name server \S+:(\d+), broker \S+:(\d+),", found.said())
        return told and {"nameServer": int(told[1]), "broker": int(told[2])}

    found.wait(ready)
    return found


# RocketMQ's defaults, instead of the small files of tests.
JAVA_SIZES = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "mappedFileSizeTimerLog": 100 << 20,
    "osPageCacheBusyTimeOutMills": 1000,
}


def java(folder: Path, release: str, flush: str = "async", **more: object) -> Process:
    """Start RocketMQ's name server and broker in one JVM. more: settings of JavaCluster.java, by its names."""
    root = make_store(folder)
    class_path = java_peer.build(release)
    flags = [*JAVA_HEAP, f"-Duser.home={root}", *java_peer.QUIET, *java_peer.NEVER_FULL, *java_peer.OPENS]
    settings = {**JAVA_SIZES, "flushDiskType": f"{flush.upper()}_FLUSH"}
    words = [f"store.{name}={value}" for name, value in settings.items()]
    words += [f"{name}={value}" for name, value in more.items()]
    command = ["java", *flags, "-cp", class_path, "JavaCluster", root, *words]
    found = Process(f"Java {release}", command, root / "java.log")
    if not (line := found.popen.stdout.readline()):
        found.fail("does not start")
    found.ports = {name: int(address.rpartition(":")[2]) for name, address in json.loads(line).items()}
    return found


def has_java(name: str) -> bool:
    """Whether Java is there; if not, report it."""
    try:
        java_peer.build(java_peer.RELEASE)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{name}: the rows against Java are left out: {error}", file=sys.stderr)
        return False
    return True


def printed_port(found: Process) -> Process:
    line = found.popen.stdout.readline()
    if not line:
        found.fail("does not start")
    found.ports = {"broker": int(line)}
    return found


def echo(folder: Path, kind: str, size: int, more: object) -> Process:
    """Start a floor on uvloop, see echo_server.py."""
    script = Path(__file__).with_name("echo_server.py")
    return printed_port(Process("uvloop echo", [sys.executable, script, kind, size, more], folder / "echo.log"))


def stub(folder: Path) -> Process:
    """Start the broker in C that answers SEND_OK and stores nothing."""
    answer = load.kept(folder, "stub", lambda: load.sent("@" * 10))
    return printed_port(Process("C stub", [load.build(), "stub", answer], folder / "stub.log"))


# ---------------------------------------------------------------- peers
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def answers(port: int, request: bytes, expected: bytes) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as one:
        one.sendall(request)
        return expected in one.recv(1 << 16)
    return False


def redis(folder: Path, sync: str) -> Process | None:
    """Start Redis with an append-only file; sync: everysec or always. None if it is not installed."""
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")  # one program by two names
    if program is None or shutil.which("redis-benchmark") is None:
        return None
    root, port = Path(tempfile.mkdtemp(dir=folder)), free_port()
    options = ["--port", port, "--bind", "127.0.0.1", "--dir", root, "--save", "", "--appendonly", "yes"]
    options += ["--appendfsync", sync, "--auto-aof-rewrite-percentage", 0, "--logfile", root / "redis.log"]
    found = Process(f"Redis {sync}", ["redis-server", *options], root / "redis.log", executable=program)
    found.wait(lambda: {"broker": port} if answers(port, b"PING\r\n", b"+PONG") else None)
    return found


def nats(folder: Path, *, always: bool) -> Process | None:
    """Start NATS with JetStream in a file. None if it is not installed."""
    if not (PEERS / "nats-server").exists() or not (PEERS / "nats").exists():
        return None
    root, port = Path(tempfile.mkdtemp(dir=folder)), free_port()
    sync = "sync_interval: always" if always else ""
    stream = f'jetstream {{ store_dir: "{root}", max_mem: 1GB, max_file: 20GB, {sync} }}'
    (root / "nats.conf").write_text(f'listen: "127.0.0.1:{port}"\n{stream}\n')
    name = "NATS always" if always else "NATS file"
    found = Process(name, [PEERS / "nats-server", "-c", root / "nats.conf"], root / "nats.log")
    found.wait(lambda: {"broker": port} if answers(port, b"", b"INFO") else None)
    return found


def end(process: Process):
    """End a process at once, for example a client that does not read."""
    process.popen.send_signal(signal.SIGKILL)
    process.close()
