"""One broker: its store, its servers, and everything that runs beside them.

Source: RocketMQ BrokerController.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from rocketc.acl.acl_processor import AclProcessor
from rocketc.broker import names
from rocketc.broker._deliveries import Deliveries
from rocketc.broker._send_path import SendPath, peer_host
from rocketc.broker.access import access_control
from rocketc.broker.admin.processors import AdminProcessors, Parts
from rocketc.broker.admin.timer_tables import TimerTables
from rocketc.broker.answer_waits import AnswerWaits
from rocketc.broker.assignments import AssignmentProcessor
from rocketc.broker.client_processor import ClientProcessor
from rocketc.broker.conf_file import ConfFile
from rocketc.broker.config import BrokerConfig
from rocketc.broker.consumer_processor import ConsumerProcessor, is_first_in_memory
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.counts import BrokerCounts
from rocketc.broker.decisions import Decisions
from rocketc.broker.delays import DelayService
from rocketc.broker.end_transaction import Copies, EndTransactionProcessor
from rocketc.broker.fast_failure import patience
from rocketc.broker.filters import ConsumerFilterManager, filter_error
from rocketc.broker.groups import GroupManager
from rocketc.broker.lock_processor import LockProcessor
from rocketc.broker.locks import RebalanceLockManager
from rocketc.broker.lookups import LookupProcessor
from rocketc.broker.master_role import HA_SETTINGS, master_of, master_settings, waits_of
from rocketc.broker.name_servers import NameServers
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.op_marks import OpMarks
from rocketc.broker.periodic_writes import PeriodicWrites
from rocketc.broker.producers import ProducerManager
from rocketc.broker.pull import PullProcessor
from rocketc.broker.put_refusals import PutRefusals
from rocketc.broker.rates import SAMPLE_SECONDS
from rocketc.broker.recalls import RecallProcessor
from rocketc.broker.replies import ReplyProcessor
from rocketc.broker.retries import Retries
from rocketc.broker.runtime_info import RuntimeInfo
from rocketc.broker.send import SPECIAL, SendProcessor, encode_properties
from rocketc.broker.send_back import SendBackProcessor
from rocketc.broker.slave import SlaveRefusals, SlaveRole
from rocketc.broker.table_writer import TableWriter
from rocketc.broker.timed_puts import TimedPuts
from rocketc.broker.timers import TimerService, forget_wheel
from rocketc.broker.topics import TopicManager, fast_queues
from rocketc.broker.transaction_stats import TransactionStats
from rocketc.broker.transactions import TransactionService
from rocketc.derived._dispatcher import delays_of
from rocketc.errors import RocketcError
from rocketc.ha.master import Master
from rocketc.remoting._fair_queue import FairQueue
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
from rocketc.tables.filters import BloomFilter, ConsumerFilters
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.topic_counts import TransactionCounts
from rocketc.tables.topics import TopicConfig

_log = logging.getLogger("rocketc.broker")

PULL_MESSAGE = 11
NOTIFY_CONSUMER_IDS_CHANGED = 40
EXPIRE_SECONDS = 10.0
NOTICE_SECONDS = 15.0
STEP_SECONDS = 0.01


def _is_read(connection: Any) -> bool:
    """Whether a client reads what it is sent."""
    return bool(connection.is_read)


class BrokerController:
    """A broker on an open store. Create it, start() it and close() it on the thread of the event loop.

    store       open for writing; the caller closes it after the broker. Its store_host is `host`
    host        (address, port) that clients know
    name_servers  addresses to register with
    clock       ms since the epoch
    chance      random numbers
    connector   returns how to connect to a name server, see NameServers
    conf        the broker.conf that `config` is from: settings that tools change are written to it
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
        conf: str | os.PathLike[str] | None = None,
    ) -> None:
        chance = random.Random() if chance is None else chance
        config = dataclasses.replace(config)  # tools change it
        self.store, self.config, self.host = store, config, host
        self.is_slave = store.config.broker_role == "SLAVE"
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._conf = None if conf is None else ConfFile(conf)
        self.access = access_control(config, clock, in_thread=store.background)
        check = None if self.access is None else self.access.check
        self.tls = tls_settings(config.tls_server_mode, config.tls_enable, config.tls_config_file)
        self._gate = tls_gate(self.tls, in_thread=store.background)
        ha_connector = connector  # never TLS: RocketMQ's HA protocol does not have it
        if connector is None and self.tls.is_client_tls:
            connector = tls_connector(client_context(self.tls))
        self.master = master_of(store, config)
        self.waits: AnswerWaits | None = None
        try:
            self.waits = waits_of(store, config, self.master)
            self._build(name_servers or [], chance, check, connector, ha_connector)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        """Close the descriptors of a broker that can't be built."""
        self.master.abort()
        if self.waits is not None:
            self.waits.close()

    def _build(
        self,
        name_servers: list[str],
        chance: random.Random,
        check: Callable[..., Any] | None,
        connector: Any,
        ha_connector: Any,
    ) -> None:
        """Make the parts of the broker, from the lower ones up. Arguments: see __init__()."""
        store, config, host, clock = self.store, self.config, self.host, self._clock
        self.path = self._send_path()
        self.tables = TableWriter(in_thread=store.background)
        self._writes = PeriodicWrites(in_thread=store.background)
        self.counts = BrokerCounts()
        groups = SubscriptionGroups(store.path, clock=clock)
        self.groups = GroupManager(
            groups,
            is_auto_create=config.auto_create_subscription_group,
            changed=lambda group: self.tables.save(groups),
        )
        self.offsets = ConsumerOffsetManager(ConsumerOffsets(store.path, clock=clock))
        store.attach_offsets(self.offsets)
        self._queue = FairQueue()
        self.topics = TopicManager(store, config, self.tables, self._topic_changed, self._set_fast)
        bloom = BloomFilter(config.expect_consumer_num_use_filter, config.max_error_rate_of_bloom_filter)
        filters = ConsumerFilters(store.path, clock=clock, bloom=bloom)
        self.filters = ConsumerFilterManager(filters, clock, lambda: self.tables.save(filters))
        if config.enable_property_filter:
            filter_error("SQL92", "TRUE")  # raises RocketcError without lark
        if config.enable_calc_filter_bit_map:
            _log.warning("enableCalcFilterBitMap is ignored: filters are evaluated on the properties of each message")
        self.consumers = ConsumerManager(
            self._notify,
            may_notify=self.groups.may_notify,
            is_real_time=config.real_time_notify_consumer_change,
            ended=self.filters.unregister,
        )
        self.producers = ProducerManager(
            is_writable=_is_read,
            registers=lambda: config.enable_register_producer or not config.reject_transaction_message,
        )
        self.locks = RebalanceLockManager(self.consumers.client_ids)
        self.delays = DelayService(
            store,
            delays_of(store.config.message_delay_level),
            DelayOffsets(store.path, clock=clock),
            Deliveries(store, names.REAL_TOPIC, names.REAL_QUEUE, names.HALF_TOPIC),
            clock,
        )
        self.copies = Copies(self.path)
        self.transaction_stats = TransactionStats(TransactionCounts(store.path, clock=clock))
        self.path.set_half(
            names.HALF_TOPIC,
            names.TRANSACTION,
            names.TRANSACTION_ID,
            names.REAL_TOPIC,
            names.REAL_QUEUE,
            self.transaction_stats,
        )
        self.path.takes_halves = not config.reject_transaction_message
        self.op_marks = OpMarks(self.path, config, peer_host(host), clock)
        self.decisions = Decisions(store, self.op_marks, self.transaction_stats.give_up)
        if self.is_slave:
            forget_wheel(store.path)
        self.timers = TimerService(store, config, clock)
        self.pulls = PullProcessor(
            store,
            self.topics,
            self.groups,
            self.consumers,
            self.offsets,
            self.filters,
            config,
            self.path,
            groups.is_readable,
            is_slave=self.is_slave,
            clock=clock,
        )
        self.transactions = TransactionService(
            store,
            self.copies,
            self.op_marks,
            self.decisions,
            self.topics,
            self.offsets,
            self.producers,
            config,
            self._send_to_client,
            host,
            clock,
            may_send=_is_read,
            given_up=self.transaction_stats.give_up,
        )
        accept_at = config.start_accept_send_request_time_stamp
        self.runtime = RuntimeInfo(
            store,
            self.pulls.path,
            clock,
            accept_at=accept_at,
            slowest=lambda: self.server.times.slowest(PULL_MESSAGE),
            timers=None if self.is_slave else self.timers,
            delays=dict if self.is_slave else self.delays.progress,
            replication_fault=lambda: None if self.slave is None else self.slave.fault,
        )
        self.admin = AdminProcessors(self._admin_parts())
        self.assignments = AssignmentProcessor(
            self.consumers, lambda topic: self.name_servers.route(topic), config.broker_name, now=self._loop.time
        )
        refusals: list[Processor] = [SlaveRefusals()] if self.is_slave else []
        processors = [*self._processors(chance), *self.admin.processors, *refusals]
        self._patience = patience(config)
        how: dict[str, Any] = {"check": check, "tls": self._gate, "patience": self._patience, "queue": self._queue}
        self.server = Server(processors, on_lost=self._lost, fast=self.pulls.path, **how)
        without_pulls = [one for one in processors if one is not self.pulls]
        self.vip_server = Server(without_pulls, on_lost=self._lost, fast=self.path, **how)
        for topic in dict(self.topics.table).values():
            self._set_fast(topic)
        self.name_servers = NameServers(
            name_servers,
            {
                **self._identity(),
                "haServerAddr": join_address(config.broker_ip2 or host[0], config.ha_port or host[1] + 1),
                "brokerId": config.broker_id,
            },
            self.topics.table,
            chance,
            connector=connector,
            timeout=config.register_broker_timeout_mills / 1000,
            permission=lambda: config.broker_permission,
            registered=lambda told: None if self.slave is None else self.slave.registered(told),
        )
        tables = (self.topics.table, self.groups.table, self.offsets.table, self.timers.counts)
        self.slave = (
            SlaveRole.of_broker(store, config, host, tables, chance, connector, ha_connector, clock)
            if self.is_slave
            else None
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
            PutRefusals(self.store, self._loop.time),
        )
        path.enabled = config.start_accept_send_request_time_stamp <= 0 and not self.is_slave
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
            filters=self.filters,
            producers=self.producers,
            offsets=self.offsets,
            pulls=self.pulls,
            call_client=self._call_client,
            send_to_client=self._send_to_client,
            forget_topic=lambda topic: self.path.set_topic(topic, 0),
            settings_changed=self._settings_changed,
            conf=self._conf,
            counts=self.counts,
            master=self.master,
            ha_client=(lambda: {} if self.slave is None else self.slave.ha_state()) if self.is_slave else None,
        )

    def _processors(self, chance: random.Random) -> list[Processor]:
        config, store = self.config, self.store
        retries = Retries(self.topics, self.groups.find, self.locks, self._clock, self.counts)
        timed = TimedPuts(config, self.timers.count, chance)
        sends = SendProcessor(
            self.path,
            self.waits,
            self.topics,
            retries,
            self.delays,
            timed,
            self.timers.added,
            config,
            self.host,
            store.config.max_message_size,
            self._clock,
            chance,
            self.transaction_stats.prepared,
        )
        backs = SendBackProcessor(
            store, self.path, self.waits, self.topics, retries, self.delays, config, self.host, chance, self.counts
        )
        ends = EndTransactionProcessor(
            store,
            self.copies,
            self.decisions,
            self.topics,
            self.delays,
            config,
            self._clock,
            self.transaction_stats,
        )
        if not self.is_slave:
            self.pulls.path.backs = backs.fast_path(store, (self.topics, self.groups.table))
            self.pulls.path.ends = ends.fast_path(self.path, store)
        return [
            sends,
            backs,
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
            RecallProcessor(self.topics.get, self.path, timed, self.timers.added, self.waits, config, self._clock),
            self.pulls,
            ClientProcessor(
                self.consumers,
                self.producers,
                self.groups,
                topics=self.topics.table,
                make_retry_topic=self.topics.keep_retry_topic,
                when_told=lambda done: self.name_servers.when_told(done),
                unlock_all=self.locks.unlock_all,
                clock=self._clock,
                counts=self.counts,
                time=self._loop.time,
                is_property_filter_on=lambda: config.enable_property_filter,
                register_filters=self.filters.register,
                in_thread=store.background,
            ),
            ConsumerProcessor(
                self.consumers,
                self.offsets,
                self.groups,
                topics=self.topics,
                min_offset=store.min_offset,
                is_first_in_memory=partial(is_first_in_memory, store),
            ),
            LockProcessor(self.locks, clock=self._clock),
            self.assignments,
            ends,
            LookupProcessor(store, config),
            TimerTables(self.timers),
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

    def _topic_changed(self, topic: TopicConfig) -> None:
        if self.topics.is_written(topic.topic_name):
            self._set_fast(topic)
        else:
            self.path.set_topic(topic.topic_name, 0)  # its answers wait for the disk
        self.name_servers.topic_changed(topic)
        self._queue.excuse()  # requests that wait behind many creations are not refused for that

    def _settings_changed(self, names: Iterable[str]) -> None:
        """Apply settings that tools have changed, where they are not read each time."""
        config = self.config
        self.groups.is_auto_create = config.auto_create_subscription_group
        self.runtime.accept_at = config.start_accept_send_request_time_stamp
        self.path.enabled = config.start_accept_send_request_time_stamp <= 0 and not self.is_slave
        self.path.takes_halves = not config.reject_transaction_message
        self.pulls.settings_changed()
        self._patience.clear()
        self._patience.update(patience(config))
        changed = set(names)
        if not changed.isdisjoint(HA_SETTINGS):
            self.master.configure(master_settings(config))
            if self.slave is not None:
                self.slave.configure(config)
        if "broker_permission" in changed:
            for topic in dict(self.topics.table).values():
                self._topic_changed(topic)
            self.name_servers.all_changed()

    def _set_fast(self, topic: TopicConfig) -> None:
        name = topic.topic_name
        queues = 0 if self.topics.is_hidden(name) else fast_queues(topic, self.config.broker_permission)
        self.path.set_topic(name, queues)

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

        sockets  of the port, of the VIP port and of the port for slaves, which listen already; none: a test's network
                 calls connection()
        The first registration is waited for, for at most a second.
        """
        self._changes = self.store.subscribe()
        self._services = await Services().__aenter__()
        self._services.start("changes of queues", self.pulls.held.follow(self._changes))
        config, repeat = self.config, self._writes.repeat
        self._services.start(
            "consumer offsets",
            repeat(self.offsets.persist, "consumers", lambda: config.flush_consumer_offset_interval / 1000),
        )
        if self.slave is None:
            self._start_deliveries(self._services)
        else:
            self._services.start("replication", self.slave.replicate())
            self._services.start("tables of the master", self.slave.tables.run())
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
        servers: tuple[Server | Master, ...] = (self.server, self.vip_server, self.master)
        for server, one in zip(servers, sockets, strict=False):
            await server.serve(one)
        first = asyncio.ensure_future(self.name_servers.register())
        await asyncio.wait({first}, timeout=1.0)
        self._services.start("registration", self._register(first))

    def _start_deliveries(self, services: Services) -> None:
        """Start what puts messages by itself; only a master does."""
        config, repeat = self.config, self._writes.repeat
        services.start(
            "delay offsets",
            repeat(self.delays.persist, "delay levels", lambda: config.flush_delay_offset_interval / 1000),
        )
        for level in range(1, self.delays.levels + 1):
            services.start(f"delay level {level}", self.delays.run(level))
        services.start("transactions", self.transactions.run())
        if config.timer_wheel_enable:
            services.start("timed messages", self.timers.run())
            services.start(
                "timer files",
                repeat(self.timers.persist, "timed messages", lambda: config.timer_flush_interval_ms / 1000),
            )
        services.start("counts of transactions", self._write_counts())

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
                await self._writes.do(self.store.flush)
            except (RocketcError, OSError) as error:
                _log.error("the last flush failed: %s", error)
        await self.master.close()
        if self.waits is not None:
            self.waits.close()
        await ends
        if self._services is not None:
            await self._services.__aexit__()
        if self._changes is not None:
            self._changes.close()
        self.assignments.close()
        self.name_servers.close()
        if self.slave is not None:
            self.slave.close()
        self.op_marks.close()
        await self.admin.close()
        self.topics.close()
        await self.tables.close()
        deliveries: list[tuple[str, Callable[[], object]]] = [
            ("the offsets of delay levels", self.delays.persist),
            ("the files of timed messages", lambda: self.timers.persist(last=True)),
        ]
        await self._writes.do_last(
            [
                *([] if self.is_slave else deliveries),
                (self.offsets.table.path, self.offsets.persist),
                (self.topics.table.path, self.topics.table.persist),
                (self.transaction_stats.open.path, self.transaction_stats.open.persist),
                (self.groups.table.path, self.groups.table.persist),
                (self.filters.table.path, self.filters.table.persist),
                *([] if self._conf is None else [(self._conf.path, self._conf.persist)]),
            ]
        )
        self.timers.close()

    # services

    async def _register(self, first: asyncio.Future[int]) -> None:
        await first
        await self.name_servers.run(self.config.register_name_server_period / 1000)

    async def _write_counts(self) -> None:
        while True:
            await asyncio.sleep(self.config.transaction_metric_flush_interval / 1000)
            if self.transaction_stats.open.changed:
                self.tables.save(self.transaction_stats.open)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_SECONDS)
            idle = [*self.consumers.expire(self._clock()), *self.producers.expire(self._clock())]
            self.filters.expire(self.config.filter_data_clean_time_span)
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
