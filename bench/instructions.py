"""Count the instructions per record with callgrind. Unlike times, the counts are the same in every run.

    .venv/bin/python bench/instructions.py              compare the counts with the kept ones
    .venv/bin/python bench/instructions.py --check      fail if a count has grown by more than 5 %
    .venv/bin/python bench/instructions.py --update     keep the new counts in bench/instructions.json
    .venv/bin/python bench/instructions.py --misses     also count misses in caches of 32 KiB and 1 MiB

Each case runs in a child process under callgrind, once over few and once over many records. The difference of the
counts, divided by the difference of the records, does not contain one-time costs. Differences between machines are
avoided: the CRC uses PCLMULQDQ (callgrind does not support VPCLMULQDQ and AVX-512), libc copies with SSE2, hashes have
a fixed seed. Another compiler or Python gives other counts: --check then says so and exits with 77.
"""

import argparse
import ctypes
import gc
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import load
import native
from common import MIB, PLAIN, write_log

import rocketc
from rocketc.derived._change_feed import ChangeSubscriber
from rocketc.derived._key_index import KeyIndex
from rocketc.format import _encoding

HERE = Path(__file__).resolve().parent
KEPT = HERE / "instructions.json"
MAY_GROW = 0.05
NOT_COMPARABLE = 77
FEW, MANY = "few", "many"  # the two rounds of a case, and the logs that they read
LOG_BYTES = {FEW: MIB, MANY: 4 * MIB}
CALLS = {FEW: 500, MANY: 2500}  # of a case that does not read a log
TURN_BYTES = 8192  # of sends in one turn of a broker's loop
CRC_WAY = "pclmul"
CACHES = {"D1": "32768,8,64", "LL": "1048576,16,64"}  # bytes, ways, bytes per line: about the private caches of a core
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-ERMS",
}
ALL_BUT_MAP = [name for name in rocketc.COLUMN_NAMES if name != "properties"]


# ---------------------------------------------------------------- cases: one round each, in the child process
def encoding(body: int) -> Callable[[str], int]:
    text = b"x" * body
    properties = {"KEYS": "order-4711", "UNIQ_KEY": "7F000001AB12CD34EF560000000017C2", "WAIT": "true", "TAGS": "TagA"}

    def work(which: str) -> int:
        for n in range(CALLS[which]):
            rocketc.encode("BenchTopic", text, queue_id=1, queue_offset=n, phy_offset=n, properties=properties)
        return CALLS[which]

    return work


def columns(body: int, **options) -> Callable[[str], int]:
    def work(which: str) -> int:
        scan = rocketc.scan(f"{body}/{which}", **options)
        stream = Stream(scan)
        while stream.next():
            pass
        return records(body, which)

    return work


def messages(body: int) -> Callable[[str], int]:
    def work(which: str) -> int:
        for _ in rocketc.scan(f"{body}/{which}"):
            pass
        return records(body, which)

    return work


def putting(body: int) -> Callable[[str], int]:
    """put without a flush, one call per message; includes its unit in the queue and its key in the index."""
    text, store = b"x" * body, writable()
    put = store.put

    def work(which: str) -> int:
        for n in range(CALLS[which]):
            put("BenchTopic", text, tags="TagA", keys="order-4711", queue_id=n % 4)
        store.wait_dispatched()
        return CALLS[which]

    return work


def putting_with_a_subscriber(body: int, *, awake: bool) -> Callable[[str], int]:
    """put as above, with a subscriber of the change feed that asks for a wake-up after each put, or never again."""
    text, store = b"x" * body, writable()
    put, subscriber = store.put, ChangeSubscriber(store.feed, store.path)
    arm, skip = (subscriber.arm, subscriber.skip) if awake else (int, int)
    fd = os.eventfd(0)
    subscriber.set_fd(fd)
    subscriber.arm()

    def work(which: str) -> int:
        for n in range(CALLS[which]):
            put("BenchTopic", text, tags="TagA", keys="order-4711", queue_id=n % 4)
            store.wait_dispatched()
            skip()
            arm()
        return CALLS[which]

    return work


def putting_many(body: int) -> Callable[[str], int]:
    bodies, store = [b"x" * body] * 100, writable()
    put_many = store.put_many

    def work(which: str) -> int:
        for n in range(CALLS[which] // 25):
            put_many("BenchTopic", bodies, tags="TagA", queue_id=n % 4)
        store.wait_dispatched()
        return CALLS[which] * 4

    return work


# Callgrind also counts background threads. With these settings they do little.
QUIET = {"flush_interval_commit_log": 60_000, "flush_interval_consume_queue": 60_000}


def writable():
    return rocketc.open(tempfile.mkdtemp(dir="."), flush="async", mapped_file_size_commit_log=64 * MIB, **QUIET)


def store_of(body: int, which: str, **options):
    """A store with only a log of write_log(): opening it builds the queues and the index."""
    root = tempfile.mkdtemp(dir=".")
    shutil.copytree(f"{body}/{which}/commitlog", f"{root}/commitlog")
    return rocketc.open(root, mapped_file_size_commit_log=LOG_BYTES[which], **QUIET, **options)


def rebuilding(body: int) -> Callable[[str], int]:
    """Open such a store, with recovery and dispatch, and close it."""

    def work(which: str) -> int:
        with store_of(body, which) as store:
            store.wait_dispatched()
        return records(body, which)

    return work


def verifying(body: int, *, store: bool) -> Callable[[str], int]:
    """verify() of such a log, or of a store with this log, queues and index."""
    paths = {which: f"{body}/{which}/commitlog" for which in (FEW, MANY)}
    if store:
        for which in paths:
            with store_of(body, which, max_hash_slot_num=10_000, max_index_num=40_000) as made:
                made.wait_dispatched()
            paths[which] = made.path

    def work(which: str) -> int:
        report = rocketc.verify(paths[which], jobs=1)
        if not report.is_whole or (report.derived is not None) != store:
            raise SystemExit(f"instructions: {report.to_dict()}")
        return report.records

    return work


def decoding(body: int) -> Callable[[str], int]:
    """decode() of one record per call."""
    record = rocketc.encode("BenchTopic", b"x" * body, properties={"TAGS": "TagA", "KEYS": "order-4711"})

    def work(which: str) -> int:
        decode = rocketc.decode
        for _ in range(CALLS[which]):
            [_message] = decode(record)
        return CALLS[which]

    return work


def looking_at() -> Callable[[str], int]:
    """message() of one record per call."""
    store = store_of(256, MANY)
    store.wait_dispatched()
    message, at = store.message, store.get("BenchTopic", 1, 0, 1).phy_offsets[0]

    def work(which: str) -> int:
        for _ in range(CALLS[which]):
            message(at)
        return CALLS[which]

    return work


def getting(take: Callable, *, raw: bool = False, **options) -> Callable[[str], int]:
    """get or get_raw of 32 messages, repeatedly from the first part of a queue of 2,000; per message that is read."""
    store = store_of(256, MANY)
    store.wait_dispatched()
    get = store.get_raw if raw else store.get

    def work(which: str) -> int:
        offset = walked = 0
        for _ in range(CALLS[which] // 25):
            got = get("BenchTopic", 1, offset, 32, **options)
            take(got)
            walked += got.next_offset - offset
            offset = got.next_offset if got.next_offset < 1000 else 0
        return walked

    return work


def bodies(got):
    for m in got:
        m.body  # noqa: B018


def finding(key: str) -> Callable[[str], int]:
    """query by key, with another key in each call; the keys are made before counting."""
    store = store_of(256, MANY)
    store.wait_dispatched()
    query, keys = store.query, [key.format(n * 7 % 3000) for n in range(CALLS[MANY])]

    def work(which: str) -> int:
        for k in keys[: CALLS[which]]:
            for m in query("BenchTopic", k, max_count=32):
                m.phy_offset  # noqa: B018
        return CALLS[which]

    return work


def indexing() -> Callable[[str], int]:
    """Put keys into the index, as the dispatcher does."""
    index = key_index()

    def work(which: str) -> int:
        index._put_some(20 * CALLS[which], CALLS[which])
        return 20 * CALLS[which]

    return work


def looking_up() -> Callable[[str], int]:
    """Look up keys that the index has, each once or twice, in chains of about one unit."""
    index = key_index()
    index._put_some(20 * CALLS[MANY], 1)

    def work(which: str) -> int:
        index._find_some(CALLS[which], 1)
        return CALLS[which]

    return work


def key_index():
    index = KeyIndex(tempfile.mkdtemp(dir="."), 100_000, 400_000)
    index.load()
    return index


def crc32(size: int, way: str) -> Callable[[str], int]:
    library, data, out = native.load(), bytes(range(256)) * (size // 256 + 1), ctypes.c_uint32()
    number = ["table", "pclmul", "vpclmul256", "vpclmul512", "arm64"].index(way)

    def work(which: str) -> int:
        if library.bench_crc32(number, data, size, CALLS[which], out) < 0:
            raise SystemExit(f"instructions: the CRC way {way} is not available here")
        return CALLS[which]

    return work


CASES: dict[str, Callable[[], Callable[[str], int]]] = {
    "encode, 256 B": lambda: encoding(256),
    "encode, 1 KiB": lambda: encoding(1024),
    "header scan (nothing kept), 256 B": lambda: columns(256, topics="None"),
    "header scan (nothing kept), 1 KiB": lambda: columns(1024, topics="None"),
    "columns: numbers; no CRC, 256 B": lambda: columns(256, columns=PLAIN[:-2], crc="none"),
    "columns: numbers, topic, body; no CRC, 256 B": lambda: columns(256, columns=PLAIN, crc="none"),
    "columns: numbers, topic, body; no CRC, 1 KiB": lambda: columns(1024, columns=PLAIN, crc="none"),
    "columns: numbers, topic, body; CRC, 256 B": lambda: columns(256, columns=PLAIN),
    "columns: all but the map; CRC, 256 B": lambda: columns(256, columns=ALL_BUT_MAP),
    "columns: all; CRC, 256 B": lambda: columns(256),
    "messages; CRC, 256 B": lambda: messages(256),
    "put, 128 B": lambda: putting(128),
    "put, 1 KiB": lambda: putting(1024),
    "put, dispatched one by one, a subscriber asleep, 128 B": lambda: putting_with_a_subscriber(128, awake=False),
    "put, dispatched one by one, a subscriber awake, 128 B": lambda: putting_with_a_subscriber(128, awake=True),
    "put_many, 128 B": lambda: putting_many(128),
    "put_many, 1 KiB": lambda: putting_many(1024),
    "index: put": indexing,
    "index: look up": looking_up,
    "open, queues and index from the log, 256 B": lambda: rebuilding(256),
    "verify the log, 256 B": lambda: verifying(256, store=False),
    "verify the store, 256 B": lambda: verifying(256, store=True),
    "get 32, as Message, body read, 256 B": lambda: getting(bodies),
    "get 32, as one buffer, 256 B": lambda: getting(lambda got: got.buffer),
    "get 32, no message has the tag": lambda: getting(lambda got: None, tags="None"),
    "get_raw 32, views taken, 256 B": lambda: getting(lambda got: got.views, raw=True),
    "decode of one record, 256 B": lambda: decoding(256),
    "message by physical offset, 256 B": looking_at,
    "broker: send, 128 B, 16 frames at once": lambda: sending(128, 16),
    "broker: send, 128 B, alone": lambda: sending(128, 1),
    "broker: pull of 32, 128 B": lambda: pulling(128, 32),
    "broker: pull of 1, 128 B": lambda: pulling(128, 1),
    "broker: held pull, the message that it waits for, its answer, 128 B": lambda: waking(128),
    "broker: half message, 128 B, alone": lambda: preparing(128),
    "broker: commit of a half message, 128 B, alone": lambda: committing(128),
    "query by key": lambda: finding("order-{}"),
    "query, there is none": lambda: finding("nobody-{}"),
    "CRC of 64 B": lambda: crc32(64, CRC_WAY),
    "CRC of 1 KiB": lambda: crc32(1024, CRC_WAY),
    "CRC of 1 KiB by table": lambda: crc32(1024, "table"),
}


class Peer:
    """The transport of a connection without a socket; it counts the bytes that are sent.

    protocol  gets what arrives, as that of a real transport: a connection changes it at its first byte
    """

    sent, protocol = 0, None

    def set_protocol(self, protocol):
        self.protocol = protocol

    def write(self, data):
        self.sent += len(data)

    def writelines(self, pieces):
        for piece in pieces:
            self.sent += len(piece)

    def get_extra_info(self, name):
        return ("127.0.0.1", 40000) if name == "peername" else None

    def set_write_buffer_limits(self, high=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def is_closing(self):
        return False


def broker(topic: str, queues: int):
    """Return a broker's controller, its loop, and a function that connects a Peer to it."""
    import asyncio

    from rocketc.broker.config import BrokerConfig
    from rocketc.broker.controller import BrokerController

    store = writable()
    store.create_topic(topic, queues=queues)
    loop = asyncio.new_event_loop()

    async def make():
        return BrokerController(store, BrokerConfig(listen_port=0), ("127.0.0.1", 10911), name_servers=[])

    controller = loop.run_until_complete(make())

    def connect(peer: Peer) -> Peer:
        async def connected():
            peer.set_protocol(controller.server.connection())
            peer.protocol.connection_made(peer)
            return peer

        return loop.run_until_complete(connected())

    return controller, loop, connect


def serving(work: Callable[[Callable[[bytes], None], str], int]) -> Callable[[str], int]:
    """Give bytes to a connection of a broker, without sockets. work gets the function for it, and returns messages."""
    controller, loop, connect = broker("BenchTopic", queues=4)
    peer = connect(Peer())
    received = 0

    def receive(data: bytes) -> None:
        nonlocal received
        peer.protocol.data_received(data)
        received += len(data)
        if received > TURN_BYTES:
            received = 0
            controller.server.queue._turn()

    def round_of(which: str) -> int:
        async def inside():
            return work(receive, which)

        before = peer.sent
        done = loop.run_until_complete(inside())
        controller.store.wait_dispatched()
        if peer.sent == before or len(controller.server.connections) != 1:
            raise SystemExit("instructions: the broker does not answer")
        return done

    return round_of


def sending(body: int, together: int) -> Callable[[str], int]:
    """Sends from the frame to the record and the answer; includes queue and index. together: frames of a read event."""
    frames = load.sends("BenchTopic", 4, body)
    size = len(frames) // load.KINDS * together

    def work(receive, which: str) -> int:
        for n in range(CALLS[which] // together):
            at = n * size % (len(frames) - size)
            at -= at % (len(frames) // load.KINDS)
            receive(frames[at : at + size])
        return CALLS[which] // together * together

    return serving(work)


def pulling(body: int, each: int) -> Callable[[str], int]:
    """Pulls of messages, from the frame to the answer; per message."""
    sends = load.sends("BenchTopic", 1, body)
    frames = load.pulls("BenchTopic", load.KINDS, each=each)
    count = load.KINDS // each
    size = len(frames) // count
    filled = []

    def work(receive, which: str) -> int:
        if not filled:
            receive(sends)
            filled.append(True)
        for n in range(CALLS[which] // 5):
            at = n % count * size
            receive(frames[at : at + size])
        return CALLS[which] // 5 * each

    return serving(work)


def preparing(body: int) -> Callable[[str], int]:
    """Half messages of transactions, from the frame to the record and the answer; includes queue and index."""
    frames = [load.half("BenchTopic", f"{n % 4:04d}", n, b"x" * body) for n in range(load.KINDS)]

    def work(receive, which: str) -> int:
        for n in range(CALLS[which]):
            receive(frames[n % load.KINDS])
        return CALLS[which]

    return serving(work)


def committing(body: int) -> Callable[[str], int]:
    """Commits of half messages, from the frame to the record; includes queue and index. They are not answered."""
    controller, loop, connect = broker("BenchTopic", queues=4)
    told: list[bytes] = []

    class Listening(Peer):
        def write(self, data):
            told.append(bytes(data))

        def writelines(self, pieces):
            told.append(b"".join(pieces))

    peer = connect(Listening())
    many = 2 * sum(CALLS.values())  # both rounds of a case run twice

    async def prepared() -> None:
        for n in range(many):
            peer.protocol.data_received(load.half("BenchTopic", f"{n % 4:04d}", n, b"x" * body))
            controller.server.queue._turn()

    loop.run_until_complete(prepared())
    controller.store.wait_dispatched()
    ends = [load.end(n, int(re.search(rb'"msgId":"\w{16}(\w{16})"', answer)[1], 16)) for n, answer in enumerate(told)]
    if len(ends) != many:
        raise SystemExit("instructions: the broker does not store half messages")
    ends.reverse()

    async def inside(which: str) -> int:
        for _ in range(CALLS[which]):
            peer.protocol.data_received(ends.pop())
            if len(ends) % 16 == 0:
                controller.server.queue._turn()
        return CALLS[which]

    def round_of(which: str) -> int:
        before = sum(controller.store.max_offset("BenchTopic", n) for n in range(4))
        done = loop.run_until_complete(inside(which))
        controller.store.wait_dispatched()
        if sum(controller.store.max_offset("BenchTopic", n) for n in range(4)) - before != done:
            raise SystemExit("instructions: the broker does not commit")
        return done

    return round_of


def waking(body: int) -> Callable[[str], int]:
    """Pulls of 250 connections that wait, each for a message of its own queue; per message."""
    count = 250
    controller, loop, connect = broker("HeldTopic", queues=count)
    sends = b"".join(load.send("HeldTopic", f"{n:04d}", n, b"x" * body) for n in range(count))
    pull = load.pull("HeldTopic", load.QUEUE, load.OFFSET, load.SUBSCRIPTION | load.SUSPEND)
    rounds = [
        [pull.replace(b"QQQQ", b"%04d" % n).replace(b"OOOOOOOOOO", b"%010d" % at) for n in range(count)]
        for at in range(2 * sum(CALLS.values()) // count)
    ]  # of frames; both rounds of a case run twice
    answered = [0, loop.create_future()]

    class Waiting(Peer):
        def write(self, data):
            answered[0] += 1
            if answered[0] == count:
                answered[1].set_result(None)

        def writelines(self, pieces):
            self.write(b"")

    pullers, sender = [connect(Waiting()) for _ in range(count)], connect(Peer())

    async def inside(which: str) -> int:
        for _ in range(CALLS[which] // count):
            answered[:] = 0, loop.create_future()
            for puller, frame in zip(pullers, rounds.pop(0), strict=True):
                puller.protocol.data_received(frame)
            sender.protocol.data_received(sends)
            await answered[1]
        return CALLS[which]

    loop.run_until_complete(controller.start())
    return lambda which: loop.run_until_complete(inside(which))


class Stream:
    """An Arrow stream that is read through the C stream interface, so that no Arrow library is counted."""

    class _Struct(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")
        ]

    class _Array(ctypes.Structure):
        _fields_ = [
            *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
            *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
        ]

    def __init__(self, source):
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self._capsule = source.__arrow_c_stream__()
        self._at = pointer(self._capsule, b"arrow_array_stream")
        self._get_next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
            self._Struct.from_address(self._at).get_next
        )

    def next(self) -> int:
        """Read the next batch, release it, and return the number of its rows; 0 at the end."""
        array = self._Array()
        if self._get_next(self._at, ctypes.addressof(array)):
            raise SystemExit("instructions: the scan failed")
        if array.release:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(array.release)(ctypes.addressof(array))
        return array.length


def make_logs(folder: Path):
    for body in (256, 1024):
        for which, size in LOG_BYTES.items():
            log = write_log(folder / str(body) / which, body=body, size=size, file_size=size)
            Path(folder, str(body), f"{which}.records").write_text(str(log.sum.records))


def records(body: int, which: str) -> int:
    return int(Path(str(body), f"{which}.records").read_text())


def child(case: str):
    """Count one case, and print the number of records of both rounds."""
    ways = _encoding.crc32_ways()
    if platform.machine() == "x86_64" and ways[-1] != CRC_WAY:
        raise SystemExit(
            f"instructions: callgrind offers the CRC ways {ways}; the kept counts need {CRC_WAY} as the best way"
        )
    library, work = native.load(), CASES[case]()
    gc.disable()
    for which in (FEW, MANY):  # not counted: includes one-time work
        work(which)
    if not library.bench_count():
        raise SystemExit("instructions: valgrind's headers are missing (on Debian, install the package valgrind)")
    done = {}
    for which in (FEW, MANY):
        done[which] = work(which)
        library.bench_counted(which.encode())
    print(json.dumps(done))


# ---------------------------------------------------------------- the parent process
def count(case: str, folder: Path, misses: bool) -> dict[str, float]:
    """Return the instructions per record; with --misses, also the misses in both CACHES."""
    caches = ["--cache-sim=yes", *(f"--{name}={shape}" for name, shape in CACHES.items())] if misses else []
    out = Path(tempfile.mkdtemp(dir=folder, prefix="out-"), "callgrind")
    run = subprocess.run(
        [
            *("valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", *caches),
            *(sys.executable, str(HERE / "instructions.py"), "--child", case),
        ],
        cwd=folder,
        env={**ENVIRONMENT, "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(rocketc.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise SystemExit(f"instructions: {case}: {run.stderr.strip()}")
    done, counted = json.loads(run.stdout), {}
    for part in out.parent.glob("callgrind.*"):
        text = part.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (\w+)$", text, re.M)
        if name:
            events = re.search(r"^events: (.+)$", text, re.M)[1].split()
            totals = map(int, re.search(r"^summary: (.+)$", text, re.M)[1].split())
            counted[name[1]] = Counter(dict(zip(events, totals, strict=True)))
    more = counted[MANY]
    more.subtract(counted[FEW])
    records_more = done[MANY] - done[FEW]
    found = {"instructions": more["Ir"]}
    if misses:
        found |= {"D1": more["D1mr"] + more["D1mw"], "LL": more["DLmr"] + more["DLmw"]}
    return {name: number / records_more for name, number in found.items()}


def made_with() -> dict[str, str]:
    """Return what the counts depend on, besides the sources."""

    def answer(option):
        return subprocess.run([*native.compiler(), option], capture_output=True, text=True, check=True).stdout

    compiler = "clang" if "clang" in answer("--version") else "gcc"
    return {
        "machine": platform.machine(),
        "compiler": f"{compiler} {answer('-dumpversion').partition('.')[0].strip()}",
        "python": f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}",
        "libc": " ".join(platform.libc_ver()),
    }


def row(case: str, now: float, kept: float | None) -> dict:
    """Return a row as the other benchmarks print it; ratio > 1: fewer instructions than the kept count."""
    was = now if kept is None else kept
    return {
        "bench": "instructions",
        "case": case,
        "against": "bench/instructions.json",
        "ratio": float(f"{was / now:.4g}"),
        "goal": float(f"{1 / (1 + MAY_GROW):.4g}"),
        "ours": [round(now, 1)] * 3,
        "theirs": [round(was, 1)] * 3,
        "unit": "instructions/record",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if a count has grown by more than 5 %%")
    parser.add_argument("--update", action="store_true", help="keep the new counts")
    parser.add_argument("--misses", action="store_true", help=f"also count cache misses: {CACHES}")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    for name in ("--quick", "--goals"):
        parser.add_argument(name, action="store_true", help="accepted for run.py, and ignored")
    parser.add_argument("--seconds", metavar="N", help="accepted for run.py, and ignored")
    parser.add_argument("--only", metavar="WORD", default="", help="only the cases that contain WORD")
    parser.add_argument("--child", metavar="CASE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return 0
    if shutil.which("valgrind") is None:
        print("instructions: valgrind is not installed (on Debian: apt-get install valgrind)", file=sys.stderr)
        return NOT_COMPARABLE if args.check else 2
    native.build()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"made_with": made_with(), "instructions": {}}
    comparable = kept["made_with"] == made_with()
    worse = []
    with tempfile.TemporaryDirectory(prefix="rocketc-instructions-") as folder:
        make_logs(Path(folder))
        cases = [case for case in CASES if args.only.lower() in case.lower()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(zip(cases, pool.map(count, cases, repeat(Path(folder)), repeat(args.misses)), strict=True))
        counts = {case: each["instructions"] for case, each in found.items()}
        for case in cases:
            line = row(case, counts[case], kept["instructions"].get(case))
            if counts[case] > line["theirs"][1] * (1 + MAY_GROW) or case not in kept["instructions"]:
                worse.append(case)
            now, was = line["ours"][1], kept["instructions"].get(case)
            text = f"{now:9.1f} {case}" + (
                " (new)" if was is None else f" (kept: {was:g}, {(now / was - 1) * 100:+.1f} %)"
            )
            if args.misses:
                line |= {"misses": {name: round(found[case][name], 2) for name in CACHES}}
                text += "; misses: " + ", ".join(f"{found[case][name]:.2f} {name}" for name in CACHES)
            print(json.dumps(line) if args.json else text, flush=True)
    if args.update:
        known = {**kept["instructions"], **counts}
        table = {case: round(known[case], 1) for case in CASES if case in known}
        KEPT.write_text(json.dumps({"made_with": made_with(), "instructions": table}, indent=2) + "\n")
    elif args.check and not comparable:
        print(f"instructions: not comparable: kept with {kept['made_with']}, here {made_with()}", file=sys.stderr)
        return NOT_COMPARABLE
    elif args.check and worse:
        print(f"instructions: counts have grown: {'; '.join(worse)}. If this is right, use --update", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
