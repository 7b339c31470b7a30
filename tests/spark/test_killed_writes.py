"""A write to a cluster whose executors are killed at random: all rows are there, and repeats have the same id."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import psutil
import pyspark
import pytest
from support.spark_frames import needs_sources

import rocketc
from rocketc.errors import TopicNotFoundError

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOB = Path(__file__).with_name("sink_job.py")
ROWS, PARTITIONS, KILLS = 20_000, 16, 3
SEED = 35


def executors(job: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(job).children(recursive=True):
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.mark.parametrize("way", [pytest.param("format", marks=needs_sources), "write_parts"])
def test_executors_are_killed(tmp_path: Path, way: str) -> None:
    (tmp_path / "home").mkdir()
    for one in Path(pyspark.__file__).parent.iterdir():  # workers keep folders there
        (tmp_path / "home" / one.name).symlink_to(one)
    chance, killed = random.Random(SEED), 0
    with rocketc.Broker() as broker:
        command = [sys.executable, JOB, broker.name_server, "killed", str(ROWS), str(PARTITIONS), str(tmp_path), way]
        path = os.pathsep.join([str(Path(rocketc.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        environ = {
            **os.environ,
            "SPARK_HOME": str(tmp_path / "home"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": path,
        }
        with (tmp_path / "log").open("wb") as log:
            job = subprocess.Popen(
                [str(word) for word in command], env={**environ, "PYSPARK_PYTHON": sys.executable}, cwd=tmp_path,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            until = time.monotonic() + 500
            while job.poll() is None and time.monotonic() < until:
                time.sleep(0.5 + chance.random())
                alive = executors(job.pid)
                if killed < KILLS and len(alive) == 2 and stored(broker) > killed * ROWS // 5:
                    chance.choice(alive).kill()
                    killed += 1
            assert job.poll() == 0, (tmp_path / "log").read_text()[-5000:]
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
        bodies = defaultdict(list)
        for message in everything(broker):
            bodies[message.properties["UNIQ_KEY"]].append(message.body)
    assert killed == KILLS
    assert sorted(map(int, bodies)) == list(range(ROWS))
    assert all(set(one) == {key.encode()} for key, one in bodies.items())
    assert sum(map(len, bodies.values())) > ROWS  # tasks were repeated


def stored(broker: rocketc.Broker) -> int:
    with rocketc.client.PullConsumer("audit", broker.name_server) as consumer:
        try:
            return sum(consumer.max_offset(queue) for queue in consumer.fetch_message_queues("killed"))
        except TopicNotFoundError:
            return 0


def everything(broker: rocketc.Broker) -> list[rocketc.Message]:
    with rocketc.client.PullConsumer("audit", broker.name_server, auto_commit=False) as consumer:
        queues = consumer.fetch_message_queues("killed")
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)
        wanted = sum(consumer.max_offset(queue) for queue in queues)
        found: list[rocketc.Message] = []
        while len(found) < wanted:
            found += consumer.poll(max_records=1000)
        return found
