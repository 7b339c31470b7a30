"""Shared by all benchmark scripts: logs of a fixed seed, the clock, the peers without Java, the results.

    bench = Bench("scan", __doc__)              reads --quick --goals --json --only --seconds --data
    log = bench.log(body=1024)                  a commit log with known content, written once and kept
    bench.row("1 KiB", against="memcpy", goal=0.8, work=log.bytes / 1e9, unit="GB/s",
              ours=timed(lambda: ...), theirs=timed(copying(log.files)), check=lambda: ...)

A *side* is a callable that runs one round and returns its seconds.
"""

import argparse
import contextlib
import gc
import json
import mmap
import os
import platform
import random
import re
import shutil
import statistics
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import cycle
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
DATA = Path(__file__).resolve().parent.parent / "build" / "bench-data"
clock = time.perf_counter
Side = Callable[[], float]


# ---------------------------------------------------------------- the content of a log
class Sum(NamedTuple):
    """A summary of a log's content. Every reader must get the same one.

    checksum adds up queueId, queueOffset, physicalOffset, bornTimestamp, storeTimestamp (ms), and the lengths of
    topic and body, modulo 2**64 as a signed number, as Java's long does.
    """

    records: int
    checksum: int


# Columns that the Java side also reads: numbers, topic, body.
PLAIN = """queueId queueOffset physicalOffset storeTimestamp bornTimestamp flag sysFlag reconsumeTimes bodyCRC
    preparedTransactionOffset storeSize topic body""".split()  # noqa: SIM905
DIGEST_FIELDS = """topic queue_id queue_offset phy_offset born_timestamp store_timestamp flag sys_flag reconsume_times
    prepared_transaction_offset body_crc store_size born_host store_host msg_id"""


def make_sum(records: int, total: int) -> Sum:
    return Sum(records, (total + 2**63) % 2**64 - 2**63)


def sum_messages(messages: Iterable) -> Sum:
    """Return the sum of objects with the attributes of rocketc.Message."""
    numbers = attrgetter("queue_id", "queue_offset", "phy_offset", "born_timestamp", "store_timestamp")
    records = total = 0
    for m in messages:
        total += sum(numbers(m)) + len(m.topic) + len(m.body)
        records += 1
    return make_sum(records, total)


def sum_batches(batches: Iterable) -> Sum:
    """Return the sum of pyarrow record batches with the columns of numbers, topic and body."""
    import pyarrow as pa
    import pyarrow.compute as pc

    records = total = 0
    for batch in batches:
        records += batch.num_rows
        for name in ("queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "topic", "body"):
            column = batch.column(name)
            if name in ("topic", "body"):
                column = pc.binary_length(column)
            elif pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
            total += pc.sum(column.cast(pa.int64())).as_py() or 0
    return make_sum(records, total)


def digest(messages: Iterable) -> Sum:
    """Return a CRC-32 over every field of every message: slow, for checks only. "scan digest" of Java is the same."""
    fields = attrgetter(*DIGEST_FIELDS.split())
    records = crc = 0
    for m in messages:
        text = "\t".join(map(str, fields(m)))
        pairs = "".join(f"{name}\1{value}\2" for name, value in sorted(m.properties.items()))
        crc = zlib.crc32(m.body, zlib.crc32(f"{text}\n{pairs}".encode(), crc))
        records += 1
    return Sum(records, crc)


def same(got, want, who: str):
    """The check before the clock starts: ends the script if two sides disagree."""
    if got != want:
        raise SystemExit(f"bench: wrong result: {who} gives {got}, not {want}; nothing was measured")


# ---------------------------------------------------------------- logs of a fixed seed
ONE_TOPIC = {"BenchTopic": 1.0}
FOUR_TAGS = {"TagA": 0.25, "TagB": 0.25, "TagC": 0.25, "TagD": 0.25}
MIXED_TOPICS = {"BenchTopic": 0.6, "Orders": 0.25, "PaymentEvents": 0.14, "RareTopic": 0.01}
LOG_FORM = 1  # increment it if write_log writes other bytes, so that kept logs are written again
HEAD = struct.Struct(">iIiiiqqiq8sq8siqi")  # a record before its body, with IPv4 hosts
V1, BLANK = 0xDAA320A7, 0xCBD43194
BORN_HOST = b"\x7f\0\0\1\0\0\xb2\x6e"
STORE_HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
PROPERTIES = b"KEYS\1order-%d\2UNIQ_KEY\0017F000001AB12CD34EF56%012X\2WAIT\1true\2TAGS\1%b\2"
WORDS = b"order paid shipped returned customer invoice Kyoto Lima Oslo express parcel 17 42 EUR".split()


@dataclass(frozen=True)
class Log:
    path: str  # the store's root
    files: list[str]
    bytes: int  # of all records without the blank ones
    topics: dict[str, Sum]  # the sum of each topic
    sum: Sum  # the sum of the log


def write_log(
    root: Path,
    *,
    body: int,
    size: int,
    file_size: int,
    topics: Mapping[str, float] = ONE_TOPIC,
    queues: int = 4,
    tags: Mapping[str, float] = FOUR_TAGS,
    spread: float = 0.0,
    first: int = 0,
    seed: int = 20251121,
) -> Log:
    """Write a commit log as a broker writes it. The same arguments give the same bytes.

    body       bytes of a body, which is text; evenly spread between body * (1 - spread) and body * (1 + spread)
    size       bytes of all files; each file has file_size bytes and ends with a blank record
    topics     name -> share of the records
    queues     number of queues of each topic, which get its records in rotation
    tags       name -> share of the records
    first      physical offset of the first file
    Each message has KEYS, UNIQ_KEY, WAIT and TAGS; all text is ASCII.
    """
    rnd = random.Random(seed)
    bodies = []
    for _ in range(1024):
        length = rnd.randint(round(body * (1 - spread)), round(body * (1 + spread)))
        text = b" ".join(rnd.choices(WORDS, k=length // 3 + 1))[:length]
        bodies.append((text, zlib.crc32(text) & 0x7FFFFFFF))
    names = rnd.choices(list(topics), list(topics.values()), k=65521)  # a prime, to avoid a pattern with the bodies
    if tags == FOUR_TAGS:
        texts = rnd.choices((b"TagA", b"TagB", b"TagC", b"TagD"), k=509)
    else:
        texts = rnd.choices([tag.encode() for tag in tags], list(tags.values()), k=65519)  # another prime
    counts, totals = dict.fromkeys(topics, 0), dict.fromkeys(topics, 0)
    source = zip(cycle(names), cycle(bodies), cycle(texts))
    folder = Path(root, "commitlog")
    folder.mkdir(parents=True)
    pack, record_bytes, n, files = HEAD.pack, 0, 0, []
    name, (text, crc), tag = next(source)
    for base in range(first, first + size, file_size):
        files.append(str(folder / f"{base:020d}"))
        with open(files[-1], "wb") as f:
            at, end, chunk = base, base + file_size, []
            while True:
                topic = name.encode()
                properties = PROPERTIES % (n, n, tag)
                length = 91 + len(text) + len(topic) + len(properties)
                if length + 8 > end - at:
                    break
                stored = 1700000000000 + n
                queue_offset, queue_id = divmod(counts[name], queues)
                # fmt: off
                chunk.append(b"%b%b%c%b%b%b" % (
                    pack(length, V1, crc, queue_id, 0, queue_offset, at, 0, stored - 2, BORN_HOST, stored, STORE_HOST,
                         0, 0, len(text)),
                    text, len(topic), topic, len(properties).to_bytes(2, "big"), properties))
                # fmt: on
                totals[name] += queue_id + queue_offset + at + 2 * stored - 2 + len(topic) + len(text)
                counts[name] += 1
                at += length
                n += 1
                if not n % 4096:
                    f.write(b"".join(chunk))
                    chunk.clear()
                name, (text, crc), tag = next(source)
            chunk.append(struct.pack(">II", end - at, BLANK))
            f.write(b"".join(chunk))
            f.truncate(file_size)
            os.fsync(f.fileno())  # no write-back during a measurement
        record_bytes += at - base
    sums = {name: make_sum(counts[name], totals[name]) for name in topics}
    return Log(str(root), files, record_bytes, sums, make_sum(n, sum(totals.values())))


def cached_log(data: Path, **wanted) -> Log:
    """Return the log of write_log(); uses the same log of an earlier run if it is in `data`."""
    about = json.dumps({"form": LOG_FORM, **wanted}, sort_keys=True)
    root = Path(data, f"log-{zlib.crc32(about.encode()):08x}")
    try:
        found = json.loads(root.with_suffix(".json").read_text())
        if found.pop("about") == about and all(Path(f).exists() for f in found["files"]):
            topics = {name: Sum(*numbers) for name, numbers in found.pop("topics").items()}
            return Log(**{**found, "topics": topics, "sum": Sum(*found["sum"])})
    except FileNotFoundError:
        pass
    shutil.rmtree(root, ignore_errors=True)
    log = write_log(root, **wanted)
    root.with_suffix(".json").write_text(json.dumps({"about": about, **asdict(log)}))
    return log


# ---------------------------------------------------------------- peers
def mapped(file: str) -> mmap.mmap:
    with open(file, "rb") as f:
        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)


def copying(files: list[str], block: int | None = 16 * MIB, remap: bool = False) -> Callable[[], int]:
    """Return a function that copies the mapped bytes of the files into one reused buffer, and returns their number.

    block   bytes per memcpy; None: a whole file at once (the buffer is then as large as a file)
    remap   map the files again in every round, as an open of a store does; otherwise they stay mapped
    """
    maps = [mapped(file) for file in files]
    room = memoryview(bytearray(block or max(map(len, maps))))

    def copy() -> int:
        done = 0
        for m in [mapped(file) for file in files] if remap else maps:
            with memoryview(m) as source:
                for at in range(0, len(source), len(room)):
                    part = source[at : at + len(room)]
                    room[: len(part)] = part  # contiguous bytes: one memmove
                    part.release()
                done += len(source)
        return done

    return copy


class Known(dict):
    """A cache of make(key)."""

    def __init__(self, make):
        self._make = make

    def __missing__(self, key):
        self[key] = value = self._make(key)
        return value


def python_rows(file: str, limit: int | None = None, crc: bool = True) -> Iterator[tuple]:
    """Decode with struct and zlib, in fast plain Python: (queueId, flag, queueOffset, ..., topic, body) per record.

    Supports only the records of write_log: V1, IPv4 hosts, no compression.
    """
    m = mapped(file)
    unpack, crc32, topics = struct.Struct(">iIiiiqqiq8xq8xiqi").unpack_from, zlib.crc32, Known(bytes.decode)
    at, end_of_heads, left = 0, len(m) - HEAD.size, limit or sys.maxsize
    while left and at < end_of_heads:
        head = unpack(m, at)
        if head[1] != V1:
            break
        end = at + 88 + head[-1]
        body = m[at + 88 : end]
        if crc and crc32(body) & 0x7FFFFFFF != head[2]:
            raise ValueError(f"bad body CRC at {at}")
        yield head, topics[m[end + 1 : end + 1 + m[end]]], body
        at += head[0]
        left -= 1


def python_messages(file: str, limit: int | None = None, crc: bool = True) -> Iterator[dict]:
    """Like python_rows(), with every column, as dicts whose keys are the attributes of rocketc.Message."""
    m = mapped(file)
    unpack, i16, crc32 = HEAD.unpack_from, struct.Struct(">h").unpack_from, zlib.crc32
    topics = Known(bytes.decode)
    hosts = Known(lambda raw: "%d.%d.%d.%d:%d" % (*raw[:4], int.from_bytes(raw[4:], "big")))
    host_hex = Known(lambda raw: raw.hex().upper())
    at, end_of_heads, left = 0, len(m) - HEAD.size, limit or sys.maxsize
    # fmt: off
    while left and at < end_of_heads:
        (size, magic, body_crc, queue_id, flag, queue_offset, phy_offset, sys_flag, born, born_host, stored, store_host,
         reconsume_times, prepared, length) = unpack(m, at)
        if magic != V1:
            break
        end = at + 88 + length
        body = m[at + 88:end]
        if crc and crc32(body) & 0x7FFFFFFF != body_crc:
            raise ValueError(f"bad body CRC at {at}")
        behind = end + 1 + m[end]
        text = m[behind + 2:behind + 2 + i16(m, behind)[0]].decode()
        properties = dict([pair.split("\1", 1) for pair in text.split("\2") if pair])
        yield {
            "topic": topics[m[end + 1:behind]], "queue_id": queue_id, "queue_offset": queue_offset,
            "phy_offset": phy_offset, "store_timestamp": stored, "born_timestamp": born,
            "keys": properties.get("KEYS"), "tags": properties.get("TAGS"), "body": body, "properties": properties,
            "msg_id": "%s%016X" % (host_hex[store_host], phy_offset), "flag": flag, "sys_flag": sys_flag,
            "reconsume_times": reconsume_times, "body_crc": body_crc, "born_host": hosts[born_host],
            "store_host": hosts[store_host], "prepared_transaction_offset": prepared, "store_size": size}
        at += size
        left -= 1
    # fmt: on


# ---------------------------------------------------------------- measuring
def in_threads(count: int, work: Callable[[int], object]):
    """Run work(0) to work(count - 1) in a thread each; raise the first exception."""
    failures = []

    def run(thread: int):
        try:
            work(thread)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def memory_of(path: Path, name: str) -> float | None:
    """Return the MiB in one line of a /proc file; None if the process has ended."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.M)
        return int(found[1]) / 1024 if found else None
    return None


@contextlib.contextmanager
def each_second(look: Callable[[], float]) -> Iterator[list[float]]:
    """Call look() now, and each second of the block, in a thread; yield the list of what it returned."""
    found, done = [look()], threading.Event()

    def run():
        while not done.wait(1.0):
            found.append(look())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def timed(work: Callable[[], object]) -> Side:
    """Return a side that times a callable, without garbage collection; its result is freed after the clock stops."""

    def side() -> float:
        was_on = gc.isenabled()
        gc.disable()
        try:
            start = clock()
            result = work()
            seconds = clock() - start
        finally:
            if was_on:
                gc.enable()
        del result
        return seconds

    return side


def measure(
    ours: Side, theirs: Side, rounds: int, until: float = float("inf"), before: Callable[[], object] = lambda: None
) -> list[tuple[float, float]]:
    """Run both sides alternately, A B A B, after one warm-up round of each; return the seconds of each pair.

    until   value of clock() after which no further pair begins, if at least three are done
    before  called before each round of each side, outside the clock
    """

    def pair() -> tuple[float, float]:
        before()
        mine = ours()
        before()
        return mine, theirs()

    pair()
    pairs = []
    while len(pairs) < rounds and (len(pairs) < 3 or clock() < until):
        pairs.append(pair())
    return pairs


def family(process: str = "self") -> list[str]:
    """Return the ids of a process and of all its descendants."""
    found = [process]
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(child)
    except OSError:
        pass  # the process has ended, or the kernel does not list children
    return found


def _busy() -> float:
    """Return the CPU seconds since boot of all processes except this one and its descendants."""
    tick = os.sysconf("SC_CLK_TCK")
    with open("/proc/stat") as f:
        numbers = f.readline().split()
    used = sum(int(numbers[i]) for i in (1, 2, 3, 6, 7, 8))
    for process in family():
        try:
            stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            used -= sum(map(int, stat[11:13]))
        except OSError:
            pass  # the process has ended
    return used / tick


def machine() -> str:
    model = "?"
    with open("/proc/cpuinfo") as f:
        model = next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {system}, {python}"


def spread_of(rates: list[float]) -> list[float]:
    """Return [min, median, max], with four digits each."""
    return [float(f"{rate:.4g}") for rate in (min(rates), statistics.median(rates), max(rates))]


SECONDS = "after N seconds, measure only three rounds per row (default: no limit)"


class Point(NamedTuple):
    """The position of a row in a plot: our value is on the curve `series`, theirs on the peer's curve, both at x."""

    figure: str  # one of report.FIGURES
    series: str
    x: float


class Bench:
    """The command line, the data and the results of one script."""

    def __init__(self, name: str, about: str | None):
        text = (about or name).strip().splitlines()[0]
        parser = argparse.ArgumentParser(description=text)
        parser.add_argument("--quick", action="store_true", help="small logs, few rounds: at most 60 s in total")
        parser.add_argument("--goals", action="store_true", help="only the rows that have a goal")
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")
        parser.add_argument("--only", metavar="WORD", default="", help="only the rows whose case or peer contains WORD")
        parser.add_argument("--seconds", metavar="N", type=float, help=SECONDS)
        parser.add_argument("--data", metavar="DIR", default=DATA, help="folder of the generated logs (%(default)s)")
        self.args = parser.parse_args()
        self.name = name
        self.quick: bool = self.args.quick
        self.rounds = 3 if self.quick else 11
        self._until = clock() + (self.args.seconds or float("inf"))
        self.before_round: Callable[[], object] = lambda: None  # called before each round of each side
        print(f"{name}: {machine()}", file=sys.stderr)

    def log(self, body: int, **options) -> Log:
        """Return a log of 1 GiB (128 MiB if quick) in one file, kept for the next run; options: those of write_log."""
        size = options.pop("size", 128 * MIB if self.quick else 1024 * MIB)
        return cached_log(
            self.args.data, body=body, size=size, file_size=options.pop("file_size", min(size, 1 << 30)), **options
        )

    def row(
        self,
        case: str,
        *,
        against: str,
        goal: float | None = None,
        work: float,
        unit: str,
        ours: Side,
        theirs: Side,
        their_work: float | None = None,
        also: tuple[float, str] | None = None,
        check: Callable[[], object] | None = None,
        point: Point | None = None,
    ) -> int:
        """Check, measure and print one row; return the number of measured pairs, 0 if the row is left out.

        work    work of one round of ours, in `unit` without its "/s": 2.3 for 2.3 million records in M/s.
                For a unit that begins with "ns" it is the number of operations in a round
        their_work  work of one round of theirs, if it is less
        also    (work, unit): print the same rounds also as a second row in another unit
        check   called once before the clock starts; raises (see same) if the results of both sides differ
        point   the position of the row in a plot
        ratio   our speed over theirs, the median of the pairs; the goal is met if ratio >= goal
        """
        if not self.wanted(case, against, goal):
            return 0
        if check:
            check()
        busy, began = _busy(), clock()
        pairs = measure(ours, theirs, self.rounds, self._until, self.before_round)
        others = (_busy() - busy) / (clock() - began)
        speeds = [(work / mine, (their_work or work) / yours) for mine, yours in pairs]
        ratios = [mine / yours for mine, yours in speeds]
        for share, name in ((1.0, unit), *([(also[0] / work, also[1])] if also else [])):
            fast, slow = ([share * speed for speed in side] for side in zip(*speeds, strict=True))
            if name.startswith("ns"):
                fast, slow = ([1e9 / speed for speed in side] for side in (fast, slow))
            self.show(case, against, statistics.median(ratios), goal, fast, slow, name, ratios, point)
            goal = point = None  # the second row has the same ratio, so it does not have a goal
        if others > 0.3:
            note = f"other processes used {others:.1f} cores during the measurement; repeat this row"
            print(f"{self.name}: {case}, against {against}: {note}", file=sys.stderr)
        return len(pairs)

    def wanted(self, case: str, against: str, goal: float | None = 0) -> bool:
        """Whether --only and --goals select this row; goal: None for a row without a goal."""
        return self.args.only.lower() in f"{case} {against}".lower() and not (self.args.goals and goal is None)

    def show(
        self,
        case: str,
        against: str,
        ratio: float,
        goal: float | None,
        ours: Iterable[float],
        theirs: Iterable[float],
        unit: str,
        ratios: Iterable[float] = (),
        point: Point | None = None,
        curve: Iterable[float] = (),
    ):
        """Print one row that was measured, unless --goals excludes it.

        ratios  of each pair of rounds
        curve   our value at each second of the round with the greatest one; the page of results draws it
        """
        if self.args.goals and goal is None:
            return
        result = {
            "bench": self.name,
            "case": case,
            "against": against,
            "ratio": float(f"{ratio:.4g}"),
            "goal": goal,
            "ours": spread_of(list(ours)),
            "theirs": spread_of(list(theirs)),
            "unit": unit,
            "ratios": [float(f"{one:.4g}") for one in ratios],
            **({"point": point._asdict()} if point else {}),
            **({"curve": rounded} if (rounded := [float(f"{one:.4g}") for one in curve]) else {}),
        }
        print(json.dumps(result) if self.args.json else table_line(result), flush=True)


def table_line(result: dict) -> str:
    def rates(three):
        return "{1:g} ({0:g}-{2:g})".format(*three)

    goal = result["goal"]
    verdict = "" if goal is None else f" goal {goal:g} {'met' if result['ratio'] >= goal else 'MISSED'}"
    return (
        f"{result['bench']}: {result['case']}\n    {rates(result['ours'])} {result['unit']}, {result['against']} "
        f"{rates(result['theirs'])}: {result['ratio']:.3g}x{verdict}"
    )
