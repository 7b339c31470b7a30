"""The routes that a client knows: asked for once, shared by all who need them, and asked for again while they are used.

Source: RocketMQ MQClientInstance.updateTopicRouteInfoFromNameServer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from dataclasses import dataclass

from rocketc.client.connections import UNREACHABLE
from rocketc.client.name_servers import NameServers
from rocketc.client.recent import Recent
from rocketc.client.routes import MessageQueue, TopicRoute
from rocketc.client.troubles import Troubles
from rocketc.errors import AnswerError, ConnectionLostError, NoAnswerError, NotSentError, TopicNotFoundError
from rocketc.remoting.route_data import MASTER

_log = logging.getLogger("rocketc.client")

_TOPICS_MOST = 2_000  # that a producer sends to; a route that is not known is asked for
_KEPT_SECONDS = 120.0  # a route that name servers do not know any more: one that restarts learns it within 30 s


@dataclass(frozen=True)
class PublishInfo:
    """Where a producer sends the messages of one topic.

    queues   that it may write, at least one; each of a broker that has a master. Those of an ordered topic stay while
             their broker is away: a shard must not move to another queue
    masters  their addresses by broker name
    """

    queues: tuple[MessageQueue, ...]
    masters: dict[str, str]

    def master(self, broker_name: str) -> str:
        """Return the address of the master with this name. Raises NotSentError if there is none now."""
        if broker_name not in self.masters:
            raise NotSentError(f"broker {broker_name}: no master is known now")
        return self.masters[broker_name]


class RouteTable:
    """Routes by topic.

    name_servers  are asked
    create_topic  its route serves for topics that do not exist yet (RocketMQ: createTopicKey)
    queue_nums    queues of such a topic on one broker (RocketMQ: defaultTopicQueueNums)
    """

    def __init__(self, name_servers: NameServers, create_topic: str, queue_nums: int) -> None:
        self._name_servers, self._create_topic, self._queue_nums = name_servers, create_topic, queue_nums
        self._loop = asyncio.get_running_loop()
        self.changes = 0  # of what publish_info() returns
        self._routes: dict[str, TopicRoute] = {}
        self._publish: Recent[str, PublishInfo] = Recent(_TOPICS_MOST)  # a producer may use very many topics
        self._watched: set[str] = set()  # topics of consumers
        self._missing_since: dict[str, float] = {}  # topics whose routes are kept; times of the loop
        self._asking: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._troubles = Troubles()

    def publish_info(self, topic: str) -> PublishInfo | None:
        """Return where messages of a topic go, if that is known without a question."""
        info = self._publish.get(topic)
        return info if info is not None and info.queues else None

    async def ask_publish_info(self, topic: str, deadline: float) -> PublishInfo:
        """Ask where messages of a topic go. The topic does not need to exist if a broker creates topics.

        deadline  loop.time() at which this ends
        Raises TopicNotFoundError, TopicPermissionError; NotSentError if no name server answers; AnswerError of one.
        """
        try:
            route = await self._ask(topic, deadline)
            usual = None if route is not None else await self._ask(self._create_topic, deadline)
        except (ConnectionLostError, NoAnswerError) as error:  # only the question may have been carried out
            raise NotSentError(str(error)) from None
        if route is None:
            route = None if usual is None else self._for_new_topic(usual)
            if route is None:
                raise TopicNotFoundError(
                    f"topic {topic!r}: no broker has it, and none creates topics by itself; "
                    f"create it: rocketc admin create-topic {topic}"
                )
            self._set_publish_info(topic, route)
        info = self._publish.get(topic) or self._info(topic, route)  # others may have removed it meanwhile
        if not info.queues:
            self._forget_publish_info(topic)
            raise route.unwritable(topic)
        return info

    async def watch(self, topic: str, deadline: float) -> TopicRoute | None:
        """Ask for the route of a topic, and keep it fresh from now on, also while the topic does not exist.

        Raises the error of the name servers.
        """
        self._watched.add(topic)
        return await self._ask(topic, deadline)

    def unwatch(self, topic: str) -> None:
        """Do not keep the route of a topic fresh any more."""
        self._watched.discard(topic)

    def brokers(self, *, slaves: bool = False) -> dict[str, str]:
        """Return the names of all brokers that a used topic has, by their addresses.

        slaves  those of slaves, too
        """
        found: dict[str, str] = {}
        for topic, route in self._routes.items():
            if topic in self._watched or topic in self._publish:
                for broker in route.brokers:
                    ids = broker.addresses if slaves else broker.addresses.keys() & {MASTER}
                    found |= {broker.addresses[one]: broker.name for one in ids}
        for info in self._publish.values():
            found |= {address: name for name, address in info.masters.items()}
        return found

    def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic, if it is known and the topic exists."""
        return self._routes.get(topic)

    async def refresh(self, seconds: float) -> None:
        """Ask again for the routes of all topics that are used. Trouble is logged, and the known routes stay.

        seconds  for each topic
        """
        for topic in {*self._publish, *self._watched}:
            what = f"the question for the route of topic {topic}"
            try:
                await self._ask(topic, self._loop.time() + seconds)
                self._troubles.works(what)
            except (*UNREACHABLE, AnswerError) as error:
                self._troubles.failed(what, error)
                if not isinstance(error, AnswerError):  # it would be the same for the others
                    return

    async def _ask(self, topic: str, deadline: float) -> TopicRoute | None:
        """Ask for a route. All who wait for it share one question, and it continues if one of them ends."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.create_task(self._name_servers.route(topic))
            task.add_done_callback(lambda done: self._asked(topic, done))
        done, _ = await asyncio.wait({task}, timeout=max(0.0, deadline - self._loop.time()))
        if not done:
            address = self._name_servers.address
            raise NoAnswerError(f"{address}: no answer in time to the question where {topic!r} is; check this server")
        if task.cancelled():
            raise NotSentError("the client is closed")
        return task.result() or self._routes.get(topic)

    def _asked(self, topic: str, task: asyncio.Task[TopicRoute | None]) -> None:
        del self._asking[topic]
        if task.cancelled() or task.exception() is not None:
            return
        route = task.result()
        if route is not None:
            self._warn_once(topic, route)
            self._routes[topic] = route
            self._set_publish_info(topic, route)
            self._missing_since.pop(topic, None)
            if len(self._routes) > _TOPICS_MOST + len(self._watched):
                self._forget_unused()
            return
        now = self._loop.time()
        if topic in self._routes and now < self._missing_since.setdefault(topic, now) + _KEPT_SECONDS:
            return  # the name server may have restarted, and its brokers work
        # The topic was deleted; or no send has made it yet, and the brokers that can may have moved.
        self._missing_since.pop(topic, None)
        self._routes.pop(topic, None)
        self._forget_publish_info(topic)

    def _warn_once(self, topic: str, route: TopicRoute) -> None:
        """Warn of an order of which producers cannot use all, unless the route before had the same."""
        before, fault = self._routes.get(topic), route.misordered(topic)
        if fault is not None and (before is None or before.misordered(topic) != fault):
            _log.warning("%s", fault)

    def _set_publish_info(self, topic: str, route: TopicRoute) -> None:
        self._publish[topic] = self._info(topic, route)
        self.changes += 1

    def _forget_publish_info(self, topic: str) -> None:
        self._publish.discard(topic)
        self.changes += 1

    def _forget_unused(self) -> None:
        """Forget the routes of topics that are neither watched nor among those that were sent to last."""
        for topic in [one for one in self._routes if one not in self._publish and one not in self._watched]:
            del self._routes[topic]
            self._missing_since.pop(topic, None)

    def _for_new_topic(self, usual: TopicRoute) -> TopicRoute:
        """The route of a topic that the next send creates: on each broker that creates topics."""
        most = self._queue_nums
        queues = [
            data._replace(
                read_queue_nums=min(most, data.read_queue_nums),
                write_queue_nums=min(most, data.read_queue_nums),
            )
            for data in usual.queues
        ]
        return dataclasses.replace(usual, queues=tuple(queues), order=())

    @staticmethod
    def _info(topic: str, route: TopicRoute) -> PublishInfo:
        masters = route.masters()
        queues = [one for one in route.write_queues(topic) if route.order or one.broker_name in masters]
        return PublishInfo(tuple(queues), masters)

    def close(self) -> None:
        """End the questions that are not answered."""
        for task in self._asking.values():
            task.cancel()
