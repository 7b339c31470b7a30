"""rocketc's tools and client at brokers of RocketMQ 4.3 to 4.9, which lack requests and have faults of their own."""

import asyncio
import json
import re

import pytest
from interop import scenarios
from interop.asking import Asking
from interop.our_broker import wait_for
from interop.peer import OLD_RELEASES, Unavailable
from support.command import start

from rocketc.client import AsyncPullConsumer, MessageQueue

pytestmark = pytest.mark.long


class Cluster:
    """A name server and a broker of an old release."""

    def __init__(self, java):
        self.name_server, self.broker = java.name_server, java.broker
        self.asking = Asking(self.broker)

    def create(self, topic, read, write=None, perm=6):
        fields = {"topic": topic, "readQueueNums": read, "writeQueueNums": read if write is None else write}
        others = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
        assert self.asking.ask("UPDATE_AND_CREATE_TOPIC", perm=perm, **fields, **others)[0] == 0

    def send(self, topic, queue, body=b"m"):
        told = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1, "h": 0, "i": "", "m": False}
        assert self.asking.ask("SEND_MESSAGE_V2", body, **told)[0] == 0

    def run(self, *args):
        """The exit code, stdout and stderr of a command with its `-n`."""
        process = start(*args, "-n", self.name_server)
        out, errors = process.communicate(timeout=60)
        return process.returncode, out.decode(), errors.decode()

    def json(self, *args):
        code, out, errors = self.run(*args, "--json")
        assert (code, errors) == (0, "")
        return json.loads(out)


@pytest.fixture(scope="module", params=[*OLD_RELEASES, "4.9.7"])
def cluster(request, tmp_path_factory):
    try:
        java = scenarios.JavaCluster(request.param, tmp_path_factory.mktemp("java"))
    except Unavailable as reason:
        pytest.skip(str(reason))
    made = Cluster(java)
    yield made
    made.asking.close()
    java.close()


def test_queues_that_are_only_read_have_messages(cluster):
    """Brokers of 4.x list only the queues to write."""
    cluster.create("shrinking", 8)
    for queue in range(8):
        cluster.send("shrinking", queue)
    cluster.create("shrinking", 8, write=4)
    listed = cluster.asking.ask("GET_TOPIC_STATS_INFO", topic="shrinking")[2].decode()
    assert sorted(re.findall(r'"queueId":(\d)', listed)) == ["0", "1", "2", "3"]
    queues = cluster.json("admin", "topics", "shrinking")["queues"]
    assert [(one["queueId"], one["maxOffset"]) for one in queues] == [(queue, 1) for queue in range(8)]
    [topic] = [one for one in cluster.json("admin", "topics")["topics"] if one["topic"] == "shrinking"]
    assert topic["messages"] == 8
    process = start("stats", f"rocketmq://{cluster.name_server}/shrinking", "--json")
    lines = process.communicate(timeout=60)[0].splitlines()
    assert [(one["queueId"], one["messages"]) for one in map(json.loads, lines)] == [(queue, 1) for queue in range(8)]


def test_permissions(cluster):
    cluster.create("letters", 2, perm=2)
    cluster.send("letters", 1)
    advice = "allow it: rocketc admin permissions letters --set rw"
    says = f"rocketc: topic 'letters' may not be read on broker-a; {advice}\n"
    assert cluster.json("admin", "permissions", "letters")["permissions"] == {"broker-a": 2}
    code, out, errors = cluster.run("admin", "topics", "letters")
    assert (code, errors) == (0, says) and len(out.splitlines()) == 3
    process = start("cat", f"rocketmq://{cluster.name_server}/letters")
    assert process.communicate(timeout=60) == (b"", f"{says}rocketc: no message is selected\n".encode())
    assert cluster.json("admin", "permissions", "letters", "--set", "rw")["permissions"] == {"broker-a": 6}
    assert wait_for(lambda: len(start("cat", process.args[-1]).communicate(timeout=60)[0].splitlines()) == 1)
    assert cluster.json("admin", "lag", "--slaves")["replicas"] == []


def test_first_offsets_of_new_groups(cluster):
    """A broker loses one of the first offsets of a new group if they come at the same time: about 2 groups of 100."""
    cluster.create("raced", 8)
    for queue in range(8):
        cluster.send("raced", queue)

    async def consume(group):
        options = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "auto_commit": False, "client_ip": "127.0.0.1"}
        async with AsyncPullConsumer(group, cluster.name_server, topics=["raced"], **options) as consumer:
            found = []
            while len(found) < 8:
                found += await consumer.poll(1000)
            await consumer.commit()
            return [await consumer.committed(MessageQueue("raced", "broker-a", queue)) for queue in range(8)]

    async def main():
        lost = []
        for first in range(0, 100, 10):
            groups = [f"new-{number}" for number in range(first, first + 10)]
            found = await asyncio.gather(*map(consume, groups))
            lost += [group for group, offsets in zip(groups, found, strict=True) if offsets != [1] * 8]
        return lost

    assert asyncio.run(main()) == []
