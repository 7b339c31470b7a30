"""The queues of a consumer that lets its broker divide them: Java's clients do so after setClientRebalance(false).

Source: RocketMQ QueryAssignmentProcessor; observed on 5.3.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, get_args

from rocketc._layout import LMQ_PREFIX
from rocketc.broker.bodies import enum_of, object_of, parse_body, text_of
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.heartbeat import CLIENT_ID_MOST
from rocketc.broker.lock_processor import NAME_MOST
from rocketc.errors import BadRequestError
from rocketc.remoting.allocation import StrategyName, strategy
from rocketc.remoting.route_data import MessageQueue, QueueData
from rocketc.remoting.server import Answer, Call, failed
from rocketc.remoting.subscribing import MessageModel
from rocketc.tables.fastjson import to_bytes
from rocketc.tables.topics import PERM_READ

_log = logging.getLogger("rocketc.broker")

QUERY_ASSIGNMENT = 400
PULL = "PULL"  # the mode of each assignment; the other one is POP
_ROUTES_MOST = 1000
_ROUTE_SECONDS = 5.0  # a route is asked for again after this time

AskRoute = Callable[[str], Awaitable["list[QueueData] | None"]]


class _Asked(NamedTuple):
    topic: str
    group: str
    client_id: str
    strategy: str
    is_broadcasting: bool


class AssignmentProcessor:
    """Answers QUERY_ASSIGNMENT (400): the queues of one consumer, all of them with the mode PULL.

    ask_route    returns what each broker of the cluster has of a topic; None: it is not known now
    broker_name  of this broker, which has the light queues that are asked for
    now          loop.time()
    A body without the member messageQueueAssignments tells the consumer to keep the queues that it has.
    """

    codes = (QUERY_ASSIGNMENT,)

    def __init__(
        self, consumers: ConsumerManager, ask_route: AskRoute, broker_name: str, *, now: Callable[[], float]
    ) -> None:
        self._consumers, self._ask_route, self._broker_name, self._now = consumers, ask_route, broker_name, now
        self._routes: dict[str, tuple[float, asyncio.Task[list[QueueData] | None]]] = {}  # until when, by topic
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: set[str] = set()  # groups whose strategy is unknown: they are logged once

    def process(self, call: Call) -> None:
        """Answer later. Raises BadRequestError."""
        task = asyncio.get_running_loop().create_task(self._answer(call, _decode(call.command.body)), name="assignment")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: Call, asked: _Asked) -> None:
        try:
            given = self._divide(asked, await self._queues(asked.topic))
        except Exception as error:  # this task is not awaited
            call.later(failed(call.connection, call.command, error))
            return
        found = {} if given is None else {"messageQueueAssignments": [_assignment(queue) for queue in given]}
        call.later(Answer(body=to_bytes(found, compact=True)))

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that consumers of a topic read, on all brokers, sorted."""
        if topic.startswith(LMQ_PREFIX):
            return [MessageQueue(topic, self._broker_name, 0)]
        datas = await asyncio.shield(self._route(topic))  # others may wait for the same answer
        return read_queues(topic, datas or ())

    def _route(self, topic: str) -> asyncio.Task[list[QueueData] | None]:
        """One question to the name servers serves all members of all groups that ask about this time."""
        until, task = self._routes.get(topic, (0.0, None))
        if task is None or until <= self._now():
            if len(self._routes) >= _ROUTES_MOST:
                self._routes.clear()
            task = asyncio.get_running_loop().create_task(self._asked(topic), name="route of a topic")
            self._routes[topic] = self._now() + _ROUTE_SECONDS, task
        return task

    async def _asked(self, topic: str) -> list[QueueData] | None:
        found = await self._ask_route(topic)
        if not found:  # it may be there in a moment
            self._routes.pop(topic, None)
        return found

    def _divide(self, asked: _Asked, queues: list[MessageQueue]) -> list[MessageQueue] | None:
        """Return the queues of one consumer; None if that cannot be decided now."""
        if not queues or asked.is_broadcasting:
            return queues or None
        group = self._consumers.group(asked.group)
        if group is None or not asked.client_id:
            return None
        try:
            rule = strategy(asked.strategy)  # type: ignore[arg-type]
        except ValueError:
            self._warn(asked)
            return None
        return rule.allocate(asked.group, asked.client_id, queues, sorted(group.client_ids))

    def _warn(self, asked: _Asked) -> None:
        if asked.group not in self._refused and len(self._refused) < _ROUTES_MOST:
            self._refused.add(asked.group)
            _log.warning(
                "group %s: the consumer %s is without queues, because this broker does not know the strategy %s; "
                "use one of %s, or divide the queues in the client (setClientRebalance(true))",
                *(asked.group, asked.client_id, repr(asked.strategy), ", ".join(get_args(StrategyName))),
            )

    def close(self) -> None:
        """End what waits for a name server."""
        for task in [*self._tasks, *(task for _, task in self._routes.values())]:
            task.cancel()


def read_queues(topic: str, datas: Iterable[QueueData]) -> list[MessageQueue]:
    """Return the queues that consumers of a topic read, sorted.

    datas  what each broker has of the topic

    >>> read_queues("orders", [QueueData("broker-b", 1, 4), QueueData("broker-a", 1, 1), QueueData("broker-c", perm=2)])
    [MessageQueue(topic='orders', broker_name='broker-a', queue_id=0), \
MessageQueue(topic='orders', broker_name='broker-b', queue_id=0)]
    """
    readable = [one for one in datas if one.perm & PERM_READ]
    return sorted(MessageQueue(topic, one.broker_name, i) for one in readable for i in range(one.read_queue_nums))


def _assignment(queue: MessageQueue) -> dict[str, Any]:
    names = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
    return {"messageQueue": names, "mode": PULL}


def _decode(body: bytes) -> _Asked:
    """Return what a request asks for. Raises BadRequestError."""
    data = object_of(parse_body(body), "the body")
    for name in ("topic", "consumerGroup"):
        if data.get(name) is None:
            raise BadRequestError(f"the body lacks the member {name}")
    model = enum_of(data, "messageModel", MessageModel)
    if model is None:
        raise BadRequestError("the member messageModel is neither CLUSTERING nor BROADCASTING")
    return _Asked(
        text_of(data, "topic", NAME_MOST),
        text_of(data, "consumerGroup", NAME_MOST),
        text_of(data, "clientId", CLIENT_ID_MOST),
        text_of(data, "strategyName", NAME_MOST),
        model is MessageModel.BROADCASTING,
    )
