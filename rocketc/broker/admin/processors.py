"""The processors of tools' requests, as a controller serves them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rocketc.broker.admin.broker_statistics import BrokerStatistics
from rocketc.broker.admin.client_relay import CallClient, ClientRelay
from rocketc.broker.admin.clients import Clients
from rocketc.broker.admin.config_admin import ConfigAdmin
from rocketc.broker.admin.group_admin import GroupAdmin
from rocketc.broker.admin.offset_admin import OffsetAdmin, Send
from rocketc.broker.admin.progress import Progress
from rocketc.broker.admin.queue_units import QueueUnits
from rocketc.broker.admin.states import States, Unsupported
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.admin.topic_admin import TopicAdmin
from rocketc.broker.config import BrokerConfig
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.producers import ProducerManager
from rocketc.broker.pull import PullProcessor
from rocketc.broker.table_writer import TableWriter
from rocketc.broker.topics import TopicManager
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
    """

    store: MessageStore
    config: BrokerConfig
    address: str
    clock: Clock
    writer: TableWriter
    topics: TopicManager
    groups: GroupManager
    consumers: ConsumerManager
    producers: ProducerManager
    offsets: ConsumerOffsetManager
    pulls: PullProcessor
    call_client: CallClient
    send_to_client: Send
    forget_topic: Callable[[str], object]
    settings_changed: Callable[[Iterable[str]], object]


class AdminProcessors:
    """All processors of this package. run() is a service of the broker."""

    def __init__(self, of: Parts) -> None:
        self._work = StoreWork(in_thread=of.store.background)
        self.topics = TopicAdmin(of.store, of.topics, self._work, of.forget_topic)
        self.statistics = BrokerStatistics(of.store, of.pulls, of.config.broker_cluster_name)
        self._relay = ClientRelay(of.store, of.consumers, of.call_client, of.config.broker_name)
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
            ConfigAdmin(of.store, of.config, of.clock, self._work, of.settings_changed),
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
            States(of.store),
            Unsupported(),
            QueueUnits(of.store, of.topics, of.consumers, self._work),
        ]

    async def run(self) -> None:
        """Sample the statistics until the task ends."""
        await self.statistics.run()

    async def close(self) -> None:
        """Wait until nothing works on the store."""
        self._relay.close()
        await self._work.close()
