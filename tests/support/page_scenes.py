"""What pages of docs/ need to be there: clusters with brokers, messages and groups. support/pages.py starts them."""

import asyncio
import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import rocketc
from rocketc.client import Admin, MessageQueue, Producer, PullConsumer, PushConsumer

NAME_SERVER = "127.0.0.1:9876"
QUEUES = [MessageQueue("orders", name, queue_id) for name in ("broker-a", "broker-b") for queue_id in (0, 1)]


@contextlib.contextmanager
def operated_cluster(folder: Path) -> Iterator[None]:
    """Two brokers: orders has 1,250 messages a queue; audit has stopped after 500 of each, billing has consumed all."""
    with (
        rocketc.Broker(process=True, port=10911, namesrv_port=9876, broker_name="broker-a") as first,
        rocketc.Broker(process=True, port=10921, namesrv_addr=NAME_SERVER, broker_name="broker-b") as second,
        Producer("shop", NAME_SERVER) as shop,
    ):
        for broker in (first, second):
            broker.topics.create("orders", 2)
        for each in QUEUES:
            shop.send_many("orders", [b"one bicycle"] * 1250, queue=each)
        with PullConsumer("audit", NAME_SERVER) as audit:
            audit.assign(QUEUES)
            for each in QUEUES:
                audit.seek(each, 500)
            audit.commit(dict.fromkeys(QUEUES, 500))
        with consuming("billing", 5000):
            yield


@contextlib.contextmanager
def consuming(group: str, count: int) -> Iterator[None]:
    """A consumer of orders that has consumed this many messages, and committed them, and stays online."""
    found: queue.SimpleQueue[object] = queue.SimpleQueue()
    with PushConsumer(
        group,
        NAME_SERVER,
        instance_name="step",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        persist_consumer_offset_interval=1000,
    ) as consumer:
        consumer.subscribe("orders", listener=found.put)
        for _ in range(count):
            found.get(timeout=20)
        while asyncio.run(lag_of(group)):
            time.sleep(0.1)
        yield


async def lag_of(group: str) -> int:
    async with Admin(NAME_SERVER) as admin:
        return (await admin.consume_state(group, "orders")).lag


@contextlib.contextmanager
def diverged_logs(folder: Path) -> Iterator[None]:
    """A fail-over. `old` ended with orders 6 to 8 that were never copied; `copy` is the master, and took 9 and 10.

    `old` runs as a slave now, with old.conf; its output is in old.log, its process in old.pid. Replication has stopped.
    """
    old, copy = (Member(folder, *one) for one in (("old", "10.0.0.7"), ("copy", "10.0.0.8")))
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(running(folder, "namesrv", "--host", "10.0.0.5"))
        assert names.stdout is not None and names.stdout.readline()
        with old.serving("ASYNC_MASTER", 0):
            with copy.serving("SLAVE", 1):
                send_orders(range(1, 6))
                wait_until(lambda: copy.log().rstrip(b"\0") == old.log().rstrip(b"\0"))
            send_orders(range(6, 9))
        stack.enter_context(copy.serving("ASYNC_MASTER", 0))
        send_orders(range(9, 11))
        with old.serving("SLAVE", 1) as process:
            (folder / "old.pid").write_text(f"{process.pid}\n")
            wait_until(lambda: "replication has stopped" in (folder / "old.log").read_text())
            threading.Thread(target=process.wait).start()  # the page ends it
            yield


class Member:
    """A broker of broker-a on an address of its own, with a store of its own name."""

    def __init__(self, folder: Path, name: str, host: str) -> None:
        self._folder, self._name, self._host = folder, name, host

    @contextlib.contextmanager
    def serving(self, role: str, broker_id: int) -> "Iterator[subprocess.Popen[bytes]]":
        conf = self._folder / f"{self._name}.conf"
        conf.write_text(
            f"brokerName=broker-a\nbrokerRole={role}\nbrokerId={broker_id}\nnamesrvAddr=10.0.0.5:9876\n"
            f"bindAddress={self._host}\nbrokerIP1={self._host}\nstorePathRootDir={self._name}\n"
            "mappedFileSizeCommitLog=1048576\ndefaultTopicQueueNums=1\n"
        )
        with (
            open(self._folder / f"{self._name}.log", "wb") as log,
            running(self._folder, "broker", "-c", conf.name, "--json", stderr=log) as process,
        ):
            assert process.stdout is not None and process.stdout.readline()
            yield process

    def log(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((self._folder / self._name / "commitlog").glob("0*")))


@contextlib.contextmanager
def running(folder: Path, *arguments: str, stderr: IO[bytes] | None = None) -> "Iterator[subprocess.Popen[bytes]]":
    """A command of rocketc that serves."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketc", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=stderr
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


def send_orders(numbers: range) -> None:
    with Producer("shop", "10.0.0.5:9876") as shop:
        for number in numbers:
            shop.send("orders", b"order %d" % number, keys=f"o-{number}")


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
