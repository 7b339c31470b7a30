"""What an archive reads next: new queues, lost messages, queues that were made again, brokers that are down."""

import asyncio
import logging
import re

import pytest

from rocketc.client.pull_decisions import PullStatus
from rocketc.client.queue_spans import Span
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import Place, Pulled, QueueRange
from rocketc.errors import AnswerError, NotSentError, TopicNotFoundError
from rocketc.exports.archive_queues import MISSING_MESSAGES, QueueDamage, QueuePlan, Reached, flat, is_passing, nested
from rocketc.remoting.codes import Code

ONE = MessageQueue("orders", "broker-a", 0)
TWO = MessageQueue("orders", "broker-b", 0)
DOWN = NotSentError("127.0.0.1:1: refused")


class Cluster:
    """A TopicReader without a cluster: each queue is a dict of queue offset -> (physical offset, store time)."""

    def __init__(self, **queues):
        self.queues = {ONE: dict(queues.get("one", {})), **({TWO: dict(queues["two"])} if "two" in queues else {})}
        self.begins, self.down, self.names_down, self.asked = {}, set(), None, []
        self.refused = None

    def put(self, queue, first, count, stored=1000, phy=0):
        self.queues.setdefault(queue, {}).update({first + n: (phy + 100 * n, stored + n) for n in range(count)})
        return self

    async def topics(self):
        if self.names_down:
            raise self.names_down
        return sorted({queue.topic for queue in self.queues})

    async def matching(self, patterns):
        return [name for name in await self.topics() if any(one.fullmatch(name) for one in patterns)]

    async def find(self, topic):
        return topic if topic in await self.topics() else None

    async def missing(self, topic):
        return f"no topic {topic} in this cluster"

    def is_known(self, topic):
        return any(queue.topic == topic for queue in self.queues)

    def known_queues(self, topic):
        return [queue for queue in self.queues if queue.topic == topic]

    async def ranges(self, queues):
        found = {}
        for queue in queues:
            if queue.broker_name in self.down:
                raise DOWN
            if self.refused:
                raise self.refused
            offsets = self.queues[queue]
            begin = self.begins.get(queue, min(offsets, default=0))
            found[queue] = QueueRange(begin, max([begin, *(offset + 1 for offset in offsets)]))
        return found

    async def offset_at(self, queue, time):
        self.asked.append(("time", time))
        later = [offset for offset, (_, stored) in sorted(self.queues[queue].items()) if stored >= time]
        return max(later[0] - 1, 0) if later else max(self.queues[queue], default=0)  # as brokers of 4.x: the nearest

    async def pull(self, queue, offset, most=32, **how):
        if queue.broker_name in self.down:
            raise DOWN
        self.asked.append(("pull", queue, offset))
        found = [(at, self.queues[queue][at]) for at in sorted(self.queues[queue]) if at >= offset][:most]
        places = [Place(*values, at, 100 * n, 100 * n + 100) for n, (at, values) in enumerate(found)]
        status = PullStatus.FOUND if places else PullStatus.NO_NEW_MSG
        return Pulled(status, b"x" * 100 * len(places), places, places[-1].queue_offset + 1 if places else offset)

    pull_surely = pull


def planned(cluster, states=None, *, waits=True, most=1 << 30, plan=None, **how):
    plan = plan or QueuePlan(how.pop("topics", ["orders"]), {} if states is None else states, waits=waits, **how)
    return asyncio.run(plan.next(cluster, most)), plan


def spans(round):
    return [(span.queue, span.begin, span.end) for span in round.spans]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "rocketc.exports"]


def test_a_new_archive_begins_with_the_first_message_of_each_queue(caplog):
    round, plan = planned(Cluster().put(ONE, 5, 3).put(TWO, 0, 2))
    assert (spans(round), round.lost) == ([(ONE, 5, 8), (TWO, 0, 2)], [])
    assert plan.states == {ONE: Reached(5), TWO: Reached(0)} and warnings(caplog) == []


def test_it_continues_where_it_was(caplog):
    cluster = Cluster().put(ONE, 5, 3)
    round, _ = planned(cluster, {ONE: Reached(7, 6, 100, 1001)})
    assert spans(round) == [(ONE, 7, 8)] and cluster.asked[:1] == [("pull", ONE, 6)]
    round, _ = planned(cluster, {ONE: Reached(8, 7, 200, 1002)})
    assert (spans(round), round.lost, warnings(caplog)) == ([], [], [])


def test_messages_that_were_deleted_before_they_were_read_are_lost():
    round, _ = planned(Cluster().put(ONE, 50, 3), {ONE: Reached(7, 6, 100, 1001)})
    assert spans(round) == [(ONE, 50, 53)]
    assert round.lost == [QueueDamage(*ONE, 7, 50, MISSING_MESSAGES)]
    cluster = Cluster(one={})
    cluster.begins[ONE] = 50  # all are deleted
    round, _ = planned(cluster, {ONE: Reached(7, 6, 100, 1001)})
    assert (spans(round), round.lost) == ([], [QueueDamage(*ONE, 7, 50, MISSING_MESSAGES)])


def test_queues_and_topics_that_appear_later(caplog):
    cluster = Cluster().put(ONE, 0, 3)
    _, plan = planned(cluster, topics=[re.compile("ord.*")])
    cluster.put(MessageQueue("orders", "broker-a", 1), 0, 1).put(MessageQueue("ordinary", "broker-a", 0), 9, 1)
    cluster.put(MessageQueue("other", "broker-a", 0), 0, 1)
    plan.states[ONE] = Reached(3, 2, 200, 1002)
    round, _ = planned(cluster, plan=plan)
    assert [(queue.topic, queue.queue_id, begin) for queue, begin, _ in spans(round)] == [
        ("orders", 1, 0), ("ordinary", 0, 9)
    ]  # fmt: skip
    plan = QueuePlan(["orders"], {ONE: Reached(3, 2, 200, 1002)}, waits=True)
    planned(Cluster().put(ONE, 0, 3).put(TWO, 9, 1), plan=plan)
    assert warnings(caplog) == [f"{TWO} is new to the archive, and begins at queue offset 9"]


def test_a_queue_that_was_made_again_is_read_from_its_first_new_message(caplog):
    new = Cluster().put(ONE, 0, 20, stored=9000, phy=5000)
    round, _ = planned(new, {ONE: Reached(7, 6, 600, 1006)})
    assert (spans(round), round.lost) == ([(ONE, 0, 20)], [])
    assert "was made again" in warnings(caplog)[0] and warnings(caplog)[0].endswith("read from queue offset 0 on")
    round, _ = planned(Cluster().put(ONE, 0, 3, stored=9000), {ONE: Reached(7, 6, 600, 1006)})  # with fewer messages
    assert (spans(round), round.lost) == ([(ONE, 0, 3)], [])


def test_a_broker_that_lost_its_last_messages_is_read_from_the_first_later_one():
    cluster = Cluster().put(ONE, 0, 5).put(ONE, 5, 4, stored=9000, phy=500)  # 0 to 4 as before, 5 and 6 are others
    round, _ = planned(cluster, {ONE: Reached(7, 6, 600, 1006)})
    assert (spans(round), round.lost) == ([(ONE, 5, 9)], [])
    cluster.put(ONE, 4, 1, stored=1006, phy=400)  # in the ms of the last archived message, but before it
    assert spans(planned(cluster, {ONE: Reached(7, 6, 600, 1006)})[0]) == [(ONE, 5, 9)]
    same_place = Cluster().put(ONE, 0, 6).put(ONE, 6, 1, stored=9000, phy=600)  # same bytes, another time
    assert spans(planned(same_place, {ONE: Reached(7, 6, 600, 1006)})[0]) == []  # nothing after 7: noticed later
    assert spans(planned(same_place.put(ONE, 7, 1, stored=9001), {ONE: Reached(7, 6, 600, 1006)})[0]) == [(ONE, 6, 8)]


def test_a_queue_whose_other_messages_are_older_is_not_read(caplog):
    """Their broker has another clock, for example: which of them are new is not known."""
    round, _ = planned(Cluster().put(ONE, 0, 9, stored=5, phy=7), {ONE: Reached(7, 6, 600, 1006)})
    assert spans(round) == [] and warnings(caplog)[0].endswith("none that was stored later: it is not read")


def test_a_slave_that_is_behind_is_waited_for(caplog):
    behind = Cluster().put(ONE, 0, 4)
    round, plan = planned(behind, {ONE: Reached(7, 6, 600, 1006)})
    assert (spans(round), round.lost, plan.states) == ([], [], {ONE: Reached(7, 6, 600, 1006)})
    assert spans(planned(behind.put(ONE, 4, 5, stored=1004, phy=400), plan=plan)[0]) == [(ONE, 7, 9)]
    assert spans(planned(Cluster(one={}), {ONE: Reached(7, 6, 600, 1006)})[0]) == []
    assert warnings(caplog) == []


def test_a_place_without_a_message_says_nothing():
    cluster = Cluster().put(ONE, 0, 6).put(ONE, 7, 2, stored=1007, phy=700)  # 6 was compacted away
    assert spans(planned(cluster, {ONE: Reached(7, 6, 600, 1006)})[0]) == [(ONE, 7, 9)]
    assert spans(planned(cluster, {ONE: Reached(7)})[0]) == [(ONE, 7, 9)]  # nothing was read before


def test_another_cluster_is_refused():
    cluster = Cluster().put(ONE, 0, 20, stored=9000, phy=5000)
    with pytest.raises(ValueError, match=r"orders queue 0 on broker-a: .* archive another cluster to another folder"):
        planned(cluster, {ONE: Reached(7, 6, 600, 1006)}, is_same=False)
    moved = Cluster().put(ONE, 0, 20)  # the same messages: the name servers moved
    assert spans(planned(moved, {ONE: Reached(7, 6, 600, 1006)}, is_same=False)[0]) == [(ONE, 7, 20)]


def test_brokers_that_are_down_wait_and_others_are_read(caplog):
    cluster = Cluster().put(ONE, 0, 3).put(TWO, 0, 2)
    cluster.down.add("broker-a")
    round, plan = planned(cluster)
    assert spans(round) == [(TWO, 0, 2)] and warnings(caplog) == [f"the queues on broker-a wait: {DOWN}"]
    cluster.down = {"broker-a", "broker-b"}
    assert spans(planned(cluster, plan=plan)[0]) == []
    cluster.down.clear()
    assert [queue for queue, *_ in spans(planned(cluster, plan=plan)[0])] == [ONE, TWO]


def test_name_servers_that_are_down_later(caplog):
    cluster = Cluster().put(ONE, 0, 3)
    _, plan = planned(cluster)
    cluster.names_down = DOWN
    assert spans(planned(cluster, plan=plan)[0]) == [(ONE, 0, 3)]
    assert warnings(caplog) == [f"the queues known before are read: {DOWN}"]


def test_a_broker_that_ends_between_the_range_and_the_last_message(caplog):
    cluster = Cluster().put(ONE, 0, 9)

    async def down(*args, **how):
        raise DOWN

    cluster.pull_surely = down
    assert spans(planned(cluster, {ONE: Reached(7, 6, 600, 1006)})[0]) == []
    assert warnings(caplog) == [f"{ONE} waits: {DOWN}"]
    with pytest.raises(NotSentError):
        planned(cluster, {ONE: Reached(7, 6, 600, 1006)}, waits=False)


def test_errors_of_the_first_round():
    cluster = Cluster().put(ONE, 0, 3)
    cluster.down.add("broker-a")
    with pytest.raises(NotSentError):
        planned(cluster, waits=False)
    assert spans(planned(cluster, waits=True)[0]) == []  # it waits for the broker
    cluster.down, cluster.refused = set(), AnswerError("127.0.0.1:1", "no permission", Code.NO_PERMISSION)
    with pytest.raises(AnswerError):
        planned(cluster)
    cluster.names_down = DOWN
    with pytest.raises(NotSentError):
        planned(cluster, waits=False)
    with pytest.raises(TopicNotFoundError):
        planned(Cluster().put(ONE, 0, 1), topics=["order"], waits=False)


def test_a_topic_is_waited_for(caplog):
    cluster = Cluster().put(ONE, 0, 1)
    caplog.set_level(logging.WARNING)
    round, plan = planned(cluster, topics=["later"])
    assert spans(round) == []
    later = MessageQueue("later", "broker-a", 0)
    assert spans(planned(cluster.put(later, 0, 1), plan=plan)[0]) == [(later, 0, 1)]


def test_without_waiting_it_ends_with_what_was_there():
    cluster = Cluster().put(ONE, 0, 3)
    round, plan = planned(cluster, waits=False)
    plan.states[ONE] = Reached(3, 2, 200, 1002)
    cluster.put(ONE, 3, 5, stored=2000).put(TWO, 0, 5)
    assert spans(round) == [(ONE, 0, 3)] and spans(planned(cluster, plan=plan)[0]) == []
    cluster.down.add("broker-a")
    with pytest.raises(NotSentError):
        planned(cluster, plan=plan)


def test_a_commit_has_about_the_wanted_bytes():
    cluster = Cluster().put(ONE, 0, 900).put(TWO, 0, 100)
    round, plan = planned(cluster, most=10_000)  # messages have 100 bytes
    assert [end - begin for _, begin, end in spans(round)] == [90, 10] and plan.mean == 100
    plan.mean = 1000
    assert sum(end - begin for _, begin, end in spans(planned(cluster, plan=plan, most=10_000)[0])) == 10
    assert sum(end - begin for _, begin, end in spans(planned(cluster, plan=plan, most=1)[0])) == 1


def test_states_as_json():
    states = {ONE: Reached(7, 6, 600, 1006), TWO: Reached(0)}
    assert flat(nested(states)) == states
    assert Reached(7).moved(9, None) == Reached(9)
    assert Reached(7, 6, 600, 1006).moved(9, None) == Reached(9, 6, 600, 1006)
    assert Reached(7).moved(9, Place(5, 6, 8, 0, 1)) == Reached(9, 8, 5, 6)


def test_which_errors_pass():
    assert is_passing(DOWN) and is_passing(AnswerError("", "", Code.TOPIC_NOT_EXIST))
    assert not is_passing(ValueError()) and not is_passing(AnswerError("", "", Code.NO_PERMISSION))
    assert Span(ONE, 1, 2).begin == 1
