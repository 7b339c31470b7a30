"""The name servers of a broker: it registers with all of them, and unregisters at its end.

Source: RocketMQ BrokerOuterAPI, BrokerController.registerBrokerAll.
"""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from rocketc.errors import BadRequestError, ConnectionLostError, NoAnswerError, NotSentError
from rocketc.namesrv.bodies import decode_queue_datas
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code
from rocketc.remoting.route_data import QueueData
from rocketc.tables.fastjson import to_bytes
from rocketc.tables.topics import PERM_READ, PERM_WRITE, TopicConfig, Topics

_log = logging.getLogger("rocketc.broker")

REGISTER_BROKER, UNREGISTER_BROKER, GET_ROUTEINFO_BY_TOPIC = 103, 104, 105
ROUTE_SECONDS = 0.9  # a client waits 1 s for its first question about its queues
READ_WRITE = PERM_READ | PERM_WRITE
PART_TOPICS = 10_000  # of one registration: a frame has at most 16 MiB
TOLD_SECONDS = 0.9  # at most, that an answer waits for name servers
PAUSE_SECONDS = 5.0  # at least, between two registrations of all topics because one changed
Connector = Callable[[str, int], Callable[[Callable[[], asyncio.Protocol]], Any]]


def registration(
    topics: Topics, listed: Iterable[TopicConfig], *, permission: int = READ_WRITE, unfinished: int = 0
) -> bytes:
    """Return the body of REGISTER_BROKER.

    listed      the topics in it. A name server keeps the topics that a registration leaves out
    permission  of the broker: limits what clients may do with its topics
    unfinished  number of the part, from 1, if other parts follow. The part then has a version of its own: a name server
                takes changes only with a new version

    >>> import tempfile
    >>> registration(Topics(tempfile.mkdtemp()), [])[:40]
    b'{"filterServerList":[],"topicConfigSeria'
    """
    counter, timestamp = topics.version
    wrapper = {
        "dataVersion": {"counter": -unfinished if unfinished else counter, "stateVersion": 0, "timestamp": timestamp},
        "topicConfigTable": {topic.topic_name: _topic(topic, permission) for topic in listed},
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return to_bytes({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}, compact=True)


def registrations(topics: Topics, permission: int = READ_WRITE) -> Iterator[bytes]:
    """Yield the bodies of REGISTER_BROKER that tell all topics: one, or several for a large table.

    >>> import tempfile
    >>> len(list(registrations(Topics(tempfile.mkdtemp()))))
    1
    """
    rest = list(dict(topics).values())
    part = 0
    while len(rest) > PART_TOPICS:
        part += 1
        yield registration(topics, rest[:PART_TOPICS], permission=permission, unfinished=part)
        del rest[:PART_TOPICS]
    yield registration(topics, rest, permission=permission)


def _topic(topic: TopicConfig, permission: int) -> dict[str, Any]:
    return {
        "attributes": topic.attributes,
        "order": topic.order,
        "perm": topic.perm if permission & READ_WRITE == READ_WRITE else topic.perm & permission,
        "readQueueNums": topic.read_queue_nums,
        "topicFilterType": topic.topic_filter_type,
        "topicName": topic.topic_name,
        "topicSysFlag": topic.topic_sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }


class NameServers:
    """Registers one broker.

    addresses  of the name servers
    identity   brokerName, brokerAddr, clusterName, haServerAddr, brokerId
    connector  returns how to connect to (host, port), see Channel
    timeout    seconds for one registration
    permission  returns the broker's brokerPermission
    registered  called after each registration that a name server accepted, with the fields of its answer. With several
                name servers, those of the first one that knows a master
    """

    def __init__(
        self,
        addresses: Iterable[str],
        identity: dict[str, Any],
        topics: Topics,
        chance: random.Random,
        *,
        connector: Connector | None = None,
        timeout: float = 24.0,
        permission: Callable[[], int] = lambda: READ_WRITE,
        registered: Callable[[Mapping[str, Any]], object] = lambda told: None,
    ) -> None:
        self._permission, self._registered = permission, registered
        self._all_changed = False
        self._identity, self._topics, self._timeout = identity, topics, timeout
        self._loop = asyncio.get_running_loop()
        connect = tcp_connector(self._loop) if connector is None else connector
        self._channels = {
            one: Channel(connect(*split_address(one)), chance, on_connect=partial(self._connected, one))
            for one in addresses
        }
        self._connections = dict.fromkeys(self._channels, 0)  # how many there have been
        self._registered_on = dict.fromkeys(self._channels, -1)  # the one over which it got all topics
        self._was_reached = dict.fromkeys(self._channels, True)
        self._whole_at = dict.fromkeys(self._channels, 0.0)  # when a change may lead to a registration of all topics
        self._later: asyncio.TimerHandle | None = None
        self._changed: dict[str, TopicConfig] = {}
        self._has_changes = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []  # for the end of a registration with all changes until now

    def topic_changed(self, topic: TopicConfig) -> None:
        """Register soon: a topic was created or changed."""
        self._changed[topic.topic_name] = topic
        self._has_changes.set()

    def when_told(self, done: Callable[[], object]) -> None:
        """Call `done` when the name servers know all changes until now; at the latest after TOLD_SECONDS.

        If no name server was reached last time, nothing waits.
        """
        if not any(self._was_reached.values()):
            done()
            return
        told: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(TOLD_SECONDS, _end, told)

        def ended(_: object) -> None:
            timer.cancel()
            done()

        told.add_done_callback(ended)
        self._waiting.append(told)
        self._has_changes.set()

    def all_changed(self) -> None:
        """Register all topics soon: what clients may do with them changed."""
        self._topics.change_version()
        self._all_changed = True
        self._has_changes.set()

    async def register(self, *, only_changes: bool = False) -> int:
        """Register with all name servers at once; return how many accepted it.

        only_changes  tell name servers that have accepted a registration only the topics that changed since. The others
                      get all topics, but at most every PAUSE_SECONDS: with many topics that takes long
        """
        self._has_changes.clear()
        changed, self._changed = list(self._changed.values()), {}
        waiting, self._waiting = self._waiting, []
        try:
            return await self._register_changed(changed, only_changes)
        finally:
            for told in waiting:
                _end(told)

    async def _register_changed(self, changed: list[TopicConfig], only_changes: bool) -> int:
        known = [one for one in self._channels if only_changes and self._knows_all(one)]
        now = self._loop.time()
        others = [
            one for one in self._channels if one not in known and not (only_changes and now < self._whole_at[one])
        ]
        self._whole_at.update(dict.fromkeys(others, now + PAUSE_SECONDS))
        if len(known) + len(others) < len(self._channels) and self._later is None:
            self._later = self._loop.call_later(PAUSE_SECONDS, self._try_again)
        permission = self._permission()
        found = await asyncio.gather(
            *[self._register_with(one, [registration(self._topics, changed, permission=permission)]) for one in known],
            *[self._register_with(one, registrations(self._topics, permission), is_whole=True) for one in others],
        )
        answers = [fields for fields in found if fields is not None]
        if answers:
            self._registered(next((fields for fields in answers if fields.get("masterAddr")), answers[0]))
        return len(answers)

    def _try_again(self) -> None:
        self._later = None
        self._has_changes.set()

    async def _register_with(
        self, address: str, bodies: Iterable[bytes], *, is_whole: bool = False
    ) -> Mapping[str, Any] | None:
        """Send bodies to a name server; return the fields of the last answer, None if one was not accepted.

        is_whole  they have all topics together. Otherwise a new connection makes another registration necessary: the
                  name server may have been started again
        """
        told: Mapping[str, Any] | None = None
        connection = None if is_whole else self._registered_on[address]
        self._registered_on[address] = -1
        for body in bodies:
            told = await self._register(address, body)
            if told is None:
                return None
            connection = self._connections[address] if connection is None else connection
        if connection is not None:
            self._registered_on[address] = connection
        return told

    def _knows_all(self, address: str) -> bool:
        """Whether a name server has all topics but the changed ones: it may forget them with the connection."""
        return self._registered_on[address] == self._connections[address]

    def _connected(self, address: str) -> None:
        self._connections[address] += 1

    async def _register(self, address: str, body: bytes) -> Mapping[str, Any] | None:
        """Return the fields of the answer of a name server; None if it has not accepted the registration."""
        values = {
            **self._identity,
            "enableActingMaster": False,  # a name server takes topics from a slave alone only if the field is there
            "compressed": False,
            "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,  # as Java's int
        }
        told: Mapping[str, Any] = {}
        try:
            answer = await self._channels[address].call(
                REGISTER_BROKER, values, self._loop.time() + self._timeout, body
            )
            fault = None if answer.code == Code.SUCCESS else f"code {answer.code}: {answer.remark}"
            told = answer.fields
        except (NotSentError, ConnectionLostError, NoAnswerError, ValueError) as error:  # ValueError: too many topics
            fault = str(error)
        if (fault is None) != self._was_reached[address]:
            self._was_reached[address] = fault is None
            if fault is None:
                _log.info("registered with the name server %s again", address)
            else:
                _log.warning("not registered with the name server %s: %s; it is tried again", address, fault)
        return told if fault is None else None

    async def route(self, topic: str) -> list[QueueData] | None:
        """Return what each broker has of a topic, as the first name server that answers knows it.

        Without name servers: what this broker has. []: no broker has it. None: no name server answers in time.
        """
        if not self._channels:
            own = self._topics.get(topic)
            return [] if own is None else [self._queue_data(own)]
        deadline = self._loop.time() + ROUTE_SECONDS
        for number, channel in enumerate(self._channels.values()):
            now = self._loop.time()
            until = now + (deadline - now) / (len(self._channels) - number)
            try:
                answer = await channel.call(GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, until)
                if answer.code == Code.TOPIC_NOT_EXIST:
                    return []
                if answer.code == Code.SUCCESS:
                    return decode_queue_datas(answer.body)
            except (NotSentError, ConnectionLostError, NoAnswerError, BadRequestError):
                continue
        return None

    def _queue_data(self, topic: TopicConfig) -> QueueData:
        perm = int(_topic(topic, self._permission())["perm"])
        return QueueData(self._identity["brokerName"], topic.read_queue_nums, topic.write_queue_nums, perm)

    async def run(self, period: float) -> None:
        """Register every `period` seconds, and at once when a topic changed.

        A name server gets all topics over each new connection, and every `period` seconds; if there are more than
        PART_TOPICS, the time grows with their number.
        """
        next_time = whole_time = self._loop.time() + period
        while True:
            waiting = asyncio.ensure_future(self._has_changes.wait())
            try:
                await asyncio.wait({waiting}, timeout=min(period, next_time - self._loop.time()))
            finally:
                waiting.cancel()
            now = self._loop.time() + 0.001  # a timer may run a little early
            if now > next_time:
                next_time = now + period
            is_whole = now > whole_time or self._all_changed
            if is_whole:
                self._all_changed = False
                next_time = now + period
                whole_time = now + period * max(1.0, len(self._topics) / PART_TOPICS)
            await self.register(only_changes=not is_whole)

    async def unregister(self) -> None:
        """Tell all name servers that the broker ends; wait at most 3 s."""
        values = {name: self._identity[name] for name in ("brokerName", "brokerAddr", "clusterName", "brokerId")}
        deadline = self._loop.time() + 3.0
        calls = [one.call(UNREGISTER_BROKER, values, deadline) for one in self._channels.values()]
        await asyncio.gather(*calls, return_exceptions=True)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
        for channel in self._channels.values():
            channel.close()


def _end(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)


def tcp_connector(loop: asyncio.AbstractEventLoop) -> Connector:
    """Return a connector that connects by plain TCP, see Channel.

    >>> loop = asyncio.new_event_loop()
    >>> connect = tcp_connector(loop)("127.0.0.1", 9876)  # connect(protocol factory) is a coroutine
    >>> loop.close()
    """
    return lambda host, port: lambda protocol: loop.create_connection(protocol, host, port)
