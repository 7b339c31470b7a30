"""A broker with the role SLAVE, with its real store, on virtual time: what it refuses, serves, copies, leaves out."""

import asyncio
import json
import logging
import random

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, SMALL
from unit.broker.slaves import HA, MASTER, SLAVE, play

import rocketc
from rocketc.remoting.addresses import join_address
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer
from rocketc.tables.table_file import read_table

BUSY = "[REJECTREQUEST]system busy, start flow control for a while"


def fill(root, count=3, topic="orders"):
    """Make the log of a slave in a folder, as if it had been copied."""
    with rocketc.open(root / "slave", background=False, clock=lambda: EPOCH, **SMALL) as store:
        store.create_topic(topic)
        store.create_topic("%RETRY%TOOLS_CONSUMER", queues=1)
        for n in range(count):
            store.put(topic, b"m%d" % n)


def alone(root, test, *, store=None, **config):
    """A slave that does not find its master, with three messages of topic orders."""
    fill(root)
    config.setdefault("slave_read_enable", True)
    play(root, lambda stage, cluster: test(stage, stage.client()), with_master=False, store=store, **config)


# ---------------------------------------------------------------- what it refuses


@pytest.mark.parametrize("code", [10, 310, 320])
@pytest.mark.parametrize("vip", [False, True])
def test_sends_are_refused(memory_path, code, vip):
    async def test(stage, client):
        end = stage.store.max_phy_offset
        for topic in ("orders", "new", "%RETRY%audit"):
            answer = await stage.client(vip=vip).send(topic=topic, code=code)
            assert (answer.code, answer.remark) == (Code.SYSTEM_BUSY, BUSY)
        assert stage.store.max_phy_offset == end and stage.broker.topics.get("new") is None

    alone(memory_path, test)


def test_what_else_a_master_does(memory_path):
    async def test(stage, client):
        end = stage.store.max_phy_offset
        for group in ("audit", "TOOLS_CONSUMER"):
            back = await client.call(36, offset=0, group=group, delayLevel=0, originTopic="orders")
            assert (back.code, back.remark) == (Code.SYSTEM_BUSY, BUSY)
        ended = await client.call(
            37, producerGroup="p", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8, msgId="x"
        )
        assert ended.code == Code.SLAVE_NOT_AVAILABLE
        reset = await client.call(222, topic="orders", group="audit", timestamp=-1, isForce=True)
        assert (reset.code, reset.remark) == (Code.SYSTEM_ERROR, "Can not reset offset in slave broker")
        made = {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for code, values, body in (
            (17, made, b""),
            (18, {}, b'{"topicConfigList":[]}'),
            (215, {"topic": "orders"}, b""),
            (200, {}, b'{"groupName":"g"}'),
            (225, {}, b'{"groupConfigList":[]}'),
            (207, {"groupName": "TOOLS_CONSUMER"}, b""),
        ):
            answer = await client.call(code, body, **values)
            assert answer.code == Code.SYSTEM_ERROR and "please execute it from master broker" in answer.remark
        for code in (324, 325):
            assert (await client.send(code=code)).code != 0
        resumed = await client.call(323, msgId="7F000001" + "00002A9F" + "0" * 16)
        assert resumed.code == Code.SYSTEM_ERROR
        assert stage.store.max_phy_offset == end and stage.broker.topics.get("orders") is not None
        assert "TOOLS_CONSUMER" in stage.broker.groups

    alone(memory_path, test)


def test_recalls_are_refused(memory_path):
    async def test(stage, client):
        answer = await client.call(370, topic="orders", recallHandle="x")
        assert (answer.code, answer.remark) == (
            Code.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available",
        )  # fmt: skip

    alone(memory_path, test, recall_message_enable=True)


def test_changed_settings_do_not_let_it_accept_messages(memory_path):
    async def test(stage, client):
        end = stage.store.max_phy_offset
        assert (await client.call(25, b"slaveReadEnable=false")).code == 0
        assert (await client.send()).code == Code.SYSTEM_BUSY and stage.store.max_phy_offset == end

    alone(memory_path, test)


def test_other_times_of_the_connection(memory_path):
    """They are in force from the next connection on."""

    async def main(stage, cluster):
        await asyncio.sleep(1)
        text = b"haSendHeartbeatInterval=1000\nhaHousekeepingInterval=7000"
        assert (await stage.client().call(25, text)).code == 0
        copy = stage.broker.slave.copy
        assert (copy.heartbeat, copy.housekeeping) == (1.0, 7.0)
        [ha] = cluster.ha
        ha.transport.abort()
        await asyncio.sleep(6)
        del cluster.reports[:]
        await asyncio.sleep(3.5)
        assert 3 <= len(cluster.reports) <= 4

    play(memory_path, main)


def test_nothing_is_put_by_itself(memory_path):
    """Delayed, timed and half messages wait for a master."""
    with rocketc.open(memory_path / "slave", background=False, clock=lambda: EPOCH, **SMALL) as store:
        store.put("SCHEDULE_TOPIC_XXXX", b"x", queue_id=0, properties={"REAL_TOPIC": "orders", "REAL_QID": "0"})
        store.put(
            "rmq_sys_wheel_timer",
            b"x",
            properties={"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": str(EPOCH + 3000)},
        )
        store.put("RMQ_SYS_TRANS_HALF_TOPIC", b"x", properties={"REAL_TOPIC": "orders", "REAL_QID": "0"})

    async def test(stage, cluster):
        end = stage.store.max_phy_offset
        await asyncio.sleep(65)
        assert stage.store.max_phy_offset == end

    play(memory_path, test, with_master=False)
    assert not (memory_path / "slave" / "timerwheel").exists()
    assert not (memory_path / "slave" / "config" / "delayOffset.json").exists()


# ---------------------------------------------------------------- what it serves


def test_pulls_are_refused_unless_slave_read_enable_is_on(memory_path):
    """As 5.3.3 does; a slave of 4.9.7 serves them in both cases."""

    async def test(stage, client):
        lite = {"consumerGroup": "audit", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
        lite |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
        for answer in (await client.call(361, **lite), *[await client.pull(offset=offset) for offset in (0, 3, 9)]):
            assert (answer.code, answer.remark) == (Code.SYSTEM_BUSY, BUSY)
        assert (await client.call(25, b"slaveReadEnable=true")).code == 0
        assert (await client.pull()).code == 0
        assert (await client.call(25, b"slaveReadEnable=false")).code == 0
        assert (await client.pull()).code == Code.SYSTEM_BUSY

    alone(memory_path, test, slave_read_enable=False)


@pytest.mark.parametrize("check", [False, True])
def test_offsets_outside_of_the_queue(memory_path, check):
    """As 5.3.3 and 4.9.7: they are not corrected, because the rest of the queue may come from the master."""

    async def test(stage, client):
        found = {}
        for offset in (0, 3, 4, 100, -1):
            answer = await client.pull(offset=offset)
            found[offset] = (Code(answer.code).name, int(answer.fields["nextBeginOffset"]))
            assert (answer.fields["suggestWhichBrokerId"], answer.fields["maxOffset"]) == ("0", "3")
        empty = await client.pull(topic="TBW102", offset=7)
        found["empty"] = (Code(empty.code).name, int(empty.fields["nextBeginOffset"]))
        moved = "PULL_OFFSET_MOVED" if check else "PULL_RETRY_IMMEDIATELY"
        assert found == {
            0: ("SUCCESS", 3),
            3: ("PULL_NOT_FOUND", 3),
            4: (moved, 3 if check else 4),
            100: (moved, 3 if check else 100),
            -1: (moved, 0 if check else -1),
            "empty": (moved, 0 if check else 7),
        }

    alone(memory_path, test, store={"offset_check_in_slave": check})


def test_offsets_of_groups_are_committed(memory_path):
    async def test(stage, client):
        where = {"consumerGroup": "TOOLS_CONSUMER", "topic": "orders", "queueId": 0}
        assert (await client.call(15, **where, commitOffset=2)).code == 0
        assert (await client.call(14, **where)).fields["offset"] == "2"
        await client.pull(group="TOOLS_CONSUMER", sysFlag=5, commitOffset=3)
        assert (await client.call(14, **where)).fields["offset"] == "3"

    alone(memory_path, test)
    assert read_table(memory_path / "slave/config/consumerOffset.json").data["offsetTable"] == {
        "orders@TOOLS_CONSUMER": {0: 3}
    }


def test_the_state_of_the_copy(memory_path):
    async def test(stage, cluster):
        await cluster.put(count=5)
        await asyncio.sleep(3)
        found = json.loads((await stage.client().call(907)).body)
        client = found.pop("haClientRuntimeInfo")
        assert found == {
            "haConnectionInfo": [], "inSyncSlaveNums": 0, "master": False, "masterCommitLogMaxOffset": 0,
        }  # fmt: skip
        assert client["maxOffset"] == stage.store.max_phy_offset == cluster.log.max_phy_offset
        assert client["masterAddr"] == join_address(*HA)
        assert stage.now() - 10_000 < client["lastReadTimestamp"] <= stage.now()
        assert client.keys() == {
            "lastReadTimestamp", "lastWriteTimestamp", "masterAddr", "masterFlushOffset", "maxOffset",
            "transferredByteInSecond",
        }  # fmt: skip
        table = json.loads((await stage.client().call(28)).body)["table"]
        assert table["commitLogMaxOffset"] == str(cluster.log.max_phy_offset)

    play(memory_path, test)


# ---------------------------------------------------------------- at its master


def test_log_and_tables_come_from_the_master(memory_path):
    async def test(stage, cluster):
        assert cluster.brokers() == {0: join_address(*MASTER), 1: join_address(*SLAVE)}
        await cluster.put(count=5)
        cluster.master.offsets.commit("audit", "orders", 0, 2)
        cluster.master.groups.find("audit")
        await asyncio.sleep(11)
        assert stage.store.read_raw(0) == cluster.log.read_raw(0)
        assert dict(stage.broker.topics.table) == dict(cluster.master.topics.table)
        assert dict(stage.broker.groups.table) == dict(cluster.master.groups.table)
        assert stage.broker.offsets.query("audit", "orders", 0) == 2
        pulled = await stage.client().pull()
        assert pulled.code == 0 and b"m4" in pulled.body
        assert cluster.reports[-1] == cluster.log.max_phy_offset
        assert stage.broker.slave.tables.master == join_address(*MASTER)
        assert stage.broker.slave.copy.master == HA

    play(memory_path, test, slave_read_enable=True)


def test_a_held_pull_gets_what_comes_from_the_master(memory_path):
    async def test(stage, cluster):
        await cluster.put()
        await asyncio.sleep(11)
        held = asyncio.ensure_future(stage.client().pull(offset=1, wait=10_000))
        await asyncio.sleep(1)
        assert not held.done()
        began = asyncio.get_running_loop().time()
        await cluster.put()
        answer = await held
        assert answer.code == 0 and asyncio.get_running_loop().time() - began < 1

    play(memory_path, test, slave_read_enable=True)


def test_the_master_ends_and_comes_back(memory_path, caplog):
    async def test(stage, cluster):
        await cluster.put(count=2)
        await asyncio.sleep(11)
        await cluster.stop_master()
        await asyncio.sleep(60)
        assert cluster.brokers() == {1: join_address(*SLAVE)}
        assert stage.broker.slave.tables.master is None
        pulled = await stage.client().pull()
        assert pulled.code == 0 and pulled.fields["maxOffset"] == "2"
        cluster.is_up = dict.fromkeys(cluster.is_up, True)
        await cluster.start_master(stage.now)
        await asyncio.sleep(61)
        await cluster.put(count=1)
        await asyncio.sleep(11)
        assert stage.store.max_phy_offset == cluster.log.max_phy_offset
        assert stage.broker.slave.tables.master == join_address(*MASTER)

    play(memory_path, test, slave_read_enable=True)


def test_the_address_in_the_settings_wins(memory_path):
    async def test(stage, cluster):
        stage.broker.slave.registered({"masterAddr": "10.0.0.7:10911", "haServerAddr": "10.0.0.7:10912"})
        assert stage.broker.slave.copy.master == HA
        assert stage.broker.slave.tables.master == "10.0.0.7:10911"

    play(memory_path, test, ha_master_address=join_address(*HA))


def test_without_a_master_it_waits(memory_path):
    async def test(stage, client):
        assert stage.broker.slave.copy.master is None and stage.broker.slave.tables.master is None
        assert (
            stage.broker.slave.shown(stage.broker.config) == "slave 1 of broker-a: no name server knows its master yet"
        )
        await asyncio.sleep(100)
        assert (await client.pull()).code == 0

    alone(memory_path, test)


# ---------------------------------------------------------------- what name servers say


class FakeCopy:
    """Instead of ha.slave.Slave."""

    def __init__(self):
        self.master, self.last_read, self.last_write, self.position, self.received_bytes = None, None, None, 0, 0
        self.error = None
        self.runs = 0

    def change_master(self, master):
        self.master = master

    async def run(self):
        self.runs += 1
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


def told(**values):
    return {name: value for name, value in values.items() if value is not None}


@pytest.mark.parametrize(
    ("answer", "tables", "copy"),
    [
        ({}, None, None),
        ({"masterAddr": ""}, None, None),
        ({"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}, "10.0.0.1:10911", HA),
        ({"masterAddr": "10.0.0.1:10911"}, "10.0.0.1:10911", None),
        ({"masterAddr": "[::1]:1", "haServerAddr": "[::1]:2"}, "[::1]:1", ("::1", 2)),
        ({"masterAddr": "127.0.0.1:10911", "haServerAddr": "127.0.0.1:10912"}, None, None),  # itself
        ({"masterAddr": "nowhere", "haServerAddr": "10.0.0.1:10912"}, None, None),
        ({"masterAddr": "10.0.0.1:10911", "haServerAddr": "x"}, None, None),
        ({"haServerAddr": "10.0.0.1:10912"}, None, None),
    ],
)
def test_answers_of_name_servers(memory_path, answer, tables, copy):
    async def test(stage, client):
        slave = stage.broker.slave
        slave.copy = FakeCopy()
        slave.registered(answer)
        assert (slave.tables.master, slave.copy.master) == (tables, copy)

    alone(memory_path, test)


def test_a_master_that_ended_is_not_forgotten_by_the_copy(memory_path):
    async def test(stage, client):
        slave = stage.broker.slave
        slave.copy = FakeCopy()
        slave.registered({"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"})
        slave.registered({})
        assert (slave.tables.master, slave.copy.master) == (None, HA)

    alone(memory_path, test)


# ---------------------------------------------------------------- logs that differ


def test_another_log_stops_replication_and_reads_are_served(memory_path, caplog):
    from rocketc.errors import ReplicaError

    async def test(stage, client):
        slave = stage.broker.slave
        slave.copy = FakeCopy()
        slave.copy.error = ReplicaError("the master has another log: it differs at 7", 7)
        running = asyncio.ensure_future(slave.replicate())
        await asyncio.sleep(100)
        assert slave.copy.runs == 1 and slave.fault == "the master has another log: it differs at 7"
        [line] = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert line.getMessage().startswith(
            "replication has stopped: the master has another log: it differs at 7; see "
        )
        assert (await client.pull()).code == 0
        assert json.loads((await client.call(28)).body)["table"]["replicationFault"] == slave.fault
        slave.copy.error = None
        slave.registered({"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"})
        await asyncio.sleep(1)
        assert slave.copy.runs == 2 and slave.fault is None
        running.cancel()

    alone(memory_path, test)


def test_a_master_that_has_less_is_tried_again(memory_path):
    from rocketc.errors import ReplicaError

    async def test(stage, client):
        slave = stage.broker.slave
        slave.copy = FakeCopy()
        slave.copy.error = ReplicaError("the master sends no bytes", 7, "silent")
        running = asyncio.ensure_future(slave.replicate())
        await asyncio.sleep(100)
        assert slave.copy.runs == 4
        running.cancel()

    alone(memory_path, test)


def test_a_store_that_fails_ends_the_broker(memory_path):
    from rocketc.errors import StoreFailedError

    async def test(stage, client):
        slave = stage.broker.slave
        slave.copy = FakeCopy()
        slave.copy.error = StoreFailedError("the store failed")
        with pytest.raises(StoreFailedError):
            await slave.replicate()

    alone(memory_path, test)


def test_an_answer_of_a_registration_reaches_the_slave(memory_path):
    """With several name servers, the first one that knows a master counts."""
    from rocketc.broker.name_servers import NameServers
    from rocketc.remoting.server import Server

    class Names:
        codes = (103,)

        def __init__(self, fields, code=0):
            self.answer = Answer(code, fields=fields)

        def process(self, call):
            return self.answer

    async def main():
        servers = {
            "10.0.0.1": Names({"masterAddr": "x"}, code=1), "10.0.0.2": Names({}),
            "10.0.0.3": Names({"masterAddr": "y"}), "10.0.0.4": Names({"masterAddr": "z"}),
        }  # fmt: skip
        chance = random.Random(1)

        def connector(host, port):
            async def connect(factory):
                virtual.link(factory(), Server([servers[host]]).connection(), chance)

            return connect

        seen = []
        identity = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "a:2", "brokerId": 1}
        addresses = [f"{host}:1" for host in servers]
        table = rocketc.tables.topics.Topics(memory_path)
        one = NameServers(addresses, identity, table, chance, connector=connector, registered=seen.append)
        assert await one.register() == 3
        assert [told.get("masterAddr") for told in seen] == ["y"]
        for host in servers:
            servers[host].answer = Answer(1)
        assert await one.register() == 0 and len(seen) == 1
        one.close()

    virtual.run(main())
