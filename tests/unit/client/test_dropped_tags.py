"""Tags with equal hashes: the broker sends messages that the client drops. The offset of the group moves past them."""

import asyncio

import pytest
from unit.client.scripted import play
from unit.client.scripted_pull import PullCluster, offsets

from rocketc.client.concurrent_service import ConcurrentService
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.subscriptions import subscribe
from rocketc.format._encoding import encode, java_hash
from rocketc.remoting.server import Answer

WANTED, OTHER = "Aa", "BB"
assert java_hash(WANTED) == java_hash(OTHER)
EACH = 0.1  # seconds


class Busy(PullCluster):
    """A broker whose queue gets messages all the time: each pull finds one, after a moment.

    kept  offsets of the messages that the consumer wants
    """

    def __init__(self, *kept):
        super().__init__()
        self.kept = kept

    def pull(self, name, call):
        values = call.values
        if values["queueId"] or values["topic"] != "orders":
            return super().pull(name, call)
        at = values["queueOffset"]
        tag = WANTED if at in self.kept else OTHER
        told = {"suggestWhichBrokerId": 0, "nextBeginOffset": at + 1, "minOffset": 0, "maxOffset": at + 1}
        record = encode("orders", b"", queue_offset=at, phy_offset=1000 * at, properties={"TAGS": tag})
        asyncio.get_running_loop().call_later(EACH, lambda: call.later(Answer(body=record, values=told)))
        return None


async def pushed(stage, kind):
    found = []

    core = stage.consumer(kind=kind)
    await core.subscribe(subscribe("orders", WANTED), found.append)
    await core.start()
    await asyncio.sleep(20)
    before_close = stage.offset()
    await core.close()
    return found, before_close


async def polled(stage, _):
    found = []
    async with stage.puller(topics={"orders": WANTED}) as one:
        for _ in range(20):
            found += await one.poll(1_000)
        return found, stage.offset()


async def read(stage, _):
    async with stage.reader(topics={"orders": WANTED}) as one:
        found = [await one.getone() for _ in stage.kept]
        await asyncio.sleep(10)
        await one.commit()
        await asyncio.sleep(10)
        return found, stage.offset()


@pytest.mark.parametrize("kept", [(), (3,), (0, 30)])
@pytest.mark.parametrize(
    ("consume", "kind"),
    [(pushed, ConcurrentService), (pushed, OrderlyService), (polled, None), (read, None)],
    ids=["concurrent", "orderly", "polled", "iterated"],
)
def test_the_offset_moves_past_what_the_client_drops(consume, kind, kept):
    stage = Busy(*kept)
    found, before_close = play(consume(stage, kind))
    assert offsets(found) == list(kept)
    assert before_close > 100  # of 200 in 20 s, written every 5 s
    assert stage.offset() > 150
