"""A slave whose master wants signatures: innerClientAuthenticationCredentials, and what happens without it."""

import asyncio
import json
import logging

import pytest
from unit.broker.slaves import play

from rocketc.broker.config import BrokerConfig, broker_properties, read_broker_conf

SECRET = "a long secret"
ACCOUNT = json.dumps({"accessKey": "slaves-account", "secretKey": SECRET})
EXCEPTION = "code 1: org.apache.rocketmq.acl.common.AclException: "


@pytest.fixture
def protected(memory_path):
    """The settings of a master with an account, which is not that of an administrator."""
    home = memory_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf/plain_acl.yml").write_text(f'accounts: [{{accessKey: slaves-account, secretKey: "{SECRET}"}}]\n')
    return {"acl_enable": True, "rocketmq_home": str(home)}


def test_a_slave_signs_its_requests_to_its_master(memory_path, protected, caplog):
    async def test(stage, cluster):
        await cluster.put(count=3)
        cluster.master.offsets.commit("audit", "orders", 0, 2)
        await asyncio.sleep(25)
        assert stage.store.max_phy_offset == cluster.log.max_phy_offset > 0
        assert stage.broker.topics.get("orders") is not None
        assert stage.broker.offsets.query("audit", "orders", 0) == 2
        assert {21, 201, 43, 45, 60, 61} <= set(stage.broker.slave.tables.synced)

    play(memory_path, test, of_master=protected, inner_client_authentication_credentials=ACCOUNT)
    assert [one.message for one in caplog.records if "are not taken over: " in one.message] == []


@pytest.mark.parametrize(
    ("account", "says"),
    [
        ("", "No accessKey is configured"),
        (ACCOUNT.replace(SECRET, "another secret"), "Check signature failed for accessKey=slaves-account"),
        (ACCOUNT.replace("slaves-account", "nobody11"), "No acl config for nobody11"),
    ],
)
def test_a_slave_that_is_refused_copies_the_log_without_the_tables(memory_path, protected, caplog, account, says):
    async def test(stage, cluster):
        await cluster.put(count=3)
        await asyncio.sleep(25)
        assert stage.store.max_phy_offset == cluster.log.max_phy_offset > 0  # the HA port does not know accounts
        assert stage.broker.topics.get("orders") is None and stage.broker.slave.tables.synced == {}

    with caplog.at_level(logging.WARNING, "rocketc.broker"):
        play(memory_path, test, of_master=protected, inner_client_authentication_credentials=account)
    said = [one.message for one in caplog.records if "not taken over" in one.message]
    assert f"topics of the master 10.0.0.1:10911 are not taken over: {EXCEPTION}{says}; it is tried again" in said
    assert len(said) == len(set(said)) and "secret" not in " ".join(said)


def test_the_account_is_in_broker_conf_and_shown_nowhere(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(f"brokerRole=SLAVE\nbrokerId=1\ninnerClientAuthenticationCredentials={ACCOUNT}\n")
    fields, _, unused = read_broker_conf(path)
    config = BrokerConfig(**fields)
    assert unused == [] and config.credentials.secret_key == SECRET
    assert SECRET not in repr(config)
    assert "innerClientAuthenticationCredentials" not in broker_properties(config)
    assert BrokerConfig().credentials is None
    token = json.dumps({"accessKey": "a", "secretKey": "b", "securityToken": "c"})
    assert BrokerConfig(inner_client_authentication_credentials=token).credentials.security_token == "c"


@pytest.mark.parametrize(
    "text",
    ["secret", "{}", "[]", '{"accessKey": "a"}', '{"accessKey": "a", "secretKey": ""}', '"secret"', "null", "1",
     '{"accessKey": 7, "secretKey": "secret"}', '{"accessKey": "", "secretKey": "secret"}', "[" * 100_000],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_wrong_account_is_refused_at_the_start(tmp_path, text):
    says = 'innerClientAuthenticationCredentials: it must be like {"accessKey": "NAME", "secretKey": "SECRET"}'
    with pytest.raises(ValueError) as found:
        BrokerConfig(inner_client_authentication_credentials=text)
    assert str(found.value) == says
    path = tmp_path / "broker.conf"
    path.write_text(f"innerClientAuthenticationCredentials={text}\n")
    with pytest.raises(ValueError) as found:
        read_broker_conf(path)
    assert str(found.value) == f"{path}: {says}"
