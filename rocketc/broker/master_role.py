"""A broker as the master of slaves: the service that sends them the log, and what its answers wait for."""

from __future__ import annotations

from rocketc.broker.answer_waits import AnswerWaits, ReplicaWaits, answer_waits
from rocketc.broker.config import BrokerConfig
from rocketc.broker.flush_waits import FlushWaits
from rocketc.ha.master import Master, MasterSettings
from rocketc.store._store import MessageStore

# Fields of BrokerConfig that tools change while a broker runs; Master.configure() applies them.
HA_SETTINGS = (
    "in_sync_replicas",
    "slave_timeout",
    "ha_max_gap_not_in_sync",
    "ha_transfer_batch_size",
    "ha_send_heartbeat_interval",
    "ha_housekeeping_interval",
    "ha_flow_control_enable",
    "max_ha_transfer_byte_in_second",
)


def master_of(store: MessageStore, config: BrokerConfig) -> Master:
    """Return the service for the slaves of a broker. Each broker has one: a slave may have slaves, too.

    >>> import asyncio, rocketc, tempfile
    >>> async def main():
    ...     with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...         master = master_of(store, BrokerConfig(in_sync_replicas=3))
    ...         await master.close()
    ...         return master.replicas.acks
    >>> asyncio.run(main())
    3
    """
    return Master(store, store.config.mapped_file_size_commit_log, master_settings(config))


def master_settings(config: BrokerConfig) -> MasterSettings:
    """Return the settings of the service for slaves.

    >>> master_settings(BrokerConfig(slave_timeout=500)).slave_timeout
    500
    """
    return MasterSettings(
        in_sync_replicas=config.in_sync_replicas,
        ha_max_gap_not_in_sync=config.ha_max_gap_not_in_sync,
        ha_transfer_batch_size=config.ha_transfer_batch_size,
        ha_send_heartbeat_interval=config.ha_send_heartbeat_interval,
        ha_housekeeping_interval=config.ha_housekeeping_interval,
        slave_timeout=config.slave_timeout,
        max_ha_transfer_byte_in_second=config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None,
    )


def waits_of(store: MessageStore, config: BrokerConfig, master: Master) -> AnswerWaits | None:
    """Return what the answers to sends wait for: the disk, the slaves, or both; None: nothing.

    >>> import asyncio, rocketc, tempfile
    >>> async def main():
    ...     with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...         master = master_of(store, BrokerConfig())
    ...         found = waits_of(store, BrokerConfig(), master)
    ...         await master.close()
    ...         return found
    >>> asyncio.run(main()) is None
    True
    """
    flush = replicas = None
    if store.config.flush == "sync":
        flush = FlushWaits(store, store.config.sync_flush_timeout / 1000)
    if store.config.broker_role == "SYNC_MASTER":  # also with inSyncReplicas=1: tools change it
        replicas = ReplicaWaits(master.transfer)
    return answer_waits(flush, replicas)
