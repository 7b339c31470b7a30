"""A broker that is a master: which sends wait for slaves, with which status, and what tools see of the slaves."""

import asyncio
import json
import os
import socket

import pytest
from simulation import virtual
from simulation.brokers import SMALL, scene
from simulation.slaves import Slave, SlaveThread
from support.threads import wait_until

import rocketc
from rocketc.broker import controller
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.config import StoreConfig
from rocketc.format.ids import decode_offset_id
from rocketc.remoting.codes import Code
from rocketc.store.opening import open_master

OK, DISK, TIMEOUT, NOT_AVAILABLE = (
    Code.SUCCESS,
    Code.FLUSH_DISK_TIMEOUT,
    Code.FLUSH_SLAVE_TIMEOUT,
    Code.SLAVE_NOT_AVAILABLE,
)
HALF = "UNIQ_KEY\1K1\2TRAN_MSG\1true\2PGROUP\1shop\2"


@pytest.fixture(params=["path", "processor"])
def play(request, tmp_path):
    """Run main(stage, client), with the compiled path and without it. The broker is a SYNC_MASTER."""

    def run(main, store=None, **how):
        fields = {"broker_role": "SYNC_MASTER", "message_delay_level": "1s", **(store or {})}

        async def whole():
            async with scene(tmp_path, delay=(0.0, 0.0), store=fields, **how) as stage:
                client = stage.client()
                await client.send(body=b"first", queueId=9999)  # creates the topic; the message is refused
                stage.broker.path.enabled = request.param == "path"
                sent = stage.broker.path.sent
                await main(stage, client)
                assert (stage.broker.path.sent > sent) == (request.param == "path")

        virtual.run(whole())

    return run


def slave(stage, start=0, reports=True, delay=(0.1, 0.1)):
    one = Slave(start, reports)
    virtual.link(one, stage.broker.master.connection(), stage.chance, delay)
    return one


async def timed(call):
    """Return the code of an answer, and the seconds that it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await call
    return answer.code, round(loop.time() - began, 1)


def batch(client, **how):
    body = rocketc.encode_batch([(0, b"one", {"UNIQ_KEY": "1"}), (0, b"two", {"UNIQ_KEY": "2"})])
    return client.send(code=320, body=body, properties="UNIQ_KEY\1K1\2", batch=True, **how)


KINDS = {
    "send": lambda client: client.send(),
    "long names": lambda client: client.send(code=10),
    "batch": batch,
    "half message": lambda client: client.send(properties=HALF),
    "delayed": lambda client: client.send(properties="UNIQ_KEY\1K1\2DELAY\x011\2"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_send_waits_for_a_slave(play, kind):
    """HATest: an answer of SUCCESS means that the slave has the record at the same physical offset."""

    async def main(stage, client):
        await client.send()
        one = slave(stage)
        await asyncio.sleep(1)
        assert await timed(KINDS[kind](client)) == (OK, 0.2)
        assert one.log == stage.store.read_log(0)
        one.transport.pause_reading()
        assert await timed(KINDS[kind](client)) == (TIMEOUT, 3.0)
        one.transport.resume_reading()
        await asyncio.sleep(1)
        assert await timed(KINDS[kind](client)) == (OK, 0.2)
        one.transport.abort()
        await asyncio.sleep(1)
        end = stage.store.max_phy_offset
        assert await timed(KINDS[kind](client)) == (NOT_AVAILABLE, 0.0)
        assert stage.store.max_phy_offset > end, "the message is stored"

    play(main)


def test_many_sends_are_answered_by_one_report(play):
    async def main(stage, client):
        slave(stage)
        await asyncio.sleep(1)
        sends = [timed(client.send(queueId=n % 4)) for n in range(300)]
        answers = await asyncio.gather(*sends)
        assert set(answers) == {(OK, 0.2)}

    play(main)


@pytest.mark.parametrize("flag", ["false", "False", "x"])
def test_a_send_that_does_not_want_to_wait(play, flag):
    async def main(stage, client):
        await client.send()
        assert await timed(client.send(properties=f"UNIQ_KEY\1K1\2WAIT\1{flag}\2")) == (OK, 0.0)

    play(main)


@pytest.mark.parametrize("acks", [0, 1])
def test_in_sync_replicas_of_one_waits_for_no_slave(play, acks):
    """The default of RocketMQ 5.x."""

    async def main(stage, client):
        assert await timed(client.send()) == (OK, 0.0)

    play(main, in_sync_replicas=acks)


def test_three_replicas(play):
    async def main(stage, client):
        slave(stage)
        await asyncio.sleep(1)
        assert await timed(client.send()) == (TIMEOUT, 1.0)
        slave(stage)
        await asyncio.sleep(1)
        assert await timed(client.send()) == (OK, 0.2)

    play(main, in_sync_replicas=3, slave_timeout=1000)


def test_an_async_master_does_not_wait_and_replicates(play):
    async def main(stage, client):
        assert await timed(client.send()) == (OK, 0.0)
        one = slave(stage)
        await asyncio.sleep(1)
        assert await timed(client.send()) == (OK, 0.0)
        await asyncio.sleep(1)
        assert one.log == stage.store.read_log(0)

    play(main, store={"broker_role": "ASYNC_MASTER"})


def test_slaves_that_are_too_far_behind(play):
    async def main(stage, client):
        one = slave(stage, reports=False)
        await asyncio.sleep(1)
        assert await timed(client.send(body=bytes(500))) == (TIMEOUT, 3.0)
        assert await timed(client.send(body=bytes(500))) == (NOT_AVAILABLE, 0.0)
        one.report(stage.store.max_phy_offset)
        await asyncio.sleep(1)
        one.reports = True
        assert await timed(client.send(body=bytes(500))) == (OK, 0.2)

    play(main, ha_max_gap_not_in_sync=1000)


def test_a_false_report_acknowledges_nothing(play):
    async def main(stage, client):
        one = slave(stage, reports=False)
        await asyncio.sleep(1)
        one.transport.pause_reading()
        sending = asyncio.ensure_future(timed(client.send()))
        await asyncio.sleep(0.01)
        one.report(stage.store.max_phy_offset + 1)
        assert await sending == (TIMEOUT, 3.0) and one.ended

    play(main)


# ---------------------------------------------------------------------------------------------- flush and replicas


def test_flush_and_replicas_in_parallel(play):
    """The flush takes its step of 10 ms, the slave 200 ms: together they take as long as the slower one."""

    async def main(stage, client):
        slave(stage)
        await asyncio.sleep(1)
        assert await timed(client.send()) == (OK, 0.2)
        assert stage.store.flushed_phy_offset == stage.store.max_phy_offset

    play(main, store={"flush": "sync"})


@pytest.mark.parametrize(("has_slave", "code", "seconds"), [(True, DISK, 2.0), (False, NOT_AVAILABLE, 2.0)])
def test_a_flush_that_takes_too_long(play, monkeypatch, has_slave, code, seconds):
    """The status of the replicas overwrites that of the flush."""

    async def main(stage, client):
        if has_slave:
            slave(stage)
        await asyncio.sleep(1)
        waits = stage.broker.waits._flush
        monkeypatch.setattr(waits, "_answer", lambda: None)
        assert await timed(client.send()) == (code, seconds)
        monkeypatch.undo()

    play(main, store={"flush": "sync", "sync_flush_timeout": 2000})


# ---------------------------------------------------------------------------------------------- others that wait


def test_a_committed_record_does_not_wait(play):
    async def main(stage, client):
        one = slave(stage)
        await asyncio.sleep(1)
        answer = await client.send(properties=HALF)
        half = {
            "producerGroup": "shop",
            "tranStateTableOffset": int(answer.fields["queueOffset"]),
            "msgId": "K1",
            "commitLogOffset": decode_offset_id(answer.fields["msgId"]).phy_offset,
        }
        one.transport.pause_reading()
        end = stage.store.max_phy_offset
        assert await timed(client.call(37, **half, commitOrRollback=8)) == (OK, 0.0)
        assert stage.store.max_phy_offset > end

    play(main)


def test_a_message_that_comes_back_waits(play):
    """If the slaves lack it, the answer is SUCCESS: the client would only store it a second time."""

    async def main(stage, client):
        stage.broker.groups.find("audit")
        one = slave(stage)
        await asyncio.sleep(1)
        answer = await client.send()
        values = {"offset": decode_offset_id(answer.fields["msgId"]).phy_offset, "group": "audit", "delayLevel": 0}
        assert await timed(client.call(36, **values)) == (OK, 0.2)
        one.transport.pause_reading()
        assert await timed(client.call(36, **values)) == (OK, 3.0)
        one.transport.abort()
        await asyncio.sleep(1)
        assert await timed(client.call(36, **values)) == (OK, 0.0)

    play(main)


def test_the_end_answers_what_waits(tmp_path):
    """The last messages still reach a slave that is there."""

    async def main():
        async with scene(tmp_path, delay=(0.0, 0.0), store={"broker_role": "SYNC_MASTER"}) as stage:
            client = stage.client()
            one = slave(stage)
            await asyncio.sleep(1)
            sending = asyncio.ensure_future(client.send())
            await asyncio.sleep(0.01)
        assert (await sending).code == OK and len(one.log) > 100
        assert one.ended

    virtual.run(main())


def test_a_real_broker(tmp_path):
    """Real sockets and threads: the port for slaves is that of haListenPort, and a second broker can't have it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with rocketc.Broker(tmp_path / "one", broker_role="SYNC_MASTER", ha_listen_port=port, **SMALL) as broker:
        assert broker.ha_address == f"127.0.0.1:{port}"
        broker.topics.create("orders")
        with rocketc.client.Producer("shop", broker.name_server) as producer:
            assert producer.send("orders", b"one").status.name == "SLAVE_NOT_AVAILABLE"
            slave = SlaveThread(f"127.0.0.1:{port}")
            wait_until(lambda: producer.send("orders", b"two").status.name == "SEND_OK")
            assert slave.slave.log == broker.store.read_log(0)
            slave.close()
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            rocketc.Broker(tmp_path / "two", ha_listen_port=port, **SMALL).start()


# ---------------------------------------------------------------------------------------------- settings


@pytest.fixture
def play_once(tmp_path):
    """As play, with the compiled path: a change of settings switches it on."""

    def run(main, **how):
        async def whole():
            store = {"broker_role": "SYNC_MASTER"}
            async with scene(tmp_path, delay=(0.0, 0.0), store=store, **how) as stage:
                client = stage.client()
                await client.send(body=b"first", queueId=9999)
                await main(stage, client)

        virtual.run(whole())

    return run


async def update(client, text):
    answer = await client.call(25, text.encode())
    return answer.code, answer.remark


def test_settings_that_tools_change(play_once):
    async def main(stage, client):
        one = slave(stage, reports=False)
        await asyncio.sleep(1)
        assert await timed(client.send()) == (TIMEOUT, 3.0)
        assert await update(client, "slaveTimeout=500") == (0, None)
        assert await timed(client.send()) == (TIMEOUT, 0.5)
        assert await update(client, "haMaxGapNotInSync=10") == (0, None)
        assert await timed(client.send()) == (NOT_AVAILABLE, 0.0)
        assert await update(client, "haSlaveFallbehindMax=1000000") == (0, None)
        assert await timed(client.send()) == (TIMEOUT, 0.5)
        assert await update(client, "inSyncReplicas=1") == (0, None)
        assert await timed(client.send()) == (OK, 0.0)
        assert await update(client, "inSyncReplicas=3") == (0, None)
        assert await timed(client.send()) == (TIMEOUT, 0.5)
        text = "inSyncReplicas=2\nhaSendHeartbeatInterval=1000\nhaTransferBatchSize=100"
        assert await update(client, text) == (0, None)
        one.heartbeats_at.clear()
        await asyncio.sleep(3.5)
        assert len(one.heartbeats_at) == 3
        assert await update(client, "haFlowControlEnable=true\nmaxHaTransferByteInSecond=1000") == (0, None)
        before = len(one.log)
        await client.send(body=bytes(5000))
        await asyncio.sleep(1)
        assert before < len(one.log) < before + 4000
        assert await update(client, "haHousekeepingInterval=2000\nhaFlowControlEnable=false") == (0, None)
        await asyncio.sleep(3)
        assert one.ended

    play_once(main)


@pytest.mark.parametrize("acks", [0, 1])
def test_a_broker_that_did_not_wait_waits_now(play_once, acks):
    async def main(stage, client):
        assert await timed(client.send()) == (OK, 0.0)
        assert await update(client, "inSyncReplicas=2") == (0, None)
        assert await timed(client.send()) == (NOT_AVAILABLE, 0.0)

    play_once(main, in_sync_replicas=acks)


@pytest.mark.parametrize("text", ["haListenPort=20912", "brokerRole=ASYNC_MASTER", "haMasterAddress=10.0.0.1:10912"])
def test_settings_that_need_a_restart(play_once, text):
    async def main(stage, client):
        key = text.partition("=")[0]
        assert await update(client, text) == (Code.NO_PERMISSION, f"Can not update {key}: only a restart does.")

    play_once(main)


@pytest.mark.parametrize("part", ["waits_of", "TableWriter", "TimerService", "NameServers"])
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_broker_that_cannot_be_built_leaves_no_descriptor(tmp_path, monkeypatch, part, flush):
    def fails(*given, **named):
        raise ValueError("wrong")

    async def main():
        monkeypatch.setattr(controller, part, fails)
        config = StoreConfig.of(flush=flush, broker_role="SYNC_MASTER", **SMALL)
        with open_master(tmp_path, config, background=False) as store:
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                with pytest.raises(ValueError, match="wrong"):
                    BrokerController(store, BrokerConfig(), ("127.0.0.1", 10911))
            assert len(os.listdir("/proc/self/fd")) == before

    virtual.run(main())


# ---------------------------------------------------------------------------------------------- tools


def test_the_status_that_tools_get(play):
    async def main(stage, client):
        await client.send()
        slave(stage), slave(stage, start=None)
        await asyncio.sleep(1)
        end = stage.store.max_phy_offset
        found = json.loads((await client.call(907)).body)
        assert (found["master"], found["masterCommitLogMaxOffset"], found["inSyncSlaveNums"]) == (True, end, 1)
        assert found["haConnectionInfo"] == [
            {
                "addr": "two:2",
                "diff": 0,
                "inSync": True,
                "slaveAckOffset": end,
                "transferFromWhere": end,
                "transferredByteInSecond": found["haConnectionInfo"][0]["transferredByteInSecond"],
            },
            {
                "addr": "two:2",
                "diff": end,
                "inSync": False,
                "slaveAckOffset": -1,
                "transferFromWhere": -1,
                "transferredByteInSecond": 0,
            },
        ]

    play(main)
