"""The compiled way for send-backs: it does the same as the processor, and leaves the unusual to it."""

import asyncio
import itertools
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation import virtual
from simulation.brokers import scene

from rocketc.remoting.codes import Code
from rocketc.status import PutStatus
from rocketc.tables.groups import SubscriptionGroupConfig

BACK = 36
LEVELS = "1s 2s 3s 4s"
WAITING, RETRIES = "SCHEDULE_TOPIC_XXXX", "%RETRY%audit"
NAMES = st.sampled_from(
    ["WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "TAGS", "KEYS", "own", "ü", "long"]
)
PAIRS = st.lists(st.tuples(NAMES, st.sampled_from(["1", "true", "%RETRY%other", "ö" * 40, "x" * 200])), max_size=8)


class Side:
    """The fast path and the processor, one after the other, at one broker."""

    def __init__(self, stage):
        self.stage, self.path = stage, stage.broker.pulls.path

    async def back(self, client, fast, **values):
        """Send back; return the answer and what was taken by the fast path."""
        backs, before = self.path.backs, self.path.backs.taken
        self.path.backs = backs if fast else None
        try:
            answer = await client.call(BACK, **{"group": "audit", "delayLevel": 0, "maxReconsumeTimes": 16, **values})
        finally:
            self.path.backs = backs
        return answer, backs.taken - before

    async def waiting(self):
        await self.stage.settle()
        levels = range(len(LEVELS.split()))
        return [one for n in levels for one in self.stage.store.get(WAITING, n, 0, 100, decompress=False).messages]


def whole(record):
    """What two copies of a message have in common."""
    names = "topic queue_id flag sys_flag born_timestamp born_host store_host reconsume_times body stored_body"
    return [getattr(record, name) for name in names.split()] + [list(record.properties.items())]


@pytest.fixture
def play(tmp_path):
    def run(main, store=None, folder="", **how):
        async def played():
            async with scene(tmp_path / folder, store={"message_delay_level": LEVELS, **(store or {})}, **how) as stage:
                stage.broker.groups.find("audit")
                client, side = stage.client(), Side(stage)
                await client.send()  # creates the topic
                stage.broker.topics.create_if_missing(RETRIES, 1)
                await stage.settle()
                while not stage.broker.topics.is_written(RETRIES):
                    await asyncio.sleep(0.01)
                await main(stage, client, side)

        virtual.run(played())

    return run


def put(stage, properties=None, **how):
    done = stage.store.put("orders", how.pop("body", b"body"), properties=properties, **how)
    return done.phy_offset


def put_raw(stage, pairs, **how):
    """Store a message with properties in any order."""
    text = "".join(f"{name}\1{value}\2" for name, value in pairs).encode()
    status, [offset], _, _ = stage.broker.path.append(
        b"orders", 0, [(how.get("flag", 0), how.get("body", b"body"), text)], how.get("sys_flag", 0), 5,
        how.get("host", bytes([10, 1, 2, 3, 0, 0, 7, 0])), how.get("times", 0), False,
    )  # fmt: skip
    assert status is PutStatus.PUT_OK
    return offset


async def both(stage, client, side, offset, **values):
    """Send a message back in both ways; return the two copies."""
    before = await side.waiting()
    for fast in (True, False):
        answer, taken = await side.back(client, fast, offset=offset, **values)
        assert (answer.code, answer.remark, answer.fields, taken) == (0, None, {}, fast)
    return [one for one in await side.waiting() if one not in before]


def test_a_copy_is_that_of_the_processor(play):
    async def main(stage, client, side):
        for pairs, values in (
            ([], {}),
            ([("UNIQ_KEY", "K1"), ("WAIT", "true"), ("TAGS", "web")], {"delayLevel": 2}),
            ([("REAL_QID", "7"), ("RETRY_TOPIC", "other"), ("ORIGIN_MESSAGE_ID", "AB")], {"delayLevel": 99}),
        ):
            one, two = await both(stage, client, side, put_raw(stage, pairs, flag=3, times=1), **values)
            assert whole(one) == whole(two)
        assert [one.reconsume_times for one in await side.waiting()] == [2] * 6

    play(main)


def test_random_properties(play):
    folders = itertools.count()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(PAIRS, st.integers(0, 20), st.integers(0, 6), st.sampled_from([b"", b"x" * 300]))
    def run(pairs, times, level, body):
        async def main(stage, client, side):
            offset = put_raw(stage, pairs, body=body or b"b", times=times)
            made, last = [], -1
            for fast in (True, False):
                answer, taken = await side.back(client, fast, offset=offset, delayLevel=level, maxReconsumeTimes=30)
                assert answer.code == 0
                is_plain = len({name for name, _ in pairs}) == len(pairs)
                assert taken == (fast and is_plain)
                [copy] = [one for one in await side.waiting() if one.phy_offset > last]
                last = copy.phy_offset
                made.append(whole(copy))
            assert made[0] == made[1]

        play(main, folder=str(next(folders)))

    run()


def test_hosts_with_ipv6_and_a_compressed_body(play):
    async def main(stage, client, side):
        v6 = bytes(range(16)) + bytes([0, 0, 7, 0])
        one, two = await both(stage, client, side, put_raw(stage, [("K", "v")], host=v6, sys_flag=1, body=b"\x78\x9c?"))
        assert whole(one) == whole(two) and one.sys_flag & 1 and one.born_host.startswith("[")

    play(main)


def test_odd_hosts(play):
    async def main(stage, client, side):
        mapped = bytes(10) + b"\xff\xff" + bytes([10, 1, 2, 3, 0, 0, 7, 0])
        one, two = await both(stage, client, side, put_raw(stage, [], host=mapped))
        assert whole(one) == whole(two) and one.born_host == "[::ffff:a01:203]:1792"
        for host in (bytes([10, 1, 2, 3, 0, 1, 0, 0]), bytes([10, 1, 2, 3, 255, 255, 255, 255])):
            answer, taken = await side.back(client, True, offset=put_raw(stage, [], host=host))
            assert (answer.code, taken) == (Code.SYSTEM_ERROR, 0)  # there are no such ports

    play(main)


def test_the_property_crc_is_that_of_the_copy(play):
    async def main(stage, client, side):
        offset = put(stage, {"K": "v"})
        for one in await both(stage, client, side, offset):
            assert stage.store.message(one.phy_offset, crc="full") and list(one.properties)[-1] == "__CRC32#"
            assert one.properties["__CRC32#"] != stage.store.message(offset).properties["__CRC32#"]

    play(main, store={"enabled_append_prop_crc": True})


def test_a_copy_is_delivered_and_counted(play):
    async def main(stage, client, side):
        offset = put(stage, tags="web")
        await asyncio.sleep(3)  # the level is empty, and asleep
        assert (await side.back(client, True, offset=offset, delayLevel=1))[1] == 1
        await asyncio.sleep(1.3)
        await stage.settle()
        [one] = stage.store.get(RETRIES, 0).messages
        assert (one.tags, one.properties["RETRY_TOPIC"]) == ("web", "orders")
        assert stage.broker.counts.sent_back[("orders", "audit")] == 1
        assert stage.broker.path.times.read()[(BACK, 0, False)][0].count(1) == 1
        first, second = await both(stage, client, side, one.phy_offset)
        assert whole(first) == whole(second) and first.reconsume_times == 2

    play(main)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"delayLevel": -1}, 0),  # a dead letter
        ({"maxReconsumeTimes": 0}, 0),  # the same
        ({"unitMode": True}, 0),
        ({"offset": 1 << 40}, Code.SYSTEM_ERROR),
        ({"offset": -1}, Code.SYSTEM_ERROR),
        ({"offset": 1}, Code.SYSTEM_ERROR),  # in the middle of a record
        ({"group": "no such group!"}, Code.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"group": "g" * 2000}, Code.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_what_the_processor_does(play, values, code):
    async def main(stage, client, side):
        offset = put(stage)
        answer, taken = await side.back(client, True, **{"offset": offset, **values})
        assert (answer.code, taken) == (code, 0)
        assert (await side.back(client, True, offset=offset))[1] == 1  # the next one is a plain one

    play(main)


@pytest.mark.parametrize("properties", [{"TIMER_DELAY_SEC": "9"}, {f"n{n}": "v" for n in range(65)}])
def test_messages_for_the_processor(play, properties):
    async def main(stage, client, side):
        answer, taken = await side.back(client, True, offset=put(stage, properties))
        assert (answer.code, taken) == (0, 0)

    play(main)


def test_properties_that_become_too_long(play):
    async def main(stage, client, side):
        for room, taken in ((32_767 - 150, True), (32_767 - 20, False)):
            offset = put_raw(stage, [("n", "v" * (room - 3))])
            answer, found = await side.back(client, True, offset=offset)
            assert (found, answer.code == 0) == (taken, taken)

    play(main)


def test_damage_is_left_to_the_processor(play, tmp_path):
    async def main(stage, client, side):
        offset = put(stage, body=b"a long body")
        log = min((tmp_path / "commitlog").iterdir())
        data = log.read_bytes()
        at = data.index(b"a long body")
        with open(log, "r+b") as file:
            file.seek(at)
            file.write(b"A")
        answer, taken = await side.back(client, True, offset=offset)
        assert (answer.code, taken) == (Code.SYSTEM_ERROR, 0)
        assert await side.waiting() == []

    play(main)


def test_a_change_of_a_group_a_topic_or_a_setting_counts_at_once(play):
    async def main(stage, client, side):
        offset, broker = put(stage), stage.broker

        async def code_of(expected, is_taken):
            answer, taken = await side.back(client, True, offset=offset)
            assert (answer.code, taken) == (expected, is_taken)

        await code_of(0, 1)
        broker.groups.table.create(SubscriptionGroupConfig("audit", retry_queue_nums=0))
        await code_of(0, 0)  # nothing is retried
        broker.groups.table.create(SubscriptionGroupConfig("audit"))
        await code_of(0, 1)
        broker.topics.table.create(RETRIES, queues=1, perm=4)
        await code_of(Code.NO_PERMISSION, 0)
        broker.topics.table.create(RETRIES, queues=1, perm=6)
        await code_of(0, 1)
        broker.topics.hide([RETRIES])
        await code_of(Code.SYSTEM_ERROR, 0)
        broker.topics.unhide([RETRIES])
        await code_of(0, 1)
        broker.config.broker_permission = 4
        broker._settings_changed(["broker_permission"])
        await code_of(Code.NO_PERMISSION, 0)

    play(main)


def test_an_old_message(play, tmp_path):
    """More than 64 MiB lie after it: the path takes it if it is in memory."""
    offsets = []

    async def warm(stage, client, side):
        offsets.append(put_raw(stage, [("K", "v")]))
        for _ in range(34):
            put(stage, body=bytes(2_000_000))
        assert (await side.back(client, True, offset=offsets[0]))[1] == 1

    async def cold(stage, client, side):
        with open(min((tmp_path / "commitlog").iterdir()), "rb") as log:
            os.fsync(log.fileno())
            os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        answer, taken = await side.back(client, True, offset=offsets[0])
        assert answer.code == 0
        if taken:
            pytest.skip("this file system keeps the pages, or does not say which it has")
        assert [copy.body for copy in await side.waiting()] == [b"body", b"body"]

    play(warm, store={"mapped_file_size_commit_log": 1 << 22})
    play(cold, store={"mapped_file_size_commit_log": 1 << 22})
