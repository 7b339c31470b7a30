"""What an operator asks of a cluster and changes in it, over its name servers: our brokers and RocketMQ's.

Source: RocketMQ DefaultMQAdminExtImpl.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rocketc._layout import RETRY_PREFIX
from rocketc.client.bodies import Fields
from rocketc.client.changes import change_all
from rocketc.client.cluster_state import (
    BrokerState,
    ClientState,
    ConsumersState,
    ConsumeState,
    QueueState,
    Replica,
    decode_clients,
    decode_consume_state,
    decode_consumers,
    decode_offsets,
    decode_replicas,
    decode_runtime,
    decode_topic,
    decode_topic_state,
    merged,
    merged_consumers,
)
from rocketc.client.connections import UNREACHABLE, Connections, Connector
from rocketc.client.name_servers import NameServers, name_server_addresses
from rocketc.client.routes import ClusterInfo, MessageQueue, TopicRoute
from rocketc.client.security import Credentials, Tls, tls_context
from rocketc.errors import AnswerError, ChangeError, RocketcError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.route_data import QueueData
from rocketc.remoting.signing import Signer
from rocketc.remoting.versions import V5_0_0
from rocketc.tables.topics import DEFAULT_TOPIC, TopicConfig

if TYPE_CHECKING:
    from typing_extensions import Self

K = TypeVar("K")
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
    credentials  the account that signs all requests; None: they are not signed
    tls          True, or settings: all connections use TLS. See client.security.Tls
    partial      methods that read from several brokers leave out those that are not reached, which are then in
                 `faults`. They raise an error if no broker is reached, or one refuses
    connector    how to connect, for tests; None: TCP
    Raises ValueError if an address or a file of `tls` is wrong.
    Methods raise NotSentError, ConnectionLostError or NoAnswerError if a server is not reached, and AnswerError if it
    refuses. A method that changes several servers raises ChangeError, which says what each of them did. Use it on one
    event loop.

    >>> import asyncio, rocketc
    >>> async def main(name_server):
    ...     async with Admin(name_server) as admin:
    ...         return list((await admin.cluster()).clusters)
    >>> with rocketc.Broker() as broker:
    ...     asyncio.run(main(broker.name_server))
    ['DefaultCluster']
    """

    def __init__(
        self,
        name_server: str | None = None,
        *,
        timeout: float = 5.0,
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        partial: bool = False,
        connector: Connector | None = None,
    ) -> None:
        self.faults: dict[str, RocketcError] = {}  # by address; of brokers that were left out
        self._is_partial = partial
        self._addresses = name_server_addresses(name_server)
        self._timeout, self._connector = timeout, connector
        self._hook = None if credentials is None else Signer(credentials)
        self._tls = tls_context(tls)

    async def __aenter__(self) -> Self:
        self._connections = Connections(random.Random(), self._timeout, self._connector, hook=self._hook, tls=self._tls)
        self._names = NameServers(self._addresses, self._connections)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._names.close()
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

    async def replicas(self) -> dict[str, list[Replica]]:
        """Return the replicas that are connected to each master, by name; masters of 4.x do not tell them."""
        masters = (await self.cluster()).masters()
        known = await asyncio.gather(*map(self._is_of_5, masters.values()), return_exceptions=True)
        of_5 = [one for one, is_of_5 in zip(masters.items(), known, strict=True) if is_of_5 is True]
        found = await self._answered(of_5, CODES["GET_BROKER_HA_STATUS"], {}, decode_replicas)
        return dict(found)

    async def _answered(
        self, asked: Iterable[tuple[K, str]], code: int, values: dict[str, Any], decode: Callable[[Fields], T]
    ) -> list[tuple[K, T]]:
        """Send a request to brokers; return the answers of those that answer it.

        asked  what a broker is called in the result, and its address
        """
        asked = list(asked)
        answers = await asyncio.gather(
            *(self._connections.ask(address, code, values, decode) for _, address in asked), return_exceptions=True
        )
        found: list[tuple[K, T]] = []
        for (key, _), one in zip(asked, answers, strict=True):
            if isinstance(one, (*UNREACHABLE, AnswerError)):
                continue
            if isinstance(one, BaseException):
                raise one
            found.append((key, one))
        return found

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
        """Return the offsets of all queues of a topic.

        A broker that does not have the topic is left out: a name server may list a topic that is deleted.
        """
        route = await self.route(topic)
        masters, code, ignore = route.masters(), CODES["GET_TOPIC_STATS_INFO"], (Code.TOPIC_NOT_EXIST,)
        found = await self._each(masters.values(), code, {"topic": topic}, decode_topic_state, ignore=ignore)
        state = {queue: one for answered in found.values() for queue, one in answered.items()}
        for queue in route.read_queues(topic):  # brokers of 4.x leave out queues that are only read
            if queue not in state and (address := masters.get(queue.broker_name, "")) in found:
                state[queue] = await self._queue_state(address, queue)
        return dict(sorted(state.items()))

    async def _queue_state(self, address: str, queue: MessageQueue) -> QueueState:
        codes = CODES["GET_MIN_OFFSET"], CODES["GET_MAX_OFFSET"]
        first, end = await asyncio.gather(*(self._offset(address, code, queue) for code in codes))
        return QueueState(max(first, 0), max(first, end, 0), 0)

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """Return the settings of a topic by broker name.

        A broker without a master, or one that does not have the topic, has the queues and permissions of the route.
        """
        route = await self.route(topic)
        masters = route.masters()
        asked = [self._topic_config(masters.get(name), topic, data) for name, data in route.datas().items()]
        return dict(zip(route.datas(), await asyncio.gather(*asked), strict=True))

    async def _topic_config(self, address: str | None, topic: str, data: QueueData) -> TopicConfig:
        routed = TopicConfig(topic, data.read_queue_nums, data.write_queue_nums, data.perm)
        if address is None:
            return routed
        try:
            if await self._is_of_5(address):
                return await self._connections.ask(address, CODES["GET_TOPIC_CONFIG"], {"topic": topic}, decode_topic)
            every = await self._connections.ask(address, CODES["GET_ALL_TOPIC_CONFIG"], {}, _topic_table)
            return decode_topic(every[topic]) if topic in every else routed
        except AnswerError as error:
            if error.code in _NOT_THERE:
                return routed
            raise
        except UNREACHABLE as error:
            if not self._is_partial:
                raise
            self.faults.setdefault(address, error)
            return routed

    async def _is_of_5(self, address: str) -> bool:
        """Whether a broker is of 5.0 or later. Brokers of 4.3 to 4.7 do not answer requests that they do not know."""
        code, values = CODES["GET_MAX_OFFSET"], {"topic": DEFAULT_TOPIC, "queueId": 0}  # any request that all know
        answer = await self._connections.call(address, code, values, others=tuple(Code))
        return answer.version >= V5_0_0

    async def create_topic(self, config: TopicConfig, brokers: Iterable[str] | None = None) -> dict[str, TopicConfig]:
        """Create or change a topic; return its settings by broker name.

        brokers  their names; None: all masters
        """
        masters = (await self.cluster()).masters()
        names = list(masters) if brokers is None else list(brokers)
        for name in names:
            if name not in masters:
                known = ", ".join(masters) or "none"
                raise AnswerError(self._names.address, f"there is no master {name!r}; there are: {known}")
        return await change_all({name: self._create_topic(masters[name], config) for name in names})

    async def _create_topic(self, address: str, config: TopicConfig) -> TopicConfig:
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
        await self._connections.call(address, CODES["UPDATE_AND_CREATE_TOPIC"], values)
        return config

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic with its queues on all brokers, then in the name servers; return the names of the brokers.

        All consumer groups lose their offsets in it. Slaves follow their master. If a broker fails, the name servers
        keep the topic, so that you can delete it again.
        """
        route = await self.route(topic)
        names = list(route.datas()) or list(route.masters())
        changed = await change_all({name: self._delete_topic(route, name, topic) for name in names})
        for name in {broker.cluster for broker in route.brokers}:
            try:
                await self._names.tell(CODES["DELETE_TOPIC_IN_NAMESRV"], {"topic": topic, "clusterName": name})
            except ChangeError as error:
                raise ChangeError({**changed, **error.changed}, error.failed) from None
        return list(changed)

    async def _delete_topic(self, route: TopicRoute, name: str, topic: str) -> None:
        await self._connections.call(self._master(route, name), CODES["DELETE_TOPIC_IN_BROKER"], {"topic": topic})

    async def set_topic_permission(
        self, topic: str, perm: int, brokers: Iterable[str] | None = None
    ) -> dict[str, TopicConfig]:
        """Change the permission of a topic; return its settings by broker name.

        perm     bits: 4 read, 2 write
        brokers  their names; None: all that have the topic
        """
        route = await self.route(topic)
        names = list(route.datas()) if brokers is None else list(brokers)
        for name in names:
            if name not in route.datas():
                known = ", ".join(route.datas())
                raise AnswerError(self._names.address, f"the broker {name!r} does not have {topic!r}; {known} do")
        return await change_all({name: self._set_permission(route, name, topic, perm) for name in names})

    async def _set_permission(self, route: TopicRoute, name: str, topic: str, perm: int) -> TopicConfig:
        address = self._master(route, name)
        config = await self._topic_config(address, topic, route.datas()[name])
        return await self._create_topic(address, replace(config, perm=perm))

    def _master(self, route: TopicRoute, name: str) -> str:
        address = route.masters().get(name)
        if address is None:
            raise AnswerError(self._names.address, f"the broker {name!r} is without a master now")
        return address

    async def set_broker_writable(self, broker: str, writable: bool) -> dict[str, int]:
        """Take the write permission of all topics of a broker away in the name servers, or give it back.

        Producers then stop sending to it, and consumers read it to its end. Returns the number of topics by address of
        the name server.
        """
        return await change_all({one: self._set_writable(one, broker, writable) for one in self._addresses})

    async def _set_writable(self, address: str, broker: str, writable: bool) -> int:
        code = CODES["ADD_WRITE_PERM_OF_BROKER" if writable else "WIPE_WRITE_PERM_OF_BROKER"]
        answer = await self._connections.call(address, code, {"brokerName": broker})
        count = answer.fields.get("addTopicCount" if writable else "wipeTopicCount", "")
        return int(count) if count.isdecimal() and len(count) < 20 else 0

    # consumer groups

    async def groups(self) -> list[str]:
        """Return the names of all consumer groups, sorted."""
        masters = (await self.cluster()).masters().values()
        code = CODES["GET_ALL_SUBSCRIPTIONGROUP_CONFIG"]
        found = await self._each(masters, code, {}, _group_names)
        return sorted({name for names in found.values() for name in names})

    async def consume_state(self, group: str, topic: str | None = None) -> ConsumeState:
        """Return how far a group is in its queues on all brokers.

        topic  only in this one
        """
        masters = await self._brokers_of(group)
        code, values = CODES["GET_CONSUME_STATS"], {"consumerGroup": group, "topic": topic}
        found = await self._each(masters, code, values, decode_consume_state, ignore=_UNKNOWN_GROUP)
        return merged(found.values())

    async def consume_states(self, group: str) -> list[tuple[str, int, ConsumeState]]:
        """Return how far a group is on each broker, slaves included: (name, broker id, state).

        A slave takes the offsets over from its master. Brokers that do not answer are left out.
        """
        brokers = (await self.cluster()).brokers.values()
        asked = [((one.name, id_), at) for one in brokers for id_, at in sorted(one.addresses.items())]
        values = {"consumerGroup": group}
        found = await self._answered(asked, CODES["GET_CONSUME_STATS"], values, decode_consume_state)
        return [(*key, state) for key, state in found]

    async def consumers(self, group: str) -> ConsumersState:
        """Return the consumers of a group that are online; without clients if there are none."""
        return await self._consumers(await self._brokers_of(group), group)

    async def _consumers(self, addresses: Iterable[str], group: str) -> ConsumersState:
        code, values = CODES["GET_CONSUMER_CONNECTION_LIST"], {"consumerGroup": group}
        found = await self._each(addresses, code, values, decode_consumers, ignore=_UNKNOWN_GROUP)
        return merged_consumers(found.values())

    async def producers(self, group: str) -> list[ClientState]:
        """Return the producers of a group that are online."""
        masters = (await self.cluster()).masters().values()
        code, values = CODES["GET_PRODUCER_CONNECTION_LIST"], {"producerGroup": group}
        found = await self._each(masters, code, values, decode_clients, ignore=_UNKNOWN_GROUP)
        return sorted({client.client_id: client for clients in found.values() for client in clients}.values())

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
        found = [
            await self._offsets_on(address, route.read_queues(topic, name), timestamp)
            for name, address in route.masters().items()
        ]
        return {queue: offset for one in found for queue, offset in one.items()}

    async def _offsets_on(
        self, address: str, queues: Sequence[MessageQueue], timestamp: int
    ) -> dict[MessageQueue, int]:
        return {queue: await self._offset_at(address, queue, timestamp) for queue in queues}

    async def _offset_at(self, address: str, queue: MessageQueue, timestamp: int) -> int:
        if timestamp == LATEST:
            return await self._offset(address, CODES["GET_MAX_OFFSET"], queue)
        return await self._offset(address, CODES["SEARCH_OFFSET_BY_TIMESTAMP"], queue, timestamp=timestamp)

    async def _offset(self, address: str, code: int, queue: MessageQueue, **values: Any) -> int:
        values |= {"topic": queue.topic, "queueId": queue.queue_id}
        answer = await self._connections.call(address, code, values)
        offset = answer.fields.get("offset", "")
        if not offset.removeprefix("-").isdecimal() or len(offset) > 20:
            raise AnswerError(address, f"the answer has the offset {offset[:40]!r}")
        return int(offset)

    async def reset_plan(
        self, group: str, topic: str, timestamp: int
    ) -> dict[str, dict[MessageQueue, tuple[int | None, int]]]:
        """Return what reset_offset() would change, by broker name: the old and the new offset of each queue.

        The old offset may be missing (None): the group has not consumed the queue. Raises as reset_offset().
        """
        route = await self.route(topic)
        return await self._of_group(
            group, {name: self._plan_on(route, name, group, topic, timestamp) for name in route.datas()}
        )

    async def _plan_on(
        self, route: TopicRoute, name: str, group: str, topic: str, timestamp: int
    ) -> dict[MessageQueue, tuple[int | None, int]]:
        address = await self._master_of_group(route, name, group)
        code, values = CODES["GET_CONSUME_STATS"], {"consumerGroup": group, "topic": topic}
        found = await self._each([address], code, values, decode_consume_state, ignore=_UNKNOWN_GROUP)
        state = merged(found.values())
        old = {queue: one.consumer_offset for queue, one in state.queues.items()}
        new = await self._offsets_on(address, route.read_queues(topic, name), timestamp)
        return {queue: (old.get(queue), offset) for queue, offset in new.items()}

    async def reset_offset(self, group: str, topic: str, timestamp: int) -> dict[str, dict[MessageQueue, int]]:
        """Let a group continue at a time, in all queues of a topic; return the new offsets by broker name.

        timestamp  ms since the epoch, or LATEST
        Brokers of 5.2 and later, and this project's, do it at once. Older ones ask the consumers, which need some
        seconds; if none is online, the offsets are changed in the broker.
        Raises AnswerError if no broker has the topic or the group, and ChangeError if some brokers fail.
        """
        route = await self.route(topic)
        return await self._of_group(
            group, {name: self._reset_on(route, name, group, topic, timestamp) for name in route.datas()}
        )

    async def _of_group(self, group: str, changes: Mapping[str, Awaitable[T]]) -> dict[str, T]:
        """Await changes of a group by broker name. Raises AnswerError if none of the brokers has it."""
        try:
            return await change_all(changes)
        except ChangeError as error:
            codes = {getattr(one, "code", None) for one in error.failed.values()}
            if not error.changed and codes == {Code.SUBSCRIPTION_GROUP_NOT_EXIST}:
                text = f"group {group!r} not found on {', '.join(error.failed)}"
                raise AnswerError(self._names.address, text, Code.SUBSCRIPTION_GROUP_NOT_EXIST) from None
            raise

    async def _master_of_group(self, route: TopicRoute, name: str, group: str) -> str:
        """Return the address of a master. Raises AnswerError if it does not have the group."""
        address = self._master(route, name)
        names = await self._connections.ask(address, CODES["GET_ALL_SUBSCRIPTIONGROUP_CONFIG"], {}, _group_names)
        if group not in names:  # a broker of 4.x would take offsets for any name
            raise AnswerError(address, f"group {group!r} not found on {name}", Code.SUBSCRIPTION_GROUP_NOT_EXIST)
        return address

    async def _reset_on(
        self, route: TopicRoute, name: str, group: str, topic: str, timestamp: int
    ) -> dict[MessageQueue, int]:
        address = await self._master_of_group(route, name, group)
        values = {
            "topic": topic,
            "group": group,
            "timestamp": timestamp,
            "isForce": True,
            "offset": -1,
            "queueId": -1,
        }
        try:
            return await self._connections.ask(address, CODES["INVOKE_BROKER_TO_RESET_OFFSET"], values, decode_offsets)
        except AnswerError as error:
            if error.code not in _NOT_RESET or (await self._consumers([address], group)).clients:
                raise
        return await self._reset_offline(group, address, route.read_queues(topic, name), timestamp)

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
    ) -> dict[str, T]:
        """Send a request to several brokers; return what they answered, by address.

        ignore  codes of brokers that know nothing of it
        Raises the first error.
        """
        addresses = list(addresses)
        asked = [address for address in addresses if address not in self.faults]
        answers = await asyncio.gather(
            *(self._connections.ask(address, code, values, decode) for address in asked), return_exceptions=True
        )
        found: dict[str, T] = {}
        for address, one in zip(asked, answers, strict=True):
            if isinstance(one, AnswerError) and one.code in ignore:
                continue
            if isinstance(one, UNREACHABLE) and self._is_partial:
                self.faults.setdefault(address, one)
            elif isinstance(one, BaseException):
                raise one
            else:
                found[address] = one
        if addresses and self.faults.keys() >= set(addresses):
            raise self.faults[addresses[0]]
        return found


def _topic_table(fields: Fields) -> dict[str, Fields]:
    return {str(name): config for name, config in fields.table("topicConfigTable")}


def _group_names(fields: Fields) -> list[str]:
    return [str(name) for name, _ in fields.table("subscriptionGroupTable")]
