"""rocketc admin at two of our brokers, of which one refuses or hangs: what was changed, and what was not."""

import json
import os
import signal

import pytest
from interop.asking import Asking
from support.admin_story import GROUP, heartbeat

import rocketc

TOPIC = "shared"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The broker with the name server. Another one, broker-b, refuses what is not signed."""
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf/plain_acl.yml").write_text(
        "accounts: [{accessKey: operators, secretKey: a-long-secret, admin: true}]"
    )
    with rocketc.Broker(broker_name="broker-a") as first:
        names = {"broker_name": "broker-b", "namesrv_addr": first.name_server}
        with rocketc.Broker(**names, acl_enable=True, rocketmq_home=str(home)) as second:
            for broker in (first, second):
                broker.topics.create(TOPIC, 1)
            yield first, second


@pytest.fixture
def admin(cluster, run):
    """admin(*args): the exit code, stdout and stderr of a command at the cluster; the refusals are REFUSED."""

    def call(*args):
        code, out, err = run("admin", *args, "-n", cluster[0].name_server)
        for name in ("UPDATE_AND_CREATE_TOPIC", "DELETE_TOPIC_IN_BROKER", "GET_TOPIC_CONFIG", *OF_GROUPS):
            fault = f"{cluster[1].address}: {name} was answered with 1 (SYSTEM_ERROR): {EXCEPTION}"
            out, err = out.replace(fault, "REFUSED"), err.replace(fault, "REFUSED")
        return code, out, err

    return call


OF_GROUPS = ("GET_ALL_SUBSCRIPTIONGROUP_CONFIG",)
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
REFUSED = "rocketc: not changed on broker-b: REFUSED\n"
MADE = {"server": "broker-a", "changed": True, "fault": None}
FAILED = {"server": "broker-b", "changed": False, "fault": "REFUSED"}


def test_create_a_topic(admin, cluster):
    assert admin("create-topic", "new", "--queues", 2) == (3, "new: 2 queues on broker-a\n", REFUSED)
    assert "new" in cluster[0].topics
    code, out, err = admin("create-topic", "new", "--json")
    assert (code, err, json.loads(out)) == (3, REFUSED, {"topic": "new", "results": [MADE, FAILED]})
    assert admin("create-topic", "new", "-b", "broker-b") == (3, "", REFUSED)
    code, out, err = admin("create-topic", "new", "-b", "broker-a", "--json")
    assert (code, err, json.loads(out)["results"]) == (0, "", [MADE])


READS = (("topics", TOPIC), ("permissions", TOPIC))


def test_a_broker_that_does_not_answer(run):
    with rocketc.Broker(broker_name="broker-a") as first:
        names = {"broker_name": "broker-b", "namesrv_addr": first.name_server}
        with rocketc.Broker(**names, process=True) as second:
            first.topics.create(TOPIC, 1)
            second.topics.create(TOPIC, 1)
            os.kill(second._engine.pid, signal.SIGSTOP)
            try:
                ended = run("admin", "create-topic", "new", "--timeout", 1, "-n", first.name_server)
                for command in READS:
                    code, out, err = run("admin", *command, "--timeout", 0.5, "-n", first.name_server)
                    assert code == 3 and f"left out, not reached: {second.address}: no answer in time\n" in err
                    assert "broker-a" in out if TOPIC in command else out
                reading = run("admin", "topics", "-n", first.name_server, "--timeout", 0.5, "--json")
            finally:
                os.kill(second._engine.pid, signal.SIGCONT)
            assert [one["topic"] for one in json.loads(reading[1])["topics"]] == ["new", TOPIC]
            why = f"{second.address}: no answer in time; the request may have been carried out"
        assert ended == (3, "new: 8 queues on broker-a\n", f"rocketc: not changed on broker-b: {why}\n")


def test_permissions(admin, cluster):
    assert admin("permissions", TOPIC, "--set", "r") == (3, "broker    permission\nbroker-a  r\n", REFUSED)
    assert cluster[0].topics[TOPIC].perm == 4
    code, out, err = admin("permissions", TOPIC, "--set", "rw", "--json")
    assert (code, err) == (3, REFUSED) and json.loads(out)["permissions"] == {"broker-a": 6}
    assert json.loads(out)["results"] == [MADE, FAILED]


def test_reset_a_group(admin, cluster):
    client = Asking(cluster[0].address)
    assert client.ask("HEART_BEAT", heartbeat(TOPIC))[0] == 0
    client.close()
    plan = "broker    queue  old offset  new offset  messages\nbroker-a      0           0           0  -\n"
    code, out, err = admin("reset-offset", GROUP, TOPIC, "--to", "earliest", "--dry-run")
    assert (code, out) == (3, plan) and err == REFUSED.replace("not changed on", "no plan for")
    code, out, err = admin("reset-offset", GROUP, TOPIC, "--to", "earliest", "--yes", "--json")
    assert (code, err) == (3, REFUSED) and [one["newOffset"] for one in json.loads(out)["queues"]] == [0]
    assert json.loads(out)["results"] == [MADE, FAILED]


def test_a_group_that_no_broker_has(cluster, run):
    with rocketc.Broker(broker_name="alone") as broker:
        broker.topics.create(TOPIC)
        for how in ("--dry-run", "--yes"):
            code, out, err = run(
                "admin", "reset-offset", "none", TOPIC, "--to", "latest", how, "-n", broker.name_server
            )
            assert (code, out, err) == (1, "", f"rocketc: {broker.name_server}: group 'none' not found on alone\n")


def test_stop_sends_in_two_name_servers(admin, cluster, run):
    both = f"{cluster[0].name_server};127.0.0.1:1"
    code, out, err = run("admin", "permissions", "-b", "broker-a", "--set", "r", "-n", both)
    assert (code, err) == (3, "rocketc: not changed on 127.0.0.1:1: no connection: Connection refused\n")
    assert out.startswith("broker-a: ") and out.endswith(" topics changed in the name server\n")
    code, out, err = admin("permissions", "-b", "broker-a", "--set", "rw", "--json")
    results = [{"server": cluster[0].name_server, "changed": True, "fault": None}]
    assert (code, err, json.loads(out)["results"]) == (0, "", results)
    assert admin("permissions", "-b", "nothing", "--set", "r") == (
        1,
        "nothing: 0 topics changed in the name server\n",
        "",
    )


def test_delete_a_topic(admin, cluster):
    """The last test: it can be deleted again until all brokers have done it."""
    more = f"rocketc: name servers still know {TOPIC}; delete it again when all servers answer\n"
    for _ in range(2):
        assert admin("delete-topic", TOPIC, "--yes") == (3, f"{TOPIC}: deleted on broker-a\n", REFUSED + more)
        assert TOPIC not in cluster[0].topics
    code, out, err = admin("delete-topic", TOPIC, "--yes", "--json")
    assert (code, err) == (3, REFUSED + more)
    assert json.loads(out)["results"] == [MADE, FAILED]
