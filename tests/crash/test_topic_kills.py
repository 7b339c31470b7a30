"""The process of a broker is killed while sends of many clients create topics. Each answered topic is in topics.json.

ROCKETC_SEED=n kills at the moments of seed n; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
from pathlib import Path

import pytest
from interop.our_broker import OurBroker

from rocketc.errors import RocketcError
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.tables.table_file import read_table

pytestmark = pytest.mark.promise(10)

CLIENTS = 40
TOPICS = 200  # answered before the kill, at most
SEED = int(os.environ.get("ROCKETC_SEED", "1"))
SEND = {
    "producerGroup": "shop", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0,
    "bornTimestamp": 1, "flag": 0, "properties": "UNIQ_KEY\1K1\2",
}  # fmt: skip


async def create_until_killed(broker: OurBroker, name: str, count: int) -> tuple[set[str], set[str]]:
    """Let clients create topics at once; kill the broker after `count` answers. Return those answered, and all sent."""
    loop = asyncio.get_running_loop()
    host, port = split_address(broker.address)
    answered: set[str] = set()
    sent: set[str] = set()

    async def create(client: int) -> None:
        connect = functools.partial(loop.create_connection, host=host, port=port)
        channel = Channel(connect, random.Random(client))
        try:
            while True:
                topic = f"{name}-{len(sent)}"
                sent.add(topic)
                answer = await channel.call(310, {**SEND, "topic": topic}, loop.time() + 20, b"body")
                assert answer.code == 0, answer
                answered.add(topic)
                if len(answered) == count:
                    broker.kill()
        except (RocketcError, ConnectionError):  # it is killed
            pass
        finally:
            channel.close()

    await asyncio.gather(*map(create, range(CLIENTS)))
    return answered, sent


def test_answered_topics_are_in_topics_json_after_a_kill(tmp_path: Path) -> None:
    print(f"ROCKETC_SEED={SEED}")
    rng = random.Random(SEED)
    file = tmp_path / "store/config/topics.json"
    answered: set[str] = set()
    sent: set[str] = set()
    for life in range(2):
        broker = OurBroker(tmp_path / "store", "--port", 0, "--flush", "async")
        try:
            more = asyncio.run(create_until_killed(broker, f"T{life}", rng.randint(1, TOPICS)))
        finally:
            broker.kill()
        answered |= more[0]
        sent |= more[1]
        assert len(sent) > len(answered)
        found = {name for name in read_table(file).data["topicConfigTable"] if name.startswith(("T0-", "T1-"))}
        assert answered <= found <= sent
