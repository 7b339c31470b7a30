"""A slave becomes the master by a restart: what is kept, and what is delivered again, on virtual time."""

import asyncio

from simulation import virtual
from simulation.brokers import SMALL, scene
from unit.broker.slaves import play

import rocketc
from rocketc.broker.timers import TimerService
from rocketc.derived import timer_check
from rocketc.derived.timer_check import TimerCheck
from rocketc.tables.offsets import DelayOffsets

LEVELS = {"message_delay_level": "3s 30s"}


def restart(root, test, at, **config):
    """Run the store of the slave as a master, from a time on: seconds since the beginning of the story."""

    async def whole():
        asyncio.get_running_loop().now += at
        async with scene(root / "slave", delay=(0.0, 0.0), store=LEVELS, **config) as stage:
            await test(stage, stage.client())

    virtual.run(whole())


async def bodies(client, topic="orders", queue_id=0):
    answer = await client.pull(topic=topic, queue_id=queue_id)
    found, records = [], answer.body if answer.code == 0 else b""
    while records:
        size = int.from_bytes(records[:4], "big")
        found += [message.body for message in rocketc.decode(records[:size], None, unwrap=False)]
        records = records[size:]
    return found


def test_offsets_and_order_are_kept(memory_path):
    async def before(stage, cluster):
        await cluster.put(count=10)
        cluster.master.groups.find("audit")
        cluster.master.offsets.commit("audit", "orders", 0, 4)
        await asyncio.sleep(11)
        await cluster.stop_master()

    async def after(stage, client):
        where = {"consumerGroup": "audit", "topic": "orders", "queueId": 0}
        assert (await client.call(14, **where)).fields["offset"] == "4"
        sent = await client.send(body=b"new")
        assert (sent.code, sent.fields["queueOffset"]) == (0, "10")
        await stage.settle()
        assert await bodies(client) == [b"m%d" % n for n in range(10)] + [b"new"]

    play(memory_path, before)
    restart(memory_path, after, at=20)


def test_delayed_messages(memory_path):
    """Those that the master has delivered are not delivered again, the others are, once."""

    async def before(stage, cluster):
        client = cluster.client()
        for level, body in ((1, b"soon"), (2, b"late")):
            assert (
                await client.send(body=body, queueId=0, properties=f"UNIQ_KEY\1K{level}\2DELAY\1{level}\2")
            ).code == 0
        await asyncio.sleep(15)
        await cluster.stop_master()

    async def after(stage, client):
        await asyncio.sleep(5)
        assert await bodies(client) == [b"soon"]
        await asyncio.sleep(40)
        assert await bodies(client) == [b"soon", b"late"]

    play(memory_path, before, store=LEVELS, slave_read_enable=True)
    restart(memory_path, after, at=20)


def test_what_a_slave_does_not_have_counts_as_not_delivered(memory_path):
    """The master delivers a message, and ends before the slave has the delivery: it comes again, and is not lost."""

    async def before(stage, cluster):
        assert (await cluster.client().send(body=b"soon", queueId=0, properties="UNIQ_KEY\1K\2DELAY\0011\2")).code == 0
        await asyncio.sleep(2)
        cluster.is_held = True
        end = stage.store.max_phy_offset
        await asyncio.sleep(20)
        assert cluster.master.delays.next_offset(1) == 1 and stage.store.max_phy_offset == end
        assert DelayOffsets(memory_path / "slave").get(1) == 0
        await cluster.stop_master()

    async def after(stage, client):
        await asyncio.sleep(5)
        assert await bodies(client) == [b"soon"]

    play(memory_path, before, store=LEVELS, slave_read_enable=True)
    restart(memory_path, after, at=25)


def test_timed_messages(memory_path):
    async def before(stage, cluster):
        client = cluster.client()
        for seconds in (5, 60, 30):
            properties = f"UNIQ_KEY\1K{seconds}\2TIMER_DELAY_SEC\1{seconds}\2"
            assert (await client.send(body=b"%d" % seconds, queueId=0, properties=properties)).code == 0
        await asyncio.sleep(12)
        assert cluster.master.timers.delivered == 1
        await asyncio.sleep(3)
        await cluster.stop_master()
        assert not (memory_path / "slave/timerwheel").exists()

    async def after(stage, client):
        await asyncio.sleep(5)
        assert await bodies(client) == [b"5"]
        await asyncio.sleep(15)
        assert await bodies(client) == [b"5", b"30"]
        await asyncio.sleep(40)
        assert await bodies(client) == [b"5", b"30", b"60"]

    play(memory_path, before, slave_read_enable=True)
    restart(memory_path, after, at=20)


def test_a_transaction_that_is_not_ended(memory_path):
    async def before(stage, cluster):
        sent = await cluster.client().send(
            body=b"half", queueId=0, sysFlag=4, properties="UNIQ_KEY\1K\2TRAN_MSG\1true\2PGROUP\1shop\2"
        )
        assert sent.code == 0
        before.fields = sent.fields
        await asyncio.sleep(12)
        await cluster.stop_master()

    async def after(stage, client):
        ended = await client.call(
            37, producerGroup="shop", tranStateTableOffset=before.fields["queueOffset"],
            commitLogOffset=int(before.fields["msgId"][-16:], 16), commitOrRollback=8, msgId="K",
        )  # fmt: skip
        assert ended.code == 0, ended.remark
        await stage.settle()
        assert await bodies(client) == [b"half"]

    play(memory_path, before, slave_read_enable=True)
    restart(memory_path, after, at=15)


def test_a_master_that_becomes_a_slave_forgets_its_wheel(memory_path):
    """Its timer wheel does not get what comes from the new master; made from the topic, it has that."""
    root = memory_path / "slave"
    with rocketc.open(root, background=False, **SMALL):
        pass
    (root / "timerlog").mkdir()
    for name in ("timerwheel", "timerlog/00000000000000000000"):
        (root / name).write_bytes(b"old")
    timer_check.write(root / "config/timercheck", TimerCheck(1_700_000_000_000, 0, 5, 5))

    async def test(stage, cluster):
        assert not (root / "timerwheel").exists() and not (root / "timerlog").exists()
        assert timer_check.read(root / "config/timercheck") == TimerCheck(1_700_000_000_000, 1, 5, 5)
        assert isinstance(stage.broker.timers, TimerService) and stage.broker.timers.timers is None

    play(memory_path, test, with_master=False)
