"""One broker: its store, its servers, and everything that runs beside them.

Source: RocketMQ BrokerController.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rocketc._layout import DLQ_PREFIX, RETRY_PREFIX
from rocketc.acl.acl_processor import AclProcessor
from rocketc.broker import names
from rocketc.broker._deliveries import Deliveries
from rocketc.broker._send_path import SendPath, peer_host
from rocketc.broker.access import access_control
from rocketc.broker.admin.processors import AdminProcessors, Parts
from rocketc.broker.client_processor import ClientProcessor
from rocketc.broker.config import BrokerConfig
from rocketc.broker.consumer_processor import ConsumerProcessor
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.delays import DelayService
from rocketc.broker.fast_failure import patience
from rocketc.broker.flush_waits import FlushWaits
from rocketc.broker.groups import GroupManager
from rocketc.broker.lock_processor import LockProcessor
from rocketc.broker.locks import RebalanceLockManager
from rocketc.broker.lookups import LookupProcessor
from rocketc.broker.name_servers import NameServers
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.producers import ProducerManager
from rocketc.broker.pull import PullProcessor
from rocketc.broker.rates import SAMPLE_SECONDS
from rocketc.broker.replies import ReplyProcessor
from rocketc.broker.retries import Retries
from rocketc.broker.runtime_info import RuntimeInfo
from rocketc.broker.send import SPECIAL, SendProcessor, encode_properties, failed, refusal
from rocketc.broker.send_back import SendBackProcessor
from rocketc.broker.table_writer import TableWriter
from rocketc.broker.topics import FORBIDDEN, TopicManager, name_fault
from rocketc.derived._dispatcher import delays_of
from rocketc.errors import RocketcError, StoreFailedError, StoreFullError, StoreIOError
from rocketc.remoting.addresses import join_address
from rocketc.remoting.command import Command
from rocketc.remoting.connection import Connection
from rocketc.remoting.server import Processor, Server
from rocketc.remoting.services import Services
from rocketc.remoting.tls import tls_gate
from rocketc.remoting.tls_contexts import client_context, tls_connector
from rocketc.remoting.tls_settings import tls_settings
from rocketc.store._store import MessageStore
from rocketc.store.subscription import Subscription as Changes
from rocketc.tables.config_manager import Clock, now_ms
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.topics import PERM_WRITE, TopicConfig

_log = logging.getLogger("rocketc.broker")

PULL_MESSAGE = 11
NOTIFY_CONSUMER_IDS_CHANGED = 40
EXPIRE_SECONDS = 10.0
NOTICE_SECONDS = 15.0
STEP_SECONDS = 0.01


class BrokerController:
    """A broker on an open store. Create it, start() it and close() it on the thread of the event loop.

    store       open for writing; the caller closes it after the broker. Its store_host is `host`
    host        (address, port) that clients know
    name_servers  addresses to register with
    clock       ms since the epoch
    chance      random numbers
    connector   returns how to connect to a name server, see NameServers
    """

    def __init__(
        self,
        store: MessageStore,
        config: BrokerConfig,
        host: tuple[str, int],
        *,
        name_servers: list[str] | None = None,
        clock: Clock = now_ms,
        chance: random.Random | None = None,
        connector: Any = None,
    ) -> None:
        chance = random.Random() if chance is None else chance
        config = dataclasses.replace(config)  # tools change it
        self.store, self.config, self.host = store, config, host
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.access = access_control(config, clock, in_thread=store.background)
        check = None if self.access is None else self.access.check
        self.tls = tls_settings(config.tls_server_mode, config.tls_enable, config.tls_config_file)
        self._gate = tls_gate(self.tls, in_thread=store.background)
        if connector is None and self.tls.is_client_tls:
            connector = tls_connector(client_context(self.tls))
        self.waits = FlushWaits(store, store.config.sync_flush_timeout / 1000) if store.config.flush == "sync" else None
        self.path = self._send_path()
        self.tables = TableWriter(in_thread=store.background)
        groups = SubscriptionGroups(store.path, clock=clock)
        self.groups = GroupManager(
            groups,
            is_auto_create=config.auto_create_subscription_group,
            changed=lambda group: self.tables.save(groups),
        )
        self.offsets = ConsumerOffsetManager(ConsumerOffsets(store.path, clock=clock))
        store.attach_offsets(self.offsets)
        self.topics = TopicManager(store, config, self.tables, self._topic_changed, self._set_fast)
        self.consumers = ConsumerManager(
            self._notify,
            may_notify=self.groups.may_notify,
            is_real_time=config.real_time_notify_consumer_change,
        )
        self.producers = ProducerManager()
        self.locks = RebalanceLockManager()
        self.delays = DelayService(
            store,
            delays_of(store.config.message_delay_level),
            DelayOffsets(store.path, clock=clock),
            Deliveries(store, names.REAL_TOPIC, names.REAL_QUEUE, names.HALF_TOPIC),
            clock,
        )
        self.pulls = PullProcessor(
            store, self.topics, self.groups, self.consumers, self.offsets, config, self.path, groups.is_readable
        )
        accept_at = config.start_accept_send_request_time_stamp
        self.runtime = RuntimeInfo(store, self.pulls.path, clock, accept_at=accept_at, slowest=self._slowest_pull)
        self.admin = AdminProcessors(self._admin_parts())
        processors = [*self._processors(chance), *self.admin.processors]
        self._patience = patience(config)
        how: dict[str, Any] = {"check": check, "tls": self._gate, "patience": self._patience}
        self.server = Server(processors, on_lost=self._lost, fast=self.pulls.path, **how)
        without_pulls = [one for one in processors if one is not self.pulls]
        self.vip_server = Server(without_pulls, on_lost=self._lost, fast=self.path, **how)
        for topic in dict(self.topics.table).values():
            self._set_fast(topic)
        self.name_servers = NameServers(
            name_servers or [],
            {
                **self._identity(),
                "haServerAddr": join_address(host[0], host[1] + 1),
                "brokerId": config.broker_id,
            },
            self.topics.table,
            chance,
            connector=connector,
            timeout=config.register_broker_timeout_mills / 1000,
            permission=lambda: config.broker_permission,
        )
        self._changes: Changes | None = None
        self._services: Services | None = None

    def _send_path(self) -> SendPath:
        config = self.config
        told = {names.MSG_REGION: config.region_id, names.TRACE_ON: str(config.trace_on).lower()}
        path = SendPath(
            self.store,
            self.store.config.max_message_size,
            peer_host(self.host),
            encode_properties({**told, names.CLUSTER: config.broker_cluster_name}),
            SPECIAL,
            told,
            self.waits,
            refusal,
            failed,
        )
        path.enabled = config.start_accept_send_request_time_stamp <= 0
        return path

    def _admin_parts(self) -> Parts:
        return Parts(
            store=self.store,
            config=self.config,
            address=join_address(*self.host),
            clock=self._clock,
            writer=self.tables,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            producers=self.producers,
            offsets=self.offsets,
            pulls=self.pulls,
            call_client=self._call_client,
            send_to_client=self._send_to_client,
            forget_topic=lambda topic: self.path.set_topic(topic, 0),
            settings_changed=self._settings_changed,
        )

    def _processors(self, chance: random.Random) -> list[Processor]:
        config, store = self.config, self.store
        retries = Retries(self.topics, self.groups.find, self.locks, self._clock)
        sends = SendProcessor(
            self.path,
            self.waits,
            self.topics,
            retries,
            self.delays,
            config,
            self.host,
            store.config.max_message_size,
            self._clock,
            chance,
        )
        return [
            sends,
            SendBackProcessor(
                store, self.path, self.waits, self.topics, retries, self.delays, config, self.host, chance
            ),
            ReplyProcessor(
                sends.check,
                self._call_client,
                self.path,
                self.waits,
                self.producers,
                config,
                self.host,
                self._clock,
                chance,
            ),
            self.pulls,
            ClientProcessor(
                self.consumers,
                self.producers,
                self.groups,
                topics=self.topics.table,
                make_retry_topic=self.topics.keep_retry_topic,
                clock=self._clock,
                is_property_filter_on=config.enable_property_filter,
            ),
            ConsumerProcessor(
                self.consumers,
                self.offsets,
                self.groups,
                topics=self.topics.table,
                min_offset=store.min_offset,
                is_first_in_memory=self._is_first_in_memory,
            ),
            LockProcessor(self.locks, clock=self._clock),
            LookupProcessor(store, config),
            self.runtime,
            AclProcessor(self.access, self._identity()),
        ]

    def _identity(self) -> dict[str, str]:
        config = self.config
        return {
            "brokerName": config.broker_name,
            "brokerAddr": join_address(*self.host),
            "clusterName": config.broker_cluster_name,
        }

    def _slowest_pull(self) -> float:
        return self.server.times.slowest(PULL_MESSAGE)

    def _is_first_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has a message with queue offset 0, and it was not read from the disk lately."""
        with self.store.get_raw(topic, queue_id, 0, 1) as first:
            return len(first) > 0 and not first.suggest_pulling_from_slave

    def _fast_queues(self, topic: TopicConfig) -> int:
        """Return the number of queues of a topic whose sends the compiled path can take; 0 for other topics."""
        name = topic.topic_name
        is_plain = topic.queue_type == "SimpleCQ" and topic.topic_filter_type == "SINGLE_TAG"
        may_send = self.config.broker_permission & PERM_WRITE or not topic.order
        if not is_plain or not may_send or name_fault(name) or name in FORBIDDEN:
            return 0
        if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return 0
        return max(topic.write_queue_nums, topic.read_queue_nums)

    def _topic_changed(self, topic: TopicConfig) -> None:
        if self.topics.is_written(topic.topic_name):
            self._set_fast(topic)
        else:
            self.path.set_topic(topic.topic_name, 0)  # its answers wait for the disk
        self.name_servers.topic_changed(topic)

    def _settings_changed(self, names: Iterable[str]) -> None:
        """Apply settings that tools have changed, where they are not read each time."""
        config = self.config
        self.groups.is_auto_create = config.auto_create_subscription_group
        self.runtime.accept_at = config.start_accept_send_request_time_stamp
        self.path.enabled = config.start_accept_send_request_time_stamp <= 0
        self.pulls.path.forget()
        self._patience.clear()
        self._patience.update(patience(config))
        if "broker_permission" in names:
            for topic in dict(self.topics.table).values():
                self._topic_changed(topic)
            self.name_servers.all_changed()

    def _set_fast(self, topic: TopicConfig) -> None:
        name = topic.topic_name
        self.path.set_topic(name, 0 if self.topics.is_hidden(name) else self._fast_queues(topic))

    def _notify(self, connection: Any, group: str) -> None:
        self._send_to_client(connection, NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, b"")

    def _send_to_client(self, connection: Any, code: int, values: Mapping[str, Any], body: bytes) -> None:
        if not connection.is_lost:
            self.server.send(connection, code, values, body)

    def _call_client(
        self, connection: Any, code: int, values: Mapping[str, Any], body: bytes, timeout: float
    ) -> asyncio.Future[Command]:
        """Send a request to a client, by the server that has its connection: see Server.call."""
        server = self.vip_server if connection in self.vip_server.connections else self.server
        return server.call(connection, code, values, body, timeout)

    def _lost(self, connection: Connection) -> None:
        self.consumers.connection_lost(connection)
        self.producers.connection_lost(connection)

    # life

    async def start(self, *sockets: socket.socket) -> None:
        """Begin to serve, and register with the name servers.

        sockets  of the port and of the VIP port, which listen already; none: a test's network calls connection()
        The first registration is waited for, for at most a second.
        """
        self._changes = self.store.subscribe()
        self._services = await Services().__aenter__()
        self._services.start("changes of queues", self._follow(self._changes))
        config = self.config
        self._services.start(
            "consumer offsets",
            self._persist(self.offsets, "consumers", lambda: config.flush_consumer_offset_interval / 1000),
        )
        self._services.start(
            "delay offsets",
            self._persist(self.delays, "delay levels", lambda: config.flush_delay_offset_interval / 1000),
        )
        for level in range(1, self.delays.levels + 1):
            self._services.start(f"delay level {level}", self.delays.run(level))
        self._services.start("idle clients", self._expire())
        self._services.start("rates", self._sample())
        if self.access is not None:
            self._services.start("accounts", self.access.run())
        if self._gate is not None:
            self._services.start("certificates", self._gate.contexts.run())
        self._services.start("statistics", self.admin.run())
        if not self.config.real_time_notify_consumer_change:
            self._services.start("notices to consumers", self._send_notices())
        if not self.store.background:
            self._services.start("store", self._step())
        for server, one in zip((self.server, self.vip_server), sockets, strict=False):
            await server.serve(one)
        first = asyncio.ensure_future(self.name_servers.register())
        await asyncio.wait({first}, timeout=1.0)
        self._services.start("registration", self._register(first))

    async def run_until(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set; raise the error of a service that failed."""
        assert self._services is not None
        await self._services.run_until(stop)

    async def close(self) -> None:
        """End in order: no new clients, answers to all requests, offsets durable."""
        await self.name_servers.unregister()
        self.pulls.held.close()
        ends = asyncio.gather(self.server.close(), self.vip_server.close())
        await asyncio.sleep(0)  # now no new request is processed
        if self.waits is not None:
            try:
                await self._in_thread(self.store.flush)
            except (RocketcError, OSError) as error:
                _log.error("the last flush failed: %s", error)
            self.waits.close()
        await ends
        if self._services is not None:
            await self._services.__aexit__()
        if self._changes is not None:
            self._changes.close()
        self.name_servers.close()
        await self.admin.close()
        self.topics.close()
        await self.tables.close()
        await self._write(self.delays, "delay levels")
        for table in (self.offsets, self.topics.table, self.groups.table):
            await self._in_thread(table.persist)

    # services

    async def _follow(self, changes: Changes) -> None:
        """Wake held pulls. While there are none, no message wakes the loop for it: this costs as much as a send.

        The next changes then include all since the last ones, so none is missed.
        """
        held = self.pulls.held
        await held.until_held()
        async for changed in changes:
            held.on_changes(changed)
            await held.until_held()

    async def _register(self, first: asyncio.Future[int]) -> None:
        await first
        await self.name_servers.run(self.config.register_name_server_period / 1000)

    async def _persist(
        self, offsets: ConsumerOffsetManager | DelayService, what: str, period: Callable[[], float]
    ) -> None:
        while True:
            await asyncio.sleep(period())
            await self._write(offsets, what)

    async def _write(self, offsets: ConsumerOffsetManager | DelayService, what: str) -> None:
        try:
            await self._in_thread(offsets.persist)
        except (StoreIOError, StoreFullError, StoreFailedError) as error:
            _log.warning("the offsets of %s are not written: %s; it is tried again", what, error)

    async def _in_thread(self, work: Callable[[], object]) -> None:
        if self.store.background:
            await self._loop.run_in_executor(None, work)
        else:
            work()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_SECONDS)
            idle = [*self.consumers.expire(self._clock()), *self.producers.expire(self._clock())]
            for connection in dict.fromkeys(idle):
                assert isinstance(connection, Connection)
                connection.abort()

    async def _sample(self) -> None:
        while True:
            self.runtime.sample(self._loop.time())
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _send_notices(self) -> None:
        while True:
            await asyncio.sleep(NOTICE_SECONDS)
            self.consumers.send_notices()

    async def _step(self) -> None:
        """Do the work of the store's threads, if it runs without them."""
        while True:
            while self.store.step():
                pass
            await asyncio.sleep(STEP_SECONDS)
