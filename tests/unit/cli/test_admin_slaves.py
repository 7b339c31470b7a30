"""rocketc admin lag --slaves: how far slaves are behind, and the offsets of a group on all brokers."""

import asyncio
import contextlib
import json

import pytest
from interop.asking import Asking
from unit.cli.scripted_server import Server, table

import rocketc
from rocketc.cli.admin_slaves import show_slaves, slave_states
from rocketc.client.cluster_state import BrokerState, Replica
from rocketc.client.loop_thread import LoopThread
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.remoting.command import Command


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A master, and a slave that can't copy its log: no one listens at its HA address."""
    root = tmp_path_factory.mktemp("slaves")
    slave = {"broker_role": "SLAVE", "broker_id": 1, "clean_resource_interval": 0}
    with rocketc.Broker(root / "master", clean_resource_interval=0) as master:
        master.topics.create("orders", 1)
        master.store.put("orders", b"hello")
        with rocketc.Broker(
            root / "slave", namesrv_addr=master.name_server, ha_master_address="127.0.0.1:1", **slave
        ) as other:
            yield master, other


def test_a_slave_without_the_log(cluster, run):
    master, slave = cluster
    code, out, err = run("admin", "lag", "--slaves", "-n", master.name_server)
    end = f"{master.store.max_phy_offset}"
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines() if line]
    assert lines[0] == ["broker", "id", "address", "log", "begins", "log", "ends", "behind"]
    assert lines[1] == ["broker-a", "0", master.address, "0", end, "-"]
    assert lines[2] == ["broker-a", "1", slave.address, "0", "0", end]
    code, out, err = run("admin", "lag", "--slaves", "--json", "-n", master.name_server)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["replicas"] == [] and [one["behind"] for one in found["brokers"]] == [None, int(end)]
    assert found["brokers"][1] == {
        "broker": "broker-a", "brokerId": 1, "address": slave.address, "fault": None, "logStart": 0, "logEnd": 0,
        "behind": int(end), "replicationFault": None,
    }  # fmt: skip


def test_the_offsets_of_a_group_on_both(cluster, run):
    master, _ = cluster
    asking = Asking(master.address)
    beat = {"clientID": "c1", "consumerDataSet": [{"groupName": "audit", "subscriptionDataSet": []}]}
    assert asking.ask("HEART_BEAT", beat)[0] == 0
    where = {"consumerGroup": "audit", "topic": "orders", "queueId": 0}
    assert asking.ask("UPDATE_CONSUMER_OFFSET", **where, commitOffset=1)[0] == 0
    asking.close()
    code, out, err = run("admin", "lag", "audit", "--slaves", "--json", "-n", master.name_server)
    assert (code, err) == (0, "")
    [row] = [one for one in json.loads(out)["queues"] if one["topic"] == "orders"]
    assert row == {
        "group": "audit", "topic": "orders", "broker": "broker-a", "queueId": 0, "brokerId": 0, "consumerOffset": 1,
        "maxOffset": 1,
    }  # fmt: skip
    code, out, err = run("admin", "lag", "audit", "--slaves", "-n", master.name_server)
    assert code == 0 and out.splitlines()[0].split()[:3] == ["group", "topic", "broker"]
    assert run("admin", "lag", "other", "--slaves", "-n", master.name_server) == (
        1, "", "rocketc: the group 'other' has consumed nothing\n",
    )  # fmt: skip


def state(broker_id, start=0, end=100, fault=None, name="broker-a", **other):
    runtime = {} if fault else {"commitLogMinOffset": str(start), "commitLogMaxOffset": str(end), **other}
    return BrokerState(name, "C", broker_id, f"10.0.0.{broker_id}:10911", fault, runtime)


@pytest.mark.parametrize(
    ("brokers", "behind", "says", "code"),
    [
        ([state(0), state(1, end=40)], ["-", "60"], "", 0),
        (
            [state(0), state(1, end=120)], ["-", "log"],
            "rocketc: broker-a 10.0.0.1:10911: another log: it ends after its master's, at 100; see "
            "docs/howto/slaves.md for what to do\n", 1,
        ),
        (
            [state(0), state(1, end=40, replicationFault="the master sends a damaged record")], ["-", "stopped"],
            "rocketc: broker-a 10.0.0.1:10911: replication has stopped: the master sends a damaged record; see "
            "docs/howto/slaves.md for what to do\n", 1,
        ),
        ([state(1, end=40), state(2, end=50)], ["?", "?"], "rocketc: broker-a: no master is registered\n", 0),
        ([state(0, fault="gone"), state(1)], ["-", "?"], "rocketc: broker-a 10.0.0.0:10911: gone\n", 3),
        ([state(0), state(1, fault="gone")], ["-", "?"], "rocketc: broker-a 10.0.0.1:10911: gone\n", 3),
        ([state(0, end="x"), state(1)], ["-", "?"], "", 0),
    ],
)  # fmt: skip
def test_states(capsys, brokers, behind, says, code):
    assert show_slaves((brokers, {}), False) == code
    out, err = capsys.readouterr()
    assert [line.split()[-1] for line in out.splitlines()[1:]][: len(brokers)] == behind and err == says


@pytest.mark.parametrize(("again", "code"), [(130, 0), (110, 1)])
def test_a_slave_that_was_asked_later_than_its_master(capsys, again, code):
    """It may have what the master got meanwhile. The master has at least as much, if the slave has the same log."""

    class Asked:
        ends = iter([100, again])

        async def brokers(self):
            return [state(0, end=next(self.ends)), state(1, end=120)]

        async def replicas(self):
            return {}

    assert show_slaves(asyncio.run(slave_states(Asked())), True) == code
    found = json.loads(capsys.readouterr().out)["brokers"][1]
    assert (found["behind"], found["replicationFault"] is None) == ((10, True) if code == 0 else (None, False))


def test_replicas_of_a_master(capsys):
    replicas = {"broker-a": [Replica("10.0.0.2:40000", 90, 10, True, 2048), Replica("10.0.0.3:1", 0, 100, False, 0)]}
    assert show_slaves(([state(0)], replicas), False) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-2:]]
    assert rows == [
        ["broker-a", "10.0.0.2:40000", "90", "10", "yes", "2,048"],
        ["broker-a", "10.0.0.3:1", "0", "100", "no", "0"],
    ]
    assert show_slaves(([state(0)], replicas), True) == 0
    assert json.loads(capsys.readouterr().out)["replicas"][0] == {
        "broker": "broker-a", "address": "10.0.0.2:40000", "acknowledged": 90, "behind": 10, "inSync": True,
        "bytesPerSecond": 2048,
    }  # fmt: skip


HA = {"addr": "10.0.0.2:40000", "diff": 10, "inSync": True, "slaveAckOffset": 90, "transferFromWhere": 90,
      "transferredByteInSecond": 12}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "rows"),
    [
        (Command(0, body=json.dumps({"haConnectionInfo": [HA]}).encode()), 1),
        (Command(0, body=b'{"haConnectionInfo":[]}'), 0),
        (Command(0, body=b"{}"), 0),
        (Command(3, remark="request type 907 not supported"), 0),  # 4.9.7
        (Command(0, body=b"x"), 0),
        (Command(0, body=b'{"haConnectionInfo":[{"addr":5}]}'), 0),
        (Command(0, body=b'{"haConnectionInfo":7}'), 0),
    ],
)
def test_answers_of_a_master(run, answer, rows):
    server = Server(lambda code: table() if code == 28 else answer if code == 907 else cluster_of())
    address = server.url.removeprefix("rocketmq://")

    def cluster_of():
        one = {"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": address}}
        return Command(0, body=json.dumps({"brokerAddrTable": {"b": one}, "clusterAddrTable": {"C": ["b"]}}).encode())

    try:
        code, out, _ = run("admin", "lag", "--slaves", "--json", "-n", address)
        assert code == 0 and len(json.loads(out)["replicas"]) == rows
    finally:
        server.close()


def test_the_lag_at_slaves_without_a_master(run, tmp_path):
    """Masters are asked for lags. If there is none, the command does not say that a group has consumed nothing."""

    async def begin():
        return await NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0), clock=lambda: 0).__aenter__()

    slave = {"broker_role": "SLAVE", "broker_id": 1, "ha_master_address": "127.0.0.1:1", "clean_resource_interval": 0}
    with LoopThread() as thread, contextlib.ExitStack() as stack:
        names = thread.run(begin())
        stack.callback(lambda: thread.run(names.__aexit__(None, None, None)))
        stack.enter_context(rocketc.Broker(tmp_path, namesrv_addr=names.address, **slave))
        says = "rocketc: no master of broker-a is registered now: --slaves asks its slaves\n"
        code, _, err = run("admin", "lag", "audit", "-n", names.address)
        assert (code, err) == (1, says)
        code, _, err = run("admin", "lag", "-n", names.address)
        assert (code, err) == (0, says)
