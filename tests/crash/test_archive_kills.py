"""`rocketc export --follow` is killed again and again, also at each of its system calls, and its brokers are killed.

The folder then has each message once: the messages that are in the brokers at the end, or were there when they were
read. ROCKETC_SEED=n runs the lives of seed n; a failure names its seed.
"""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from crash.tracing import Zygote, every
from support.native import ROOT
from support.promise_counts import count

import rocketc
from rocketc.client import Producer
from rocketc.client.access import access_to
from rocketc.errors import RocketcError
from rocketc.exports.cluster_archive import ClusterArchive

pytestmark = pytest.mark.long

SEED = int(os.environ.get("ROCKETC_SEED", "1"))
# Calls that change the folder of an archive. Writes and closes are also those of connections: some of them are enough.
CALLS = ("mkdir", "rename", "fsync", "unlink", "unlinkat", "rmdir")
OTHERS = ("write", "close", "openat")
IMPORTS = "pyarrow.parquet pyarrow.dataset pyarrow.compute rocketc.cli.export rocketc.cli.export_cluster"


def visible(target: Path) -> list[bytes]:
    """The bodies that a reader of the folder gets."""
    files = [str(path) for path in target.glob("data/topic=*/*/*.parquet")]
    return ds.dataset(files).to_table(["body"]).column("body").to_pylist() if files else []


def append(name_server: str, target: Path, topics: list[str]) -> None:
    archive = ClusterArchive(access_to(name_server), topics, target)
    while staged := archive.stage():
        archive.commit(staged)
    archive.close()


@pytest.fixture
def zygote(tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is missing; tools/setup.sh strace installs it")
    made = Zygote(tmp_path, ZYGOTE_IMPORTS=IMPORTS)
    yield made
    made.close()


def test_killed_at_every_call(zygote, memory_path):
    """A run with a commit before it, and commits of several files."""
    with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        made = memory_path / "made"
        for number in range(6):
            producer.send("orders", b"%d" % number)
        producer.send("bills", b"first")
        append(broker.name_server, made, ["orders", "bills"])
        for number in range(6, 12):
            producer.send(["orders", "bills"][number % 2], b"%d" % number)
        every_body = sorted([b"first", *(b"%d" % number for number in range(12))])
        fields = {"url": f"rocketmq://{broker.name_server}", "topics": ["orders", "bills"], "size": "600"}

        def lay(name: str) -> Path:
            return shutil.copytree(made, memory_path / name)

        counts = zygote.counted(lambda: zygote.run("archive", lay("whole"), fields), memory_path / "trace")
        assert sorted(visible(memory_path / "whole")) == every_body
        assert {"rename", "fsync", "mkdir", "rmdir"} < counts.keys()
        before, deaths, states = Counter(visible(made)), 0, set()
        kills = every({call: counts[call] for call in CALLS if call in counts})
        kills += every({call: counts[call] for call in OTHERS if call in counts})[::20]
        for name, number in kills:
            target = lay(f"{name}-{number}")
            with zygote.killed_at(name, number):
                killed, _ = zygote.run("archive", target, fields)
            deaths += killed
            seen = Counter(visible(target))
            assert before <= seen <= Counter(every_body), (name, number)
            states.add(sum(seen.values()))
            append(broker.name_server, target, ["orders", "bills"])
            assert sorted(visible(target)) == every_body, (name, number)
            assert not (target / "_rocketc" / "staging").exists()
            shutil.rmtree(target)
        assert deaths > 60 and len(states) > 3, (deaths, states)


class Served:
    """A broker process that registers with a name server; start() begins the next life."""

    def __init__(self, folder: Path, name: str, name_server: str) -> None:
        (folder / f"{name}.conf").write_text(
            f"brokerName={name}\nmappedFileSizeCommitLog=1048576\nbindAddress=127.0.0.1\n"
        )
        self.store = folder / name
        words = [str(self.store), "-c", str(folder / f"{name}.conf"), "-n", name_server, "--port", "0", "--json"]
        self._command = [sys.executable, "-c", "from rocketc_command import main; main()", "broker", *words]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ())
        assert json.loads(self.process.stdout.readline())["address"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def load(name_server: str, worker: int, ends: threading.Event, sent: Counter[str]) -> None:
    """Send until the end, also while brokers are down."""
    with Producer(f"shop-{worker}", name_server, send_msg_timeout=1000) as producer:
        for number in range(1 << 30):
            if ends.is_set():
                return
            with contextlib.suppress(RocketcError):  # it may be stored
                producer.send(f"orders{number % 3}", b"%d.%d." % (worker, number) + b"x" * 200)
                sent["acknowledged"] += 1


def wait_for(done, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def follow(url: str, target: Path, log: Path) -> subprocess.Popen[bytes]:
    words = ["export", url, "-o", str(target), "--follow", "--interval", "0.05", "--commit-size", "64KiB"]
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-c", "from rocketc_command import main; main()", *words], stdout=file, stderr=file,
            env=environ(),
        )  # fmt: skip


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_killed_at_random_while_brokers_are_killed(tmp_path, seed):
    chance, target, log = random.Random(seed), tmp_path / "lake", tmp_path / "log"
    ends, sent = threading.Event(), Counter[str]()
    with rocketc.Broker() as names, contextlib.ExitStack() as at_end:  # it is the name server, and a broker
        brokers = [Served(tmp_path, f"broker-{letter}", names.name_server) for letter in "xy"]
        for broker in brokers:
            broker.start()
            at_end.callback(broker.kill)
        workers = [threading.Thread(target=load, args=(names.name_server, worker, ends, sent)) for worker in range(2)]
        for worker in workers:
            worker.start()
            at_end.callback(worker.join)
        at_end.callback(ends.set)
        url = f"rocketmq://{names.name_server}/orders*"
        wait_for(lambda: sent["acknowledged"])
        for _ in range(12):
            process = follow(url, target, log)
            time.sleep(0.5 + 2.5 * chance.random())
            if chance.random() < 0.4:
                broker = chance.choice(brokers)
                broker.kill()
                time.sleep(chance.random())
                broker.start()
                sent["broker kills"] += 1
                time.sleep(chance.random())
            process.kill()
            sent["kills"] += process.wait() == -9
        ends.set()
        for worker in workers:
            worker.join()
        append(names.name_server, target, [re.compile("orders.*")])
        wanted = Counter(
            (message.topic, message.queue_id, message.queue_offset, message.body)
            for store in (names.path, *(broker.store for broker in brokers))
            for message in rocketc.scan(store)
            if message.topic.startswith("orders")
        )
    count("kills", sent["kills"] + sent["broker kills"])
    files = [str(path) for path in target.glob("data/topic=*/*/*.parquet")]
    table = ds.dataset(files, partitioning="hive", partition_base_dir=str(target)).to_table()
    found = Counter(
        zip(*(table.column(name).to_pylist() for name in ("topic", "queueId", "queueOffset", "body")), strict=True)
    )
    assert found == wanted, (seed, found - wanted, wanted - found, log.read_text()[-2000:])
    assert sent["kills"] > 8 and sum(found.values()) >= sent["acknowledged"] > 1000, (seed, sent)
    assert len({path.name for path in (target / "_rocketc" / "commits").glob("*.json")}) > 10, seed
