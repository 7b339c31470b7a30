"""The consumer behind PushConsumer, on one event loop: subscriptions, listeners, and what brokers ask of a consumer.

Source: RocketMQ DefaultMQPushConsumerImpl, ClientRemotingProcessor.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rocketc._layout import PROPERTY_UNIQUE_KEY
from rocketc.client.access import Access
from rocketc.client.asked import AskedConsumer
from rocketc.client.concurrent_service import Listener, ServiceParts
from rocketc.client.counts import ConsumerCounts, consumer_counts
from rocketc.client.filter_checks import FilterChecks
from rocketc.client.group_member import GroupMember
from rocketc.client.group_subscriptions import GroupSubscriptions
from rocketc.client.hook_contexts import hooked_listener
from rocketc.client.hooks import Hooks
from rocketc.client.instance import ClientInstance, Handler
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.outgoing import Outgoing
from rocketc.client.owned_queue import Owned
from rocketc.client.send_backs import RetrySend, retry_topic
from rocketc.client.sender import Sender
from rocketc.client.settings import ConsumerSettings, ProducerSettings
from rocketc.client.starting_offsets import beginning
from rocketc.client.strategies import strategy_of
from rocketc.client.subscriptions import ConsumerData, SubscriptionData, heartbeat_members
from rocketc.client.tracing import Tracer
from rocketc.errors import ClosedError
from rocketc.read._message import Message
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES
from rocketc.remoting.subscribing import ConsumeFromWhere, MessageModel

_log = logging.getLogger("rocketc.client")

_INNER_GROUP = "CLIENT_INNER_PRODUCER"


class Service(Protocol):
    """Does something with the messages of a consumer."""

    def submit(self, owned: Owned, messages: Sequence[Message], begins: bool) -> None: ...

    async def wait_idle(self, seconds: float, but: int = 0) -> bool: ...

    def is_called_by_listener(self) -> bool: ...

    async def stop(self) -> None: ...


Kind = Callable[[ServiceParts], Service]


class PushCore:
    """One member of a group that gives its messages to listeners. Use it on one event loop: start(), then close().

    kind   makes the service that gives messages to the listeners
    hooks  called before and after each call of a listener; None: no hooks
    """

    def __init__(
        self, access: Access, group: str, settings: ConsumerSettings, kind: Kind, hooks: Hooks | None = None
    ) -> None:
        self._hooks, self._is_orderly = Hooks("consume") if hooks is None else hooks, kind is OrderlyService
        self.group, self._settings, self._access = group, settings, access
        self._listeners: dict[str, Listener] = {}  # topics that were unsubscribed included: their retries still come
        self._manual: set[str] = set()  # topics whose listeners commit manually
        self._model = MessageModel[settings.message_model]
        is_broadcasting = self._model is MessageModel.BROADCASTING
        retries = retry_topic(group)
        self._subscriptions: dict[str, SubscriptionData] = (
            {} if is_broadcasting else {retries: SubscriptionData(retries, sub_version=self._wall())}
        )
        self._where = ConsumeFromWhere[settings.consume_from_where]
        handlers: dict[int, Handler] = {CODES["NOTIFY_CONSUMER_IDS_CHANGED"]: self._members_changed}
        self._instance = ClientInstance(
            access,
            settings,
            self._heartbeat,
            lambda: [("consumerGroup", group)],
            create_topic=ProducerSettings.create_topic_key if settings.enable_msg_trace else "",
            handlers=handlers,
            has_consumers=True,
            has_stable_id=is_broadcasting,
        )
        self._in_group = GroupSubscriptions(
            self._instance,
            access.addresses,
            group,
            lambda: {topic: one for topic, one in self._subscriptions.items() if topic != retries},
        )
        self._filters = FilterChecks(self._instance, group, settings.mq_client_api_timeout / 1000)
        self.tracer: Tracer | None = None
        if settings.enable_msg_trace:
            self.tracer = Tracer(self._instance, settings.custom_trace_topic, access.clock, settings.consume_timeout)
            self._hooks = self._hooks.with_one(self.tracer.consume_hook)
        timestamp = beginning(settings.consume_timestamp, self._wall())
        self._member = GroupMember(
            self._instance,
            group,
            settings,
            self._subscriptions,
            self._where,
            timestamp,
            strategy_of(settings.allocate_message_queue_strategy),
            self,
            self._wall,
            is_orderly=kind is OrderlyService,
        )
        self._sender = Sender(self._instance, _INNER_GROUP, ProducerSettings(), access.clock)
        self.service = kind(
            ServiceParts(
                self._member, group, settings, self._listeners, self._retry, self._hooks, self._wall, self._manual
            )
        )
        self.submit = self.service.submit
        self._asked = AskedConsumer(
            self._member, group, settings, self._listeners, ";".join(access.addresses), self._wall(),
            is_orderly=kind is OrderlyService, manual=self._manual,
        )  # fmt: skip
        handlers |= self._asked.handlers()
        self._is_running = False

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
        return consumer_counts(self.client_id, self.group, self._member.counts, list(self._member.owned.values()))

    def _heartbeat(self) -> Mapping[str, Any]:
        self._in_group.watch(self._member.now() / 1000)
        subscriptions = tuple(self._subscriptions.values())
        return heartbeat_members(
            [ConsumerData(self.group, subscriptions, message_model=self._model, consume_from_where=self._where)],
            [_INNER_GROUP],
        )

    async def persist(self) -> None:
        """Write the offsets of all queues to their brokers."""
        await self._member.persist()

    def _members_changed(self, request: Command) -> None:
        if request.fields.get("consumerGroup") == self.group:
            self._member.members_changed()

    async def _retry(self, message: RetrySend) -> None:
        """Send a message to the retry topic of the group."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in message.properties.items())
        key = message.properties.get(PROPERTY_UNIQUE_KEY, "")
        outgoing = Outgoing(
            message.topic, message.body, text, key, message.flag,
            reconsume_times=message.reconsume_times, max_reconsume_times=message.max_reconsume_times,
        )  # fmt: skip
        await self._sender.send(outgoing, self._sender.deadline())

    async def start(self) -> None:
        """Take a share of the queues, and begin to pull."""
        self._instance.start()
        self._in_group.join()
        if self.tracer is not None:
            self.tracer.start()
        await self._member.start()
        self._is_running = True
        for subscription in list(self._subscriptions.values()):
            await self._filters.check(subscription)

    async def subscribe(self, subscription: SubscriptionData, listener: Listener, *, auto_commit: bool = True) -> None:
        """Add a topic, or replace its listener and expression. Raises AnswerError if brokers refuse the expression.

        auto_commit  False: the listener of an orderly consumer gets an OrderlyContext, too
        """
        self._instance.check_open()
        topic = subscription.topic
        if self._is_running:
            await self._filters.check_new(subscription, is_new=topic not in self._subscriptions)
            self._in_group.check(subscription)
        before = self._listeners.get(topic), self._subscriptions.get(topic), topic in self._manual
        call = getattr(listener, "__call__", None)  # noqa: B004
        called = call if inspect.iscoroutinefunction(call) else listener  # an object may have one, too
        self._listeners[topic] = hooked_listener(
            called, self._hooks, self.group, self._wall, is_orderly=self._is_orderly
        )
        self._subscriptions[topic] = subscription.renewed(self._wall())
        self._set_manual(topic, not auto_commit)
        if self._is_running:
            try:
                await self._member.subscribed(topic)
            except BaseException:
                self._restore(topic, *before)
                raise

    def _set_manual(self, topic: str, is_manual: bool) -> None:
        if is_manual:
            self._manual.add(topic)
        else:
            self._manual.discard(topic)

    def _restore(
        self, topic: str, listener: Listener | None, subscription: SubscriptionData | None, is_manual: bool
    ) -> None:
        """Set the listener and the subscription of a topic as they were; the next rebalance follows."""
        self._set_manual(topic, is_manual)
        if listener is None:
            self._listeners.pop(topic, None)
        else:
            self._listeners[topic] = listener
        if subscription is None:
            self._subscriptions.pop(topic, None)
            self._instance.routes.unwatch(topic)
        else:
            self._subscriptions[topic] = subscription
        self._member.members_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Remove a topic: other members get its queues. Messages that failed before still come to its listener."""
        self._instance.check_open()
        self._subscriptions.pop(topic, None)
        await self._member.unsubscribed(topic)

    def check_open(self) -> None:
        """Raise ClosedError after close()."""
        if not self._is_running:
            raise ClosedError("the consumer is closed")

    def suspend(self) -> None:
        """Pull nothing until resume()."""
        self._member.is_paused = True

    def resume(self) -> None:
        """End suspend()."""
        self._member.is_paused = False
        self._member.members_changed()

    def is_called_by_listener(self) -> bool:
        """Whether the calling thread is in a listener of this consumer."""
        return self.service.is_called_by_listener()

    async def close(self, but: int = 0) -> None:
        """Pull no more, wait for the listeners, write the offsets, and leave the group.

        but  calls of listeners that are not waited for: of the one that waits for this
        """
        if not self._is_running:
            await self.service.stop()
            await self._instance.close()
            return
        self._is_running = False
        self._member.stop_pulling()
        try:
            await self.service.wait_idle(self._settings.await_termination_millis_when_shutdown / 1000, but)
        finally:  # also if Ctrl-C ends the wait
            try:
                await self._member.stop()
            finally:
                try:
                    self._asked.close()
                    await self.service.stop()
                    if self.tracer is not None:
                        await self.tracer.close()
                finally:
                    await self._instance.close()
