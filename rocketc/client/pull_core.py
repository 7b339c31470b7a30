"""The consumer behind PullConsumer, on one event loop: topics or chosen queues, poll(), and what brokers ask.

Source: RocketMQ DefaultLitePullConsumerImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rocketc.client.access import Access
from rocketc.client.asked import AskedConsumer
from rocketc.client.counts import ConsumerCounts, consumer_counts
from rocketc.client.filter_checks import FilterChecks
from rocketc.client.group_subscriptions import GroupSubscriptions, note_change
from rocketc.client.hook_contexts import ConsumeContext
from rocketc.client.hooks import Hooks
from rocketc.client.instance import ClientInstance, Handler
from rocketc.client.owned_queue import Owned
from rocketc.client.polled_member import PolledMember
from rocketc.client.polled_queues import Taken
from rocketc.client.routes import MessageQueue
from rocketc.client.settings import ProducerSettings, PullSettings
from rocketc.client.starting_offsets import beginning
from rocketc.client.subscriptions import ConsumerData, SubscriptionData, heartbeat_members
from rocketc.client.tracing import Tracer
from rocketc.errors import AssignmentError, ClosedError
from rocketc.read._message import Message
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES
from rocketc.remoting.subscribing import ConsumeType

_INNER_GROUP = "CLIENT_INNER_PRODUCER"  # RocketMQ's client has it in its heartbeats


class Poll:
    """One call of poll(), for a caller that may be interrupted before it gets the messages: see give_back()."""

    def __init__(self) -> None:
        self.taken: list[Taken[Message]] = []
        self.is_given_back = False  # perhaps before poll() began: then it takes nothing


class PullCore:
    """One consumer whose messages poll() returns. Use it on one event loop: start(), then close().

    hooks  called with the messages that poll() returns; None: no hooks
    """

    def __init__(self, access: Access, group: str, settings: PullSettings, hooks: Hooks | None = None) -> None:
        self.group, self._settings, self._access = group, settings, access
        self._hooks = Hooks("consume") if hooks is None else hooks
        self._loop = asyncio.get_running_loop()
        self._subscriptions: dict[str, SubscriptionData] = {}
        handlers: dict[int, Handler] = {CODES["NOTIFY_CONSUMER_IDS_CHANGED"]: self._members_changed}
        self._instance = ClientInstance(
            access,
            settings,
            self._heartbeat,
            lambda: [("consumerGroup", group)],
            create_topic=ProducerSettings.create_topic_key if settings.enable_msg_trace else "",
            handlers=handlers,
            has_consumers=True,
        )
        self._in_group = GroupSubscriptions(
            self._instance,
            access.addresses,
            group,
            lambda: self._subscriptions.copy() if self.member.assigned is None else {},
        )
        self._filters = FilterChecks(self._instance, group, settings.mq_client_api_timeout / 1000)
        self.tracer: Tracer | None = None
        if settings.enable_msg_trace:
            self.tracer = Tracer(self._instance, settings.custom_trace_topic, access.clock)
            self._hooks = self._hooks.with_one(self.tracer.consume_hook)
        begin = beginning(settings.consume_timestamp, self._wall())
        self.member = PolledMember(
            self._instance, group, settings, self._subscriptions, begin, self, self._wall
        )  # fmt: skip
        self._asked = AskedConsumer(
            self.member, group, settings, {}, ";".join(access.addresses), self._wall(), is_orderly=False
        )
        handlers |= self._asked.handlers()
        self._waiting: set[asyncio.Future[None]] = set()  # calls of poll()
        self._next_commit = self._loop.time() + settings.auto_commit_interval_millis / 1000
        self._committing: asyncio.Task[Any] | None = None
        self._is_running = self._is_closed = False

    def _wall(self) -> int:
        return int(self._access.clock() * 1000)

    @property
    def is_closed(self) -> bool:
        return self._instance.is_closed

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    def counts(self) -> ConsumerCounts:
        """Return what this consumer has counted. Any thread may call it."""
        return consumer_counts(self.client_id, self.group, self.member.counts, list(self.member.owned.values()))

    def _heartbeat(self) -> Mapping[str, Any]:
        """A consumer of chosen queues is not a member: other consumers of the group do not leave it a share."""
        self._in_group.watch(self._loop.time())
        if self.member.assigned is not None:
            return heartbeat_members([], [_INNER_GROUP])
        subscriptions = tuple(self._subscriptions.values())
        kind = ConsumeType.CONSUME_ACTIVELY
        return heartbeat_members(
            [ConsumerData(self.group, subscriptions, kind, consume_from_where=self.member.where)], [_INNER_GROUP]
        )

    def _members_changed(self, request: Command) -> None:
        if request.fields.get("consumerGroup") == self.group:
            self.member.members_changed()

    # topics or queues

    async def start(self) -> None:
        """Begin. subscribe() and assign() may come before or after it."""
        self._instance.start()
        self._in_group.join()
        if self.tracer is not None:
            self.tracer.start()
        await self.member.start()
        self._is_running = True
        for subscription in list(self._subscriptions.values()):
            await self._filters.check(subscription)

    async def subscribe(self, subscription: SubscriptionData) -> None:
        """Add a topic, or replace its expression.

        Raises AssignmentError after assign(), AnswerError if a broker refuses the expression.
        """
        self.check_open()
        if self.member.assigned is not None:
            raise AssignmentError("this consumer has assigned queues: use another one to subscribe to topics")
        topic = subscription.topic
        if self._is_running:
            await self._filters.check_new(subscription, is_new=topic not in self._subscriptions)
            self._in_group.check(subscription)
        before = self._subscriptions.get(topic)
        note_change(self.group, before, subscription)
        self._subscriptions[topic] = subscription.renewed(self._wall())
        if self._is_running:
            try:
                await self.member.subscribed(topic)
            except BaseException:
                if before is None:
                    self._subscriptions.pop(topic, None)
                    self._instance.routes.unwatch(topic)
                else:
                    self._subscriptions[topic] = before
                self.member.members_changed()
                raise

    async def unsubscribe(self, topic: str) -> None:
        """Remove a topic: other members get its queues."""
        self.check_open()
        if self.member.assigned is None and self._subscriptions.pop(topic, None) is not None:
            await self.member.unsubscribed(topic)

    async def assign(self, queues: Sequence[MessageQueue], subscriptions: Mapping[str, SubscriptionData]) -> None:
        """Have these queues only.

        Raises AssignmentError after subscribe(), AnswerError if a broker refuses an expression, and the errors of
        PolledMember.assign().
        """
        self.check_open()
        if self._subscriptions and self.member.assigned is None:
            raise AssignmentError("this consumer has subscribed to topics: use another one to assign queues")
        for subscription in subscriptions.values():
            await self._filters.check_new(subscription, is_new=subscription.topic not in self._subscriptions)
        await self.member.assign(queues, subscriptions)

    # messages

    def submit(self, owned: Owned, messages: Sequence[Message], begins: bool) -> None:
        """Take messages that were pulled; they are in the process queue already."""
        self.wake()

    def wake(self) -> None:
        """Let the calls of poll() look again."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)

    async def poll(self, seconds: float | None, most: int, poll: Poll | None = None) -> list[Message]:
        """Return the next messages; an empty list if none comes in time. Raises AssignmentError without topics.

        seconds  None: for ever
        """
        self.check_open()
        if not self._subscriptions:
            raise AssignmentError("this consumer lacks topics or queues: call subscribe() or assign() before it polls")
        self.member.queues.begin()
        self._commit_finished()
        end = None if seconds is None else self._loop.time() + seconds
        while poll is None or not poll.is_given_back:
            taken = self._take(most)
            if taken:
                if poll is not None:
                    poll.taken = taken
                return [message for one in taken for message in one.messages]
            left = None if end is None else end - self._loop.time()
            if left is not None and left <= 0:
                return []
            turn = self._loop.create_future()
            self._waiting.add(turn)
            try:
                await asyncio.wait({turn}, timeout=left)
            finally:
                self._waiting.discard(turn)
            self.check_open()
        return []

    def _take(self, most: int) -> list[Taken[Message]]:
        taken = self.member.queues.take(most, self.member.now())
        for one in taken:
            owned = self.member.owned.get(one.queue)
            if owned is not None:
                self.member.count_call(owned, len(one.messages), None, is_ok=True)
                self.member.consumed(owned)
            if self._hooks.all:
                context = ConsumeContext(self.group, one.messages, self._wall())
                self._hooks.before(context)
                context.succeed(self._wall())
                self._hooks.after(context)
        return taken

    def give_back(self, poll: Poll) -> None:
        """Undo a poll() whose messages did not reach its caller."""
        taken, poll.taken, poll.is_given_back = poll.taken, [], True
        self.member.queues.give_back(taken, self.member.now())
        self.wake()

    # offsets

    def _commit_finished(self) -> None:
        now = self._loop.time()
        if not self._settings.auto_commit or now < self._next_commit:
            return
        self._next_commit = now + self._settings.auto_commit_interval_millis / 1000
        self.member.note_finished()
        if self._committing is None or self._committing.done():
            self._committing = self._instance.begin(self.member.persist())

    def pause(self, queues: Collection[MessageQueue], is_paused: bool) -> None:
        """Return no messages of these queues, or begin again."""
        self.check_open()
        self.member.pause(list(queues), is_paused)
        self.wake()

    def check_open(self) -> None:
        """Raise ClosedError after close()."""
        if self._is_closed:
            raise ClosedError("the consumer is closed")

    async def close(self, is_failed: bool = False) -> None:
        """Commit what poll() returned, if commits are automatic, and leave the group.

        is_failed  the messages of the last poll() are not finished
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.wake()
        if self._settings.auto_commit:
            if not is_failed:
                self.member.queues.begin()
            self.member.note_finished()
        try:
            if self._is_running:
                await self.member.stop()
        finally:  # also if Ctrl-C ends it
            self._asked.close()
            try:
                if self.tracer is not None:
                    await self.tracer.close()
            finally:
                await self._instance.close()
