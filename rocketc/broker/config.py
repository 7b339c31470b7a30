"""BrokerConfig: the settings of a broker, with RocketMQ's names and defaults, and the file broker.conf."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketc.config import StoreConfig, properties, store_fields, typed_property
from rocketc.config_fields import INT32_MOST, check_setting
from rocketc.derived._dispatcher import delays_of
from rocketc.format.traces import TRACE_TOPIC
from rocketc.remoting import tls_settings as tls

MOST_PORT = 65535
_LONG_MOST = (1 << 63) - 1

# Of numbers that are not from 0 to 2147483647.
_LEAST = dict.fromkeys(
    (
        "flush_consumer_offset_interval",
        "flush_delay_offset_interval",
        "short_polling_time_mills",
        "register_name_server_period",
        "register_broker_timeout_mills",
        "default_query_max_num",
        "max_msgs_num_batch",
    ),
    1,
) | {"broker_id": -1, "start_accept_send_request_time_stamp": -_LONG_MOST}
_MOST = {
    "broker_id": _LONG_MOST,
    "listen_port": MOST_PORT,
    "metrics_prom_exporter_port": MOST_PORT,
    "start_accept_send_request_time_stamp": _LONG_MOST,
}


@dataclass
class BrokerConfig:
    """The settings of a broker beside those of its store. Names and defaults are RocketMQ's, in snake_case.

    A broker has a copy of its own: tools change some of its settings while it runs.

    broker_cluster_name, broker_name, broker_id  its place in the cluster; id 0 is the master
    broker_ip1                    address that clients get; None: the address that it listens on
    listen_port                   0: a free one. The VIP port is the port before the last one: listen_port - 2
    bind_address                  address to listen on
    namesrv_addr                  name servers, separated by `;`
    broker_permission             bits: 4 read, 2 write
    auto_create_subscription_group  a heartbeat or an offset of an unknown group creates it
    cluster_topic_enable, broker_topic_enable  the topics with the names of cluster and broker can be used
    trace_topic_enable, msg_trace_topic_name   the topic of message traces exists
    region_id, trace_on           what producers get in answers, and messages in properties
    long_polling_enable           pulls wait for messages; False: for short_polling_time_mills at most
    slave_read_enable             slow consumers are sent to slaves
    lite_pull_message_enable      LITE_PULL_MESSAGE is allowed
    enable_property_filter        SQL92 filters are allowed
    reject_transaction_message    transactions are refused
    flush_consumer_offset_interval, flush_delay_offset_interval, register_name_server_period  ms
    start_accept_send_request_time_stamp  ms since the epoch; sends before it are refused
    use_server_side_reset_offset  tools reset offsets on the broker; False: its online consumers reset themselves
    default_query_max_num, max_msgs_num_batch  messages of one look-up by unique key, and by key
    broker_fast_failure_enable    requests that have waited for too long are answered with SYSTEM_BUSY: the following
    wait_time_mills_in_send_queue, wait_time_mills_in_pull_queue, wait_time_mills_in_lite_pull_queue,
    wait_time_mills_in_heartbeat_queue, wait_time_mills_in_admin_broker_queue  ms
    acl_enable                    requests need a signature of an account in plain_acl.yml
    rocketmq_home                 folder that contains conf; None: the environment variable ROCKETMQ_HOME
    rocketmq_acl_plain_file       plain_acl.yml, below rocketmq_home
    tls_server_mode, tls_enable, tls_config_file  see tls_settings()

    >>> BrokerConfig(broker_name="broker-b").listen_port
    10911
    """

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    broker_ip1: str | None = None
    listen_port: int = 10911
    bind_address: str = "127.0.0.1"
    namesrv_addr: str | None = None
    broker_permission: int = 6
    auto_create_subscription_group: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = TRACE_TOPIC
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    slave_read_enable: bool = False
    lite_pull_message_enable: bool = True
    enable_property_filter: bool = False
    reject_transaction_message: bool = False
    store_reply_message_enable: bool = True
    real_time_notify_consumer_change: bool = True
    flush_consumer_offset_interval: int = 5_000
    flush_delay_offset_interval: int = 10_000
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 24_000
    start_accept_send_request_time_stamp: int = 0
    default_query_max_num: int = 32
    max_msgs_num_batch: int = 64
    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    wait_time_mills_in_pull_queue: int = 5000
    wait_time_mills_in_lite_pull_queue: int = 5000
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_admin_broker_queue: int = 5000
    acl_enable: bool = False
    rocketmq_home: str | None = None
    rocketmq_acl_plain_file: str = "/conf/plain_acl.yml"
    tls_server_mode: str = "permissive"
    tls_enable: str | None = None
    tls_config_file: str = tls.DEFAULT_FILE
    use_server_side_reset_offset: bool = True
    metrics_exporter_type: str = "DISABLE"
    metrics_prom_exporter_port: int = 5557
    metrics_prom_exporter_host: str = ""

    def __post_init__(self) -> None:
        for name in _DEFAULTS:
            check_field(name, getattr(self, name), said=_camel(name))
        if 0 < self.listen_port < 3:
            raise ValueError(f"listenPort is {self.listen_port}; the VIP port is two less, so 3 is the smallest one")

    @property
    def name_servers(self) -> list[str]:
        """The addresses in namesrv_addr.

        >>> BrokerConfig(namesrv_addr="10.0.0.1:9876; 10.0.0.2:9876").name_servers
        ['10.0.0.1:9876', '10.0.0.2:9876']
        """
        return [one.strip() for one in (self.namesrv_addr or "").split(";") if one.strip()]


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(BrokerConfig)}

# What RocketMQ's broker does by default, and a store that a program opens does not: it deletes expired messages.
SERVED: dict[str, Any] = {"clean_resource_interval": 10_000}


def check_field(name: str, value: object, said: str) -> None:
    """Check the value of a field of BrokerConfig. Raises ValueError, which names the field as `said`.

    >>> check_field("broker_name", 5, said="brokerName")
    Traceback (most recent call last):
    ValueError: brokerName is 5; it must be text
    """
    check_setting(said, value, _DEFAULTS[name], _LEAST.get(name, 0), _MOST.get(name, INT32_MOST))


# Settings that are system properties in RocketMQ.
_DOTTED = {
    "rocketmq_acl_plain_file": "rocketmq.acl.plain.file",
    "tls_server_mode": "tls.server.mode",
    "tls_enable": "tls.enable",
    "tls_config_file": "tls.config.file",
}


def _camel(name: str) -> str:
    if name in _DOTTED:
        return _DOTTED[name]
    first, *others = name.split("_")
    return first + "".join("IP1" if other == "ip1" else other.capitalize() for other in others)


_OF_KEY = {_camel(name): name for name in _DEFAULTS}


def read_broker_conf(path: str | os.PathLike[str]) -> tuple[dict[str, Any], StoreConfig, list[str]]:
    """Read a broker.conf: (fields of BrokerConfig, the store's settings, keys that are not used).

    The settings of tls.properties may be in it too, if it does not name a tls.config.file.

    Raises ValueError with the file, the key and the allowed values; OSError.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
    ...     _ = file.write("brokerName=broker-b\\nflushDiskType=SYNC_FLUSH\\nnothing=1")
    ...     file.flush()
    ...     fields, store, unused = read_broker_conf(file.name)
    >>> fields, store.flush, unused
    ({'broker_name': 'broker-b'}, 'sync', ['nothing'])
    """
    name = os.fspath(path)
    with open(name, encoding="iso-8859-1", newline="") as file:
        text = file.read()
    try:
        found = dict(properties(text))
        fields = _typed(found)
        used = set(_OF_KEY)
        if "tls_config_file" not in fields and not tls.FILE_NAMES.isdisjoint(found):
            fields["tls_config_file"] = name  # the settings of that file are in this one
            used |= tls.FILE_NAMES
        BrokerConfig(**fields)
        of_store, unused = store_fields(found)
        store = StoreConfig.rocketmq(**{**SERVED, **of_store})
        delays_of(store.message_delay_level)
        return fields, store, [key for key in unused if key not in used]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def broker_properties(config: BrokerConfig) -> dict[str, Any]:
    """Return all settings under the keys of broker.conf, without those that are system properties in RocketMQ.

    >>> broker_properties(BrokerConfig())["brokerName"]
    'broker-a'
    """
    return {key: getattr(config, name) for key, name in _OF_KEY.items() if name not in _DOTTED}


def changed_broker_fields(changes: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of BrokerConfig that have these keys of broker.conf. Other keys are left out.

    Raises ValueError for a value of another type.

    >>> changed_broker_fields({"brokerPermission": "4", "nothing": "1"})
    {'broker_permission': 4}
    """
    return _typed(changes)


def _typed(found: Mapping[str, str]) -> dict[str, Any]:
    return {
        _OF_KEY[key]: typed_property(key, _DEFAULTS[_OF_KEY[key]], text.strip())
        for key, text in found.items()
        if key in _OF_KEY
    }
