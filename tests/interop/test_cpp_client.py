"""RocketMQ's C++ client, of which the older clients for Python, Node and PHP are made, against our broker.

It writes enums as numbers and hashes of tags as texts. Its batches are not tested: it sends the field batch as "1", and
RocketMQ does not read that as true either.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import ROOT

import rocketc
from rocketc.client import Admin
from rocketc.tables.topics import TopicConfig

pytestmark = pytest.mark.long

CLIENT = ROOT / "build" / "cpp-client"  # `tools/setup.sh cpp_client` makes it
PAID = [*(f"{kind}-{n}" for kind in ("sync", "orderly") for n in range(4)), "oneway"]


@pytest.mark.skipif(not CLIENT.exists(), reason="the C++ client is not here: tools/setup.sh cpp_client")
def test_the_cpp_client_sends_and_consumes(tmp_path):
    with rocketc.Broker(tmp_path / "store", process=True) as broker:
        asyncio.run(make_topic(broker.name_server))
        found = run(tmp_path, broker.name_server)
        retried = asyncio.run(retries(broker.name_server))
    assert found["statuses"] == ["OK"] * 9
    assert found["pull"] == sorted([*PAID, "other"])
    assert set(found["concurrent"]) == set(PAID)
    assert found["concurrent"]["sync-2"] == 1, "those that came with it may come again, too"
    assert found["orderly"] == found["broadcast"] == dict.fromkeys(PAID, 0)
    assert retried >= 1


def run(tmp_path: Path, name_server: str) -> dict:
    env = {**os.environ, "PYTHONPATH": str(CLIENT), "HOME": str(tmp_path)}
    command = [sys.executable, str(Path(__file__).with_name("cpp_client.py")), name_server]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


async def make_topic(name_server: str) -> None:
    async with Admin(name_server) as admin:
        await admin.create_topic(TopicConfig("orders", 4, 4))


async def retries(name_server: str) -> int:
    """The messages of the group's retry topic."""
    async with Admin(name_server) as admin:
        return sum(one.max_offset for one in (await admin.topic_state("%RETRY%cpp-concurrent")).values())
