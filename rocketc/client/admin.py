"""What an operator asks of a cluster and changes in it, over its name servers: our brokers and RocketMQ's.

Source: RocketMQ DefaultMQAdminExtImpl.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rocketc._layout import RETRY_PREFIX
from rocketc.client.bodies import Fields
from rocketc.client.cluster_state import (
    BrokerState,
    ClientState,
    ConsumersState,
    ConsumeState,
    QueueState,
    decode_clients,
    decode_consume_state,
    decode_consumers,
    decode_offsets,
    decode_runtime,
    decode_topic,
    decode_topic_state,
    merged,
    merged_consumers,
)
from rocketc.client.connections import UNREACHABLE, Connections, Connector
from rocketc.client.name_servers import NameServers, name_server_addresses
from rocketc.client.routes import ClusterInfo, MessageQueue, TopicRoute
from rocketc.errors import AnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.tables.topics import DEFAULT_TOPIC, TopicConfig

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

EARLIEST, LATEST = 0, -1  # as times: the first message, and after the last one
_UNKNOWN_GROUP = (Code.CONSUMER_NOT_ONLINE, Code.SYSTEM_ERROR, Code.SUBSCRIPTION_GROUP_NOT_EXIST)
_NOT_RESET = (Code.CONSUMER_NOT_ONLINE, Code.SYSTEM_ERROR)  # SYSTEM_ERROR: the group has not used all queues
_NOT_THERE = (Code.REQUEST_CODE_NOT_SUPPORTED, Code.TOPIC_NOT_EXIST)


class Admin:
    """Asks and changes a cluster.

        async with Admin("10.0.0.1:9876") as admin:
            print(await admin.topics())

    name_server  addresses of the name servers, separated by `;`; None: those in NAMESRV_ADDR, or 127.0.0.1:9876
    timeout      seconds for one request
    connector    how to connect, for tests; None: TCP
    Methods raise NotSentError, ConnectionLostError or NoAnswerError if a server is not reached, and AnswerError if it
    refuses. Use it on one event loop.

    >>> import asyncio, rocketc
    >>> async def main(name_server):
    ...     async with Admin(name_server) as admin:
    ...         return list((await admin.cluster()).clusters)
    >>> with rocketc.Broker() as broker:
    ...     asyncio.run(main(broker.name_server))
    ['DefaultCluster']
    """

    def __init__(
        self, name_server: str | None = None, *, timeout: float = 5.0, connector: Connector | None = None
    ) -> None:
        self._addresses = name_server_addresses(name_server)
        self._timeout, self._connector = timeout, connector

    async def __aenter__(self) -> Self:
        self._connections = Connections(random.Random(), self._timeout, self._connector)
        self._names = NameServers(self._addresses, self._connections)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._connections.close()
        await asyncio.sleep(0)  # the transports close

    # brokers

    async def cluster(self) -> ClusterInfo:
        """Return all clusters and brokers that the name server knows."""
        return await self._names.cluster()

    async def brokers(self) -> list[BrokerState]:
        """Ask all brokers, slaves included, how they are. Those that do not answer have a fault."""
        brokers = (await self.cluster()).brokers.values()
        asked = [self._broker(one.name, one.cluster, *entry) for one in brokers for entry in one.addresses.items()]
        found = await asyncio.gather(*asked)
        return sorted(found, key=lambda one: (one.cluster, one.name, one.broker_id))

    async def _broker(self, name: str, cluster: str, broker_id: int, address: str) -> BrokerState:
        try:
            runtime = await self._connections.ask(address, CODES["GET_BROKER_RUNTIME_INFO"], {}, decode_runtime)
        except (*UNREACHABLE, AnswerError) as error:
            return BrokerState(name, cluster, broker_id, address, str(error).removeprefix(f"{address}: "))
        return BrokerState(name, cluster, broker_id, address, None, runtime)

    # topics

    async def topics(self) -> list[str]:
        """Return the names of all topics, those of the system included, sorted."""
        return await self._names.topics()

    async def route(self, topic: str) -> TopicRoute:
        """Return where the queues of a topic are. Raises AnswerError if no broker has the topic."""
        found = await self._names.route(topic)
        if found is None:
            raise AnswerError(self._names.address, f"no broker has the topic {topic!r}", Code.TOPIC_NOT_EXIST)
        return found

    async def topic_state(self, topic: str) -> dict[MessageQueue, QueueState]:
        """Return the offsets of all queues of a topic."""
        masters = (await self.route(topic)).masters().values()
        code = CODES["GET_TOPIC_STATS_INFO"]
        found = await self._each(masters, code, {"topic": topic}, decode_topic_state)
        return {queue: state for one in found for queue, state in sorted(one.items())}

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """Return the settings of a topic by broker name.

        Brokers of some 4.x releases do not have this request. Then the queues and permissions are those of the route.
        """
        route = await self.route(topic)
        return {
            data.broker_name: await self._topic_config(route.masters().get(data.broker_name), topic)
            or TopicConfig(topic, data.read_queue_nums, data.write_queue_nums, data.perm)
            for data in route.queues
        }

    async def _topic_config(self, address: str | None, topic: str) -> TopicConfig | None:
        if address is None:
            return None
        try:
            return await self._connections.ask(address, CODES["GET_TOPIC_CONFIG"], {"topic": topic}, decode_topic)
        except AnswerError as error:
            if error.code in _NOT_THERE:
                return None
            raise

    async def create_topic(self, config: TopicConfig, brokers: Iterable[str] | None = None) -> list[str]:
        """Create or change a topic; return the names of the brokers that have it now.

        brokers  their names; None: all masters
        """
        masters = (await self.cluster()).masters()
        names = list(masters) if brokers is None else list(brokers)
        for name in names:
            if name not in masters:
                known = ", ".join(masters) or "none"
                raise AnswerError(self._names.address, f"there is no master {name!r}; there are: {known}")
        values = {
            "topic": config.topic_name,
            "defaultTopic": DEFAULT_TOPIC,
            "readQueueNums": config.read_queue_nums,
            "writeQueueNums": config.write_queue_nums,
            "perm": config.perm,
            "topicFilterType": config.topic_filter_type,
            "topicSysFlag": config.topic_sys_flag,
            "order": config.order,
            "attributes": ",".join(f"+{name}={text}" for name, text in config.attributes.items()),
            "force": False,
        }
        code = CODES["UPDATE_AND_CREATE_TOPIC"]
        await asyncio.gather(*(self._connections.call(masters[name], code, values) for name in names))
        return names

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic with its queues on all brokers, then in the name servers; return the names of the brokers.

        All consumer groups lose their offsets in it. Slaves follow their master.
        """
        route, cluster = await self.route(topic), await self.cluster()
        masters = route.masters() or cluster.masters()
        code = CODES["DELETE_TOPIC_IN_BROKER"]
        await asyncio.gather(*(self._connections.call(one, code, {"topic": topic}) for one in masters.values()))
        for name in {broker.cluster for broker in route.brokers}:
            await self._names.tell(CODES["DELETE_TOPIC_IN_NAMESRV"], {"topic": topic, "clusterName": name})
        return list(masters)

    async def set_topic_permission(self, topic: str, perm: int, brokers: Iterable[str] | None = None) -> list[str]:
        """Change the permission of a topic; return the names of the brokers that have it now.

        perm     bits: 4 read, 2 write
        brokers  their names; None: all that have the topic
        """
        configs = await self.topic_config(topic)
        names = list(configs) if brokers is None else list(brokers)
        for name in names:
            if name not in configs:
                known = ", ".join(configs)
                raise AnswerError(self._names.address, f"the broker {name!r} does not have {topic!r}; {known} do")
        for name in names:
            await self.create_topic(replace(configs[name], perm=perm), [name])
        return names

    async def set_broker_writable(self, broker: str, writable: bool) -> int:
        """Take the write permission of all topics of a broker away in the name servers, or give it back.

        Producers then stop sending to it, and consumers read it to its end. Returns the number of topics.
        """
        name = "ADD_WRITE_PERM_OF_BROKER" if writable else "WIPE_WRITE_PERM_OF_BROKER"
        answers = await self._names.tell(CODES[name], {"brokerName": broker})
        counts = (one.fields.get("addTopicCount" if writable else "wipeTopicCount", "0") for one in answers.values())
        return max(int(count) if count.isdecimal() else 0 for count in counts)

    # consumer groups

    async def groups(self) -> list[str]:
        """Return the names of all consumer groups, sorted."""
        masters = (await self.cluster()).masters().values()
        code = CODES["GET_ALL_SUBSCRIPTIONGROUP_CONFIG"]
        found = await self._each(masters, code, {}, _group_names)
        return sorted({name for names in found for name in names})

    async def consume_state(self, group: str, topic: str | None = None) -> ConsumeState:
        """Return how far a group is in its queues on all brokers.

        topic  only in this one
        """
        masters = await self._brokers_of(group)
        code, values = CODES["GET_CONSUME_STATS"], {"consumerGroup": group, "topic": topic}
        return merged(await self._each(masters, code, values, decode_consume_state, ignore=_UNKNOWN_GROUP))

    async def consumers(self, group: str) -> ConsumersState:
        """Return the consumers of a group that are online; without clients if there are none."""
        masters = await self._brokers_of(group)
        code, values = CODES["GET_CONSUMER_CONNECTION_LIST"], {"consumerGroup": group}
        return merged_consumers(await self._each(masters, code, values, decode_consumers, ignore=_UNKNOWN_GROUP))

    async def producers(self, group: str) -> list[ClientState]:
        """Return the producers of a group that are online."""
        masters = (await self.cluster()).masters().values()
        code, values = CODES["GET_PRODUCER_CONNECTION_LIST"], {"producerGroup": group}
        found = await self._each(masters, code, values, decode_clients, ignore=_UNKNOWN_GROUP)
        return sorted({client.client_id: client for clients in found for client in clients}.values())

    async def _brokers_of(self, group: str) -> Iterable[str]:
        """Return the masters that a group is at: they have its retry topic."""
        route = await self._names.route(RETRY_PREFIX + group)
        masters = {} if route is None else route.masters()
        return (masters or (await self.cluster()).masters()).values()

    async def offsets_at(self, topic: str, timestamp: int) -> dict[MessageQueue, int]:
        """Return the queue offsets of a time in all queues of a topic.

        timestamp  ms since the epoch, or LATEST
        """
        route = await self.route(topic)
        masters = route.masters()
        found = {}
        for queue in route.read_queues(topic):
            if queue.broker_name in masters:
                found[queue] = await self._offset_at(masters[queue.broker_name], queue, timestamp)
        return found

    async def _offset_at(self, address: str, queue: MessageQueue, timestamp: int) -> int:
        values: dict[str, Any] = {"topic": queue.topic, "queueId": queue.queue_id}
        code = CODES["GET_MAX_OFFSET"]
        if timestamp != LATEST:
            code, values = CODES["SEARCH_OFFSET_BY_TIMESTAMP"], {**values, "timestamp": timestamp}
        answer = await self._connections.call(address, code, values)
        offset = answer.fields.get("offset", "")
        if not offset.removeprefix("-").isdecimal():
            raise AnswerError(address, f"the answer has the offset {offset[:40]!r}")
        return int(offset)

    async def reset_offset(self, group: str, topic: str, timestamp: int) -> dict[MessageQueue, int]:
        """Let a group continue at a time, in all queues of a topic; return the new offsets.

        timestamp  ms since the epoch, or LATEST
        Brokers of 5.2 and later, and this project's, do it at once. Older ones ask the consumers, which need some
        seconds; if none is online, the offsets are changed in the broker.
        """
        route = await self.route(topic)
        values = {
            "topic": topic,
            "group": group,
            "timestamp": timestamp,
            "isForce": True,
            "offset": -1,
            "queueId": -1,
        }
        found: dict[MessageQueue, int] = {}
        code = CODES["INVOKE_BROKER_TO_RESET_OFFSET"]
        for name, address in route.masters().items():
            try:
                found |= await self._connections.ask(address, code, values, decode_offsets)
            except AnswerError as error:
                if error.code not in _NOT_RESET or (await self.consumers(group)).clients:
                    raise
                queues = [queue for queue in route.read_queues(topic) if queue.broker_name == name]
                found |= await self._reset_offline(group, address, queues, timestamp)
        return dict(sorted(found.items()))

    async def _reset_offline(
        self, group: str, address: str, queues: Sequence[MessageQueue], timestamp: int
    ) -> dict[MessageQueue, int]:
        found = {}
        for queue in queues:
            found[queue] = offset = await self._offset_at(address, queue, timestamp)
            values = {"consumerGroup": group, "topic": queue.topic, "queueId": queue.queue_id, "commitOffset": offset}
            await self._connections.call(address, CODES["UPDATE_CONSUMER_OFFSET"], values)
        return found

    async def _each(
        self,
        addresses: Iterable[str],
        code: int,
        values: dict[str, Any],
        decode: Callable[[Fields], T],
        *,
        ignore: Sequence[int] = (),
    ) -> list[T]:
        """Send a request to several brokers; return what they answered.

        ignore  codes of brokers that know nothing of it
        Raises the first error.
        """
        asked = [self._connections.ask(address, code, values, decode) for address in addresses]
        found: list[T] = []
        for one in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(one, AnswerError) and one.code in ignore:
                continue
            if isinstance(one, BaseException):
                raise one
            found.append(one)
        return found


def _group_names(fields: Fields) -> list[str]:
    return [str(name) for name, _ in fields.table("subscriptionGroupTable")]
