"""100,000 delayed or timed messages that are due at once, and send-backs beside sends. Rows for bench_broker."""

import contextlib
import shutil
import socket
import statistics
import threading
import time
from pathlib import Path

import brokers
import load
from brokers import Process
from common import Bench
from rows_sends import BODY, files
from writing import less_is_better

import rocketc
from rocketc.derived import timer_check

SCHEDULE, TIMERS, REAL = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "PullTopic"
DUE = 100_000  # messages
DELAY_SECONDS = 8  # time to start the broker and the sends
STEP_MS = 1000  # timerPrecisionMs
PENDING_MB = 10.0  # of private memory; the wheel and the timer log are maps of files
SPREAD_MS = 40 * 3_600_000  # over which timed messages wait
LATE_MS = 1000.0  # allowed for the 99th percentile
BACKS = 100_000  # send-backs a minute
SLICE_SECONDS = 0.01
KEPT = 0.8  # of the rate of the sends alone
CONNECTIONS, WINDOW = 16, 16


def delays(bench: Bench, folder: Path):
    """Start a broker on a store with messages that are due in a few seconds, and send to it meanwhile."""
    for kind, topic in (("delayed", SCHEDULE), ("timed", TIMERS)):
        due_at_once(bench, folder, kind, topic)


def due_at_once(bench: Bench, folder: Path, kind: str, topic: str):
    """Print the rows of one kind of messages, which wait in a topic."""
    late_case = f"{DUE:,} {kind} messages due at once: lateness, p99"
    send_case = f"sends, {CONNECTIONS} connections, while {DUE:,} {kind} messages are delivered"
    if not (bench.wanted(late_case, f"{LATE_MS:g} ms") or bench.wanted(send_case, "the same sends alone")):
        return
    frames, _, _ = files(folder)
    late, beside, alone = [], [], []
    rounds = 1 if bench.quick else 5
    for _ in range(rounds):
        root = brokers.make_store(folder)
        due = wait_in_store(root / "store", topic)
        with brokers.ours(folder, root, messageDelayLevel=f"{DELAY_SECONDS}s") as broker:
            count = quiet_count(broker, frames, alone)
            time.sleep(max(0.0, due / 1000 - 0.1 - time.time()))
            beside.append(count / load.run("frames", broker.port, frames, CONNECTIONS, WINDOW, count)["seconds"])
            time.sleep(2)
        late.append(lateness(root / "store", topic))
        shutil.rmtree(root)
    less_is_better(bench, rounds, late_case, f"{LATE_MS:g} ms", late, [LATE_MS] * rounds, "ms", 1)
    kept(bench, send_case, beside, alone)


def pending(bench: Bench, folder: Path):
    """Start a broker on a store with timed messages of the next hours, and wait until all are in the wheel."""
    count = 100_000 if bench.quick else 1_000_000
    case = f"memory of {count:,} timed messages that wait"
    if not bench.wanted(case, f"{PENDING_MB:g} MB"):
        return
    with brokers.ours(folder) as broker:
        time.sleep(1)
        before = broker.anon()
    root = brokers.make_store(folder)
    with rocketc.open(root / "store") as store:
        now = time.time_ns() // 1_000_000
        for n in range(count // 1000):
            due = now + 3_600_000 + n * SPREAD_MS * 1000 // count
            properties = {"REAL_TOPIC": REAL, "REAL_QID": "0", "TIMER_OUT_MS": str(due // STEP_MS * STEP_MS)}
            store.put_many(TIMERS, [b"x" * BODY] * 1000, properties=properties)
        store.wait_dispatched()
    with brokers.ours(folder, root) as broker:
        check, end = str(root / "store/config/timercheck"), time.monotonic() + 300
        while (found := timer_check.read(check)) is None or found.last_timer_queue_offset < count:
            if time.monotonic() > end:
                raise SystemExit(f"bench: {found} of {count} timed messages are in the wheel")
            time.sleep(0.2)
        value = max(broker.anon() - before, 0.01)
    shutil.rmtree(root)
    less_is_better(bench, 1, case, f"{PENDING_MB:g} MB", [value], [PENDING_MB], "MB", 1)


def kept(bench: Bench, case: str, beside: list[float], alone: list[float], against: str = "the same sends alone"):
    """Print the row of two rates."""
    ratios = [a / b for a, b in zip(beside, alone, strict=True)]
    ours, theirs = ([one / 1e3 for one in rates] for rates in (beside, alone))
    bench.show(case, against, statistics.median(ratios), KEPT, ours, theirs, "k/s", ratios)


def wait_in_store(root: Path, topic: str) -> int:
    """Put the messages; return when the first of them is due, in ms."""
    properties = {"REAL_TOPIC": REAL, "REAL_QID": "0", "TAGS": "TagA"}
    with rocketc.open(root, message_delay_level=f"{DELAY_SECONDS}s") as store:
        began = time.time_ns() // 1_000_000
        slot = began // STEP_MS * STEP_MS + DELAY_SECONDS * 1000  # of timed messages: they are due a step later
        properties |= {"DELAY": "1"} if topic == SCHEDULE else {"TIMER_OUT_MS": str(slot)}
        for _ in range(DUE // 1000):
            store.put_many(topic, [b"x" * BODY] * 1000, properties=properties)
        store.wait_dispatched()
    return began + DELAY_SECONDS * 1000 if topic == SCHEDULE else slot + STEP_MS


def quiet_count(broker: Process, frames: Path, alone: list[float]) -> int:
    """Measure the sends alone; return how many of them take about two seconds."""
    load.run("frames", broker.port, frames, CONNECTIONS, WINDOW, 20_000)
    count = 100_000
    for _ in range(2):
        seconds = load.run("frames", broker.port, frames, CONNECTIONS, WINDOW, count)["seconds"]
        rate = count / seconds
        count = int(2 * rate)
    alone.append(rate)
    return count


def lateness(root: Path, topic: str) -> float:
    """Return how late the messages were, in ms: the 99th percentile. Both queues have them in the same order."""
    found = []
    with rocketc.open(root, read_only=True) as store:
        if store.max_offset(REAL) != DUE:
            raise SystemExit(f"bench: {store.max_offset(REAL)} of {DUE} messages were delivered")
        for first in range(0, DUE, 1000):
            waiting = store.get(topic, 0, first, 1000, crc="none").messages
            delivered = store.get(REAL, 0, first, 1000, crc="none").messages
            found += [b.store_timestamp - due_of(a) for a, b in zip(waiting, delivered, strict=True)]
    if min(found) < 0:
        raise SystemExit(f"bench: a message was {-min(found)} ms early")
    return max(1.0, sorted(found)[len(found) * 99 // 100])


def due_of(waiting: rocketc.Message) -> int:
    """Return when a message that waits is due, in ms."""
    out = waiting.properties.get("TIMER_OUT_MS")
    return waiting.store_timestamp + DELAY_SECONDS * 1000 if out is None else int(out) + STEP_MS


# ---------------------------------------------------------------- retries
def retries(bench: Bench, folder: Path):
    """Send messages back at a steady rate beside sends at full load."""
    case = f"sends, {CONNECTIONS} connections, beside {BACKS:,} send-backs a minute"
    if not bench.wanted(case, "the same sends alone"):
        return
    frames, _, _ = files(folder)
    root = brokers.make_store(folder)
    with rocketc.open(root / "store") as store:
        offsets = [store.put(REAL, b"x" * BODY, keys=f"k{n}").phy_offset for n in range(load.KINDS)]
    beside, alone = [], []
    with brokers.ours(folder, root) as broker:
        for _ in range(3 if bench.quick else 7):
            count = quiet_count(broker, frames, alone)
            with SendsBack(broker.port, offsets) as back:
                time.sleep(0.5)
                done = back.answered
                took = load.run("frames", broker.port, frames, CONNECTIONS, WINDOW, count)["seconds"]
                done = back.answered - done
            if done < 0.9 * BACKS / 60 * took:
                raise SystemExit(f"bench: {done} of {BACKS / 60 * took:.0f} send-backs were answered")
            beside.append(count / took)
    kept(bench, case, beside, alone)


class SendsBack:
    """Sends messages back on a thread while the context is entered."""

    def __init__(self, port: int, offsets: list[int]):
        self._frames = [load.send_back(offset) for offset in offsets]
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._send, self._receive)]
        self.answered = 0

    def _send(self):
        at, began = 0, time.monotonic()
        while not self._ended.wait(SLICE_SECONDS):
            wanted = int((time.monotonic() - began) * BACKS / 60)
            data = b"".join(self._frames[n % len(self._frames)] for n in range(at, wanted))
            at = max(at, wanted)
            self._socket.sendall(data)

    def _receive(self):
        rest = b""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                rest += data
                while len(rest) >= 4 and len(rest) >= (size := 4 + int.from_bytes(rest[:4], "big")):
                    if b'"code":0,' not in rest[:size]:
                        raise SystemExit(f"bench: a send-back was refused: {rest[:size]!r}")
                    rest = rest[size:]
                    self.answered += 1

    def __enter__(self):
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._threads[0].join()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[1].join()
        self._socket.close()
