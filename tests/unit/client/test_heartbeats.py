"""A broker that restarts, or forgets a member, gets a heartbeat at once, and on each new connection."""

import asyncio
import json

import pytest
from unit.client.scripted import play
from unit.client.scripted_push import PushCluster

from rocketc.client.heartbeats import SETTLE_SECONDS
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.subscriptions import subscribe
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer

BEAT, MEMBERS, LOCK = CODES["HEART_BEAT"], CODES["GET_CONSUMER_LIST_BY_GROUP"], CODES["LOCK_BATCH_MQ"]


async def nothing(message):
    pass


class Forgetful(PushCluster):
    """A broker that restarts.

    known  the member is in its list of members
    """

    def __init__(self, *names):
        super().__init__(*names)
        self.others = []
        for broker in self.brokers.values():
            broker.answers |= {BEAT: self._beat, MEMBERS: self.list}
        self.known = False

    def _beat(self, call):
        self.known = True
        return Answer()

    def list(self, call):
        if not self.known and not self.others:
            return Answer(Code.SYSTEM_ERROR, remark="no consumer for this group, billing")
        ids = [*self.others, *([self.core.client_id] if self.known else [])]
        return Answer(body=json.dumps({"consumerIdList": ids}).encode())

    def count(self, code, name="a"):
        return self.brokers[name].count(code)

    def go(self, name="a"):
        """The broker ends."""
        self.server = self.servers.pop(self.address(name))
        self.cut(self.address(name))
        self.known, self.others = False, []

    def come(self, name="a"):
        self.servers[self.address(name)] = self.server

    async def consuming(self, **options):
        core = self.consumer(**options)
        await core.subscribe(subscribe("orders"), nothing)
        await core.start()
        await asyncio.sleep(5)
        return core

    def queues(self):
        return sorted(queue.queue_id for queue in self.core._member.owned if queue.topic == "orders")


@pytest.mark.parametrize("down", [0.0, 1.0, 40.0])
def test_a_broker_that_was_down_gets_a_heartbeat_soon(down):
    """A heartbeat that fails meanwhile changes nothing."""

    async def main():
        cluster = Forgetful("a")
        core = await cluster.consuming()
        before = cluster.count(BEAT)
        cluster.go()
        if down:
            await core._instance.heartbeat()  # it fails
            await asyncio.sleep(down)
        cluster.come()
        await asyncio.sleep(2.3)
        assert cluster.known and before < cluster.count(BEAT) <= before + 2  # a periodic one may be among them
        await core.close()

    play(main())


def test_a_forwarder_that_accepts_and_closes():
    async def main():
        cluster = Forgetful("a")
        core = await cluster.consuming()
        cluster.go()

        class Closing(asyncio.Protocol):
            def connection_made(self, transport):
                transport.close()

        cluster.servers[cluster.address("a")] = type("Server", (), {"connection": staticmethod(Closing)})
        await asyncio.sleep(20)
        cluster.come()
        await asyncio.sleep(2.3)
        assert cluster.known
        await core.close()

    play(main())


def test_a_connection_without_answers_is_left():
    """It may be dead since a cut that it did not report."""

    async def main():
        cluster = Forgetful("a")
        core = await cluster.consuming()
        cluster.brokers["a"].answers[BEAT] = None
        await core._instance.heartbeat()
        cluster.brokers["a"].answers[BEAT] = cluster._beat
        links, cluster.known = len(cluster.links), False
        await asyncio.sleep(2.3)
        assert cluster.known and len(cluster.links) == links + 1
        await core.close()

    play(main())


def test_a_list_without_oneself_is_answered_by_a_heartbeat():
    async def main():
        cluster = Forgetful("a")
        core = await cluster.consuming()
        for others in (["10.0.0.1@1"], []):  # others are there; the broker does not know the group
            cluster.known, cluster.others = False, others
            core._member.members_changed()
            await asyncio.sleep(1.1)
            assert cluster.known and cluster.queues() == ([1] if others else [0, 1])
        await core.close()

    play(main())


def test_a_group_that_a_broker_never_knows_is_not_asked_for_all_the_time():
    async def main():
        cluster = Forgetful("a")
        core = await cluster.consuming()
        cluster.known = False
        cluster.brokers["a"].answers[BEAT] = Answer()  # as if the group may not exist
        before = cluster.count(BEAT)
        await asyncio.sleep(100)
        assert cluster.count(BEAT) - before <= 2 * 100 / 20 + 100 / 30 + 2  # a rebalance of each topic, and its own
        await core.close()

    play(main())


def test_members_of_before_count_until_all_are_back():
    """Another member needs a moment to come back: its queue is not taken, and is taken if it does not come."""

    async def main():
        cluster = Forgetful("a")
        cluster.others = ["10.0.0.1@1"]
        core = await cluster.consuming()
        assert cluster.queues() == [1]
        cluster.go()
        await asyncio.sleep(1)
        cluster.come()
        await asyncio.sleep(SETTLE_SECONDS - 0.5)
        assert cluster.known and cluster.queues() == [1]
        await asyncio.sleep(3)
        assert cluster.queues() == [0, 1]
        await core.close()

    play(main())


def test_members_are_asked_for_at_a_broker_that_knows_all():
    async def main():
        cluster = Forgetful("a", "b")
        core = await cluster.consuming()
        cluster.go("b")
        cluster.come("b")
        await asyncio.sleep(0.5)
        before = cluster.count(MEMBERS, "b")
        for _ in range(5):
            await core._member._members("orders")
        assert cluster.count(MEMBERS, "b") == before
        await core.close()

    play(main())


def test_an_orderly_member_asks_for_its_locks_again():
    async def main():
        cluster = Forgetful("a")
        core = await cluster.consuming(kind=OrderlyService)
        cluster.go()
        await asyncio.sleep(1)
        before = cluster.count(LOCK)
        cluster.come()
        await asyncio.sleep(2.3)
        assert cluster.count(LOCK) > before
        assert all(one.process_queue.is_locked for one in core._member.owned.values())
        await core.close()

    play(main())


def test_a_lock_counts_from_its_request_on():
    """The broker counts from its answer, which may take long to come."""

    async def main():
        cluster = Forgetful("a")
        lock = cluster.brokers["a"].answers[LOCK]

        def late(call):
            asyncio.get_running_loop().call_later(2.0, lambda: call.later(lock(call)))

        cluster.brokers["a"].answers[LOCK] = late
        core = await cluster.consuming(kind=OrderlyService)
        await asyncio.sleep(30)
        began = core._member.now()
        await core._member.locks._renew(list(core._member.owned.values()))
        assert all(one.process_queue.last_lock - began < 100 for one in core._member.owned.values())
        await core.close()

    play(main())


def test_a_producer_is_known_again_too():
    """Brokers ask producers about transactions."""

    async def main():
        cluster = PushCluster("a")
        async with cluster.producer() as producer:
            await producer.send("orders", b"one")
            before = cluster.brokers["a"].count(BEAT)
            cluster.cut(cluster.address("a"))
            await asyncio.sleep(1)
            assert cluster.brokers["a"].count(BEAT) == before + 1

    play(main())
