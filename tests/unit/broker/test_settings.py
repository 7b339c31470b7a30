"""The keywords of a broker."""

import dataclasses
from typing import get_type_hints

import pytest

from rocketc.broker.config import BrokerConfig, read_broker_conf
from rocketc.broker.settings import _ELSEWHERE, TEMPORARY, BrokerFields, split_fields, temporary_config
from rocketc.config import StoreConfig


def names(kind):
    return {field.name for field in dataclasses.fields(kind)}


def test_the_keywords_for_type_checkers_are_the_fields_of_both():
    fields = get_type_hints(BrokerFields)
    assert set(fields) - names(StoreConfig) == names(BrokerConfig) - set(_ELSEWHERE)
    of_broker = get_type_hints(BrokerConfig)
    assert all(fields[name] == of_broker[name] for name in names(BrokerConfig) - set(_ELSEWHERE))


def test_no_field_is_in_both():
    assert names(BrokerConfig) & names(StoreConfig) == set()


def test_every_default_is_a_valid_value():
    fields = {field.name: field.default for field in dataclasses.fields(BrokerConfig) if field.name not in _ELSEWHERE}
    assert split_fields("Broker()", fields) == (fields, {})


@pytest.mark.parametrize("name", TEMPORARY)
def test_a_given_field_is_kept_in_a_temporary_store(name):
    config = StoreConfig()
    assert getattr(temporary_config(config, [name]), name) == getattr(config, name)
    assert getattr(temporary_config(config), name) == TEMPORARY[name]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"listen_port": 65536}, "listenPort is 65536; allowed are 0 to 65535"),
        ({"metrics_prom_exporter_port": -1}, "metricsPromExporterPort is -1; allowed are 0 to 65535"),
        ({"listen_port": 2}, "listenPort is 2; the VIP port is two less, so 3 is the smallest one"),
        ({"listen_port": 65535}, "listenPort is 65535; the port for slaves is the next one: set haListenPort"),
        ({"ha_listen_port": 65536}, "haListenPort is 65536; allowed are 0 to 65535"),
        ({"ha_transfer_batch_size": 0}, "haTransferBatchSize is 0; allowed are 1 to 2147483647"),
        ({"in_sync_replicas": -1}, "inSyncReplicas is -1; allowed are 0 to 2147483647"),
        ({"register_name_server_period": 0}, "registerNameServerPeriod is 0; allowed are 1 to 2147483647"),
        ({"broker_permission": "6"}, "brokerPermission is '6'; allowed are 0 to 2147483647"),
        ({"trace_on": 1}, "traceOn is 1; allowed are True and False"),
        ({"broker_ip1": 5}, "brokerIP1 is 5; it must be text"),
        ({"broker_name": 5}, "brokerName is 5; it must be text"),
    ],
)
def test_wrong_values_name_the_setting(fields, wrong):
    with pytest.raises(ValueError, match=f"^{wrong}$"):
        BrokerConfig(**fields)
    BrokerConfig(broker_ip1=None, start_accept_send_request_time_stamp=-1, broker_id=1 << 40)
    assert BrokerConfig(listen_port=65535, ha_listen_port=3).ha_port == 3


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("haSlaveFallbehindMax=1000", 1000),
        ("haSlaveFallbehindMax=1000\nhaMaxGapNotInSync=2000", 2000),
        ("haMaxGapNotInSync=2000\nhaSlaveFallbehindMax=1000", 2000),
    ],
)
def test_the_key_of_an_older_release(tmp_path, text, gap):
    (tmp_path / "broker.conf").write_text(text)
    assert read_broker_conf(tmp_path / "broker.conf")[::2] == ({"ha_max_gap_not_in_sync": gap}, [])
    (tmp_path / "broker.conf").write_text("haSlaveFallbehindMax=far")
    with pytest.raises(ValueError, match=r"broker\.conf: haSlaveFallbehindMax is 'far', which is not a whole number"):
        read_broker_conf(tmp_path / "broker.conf")
