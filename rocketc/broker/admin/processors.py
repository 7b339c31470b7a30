"""The processors of tools' requests, as a controller serves them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketc.broker.admin.broker_statistics import BrokerStatistics
from rocketc.broker.admin.client_relay import CallClient, ClientRelay
from rocketc.broker.admin.clients import Clients
from rocketc.broker.admin.config_admin import ConfigAdmin
from rocketc.broker.admin.group_admin import GroupAdmin
from rocketc.broker.admin.offset_admin import OffsetAdmin, Send
from rocketc.broker.admin.progress import Progress
from rocketc.broker.admin.queue_units import QueueUnits
from rocketc.broker.admin.request_modes import RequestModes
from rocketc.broker.admin.states import States, Unsupported
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.admin.topic_admin import TopicAdmin
from rocketc.broker.conf_file import ConfFile
from rocketc.broker.config import BrokerConfig
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.counts import BrokerCounts
from rocketc.broker.filters import ConsumerFilterManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.producers import ProducerManager
from rocketc.broker.pull import PullProcessor
from rocketc.broker.table_writer import TableWriter
from rocketc.broker.topics import TopicManager
from rocketc.ha.master import Master
from rocketc.remoting.server import Processor
from rocketc.store._store import MessageStore
from rocketc.tables.config_manager import Clock


@dataclass(frozen=True)
class Parts:
    """The parts of a broker that tools see.

    address       host:port, as clients know the broker
    call_client, send_to_client  send a client a request that is answered, and one that is not
    forget_topic  called with each topic before it is deleted: no more sends are taken for it
    settings_changed  called with the names of the fields of `config` that a tool has changed
    conf          the file that the broker was started with, if there is one
    counts        what the other processors count
    ha_client     of a slave: returns what GET_BROKER_HA_STATUS says of its copy of the log
    master        sends the log to slaves
    """

    store: MessageStore
    config: BrokerConfig
    address: str
    clock: Clock
    writer: TableWriter
    topics: TopicManager
    groups: GroupManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    producers: ProducerManager
    offsets: ConsumerOffsetManager
    pulls: PullProcessor
    call_client: CallClient
    send_to_client: Send
    forget_topic: Callable[[str], object]
    settings_changed: Callable[[Iterable[str]], object]
    conf: ConfFile | None
    counts: BrokerCounts
    master: Master
    ha_client: Callable[[], Mapping[str, Any]] | None = None


class AdminProcessors:
    """All processors of this package. run() is a service of the broker."""

    def __init__(self, of: Parts) -> None:
        self._work = StoreWork(in_thread=of.store.background)
        self.topics = TopicAdmin(of.store, of.topics, self._work, of.forget_topic)
        self.statistics = BrokerStatistics(of.store, of.pulls, of.counts, of.config.broker_cluster_name, self._work)
        self._relay = ClientRelay(of.store, of.consumers, of.call_client, of.config.broker_name, self._work)
        self.processors: list[Processor] = [
            self.topics,
            GroupAdmin(of.groups, of.topics, of.offsets, of.writer, self.topics.delete),
            self.statistics,
            Progress(
                of.store,
                of.topics,
                of.groups,
                of.consumers,
                of.offsets,
                self.statistics,
                self._work,
                broker_name=of.config.broker_name,
                address=of.address,
                clock=of.clock,
            ),
            Clients(of.consumers, of.producers, of.offsets, of.address),
            ConfigAdmin(of.store, of.config, of.clock, self._work, of.settings_changed, of.writer, of.conf),
            OffsetAdmin(
                of.store,
                of.topics,
                of.groups,
                of.consumers,
                of.offsets,
                of.writer,
                self._work,
                of.send_to_client,
                of.config,
            ),
            self._relay,
            States(of.master, of.ha_client),
            Unsupported(),
            RequestModes(),
            QueueUnits(of.store, of.topics, of.consumers, of.filters, self._work),
        ]

    async def run(self) -> None:
        """Sample the statistics until the task ends."""
        await self.statistics.run()

    async def close(self) -> None:
        """Wait until nothing works on the store."""
        await self._work.close()  # what it has read may still be relayed
        self._relay.close()
