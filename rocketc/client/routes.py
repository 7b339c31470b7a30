"""Where the queues of a topic are, and which brokers a cluster has, as name servers describe it.

Source: RocketMQ TopicRouteData, QueueData, BrokerData, ClusterInfo, MessageQueue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rocketc.client.bodies import Fields
from rocketc.errors import NotSentError, RocketcError, TopicNotFoundError, TopicPermissionError
from rocketc.remoting.route_data import BrokerData, QueueData
from rocketc.remoting.route_data import MessageQueue as MessageQueue  # others import it from here
from rocketc.tables.topics import PERM_READ, PERM_WRITE

_QUEUES_MOST = 1 << 20  # of one topic: more would only fill the memory
_ORDER_ITEM = re.compile(r"\s*([^:]*[^:\s])\s*:\s*([+-]?\d{1,9})\s*(?::.*)?")  # what Java reads, and spaces


@dataclass(frozen=True)
class TopicRoute:
    """The brokers and queues of one topic.

    order  of an ordered topic: the brokers that producers write to, and the number of queues on each, in this order.
           An operator sets it: mqadmin updateOrderConf, namespace ORDER_TOPIC_CONFIG of the name server
    malformed_order  what the operator wrote, if clients cannot use all of it
    """

    brokers: tuple[BrokerData, ...]
    queues: tuple[QueueData, ...]
    order: tuple[tuple[str, int], ...] = ()
    malformed_order: str | None = None

    def masters(self) -> dict[str, str]:
        """Return the addresses of the masters by broker name."""
        return masters(self.brokers)

    def datas(self) -> dict[str, QueueData]:
        """Return what each broker has of the topic, by broker name, in the order of the names."""
        return {one.broker_name: one for one in sorted(self.queues, key=lambda one: one.broker_name)}

    def read_queues(self, topic: str, broker_name: str | None = None) -> list[MessageQueue]:
        """Return the queues that consumers read, in the order of their names and numbers.

        broker_name  only of this broker

        >>> data = QueueData("broker-a", 1, 2, 6)
        >>> TopicRoute((), (data,)).read_queues("orders")
        [MessageQueue(topic='orders', broker_name='broker-a', queue_id=0)]
        """
        return self._queues(topic, PERM_READ, "read_queue_nums", broker_name)

    def unreadable(self, topic: str) -> str | None:
        """Return a line about the brokers whose messages consumers may not read; None: there are no such brokers.

        RocketMQ before 5.0 makes the topics of dead letters so.

        >>> print(TopicRoute((), (QueueData("broker-a", perm=2),)).unreadable("%DLQ%billing"))
        topic '%DLQ%billing' may not be read on broker-a; allow it: rocketc admin permissions %DLQ%billing --set rw
        """
        names = [name for name, one in self.datas().items() if one.read_queue_nums > 0 and not one.perm & PERM_READ]
        if not names:
            return None
        brokers = ", ".join(names)
        return f"topic {topic!r} may not be read on {brokers}; allow it: rocketc admin permissions {topic} --set rw"

    def unwritable(self, topic: str) -> RocketcError:
        """Return the error for a send to a topic without a queue to write now: why, and what to do.

        >>> TopicRoute((), (QueueData("broker-a", 4, 4, perm=4),)).unwritable("bills")
        TopicPermissionError("topic 'bills' may not be written on broker-a; allow it: rocketc admin permissions bills \
--set rw; if all topics of a broker are so: rocketc admin permissions -b broker-a --set rw")
        """
        allowed = {name: one for name, one in self.datas().items() if one.perm & PERM_WRITE}
        if not allowed:
            names = list(self.datas())
            return TopicPermissionError(
                f"topic {topic!r} may not be written on {', '.join(names)}; "
                f"allow it: rocketc admin permissions {topic} --set rw; "
                f"if all topics of a broker are so: rocketc admin permissions -b {names[0]} --set rw"
            )
        names = [name for name, one in allowed.items() if one.write_queue_nums > 0]
        if not names:
            return TopicNotFoundError(
                f"topic {topic!r} lacks queues to write on {', '.join(allowed)}; "
                f"give it some: rocketc admin create-topic {topic} --queues 8"
            )
        return NotSentError(f"topic {topic!r}: no master of {', '.join(names)} is known now; see rocketc admin brokers")

    def misordered(self, topic: str) -> str | None:
        """Return a line about the order of an ordered topic, if some of it cannot be used; None: all is right.

        >>> print(TopicRoute((), (), (("broker-a", 4),), "broker-a:4;broker-b").misordered("bills"))
        topic 'bills': orderTopicConf is 'broker-a:4;broker-b', expected broker:queues;broker:queues; producers use \
broker-a:4; correct it: mqadmin updateOrderConf
        """
        if self.malformed_order is None:
            return None
        used = ";".join(f"{name}:{count}" for name, count in self.order) or "all queues of the topic"
        return (
            f"topic {topic!r}: orderTopicConf is {self.malformed_order[:60]!r}, expected broker:queues;broker:queues; "
            f"producers use {used}; correct it: mqadmin updateOrderConf"
        )

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that producers write, in the order of their names and numbers, or of an ordered topic.

        >>> data = QueueData("broker-a", 1, 2, 6)
        >>> [queue.queue_id for queue in TopicRoute((), (data,)).write_queues("orders")]
        [0, 1]
        """
        if self.order:
            return [MessageQueue(topic, name, i) for name, count in self.order for i in range(count)]
        return self._queues(topic, PERM_WRITE, "write_queue_nums", None)

    def _queues(self, topic: str, perm: int, count: str, broker_name: str | None) -> list[MessageQueue]:
        return [
            MessageQueue(topic, name, i)
            for name, data in self.datas().items()
            if data.perm & perm and broker_name in (None, name)
            for i in range(getattr(data, count))
        ]


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
    queues = tuple(
        QueueData(
            one.text("brokerName"),
            one.number("readQueueNums"),
            one.number("writeQueueNums"),
            one.number("perm"),
            one.number("topicSysFlag", 0),
        )
        for one in fields.objects("queueDatas")
    )
    count = sum(max(0, one.read_queue_nums) + max(0, one.write_queue_nums) for one in queues)
    if count > _QUEUES_MOST:
        raise ValueError(f"the topic has {count} queues; at most {_QUEUES_MOST} are possible")
    text = fields.members.get("orderTopicConf")
    order, is_right = _order("" if text is None else str(text))
    brokers = tuple(_broker(one) for one in fields.objects("brokerDatas"))
    return TopicRoute(brokers, queues, order, None if is_right else str(text))


def _order(text: str) -> tuple[tuple[tuple[str, int], ...], bool]:
    """The brokers and numbers of queues that clients can use of an order, and whether Java's clients can use all of it.

    Source: RocketMQ MQClientInstance.topicRouteData2TopicPublishInfo, which fails at the first wrong item.

    >>> _order("broker-a:4;broker-b:4;")
    ((('broker-a', 4), ('broker-b', 4)), True)
    >>> _order(" broker-a:4;broker-b")
    ((('broker-a', 4),), False)
    """
    found: list[tuple[str, int]] = []
    room, is_right = _QUEUES_MOST, True
    for item in text.rstrip(";").split(";") if text else ():
        match = _ORDER_ITEM.fullmatch(item)
        count = max(0, int(match[2])) if match else 0
        if match is None or count > room:
            is_right = False
            continue
        found.append((match[1], count))
        room -= count
        is_right &= item.split(":")[:2] == [match[1], match[2]]  # Java does not remove spaces
    return tuple(found), is_right


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
