"""Producers at scripted brokers, for several test modules."""

import pytest
from unit.client.scripted import Cluster, play

from rocketc.errors import AnswerError
from rocketc.remoting.server import Answer


def refusing(code):
    return Answer(code, remark="no\nmore")


def run(work, brokers, cluster=None, **options):
    """Run work(producer, cluster) at scripted brokers; return its result."""

    async def main():
        stage = Cluster(brokers, **(cluster or {}))
        async with stage.producer(**options) as producer:
            return await work(producer, stage)

    return play(main())


async def five(producer, stage):
    return [await producer.send("orders", b"one") for _ in range(5)]


async def work_once(producer, stage):
    with pytest.raises(AnswerError, match="not sent in 1 attempt "):
        await producer.send("orders", b"one")
    return stage.brokers["a"].count(310) + stage.brokers["b"].count(310)
