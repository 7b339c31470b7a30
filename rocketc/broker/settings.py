"""The settings of a broker as keywords: which fields there are, and which of them a temporary store has."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rocketc.broker.config import SERVED, BrokerConfig, check_field
from rocketc.config import StoreConfig, refuse_unknown
from rocketc.config_fields import ConfigFields

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(BrokerConfig)}
_ELSEWHERE = {"listen_port": "port", "store_path_root_dir": "path", "store_host": "port and broker_ip1"}

# A temporary store: small files. It accepts messages on a disk that is nearly full, because nothing looks at the disk.
TEMPORARY: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 << 20,
    "mapped_file_size_consume_queue": 100_000,
    "mapper_file_size_batch_consume_queue": 230_000,
    "max_hash_slot_num": 10_000,
    "max_index_num": 40_000,
    "clean_resource_interval": 0,
}


class BrokerFields(ConfigFields, total=False):
    """The keywords of Broker for type checkers: the fields of BrokerConfig and StoreConfig. A test compares them."""

    broker_cluster_name: str
    broker_name: str
    broker_id: int
    broker_ip1: str | None
    broker_ip2: str | None
    bind_address: str
    ha_listen_port: int
    in_sync_replicas: int
    slave_timeout: int
    ha_max_gap_not_in_sync: int
    ha_transfer_batch_size: int
    ha_send_heartbeat_interval: int
    ha_housekeeping_interval: int
    ha_flow_control_enable: bool
    max_ha_transfer_byte_in_second: int
    namesrv_addr: str | None
    ha_master_address: str | None
    broker_permission: int
    auto_create_subscription_group: bool
    cluster_topic_enable: bool
    broker_topic_enable: bool
    trace_topic_enable: bool
    msg_trace_topic_name: str
    region_id: str
    trace_on: bool
    long_polling_enable: bool
    short_polling_time_mills: int
    slave_read_enable: bool
    lite_pull_message_enable: bool
    enable_property_filter: bool
    filter_support_retry: bool
    enable_calc_filter_bit_map: bool
    expect_consumer_num_use_filter: int
    max_error_rate_of_bloom_filter: int
    filter_data_clean_time_span: int
    reject_transaction_message: bool
    enable_register_producer: bool
    transaction_check_interval: int
    transaction_time_out: int
    transaction_check_max: int
    transaction_op_msg_max_size: int
    transaction_op_batch_interval: int
    transaction_metric_flush_interval: int
    store_reply_message_enable: bool
    real_time_notify_consumer_change: bool
    flush_consumer_offset_interval: int
    flush_delay_offset_interval: int
    register_name_server_period: int
    register_broker_timeout_mills: int
    start_accept_send_request_time_stamp: int
    default_query_max_num: int
    max_msgs_num_batch: int
    broker_fast_failure_enable: bool
    wait_time_mills_in_send_queue: int
    wait_time_mills_in_pull_queue: int
    wait_time_mills_in_lite_pull_queue: int
    wait_time_mills_in_heartbeat_queue: int
    wait_time_mills_in_transaction_queue: int
    wait_time_mills_in_admin_broker_queue: int
    server_socket_rcv_buf_size: int
    timer_wheel_enable: bool
    timer_precision_ms: int
    timer_max_delay_sec: int
    timer_roll_window_slot: int
    timer_congest_num_each_slot: int
    mapped_file_size_timer_log: int
    timer_flush_interval_ms: int
    recall_message_enable: bool
    acl_enable: bool
    rocketmq_home: str | None
    rocketmq_acl_plain_file: str
    inner_client_authentication_credentials: str
    tls_server_mode: str
    tls_enable: str | None
    tls_config_file: str
    use_server_side_reset_offset: bool
    metrics_exporter_type: str
    metrics_prom_exporter_port: int
    metrics_prom_exporter_host: str


def split_fields(
    function: str, fields: Mapping[str, Any], others: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of BrokerConfig and those of StoreConfig.

    function  that takes them as keywords, for messages
    others    its other keywords
    Raises TypeError for a name that neither has, ValueError for a value that a field of BrokerConfig does not allow.

    >>> split_fields("Broker()", {"broker_name": "broker-b", "max_message_size": "1MiB"})
    ({'broker_name': 'broker-b'}, {'max_message_size': '1MiB'})
    >>> split_fields("Broker()", {"broker_nme": "broker-b"})
    Traceback (most recent call last):
    TypeError: Broker(): unknown keyword broker_nme; did you mean broker_name?
    """
    for name, instead in _ELSEWHERE.items():
        if name in fields:
            raise TypeError(f"{function}: {name} is not a keyword; use {instead}")
    refuse_unknown(function, fields, (*others, *_DEFAULTS))
    of_broker = {name: value for name, value in fields.items() if name in _DEFAULTS}
    for name, value in of_broker.items():
        check_field(name, value, said=name)
    return of_broker, {name: value for name, value in fields.items() if name not in _DEFAULTS}


def served_config(config: StoreConfig, given: Iterable[str] = ()) -> StoreConfig:
    """Return the settings with a broker's defaults, except for the fields that are given.

    >>> served_config(StoreConfig()).clean_resource_interval
    10000
    """
    return _with(config, SERVED, given)


def temporary_config(config: StoreConfig, given: Iterable[str] = ()) -> StoreConfig:
    """Return the settings with those of a temporary store, except for the fields that are given.

    >>> temporary_config(StoreConfig()).mapped_file_size_commit_log
    16777216
    >>> temporary_config(StoreConfig(max_index_num=100), ["max_index_num"]).max_index_num
    100
    """
    return _with(config, TEMPORARY, given)


def _with(config: StoreConfig, defaults: Mapping[str, Any], given: Iterable[str]) -> StoreConfig:
    kept = set(given)
    return config.replace(**{name: value for name, value in defaults.items() if name not in kept})


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a folder, and remove it with everything in it at the end.

    >>> import os
    >>> with temporary_folder() as path:
    ...     os.path.isdir(path)
    True
    >>> os.path.exists(path)
    False
    """
    path = tempfile.mkdtemp(prefix="rocketc-broker-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
