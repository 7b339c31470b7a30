"""The compiled way for pulls: it does the same as the processor, and notices all changes."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation import virtual
from simulation.brokers import HOST, scene

import rocketc
from rocketc.broker._delivered import Delivered
from rocketc.broker._pull_path import CheckedPull, template
from rocketc.broker.subscriptions import Subscription
from rocketc.format._encoding import java_hash
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag, Form
from rocketc.tables.groups import SubscriptionGroupConfig
from rocketc.tables.topics import TopicConfig

PULL = {
    "consumerGroup": "audit", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0",
    "expressionType": "TAG",
}  # fmt: skip
CLOSED = SubscriptionGroupConfig("audit", consume_enable=False)


class Peer(asyncio.Transport):
    """The far end of a connection: it keeps what is sent."""

    def __init__(self, server):
        super().__init__({"peername": ("127.0.0.1", 40000)})
        self.data, self.opaque = b"", 0
        self.written = []  # lists of buffers
        self.connection = server.connection()
        self.connection.connection_made(self)

    def write(self, data):
        self.writelines([data])

    def writelines(self, pieces):
        self.written.append(pieces)
        self.data += b"".join(pieces)

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return False

    def set_protocol(self, protocol):
        self.connection = protocol

    def close(self):
        self.connection.connection_lost(None)

    def request(self, code, fields, body=b"", form=Form.JSON, flag=0):
        self.opaque += 1
        frame = Command(code, fields, body, self.opaque, flag, language="JAVA").encode(form)
        self.connection.data_received(frame)

    def pull(self, form=Form.JSON, code=11, flag=0, **fields):
        merged = {name: value for name, value in {**PULL, **fields}.items() if value is not None}
        self.request(code, {name: str(value) for name, value in merged.items()}, form=form, flag=flag)

    def heartbeat(self, tags=(), version=1, group="audit", model="CLUSTERING", codes=None):
        codes = list(map(java_hash, tags)) if codes is None else codes
        subscription = {
            "topic": "orders", "subString": "||".join(tags) or "*", "tagsSet": tags, "subVersion": version,
            "codeSet": codes, "expressionType": "TAG",
        }  # fmt: skip
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        body = {"clientID": "client", "consumerDataSet": [consumer], "producerDataSet": []}
        self.request(34, {}, json.dumps(body).encode())

    def answers(self):
        commands = [Command.decode(*frame) for frame in FrameDecoder().receive(self.data)]
        self.data = b""
        return [command for command in commands if command.is_answer]


@pytest.fixture
def play(tmp_path):
    """Run main(stage, peer) with a topic `orders` of two queues, the first with 40 messages of tags A and B."""

    def run(main, **how):
        async def whole():
            async with scene(tmp_path, delay=(0.0, 0.0), **how) as stage:
                await filled(stage)
                await main(stage, Peer(stage.broker.server))

        virtual.run(whole())

    return run


async def filled(stage):
    stage.store.create_topic("orders", queues=2)
    for n in range(40):
        stage.store.put("orders", b"%d" % n, tags="AB"[n % 2], queue_id=0, store_host=HOST, born_host=HOST)
    await stage.settle()


def warm(stage, peer, **fields):
    """Pull, so that the checks are known; then return how many checks a second pull needs."""
    stage.broker.groups.find("audit")  # the first pull makes it, and that is a change
    checks, original = [], stage.broker.pulls._check

    def check(*how):
        checks.append(how)
        return original(*how)

    stage.broker.pulls._check = check
    peer.pull(**fields)
    first = len(checks)
    peer.pull(**fields)
    return first, len(checks) - first


def messages_of(data):
    """The bodies of stored records, one after the other."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(rocketc.Message.of(data[at : at + size]).body)
        at += size
    return found


# what it takes


def test_a_pull_is_checked_once(play):
    async def main(stage, peer):
        assert warm(stage, peer) == (1, 0)
        [one, two] = peer.answers()
        assert one.code == Code.SUCCESS and (one.fields, one.body) == (two.fields, two.body)
        pulls = stage.broker.pulls
        assert pulls.found == 2 and pulls.delivered == {("orders", "audit"): [64, len(one.body) * 2, 2]}

    play(main)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(
    "fields",
    [
        {"code": 361},
        {"subscription": None, "expressionType": None},
        {"subscription": "A || C"},
        {"subscription": ""},
        {"maxMsgNums": -3},
        {"maxMsgBytes": 100, "requestSource": -1, "proxyFrowardClientId": "x", "lo": "true"},
        {"sysFlag": 4 | 16 | 2},
        {"queueOffset": "+7"},
        {"subVersion": 1 << 60},
    ],
)
def test_what_the_path_takes(play, form, fields):
    async def main(stage, peer):
        assert warm(stage, peer, form=form, **fields) == (1, 0)
        assert [answer.code for answer in peer.answers()] == [Code.SUCCESS] * 2

    play(main)


@pytest.mark.parametrize(
    "fields",
    [
        {"queueId": 2},
        {"queueOffset": 40},
        {"queueOffset": -1},
        {"queueId": 1},
        {"subscription": "C"},
        {"sysFlag": "x"},
        {"sysFlag": 1 << 31},
        {"queueOffset": "0" * 20},
        {"queueId": None},
        {"consumerGroup": "x" * 2000},
        {"consumerGroup": 'au"dit'},
        {"topic": "unknown"},
        {"flag": Flag.ONEWAY},
    ],
)
def test_what_the_processor_takes(play, fields):
    async def main(stage, peer):
        warm(stage, peer)
        asked, original = [], stage.broker.pulls.process
        stage.broker.server._processors[11] = stage.broker.pulls
        stage.broker.pulls.process = lambda call: asked.append(call) or original(call)
        peer.pull(**fields)
        peer.pull(**fields)
        assert len(asked) == 2 or any(answer.code == Code.SYSTEM_ERROR for answer in peer.answers())

    play(main)


@pytest.mark.parametrize("size", [16_000, 17_000])
def test_an_answer_with_more_messages_is_not_copied(play, size):
    async def main(stage, peer):
        stage.store.put("orders", b"x" * size, queue_id=1, store_host=HOST, born_host=HOST)
        await stage.settle()
        warm(stage, peer, queueId=1)
        assert [len(pieces) for pieces in peer.written] == ([1, 1] if size == 16_000 else [2, 2])
        assert [messages_of(answer.body) for answer in peer.answers()] == [[b"x" * size]] * 2

    play(main)


@pytest.mark.parametrize(("size", "pieces"), [(2000, 1), (5000, 2)])
def test_many_small_pieces_of_the_log_are_copied(play, size, pieces):
    async def main(stage, peer):
        bodies = [bytes([number]) * size for number in range(20)]
        for body in bodies:
            for queue in (1, 2):  # the messages of a queue are not adjacent
                stage.store.put("orders", body, queue_id=queue, store_host=HOST, born_host=HOST)
        await stage.settle()
        warm(stage, peer, queueId=1)
        assert [min(len(one), 2) for one in peer.written] == [pieces] * 2
        assert [messages_of(answer.body) for answer in peer.answers()] == [bodies] * 2

    play(main)


def test_pulls_follow_the_sends_before_them(play):
    """Answers of one read event leave in the order of the requests, whichever way takes them."""

    async def main(stage, peer):
        warm(stage, peer)
        peer.answers()
        names = dict.fromkeys("abcdefghi", "0") | {"b": "orders", "c": "TBW102", "i": "UNIQ_KEY\1K1\2"}
        send = Command(310, names, b"x", 100).encode()
        pulls = [Command(11, PULL, b"", opaque).encode() for opaque in (101, 103)]
        peer.connection.data_received(send + pulls[0] + Command(310, names, b"y", 102).encode() + pulls[1])
        answers = peer.answers()
        assert [(answer.opaque, answer.code) for answer in answers] == [(100, 0), (101, 0), (102, 0), (103, 0)]

    play(main)


# what it notices


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda stage, peer: stage.store.create_topic("orders", perm=2), Code.NO_PERMISSION),
        (lambda stage, peer: stage.broker.topics.table.delete("orders"), Code.TOPIC_NOT_EXIST),
        (lambda stage, peer: stage.broker.groups.table.create(CLOSED), Code.NO_PERMISSION),
        (lambda stage, peer: peer.heartbeat(tags=["C"], version=2), Code.PULL_RETRY_IMMEDIATELY),
        (lambda stage, peer: peer.heartbeat(version=1, group="other"), Code.SUCCESS),
        (lambda stage, peer: stage.broker.consumers.unregister(peer.connection, "audit"), Code.SUBSCRIPTION_NOT_EXIST),
        (lambda stage, peer: stage.broker.offsets.reset("audit", "orders", 0, 3), Code.PULL_OFFSET_MOVED),
    ],
)
def test_each_change_counts_at_once(play, change, code):
    async def main(stage, peer):
        peer.heartbeat()
        for _ in range(3):
            peer.pull(sysFlag=0, subVersion=1)
        change(stage, peer)
        peer.answers()
        peer.pull(sysFlag=0, subVersion=1)
        [answer] = peer.answers()
        assert answer.code == code

    play(main)


@pytest.mark.parametrize(
    ("reset", "is_fast"),
    [
        (("audit", "orders", 0), False),
        (("audit", "orders", 1), True),
        (("audit", "other", 0), True),
        (("asleep", "orders", 0), True),  # it never pulls
    ],
)
def test_a_waiting_reset_slows_only_its_own_pulls(play, reset, is_fast):
    async def main(stage, peer):
        warm(stage, peer)
        asked, pulls = [], stage.broker.pulls
        pulls.process = lambda call: asked.append(call)
        stage.broker.offsets.reset(*reset, 3)
        peer.answers()
        peer.pull()
        assert len(asked) == (0 if is_fast else 1) and len(peer.answers()) == is_fast
        checked = pulls._check(11, {**PULL, "queueId": 0, "sysFlag": 4, "subVersion": 0}, None)
        assert (pulls.path.read(checked, 0, 0, 32, 7) is not None) is is_fast  # as for a pull that was held
        assert pulls.path.read(checked, 1, 0, 32, 7) is None  # an empty queue
        stage.broker.offsets.take_reset(*reset)
        peer.pull()
        assert [answer.code for answer in peer.answers()] == [Code.SUCCESS]

    play(main)


def test_a_group_that_may_not_broadcast_any_more(play):
    async def main(stage, peer):
        stage.broker.groups.table.create(SubscriptionGroupConfig("audit", consume_broadcast_enable=False))
        peer.heartbeat()
        peer.pull(sysFlag=0, subVersion=1)
        peer.heartbeat(model="BROADCASTING")
        peer.pull(sysFlag=0, subVersion=1)
        codes = [answer.code for answer in peer.answers()]
        assert codes == [0, 0, 0, Code.NO_PERMISSION]  # of heartbeats and pulls

    play(main)


def test_a_light_change_does_not_make_new_checks(play):
    """A heartbeat that changes nothing, as each client sends every 30 s."""

    async def main(stage, peer):
        peer.heartbeat()
        before = stage.broker.consumers.generation
        peer.heartbeat()
        assert stage.broker.consumers.generation == before
        peer.heartbeat(version=2)
        assert stage.broker.consumers.generation > before

    play(main)


def test_forget_checks_again(play):
    async def main(stage, peer):
        warm(stage, peer)
        stage.broker.pulls.path.forget()
        assert warm(stage, peer) == (1, 0)

    play(main)


@pytest.mark.parametrize("is_fast", [True, False])
def test_the_codes_of_a_subscription_select_and_not_its_texts(play, is_fast):
    """As in RocketMQ: they select what is read and what wakes a pull. The client compares the texts."""

    async def main(stage, peer):
        stage.broker.pulls.path.enabled = is_fast
        peer.heartbeat(tags=["A"], codes=[java_hash("B")])
        for offset in (0, 0, 40):
            peer.pull(sysFlag=2, subVersion=1, queueOffset=offset, maxMsgNums=3)
        await asyncio.sleep(1)
        stage.store.put("orders", b"for A", tags="A", store_host=HOST, born_host=HOST)
        await stage.settle()
        assert stage.broker.pulls.held.count == 1
        stage.store.put("orders", b"for B", tags="B", store_host=HOST, born_host=HOST)
        await stage.settle()
        bodies = [messages_of(answer.body) for answer in peer.answers()[1:]]
        assert bodies == [[b"1", b"3", b"5"], [b"1", b"3", b"5"], [b"for B"]]

    play(main)


def test_a_damaged_record_is_an_answer(play):
    async def main(stage, peer):
        warm(stage, peer)
        peer.answers()
        with open(stage.store.path + "/commitlog/00000000000000000000", "r+b") as log:
            log.write(b"\xff" * 32)
        peer.pull()
        [answer] = peer.answers()
        assert answer.code == Code.SYSTEM_ERROR and "its record is not there" in answer.remark

    play(main)


def test_a_closed_store_is_an_answer(play):
    async def main(stage, peer):
        warm(stage, peer)
        peer.answers()
        await stage.broker.close()
        stage.store.close()
        stage.broker.server._is_ending = False
        late = Peer(stage.broker.server)
        late.pull()
        [answer] = late.answers()
        assert answer.code == Code.SYSTEM_ERROR and "closed" in answer.remark

    play(main)


def test_old_data_suggests_another_broker(play):
    async def main(stage, peer):
        stage.broker.groups.table.create(SubscriptionGroupConfig("audit", which_broker_when_consume_slowly=5))
        for _ in range(2):
            peer.pull(maxMsgNums=1)
        assert [answer.fields["suggestWhichBrokerId"] for answer in peer.answers()] == ["5", "5"]

    play(main, slave_read_enable=True, store={"access_message_in_memory_max_ratio": 0})


def test_an_answer_that_does_not_fit():
    assert len(template(1 << 31, 1 << 31)) == 6
    with pytest.raises(ValueError, match="an answer that does not fit"):
        template(0, 10**600)


def test_what_a_checked_pull_keeps():
    group, subscription = SubscriptionGroupConfig("audit"), Subscription("orders")
    checked = CheckedPull(group, TopicConfig("orders"), subscription, 0, 0)
    assert checked.group is group and checked.subscription is subscription


# both ways do the same

QUEUES = st.sampled_from([0, 0, 0, 1, 2])
PULLS = st.fixed_dictionaries(
    {},
    optional={
        "form": st.sampled_from(Form),
        "code": st.sampled_from([11, 361]),
        "queueId": QUEUES | st.sampled_from(["", "x", None]),
        "queueOffset": st.integers(-2, 50) | st.just(1 << 62),
        "maxMsgNums": st.sampled_from([0, -1, 1, 5, 32, 1000]),
        "sysFlag": st.sampled_from([0, 1, 2, 3, 4, 4, 5, 6, 7, 23]),
        "commitOffset": st.sampled_from([-1, 0, 7, 1 << 62]),
        "subscription": st.sampled_from(["*", "", "A", "B || C", "C", "||", None, 'a"b', "ü"]),
        "expressionType": st.sampled_from(["TAG", "", "SQL92", None]),
        "subVersion": st.sampled_from([0, 1, 2]),
        "consumerGroup": st.sampled_from(["audit", "other", "no name!", "", None]),
        "topic": st.sampled_from(["orders", "orders", "unknown"]),
        "maxMsgBytes": st.sampled_from([0, 100, "x"]),
        "flag": st.sampled_from([0, 0, 0, 2]),
    },
)
STEPS = st.one_of(
    PULLS.map(lambda fields: ("pull", fields)),
    PULLS.map(lambda fields: ("pull", fields)),
    st.tuples(st.just("put"), st.integers(0, 1), st.sampled_from(["A", "B", None]), st.sampled_from([4, 20_000])),
    st.tuples(st.just("heartbeat"), st.sampled_from([(), ("A",), ("B", "C")]), st.integers(0, 2)),
    st.tuples(st.just("reset"), QUEUES, st.integers(0, 5)),
    st.tuples(st.just("group"), st.booleans()),
    st.tuples(st.just("topic"), st.sampled_from([2, 4, 6])),
    st.just(("settle",)),
    st.just(("later",)),
)


async def run_steps(stage, peer, steps):
    for step in steps:
        kind, *how = step
        if kind == "pull":
            peer.pull(**how[0])
        elif kind == "put":
            stage.store.put("orders", b"x" * how[2], tags=how[1], queue_id=how[0], store_host=HOST, born_host=HOST)
        elif kind == "heartbeat":
            peer.heartbeat(list(how[0]), how[1])
        elif kind == "reset":
            stage.broker.offsets.reset("audit", "orders", *how)
        elif kind == "group":
            stage.broker.groups.table.create(SubscriptionGroupConfig("audit", consume_enable=how[0]))
        elif kind == "topic":
            stage.store.create_topic("orders", perm=how[0])
        elif kind == "settle":
            await stage.settle()
        else:
            await asyncio.sleep(6)
    await stage.settle()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=1, max_size=25), st.booleans())
def test_path_and_processor_do_the_same(tmp_path_factory, steps, lite):
    results = []

    async def whole(enabled):
        async with scene(tmp_path_factory.mktemp("store"), delay=(0.0, 0.0), lite_pull_message_enable=lite) as stage:
            await filled(stage)
            stage.broker.pulls.path.enabled = enabled
            peer = Peer(stage.broker.server)
            await run_steps(stage, peer, steps)
            pulls, offsets = stage.broker.pulls, stage.broker.offsets
            held = {key: sorted(pull.offset for pull in of) for key, of in pulls.held._held.items()}
            results.append(
                [peer.data, held, pulls.found, pulls.missed, pulls.pulled, pulls.delivered, offsets._pulled,
                 offsets.resets, list(offsets.table.items()), sorted(stage.broker.groups.table)]
            )  # fmt: skip

    virtual.run(whole(True))
    virtual.run(whole(False))
    assert results[0] == results[1]


# what it counts


def test_what_a_group_was_given():
    delivered = Delivered()
    assert delivered.queues() == [] and delivered.total() == [0, 0, 0]
    for queue_id in (3, 0, 3):
        delivered.add(queue_id, 5, 500, 0.5)
    delivered.add(70_000, 1, 10, 0.0)
    assert delivered.queues() == [(0, 5, 500, 1, 0.5), (3, 10, 1000, 2, 1.0), (70_000, 1, 10, 1, 0.0)]
    assert delivered.total() == [16, 1510, 4]
    with pytest.raises(ValueError, match="queue -1: the id of a queue is not negative"):
        delivered.add(-1, 1, 1, 0.0)


def test_a_group_that_reads_one_queue_of_many_takes_little_memory():
    """Each peer may make groups, and each broker has a topic with 1024 queues."""

    def size():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, all_delivered = size(), []
    for _ in range(2000):
        all_delivered.append(Delivered())
        all_delivered[-1].add(1023, 1, 100, 0.0)
    assert size() - before < 2000 * 4096 and all_delivered[0].queues() == [(1023, 1, 100, 1, 0.0)]


def test_pulls_are_counted_by_queue_with_their_time(play):
    """Both ways count: also the time for which a pull waits behind others, but not the one for which it is held."""

    async def main(stage, peer):
        warm(stage, peer)
        peer.pull(sysFlag=6, queueId=1)
        await asyncio.sleep(7)
        stage.store.put("orders", b"x", queue_id=1, store_host=HOST, born_host=HOST)
        await stage.settle()
        pulls = stage.broker.pulls
        assert [(*row[:4], *row[5:]) for row in pulls.delivered_by_queue] == [
            ("orders", "audit", 0, 64, 2, 0.0),
            ("orders", "audit", 1, 1, 1, 0.0),
        ]
        [of_queue] = [row for row in pulls.delivered_by_queue if row[2] == 0]
        assert pulls.delivered["orders", "audit"][:1] == [65] and of_queue[4] > 64
        loop, original = asyncio.get_running_loop(), pulls._check

        def slow(*how):
            loop.now += 0.25
            return original(*how)

        pulls._check = slow
        stage.broker.pulls.path.forget()
        peer.pull()  # the compiled way
        assert pulls.delivered_by_queue[0][5:] == (3, 0.25)
        pulls.path.enabled = False
        peer.pull()
        assert pulls.delivered_by_queue[0][5:] == (4, 0.5)
        assert [answer.code for answer in peer.answers()] == [Code.SUCCESS] * 5

    play(main)
