"""Reads the queues of topics for tools: nothing of it stays in the brokers, no offset, no member, no topic.

A pull is one of the group TOOLS_CONSUMER, which every broker has. It commits no offset, and brings its subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from rocketc.client.access import Access, check_group
from rocketc.client.cluster_state import QueueState, decode_topic_state
from rocketc.client.connections import UNREACHABLE, Connections
from rocketc.client.contexts import AsyncContext
from rocketc.client.direct_pulls import QUEUES_MOST, DirectPulls
from rocketc.client.hidden_topics import matching_topics
from rocketc.client.name_servers import NameServers
from rocketc.client.pull_decisions import HOLD_MS, PULL_CODES, PullStatus, read_address
from rocketc.client.pull_request import PULL, PullRequest
from rocketc.client.queue_range import QueueRange
from rocketc.client.routes import ClusterInfo, MessageQueue, TopicRoute
from rocketc.client.subscriptions import FIRST_WITH_FILTERS
from rocketc.errors import (
    AnswerError,
    BadRequestError,
    NotSentError,
    TopicNotFoundError,
)
from rocketc.read._pulled_records import record_places
from rocketc.read.topics import missing_text
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES, REQUESTS
from rocketc.remoting.route_data import MASTER
from rocketc.remoting.subscribing import ALL, TAG, is_tag_type

_log = logging.getLogger("rocketc.client")

T = TypeVar("T")

TOOLS_CONSUMER = "TOOLS_CONSUMER"  # RocketMQ's MixAll.TOOLS_CONSUMER_GROUP
TIMEOUT = 5.0  # seconds for a request, connecting included

_TRIES = 3  # of a pull, if the broker is not reached or is busy
_PAUSE = 1.0  # seconds between two of them
_BUSY = (Code.FLOW_CONTROL, Code.SYSTEM_BUSY)
_AT_ONCE = 64  # requests for offsets under way
_NO_FILTER = (Code.SYSTEM_ERROR, Code.SUBSCRIPTION_PARSE_FAILED)  # codes of a broker that does not take a filter


class Place(NamedTuple):
    """Where a record is in the body of an answer: see record_places()."""

    phy_offset: int
    store_timestamp: int
    queue_offset: int
    start: int
    stop: int


class Pulled(NamedTuple):
    """The answer to a pull.

    body        records, one after the other
    places      of the records in it; after them there may be bytes that are not a record
    next_offset of the next pull
    """

    status: PullStatus
    body: bytes
    places: Sequence[Place]
    next_offset: int


class TopicReader(AsyncContext):
    """Asks the brokers of topics for their offsets and messages. Use it on one event loop.

    access   the way to the cluster
    group    of the pulls; another one than TOOLS_CONSUMER for accounts that may not use that
    timeout  seconds for a request, connecting included
    all_topics  patterns match the topics of the system, too
    Methods raise NotSentError, ConnectionLostError or NoAnswerError if a server is not reached, AnswerError if it
    refuses, and TopicNotFoundError.

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> async def main(name_server):
    ...     async with TopicReader(access_to(name_server)) as reader:
    ...         queues = await reader.queues("orders")
    ...         return [await reader.range_of(queue) for queue in queues[:1]]
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = [producer.send("orders", b"one") for _ in range(4)]
    ...     asyncio.run(main(broker.name_server))
    [QueueRange(begin=0, end=1)]
    """

    def __init__(
        self, access: Access, *, group: str = TOOLS_CONSUMER, timeout: float = TIMEOUT, all_topics: bool = False
    ) -> None:
        self._access, self._group, self._timeout, self._all_topics = access, check_group(group), timeout, all_topics
        self._routes: dict[str, TopicRoute] = {}
        self._faults: set[str] = set()  # of routes, each is logged once
        self._unfiltered: set[str] = set()  # addresses of brokers that do not select by SQL92

    async def start(self) -> None:
        """Begin; `async with` does it. No server is asked yet."""
        access = self._access
        self._loop = asyncio.get_running_loop()
        chance = random.Random() if access.chance is None else access.chance
        self._connections = Connections(chance, self._timeout, access.connector, hook=access.hook, tls=access.tls)
        self._names = NameServers(access.addresses, self._connections)

    async def close(self) -> None:
        """Close the connections."""
        self._connections.close()
        await asyncio.sleep(0)  # the transports close

    # where the queues are

    async def topics(self) -> list[str]:
        """Return the names of all topics, those of the system included."""
        return await self._asked_names(self._names.topics())

    async def matching(self, patterns: Iterable[re.Pattern[str]]) -> list[str]:
        """Return the names of the topics that match a pattern, without those of the system, see matching_topics()."""
        names, cluster = await self.topics(), await self.cluster()
        return sorted(matching_topics(patterns, names, cluster, all_topics=self._all_topics))

    async def cluster(self) -> ClusterInfo:
        """Return all clusters and brokers that the name server knows."""
        return await self._asked_names(self._names.cluster())

    async def find(self, topic: str) -> TopicRoute | None:
        """Ask for the route of a topic; None: no broker has it."""
        route = await self._asked_names(self._names.route(topic))
        if route is not None:
            self._routes[topic] = route
            if (fault := route.unreadable(topic)) is not None and fault not in self._faults:
                self._faults.add(fault)
                _log.warning("%s", fault)
        return route

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be read. Raises TopicNotFoundError with the most similar name."""
        if await self.find(topic) is None:
            raise TopicNotFoundError(await self.missing(topic))
        return self.known_queues(topic)

    async def missing(self, topic: str) -> str:
        """Return one line about a topic that does not exist."""
        return missing_text([topic], set(await self.topics()), "this cluster")

    def is_known(self, topic: str) -> bool:
        """Whether find() has found a topic."""
        return topic in self._routes

    def known_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic as the latest route has them, if their broker is there."""
        route = self._routes[topic]
        brokers = {one.name for one in route.brokers if one.addresses}
        return [queue for queue in route.read_queues(topic) if queue.broker_name in brokers]

    async def _asked_names(self, asked: Awaitable[T]) -> T:
        try:
            return await asked
        except AnswerError as error:
            if error.code == Code.REQUEST_CODE_NOT_SUPPORTED:
                text = "it is not a name server; give the address of a name server, such as 127.0.0.1:9876"
                raise AnswerError(error.address, text, error.code) from None
            raise

    def address(self, queue: MessageQueue) -> str:
        """Return the address of the master of a queue, or of a slave while there is no master. Raises NotSentError."""
        route = self._routes.get(queue.topic)
        if route is None:  # find() has not found it: no broker is registered now, for example
            raise NotSentError(f"{queue}: the name server does not know a broker of this topic now")
        found = [read_address(one, MASTER) for one in route.brokers if one.name == queue.broker_name]
        if not found or found[0] is None:
            raise NotSentError(f"{queue.broker_name}: no address of this broker is known now")
        return found[0][0]

    def masters(self, topic: str) -> dict[str, str]:
        """Return the addresses of the brokers of a topic by name: of slaves where there is no master."""
        brokers = sorted(self._routes[topic].brokers, key=lambda one: one.name)
        return {one.name: found[0] for one in brokers if (found := read_address(one, MASTER)) is not None}

    # offsets

    async def range_of(self, queue: MessageQueue) -> QueueRange:
        """Return the offsets of a queue now."""
        first, behind = await asyncio.gather(
            self._number(queue, "GET_MIN_OFFSET", "offset"), self._number(queue, "GET_MAX_OFFSET", "offset")
        )
        return QueueRange(max(first, 0), max(first, behind, 0))

    async def ranges(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueRange]:
        """Return the offsets of queues now."""
        return await self.each(queues, self.range_of)

    async def each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        """Ask for each queue, some at the same time; the first error ends it."""
        queues, found = list(queues), dict[MessageQueue, T]()
        for at in range(0, len(queues), _AT_ONCE):
            part = queues[at : at + _AT_ONCE]
            found |= zip(part, await asyncio.gather(*map(ask, part)), strict=True)
        return found

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """Return an offset of a queue at which to begin for messages stored at a time or later.

        timestamp  ms since 1970
        Some earlier messages may be at this offset, too: brokers of 4.x return the nearest message, and any one of
        those of the same ms.
        """
        return await self._number(queue, "SEARCH_OFFSET_BY_TIMESTAMP", "offset", timestamp=timestamp - 1)

    async def state(self, topic: str) -> dict[MessageQueue, QueueState]:
        """Return the offsets of the queues of a topic that find() has found, and the times of their last messages.

        Brokers of 4.x leave out queues that are only read: those are asked for one by one, and the time is 0.
        """
        code, found = CODES["GET_TOPIC_STATS_INFO"], dict[MessageQueue, QueueState]()
        for address in self.masters(topic).values():
            found |= await self._connections.ask(address, code, {"topic": topic}, decode_topic_state)
        only_read = await self.ranges([queue for queue in self.known_queues(topic) if queue not in found])
        found |= {queue: QueueState(one.begin, one.end, 0) for queue, one in only_read.items()}
        return dict(sorted(found.items()))

    async def first_time(self, queue: MessageQueue) -> int:
        """Return when the first message of a queue was stored, ms since 1970; negative if it is not known."""
        return await self._number(queue, "GET_EARLIEST_MSG_STORETIME", "timestamp")

    async def _number(self, queue: MessageQueue, name: str, field: str, **values: int) -> int:
        address, code = self.address(queue), CODES[name]
        answer = await self._connections.call(
            address, code, {"topic": queue.topic, "queueId": queue.queue_id, **values}
        )
        if answer.version < FIRST_WITH_FILTERS:
            self._unfiltered.add(address)  # it takes a filter for a tag
        try:
            number = REQUESTS[code].decode_answer(answer.fields).get(field)
        except BadRequestError as error:
            raise AnswerError(address, str(error)) from None
        if not isinstance(number, int):
            raise AnswerError(address, f"the answer to {name} lacks the field {field}")
        return number

    # messages

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        most: int = 1024,
        most_bytes: int = 256 << 10,
        expression: str = ALL,
        expression_type: str = TAG,
        holds: bool = False,
    ) -> Pulled:
        """Pull messages of a queue once.

        most, most_bytes  of the answer; brokers have limits of their own
        expression  tags between `||`: the broker leaves out most other messages
        expression_type  SQL92: the broker leaves out messages that do not match, unless its settings do not allow that
        holds       the broker waits up to 15 s for a message
        """
        address = self.address(queue)
        if address in self._unfiltered and not is_tag_type(expression_type):
            expression, expression_type = ALL, TAG
        request = PullRequest(self._group, expression, expression_type, most_bytes)
        values = request.values(queue, offset, most, holds=holds)
        deadline = self._loop.time() + self._timeout + HOLD_MS / 1000 * holds
        try:
            answer = await self._connections.call(address, PULL, values, others=PULL_CODES, deadline=deadline)
        except AnswerError as error:
            if is_tag_type(expression_type) or error.code not in _NO_FILTER:
                raise
            _log.debug("%s sends all messages, because it does not select by SQL92: %s", queue, error)
            self._unfiltered.add(address)
            return await self.pull(queue, offset, most=most, most_bytes=most_bytes, holds=holds)
        try:
            next_offset = REQUESTS[PULL].decode_answer(answer.fields)["nextBeginOffset"]
        except BadRequestError as error:
            raise AnswerError(address, str(error)) from None
        status = PullStatus(answer.code)
        if status is not PullStatus.FOUND:
            return Pulled(status, b"", (), next_offset)
        if not answer.body:  # the messages up to the next offset would be lost without a sign
            raise AnswerError(address, f"the answer to a pull at {offset} says that messages are found, but lacks them")
        places, end = record_places(answer.body, Place)
        if end < len(answer.body):  # continue after the last record, or after one that cannot be read
            next_offset = 1 + (places[-1].queue_offset if places else offset)
        if next_offset <= offset:
            raise AnswerError(address, f"the next offset in the answer to a pull at {offset} is {next_offset}")
        return Pulled(status, answer.body, places, next_offset)

    def direct_pulls(
        self,
        ranges: Mapping[MessageQueue, QueueRange],
        *,
        expression: str = ALL,
        expression_type: str = TAG,
        until: int | None = None,
        stops_at_gaps: bool = False,
        check: Callable[[], object] | None = None,
    ) -> DirectPulls | None:
        """Return the fast way to read ranges, for another thread than that of the loop.

        None: the connections are not plain, the queues are too many, or a broker is not reached now.
        """
        access = self._access
        if access.tls is not None or access.connector is not None or len(ranges) > QUEUES_MOST:
            return None
        try:
            if not is_tag_type(expression_type) and self._unfiltered & {*map(self.address, ranges)}:
                expression, expression_type = ALL, TAG
            return DirectPulls(
                PullRequest(self._group, expression, expression_type, hook=access.hook), ranges, self.address,
                until=until, stops_at_gaps=stops_at_gaps, timeout=self._timeout, check=check,
            )  # fmt: skip
        except (OSError, NotSentError) as error:
            _log.debug("direct pulls are not possible now: %s", error)
            return None

    async def pull_surely(self, queue: MessageQueue, offset: int, **how: Any) -> Pulled:
        """Pull as pull(), and try it some more times if the broker is not reached or is busy."""
        for i in range(1, _TRIES + 1):
            try:
                return await self.pull(queue, offset, **how)
            except (*UNREACHABLE, AnswerError) as error:
                if i == _TRIES or (isinstance(error, AnswerError) and error.code not in _BUSY):
                    raise
            await asyncio.sleep(_PAUSE)
            with contextlib.suppress(*UNREACHABLE):  # the broker is the one to name in an error
                await self.find(queue.topic)  # another broker may be the master now
        raise AssertionError

    async def records(self, address: str, name: str, values: Mapping[str, Any], others: Sequence[int] = ()) -> bytes:
        """Send a request whose answer is records; return them, or nothing for a code in `others`."""
        answer = await self._connections.call(address, CODES[name], values, others=others)
        return b"" if answer.code in others else answer.body
