"""Write pictures of replication to docs/images: .venv/bin/python tools/replication_pictures.py [--folder FOLDER]

Both show what a terminal printed while RocketMQ ran; they need Java and what tests/interop needs.

    replicate   `rocketc replicate` at a master of RocketMQ to which a producer sends meanwhile
    fail-over   a master of RocketMQ is killed while one of its consumers works; our slave serves the consumer

The line that shows the progress is redrawn each second; in the picture each of its states is a line. The temporary
folder of the stores is shown as /data.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from screenshots import IMAGES, ROOT, recorded, save
from terminal import RELEASE, Screen

sys.path.insert(0, str(ROOT / "tests"))
from interop import scenarios
from interop.asking import Asking

from rocketc.client import Producer

TOPIC, GROUP = "orders", "audit"
NAME_PORT, BROKER_PORT, HA_PORT, SLAVE_PORT = 9876, 10911, 10912, 10921
NAMES, MASTER = f"127.0.0.1:{NAME_PORT}", f"127.0.0.1:{BROKER_PORT}"
BODY, BATCH = bytes(range(32, 127)) * 11, 100  # about 1 KiB
FILLED, COUNT = 200_000, 12_000  # messages of the two masters


@contextlib.contextmanager
def master(folder: Path, **settings: Any) -> Iterator[scenarios.JavaCluster]:
    """While entered, a name server and a master of RocketMQ on its usual ports."""
    ports = {"namePort": NAME_PORT, "brokerPort": BROKER_PORT, "store.haListenPort": HA_PORT}
    cluster = scenarios.JavaCluster(RELEASE, folder, **{**ports, "store.haSendHeartbeatInterval": 500, **settings})
    try:
        yield cluster
    finally:
        cluster.close()


def fill(producer: Producer, count: int) -> None:
    for at in range(0, count, BATCH):
        producer.send_many(TOPIC, [b"%08d" % (at + n) + BODY for n in range(BATCH)])


@contextlib.contextmanager
def load(producer: Producer) -> Iterator[None]:
    """While entered, send batches, with pauses."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(0.05):
            fill(producer, BATCH)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def replicate(folder: Path) -> Screen:
    screen = Screen(folder)
    sizes = {"store.mappedFileSizeCommitLog": 64 << 20, "store.mappedFileSizeConsumeQueue": 6_000_000}
    with master(folder / "master", **sizes), Producer("shop", NAMES) as producer:
        fill(producer, FILLED)
        with load(producer):
            process = screen.rocketc(
                f"replicate 127.0.0.1:{HA_PORT} copy --from start --rate-limit 32MiB --then verify"
            )
            if process.wait(120):
                sys.exit(f"replication_pictures: exit code {process.returncode}")
            screen.finish()
    return screen


def fail_over(folder: Path) -> Screen:
    screen = Screen(folder)
    names = scenarios.JavaCluster(RELEASE, folder / "names", namePort=NAME_PORT, brokerPort="none")
    processes: list[subprocess.Popen[bytes]] = []
    with contextlib.closing(names), master(folder / "master", namePort="none", nameServer=NAMES) as first:
        (folder / "slave.conf").write_text(
            f"brokerName=broker-a\nbrokerRole=SLAVE\nbrokerId=1\nnamesrvAddr={NAMES}\nlistenPort={SLAVE_PORT}\n"
            "bindAddress=127.0.0.1\nslaveReadEnable=true\nmappedFileSizeCommitLog=33554432\nmessageDelayLevel=1s 2s\n"
        )
        try:
            with Producer("shop", NAMES) as producer:
                fill(producer, COUNT)
            processes.append(screen.rocketc("broker copy -c slave.conf", background=True))
            screen.until("its master's log is at")
            wait_for_topic()
            processes.append(screen.java(f"Audit {NAMES} {GROUP} {TOPIC} 8 {COUNT}", background=True))
            screen.until("consumer:")
            time.sleep(4)
            pid = first._process.pid
            screen.typed(f"kill -9 {pid}   # the master")
            os.kill(pid, signal.SIGKILL)
            screen.until("all messages")
            screen.rocketc(f"admin lag {GROUP} --slaves -n {NAMES}").wait(30)
        finally:
            for one in processes:
                one.kill()
                one.wait()
            screen.finish()
    return screen


def wait_for_topic() -> None:
    """Wait until the slave has taken the topic over from its master."""
    end = time.monotonic() + 60
    with contextlib.closing(Asking(f"127.0.0.1:{SLAVE_PORT}")) as slave:
        while TOPIC.encode() not in slave.ask("GET_ALL_TOPIC_CONFIG")[2] and time.monotonic() < end:
            time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=IMAGES, help="folder for the pictures")
    parser.add_argument("--only", default="", help="one of the pictures")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, made in (("replicate", replicate), ("fail-over", fail_over)):
        if arguments.only in ("", name):
            with tempfile.TemporaryDirectory() as root:
                screen = made(Path(root))
            print(*(one.plain for one in screen.lines), sep="\n")
            save(name, recorded(name, screen.lines), arguments.folder)


if __name__ == "__main__":
    main()
