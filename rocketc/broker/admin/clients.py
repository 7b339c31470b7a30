"""The clients that are connected to a broker, and what groups subscribe to.

Source: RocketMQ AdminBrokerProcessor; shapes, codes and remarks are those of 5.3.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from typing import Any

from rocketc.broker.admin import forms
from rocketc.broker.consumers import ClientChannel, ConsumerManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.producers import ProducerManager
from rocketc.remoting.addresses import join_address
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call

CONSUMERS, PRODUCERS, ALL_PRODUCERS = 203, 204, 328
GROUPS_OF_TOPIC, TOPICS_OF_GROUP, SUBSCRIPTION = 300, 343, 345


class Clients:
    """Answers requests about connections and subscriptions.

    address  of the broker, as clients know it
    """

    codes = (CONSUMERS, PRODUCERS, ALL_PRODUCERS, GROUPS_OF_TOPIC, TOPICS_OF_GROUP, SUBSCRIPTION)

    def __init__(
        self, consumers: ConsumerManager, producers: ProducerManager, offsets: ConsumerOffsetManager, address: str
    ) -> None:
        self._consumers, self._producers, self._offsets, self._address = consumers, producers, offsets, address
        self._by_code: dict[int, Callable[[Call], Answer]] = {
            CONSUMERS: self._of_consumers,
            PRODUCERS: self._of_producers,
            ALL_PRODUCERS: self._all_producers,
            GROUPS_OF_TOPIC: self._groups_of_topic,
            TOPICS_OF_GROUP: self._topics_of_group,
            SUBSCRIPTION: self._subscription,
        }

    def process(self, call: Call) -> Answer:
        return self._by_code[call.command.code](call)

    def _of_consumers(self, call: Call) -> Answer:
        name = call.values["consumerGroup"]
        group = self._consumers.group(name)
        if group is None:
            return Answer(Code.CONSUMER_NOT_ONLINE, remark=f"the consumer group[{name}] not online")
        found: dict[str, Any] = {
            "connectionSet": [_connection(*one) for one in group.channels.items()],
            "consumeFromWhere": _name(group.consume_from_where),
            "consumeType": _name(group.consume_type),
            "messageModel": _name(group.message_model),
            "subscriptionTable": {topic: forms.subscription_object(one) for topic, one in group.subscriptions.items()},
        }
        return Answer(body=forms.body({name: value for name, value in found.items() if value is not None}))

    def _of_producers(self, call: Call) -> Answer:
        name = call.values["producerGroup"]
        channels = self._producers.group(name)
        if not channels:
            return Answer(Code.SYSTEM_ERROR, remark=f"the producer group[{name}] not exist")
        return Answer(body=forms.body({"connectionSet": [_connection(*one) for one in channels.items()]}))

    def _all_producers(self, call: Call) -> Answer:
        found = {
            name: [_producer(*one) for one in self._producers.group(name).items()] for name in self._producers.groups()
        }
        return Answer(body=forms.body({"data": found}))

    def _groups_of_topic(self, call: Call) -> Answer:
        topic = call.values["topic"]
        names = [*self._consumers.groups_of_topic(topic), *self._offsets.groups_of(topic)]
        return Answer(body=forms.body({"groupList": list(dict.fromkeys(names))}))

    def _topics_of_group(self, call: Call) -> Answer:
        topics = self._offsets.topics_of(call.values["group"])
        return Answer(body=forms.body({"brokerAddr": self._address, "topicList": topics}))

    def _subscription(self, call: Call) -> Answer:
        group, topic = call.values["group"], call.values["topic"]
        found = self._consumers.find_subscription(group, topic, compensated=True)
        told = {} if found is None else {"subscriptionData": forms.subscription_object(found)}
        return Answer(body=forms.body({"group": group, **told, "topic": topic}))


def _connection(connection: Hashable, client: ClientChannel) -> dict[str, Any]:
    return {
        "clientAddr": peer_address(connection),
        "clientId": client.client_id,
        "language": client.language,
        "version": client.version,
    }


def _producer(connection: Hashable, client: ClientChannel) -> dict[str, Any]:
    return {
        "clientId": client.client_id,
        "language": client.language,
        "lastUpdateTimestamp": client.last_update,
        "remoteIP": f"/{peer_address(connection)}",
        "version": client.version,
    }


def peer_address(connection: object) -> str:
    """Return the address of a peer as RocketMQ shows it.

    >>> class Connection:
    ...     peer = ("127.0.0.1", 33286)
    >>> peer_address(Connection())
    '127.0.0.1:33286'
    """
    peer = getattr(connection, "peer", connection)
    return join_address(str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else str(peer)


def _name(value: enum.Enum | None) -> str | None:
    return None if value is None else value.name
