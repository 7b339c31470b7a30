"""Limits of memory, open files, maps, threads and CPU time, whatever a store's folder holds."""

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import command, oracle
from support.index_files import index_bytes
from support.promise_counts import count

import rocketc

pytestmark = [
    pytest.mark.promise(8),
    pytest.mark.measure,
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="/proc is not available"),
]

GIB, TIB = 1 << 30, 1 << 40
FILE = 1 << 16
LOG = f"commitlog/{0:020d}"

PROLOGUE = """
import json, os, resource, sys, threading, time
import rocketc
from support import oracle

def status(name):
    "A number of /proc/self/status; sizes are in KiB."
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))

def used():
    "The limited resources that this process uses."
    with open("/proc/self/maps") as file:
        maps = sum(1 for _ in file)
    return {"files": len(os.listdir("/proc/self/fd")), "maps": maps, "threads": status("Threads")}
"""

# ------------------------------------------------------------------------------------------- many large files

FILES, EACH = 2000, 2

MANY_FILES = """
GIB, FILES, EACH = 1 << 30, 2000, 2
root, addresses = sys.argv[1], int(sys.argv[2])
everything = [getattr(rocketc, name) for name in rocketc.__all__]  # modules are loaded before the measurement
rocketc.decode(oracle.encode("t", b"x")).to_arrow()     # memory that is allocated once
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
if addresses:
    resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))
before, most = used(), {}

def look():
    for name, n in used().items():
        most[name] = max(most.get(name, 0), n - before[name])

def scans():
    assert rocketc.scan(root).count() == FILES * EACH
    assert sum(1 for _ in rocketc.scan(root)) == FILES * EACH
    assert rocketc.scan(root, columns=["body"]).to_arrow().num_rows == FILES * EACH
    report = rocketc.verify(root)
    assert (report.records, report.is_log_whole) == (FILES * EACH, True)
    look()

def gets(store):
    numbers = []
    for at in range(0, FILES * EACH, 32):
        numbers += [message.queue_offset for message in store.get("t", 0, at, 32)]
    assert numbers == list(range(FILES * EACH)), len(numbers)
    assert [store.message(n * GIB).queue_offset for n in range(FILES)] == [n * EACH for n in range(FILES)]
    look()
"""


@pytest.fixture
def many_files(tmp_path):
    """A store of 2,000 files of 1 GiB, each with two records and a hole."""
    (tmp_path / "commitlog").mkdir()
    for n in range(FILES):
        data = b""
        for k in range(EACH):
            fields = {
                "queue_offset": n * EACH + k,
                "phy_offset": n * GIB + len(data),
                "store_timestamp": 1_700_000_000_000,
            }
            data += oracle.encode("t", b"%d" % n, properties={"KEYS": f"k{n}"}, **fields)
        if n + 1 < FILES:
            data += struct.pack(">ii", GIB - len(data), oracle.MAGIC_BLANK)
        with open(tmp_path / f"commitlog/{n * GIB:020d}", "wb") as file:
            file.write(data)
            file.truncate(GIB)
    return tmp_path


def run(code, *arguments, timeout=60):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + code, *map(str, arguments)],
        env=env, timeout=timeout, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.some(1)
@pytest.mark.parametrize("addresses", [0, 12 * GIB])
def test_two_thousand_files_are_read(many_files, addresses):
    """With 256 open files, and with address space for ten log files: unused maps are removed for new ones."""
    code = """
scans()
anonymous = status("RssAnon")
with rocketc.open(root, read_only=True) as store:
    look()
    assert [store.message(n * GIB).queue_offset for n in range(FILES)] == [n * EACH for n in range(FILES)]
    look()
print(json.dumps(most | {"grown": status("RssAnon") - anonymous}))
"""
    told = run(MANY_FILES + code, many_files, addresses)
    assert told["files"] <= 8
    assert told["maps"] <= FILES + 100 if not addresses else told["maps"] < 150
    assert told["grown"] < 8 << 10, "KiB"


@pytest.mark.long
@pytest.mark.parametrize("addresses", [0, 12 * GIB])
def test_two_thousand_files_are_written(many_files, addresses):
    """The same store open for writing: recovered, filled, read, cleaned; reads do not allocate space for files."""
    code = """
SMALL = {"max_hash_slot_num": 5000, "max_index_num": 20000}
anonymous = status("RssAnon")
with rocketc.open(root, **SMALL) as store:
    look()
    gets(store)
    for n in range(5):
        assert store.put("t", b"new").status.name == "PUT_OK"
        store._roll()
    assert store.wait_dispatched(60)
    assert len(store.get("t", 0, FILES * EACH)) == 5
    assert {message.body for message in store.query("t", "k700")} == {b"700"}
    look()
    if addresses:       # held views stay valid, other reads raise
        held = []
        try:
            for at in range(0, FILES * EACH, 2):
                held.append(store.get("t", 0, at, 1, views=True))
                list(held[-1])
            raise AssertionError("all of them are mapped")
        except MemoryError:
            pass
        del held
        gets(store)
    store.delete_before(1000 * GIB)
    assert store.min_phy_offset >= 100 * GIB
with rocketc.open(root, **SMALL) as store:
    look()
    assert store.max_offset("t", 0) == FILES * EACH + 5
blocks = sum(os.stat(os.path.join(root, "commitlog", name)).st_blocks for name in os.listdir(root + "/commitlog"))
print(json.dumps(most | {"grown": status("RssAnon") - anonymous, "gib": blocks * 512 / GIB}))
"""
    told = run(MANY_FILES + code, many_files, addresses)
    assert told["files"] <= 20
    assert told["threads"] <= 8
    assert told["maps"] <= FILES + 200 if not addresses else told["maps"] < 200
    assert told["grown"] < 64 << 10, "growth in KiB; queues and index are files"
    assert told["gib"] < 9, "the files that were written to, and one prepared file"


def test_an_exceeded_limit_of_addresses_is_explained(tmp_path):
    code = """
limit = (status("VmSize") << 10) + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    with rocketc.open(sys.argv[1], mapped_file_size_commit_log="1GiB") as store:
        store.put("t", b"x")
except rocketc.StoreIOError as error:
    print(json.dumps(str(error)))
"""
    assert "raise the limit of maps (sysctl vm.max_map_count) or of addresses (ulimit -v)" in run(code, tmp_path)


def test_a_store_that_rolls_keeps_no_file_open(tmp_path):
    """Hundreds of files, written one after the other by one process with few open files, and read again."""
    code = """
root = sys.argv[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with rocketc.open(root, mapped_file_size_commit_log=1 << 12, max_hash_slot_num=50, max_index_num=200) as store:
    store.put("t", b"first")
    before, most = used(), 0
    for n in range(500):
        store.put("t", bytes(900), keys=f"k{n}")
        most = max(most, used()["files"] - before["files"]) if n % 50 == 0 else most
        if n % 100 == 0:
            store.flush()
    store.flush()
    assert store.wait_dispatched(60)
    files = len(os.listdir(root + "/commitlog"))
    assert sum(len(store.get("t", 0, at, 32)) for at in range(0, 501, 32)) == 501
    assert len(list(store.query("t", "k7"))) == 1
    print(json.dumps({"most": max(most, used()["files"] - before["files"]), "log": files}))
"""
    told = run(code, tmp_path)
    assert told["log"] > 100
    assert told["most"] < 40


# ------------------------------------------------------------------------------------------- wrong sizes


def record(**fields):
    return oracle.encode(**{"topic": "t", "body": b"body", "properties": {"KEYS": "k"}, **fields}).ljust(FILE, b"\0")


def lying(at, value):
    """A record with one changed number."""
    data = bytearray(record())
    struct.pack_into(">i", data, at, value)
    return bytes(data)


BATCH = oracle.encode_batch([(0, b"one", None)])
HEADER = struct.pack(">qqqqii", 1, 1 << 60, 0, 1 << 60, 0x7FFFFFFF, 0x7FFFFFFF)
QUEUE, EXT, INDEX = f"consumequeue/t/0/{0:020d}", f"consumequeue_ext/t/0/{0:020d}", "index/20240101000000000"
NUMBERS = '{"topicConfigTable":{"t":{"topicName":"t","readQueueNums":2147483647,"writeQueueNums":2147483647}}}'

CLAIMS = {  # the files of a store, and the length of each
    "size": ({LOG: lying(0, 0x7FFFFFFF)}, {}),
    "body": ({LOG: lying(84, 0x7FFFFFFF)}, {}),
    "blank": ({LOG: struct.pack(">ii", 0x7FFFFFFF, oracle.MAGIC_BLANK).ljust(FILE, b"\0")}, {}),
    "batch": ({LOG: record(body=BATCH, sys_flag=0xC0, properties={"INNER_NUM": "32767", "INNER_BASE": "9" * 19})}, {}),
    "queue offset": ({LOG: record(queue_offset=1 << 58)}, {}),
    "queue id": ({LOG: record(queue_id=0x7FFFFFFF)}, {}),
    "log file": ({}, {LOG: TIB}),
    "offset of a log file": ({f"commitlog/{(1 << 63) - FILE:020d}": record()}, {}),
    "offset of a queue file": ({f"consumequeue/t/0/{((1 << 63) - 1) // 2000 * 2000:020d}": bytes(2000)}, {}),
    "offset of an extension": ({f"consumequeue_ext/t/0/{(1 << 63) - 4096:020d}": bytes(4096)}, {}),
    "queue": ({}, {QUEUE: 5 * TIB}),
    "units": ({QUEUE: struct.pack(">qiq", 1 << 62, 0x7FFFFFFF, 0) * 100}, {}),
    "blank units": ({QUEUE: struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 100}, {}),
    "extension": ({EXT: struct.pack(">hqqh", 32767, 1, 1, 32767).ljust(4096, b"\0")}, {}),
    "long extension": ({}, {EXT: TIB}),
    "index": ({INDEX: HEADER + bytes(10_000)}, {}),
    "long index": ({INDEX: HEADER}, {INDEX: 0x7FFFFFFF}),
    "longer index": ({INDEX: HEADER}, {INDEX: TIB}),
    "chain": ({INDEX: index_bytes(8, 1000, [(7, 0, 0)] * 999)}, {}),
    "checkpoint": ({}, {"checkpoint": TIB}),
    "abort and lock": ({}, {"abort": TIB, "lock": TIB}),
    "table": ({}, {"config/topics.json": TIB}),
    "tables": ({}, {"config/deletedTopics.json": TIB, "config/consumerOffset.json": TIB}),
    "lists": ({"config/topics.json": b"[" * 2_000_000}, {}),
    "objects": ({"config/topics.json": b'{"a":' * 500_000}, {}),
    "numbers": ({"config/topics.json": NUMBERS.encode()}, {}),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("claim", CLAIMS)
def test_claimed_sizes_are_not_allocated(tmp_path, claim):
    """Each operation on such a store works or raises an error of the library, in the memory of a normal store."""
    files, lengths = CLAIMS[claim]
    for name, data in {LOG: record(), **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    for name, size in lengths.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with open(tmp_path / name, "ab") as file:
            file.truncate(size)
    code = """
import logging
logging.disable()
root = sys.argv[1]
rocketc.decode(oracle.encode("t", b"x")).to_arrow()
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")     # resets VmHWM
before = status("VmHWM")
SMALL = {"mapped_file_size_consume_queue": 2000, "max_hash_slot_num": 50, "max_index_num": 200}

def opened(**how):
    with rocketc.open(root, **how) as store:
        if not store.read_only:
            assert store.put("t", b"new").status.name == "PUT_OK"
            assert store.wait_dispatched(30)
            store.clean_expired_queues()
        for call in (lambda: list(store.get("t", 0, 0)), lambda: list(store.query("t", "k")), store.topics,
                     lambda: store.offset_by_time("t", 0, 1), lambda: store.max_phy_offset):
            attempt(call)

def attempt(call):
    started = time.monotonic()
    try:
        call()
    except rocketc.RocketcError as error:
        told.append(str(error))
    assert time.monotonic() - started < 30

told = []
for call in (
    lambda: list(rocketc.scan(root, errors="skip")),
    lambda: rocketc.scan(root, errors="skip").to_arrow(),
    lambda: rocketc.verify(root),
    lambda: rocketc.salvage(root, root + "/../made", dry_run=True),
    lambda: opened(read_only=True),
    lambda: opened(**SMALL),
    lambda: rocketc.rebuild(root),
):
    attempt(call)
assert all(root in text for text in told), told
print(json.dumps({"grown": (status("VmHWM") - before) >> 10}))
"""
    assert run(code, tmp_path)["grown"] < 100, "MiB"
    blocks = sum(path.lstat().st_blocks for path in tmp_path.rglob("*"))
    assert blocks * 512 < 64 << 20, "disk space must not grow either"
    count("inputs")


# ------------------------------------------------------------------------------------------- threads

THREADS = {
    **{"async": 5, "sync": 5, "pool": 6, "cleaning": 6, "read-only": 0},
    **{"get": 5, "queue": 7, "follow": 6, "behind": 0},
}
IDLE = """
import asyncio
kind, root = sys.argv[1:]
SMALL = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 5000, "max_index_num": 20000}
HOW = {
    "sync": {"flush": "sync"}, "pool": {"transient_store_pool_enable": True},
    "cleaning": {"clean_resource_interval": 1000},
}
with rocketc.open(root, **SMALL) as store:
    store.put("t", b"first")
before = used()["threads"]
waiting = 0

def wait_in_a_thread(call):
    global waiting
    waiting += 1
    threading.Thread(target=call, daemon=True).start()

async def follow():
    async for message in store.follow("t"):
        pass

if kind == "queue":
    store = rocketc.Queue(root, **SMALL)
    store.put(b"one")
    store.ack(store.get())
    wait_in_a_thread(store.get)
else:
    store = rocketc.open(root, read_only=kind in ("read-only", "behind"), **SMALL, **HOW.get(kind, {}))
    if not store.read_only:
        for n in range(50):
            store.put("t", b"x" * n)
if kind in ("get", "behind"):
    for n in range(2 if kind == "get" else 1):
        wait_in_a_thread(lambda: store.get("t", 0, store.max_offset("t", 0), wait=60))
if kind == "follow":
    wait_in_a_thread(lambda: asyncio.run(follow()))
time.sleep(2)       # by then the messages are on the disk
threads, seconds, started = used()["threads"], time.process_time(), time.monotonic()
time.sleep(3)
share = (time.process_time() - seconds) / (time.monotonic() - started)
print(json.dumps({"threads": threads - before - waiting, "share": share}), flush=True)
os._exit(0)
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", THREADS)
def test_an_idle_store(tmp_path, kind):
    """Less than 1 % of a CPU, whatever waits in the store; and the expected number of threads, however large it is."""
    told = run(IDLE, kind, tmp_path)
    assert told["share"] < 0.01
    assert told["threads"] <= THREADS[kind]


@pytest.mark.long
def test_an_idle_follower(tmp_path):
    """A waiting `rocketc cat -F` uses less than 1 % of a CPU."""
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        store.put("t", b"first")
        with command.start("cat", "-F", tmp_path) as process:
            assert b"first" in process.stdout.readline()
            time.sleep(1)
            before = ticks(process.pid)
            time.sleep(3)
            used = ticks(process.pid) - before
            process.kill()
    assert used / 3 < 0.01


def ticks(pid):
    """CPU time of a process in seconds."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_threads_do_not_grow(tmp_path):
    """Thousands of queues and clients: the number of a store's threads is constant."""
    code = """
root = sys.argv[1]
before = used()["threads"]
with rocketc.open(root, mapped_file_size_commit_log=1 << 22, mapped_file_size_consume_queue=2000) as store:
    for n in range(3000):
        store.put(f"t{n % 1000}", b"x", queue_id=n % 3)
    assert store.wait_dispatched(60)
    futures = [store.put_async("t", b"x") for _ in range(3000)]
    for future in futures:
        future.result(60)
    print(json.dumps({"threads": used()["threads"] - before}))
"""
    assert run(code, tmp_path)["threads"] <= 6
