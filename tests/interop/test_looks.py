"""What rocketc.metrics and `rocketc top` report of a store that RocketMQ has open and writes to."""

import json
import time

import pytest
from interop.ledger import of_size
from interop.turns import SETTINGS
from support.command import rocketc as rocketc_command

import rocketc
from rocketc.metrics import Watch


def until(watch, dispatched):
    """The first look in which the queues have the log up to an offset."""
    end = time.monotonic() + 30
    while (look := watch.look()).dispatched != dispatched:
        assert time.monotonic() < end, look
        time.sleep(0.01)
    return look


@pytest.mark.some(1)
def test_metrics_of_a_store_that_rocketmq_writes(peer, tmp_path):
    root = tmp_path / "store"
    peer.open(root, SETTINGS)
    peer.put(root, [of_size(300, "First")] * 10)
    with rocketc.open(root, read_only=True) as store:
        watch = Watch(store)
        before = until(watch, peer.read(root)["max"])
        messages = [{**of_size(300 + n % 200, "First" if n % 3 else "Second"), "queueId": n % 4} for n in range(1500)]
        peer.put(root, messages)
        end = peer.read(root)["max"]
        look = until(watch, end)
        assert (look.end, look.dispatch_behind, look.flush_behind) == (end, 0, None)
        assert (look.topics["First"].messages, look.topics["Second"].messages) == (1010, 500)
        peer.put(root, messages[:300])
        before, look = look, until(watch, peer.read(root)["max"])
    for topic in ("First", "Second"):
        new = list(rocketc.scan(root, topics=topic))[before.topics[topic].messages :]
        assert look.topics[topic].came - before.topics[topic].came == len(new) > 0
        assert look.topics[topic].came_bytes - before.topics[topic].came_bytes == sum(m.store_size for m in new)
    shown = json.loads(rocketc_command("top", root, "--json", "-n", "0.1").stdout)
    assert shown["endOffset"] == look.end and shown["dispatchBehindBytes"] == 0
    assert {one["topic"]: one["messages"] for one in shown["topics"]} == {"First": 1210, "Second": 600}
    peer.close(root)
