"""Delayed messages: the put, the delivery on virtual time, restarts, and what goes wrong."""

import asyncio
import json
import logging
import threading

import pytest
from simulation import virtual
from simulation.brokers import HOST, SMALL, scene
from support import stores

import rocketc
from rocketc.broker import delays, names
from rocketc.broker._deliveries import Delivered, Deliveries
from rocketc.broker.config import BrokerConfig, read_broker_conf
from rocketc.broker.delays import DelayService
from rocketc.derived._dispatcher import delays_of
from rocketc.errors import BadRequestError
from rocketc.remoting.codes import Code
from rocketc.status import PutStatus
from rocketc.tables.config_manager import now_ms
from rocketc.tables.offsets import DelayOffsets
from rocketc.tables.table_file import read_table

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = "1s 2s 5s 1m"
LARGE = {"mapped_file_size_commit_log": 1 << 22}


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client). The topic `orders` has four queues."""

    def run(main, store=None, **how):
        async def whole():
            chosen = {"message_delay_level": LEVELS, **(store or {})}
            async with scene(tmp_path, store=chosen, **how) as stage:
                client = stage.client()
                await client.send(queueId=9999)  # creates the topic; the message is refused
                await main(stage, client)

        virtual.run(whole())

    return run


def now():
    return asyncio.get_running_loop().time()


async def delayed(client, level, body=b"body", more="", **how):
    answer = await client.send(properties=f"UNIQ_KEY\1K1\2DELAY\1{level}\2{more}", body=body, **how)
    assert answer.code == 0, answer.remark
    return answer


def stored(stage, topic="orders", queue_id=0):
    while stage.store.step():
        pass
    return stage.store.get(topic, queue_id, 0, 1000, decompress=False).messages


def offsets_file(tmp_path):
    return read_table(tmp_path / "config" / "delayOffset.json").data["offsetTable"]


# the put


def test_a_delayed_message_waits_in_the_topic_of_delayed_messages(play):
    async def main(stage, client):
        answer = await delayed(client, 2, queueId=3, more="TAGS\1web\2REAL_TOPIC\1mine\2REAL_QID\x017\2")
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("3", "0")
        assert stored(stage, queue_id=3) == []
        [waits] = stored(stage, SCHEDULE, 1)
        assert (waits.properties["REAL_TOPIC"], waits.properties["REAL_QID"]) == ("orders", "3")
        with stage.store.get_raw(SCHEDULE, 1, 0, 1) as found:
            assert found.tags_codes == [waits.store_timestamp + 2000]

    play(main)


def test_the_delivered_message(play):
    """Its body, flags, times and properties stay; the tags code is that of its tag."""

    async def main(stage, client):
        await delayed(client, 1, queueId=2, more="TAGS\1web\2", sysFlag=1, flag=7, reconsumeTimes=4, bornTimestamp=5)
        await asyncio.sleep(2)
        [waits], [message] = stored(stage, SCHEDULE, 0), stored(stage, queue_id=2)
        assert 1000 <= message.store_timestamp - waits.store_timestamp < 1100
        assert message.properties == waits.properties and message.properties["DELAY"] == "1"
        same = (
            "stored_body",
            "flag",
            "sys_flag",
            "reconsume_times",
            "born_timestamp",
            "born_host",
            "store_host",
            "body_crc",
        )
        for name in same:
            assert getattr(message, name) == getattr(waits, name)
        assert (message.flag, message.sys_flag, message.reconsume_times, message.born_timestamp) == (7, 1, 4, 5)
        assert message.queue_offset == 0 and message.queue_id == 2
        with stage.store.get_raw("orders", 2, 0, 1, tags="web") as found:
            assert found.message_count == 1

    play(main)


@pytest.mark.parametrize(
    ("text", "level", "kept"),
    [("1", 1, "1"), ("+1", 1, "+1"), ("02", 2, "02"), ("4", 4, "4"), ("5", 4, "4"), ("2147483647", 4, "4")],
)
def test_levels_as_texts(text, level, kept):
    properties = {"DELAY": text}
    asked = delays.delay_level(properties)
    assert delays.delayed(properties, asked, "orders", 1, 4) == (SCHEDULE, level - 1)
    assert properties == {"DELAY": kept, "REAL_TOPIC": "orders", "REAL_QID": "1"}


@pytest.mark.parametrize("text", ["0", "-1", "-0", ""])
def test_levels_without_a_delay(text):
    assert delays.delay_level({"DELAY": text}) <= 0


@pytest.mark.parametrize("text", ["x", " 1", "1 ", "1.0", "0x1", "2147483648", "9" * 50, "\u0661"])
def test_levels_that_can_not_be_parsed(text):
    with pytest.raises(BadRequestError, match="DELAY"):
        delays.delay_level({"DELAY": text})


def test_refused_sends(play):
    async def main(stage, client):
        before = stage.store.max_phy_offset
        answer = await client.send(properties="UNIQ_KEY\1K1\2DELAY\1x\2")
        assert answer.code == Code.SYSTEM_ERROR and "'x', which is not a number" in answer.remark
        batch = rocketc.encode_batch([(0, b"one", None)])
        answer = await client.send(code=320, body=batch, properties="DELAY\0011\2", batch=True)
        assert (answer.code, answer.remark) == (Code.MESSAGE_ILLEGAL, "a batch can't be delayed")
        answer = await client.send(properties="UNIQ_KEY\1K1\2DELAY\0011\2big\1" + "x" * 32_660 + "\2")
        assert answer.code == Code.MESSAGE_ILLEGAL  # its own properties have room, but not with those of the delay
        assert stage.store.max_phy_offset == before
        answer = await client.send(properties="UNIQ_KEY\1K1\2DELAY\0010\2")
        assert answer.code == 0 and len(stored(stage)) == 1

    play(main)


def test_a_level_replaces_the_times_of_5_x(play):
    async def main(stage, client):
        await delayed(client, 1, more="TIMER_DELAY_SEC\x0199\2TIMER_DELAY_MS\x019\2TIMER_DELIVER_MS\x019\2")
        [waits] = stored(stage, SCHEDULE, 0)
        assert not set(names.TIMER) & set(waits.properties)

    play(main)


def test_a_broker_without_levels_delays_nothing(play):
    async def main(stage, client):
        await delayed(client, 3)
        assert len(stored(stage)) == 1

    play(main, store={"message_delay_level": ""})


# the delivery


def test_never_early_and_hardly_late(play):
    async def main(stage, client):
        for n in range(60):
            await delayed(client, 1 + n % 3, b"%d" % n)
            await asyncio.sleep(0.037)
        await asyncio.sleep(8)
        waiting = {one.body: one for level in range(3) for one in stored(stage, SCHEDULE, level)}
        late = []
        for one in stored(stage):
            level = int(one.body) % 3
            late.append(one.store_timestamp - waiting[one.body].store_timestamp - (1000, 2000, 5000)[level])
        assert len(late) == 60 and min(late) >= 0 and max(late) < 100

    play(main)


def test_the_order_of_a_level_is_kept(play):
    async def main(stage, client):
        for n in range(300):
            await delayed(client, 1, b"%d" % n)
        await asyncio.sleep(3)
        assert [one.body for one in stored(stage)] == [b"%d" % n for n in range(300)]

    play(main, store=LARGE, delay=(0.0, 0.0))


def test_a_message_wakes_a_pull_that_is_held(play):
    async def main(stage, client):
        await delayed(client, 1)
        answer = await client.pull(wait=20_000)
        assert answer.code == 0 and 1.0 <= now() < 1.5

    play(main)


def test_a_backlog_is_delivered_in_slices_beside_others(play):
    """Between two slices other callbacks run, and another level is not late."""

    async def main(stage, client):
        stage.store.put_many(
            SCHEDULE, [b"x"] * 5000, queue_id=1, properties={"DELAY": "2", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        )
        stage.store.put(SCHEDULE, b"y", queue_id=0, properties={"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "1"})
        deliver, sizes, turns = stage.broker.delays._deliver, [], [0]

        def turn():
            turns[0] += 1

        class Counted:
            skipped = 0

            def deliver(self, found, *what):
                asyncio.get_running_loop().call_soon(turn)
                done = deliver.deliver(found, *what)
                sizes.append((done.row - what[2], turns[0]))
                return done

        stage.broker.delays._deliver = Counted()
        await asyncio.sleep(3.0)
        assert max(size for size, _ in sizes) == delays.DELIVERIES_MAX and len(sizes) > 10
        assert len({turn for _, turn in sizes}) == len(sizes)
        while stage.store.step():
            pass
        assert stage.store.max_offset("orders", 0) == 5000 and stage.store.max_offset("orders", 1) == 1

    play(main, store=LARGE, delay=(0.0, 0.0))


def test_a_message_that_is_not_due_is_read_once(play):
    async def main(stage, client):
        get, reads = stage.broker.delays._get, []
        stage.broker.delays._get = lambda level, offset: reads.append(level) or get(level, offset)
        await delayed(client, 4)
        await asyncio.sleep(50)
        assert 1 <= reads.count(4) <= 3
        await asyncio.sleep(12)
        assert len(stored(stage)) == 1

    play(main)


def test_a_store_with_threads_reads_on_a_thread(tmp_path):
    """In real time; the loop itself reads only empty levels."""

    async def main():
        with rocketc.open(tmp_path, store_host=HOST, message_delay_level="0s", **SMALL) as store:
            store.put(SCHEDULE, b"x", properties={"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"})
            assert store.wait_dispatched(5)
            deliver = Deliveries(store, names.REAL_TOPIC, names.REAL_QUEUE, names.HALF_TOPIC)
            service = delays.DelayService(store, [0], delays.DelayOffsets(tmp_path), deliver, now_ms)
            get, threads = service._get, []
            service._get = lambda *what: threads.append(threading.current_thread()) or get(*what)
            assert await service._step(1) == 0.0 and deliver.delivered == 1
            assert await service._step(1) == delays.IDLE_SECONDS
            here = threading.current_thread()
            assert [one is here for one in threads] == [False, True]
            reading = asyncio.ensure_future(service._read(1, 0))
            await asyncio.sleep(0)
            reading.cancel()  # as at the end of the broker: the thread ends first
            with pytest.raises(asyncio.CancelledError):
                await reading

    asyncio.run(main())


def test_large_messages_are_read_four_mebibytes_at_a_time(play):
    async def main(stage, client):
        sizes = []
        get = stage.broker.delays._get

        def watched(*what):
            found = get(*what)
            sizes.append((found.message_count, found.total_bytes))
            return found

        stage.broker.delays._get = watched
        for n in range(5):
            await delayed(client, 1, bytes([n]) * 1_500_000)
        await asyncio.sleep(2)
        assert len(stored(stage)) == 5 and max(count for count, _ in sizes) == 2

    play(main, store=LARGE)


def test_a_clock_that_is_set_back_delivers_at_once(play):
    """A message must not wait longer than its delay, whatever the clock says. Source: store.md 11."""

    async def main(stage, client):
        shift = 0
        stage.broker.delays._clock = lambda: stage.now() + shift
        await delayed(client, 4)
        await asyncio.sleep(2)
        assert stored(stage) == []
        shift = -3000  # it is due in more than a minute now
        await asyncio.sleep(1.5)
        assert len(stored(stage)) == 1

    play(main)


def test_a_clock_that_is_set_forward_is_seen_within_a_second(play):
    async def main(stage, client):
        shift = 0
        stage.broker.delays._clock = lambda: stage.now() + shift
        await delayed(client, 4)
        await asyncio.sleep(2)
        shift = 60_000
        await asyncio.sleep(1.2)
        assert len(stored(stage)) == 1

    play(main)


def test_a_shorter_level_delivers_old_messages_at_once(tmp_path):
    async def whole():
        async with scene(tmp_path, store={"message_delay_level": "1h"}) as stage:
            await delayed(stage.client(), 1)
            await asyncio.sleep(1)
        async with scene(tmp_path, store={"message_delay_level": "2s"}) as stage:
            await asyncio.sleep(3)
            assert len(stored(stage)) == 1

    virtual.run(whole())


# what can't be delivered


def test_messages_that_are_skipped(play, caplog):
    async def main(stage, client):
        good = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        for wrong in (
            {"REAL_TOPIC": None}, {"REAL_QID": None}, {"REAL_QID": "x"}, {"REAL_QID": "-1"}, {"REAL_QID": "2147483648"},
            {"REAL_QID": "1" * 30}, {"REAL_TOPIC": "a/b"}, {"REAL_TOPIC": "x" * 200}, {"REAL_TOPIC": names.HALF_TOPIC},
        ):  # fmt: skip
            properties = {name: value for name, value in {**good, **wrong}.items() if value is not None}
            stage.store.put(SCHEDULE, b"wrong", queue_id=0, properties=properties)
            stage.store.put(SCHEDULE, b"good", queue_id=0, properties=good)
        await asyncio.sleep(3)
        assert [one.body for one in stored(stage)] == [b"good"] * 9
        assert stage.broker.delays._deliver.skipped == 9 and stage.broker.delays._deliver.delivered == 9
        assert "can't be delivered; they are skipped" in caplog.text

    play(main)


def test_a_damaged_body_is_skipped(play):
    """A copy of it would have a CRC that fits."""

    async def main(stage, client):
        answer = await delayed(client, 1, b"damage me")
        await delayed(client, 1, b"good")
        assert answer.code == 0
        log = min((stage._root / "commitlog").iterdir())
        with open(log, "r+b") as file:
            file.seek(log.read_bytes().index(b"damage me"))
            file.write(b"D")
        await asyncio.sleep(2)
        assert [one.body for one in stored(stage)] == [b"good"]

    play(main)


def test_a_refused_put_is_tried_again(play, caplog):
    """Nothing is lost or overtaken while the store does not accept messages."""

    async def main(stage, client):
        for n in range(3):
            await delayed(client, 1, b"%d" % n)
        deliver = stage.broker.delays._deliver
        answers = [delays_refused(0), delays_refused(0)]

        class Refusing:
            skipped = 0

            def deliver(self, found, *what):
                return answers.pop() if answers else deliver.deliver(found, *what)

        stage.broker.delays._deliver = Refusing()
        await asyncio.sleep(3)
        assert [one.body for one in stored(stage)] == [b"0", b"1", b"2"] and not answers
        assert caplog.text.count("is refused: OS_PAGE_CACHE_BUSY; it is tried again") == 1

    play(main)


def delays_refused(offset):
    return Delivered(offset, -1, PutStatus.OS_PAGE_CACHE_BUSY, -1, 0)


def test_an_error_is_logged_once_and_tried_again(play, caplog):
    async def main(stage, client):
        await delayed(client, 1)
        stage.store._set_full(True)
        await asyncio.sleep(25)
        assert stored(stage) == []
        stage.store._set_full(False)
        await asyncio.sleep(10)
        assert len(stored(stage)) == 1
        warnings = [one for one in caplog.records if one.levelno == logging.WARNING and "delay level" in one.message]
        assert len(warnings) == 1 and "delay level 1: message 0 is not delivered" in warnings[0].message

    play(main)


def test_messages_that_the_log_no_longer_has(play):
    async def main(stage, client):
        service = stage.broker.delays
        await delayed(client, 1)
        await asyncio.sleep(2)
        assert service.next_offset(1) == 1
        service._next[1] = 7  # a queue that lost its end
        await asyncio.sleep(15)
        assert service.next_offset(1) == 1
        await delayed(client, 1)
        await asyncio.sleep(3)
        assert len(stored(stage)) == 2

    play(main)


# offsets and restarts


def test_offsets_are_written_every_ten_seconds_and_at_the_end(tmp_path):
    async def whole():
        async with scene(tmp_path, store={"message_delay_level": LEVELS}) as stage:
            client = stage.client()
            for _ in range(3):
                await delayed(client, 1)
            await delayed(client, 4)
            await asyncio.sleep(5)
            assert not (tmp_path / "config" / "delayOffset.json").exists()
            await asyncio.sleep(6)
            assert offsets_file(tmp_path) == {1: 3, 4: 0}  # level 4 has a message that is not due
            await delayed(client, 2)
            await asyncio.sleep(3)
        assert offsets_file(tmp_path) == {1: 3, 2: 1, 4: 0}
        text = (tmp_path / "config" / "delayOffset.json").read_text()
        assert '"offsetTable":{1:3,2:1,4:0\n\t}' in text

    virtual.run(whole())


def test_the_records_are_flushed_before_their_offsets_are_written(tmp_path):
    async def whole():
        async with scene(tmp_path, store={"message_delay_level": LEVELS, "flush": "async"}) as stage:
            await delayed(stage.client(), 1)
            for task in list(stage.broker._services._tasks):
                if task.get_name() == "delay offsets":
                    task.cancel()
            await asyncio.sleep(2)
            seen = []
            flush, persist = stage.store.flush, stage.broker.delays._offsets.persist

            class Store:
                def __getattr__(self, name):
                    return getattr(stage.store, name)

                def flush(self):
                    seen.append("flush")
                    return flush()

            stage.broker.delays._store = Store()
            stage.broker.delays._offsets.persist = lambda: seen.append("persist") or persist()
            assert stage.broker.delays.persist() and seen == ["flush", "persist"]
            assert not stage.broker.delays.persist() and seen == ["flush", "persist", "persist"]

    virtual.run(whole())


def test_a_restart_continues_from_the_offsets(tmp_path):
    async def whole():
        async with scene(tmp_path, store={"message_delay_level": LEVELS}) as stage:
            client = stage.client()
            await delayed(client, 1, b"early")
            await delayed(client, 3, b"late")
            await asyncio.sleep(3)
        async with scene(tmp_path, store={"message_delay_level": LEVELS}) as stage:
            await asyncio.sleep(6)
            assert [one.body for one in stored(stage)] == [b"early", b"late"]

    virtual.run(whole())


@pytest.mark.parametrize("content", [None, "", "{", '{"offsetTable":{1:', '{"offsetTable":[]}', "\0" * 50])
def test_a_missing_or_torn_table_delivers_again(tmp_path, content):
    """As RocketMQ: without offsets each level begins at its first message. Twice is allowed, never is not."""

    async def whole():
        async with scene(tmp_path, store={"message_delay_level": LEVELS}) as stage:
            await delayed(stage.client(), 1)
            await asyncio.sleep(3)
        for name in ("delayOffset.json", "delayOffset.json.bak"):
            file = tmp_path / "config" / name
            file.unlink(missing_ok=True)
            if content is not None:
                file.write_text(content)
        async with scene(tmp_path, store={"message_delay_level": LEVELS}) as stage:
            await asyncio.sleep(3)
            assert len(stored(stage)) == 2
        assert offsets_file(tmp_path) == {1: 1}

    virtual.run(whole())


@pytest.mark.parametrize(("known", "first"), [(-5, 0), (0, 0), (2, 2), (3, 3), (99, 3)])
def test_offsets_outside_of_the_queue(tmp_path, known, first):
    async def whole():
        async with scene(tmp_path, store={"message_delay_level": "1h"}) as stage:
            for _ in range(3):
                await delayed(stage.client(), 1)
            await asyncio.sleep(1)
        (tmp_path / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {"1": known}}))
        async with scene(tmp_path, store={"message_delay_level": "1h"}) as stage:
            assert stage.broker.delays.next_offset(1) == first

    virtual.run(whole())


@pytest.mark.parametrize("name", ["v533-broker", "v497-broker"])
def test_a_store_of_rocketmq_with_pending_messages(tmp_path, broker_store, name):
    """Its offsets are continued: pending messages are delivered once, others not again."""
    root = broker_store(name)
    before = read_table(root / "config" / "delayOffset.json").data["offsetTable"]
    with rocketc.open(root, read_only=True) as store:
        ends = {level: store.max_offset(SCHEDULE, level - 1) for level in range(1, 19)}
        had = {body_of(one) for one in rocketc.scan(root) if one.topic != SCHEDULE}
    pending = {level: end - before.get(level, 0) for level, end in ends.items() if end > before.get(level, 0)}
    assert pending

    async def whole():
        with rocketc.open(root, background=False, store_host=HOST, message_delay_level=STANDARD) as store:
            loop = asyncio.get_running_loop()
            later = max(one.store_timestamp for one in rocketc.scan(root)) + 3 * 3_600_000
            clock = lambda: later + int(loop.time() * 1000)  # noqa: E731
            offsets = delays.DelayOffsets(root, clock=clock)
            deliver = Deliveries(store, names.REAL_TOPIC, names.REAL_QUEUE, names.HALF_TOPIC)
            service = delays.DelayService(store, delays_of(STANDARD), offsets, deliver, clock)
            tasks = [asyncio.ensure_future(service.run(level)) for level in range(1, 19)]
            await asyncio.sleep(5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert deliver.delivered == sum(pending.values()) and deliver.skipped == 0
            assert {level: service.next_offset(level) for level in pending} == {level: ends[level] for level in pending}
            service.persist()
        new = [one for one in rocketc.scan(root) if one.topic != SCHEDULE and body_of(one) not in had]
        assert len(new) == sum(pending.values())
        assert read_table(root / "config" / "delayOffset.json").data["offsetTable"] == {**before, **{
            level: ends[level] for level in pending
        }}  # fmt: skip

    virtual.run(whole())


STANDARD = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def body_of(message):
    return message.topic, message.queue_id, message.queue_offset


@pytest.fixture
def broker_store(tmp_path):
    return lambda name: stores.unpack(name, tmp_path).path


# settings


def test_broker_conf(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("messageDelayLevel=1s 2m\nflushDelayOffsetInterval=500\n")
    fields, store, unused = read_broker_conf(path)
    assert (fields, store.message_delay_level, unused) == ({"flush_delay_offset_interval": 500}, "1s 2m", [])
    assert BrokerConfig().flush_delay_offset_interval == 10_000
    path.write_text("messageDelayLevel=1s soon\n")
    with pytest.raises(ValueError, match=r"broker\.conf: message_delay_level: 'soon' is not a time"):
        read_broker_conf(path)


def test_a_damaged_message_is_skipped(tmp_path, caplog):
    """The others of its level do not wait for it."""

    async def main():
        async with scene(tmp_path, store={"message_delay_level": "1s 2s"}) as stage:
            client = stage.client()
            await client.send(queueId=9999)  # creates the topic
            offsets = []
            for body in (b"0", b"1", b"2"):
                answer = await client.send(properties="UNIQ_KEY\1K1\2DELAY\0011\2", body=body)
                offsets.append(int(answer.fields["msgId"][16:], 16))
            await stage.settle()
            with open(min((tmp_path / "commitlog").iterdir()), "r+b") as file:
                file.seek(offsets[1] + 4)
                file.write(bytes(4))  # the magic number
            await asyncio.sleep(60)
            await stage.settle()
            assert stage.broker.delays.next_offset(1) == 3
            assert [one.body for one in rocketc.scan(tmp_path, topics="orders", errors="skip")] == [b"0", b"2"]

    virtual.run(main())
    assert "delay level 1: message 1 is damaged, it is skipped" in caplog.text


def test_offsets_never_go_back_at_the_end(tmp_path):
    """A write that is under way on another thread ends before the last one begins."""
    entered, go = threading.Event(), threading.Event()

    class Slow:
        background = False

        def flush(self):
            if not entered.is_set():
                entered.set()
                assert go.wait(10)

        def max_offset(self, topic, queue_id, *, committed=True):
            return 0

        def min_offset(self, topic, queue_id):
            return 0

    async def main():
        service = DelayService(Slow(), [1000], DelayOffsets(tmp_path), None, lambda: 0)
        service._next[1] = 10
        first = threading.Thread(target=service.persist)
        first.start()
        assert entered.wait(10)
        service._next[1] = 50
        last = threading.Thread(target=service.persist)
        last.start()
        go.set()
        first.join(10)
        last.join(10)
        assert dict(DelayOffsets(tmp_path).items()) == {1: 50}

    asyncio.run(main())
