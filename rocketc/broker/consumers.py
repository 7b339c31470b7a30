"""The registry of consumers: the groups, the clients of each group, and its subscriptions.

Source: RocketMQ ConsumerManager, ConsumerGroupInfo, DefaultConsumerIdsChangeListener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketc.broker.heartbeat import ConsumerData
from rocketc.broker.subscriptions import Subscription
from rocketc.remoting.subscribing import ConsumeFromWhere, ConsumeType, MessageModel

_log = logging.getLogger("rocketc.broker")

IDLE_MS = 120_000  # channelExpiredTimeout
COMPENSATED_MS = 600_000  # subscriptionExpiredTimeout
COMPENSATED_MOST = 100_000  # groups
Notify = Callable[[Hashable, str], object]


@dataclass(slots=True)
class ClientChannel:
    """A client on one connection.

    language, version  as its requests have them
    last_update        ms, of the latest heartbeat
    """

    client_id: str
    language: str
    version: int
    last_update: int


@dataclass
class ConsumerGroup:
    """A group with consumers.

    consume_type, message_model, consume_from_where  of the latest heartbeat
    channels       by connection
    subscriptions  by topic
    fingerprint    of the subscriptions, of the latest heartbeat that has one; 0: there was none
    """

    name: str
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    consume_from_where: ConsumeFromWhere | None = None
    channels: dict[Hashable, ClientChannel] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    fingerprint: int = 0

    @property
    def client_ids(self) -> list[str]:
        """The client id of each channel; a client with two connections is in it twice, as in RocketMQ."""
        return [channel.client_id for channel in self.channels.values()]

    def channel(self, client_id: str) -> tuple[Hashable, ClientChannel] | None:
        """Return the connection and the channel of a client."""
        for connection, channel in self.channels.items():
            if channel.client_id == client_id:
                return connection, channel
        return None

    def _subscribe(self, wanted: tuple[Subscription, ...]) -> bool:
        """Take the subscriptions of a heartbeat. Return whether the set of topics changed.

        A subscription replaces the one of the same topic only if its version is greater.
        """
        before = self.subscriptions
        self.subscriptions = {}
        for new in wanted:
            old = self.subscriptions.get(new.topic, before.get(new.topic))
            self.subscriptions[new.topic] = new if old is None or new.sub_version > old.sub_version else old
        return self.subscriptions.keys() != before.keys()


class Registered(NamedTuple):
    """What a heartbeat changed.

    ids_changed  the connection is new in the group
    sub_changed  the set of subscribed topics is another one
    wants_full   the client should send its subscriptions (IS_SUB_CHANGE of a V2 heartbeat)
    """

    ids_changed: bool
    sub_changed: bool
    wants_full: bool


class _Compensated(NamedTuple):
    subscription: Subscription
    last_update: int
    is_old: bool = False


class ConsumerManager:
    """The consumer groups of a broker. Connections are only keys. All times are ms of the caller's clock.

    notify         called with a connection and a group: send it NOTIFY_CONSUMER_IDS_CHANGED
    may_notify     whether the consumers of a group are notified at all (notifyConsumerIdsChangedEnable)
    is_real_time   realTimeNotifyConsumerChange; False: notices wait for send_notices(), which is due every 15 s
    ended          called with each group that loses its last consumer
    idle_ms        a channel without a heartbeat for longer is removed by expire(), which is due every 10 s
    Its `generation` is greater after each change of a group's message model or subscriptions, and after its end.

    >>> consumers = ConsumerManager(lambda connection, group: print(connection, group))
    >>> consumers.register("connection", ClientChannel("c", "JAVA", 479, 0), ConsumerData("audit")).ids_changed
    connection audit
    True
    >>> consumers.expire(200_000), consumers.group("audit")
    (['connection'], None)
    """

    def __init__(
        self,
        notify: Notify,
        *,
        may_notify: Callable[[str], bool] = lambda group: True,
        is_real_time: bool = True,
        ended: Callable[[str], object] = lambda group: None,
        idle_ms: int = IDLE_MS,
    ) -> None:
        self._notify, self._ended = notify, ended
        self._may_notify = may_notify
        self._is_real_time = is_real_time
        self._idle_ms = idle_ms
        self.generation = 0
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Hashable, list[str]] = {}  # by connection; mostly one, in a list for its size
        self._waiting: dict[str, None] = {}  # groups whose notices wait for send_notices()
        self._compensated: dict[str, ConsumerGroup] = {}
        self._compensated_subs: dict[str, dict[str, _Compensated]] = {}

    # look-ups

    def group(self, name: str, *, compensated: bool = False) -> ConsumerGroup | None:
        """Return a group that has consumers.

        compensated  also a group that is known only from its pulls, see compensate()
        """
        found = self._groups.get(name)
        return self._compensated.get(name) if found is None and compensated else found

    def client_ids(self, name: str) -> frozenset[str]:
        """Return the ids of the clients of a group that have a connection."""
        found = self._groups.get(name)
        return frozenset() if found is None else frozenset(found.client_ids)

    def groups(self) -> list[ConsumerGroup]:
        """Return all groups with consumers."""
        return list(self._groups.values())

    def groups_of(self, connection: Hashable) -> list[str]:
        """Return the names of the groups of a connection."""
        return list(self._groups_of.get(connection, ()))

    def find_subscription(self, group: str, topic: str, *, compensated: bool = False) -> Subscription | None:
        """Return the subscription of a group to a topic."""
        found = self._groups.get(group)
        subscription = None if found is None else found.subscriptions.get(topic)
        if subscription is None and compensated:
            known = self._compensated_subs.get(group, {}).get(topic)
            return None if known is None else known.subscription
        return subscription

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the names of the groups that subscribe to a topic."""
        return [group.name for group in self._groups.values() if topic in group.subscriptions]

    # changes

    def register(
        self,
        connection: Hashable,
        client: ClientChannel,
        data: ConsumerData,
        *,
        fingerprint: int = 0,
        is_light: bool = False,
    ) -> Registered:
        """Register one group of a heartbeat.

        fingerprint  of the heartbeat; 0: V1, which keeps the fingerprint of the group
        is_light     the heartbeat leaves out the subscriptions: the group keeps its own
        A light heartbeat of an unknown group, as after a restart of the broker, asks for a full one. RocketMQ does not,
        and pulls of the group then fail until its client changes a subscription.
        """
        name = data.group
        group = self._groups.get(name)
        is_new = group is None
        if group is None:
            group = ConsumerGroup(name, data.consume_type, data.message_model)
            self._groups[name] = group
        before = group.message_model, group.subscriptions
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        wants_full = fingerprint != 0 and group.fingerprint not in (0, fingerprint)
        wants_full |= is_light and is_new
        group.fingerprint = fingerprint or group.fingerprint
        ids_changed = connection not in group.channels
        group.channels[connection] = client
        names = self._groups_of.setdefault(connection, [])
        if name not in names:
            names.append(name)
        sub_changed = not is_light and group._subscribe(data.subscriptions)
        if is_new or before != (group.message_model, group.subscriptions):
            self.generation += 1
        if ids_changed or sub_changed:
            self._changed(group)
        return Registered(ids_changed, sub_changed, wants_full)

    def unregister(self, connection: Hashable, group: str) -> bool:
        """Remove a connection from a group. Return whether it was in it."""
        found = self._groups.get(group)
        if found is None or connection not in found.channels:
            return False
        del found.channels[connection]
        names = self._groups_of[connection]
        names.remove(group)
        if not names:
            del self._groups_of[connection]
        if found.channels:
            self._changed(found)
        else:
            del self._groups[group]
            self.generation += 1
            self._waiting.pop(group, None)
            self._ended(group)
        return True

    def connection_lost(self, connection: Hashable) -> list[str]:
        """Remove a connection from all its groups. Return their names."""
        names = self.groups_of(connection)
        for name in names:
            self.unregister(connection, name)
        return names

    def expire(self, now: int) -> list[Hashable]:
        """Remove channels without a heartbeat for too long. Return their connections; the caller closes them."""
        idle: dict[Hashable, None] = {}
        for group in list(self._groups.values()):
            for connection, channel in list(group.channels.items()):
                if now - channel.last_update > self._idle_ms:
                    _log.info("%s: no heartbeat of client %s for too long", group.name, channel.client_id)
                    self.unregister(connection, group.name)
                    idle[connection] = None
        is_due = False
        for name, topics in list(self._compensated_subs.items()):
            for topic, known in list(topics.items()):
                if now - known.last_update > COMPENSATED_MS:
                    del topics[topic]
                elif now - known.last_update > COMPENSATED_MS // 2 and not known.is_old:
                    topics[topic] = known._replace(is_old=True)
                    is_due = True
            if not topics:
                del self._compensated_subs[name]
                self._compensated.pop(name, None)
        if is_due:  # pulls that are checked already are checked again, and note themselves again
            self.generation += 1
        return list(idle)

    def compensate(
        self, group: str, kind: ConsumeType, model: MessageModel, subscription: Subscription, now: int
    ) -> None:
        """Note a group and a subscription that a pull names, for groups without heartbeats. Only look-ups with
        compensated=True find it, for 10 minutes. There are at most COMPENSATED_MOST of them.

        Source: RocketMQ ConsumerManager.compensateBasicConsumerInfo, compensateSubscribeData.
        """
        if group not in self._compensated and len(self._compensated) >= COMPENSATED_MOST:
            return
        self._compensated[group] = ConsumerGroup(group, kind, model)
        self._compensated_subs.setdefault(group, {})[subscription.topic] = _Compensated(subscription, now)

    # notices

    def _changed(self, group: ConsumerGroup) -> None:
        if group.message_model is not MessageModel.CLUSTERING or not self._may_notify(group.name):
            return
        if self._is_real_time:
            self._send(group)
        else:
            self._waiting[group.name] = None

    def _send(self, group: ConsumerGroup) -> None:
        for connection in list(group.channels):
            self._notify(connection, group.name)

    def send_notices(self) -> None:
        """Send the notices that wait; due every 15 s if they are not sent at once."""
        waiting, self._waiting = self._waiting, {}
        for name in waiting:
            if (group := self._groups.get(name)) is not None:
                self._send(group)
