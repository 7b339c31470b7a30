"""Sends at our master while the old part of its log is copied at a fixed rate. Rows for bench_replica.

On the other side a process on the same machine sends the same bytes over TCP, and another one reads them and keeps
nothing. The master, the load generator and the copy share one machine. So the goal is that of a slave that keeps
nothing, too: what a slave does with its own store happens on another machine. Rows without a goal show a whole copy.
"""

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import brokers
from common import MIB, Bench, clock
from rows_sends import Loaded, busy_generator, costs, files, plural

import rocketc

KEPT = 0.9  # of the rate of sends beside a TCP reader
NEAR = 0.1  # both sides copy at the wanted rate, give or take this share
WARM_SECONDS = 0.5  # of copying before the sends begin


class Copied:
    """The processes of both sides.

    broker  a master
    log     its oldest log file, which is full
    rate    bytes per second
    """

    def __init__(self, folder: Path, broker: brokers.Process, ha_port: int, log: Path, rate: int):
        self._folder, self._broker, self._ha_port, self._log, self._rate = folder, broker, ha_port, log, rate

    def reader(self, kind: str, port: int) -> brokers.Process:
        """Start log_reader.py."""
        script = Path(__file__).with_name("log_reader.py")
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix="copy-"))
        words = [kind, f"127.0.0.1:{port}", self._rate, folder / "store", f"127.0.0.1:{self._broker.port}"]
        found = brokers.Process(kind, [sys.executable, script, *words, self._log.stat().st_size], folder / "reader.log")
        if not found.popen.stdout.readline():
            found.fail("does not start")
        return found

    @contextlib.contextmanager
    def slave(self, kind: str = "slave"):
        """While entered, a slave copies the log; yields the process that reads, and those that only send."""
        with self.reader(kind, self._ha_port) as reader:
            yield reader, []
        shutil.rmtree(next(self._folder.glob("copy-*")))

    def replica(self):
        """As slave(), with `rocketc replicate`."""
        return self.slave("replica")

    @contextlib.contextmanager
    def stream(self):
        """While entered, the same bytes are read over TCP."""
        script = Path(__file__).with_name("ha_sender.py")
        words = [sys.executable, script, self._log, self._rate]
        with brokers.Process("sender", words, self._folder / "sender.log") as sender:
            brokers.printed_port(sender)
            with self.reader("stream", sender.port) as reader:
                yield reader, [sender]
        shutil.rmtree(next(self._folder.glob("copy-*")))


class Beside(Loaded):
    """A side: one round sends while the log is copied.

    copying  of Copied
    most     bytes that there are to copy
    figures  as those of Loaded. The CPU is that of the broker and of what sends the log in its place;
             `reader_us` is that of what reads, and `copied` are the bytes per second
    """

    def __init__(
        self, copying, most: int, broker: brokers.Process, frames: Path, connections: int, depth: int, count: int
    ):
        super().__init__(broker, frames, connections, depth, count)
        self._copying, self._most, self._messages = copying, most, count

    def __call__(self) -> float:
        with self._copying() as (reader, senders):
            self._received(reader, WARM_SECONDS)
            before = [one.used().all for one in (reader, *senders)]
            had, began = self._received(reader), clock()
            seconds = super().__call__()
            has = self._received(reader)
            copied = (has - had) / (clock() - began)
            if has >= self._most:
                reader.fail(f"had all {has} bytes before the sends ended")
            spent = [one.used().all - was for one, was in zip((reader, *senders), before, strict=True)]
        self.figures[-1]["copied"] = copied
        self.figures[-1]["reader_us"] = spent[0] / self._messages * 1e6
        self.figures[-1]["cpu_us"] += sum(spent[1:]) / self._messages * 1e6
        return seconds

    def _received(self, reader: brokers.Process, seconds: float = 0.0) -> int:
        """Return the bytes that were copied so far; ask again and again for some seconds."""
        end = clock() + seconds
        while True:
            reader.popen.stdin.write(b"\n")
            reader.popen.stdin.flush()
            line = reader.popen.stdout.readline()
            if not line:
                reader.fail("ended")
            if clock() >= end:
                return int(line)
            time.sleep(0.05)


def beside_copies(bench: Bench, folder: Path):
    """Rows of sends at a master whose log is copied."""
    rate = (32 if bench.quick else 64) * MIB
    size = (256 if bench.quick else 1024) * MIB  # more than is copied in a round
    loads = [(1, 1000, 60_000 if bench.quick else 1_000_000), (16, 1, 20_000 if bench.quick else 100_000)]
    readers = {"a slave": "slave", "a hot copy": "replica"}
    cases = {
        f"sends, {plural(connections)}, {depth} in flight{' each' * (connections > 1)}, beside {reader} at "
        f"{rate // MIB} MiB/s": (kind, connections, depth, count)
        for reader, kind in readers.items()
        for connections, depth, count in loads
    }
    against = "a TCP reader of the same bytes"
    if not any(bench.wanted(case, against, KEPT if words[0] == "slave" else None) for case, words in cases.items()):
        return
    root, ha_port, (sends, _, _) = brokers.make_store(folder), brokers.free_port(), files(folder)
    with rocketc.open(root / "store", mapped_file_size_commit_log=size) as store:
        while store.max_phy_offset < size:
            store.put_many("BenchTopic", [bytes(1024)] * 1000)
    log = root / "store" / "commitlog" / f"{0:020d}"
    role = {"brokerRole": "ASYNC_MASTER", "haListenPort": ha_port, "mappedFileSizeCommitLog": size}
    copies = folder / "copies"
    copies.mkdir()
    with brokers.ours(folder, root, **role) as broker:
        both = Copied(copies, broker, ha_port, log, rate)
        for case, (kind, connections, depth, count) in cases.items():
            ours, theirs = (
                Beside(copying, size, broker, sends, connections, depth, count)
                for copying in (getattr(both, kind), both.stream)
            )
            goal = KEPT if kind == "slave" else None
            bench.rounds = 3 if bench.quick or goal is None else 9  # of a second each: they differ by a tenth and more
            rounds = bench.row(case, against=against, goal=goal, work=count / 1e3, unit="k/s", ours=ours, theirs=theirs)
            if rounds:
                busy_generator(bench, case, ours, theirs)
                costs(bench, rounds, case, against, ours, theirs)
                copied(bench, case, rate, ours, theirs)


def copied(bench: Bench, case: str, rate: int, ours: Beside, theirs: Beside):
    """Report how fast the log was copied, and what the programs that read it cost."""
    for name, side in (("slave", ours), ("TCP reader", theirs)):
        speed, cpu = (statistics.median(one[what] for one in side.figures) for what in ("copied", "reader_us"))
        told = f"{speed / MIB:.0f} MiB/s, {cpu:.2f} us of CPU of the {name} a message"
        print(f"{bench.name}: {case}: {told}", file=sys.stderr)
        if abs(speed / rate - 1) > NEAR:
            print(f"{bench.name}: {case}: the {name} does not copy at {rate / MIB:.0f} MiB/s", file=sys.stderr)
