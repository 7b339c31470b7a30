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
from rocketc.remoting.signing import Credentials, credentials_of

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
        "transaction_check_interval",
        "transaction_check_max",
        "transaction_op_msg_max_size",
        "transaction_op_batch_interval",
        "transaction_metric_flush_interval",
        "timer_precision_ms",
        "timer_roll_window_slot",
        "timer_flush_interval_ms",
        "expect_consumer_num_use_filter",
        "max_error_rate_of_bloom_filter",
        "ha_max_gap_not_in_sync",
        "ha_transfer_batch_size",
        "ha_send_heartbeat_interval",
        "ha_housekeeping_interval",
        "max_ha_transfer_byte_in_second",
    ),
    1,
) | {"broker_id": -1, "start_accept_send_request_time_stamp": -_LONG_MOST, "mapped_file_size_timer_log": 68}
_MOST = {
    "broker_id": _LONG_MOST,
    "listen_port": MOST_PORT,
    "ha_listen_port": MOST_PORT,
    "max_ha_transfer_byte_in_second": _LONG_MOST,
    "metrics_prom_exporter_port": MOST_PORT,
    "start_accept_send_request_time_stamp": _LONG_MOST,
    "max_error_rate_of_bloom_filter": 99,
    "filter_data_clean_time_span": _LONG_MOST,
}


@dataclass
class BrokerConfig:
    """The settings of a broker beside those of its store. Names and defaults are RocketMQ's, in snake_case.

    A broker has a copy of its own: tools change some of its settings while it runs.

    broker_cluster_name, broker_name, broker_id  its place in the cluster; id 0 is the master
    broker_ip1                    address that clients get; None: the address that it listens on
    broker_ip2                    address that slaves get; None: broker_ip1
    listen_port                   0: a free one. The VIP port is the port before the last one: listen_port - 2
    bind_address                  address to listen on
    ha_listen_port                of the port where slaves connect; 0: the port after listen_port
    in_sync_replicas              with brokerRole SYNC_MASTER, the replicas that must have a message before its send is
                                  acknowledged, the master included. 0 and 1: sends do not wait. RocketMQ 5.x has 1
    slave_timeout                 ms for which a send waits for them
    ha_max_gap_not_in_sync        bytes; slaves that are farther behind are not in sync
    ha_transfer_batch_size        bytes that are sent to a slave at once, at most
    ha_send_heartbeat_interval, ha_housekeeping_interval  ms without data after which a slave gets a heartbeat, and ms
                                  without a report after which its connection is closed
    ha_flow_control_enable, max_ha_transfer_byte_in_second  a slave gets that many bytes a second, at most
    namesrv_addr                  name servers, separated by `;`
    ha_master_address             of a slave: host:port of its master's HA service; None: name servers tell it
    broker_permission             bits: 4 read, 2 write
    auto_create_subscription_group  a heartbeat or an offset of an unknown group creates it
    cluster_topic_enable, broker_topic_enable  the topics with the names of cluster and broker can be used
    trace_topic_enable, msg_trace_topic_name   the topic of message traces exists
    region_id, trace_on           what producers get in answers, and messages in properties
    long_polling_enable           pulls wait for messages; False: for short_polling_time_mills at most
    slave_read_enable             slow consumers are sent to slaves
    lite_pull_message_enable      LITE_PULL_MESSAGE is allowed
    enable_property_filter        SQL92 filters are allowed
    filter_support_retry          an SQL92 filter of a retry topic is the filter of the topic that a message is from
    enable_calc_filter_bit_map    ignored: filters are evaluated on the properties, with the same results
    expect_consumer_num_use_filter, max_error_rate_of_bloom_filter  sizes that are written to consumerFilter.json
    filter_data_clean_time_span   ms after which the filter of a group without consumers is dropped
    reject_transaction_message    transactions are refused
    enable_register_producer      producers are noted; False: not while transactions are refused
    transaction_check_interval    ms between two looks for transactions that are not ended
    transaction_time_out          ms after which the producer of a transaction is asked
    transaction_check_max         how often it is asked; then the message is given up
    transaction_op_msg_max_size   bytes of a message that marks transactions as ended
    transaction_op_batch_interval  ms that a mark waits for others
    transaction_metric_flush_interval  ms between two writes of transactionMetrics
    flush_consumer_offset_interval, flush_delay_offset_interval, register_name_server_period  ms
    start_accept_send_request_time_stamp  ms since the epoch; sends before it are refused
    use_server_side_reset_offset  tools reset offsets on the broker; False: its online consumers reset themselves
    default_query_max_num, max_msgs_num_batch  messages of one look-up by unique key, and by key
    broker_fast_failure_enable    requests that have waited for too long are answered with SYSTEM_BUSY
    wait_time_mills_in_send_queue, wait_time_mills_in_pull_queue, wait_time_mills_in_lite_pull_queue,
    wait_time_mills_in_heartbeat_queue, wait_time_mills_in_admin_broker_queue  for how long, in ms
    wait_time_mills_in_transaction_queue  the same for END_TRANSACTION
    server_socket_rcv_buf_size    bytes of a connection's requests that the kernel holds; 0: it decides
    timer_wheel_enable            timed messages are accepted and delivered
    timer_precision_ms            ms of a slot of the timer wheel: times are rounded down to it
    timer_max_delay_sec           messages that are due later than this many seconds are refused
    timer_roll_window_slot        slots: messages that are due later are put into the timer topic again meanwhile
    timer_congest_num_each_slot   messages of one moment; from there on, some are refused, and all from twice as many on
    mapped_file_size_timer_log    bytes of a new file of the timer log
    timer_flush_interval_ms       ms between two flushes of the timer wheel and the timer log
    recall_message_enable         producers may take timed messages back
    acl_enable                    requests need a signature of an account in plain_acl.yml
    rocketmq_home                 folder that contains conf; None: the environment variable ROCKETMQ_HOME
    rocketmq_acl_plain_file       plain_acl.yml, below rocketmq_home
    inner_client_authentication_credentials  JSON with accessKey and secretKey: the account with which a slave signs
                                  its requests to its master; "": it does not sign
    tls_server_mode, tls_enable, tls_config_file  see tls_settings()

    >>> BrokerConfig(broker_name="broker-b").listen_port
    10911
    """

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    broker_ip1: str | None = None
    broker_ip2: str | None = None
    listen_port: int = 10911
    bind_address: str = "127.0.0.1"
    ha_listen_port: int = 0
    in_sync_replicas: int = 2
    slave_timeout: int = 3000
    ha_max_gap_not_in_sync: int = 256 << 20
    ha_transfer_batch_size: int = 32 << 10
    ha_send_heartbeat_interval: int = 5000
    ha_housekeeping_interval: int = 20_000
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 100 << 20
    namesrv_addr: str | None = None
    ha_master_address: str | None = None
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
    filter_support_retry: bool = False
    enable_calc_filter_bit_map: bool = False
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    filter_data_clean_time_span: int = 86_400_000
    reject_transaction_message: bool = False
    enable_register_producer: bool = True
    transaction_check_interval: int = 30_000
    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    transaction_op_msg_max_size: int = 4096
    transaction_op_batch_interval: int = 3000
    transaction_metric_flush_interval: int = 10_000
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
    wait_time_mills_in_pull_queue: int = 500
    wait_time_mills_in_lite_pull_queue: int = 500
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_transaction_queue: int = 3000
    wait_time_mills_in_admin_broker_queue: int = 500
    server_socket_rcv_buf_size: int = 0
    timer_wheel_enable: bool = True
    timer_precision_ms: int = 1000
    timer_max_delay_sec: int = 259_200
    timer_roll_window_slot: int = 172_800
    timer_congest_num_each_slot: int = INT32_MOST
    mapped_file_size_timer_log: int = 100 << 20
    timer_flush_interval_ms: int = 1000
    recall_message_enable: bool = False
    acl_enable: bool = False
    rocketmq_home: str | None = None
    rocketmq_acl_plain_file: str = "/conf/plain_acl.yml"
    inner_client_authentication_credentials: str = dataclasses.field(default="", repr=False)
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
        _ = self.credentials
        if 0 < self.listen_port < 3:
            raise ValueError(f"listenPort is {self.listen_port}; the VIP port is two less, so 3 is the smallest one")
        if self.listen_port == MOST_PORT and self.ha_listen_port == 0:
            raise ValueError(f"listenPort is {MOST_PORT}; the port for slaves is the next one: set haListenPort")

    @property
    def ha_port(self) -> int:
        """The port where slaves connect; 0: a free one.

        >>> BrokerConfig().ha_port, BrokerConfig(listen_port=0).ha_port, BrokerConfig(ha_listen_port=20912).ha_port
        (10912, 0, 20912)
        """
        if self.ha_listen_port > 0 or self.listen_port == 0:
            return self.ha_listen_port
        return self.listen_port + 1

    @property
    def credentials(self) -> Credentials | None:
        """The account with which this broker signs its requests to other brokers; None: it does not sign.

        >>> text = '{"accessKey": "slaves", "secretKey": "a long secret"}'
        >>> BrokerConfig(inner_client_authentication_credentials=text).credentials
        Credentials(access_key='slaves')
        """
        if not self.inner_client_authentication_credentials.strip():
            return None
        try:
            return credentials_of(self.inner_client_authentication_credentials)
        except ValueError as error:
            raise ValueError(f"innerClientAuthenticationCredentials: {error}") from None

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
    return first + "".join(other.upper() if other in ("ip1", "ip2") else other.capitalize() for other in others)


_SECRET = frozenset({"inner_client_authentication_credentials"})
_OF_KEY = {_camel(name): name for name in _DEFAULTS}
_OLD_KEYS = {"haSlaveFallbehindMax": "haMaxGapNotInSync"}  # of older releases


def read_broker_conf(path: str | os.PathLike[str]) -> tuple[dict[str, Any], StoreConfig, list[str]]:
    """Read a broker.conf: (fields of BrokerConfig, the store's settings, keys that are not used).

    The settings of tls.properties may be in it too, if it does not name a tls.config.file. Keys of older releases
    (haSlaveFallbehindMax) set the field of today's key.

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
        used = {*_OF_KEY, *_OLD_KEYS}
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
    """Return all settings under the keys of broker.conf, without secrets, and without system properties of RocketMQ.

    >>> broker_properties(BrokerConfig())["brokerName"]
    'broker-a'
    """
    return {key: getattr(config, name) for key, name in _OF_KEY.items() if name not in _DOTTED and name not in _SECRET}


def changed_broker_fields(changes: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of BrokerConfig that have these keys of broker.conf. Other keys are left out.

    Raises ValueError for a value of another type.

    >>> changed_broker_fields({"brokerPermission": "4", "nothing": "1"})
    {'broker_permission': 4}
    """
    return _typed(changes)


def keys_of_today(found: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with today's keys in place of those of older releases; a key of today wins over its old one.

    >>> keys_of_today({"haSlaveFallbehindMax": "1000", "nothing": "1"})
    {'haMaxGapNotInSync': '1000', 'nothing': '1'}
    """
    return {
        _OLD_KEYS.get(key, key): text
        for key, text in found.items()
        if key not in _OLD_KEYS or _OLD_KEYS[key] not in found
    }


def _typed(found: Mapping[str, str]) -> dict[str, Any]:
    fields = {}
    for key, text in found.items():
        today = _OLD_KEYS.get(key, key)
        if today in _OF_KEY and (today == key or today not in found):
            name = _OF_KEY[today]
            fields[name] = typed_property(key, _DEFAULTS[name], text.strip())
    return fields
