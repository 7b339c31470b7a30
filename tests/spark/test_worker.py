"""rocketc.spark.worker: faster start of tasks."""

import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import pytest

from rocketc.spark import decode_batches, decode_partition, worker
from rocketc.spark.archive_task import Job
from rocketc.spark.cluster_sink import ClusterStreamWriter, ClusterWriter
from rocketc.spark.sink import RocketmqStreamWriter, RocketmqWriter
from rocketc.spark.source import PushingReader, RocketmqReader
from rocketc.spark.stream import StreamBatches

pytestmark = pytest.mark.spark
WRITERS = (RocketmqWriter, RocketmqStreamWriter, ClusterWriter, ClusterStreamWriter)
TASKS = 20


@dataclass(frozen=True)
class Task(worker.FastStartup):
    number: int


@dataclass(frozen=True)
class Other:
    number: int


def jvm(connection: socket.socket, task: bytes) -> None:
    """Send each task as Spark's JVM does, in two writes with Nagle's algorithm, and wait for its answer."""
    for _ in range(TASKS):
        connection.sendall(task)
        connection.sendall(b"x" * 684)
        if not connection.recv(64):
            return


@pytest.mark.measure
@pytest.mark.skipif(sys.platform != "linux", reason="acknowledges at once")
@pytest.mark.parametrize(
    ("task", "begin", "waits"),
    [
        (Other(7), lambda: None, True),
        (Task(7), lambda: None, False),
        (Other(7), lambda: decode_partition(iter(())), False),
        (Other(7), lambda: list(decode_batches(iter(()))), False),
    ],
    ids=["of others", "prompt", "decode_partition", "decode_batches"],
)
def test_no_task_waits_for_an_acknowledgement(
    monkeypatch: pytest.MonkeyPatch, task: object, begin: Callable[[], object], waits: bool
) -> None:
    monkeypatch.setattr(worker, "in_worker", lambda: True)
    pickled = pickle.dumps(task)
    waited = []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            thread = threading.Thread(target=jvm, args=(connection, pickled))
            thread.start()
            for _ in range(TASKS):
                assert pickle.loads(client.recv(len(pickled), socket.MSG_WAITALL)) == task
                begin()
                began = time.monotonic()
                client.recv(684, socket.MSG_WAITALL)
                waited.append(time.monotonic() - began)
                client.sendall(b"done")
            thread.join()
    assert (median(waited) > 0.02) is waits, waited


def test_everything_sent_with_a_task_starts_fast() -> None:
    for kind in (RocketmqReader, PushingReader, StreamBatches, *WRITERS, Job):
        assert issubclass(kind, worker.FastStartup), kind
    job = Job("folder", ("body",), {}, None, {1: 2})
    assert pickle.loads(pickle.dumps(job)) == job
