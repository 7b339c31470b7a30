"""Where the queues of a topic are, and which brokers a cluster has, as name servers describe it.

Source: RocketMQ TopicRouteData, QueueData, BrokerData, ClusterInfo, MessageQueue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketc.client.bodies import Fields
from rocketc.tables.topics import PERM_READ, PERM_WRITE

MASTER = 0


class MessageQueue(NamedTuple):
    """One queue of a topic: brokers count their own queues from 0."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True)
class QueueData:
    """The queues of a topic on one broker.

    perm  bits: 4 read, 2 write, 1 inherit
    """

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True)
class BrokerData:
    """The brokers with one name: a master, which has the id 0, and its slaves.

    addresses  host:port by broker id
    """

    name: str
    cluster: str
    addresses: dict[int, str] = field(hash=False)

    @property
    def master(self) -> str | None:
        """The address of the master; None while there is none."""
        return self.addresses.get(MASTER)


@dataclass(frozen=True)
class TopicRoute:
    """The brokers and queues of one topic."""

    brokers: tuple[BrokerData, ...]
    queues: tuple[QueueData, ...]

    def masters(self) -> dict[str, str]:
        """Return the addresses of the masters by broker name."""
        return masters(self.brokers)

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that consumers read, in the order of their names and numbers.

        >>> data = QueueData("broker-a", 1, 2, 6)
        >>> TopicRoute((), (data,)).read_queues("orders")
        [MessageQueue(topic='orders', broker_name='broker-a', queue_id=0)]
        """
        return self._queues(topic, PERM_READ, "read_queue_nums")

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that producers write, in the order of their names and numbers.

        >>> data = QueueData("broker-a", 1, 2, 6)
        >>> [queue.queue_id for queue in TopicRoute((), (data,)).write_queues("orders")]
        [0, 1]
        """
        return self._queues(topic, PERM_WRITE, "write_queue_nums")

    def _queues(self, topic: str, perm: int, count: str) -> list[MessageQueue]:
        datas = sorted((data for data in self.queues if data.perm & perm), key=lambda data: data.broker_name)
        return [MessageQueue(topic, data.broker_name, i) for data in datas for i in range(getattr(data, count))]


@dataclass(frozen=True)
class ClusterInfo:
    """All brokers that a name server knows.

    brokers   by broker name
    clusters  broker names by cluster name
    """

    brokers: dict[str, BrokerData] = field(hash=False)
    clusters: dict[str, tuple[str, ...]] = field(hash=False)

    def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the addresses of the masters by broker name.

        cluster  only of this cluster; None: of all
        """
        names = self.brokers if cluster is None else self.clusters.get(cluster, ())
        return masters(self.brokers[name] for name in names if name in self.brokers)


def masters(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Return the addresses of the masters of these brokers by broker name, in the order of the names.

    >>> masters([BrokerData("b", "C", {0: "10.0.0.2:10911"}), BrokerData("a", "C", {1: "10.0.0.3:10911"})])
    {'b': '10.0.0.2:10911'}
    """
    return {one.name: one.master for one in sorted(brokers, key=lambda one: one.name) if one.master is not None}


def decode_route(fields: Fields) -> TopicRoute:
    """Decode TopicRouteData. Raises ValueError.

    >>> from rocketc.client.bodies import parse_fields
    >>> body = b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a","cluster":"C"}],"queueDatas":[]}'
    >>> decode_route(parse_fields(body)).masters()
    {'a': '10.0.0.1:10911'}
    """
    return TopicRoute(
        tuple(_broker(one) for one in fields.objects("brokerDatas")),
        tuple(
            QueueData(
                one.text("brokerName"),
                one.number("readQueueNums"),
                one.number("writeQueueNums"),
                one.number("perm"),
                one.number("topicSysFlag", 0),
            )
            for one in fields.objects("queueDatas")
        ),
    )


def decode_cluster(fields: Fields) -> ClusterInfo:
    """Decode ClusterInfo. Raises ValueError.

    >>> from rocketc.client.bodies import parse_fields
    >>> decode_cluster(parse_fields(b'{"brokerAddrTable":{},"clusterAddrTable":{"C":["a"]}}')).clusters
    {'C': ('a',)}
    """
    return ClusterInfo(
        {str(name): _broker(one) for name, one in fields.table("brokerAddrTable")},
        {str(name): tuple(names) for name, names in fields.lists("clusterAddrTable")},
    )


def _broker(fields: Fields) -> BrokerData:
    addresses = {int(str(id)): address for id, address in fields.texts("brokerAddrs").items()}
    return BrokerData(fields.text("brokerName"), fields.text("cluster", ""), dict(sorted(addresses.items())))
