"""The queues of a pull consumer: a share of its group's queues, or queues that the program chose.

Source: RocketMQ DefaultLitePullConsumerImpl, RebalanceLitePullImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from rocketc.client.connections import UNREACHABLE
from rocketc.client.group_member import GroupMember, Work
from rocketc.client.instance import ClientInstance
from rocketc.client.offset_stores import NOT_FOUND, UPDATE_CONSUMER_OFFSET
from rocketc.client.owned_queue import Owned
from rocketc.client.polled_queues import PolledQueues
from rocketc.client.pull_decisions import FAILED_MS, PollGate, lite_fields
from rocketc.client.routes import MessageQueue
from rocketc.client.settings import PullSettings
from rocketc.client.starting_offsets import compute_pull_from_where
from rocketc.client.strategies import strategy_of
from rocketc.client.subscriptions import SubscriptionData
from rocketc.errors import (
    AnswerError,
    AssignmentError,
    ClosedError,
    QueueOffsetError,
    RocketcError,
    TopicNotFoundError,
)
from rocketc.read._message import Message
from rocketc.remoting.codes import Code
from rocketc.remoting.subscribing import ConsumeFromWhere

_log = logging.getLogger("rocketc.client")

_AGAIN_SECONDS = 1.0  # until a queue whose broker was not reached is tried again


class PolledMember(GroupMember):
    """The queues whose messages poll() returns. Use it on one event loop: start(), then stop().

    queues    those that it has now
    assigned  the queues that the program chose; None: it is a member of its group
    where     a group without an offset in a queue begins there
    The other arguments are those of GroupMember.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PullSettings,
        subscriptions: dict[str, SubscriptionData],
        timestamp: int,
        work: Work,
        wall: Callable[[], int],
    ) -> None:
        self.where = where = ConsumeFromWhere[settings.consume_from_where]
        divide = strategy_of(settings.allocate_message_queue_strategy)
        super().__init__(instance, group, settings, subscriptions, where, timestamp, divide, work, wall)
        self.queues: PolledQueues[Message] = PolledQueues()
        self.assigned: frozenset[MessageQueue] | None = None
        self._auto_commits = settings.auto_commit
        self._seconds = settings.mq_client_api_timeout / 1000  # for a request
        self._gate = PollGate(settings.pull_limits(), settings.pull_threshold_for_all, lambda: self.queues.count)
        self._writing = asyncio.Lock()  # a later offset must not come before an earlier one
        self._written: dict[MessageQueue, int] = {}  # offsets that brokers have for certain
        self._paused_later: set[MessageQueue] = set()  # assigned queues that were paused before they were read
        self._unreached: set[str] = set()  # names of brokers that are not asked again in this moment

    # queues

    async def assign(self, queues: Sequence[MessageQueue], subscriptions: Mapping[str, SubscriptionData]) -> None:
        """Have these queues and no others. Raises AssignmentError, TopicNotFoundError, an error of the name servers."""
        for topic in subscriptions:
            known = await self.read_queues(topic)
            for queue in queues:
                if queue.topic == topic and queue not in known:
                    raise AssignmentError(f"{queue}: the topic does not have this queue now")
        for topic in subscriptions:
            await self._instance.routes.watch(topic, self._loop.time() + self._seconds)
        for topic in self.subscriptions.keys() - subscriptions.keys():
            self._instance.routes.unwatch(topic)
            del self.subscriptions[topic]
        self.subscriptions.update(subscriptions)
        self.assigned = frozenset(queues)
        self._paused_later &= self.assigned
        for one in self.owned.values():
            if one.queue not in self.assigned:
                self._revoke(one.queue)  # now: the rest may take a while
        try:
            async with self._turn:
                await self._rebalance()
        finally:
            self.members_changed()  # what is not done yet is done soon

    def assignment(self) -> list[MessageQueue]:
        """Return the queues of this consumer, sorted."""
        return sorted(self.queues if self.assigned is None else self.assigned)

    def check(self, queues: Iterable[MessageQueue]) -> None:
        """Raise AssignmentError if one of these queues is not of this consumer."""
        for queue in queues:
            if queue not in self.queues and queue not in (self.assigned or ()):
                raise AssignmentError(f"{queue}: the consumer does not have this queue now; see assignment()")

    async def read_queues(self, topic: str) -> list[MessageQueue]:
        """Ask for the queues of any topic. Raises TopicNotFoundError, or the error of the name servers."""
        routes = self._instance.routes
        try:
            route = await routes.watch(topic, self._loop.time() + self._seconds)
        finally:
            if topic not in self.subscriptions:
                routes.unwatch(topic)
        if route is None:
            raise TopicNotFoundError(f"topic {topic!r}: the name server does not know it; see rocketc admin topics")
        return self._readable(route, topic)

    async def know(self, queue: MessageQueue) -> None:
        """Ask for the route of a queue if it is not known. Raises as read_queues()."""
        if self._instance.routes.route(queue.topic) is None:
            await self.read_queues(queue.topic)

    async def _allocated(self, topic: str) -> list[MessageQueue] | None:
        if self.assigned is None:
            return await super()._allocated(topic)
        return sorted(queue for queue in self.assigned if queue.topic == topic)

    async def _take(self, queue: MessageQueue) -> bool:
        if queue.broker_name in self._unreached:
            return False
        try:
            stored = await self.committed(queue)
            offset = await compute_pull_from_where(queue, self._where, self._timestamp, _returning(stored), self)
        except (*UNREACHABLE, AnswerError) as error:
            _log.warning("%s: no first offset for %s, so it is not pulled yet: %s", self._group, queue, error)
            self._ask_later(queue, error)
            return False
        if queue in self.queues:
            return False  # a seek() was faster
        self._own(queue, offset)
        if stored is not None:
            self._written[queue] = stored
        elif self.assigned is None and offset > 0:
            # The group begins here. Otherwise the next member would begin later, and leave out what comes meanwhile.
            self.offsets.update(queue, offset, increase_only=False)
            await self._try_to_write([queue])
        return True

    def _own(self, queue: MessageQueue, offset: int) -> Owned:
        one = self.owned[queue] = Owned(queue, offset, self.now())
        self.queues.add(queue, one.process_queue, offset)
        if queue in self._paused_later:
            self._paused_later.discard(queue)
            self.queues.pause(queue, True)
        return one

    def _ask_later(self, queue: MessageQueue, error: RocketcError) -> None:
        """Ask no queue of a broker that was not reached for a moment: each would take as long."""
        if not isinstance(error, AnswerError):
            self._unreached.add(queue.broker_name)

        def again() -> None:
            self._unreached.discard(queue.broker_name)
            self.members_changed()

        self._loop.call_later(_AGAIN_SECONDS, again)

    def _revoke(self, queue: MessageQueue) -> None:
        """Return none of its messages from now on, and keep the offset that is to be committed."""
        finished = self.queues.remove(queue)
        if finished is not None and self._auto_commits:
            self.offsets.update(queue, finished, increase_only=False)

    async def _drop(self, one: Owned) -> bool:
        queue = one.queue
        self._revoke(queue)
        one.process_queue.is_dropped = True
        if one.pulling is not None:
            one.pulling.cancel()
        if self.offsets.get(queue) not in (NOT_FOUND, self._written.get(queue)):
            await self._try_to_write([queue])
        if self.owned.get(queue) is one:
            del self.owned[queue]
        self.offsets.remove(queue)
        self._written.pop(queue, None)
        self._suggested.pop(queue, None)
        return True

    async def stop(self) -> None:
        """Pull no more, and write the offsets. Messages that were pulled are not returned any more."""
        self.queues.clear()
        await super().stop()

    # pulls

    def _waits(self, one: Owned) -> bool:
        return self.is_paused or self.queues.is_paused(one.queue)

    def _complete(self, queue: MessageQueue, values: dict[str, object]) -> None:
        values.update(lite_fields(self.subscriptions[queue.topic]))

    def _consumed(self, queue: MessageQueue) -> int:
        return self.queues.position(queue) if queue in self.queues else NOT_FOUND

    def _nothing_before(self, one: Owned, next_offset: int) -> None:
        self.queues.pulled(one.queue, next_offset)

    def _moved(self, one: Owned, offset: int, next_offset: int) -> int | None:
        self.queues.moved(one.queue, offset, next_offset)
        return FAILED_MS if next_offset == offset else 0

    def pause(self, queues: Sequence[MessageQueue], is_paused: bool) -> None:
        """Pull no messages of these queues, or begin again."""
        self.check(queues)
        for queue in queues:
            if queue in self.queues:
                self.queues.pause(queue, is_paused)
                self.owned[queue].room.set()
            elif is_paused:
                self._paused_later.add(queue)
            else:
                self._paused_later.discard(queue)

    # offsets

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset that the queue has. Raises AssignmentError, QueueOffsetError, or that of the broker."""
        self.check([queue])
        least, most = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        if not least <= offset <= most:
            raise QueueOffsetError(f"{queue}: the offset {offset} is outside of the queue: {least} to {most}")
        self.begin_at(queue, offset)

    def begin_at(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset. Messages that were pulled before are not returned any more."""
        if self._is_stopped:
            raise ClosedError("the consumer is closed")
        self.check([queue])
        if queue not in self.queues:  # its first offset is not known, for example because its broker was away
            one = self._own(queue, offset)
        else:
            one = self.owned[queue]
            if one.pulling is not None:
                one.pulling.cancel()
        self.queues.seek(queue, offset)
        one.request.next_offset = offset
        one.pulling = asyncio.create_task(self._pull(one), name=f"pull {self._group} {queue}")

    async def min_offset(self, queue: MessageQueue) -> int:
        """Ask the broker for the offset of the first message of a queue."""
        return await self._ask_offset(queue, "GET_MIN_OFFSET", {"topic": queue.topic, "queueId": queue.queue_id})

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask the broker for the offset of the group in a queue; None: there is none."""
        values = {"consumerGroup": self._group, "topic": queue.topic, "queueId": queue.queue_id}
        try:
            return await self._ask_offset(queue, "QUERY_CONSUMER_OFFSET", values)
        except AnswerError as error:
            if error.code == Code.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Write the offsets of what poll() returned, or these. Raises the error of the first broker that fails."""
        if offsets is None:
            offsets = self.queues.positions()
        self.check(offsets)
        for queue, offset in offsets.items():
            most = self.queues.position(queue) if queue in self.queues else 0
            if not 0 <= offset <= most:
                raise QueueOffsetError(
                    f"{queue}: the offset {offset} cannot be committed: the next one of poll() is {most}"
                )
        for queue, offset in offsets.items():
            self.offsets.update(queue, offset, increase_only=False)
            self.queues.committed(queue, offset)
        errors = await self._write([queue for queue, offset in offsets.items() if self._written.get(queue) != offset])
        for error in errors.values():
            raise error

    def note_finished(self) -> None:
        """Have the offsets written, soon, of the messages that the caller has finished."""
        for queue, offset in self.queues.finished().items():
            self.offsets.update(queue, offset, increase_only=False)

    async def persist(self) -> None:
        """Write all offsets that were committed, again too: a broker that was killed has lost the newest ones."""
        await self._try_to_write([queue for queue in self.owned if self.offsets.get(queue) != NOT_FOUND])

    async def _try_to_write(self, queues: Sequence[MessageQueue]) -> None:
        for queue, error in (await self._write(queues)).items():
            self._troubles.failed(self._writes(queue), error)

    async def _write(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, RocketcError]:
        """Write the offsets of these queues, and wait until the brokers have them. Returns the errors by queue."""
        async with self._writing:
            results = await asyncio.gather(*[self._write_one(queue) for queue in queues])
        return {queue: error for queue, error in zip(queues, results, strict=True) if error is not None}

    async def _write_one(self, queue: MessageQueue) -> RocketcError | None:
        offset = self.offsets.get(queue)
        if offset == NOT_FOUND:
            return None  # another member has the queue meanwhile
        values: dict[str, object] = {
            "consumerGroup": self._group, "topic": queue.topic, "queueId": queue.queue_id, "commitOffset": offset,
        }  # fmt: skip

        async def write() -> None:
            await self.call_master(queue, UPDATE_CONSUMER_OFFSET, values, self._seconds)

        try:
            await self._first.write(queue, write, write)
        except (*UNREACHABLE, AnswerError) as error:
            return error
        self._troubles.works(self._writes(queue))
        if queue in self.owned:
            self._written[queue] = offset
        return None

    def _writes(self, queue: MessageQueue) -> str:
        return f"{self._group}: the write of an offset to {queue.broker_name}"


def _returning(stored: int | None) -> Callable[[MessageQueue], Awaitable[int]]:
    async def read(queue: MessageQueue) -> int:
        return NOT_FOUND if stored is None else stored

    return read
