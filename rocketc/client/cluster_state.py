"""What brokers say of themselves, their topics and their consumer groups, as values.

Source: RocketMQ KVTable, TopicStatsTable, ConsumeStats, ConsumerConnection, ProducerConnection, TopicConfig.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketc.client.bodies import Fields
from rocketc.client.routes import MessageQueue
from rocketc.tables.topics import PERM_READ, PERM_WRITE, TopicConfig


@dataclass(frozen=True)
class BrokerState:
    """One broker process.

    fault    why it did not answer; None: it did
    runtime  texts by name, as GET_BROKER_RUNTIME_INFO has them
    """

    name: str
    cluster: str
    broker_id: int
    address: str
    fault: str | None = None
    runtime: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def version(self) -> str:
        return self.runtime.get("brokerVersionDesc", "")

    @property
    def replication_fault(self) -> str | None:
        """Why a slave does not copy its master's log any more. None: it copies, or it is a slave of RocketMQ."""
        return self.runtime.get("replicationFault")

    def rate(self, name: str) -> float | None:
        """Return a rate per second over the last 10 s; None if the broker does not have it.

        name  of the entry, such as "putTps" or "getTransferredTps", which 4.x writes with one r

        >>> BrokerState("a", "C", 0, "10.0.0.1:10911", runtime={"putTps": "12.5 11.0 9.0 "}).rate("putTps")
        12.5
        """
        text = self.runtime.get(name) or self.runtime.get(name.replace("ferred", "fered"), "")
        return _real(text.partition(" ")[0])

    def today(self, name: str) -> int | None:
        """Return how many messages were put ("Put") or got ("Get") since midnight.

        >>> runtime = {"msgPutTotalTodayNow": "25", "msgPutTotalTodayMorning": "5"}
        >>> BrokerState("a", "C", 0, "10.0.0.1:10911", runtime=runtime).today("Put")
        20
        """
        now, morning = (_whole(self.runtime.get(f"msg{name}TotalToday{when}", "")) for when in ("Now", "Morning"))
        return None if now is None or morning is None else now - morning

    @property
    def started_at(self) -> int | None:
        """When the broker started, ms since the epoch."""
        return _whole(self.runtime.get("bootTimestamp", ""))

    @property
    def disk_ratio(self) -> float | None:
        """Which part of the disk of the commit log is in use, 0 to 1."""
        return _real(self.runtime.get("commitLogDiskRatio", ""))

    @property
    def log_start(self) -> int | None:
        """Physical offset at which its commit log begins."""
        return _whole(self.runtime.get("commitLogMinOffset", ""))

    @property
    def log_end(self) -> int | None:
        """Physical offset at which its commit log ends.

        >>> BrokerState("a", "C", 0, "10.0.0.1:10911", runtime={"commitLogMaxOffset": "5"}).log_end
        5
        """
        return _whole(self.runtime.get("commitLogMaxOffset", ""))


class Replica(NamedTuple):
    """A connection of a replica to a master: of a slave, or of another program that copies the log.

    address       of the replica's end of the connection: its port is not that of a broker
    acknowledged  physical offset up to which it says to have the log
    behind        bytes that it lacks
    is_in_sync    whether the master counts it as in sync
    """

    address: str
    acknowledged: int
    behind: int
    is_in_sync: bool
    bytes_per_second: int


class QueueState(NamedTuple):
    """One queue of a topic.

    last_update  ms since the epoch of its last message; 0: it is empty, or only read, on a broker of 4.x
    """

    min_offset: int
    max_offset: int
    last_update: int


class QueueLag(NamedTuple):
    """How far a group is in one queue.

    last_timestamp  store time of the last message that it consumed, ms since the epoch; 0: none
    """

    broker_offset: int
    consumer_offset: int
    last_timestamp: int

    @property
    def lag(self) -> int:
        """Messages that are not consumed yet."""
        return max(self.broker_offset - max(self.consumer_offset, 0), 0)


@dataclass(frozen=True)
class ConsumeState:
    """How far a group is.

    tps  messages that it gets per second
    """

    tps: float
    queues: dict[MessageQueue, QueueLag] = field(hash=False)

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues.values())


class ClientState(NamedTuple):
    """One client that is connected to a broker."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True)
class ConsumersState:
    """The consumers of a group that are online.

    subscriptions  the expression by topic
    """

    clients: tuple[ClientState, ...]
    consume_type: str = ""
    message_model: str = ""
    subscriptions: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == "BROADCASTING"


def decode_runtime(fields: Fields) -> dict[str, str]:
    """Decode KVTable. Raises ValueError, as all functions here.

    >>> decode_runtime(Fields({"table": {"brokerVersion": "479"}}))
    {'brokerVersion': '479'}
    """
    return {str(name): value for name, value in fields.texts("table").items()}


def decode_replicas(fields: Fields) -> list[Replica]:
    """Decode HARuntimeInfo: the replicas that are connected to a master.

    >>> decode_replicas(Fields({"haConnectionInfo": [{"addr": "10.0.0.2:40000", "slaveAckOffset": 90, "diff": 10}]}))
    [Replica(address='10.0.0.2:40000', acknowledged=90, behind=10, is_in_sync=False, bytes_per_second=0)]
    """
    return [
        Replica(
            one.text("addr"),
            one.number("slaveAckOffset"),
            one.number("diff", 0),
            one.truth("inSync", False),
            one.number("transferredByteInSecond", 0),
        )
        for one in fields.objects("haConnectionInfo")
    ]


def decode_topic_state(fields: Fields) -> dict[MessageQueue, QueueState]:
    """Decode TopicStatsTable.

    >>> decode_topic_state(Fields({"offsetTable": {}}))
    {}
    """
    return {
        _queue(key): QueueState(one.number("minOffset"), one.number("maxOffset"), one.number("lastUpdateTimestamp", 0))
        for key, one in fields.table("offsetTable")
    }


def decode_consume_state(fields: Fields) -> ConsumeState:
    """Decode ConsumeStats.

    >>> decode_consume_state(Fields({"consumeTps": 1.5})).tps
    1.5
    """
    return ConsumeState(
        fields.real("consumeTps", 0.0),
        {
            _queue(key): QueueLag(
                one.number("brokerOffset"), one.number("consumerOffset"), one.number("lastTimestamp", 0)
            )
            for key, one in fields.table("offsetTable")
        },
    )


def decode_consumers(fields: Fields) -> ConsumersState:
    """Decode ConsumerConnection.

    >>> decode_consumers(Fields({"connectionSet": [], "messageModel": "CLUSTERING"})).clients
    ()
    """
    return ConsumersState(
        decode_clients(fields),
        fields.text("consumeType", ""),
        fields.text("messageModel", ""),
        {str(topic): one.text("subString", "") for topic, one in fields.table("subscriptionTable")},
    )


def decode_clients(fields: Fields) -> tuple[ClientState, ...]:
    """Decode ProducerConnection, or the clients of ConsumerConnection.

    >>> decode_clients(Fields({"connectionSet": [{"clientId": "c", "clientAddr": "10.0.0.9:4000"}]}))
    (ClientState(client_id='c', address='10.0.0.9:4000', language='', version=0),)
    """
    found = (
        ClientState(
            one.text("clientId"), one.text("clientAddr", ""), one.text("language", ""), one.number("version", 0)
        )
        for one in fields.objects("connectionSet")
    )
    return tuple(sorted(found))


def decode_topic(fields: Fields) -> TopicConfig:
    """Decode TopicConfig.

    >>> decode_topic(Fields({"topicName": "orders", "perm": 4})).perm
    4
    """
    return TopicConfig(
        fields.text("topicName"),
        fields.number("readQueueNums", 16),
        fields.number("writeQueueNums", 16),
        fields.number("perm", PERM_READ | PERM_WRITE),
        fields.truth("order", False),
        fields.text("topicFilterType", "SINGLE_TAG"),
        fields.number("topicSysFlag", 0),
        {str(name): text for name, text in fields.texts("attributes").items()},
    )


def decode_offsets(fields: Fields) -> dict[MessageQueue, int]:
    """Decode ResetOffsetBody: queue offsets.

    >>> decode_offsets(Fields({}))
    {}
    """
    return {_queue(key): offset for key, offset in fields.numbers("offsetTable")}


def merged(states: Iterable[ConsumeState]) -> ConsumeState:
    """Return the state of a group over several brokers.

    >>> merged([ConsumeState(1.0, {}), ConsumeState(0.5, {})]).tps
    1.5
    """
    states = list(states)
    return ConsumeState(
        sum(state.tps for state in states),
        {queue: lag for state in states for queue, lag in sorted(state.queues.items())},
    )


def merged_consumers(states: Iterable[ConsumersState]) -> ConsumersState:
    """Return the consumers of a group over several brokers: each is connected to most of them.

    >>> one = ConsumersState((ClientState("c", "10.0.0.9:4000", "JAVA", 479),))
    >>> len(merged_consumers([one, one]).clients)
    1
    """
    by_id: dict[str, ClientState] = {}
    kind = model = ""
    subscriptions: dict[str, str] = {}
    for state in states:
        for client in state.clients:
            by_id.setdefault(client.client_id, client)
        kind, model = state.consume_type or kind, state.message_model or model
        subscriptions |= state.subscriptions
    return ConsumersState(tuple(by_id[id] for id in sorted(by_id)), kind, model, dict(sorted(subscriptions.items())))


def _queue(key: object) -> MessageQueue:
    if not isinstance(key, Fields):
        raise ValueError(f"{key!r} is not a queue")
    return MessageQueue(key.text("topic"), key.text("brokerName"), key.number("queueId"))


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _real(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
