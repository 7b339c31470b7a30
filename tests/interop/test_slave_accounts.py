"""Slaves of protected masters: ours at RocketMQ's masters with accounts, and one of RocketMQ at ours."""

import json

import pytest
from interop import scenarios
from interop.our_broker import wait_for
from interop.test_security import acl_2, make_home
from interop.test_slave import DELAYS, SIZES, Broker, begin_slave
from support.command import rocketc as command
from support.ports import free_port

import rocketc
from rocketc.client import Producer
from rocketc.client.security import Credentials

pytestmark = pytest.mark.long

NAME, SECRET = "rocketmq", "12345678"
ACCOUNT = Credentials(NAME, SECRET)
INNER = json.dumps({"accessKey": NAME, "secretKey": SECRET})
WRONG = json.dumps({"accessKey": NAME, "secretKey": "another secret"})
ACL_1 = f'accounts: [{{accessKey: {NAME}, secretKey: "{SECRET}", admin: true}}]\n'


@pytest.fixture(params=["4.9.7", "5.3.3"])
def master(request, begin, tmp_path):
    """A master of RocketMQ whose broker wants signatures, with messages in the topic orders; and its name server."""
    release, folder = request.param, tmp_path / "java"
    names = begin(scenarios.JavaCluster, release, tmp_path / "names", brokerPort="none")
    make_home(folder, ACL_1)
    settings = {"broker.aclEnable": "true"} if release < "5" else acl_2()
    there = {"namePort": "none", "nameServer": names.name_server, "store.haListenPort": free_port()}
    cluster = begin(scenarios.JavaCluster, release, folder, **there, **settings)
    cluster.ha_address = f"127.0.0.1:{there['store.haListenPort']}"
    send(names.name_server)
    return cluster


def send(name_server):
    with Producer("shop", name_server, credentials=ACCOUNT, retry_times_when_send_failed=10) as producer:
        for n in range(10):
            producer.send("orders", b"m%d" % n)


def has_topic(broker):
    return "orders" in broker.table(21)["topicConfigTable"]


def test_our_slave_signs(master, begin, tmp_path):
    process = begin_slave(begin, tmp_path / "slave", master.name_server, inner_client_authentication_credentials=INNER)
    slave = Broker(process.address)
    assert wait_for(lambda: slave.end() > 0)
    assert wait_for(lambda: has_topic(slave), 40)
    slave.close()
    process.end()


@pytest.mark.parametrize("account", [None, WRONG])
def test_our_slave_without_the_right_account_copies_the_log_alone(master, begin, tmp_path, account):
    more = {} if account is None else {"inner_client_authentication_credentials": account}
    process = begin_slave(begin, tmp_path / "slave", master.name_server, **more)
    slave = Broker(process.address)
    assert wait_for(lambda: slave.end() > 0)
    assert wait_for(lambda: has_topic(slave), 3) is False
    slave.close()
    process.kill()
    assert "topics of the master" in process.errors and "are not taken over: code 1" in process.errors
    assert "secret" not in process.errors


def test_replicate_signs(master, tmp_path):
    words = ["replicate", master.ha_address, tmp_path / "copy", "--broker", master.broker, "--from", "start"]
    words += ["--then", "verify"]
    done = command(*words, "--access-key", NAME, env={"ROCKETC_SECRET_KEY": SECRET}, timeout=60)
    assert done.returncode == 0 and b"damage   none" in done.stdout and b"does not say" not in done.stderr
    assert len([one for one in rocketc.scan(tmp_path / "copy") if one.topic == "orders"]) == 10
    words[2] = tmp_path / "other"
    done = command(*words, timeout=60)
    says = (b"No accessKey is configured", b"username cannot be null.")
    assert done.returncode == 3 and any(one in done.stderr for one in says)
    assert not (tmp_path / "other").exists()


def test_a_slave_of_rocketmq_5_signs_at_our_master(begin, tmp_path):
    home = make_home(tmp_path / "home", ACL_1)
    settings = {**SIZES, "message_delay_level": DELAYS, "broker_name": "broker-a", "acl_enable": True}
    with rocketc.Broker(rocketmq_home=str(home), **settings) as broker:
        send(broker.name_server)
        there = {"namePort": "none", "nameServer": broker.name_server, "broker.brokerId": 1}
        there |= {"store.brokerRole": "SLAVE", "store.haSendHeartbeatInterval": 500}
        signs = ("auth.authenticationMetadataProvider", "auth.innerClientAuthenticationCredentials")
        there |= {name: acl_2()[name] for name in signs}
        slave = Broker(begin(scenarios.JavaCluster, "5.3.3", tmp_path / "slave", **there).broker)
        assert wait_for(lambda: slave.end() > 0)
        assert wait_for(lambda: has_topic(slave), 90)  # it asks about once a minute
        slave.close()
