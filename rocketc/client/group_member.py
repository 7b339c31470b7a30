"""A member of a consumer group: its queues, the pulls of each, and their offsets. Listeners are in other modules.

Source: RocketMQ RebalanceImpl, RebalancePushImpl, DefaultMQPushConsumerImpl, PullMessageService.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rocketc.client.connections import UNREACHABLE
from rocketc.client.consume_results import finish
from rocketc.client.counts import ConsumeCounts
from rocketc.client.first_commits import FirstCommits
from rocketc.client.instance import ClientInstance
from rocketc.client.kept_offsets import BrokerOffsets, FileOffsets, KeptOffsets
from rocketc.client.large_bodies import decoded_messages
from rocketc.client.offset_stores import NOT_FOUND, LocalFileOffsetStore, OffsetTable, local_folder
from rocketc.client.owned_queue import Owned
from rocketc.client.pull_decisions import (
    BUSY_MS,
    PULL_CODES,
    PULL_TIMEOUT_MS,
    PullGate,
    PullStatus,
    Step,
    after_pull,
    delay_after_error,
    pull_fields,
    read_address,
)
from rocketc.client.queue_locks import QueueLocks
from rocketc.client.recreated import continued_at, is_beyond_end
from rocketc.client.routes import MessageQueue, TopicRoute
from rocketc.client.send_backs import retry_topic
from rocketc.client.settings import ConsumerSettings, PullSettings
from rocketc.client.starting_offsets import compute_pull_from_where
from rocketc.client.strategies import AllocateStrategy
from rocketc.client.subscriptions import SubscriptionData, check_filter_version
from rocketc.client.troubles import Troubles
from rocketc.client.waiters import wait_set
from rocketc.errors import AnswerError, BadRequestError
from rocketc.read._message import Message
from rocketc.read._opened_records import pulled_messages
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES, REQUESTS
from rocketc.remoting.route_data import MASTER
from rocketc.remoting.subscribing import ConsumeFromWhere, MessageModel
from rocketc.status import GetStatus

_log = logging.getLogger("rocketc.client")

PULL = CODES["PULL_MESSAGE"]
_REBALANCE_SECONDS = 20.0  # between two looks at the members of the group
_LEAST_SECONDS = 1.0  # between two rebalances that something asked for
_LOCK_SECONDS = 0.5  # until a lock that was refused is asked for again
_LOOKS = 60  # for a topic that does not exist yet, one a second; later ones come with the rebalances
_UNKNOWN = (Code.SUBSCRIPTION_NOT_EXIST, Code.SUBSCRIPTION_NOT_LATEST)
_TROUBLE = (*UNREACHABLE, AnswerError)
_MOVED = "%s: %s does not have the offset %d; it continues at %d"
_MADE_AGAIN = (
    "%s: %s does not have its messages before offset %d any more: it was made again, or its broker lost messages; it "
    "continues at %d"
)


class Work(Protocol):
    """What is done with the messages of a member."""

    def submit(self, owned: Owned, messages: Sequence[Message], begins: bool) -> None:
        """Take messages that were pulled; they are in the process queue already.

        begins  no listener works on the queue: an orderly listener begins a turn
        """
        ...


class GroupMember:
    """The queues of one consumer. Use it on one event loop: start(), then stop().

    subscriptions  by topic, that of %RETRY% included
    where, timestamp  where a group begins without an offset in a queue; ms for CONSUME_FROM_TIMESTAMP
    is_orderly     each queue is locked at its broker, and only the owner of the lock pulls it; not for broadcasting
    now            ms of a clock that is never set back
    wall           ms since 1970

    locks  of an orderly member of a clustering group, or None
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: ConsumerSettings | PullSettings,
        subscriptions: dict[str, SubscriptionData],
        where: ConsumeFromWhere,
        timestamp: int,
        strategy: AllocateStrategy,
        work: Work,
        wall: Callable[[], int],
        *,
        is_orderly: bool = False,
    ) -> None:
        self._instance, self._group, self._settings = instance, group, settings
        self.subscriptions, self._where, self._timestamp = subscriptions, where, timestamp
        self._announced: dict[str, SubscriptionData] = {}  # of the last heartbeat
        self._strategy, self._work, self._wall = strategy, work, wall
        self._loop = asyncio.get_running_loop()
        self._retry_topic = retry_topic(group).encode()
        self._gate = PullGate(settings.pull_limits(), is_orderly=is_orderly)
        self._is_orderly = is_orderly
        self._model = MessageModel[settings.message_model]
        self._first = FirstCommits()
        self._troubles = Troubles()
        self._kept: KeptOffsets = BrokerOffsets(instance, group, self._master, self._ask_offset, self._first)
        self.owned: dict[MessageQueue, Owned] = {}
        self.counts = ConsumeCounts()
        self.locks = QueueLocks(instance, group, self.owned, self._master, self.now) if is_orderly else None
        if self._model is MessageModel.BROADCASTING:
            folder = local_folder() if settings.local_offset_store_dir is None else settings.local_offset_store_dir
            self._kept = FileOffsets(group, LocalFileOffsetStore(folder, instance.client_id, group))
            self.locks = None
        self.offsets: OffsetTable = self._kept.table
        self._suggested: dict[MessageQueue, int] = {}  # broker ids to read from
        self._mates: dict[str, list[str]] = {}  # client ids of the group, by topic, of a broker that knew all of them
        self._settled_at = 0.0  # loop.time() from which on the brokers that were asked know all members
        instance.registration_handlers.append(self._registered)
        self._changed = asyncio.Event()
        self._faults: set[str] = set()  # of routes, each is logged once
        self._looks = 0  # in vain, for topics that do not exist
        self._turn = asyncio.Lock()  # of rebalances
        self._balancing: asyncio.Task[None] | None = None
        self._persisting: asyncio.Task[None] | None = None
        self._locking: asyncio.Task[None] | None = None
        self.is_paused = False
        self._is_stopped = False

    def now(self) -> int:
        """Ms of the loop's clock."""
        return int(self._loop.time() * 1000)

    async def start(self) -> None:
        """Find the routes, introduce this consumer to the brokers, and take the first queues."""
        await self._kept.open()
        try:
            await self._begin()
        except BaseException:
            await self._kept.close()
            raise
        self._balancing = asyncio.create_task(self._keep_balanced(), name=f"rebalance {self._group}")
        self._persisting = asyncio.create_task(self._keep_persisted(), name=f"offsets {self._group}")
        if self.locks is not None:
            self._locking = asyncio.create_task(self.locks.keep(), name=f"locks {self._group}")

    async def _begin(self) -> None:
        deadline = self._loop.time() + self._settings.mq_client_api_timeout / 1000
        for topic in self.subscriptions:
            await self._instance.routes.watch(topic, deadline)
        await self._introduce()
        for topic in self._missing():
            if topic != self._retry_topic.decode():  # that of a new group is made now
                _log.warning("%s: no broker has the topic %s; messages come when it exists", self._group, topic)
        await self._rebalance()

    async def stop(self) -> None:
        """Pull no more, and write the offsets. The caller has finished the work before."""
        self._is_stopped = True
        tasks = [task for task in (self._balancing, self._persisting, self._locking) if task is not None]
        tasks += [one.pulling for one in self.owned.values() if one.pulling is not None]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
            await self.persist()
        finally:  # also if Ctrl-C ends the wait
            await self._kept.close()
        for one in self.owned.values():
            one.process_queue.is_dropped = True
        if self.locks is not None:
            ended = [queue for queue, one in self.owned.items() if not one.consuming.locked()]
            await self.locks.unlock(ended)  # others are free when the client leaves the group
        self.owned.clear()

    def stop_pulling(self) -> None:
        """Pull no more from now on; messages that were pulled are still worked on."""
        self.is_paused = True
        for task in [self._balancing, *(one.pulling for one in self.owned.values())]:
            if task is not None:
                task.cancel()

    async def subscribed(self, topic: str) -> None:
        """Begin with a topic that was added to `subscriptions`."""
        await self._instance.routes.watch(topic, self._loop.time() + self._settings.mq_client_api_timeout / 1000)
        await self._introduce()
        async with self._turn:
            await self._rebalance()
        self._looks = 0
        self._changed.set()

    async def unsubscribed(self, topic: str) -> None:
        """End with a topic that was removed from `subscriptions`."""
        self._instance.routes.unwatch(topic)
        async with self._turn:
            gone = [one for one in self.owned.values() if one.queue.topic == topic]
            for one in gone:
                await self._drop(one)
            if gone:
                await self._queues_changed()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets. Messages that were pulled before count no more."""
        async with self._turn:
            for queue, offset in offsets.items():
                one = self.owned.get(queue)
                if one is not None:
                    self.offsets.update_and_freeze(queue, offset)
                    await self._drop(one)
        self._changed.set()

    def queue_infos(self) -> dict[tuple[tuple[str, object], ...], dict[str, object]]:
        """Return ProcessQueueInfo of each queue, with times in ms since 1970, for a JSON object."""
        shift = self._wall() - self.now()
        found: dict[tuple[tuple[str, object], ...], dict[str, object]] = {}
        for queue, one in self.owned.items():
            info: dict[str, object] = dict(one.process_queue.info(self.offsets.get(queue)))
            for name in ("lastConsumeTimestamp", "lastLockTimestamp", "lastPullTimestamp"):
                info[name] = int(str(info[name])) + shift
            key = (("brokerName", queue.broker_name), ("queueId", queue.queue_id), ("topic", queue.topic))
            found[key] = info
        return found

    def _registered(self, address: str) -> None:
        """A broker knows this member again, as after a restart: what it kept in memory must be asked for again."""
        if self.locks is not None:
            self.locks.renew()
        self.members_changed()

    async def _introduce(self) -> None:
        """Send a heartbeat. Pulls use subscriptions that brokers know: they refuse a later version."""
        sent = dict(self.subscriptions)
        await self._instance.heartbeat()
        self._announced = sent

    # rebalance

    def members_changed(self) -> None:
        """Divide the queues again soon: the members of the group or the routes have changed."""
        self._changed.set()

    async def _keep_balanced(self) -> None:
        while True:
            await self._wait_for_change()
            try:
                await self._find_missing()
                async with self._turn:
                    await self._rebalance()
            except Exception:
                _log.warning("%s: the queues cannot be divided; it is tried again", self._group, exc_info=True)
            await asyncio.sleep(_LEAST_SECONDS)

    async def _wait_for_change(self) -> None:
        seconds = _REBALANCE_SECONDS
        if self._missing() and self._looks < _LOOKS:
            self._looks += 1
            seconds = _LEAST_SECONDS
        unsettled = self._settled_at - self._loop.time()
        await wait_set(self._changed, min(seconds, unsettled) if unsettled > 0 else seconds)
        self._changed.clear()

    def _missing(self) -> list[str]:
        """The topics without a route. The retry topic of a new group is made by its first heartbeat."""
        return [topic for topic in self.subscriptions if self._instance.routes.route(topic) is None]

    async def _find_missing(self) -> None:
        deadline = self._loop.time() + self._settings.mq_client_api_timeout / 1000
        brokers = self._instance.routes.brokers()
        for topic in self._missing():
            try:
                await self._instance.routes.watch(topic, deadline)
            except _TROUBLE as error:
                _log.debug("%s: the route of topic %s is not known: %s", self._group, topic, error)
                return
        if self._instance.routes.brokers().keys() - brokers.keys():
            await self._introduce()  # they do not know this consumer yet

    async def _rebalance(self) -> None:
        if self.is_paused:
            return
        is_changed = False
        for topic in list(self.subscriptions):
            mine = await self._allocated(topic)
            if mine is not None:
                is_changed |= await self._update(topic, mine)
        for one in [one for one in self.owned.values() if one.queue.topic not in self.subscriptions]:
            is_changed |= await self._drop(one)
        if is_changed:
            await self._queues_changed()
        if self._is_stopped:  # meanwhile: the pulls would never end
            return
        for one in self.owned.values():
            if one.pulling is None:  # it begins after the heartbeat that brokers must see first
                one.pulling = asyncio.create_task(self._pull(one), name=f"pull {self._group} {one.queue}")

    async def _allocated(self, topic: str) -> list[MessageQueue] | None:
        """The queues of this member; None: it cannot be said now, so nothing changes."""
        route = self._instance.routes.route(topic)
        if route is None:
            return None
        queues = self._readable(route, topic)
        if self._model is MessageModel.BROADCASTING:
            return queues or None
        members = await self._members(topic)
        if not members or not queues:
            return None
        try:
            return self._strategy.allocate(self._group, self._instance.client_id, queues, members)
        except Exception:
            _log.warning("%s: the strategy %s failed", self._group, self._strategy.name, exc_info=True)
            return None

    def _readable(self, route: TopicRoute, topic: str) -> list[MessageQueue]:
        """The queues that may be read, sorted; what may not be read is logged once."""
        if (fault := route.unreadable(topic)) is not None and fault not in self._faults:
            self._faults.add(fault)
            _log.warning("%s", fault)
        return sorted(route.read_queues(topic))

    async def _members(self, topic: str) -> list[str]:
        """The client ids of the group, sorted; empty if no broker of the topic answers.

        A broker forgets all members when it restarts. Until they had time to come back, those before count, too.
        """
        now, heartbeats = self._loop.time(), self._instance.heartbeats
        for address in self._asked_for_members(topic):
            try:
                members = await self._members_at(address)
            except _TROUBLE as error:
                _log.debug("%s: %s does not name the members: %s", self._group, address, error)
                continue
            settled_at = heartbeats.settled_at(address)
            if settled_at <= now:
                self._mates[topic] = members
                return members
            self._settled_at = max(settled_at, self._settled_at)
            return sorted([*members, *(one for one in self._mates.get(topic, ()) if one not in members)])
        return []

    def _asked_for_members(self, topic: str) -> list[str]:
        """The addresses of the brokers of a topic, in any order, but those that know all members first."""
        route = self._instance.routes.route(topic)
        brokers = [] if route is None else [one for one in route.brokers if one.addresses]
        self._instance.chance.shuffle(brokers)
        addresses = [broker.master or next(iter(broker.addresses.values())) for broker in brokers]
        return sorted(addresses, key=self._instance.heartbeats.settled_at)

    async def _members_at(self, address: str) -> list[str]:
        """The client ids that a broker knows, sorted. One that does not know this member gets a heartbeat first."""
        members: list[str] = []
        with contextlib.suppress(AnswerError):  # it does not know the group
            members = await self._listed_members(address)
        if self._instance.client_id in members:
            return members
        await self._instance.heartbeats.heartbeat_and_wait(address)
        return await self._listed_members(address)

    async def _listed_members(self, address: str) -> list[str]:
        return await self._instance.connections.ask(
            address,
            CODES["GET_CONSUMER_LIST_BY_GROUP"],
            {"consumerGroup": self._group},
            lambda fields: sorted(fields.names("consumerIdList")),
        )

    async def _update(self, topic: str, mine: Sequence[MessageQueue]) -> bool:
        wanted, now, is_changed = set(mine), self.now(), False
        for one in [one for one in self.owned.values() if one.queue.topic == topic]:
            held = one.process_queue
            if one.queue not in wanted or held.is_dropped or held.is_pull_expired(now):
                is_changed |= await self._drop(one)
        for queue in mine:
            if queue not in self.owned and await self._take(queue):
                is_changed = True
        return is_changed

    async def _drop(self, one: Owned) -> bool:
        """Give a queue back: its results count no more. False: a listener works on it, so try again later."""
        one.process_queue.is_dropped = True
        if one.pulling is not None:
            one.pulling.cancel()
        await self._kept.persist(one.queue)
        if self._is_orderly and not await one.wait_between_calls():
            self._loop.call_later(_LOCK_SECONDS, self._changed.set)
            return False
        if self.locks is not None:
            one.process_queue.is_locked = False
            await self.locks.unlock([one.queue])
        self.owned.pop(one.queue, None)
        self._suggested.pop(one.queue, None)
        self.offsets.remove(one.queue)
        return True

    async def _take(self, queue: MessageQueue) -> bool:
        asked = self.now()
        if self.locks is not None and queue not in await self.locks.lock([queue]):
            self._loop.call_later(_LOCK_SECONDS, self._changed.set)
            return False
        self.offsets.remove(queue)
        try:
            offset = await compute_pull_from_where(queue, self._where, self._timestamp, self._kept.stored, self)
        except _TROUBLE as error:
            _log.warning("%s: no first offset for %s, so it is not pulled yet: %s", self._group, queue, error)
            return False
        if offset < 0:
            return False
        if offset > 0 and self.offsets.get(queue) == NOT_FOUND:
            self.offsets.update(queue, offset, increase_only=False)
            await self._kept.begin(queue)
        one = self.owned[queue] = Owned(queue, offset, self.now())
        if self._is_orderly:  # a broadcasting member has each queue for itself
            one.process_queue.set_locked(asked)
            one.request.is_previously_locked = True
        return True

    async def _queues_changed(self) -> None:
        """Brokers must see newer subscriptions, or they refuse the pulls."""
        version = self._wall()
        for topic, subscription in self.subscriptions.items():
            self.subscriptions[topic] = subscription.renewed(version)
        self._gate.limits = self._settings.pull_limits().shared(len(self.owned))
        await self._introduce()

    # offsets

    async def max_offset(self, queue: MessageQueue) -> int:
        """Ask the broker for the offset after the last message of a queue."""
        return await self._ask_offset(queue, "GET_MAX_OFFSET", {"topic": queue.topic, "queueId": queue.queue_id})

    async def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """Ask the broker for the first offset of a queue at or after a time, in ms since 1970."""
        values = {"topic": queue.topic, "queueId": queue.queue_id, "timestamp": timestamp}
        return await self._ask_offset(queue, "SEARCH_OFFSET_BY_TIMESTAMP", values)

    async def _ask_offset(self, queue: MessageQueue, name: str, values: dict[str, object]) -> int:
        code = CODES[name]
        address = self._master(queue)
        answer = await self._instance.connections.call(address, code, values)
        try:
            offset = REQUESTS[code].decode_answer(answer.fields).get("offset")
        except BadRequestError as error:
            raise AnswerError(address, str(error)) from None
        if not isinstance(offset, int):
            raise AnswerError(address, f"the answer to {name} lacks the field offset")
        return offset

    def _master(self, queue: MessageQueue) -> str:
        """The address of the master of a queue, or of a slave while there is no master."""
        return self._address(queue, MASTER)[0]

    def _address(self, queue: MessageQueue, broker_id: int) -> tuple[str, bool]:
        """The address of a broker of a queue, if possible with this id, and whether it is a slave."""
        route = self._instance.routes.route(queue.topic)
        broker = next((one for one in route.brokers if one.name == queue.broker_name), None) if route else None
        found = None if broker is None else read_address(broker, broker_id)
        if found is None:
            raise AnswerError(queue.broker_name, "no address of this broker is known now")
        return found

    async def persist(self) -> None:
        """Write the offsets of all queues of this member."""
        await self._kept.persist_all(self.owned)

    async def _keep_persisted(self) -> None:
        interval = self._settings.persist_consumer_offset_interval / 1000
        while True:
            await asyncio.sleep(interval)
            try:
                await self.persist()
            except Exception:
                _log.warning("%s: the offsets are not written; it is tried again", self._group, exc_info=True)

    # pulls

    async def _pull(self, one: Owned) -> None:
        """Pull a queue until it is dropped."""
        while True:
            is_subscribed = one.queue.topic in self.subscriptions
            step, delay = self._gate.step(
                one.request, self.now(), is_paused=self._waits(one), is_subscribed=is_subscribed
            )
            if step is Step.FORGET:
                return
            if step is Step.RECOMPUTE:
                await self._recompute(one)
                continue
            if step is not Step.PULL:
                await self._wait(one, delay)
                continue
            try:
                pause = await self._pull_once(one)
            except Exception as error:
                if isinstance(error, UNREACHABLE):
                    self._suggested.pop(one.queue, None)  # a slave that is gone: the master serves the queue
                elif isinstance(error, AnswerError) and error.code in _UNKNOWN:
                    self._instance.heartbeats.repeat_heartbeat(one.queue.broker_name, error.address)
                elif isinstance(error, AnswerError) and error.code == Code.TOPIC_NOT_EXIST:
                    one.was_missing = True
                pause = delay_after_error(error)
                if pause != BUSY_MS:
                    at_broker, of_queue = self._pulls(one)
                    is_known = isinstance(error, AnswerError) and error.code not in _UNKNOWN  # by the broker
                    self._troubles.failed(of_queue if is_known else at_broker, error)
            else:
                if self._troubles:
                    for pulls in self._pulls(one):
                        self._troubles.works(pulls)
            if pause is None:
                return
            if pause:
                await asyncio.sleep(pause / 1000)

    def _pulls(self, one: Owned) -> tuple[str, str]:
        """What may be in trouble: pulls from the broker of a queue, and of the queue alone."""
        return f"{self._group}: a pull from {one.queue.broker_name}", f"{self._group}: a pull of {one.queue}"

    async def _recompute(self, one: Owned) -> None:
        """The lock was lost and came back: another consumer may have worked on the queue meanwhile."""
        try:
            offset = await compute_pull_from_where(one.queue, self._where, self._timestamp, self._kept.stored, self)
        except _TROUBLE:
            offset = -1
        if offset >= 0:
            one.request.begin_at(offset)
        else:
            await asyncio.sleep(_LEAST_SECONDS)

    async def _wait(self, one: Owned, delay: int) -> None:
        """Wait for the delay, or until messages were consumed."""
        one.room.clear()
        await wait_set(one.room, delay / 1000)

    async def _pull_once(self, one: Owned) -> int | None:
        """Pull a queue once; return the ms until the next pull, None for no further one."""
        queue, subscription = one.queue, self.subscriptions[one.queue.topic]
        address, is_slave = self._address(queue, self._suggested.get(queue, MASTER))
        check_filter_version(subscription, address, self._instance.heartbeats.versions.get(address))
        values = pull_fields(
            self._group, one.request, self._announced.get(queue.topic, subscription), self.offsets.get(queue),
            model=self._model,
            is_slave=is_slave,
            pull_batch_size=self._settings.pull_batch_size,
            post_subscription_when_pull=self._settings.post_subscription_when_pull,
        )  # fmt: skip
        self._complete(queue, values)
        began = self._loop.time()
        deadline = began + PULL_TIMEOUT_MS / 1000
        answer = await self._instance.connections.call(address, PULL, values, others=PULL_CODES, deadline=deadline)
        told = REQUESTS[PULL].decode_answer(answer.fields)
        if told["nextBeginOffset"] < 0:
            raise AnswerError(address, f"the next offset in the answer to a pull is {told['nextBeginOffset']}")
        self._suggested[queue] = told["suggestWhichBrokerId"]
        status, messages = PullStatus(answer.code), list[Message]()
        is_reset = answer.remark == GetStatus.OFFSET_RESET.name  # an operator has chosen the offset
        is_beyond = is_beyond_end(status, values["queueOffset"], told["maxOffset"])
        is_doubtful = not is_reset and (is_beyond or one.was_missing)
        if is_doubtful:
            status = await self._same_or_other(one, status, told)
        if status is PullStatus.FOUND:
            now = self._loop.time()
            messages, errors, end = await decoded_messages(
                pulled_messages, answer.body, one.request.next_offset, self._retry_topic, queue.broker_name
            )
            if end < len(answer.body):  # continue after the last message, or after one that cannot be read
                told["nextBeginOffset"] = 1 + (messages[-1].queue_offset if messages else one.request.next_offset)
            self.counts.pulled(queue.topic, len(messages), 1000 * (now - began), now)
            if messages:
                one.last_stored = messages[-1].store_timestamp
            for error in errors:
                _log.warning("%s: a message of %s is damaged and left out: %s", self._group, queue, error)
        wanted = subscription.wanted(messages)
        after = after_pull(one.request, status, told["nextBeginOffset"], len(wanted), self._settings.pull_interval)
        if one.process_queue.is_dropped:
            return None
        one.request.next_offset = after.next_offset
        if after.is_reset:
            text = _MADE_AGAIN if is_doubtful else _MOVED
            _log.warning(text, self._group, queue, values["queueOffset"], after.next_offset)
            return self._moved(one, values["queueOffset"], after.next_offset)
        one.process_queue.skip_to(after.next_offset)
        if after.saves_offset:
            self._nothing_before(one, after.next_offset)
        if after.submits:
            begins = one.process_queue.put(wanted, self.now(), told["maxOffset"])
            self._work.submit(one, wanted, begins)
        return after.delay

    async def _same_or_other(self, one: Owned, status: PullStatus, told: dict[str, Any]) -> PullStatus:
        """The topic may have been deleted and made again: then change the answer to where the consumer continues."""
        offset, consumed = one.request.next_offset, self._consumed(one.queue)
        found = await continued_at(one.queue, offset, told["maxOffset"], one.last_stored, consumed, self)
        one.was_missing = False
        if found == offset:
            return status
        told["nextBeginOffset"] = found
        return PullStatus.OFFSET_ILLEGAL

    # what a pull consumer does in another way

    def _consumed(self, queue: MessageQueue) -> int:
        """The offset up to which the messages of a queue are consumed; negative if it is not known."""
        return self.offsets.get(queue)

    def _waits(self, one: Owned) -> bool:
        """Whether a queue must not be pulled now."""
        return self.is_paused

    def _complete(self, queue: MessageQueue, values: dict[str, object]) -> None:
        """Complete the fields of a pull."""

    def _nothing_before(self, one: Owned, next_offset: int) -> None:
        """No message waits, and a pull found none before this offset that the consumer wants."""
        self.offsets.update(one.queue, next_offset, increase_only=True)

    def _moved(self, one: Owned, offset: int, next_offset: int) -> int | None:
        """A broker moved the offset of a pull. Returns the ms until the next pull, None for no further one."""
        self.offsets.update_and_freeze(one.queue, next_offset)
        self._loop.call_soon(self._reset, one)
        return None

    def _reset(self, one: Owned) -> None:
        """A broker moved the offset: give the queue back, and take it again from there."""
        task = asyncio.ensure_future(self._drop(one))
        task.add_done_callback(lambda done: self._changed.set())

    # for the work

    def finish(self, one: Owned, messages: Sequence[Message], unsent: Sequence[Message] = ()) -> Sequence[Message]:
        """Move the offset of a queue to the first message that is not done. Returns the messages of `unsent`."""
        again = finish(one.queue, messages, one.process_queue, self.offsets, unsent)
        if one.retries:
            one.retries.forget(self.offsets.get(one.queue))
        self.consumed(one)
        return again

    def count_call(self, one: Owned, messages: int, began: int | None, *, is_ok: bool) -> None:
        """Count a call of a listener that has ended.

        began  now() at its beginning; None: it is not known
        """
        now = self._loop.time()
        spent = 0 if began is None else int(now * 1000) - began
        self.counts.consumed(one.queue.topic, is_ok, messages, spent, now)

    def count_run(self, one: Owned, messages: int, ms: float) -> None:
        """Count successful calls of a listener that took this time each."""
        self.counts.consumed(one.queue.topic, True, messages, ms, self._loop.time())

    def count_wait(self, one: Owned, messages: Sequence[Message], began: int) -> None:
        """Count how long messages were here before their listener was called.

        began  now() at the call
        """
        for arrived, count in one.process_queue.arrivals(messages):
            self.counts.awaits.add(one.queue.topic, True, max(0, began - arrived), count)

    def consumed(self, one: Owned) -> None:
        """The process queue has become smaller: a pull that waits for that may continue."""
        if not self._gate.is_over(one.process_queue):
            one.room.set()

    async def call_master(self, queue: MessageQueue, code: int, values: dict[str, object], seconds: float) -> None:
        """Send a request to the master of a queue's broker. Raises AnswerError, or an error of the connection."""
        deadline = self._loop.time() + seconds
        await self._instance.connections.call(self._master(queue), code, values, deadline=deadline)
