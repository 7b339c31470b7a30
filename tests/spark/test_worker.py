"""rocketc.spark.worker: what it spares the tasks."""

import pickle
import socket
import sys
import threading
import time
from dataclasses import dataclass
from statistics import median

import pytest

from rocketc.spark import worker
from rocketc.spark.archive_task import Job
from rocketc.spark.sink import RocketmqWriter
from rocketc.spark.source import PushingReader, RocketmqReader
from rocketc.spark.stream import _StreamReader

pytestmark = pytest.mark.spark
TASKS = 20


@dataclass(frozen=True)
class Task(worker.Prompt):
    number: int


@dataclass(frozen=True)
class Other:
    number: int


def jvm(connection: socket.socket, task: bytes) -> None:
    """Sends each task as Spark's JVM does: in two pieces, Nagle's way, and waits for its answer."""
    for _ in range(TASKS):
        connection.sendall(task)
        connection.sendall(b"x" * 684)
        if not connection.recv(64):
            return


@pytest.mark.measure
@pytest.mark.skipif(sys.platform != "linux", reason="acknowledges at once")
@pytest.mark.parametrize("kind", [Task, Other])
def test_no_task_waits_for_an_acknowledgement(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    monkeypatch.setattr(worker, "in_worker", lambda: True)
    task = pickle.dumps(kind(7))
    waits = []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            thread = threading.Thread(target=jvm, args=(connection, task))
            thread.start()
            for _ in range(TASKS):
                assert pickle.loads(client.recv(len(task), socket.MSG_WAITALL)) == kind(7)
                began = time.monotonic()
                client.recv(684, socket.MSG_WAITALL)
                waits.append(time.monotonic() - began)
                client.sendall(b"done")
            thread.join()
    assert (median(waits) < 0.02) is (kind is Task), waits


def test_all_that_travels_with_a_task_is_prompt() -> None:
    for kind in (RocketmqReader, PushingReader, _StreamReader, RocketmqWriter, Job):
        assert issubclass(kind, worker.Prompt), kind
    job = Job("folder", ("body",), {}, None, {1: 2})
    assert pickle.loads(pickle.dumps(job)) == job
