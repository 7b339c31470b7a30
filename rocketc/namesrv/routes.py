"""The brokers, their topics, and the routes that follow from them. It has neither a clock nor a socket.

Source: RocketMQ RouteInfoManager; where the comments say so, observed on a name server of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketc._layout import SYSTEM_PREFIX
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.limits import BROKERS_MOST, BROKERS_OF_PEER_MOST, PAIRS_MOST, PAIRS_OF_PEER_MOST
from rocketc.remoting.route_data import MASTER, BrokerData, QueueData
from rocketc.tables.fastjson import in_java_order
from rocketc.tables.topics import PERM_READ, PERM_WRITE

SILENT_MS = 120_000  # a broker that names no time of its own is removed after this silence
UNIT, UNIT_SUB = 1, 2  # bits of topic_sys_flag
_MEMBERS_TOPIC = SYSTEM_PREFIX + "SYNC_BROKER_MEMBER_"
_SET_BUCKETS = 16  # of an empty HashSet


class DataVersion(NamedTuple):
    """The version of a broker's topics. Two versions are the same only if all three numbers are."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def is_older_than(self, other: DataVersion) -> bool:
        """Whether it is of an earlier master. The other numbers of two masters cannot be compared."""
        return self.state_version < other.state_version


@dataclass(frozen=True)
class Registration:
    """What a broker says of itself.

    name, cluster, address, id   id 0 is the master, others are slaves
    ha_address                   where slaves of this broker connect; only passed on
    topics                       its queues by topic
    version                      of these topics; None: none was sent
    filter_servers               addresses, only passed on
    timeout                      ms of silence after which it is removed; None: SILENT_MS
    acting_master                whether a slave of this broker may stand in for a lost master; None: the broker does
                                 not say so, as those before 5.0
    """

    name: str
    cluster: str
    address: str
    id: int
    ha_address: str = ""
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    version: DataVersion | None = None
    filter_servers: tuple[str, ...] = ()
    timeout: int | None = None
    acting_master: bool | None = None


class Registered(NamedTuple):
    """The answer to a registration.

    error                       why it was refused; None: it was not
    master_address, ha_address  for a slave whose master is known
    """

    error: str | None = None
    master_address: str | None = None
    ha_address: str | None = None


@dataclass(eq=False)
class _Member:
    """One registered address."""

    name: str
    cluster: str
    address: str
    id: int
    ha_address: str
    timeout: int
    version: DataVersion
    filter_servers: tuple[str, ...]
    connection: Hashable
    last: int  # ms, of its last sign of life


@dataclass(eq=False)
class _Broker:
    """All addresses of one broker name. The cluster is that of the first registration."""

    cluster: str
    acting_master: bool
    members: dict[int, _Member] = field(default_factory=dict)


class Route(NamedTuple):
    """Where a topic is.

    filter_servers  by the address of their broker
    """

    brokers: list[BrokerData]
    queues: list[QueueData]
    filter_servers: dict[str, tuple[str, ...]]


class RouteTable:
    """The tables of a name server.

    config  the settings support_acting_master and delete_topic_with_broker_registration; they may change at any time
    clock   wall time in ms, for brokers that send no data version
    most_brokers, most_queue_datas                  of addresses, and of pairs of topic and broker
    most_brokers_of_peer, most_queue_datas_of_peer  the same, of one connection
    Times are arguments, in ms of any clock that does not go back. A connection is any hashable value.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        clock: Callable[[], int],
        *,
        most_brokers: int = BROKERS_MOST,
        most_brokers_of_peer: int = BROKERS_OF_PEER_MOST,
        most_queue_datas: int = PAIRS_MOST,
        most_queue_datas_of_peer: int = PAIRS_OF_PEER_MOST,
    ) -> None:
        self._config = config
        self._clock = clock
        self._most_brokers = most_brokers
        self._most_brokers_of_peer = most_brokers_of_peer
        self._most_queue_datas = most_queue_datas
        self._most_queue_datas_of_peer = most_queue_datas_of_peer
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name; no entry is empty
        self._brokers: dict[str, _Broker] = {}  # no entry is without members
        self._members: dict[tuple[str, str], _Member] = {}  # by cluster and address: the same as in _brokers
        self._queue_datas = 0  # entries of _topics in all
        self._topics_of: dict[str, set[str]] = {}  # by broker name: where _topics has it; no entry is empty
        self._registered: dict[Hashable, dict[_Member, None]] = {}  # by connection; no entry is empty

    # brokers come

    def register(self, broker: Registration, connection: Hashable, now: int) -> Registered:
        """Note a broker and its topics.

        Topics count only from a master. While there is none, they count from the slave with the lowest id, if it says
        whether it may stand in; if it may, without write permission (observed). A topic that the broker has already
        changes only with another data version.
        An address that registers with a lower state version than the one that has its id is ignored: the answer is
        positive, and nothing changes. An id that is not known yet cannot begin with exactly one topic: RocketMQ takes
        such a request for one about a single topic (observed).
        """
        known = self._brokers.get(broker.name)
        holder = known.members.get(broker.id) if known is not None else None
        version = DataVersion(timestamp=self._clock()) if broker.version is None else broker.version
        if holder is not None and holder.address != broker.address and version.is_older_than(holder.version):
            return Registered()
        if holder is None and len(broker.topics) == 1:
            return Registered(error="register broker failed")
        if error := self._refusal(broker, connection):
            return Registered(error=error)

        before = self._members.get((broker.cluster, broker.address))
        is_changed = holder is None or before is None or before.version != version
        self._make_room(broker, before)
        data = self._brokers.setdefault(broker.name, _Broker(broker.cluster, False))
        data.acting_master = bool(broker.acting_master)
        member = _Member(
            broker.name, broker.cluster, broker.address, broker.id, broker.ha_address,
            SILENT_MS if broker.timeout is None else broker.timeout, version, broker.filter_servers, connection, now,
        )  # fmt: skip
        data.members[broker.id] = self._members[broker.cluster, broker.address] = member
        self._registered.setdefault(connection, {})[member] = None

        is_first = self._lacks_master(data) and broker.id == min(data.members) and broker.acting_master is not None
        if broker.id == MASTER or is_first:
            self._take_topics(broker, is_changed, read_only=is_first and data.acting_master)
        master = data.members.get(MASTER)
        if broker.id == MASTER or master is None or master.cluster != broker.cluster:
            return Registered()
        return Registered(None, master.address, master.ha_address)

    def _refusal(self, broker: Registration, connection: Hashable) -> str | None:
        before = self._members.get((broker.cluster, broker.address))
        if before is None and len(self._members) >= self._most_brokers:
            return f"there are {self._most_brokers} brokers already"
        registered = self._registered.get(connection, {})
        if before not in registered and len(registered) >= self._most_brokers_of_peer:
            return f"this connection has registered {self._most_brokers_of_peer} brokers already"
        own = self._topics_of.get(broker.name, set())
        new = sum(topic not in own for topic in broker.topics)
        if self._queue_datas + new > self._most_queue_datas:
            return f"there would be more than {self._most_queue_datas} pairs of topic and broker"
        names = {member.name for member in registered} | {broker.name}
        if new + sum(len(self._topics_of.get(name, ())) for name in names) > self._most_queue_datas_of_peer:
            most = self._most_queue_datas_of_peer
            return f"this connection would have registered more than {most} pairs of topic and broker"
        return None

    def _make_room(self, broker: Registration, before: _Member | None) -> None:
        """Remove what the new member replaces: the holder of its id, and other ids and names of its address."""
        if before is not None and before.name != broker.name:
            self._remove(before)
        data = self._brokers.get(broker.name)
        for member in list(data.members.values()) if data is not None else ():
            if member.id == broker.id or member.address == broker.address:
                assert data is not None
                self._forget(data, member)

    def _take_topics(self, broker: Registration, is_changed: bool, read_only: bool) -> None:
        if self._config.delete_topic_with_broker_registration:
            for topic in self._topics_of.get(broker.name, set()) - broker.topics.keys():
                self._drop(topic, broker.name)
        for topic, queue in broker.topics.items():
            if is_changed or broker.name not in self._topics.get(topic, ()):
                perm = queue.perm & ~PERM_WRITE if read_only else queue.perm
                self._put(topic, queue._replace(broker_name=broker.name, perm=perm))

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> str | None:
        """Note the queues of one topic. If one of its brokers is not registered, nothing changes (observed).

        Returns why it was refused; None: it was not.
        """
        by_name = {queue.broker_name: queue for queue in queues}
        if not all(name in self._brokers for name in by_name):
            return None
        new = by_name.keys() - self._topics.get(topic, {}).keys()
        if self._queue_datas + len(new) > self._most_queue_datas:
            return f"there would be more than {self._most_queue_datas} pairs of topic and broker"
        if any(len(self._topics_of.get(name, ())) >= self._most_queue_datas_of_peer for name in new):
            return f"a broker would have more than {self._most_queue_datas_of_peer} topics"
        for queue in by_name.values():
            self._put(topic, queue)
        return None

    def heartbeat(self, cluster: str, address: str, now: int) -> None:
        """A broker is alive. Unknown ones are left out."""
        if (member := self._members.get((cluster, address))) is not None:
            member.last = now

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the data version that a broker registered."""
        member = self._members.get((cluster, address))
        return None if member is None else member.version

    # brokers go

    def unregister(self, name: str, cluster: str, address: str) -> bool:
        """Remove a broker's address at its own request. False: it is not there under this name."""
        member = self._members.get((cluster, address))
        if member is None or member.name != name:
            return False
        self._remove(member)
        return True

    def lost(self, connection: Hashable) -> list[str]:
        """A connection ended: remove the brokers that registered last through it. Return their addresses."""
        gone = list(self._registered.get(connection, ()))
        for member in gone:
            self._remove(member)
        return [member.address for member in gone]

    def expire(self, now: int) -> list[tuple[str, Hashable]]:
        """Remove the brokers that were silent for too long. Return the address and the connection of each."""
        gone = [member for member in self._members.values() if member.last + member.timeout < now]
        for member in gone:
            self._remove(member)
        return [(member.address, member.connection) for member in gone]

    def _remove(self, member: _Member) -> None:
        """Remove a member. The topics of a broker name go with its last member; without its master, they lose WRITE
        if a slave may stand in for it.
        """
        data = self._brokers[member.name]
        self._forget(data, member)
        if not data.members:
            del self._brokers[member.name]
            for topic in list(self._topics_of.get(member.name, ())):
                self._drop(topic, member.name)
        elif data.acting_master and member.id == MASTER:
            self._change_perms(member.name, lambda perm: perm & ~PERM_WRITE)

    def _forget(self, data: _Broker, member: _Member) -> None:
        del self._members[member.cluster, member.address], data.members[member.id]
        registered = self._registered[member.connection]
        del registered[member]
        if not registered:
            del self._registered[member.connection]

    # topics

    def _put(self, topic: str, queue: QueueData) -> None:
        queues = self._topics.setdefault(topic, {})
        if queue.broker_name not in queues:
            self._queue_datas += 1
            self._topics_of.setdefault(queue.broker_name, set()).add(topic)
        queues[queue.broker_name] = queue

    def _drop(self, topic: str, name: str) -> None:
        queues, own = self._topics[topic], self._topics_of[name]
        own.discard(topic)
        if not own:
            del self._topics_of[name]
        del queues[name]
        self._queue_datas -= 1
        if not queues:
            del self._topics[topic]

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic; with `cluster`, only on the brokers of this cluster."""
        names = None if cluster is None else self._names_of(cluster)
        for name in list(self._topics.get(topic, ())):
            if names is None or name in names:
                self._drop(topic, name)

    def wipe_write_perm(self, name: str) -> int:
        """Take the write permission from all topics of a broker name. Return the number of its topics."""
        return self._change_perms(name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, name: str) -> int:
        """Let all topics of a broker name be read and written. Return the number of its topics.

        As in RocketMQ, other bits of the permission are lost, and so is what wipe_write_perm() has found (observed).
        """
        return self._change_perms(name, lambda perm: PERM_READ | PERM_WRITE)

    def _change_perms(self, name: str, change: Callable[[int], int]) -> int:
        topics = self._topics_of.get(name, ())
        for topic in topics:
            queue = self._topics[topic][name]
            self._topics[topic][name] = queue._replace(perm=change(queue.perm))
        return len(topics)

    # answers

    def route(self, topic: str) -> Route | None:
        """Return the route of a topic; None if no broker has it."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        is_private = topic.startswith(_MEMBERS_TOPIC)  # the members of one broker name need the real ids (observed)
        brokers = [self._data(name, None if is_private else queue) for name, queue in queues.items()]
        members = [member for name in queues for member in self._brokers[name].members.values()]
        filters = {member.address: member.filter_servers for member in members if member.filter_servers}
        return Route(brokers, list(queues.values()), filters)

    def _data(self, name: str, queue: QueueData | None = None) -> BrokerData:
        """Return a broker as it appears in answers. For a route: with the stand-in for a lost master as master."""
        data = self._brokers[name]
        addresses = {id: data.members[id].address for id in sorted(data.members)}
        if (
            queue is not None
            and self._config.support_acting_master
            and data.acting_master
            and self._lacks_master(data)
            and not queue.perm & PERM_WRITE
        ):
            lowest = min(addresses)
            addresses = dict(sorted({**addresses, MASTER: addresses[lowest]}.items()))
            del addresses[lowest]
        return BrokerData(name, data.cluster, addresses, data.acting_master)

    @staticmethod
    def _lacks_master(data: _Broker) -> bool:
        return bool(data.members) and MASTER not in data.members

    def brokers(self) -> dict[str, BrokerData]:
        """Return all brokers by name."""
        return {name: self._data(name) for name in in_java_order(self._brokers, _SET_BUCKETS)}

    def clusters(self) -> dict[str, list[str]]:
        """Return the broker names of each cluster."""
        found: dict[str, dict[str, None]] = {}
        for member in self._members.values():
            found.setdefault(member.cluster, {})[member.name] = None
        return {name: list(in_java_order(found[name], _SET_BUCKETS)) for name in in_java_order(found, _SET_BUCKETS)}

    def _names_of(self, cluster: str) -> set[str]:
        return {member.name for member in self._members.values() if member.cluster == cluster}

    def members(self, name: str) -> dict[int, str]:
        """Return the addresses of a broker name by id, sorted by it; {} for an unknown name."""
        data = self._brokers.get(name)
        return {} if data is None else {id: data.members[id].address for id in sorted(data.members)}

    def topics(self, cluster: str | None = None) -> list[str]:
        """Return all topics, or those that a broker of this cluster has."""
        if cluster is None:
            return self._as_set(self._topics)
        names = self._names_of(cluster)
        return self._as_set(topic for topic, queues in self._topics.items() if not names.isdisjoint(queues))

    def topics_by_flag(self, has: int, has_not: int = 0) -> list[str]:
        """Return the topics whose topic_sys_flag, on the first broker, has these bits and does not have the others."""
        flags = {topic: next(iter(queues.values())).topic_sys_flag for topic, queues in self._topics.items()}
        return self._as_set(topic for topic, flag in flags.items() if flag & has == has and not flag & has_not)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics that are named after clusters and brokers, and the address of one broker."""
        clusters = self.clusters()
        names = self._as_set([*clusters, *(name for names in clusters.values() for name in names)])
        first = next(iter(self.brokers().values()), None)
        return names, None if first is None else next(iter(first.addresses.values()))

    @staticmethod
    def _as_set(names: Iterable[str]) -> list[str]:
        """Names in the order of a Java HashSet."""
        return list(in_java_order(dict.fromkeys(names), _SET_BUCKETS))
