"""The settings of a name server."""

import json

import pytest
from support.native import ROOT

from rocketc.errors import StoreIOError
from rocketc.namesrv.config import NamesrvConfig

GOLDEN = next(
    record["answerBody"]
    for record in map(json.loads, (ROOT / "tests/golden/admin-5.3.3.jsonl").read_text().splitlines())
    if record["code"] == 319
)


def read(tmp_path, text, encoding="iso-8859-1"):
    path = tmp_path / "namesrv.conf"
    path.write_bytes(text.encode(encoding))
    return NamesrvConfig.read(path)


def test_the_settings_of_5_3_3(tmp_path):
    """All names and defaults are those of 5.3.3; its answer to GET_NAMESRV_CONFIG is a file for us."""
    config, without_effect = read(tmp_path, GOLDEN)
    assert config.text() == GOLDEN
    assert {"clusterTest", "serverWorkerThreads"} <= set(without_effect) and "listenPort" not in without_effect
    changed = {"bindAddress", "configStorePath", "kvConfigPath", "listenPort", "orderMessageEnable", "rocketmqHome"}
    theirs = dict(line.split("=", 1) for line in GOLDEN.splitlines())
    ours = dict(line.split("=", 1) for line in NamesrvConfig().text().splitlines())
    assert {name for name in theirs if theirs[name] != ours[name]} == changed


def test_a_file(tmp_path):
    config, without_effect = read(
        tmp_path,
        "# a comment\nlistenPort = 1234\nsupportActingMaster:true\nkvConfigPath=/a,\\\n  /b\nserverWorkerThreads=9\n"
        "listenprot=5\nconfigStorePath=/elsewhere\n",
    )
    assert (config.listen_port, config.support_acting_master, config.kv_config_path) == (1234, True, "/a,/b")
    assert config.config_store_path == "/elsewhere" and config.unused["serverWorkerThreads"] == 9
    assert without_effect == ["serverWorkerThreads", "listenprot; did you mean listenPort?"]
    assert read(tmp_path, "")[0].config_store_path == str(tmp_path / "namesrv.conf")


@pytest.mark.parametrize(
    "line, allowed",
    [
        ("listenPort=x", "listenPort is 'x'; allowed are whole numbers from 0 to 65535"),
        ("listenPort=65536", "from 0 to 65535"),
        ("listenPort=-1", "from 0 to 65535"),
        ("listenPort=", "from 0 to 65535"),
        ("scanNotActiveBrokerInterval=0", "from 1 to 2147483647"),
        ("serverChannelMaxIdleTimeSeconds=99999999999999", "from 1 to 2147483647"),
        ("orderMessageEnable=yes", "orderMessageEnable is 'yes'; allowed are true and false"),
        ("serverWorkerThreads=many", "serverWorkerThreads is 'many'"),
        ("a=\\u12", "without four hexadecimal digits"),
    ],
)
def test_wrong_values(tmp_path, line, allowed):
    with pytest.raises(ValueError, match=allowed) as caught:
        read(tmp_path, line)
    assert str(caught.value).startswith(f"{tmp_path / 'namesrv.conf'}: ")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"listen_port": 65536}, "listenPort is 65536; allowed are 0 to 65535"),
        ({"listen_port": True}, "listenPort is True; allowed are 0 to 65535"),
        ({"scan_not_active_broker_interval": 0}, "scanNotActiveBrokerInterval is 0; allowed are 1 to 2147483647"),
        ({"order_message_enable": "yes"}, "orderMessageEnable is 'yes'; allowed are True and False"),
        ({"bind_address": 5}, "bindAddress is 5; it must be text"),
    ],
)
def test_wrong_arguments(fields, wrong):
    with pytest.raises(ValueError, match=f"^{wrong}$"):
        NamesrvConfig(**fields)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(StoreIOError) as caught:
        NamesrvConfig.read(tmp_path / "no.conf")
    assert caught.value.filename == str(tmp_path / "no.conf")


def test_changes_at_run_time():
    config = NamesrvConfig()
    changes = {
        "orderMessageEnable": "TRUE", "supportActingMaster": "maybe", "listenPort": "abc", "waitSecondsForService": "7",
        "productEnvName": "test", "serverWorkerThreads": "9", "unknown": "1", "bindAddress": "127.0.0.1",
        "scanNotActiveBrokerInterval": "0",
    }  # fmt: skip
    assert config.update(changes) == [
        "orderMessageEnable", "waitSecondsForService", "productEnvName", "serverWorkerThreads", "bindAddress",
    ]  # fmt: skip
    assert config.order_message_enable and not config.support_acting_master and config.wait_seconds_for_service == 7
    assert (config.listen_port, config.scan_not_active_broker_interval) == (9876, 5000)
    assert config.unused["productEnvName"] == "test"
    assert NamesrvConfig().unused["productEnvName"] == "center"  # the defaults stay


def test_names_that_never_change():
    config = NamesrvConfig(config_black_list="")
    for name in ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"):
        assert config.is_refused({"orderMessageEnable": "true", name: "x"})
    assert not config.is_refused({"orderMessageEnable": "true", "unknown": "x"}) and not config.is_refused({})
    assert NamesrvConfig(config_black_list="a; orderMessageEnable").is_refused({"orderMessageEnable": "true"})


@pytest.mark.parametrize("value", ["C:\\conf\\", "a\\u0041", "订\U0001f600é", " lead", "end ", "a=b:c#d!e", "", "a\nb"])
def test_the_file_is_read_again(tmp_path, value):
    config = NamesrvConfig(rocketmq_home=value, order_message_enable=True, config_store_path="/x")
    again, _ = read(tmp_path, config.file_text(), "ascii")
    assert again.rocketmq_home == value.replace("\n", " ") and again.order_message_enable
    assert len(config.text().splitlines()) == len(NamesrvConfig().text().splitlines())
