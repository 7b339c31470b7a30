"""Heartbeats: what a client tells a broker about itself, its producer groups and its consumer groups.

Source: RocketMQ HeartbeatData, ConsumerData, ProducerData.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketc.broker.bodies import enum_of, flag_of, list_of, number_of, object_of, parse_body, text_of
from rocketc.broker.subscriptions import Subscription, decode_subscription
from rocketc.errors import BadRequestError
from rocketc.remoting.subscribing import ConsumeFromWhere, ConsumeType, MessageModel

CLIENT_ID_MOST = 1024  # characters of a client id
GROUP_MOST = 255  # characters of a group
GROUPS_MOST = 1000  # groups of one heartbeat
SUBSCRIPTIONS_MOST = 5000  # subscriptions of one heartbeat


@dataclass(frozen=True)
class ConsumerData:
    """One consumer group of a heartbeat. As in RocketMQ, the name of an enum that is not known becomes None.

    subscriptions  by topic
    """

    group: str
    consume_type: ConsumeType | None = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel | None = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere | None = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: tuple[Subscription, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True)
class Heartbeat:
    """A heartbeat.

    producers    names of the producer groups
    fingerprint  of the subscriptions; 0: the client does not make one (V1)
    without_sub  the subscriptions are left out, because their fingerprint did not change (V2)
    """

    client_id: str
    consumers: tuple[ConsumerData, ...] = ()
    producers: tuple[str, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False

    @property
    def is_v2(self) -> bool:
        return self.fingerprint != 0

    @property
    def is_light(self) -> bool:
        """Whether it leaves out the subscriptions."""
        return self.is_v2 and self.without_sub


def decode_heartbeat(body: bytes, now_ms: int = 0) -> Heartbeat:
    """Return the heartbeat of a body.

    now_ms  the version of a subscription without one, as in RocketMQ: it is newer than what the broker has
    Raises BadRequestError for what is not one, or is over the limits above.

    >>> decode_heartbeat(b'{"clientID":"c","producerDataSet":[{"groupName":"shop"}]}').producers
    ('shop',)
    """
    data = object_of(parse_body(body), "the heartbeat")
    client_id = text_of(data, "clientID", CLIENT_ID_MOST)
    consumers = list_of(data, "consumerDataSet", GROUPS_MOST)
    producers = list_of(data, "producerDataSet", GROUPS_MOST)
    if not client_id and (consumers or producers):
        raise BadRequestError("the heartbeat lacks the member clientID")
    beat = Heartbeat(
        client_id,
        tuple(_consumer(object_of(one, "a consumer group"), now_ms) for one in consumers),
        tuple(_group(object_of(one, "a producer group")) for one in producers),
        number_of(data, "heartbeatFingerprint"),
        flag_of(data, "withoutSub"),
    )
    count = sum(len(consumer.subscriptions) for consumer in beat.consumers)
    if count > SUBSCRIPTIONS_MOST:
        raise BadRequestError(f"the heartbeat has {count} subscriptions; {SUBSCRIPTIONS_MOST} at most")
    return beat


def _consumer(data: dict[str, Any], now_ms: int) -> ConsumerData:
    subscriptions = list_of(data, "subscriptionDataSet", SUBSCRIPTIONS_MOST)
    return ConsumerData(
        _group(data),
        enum_of(data, "consumeType", ConsumeType),
        enum_of(data, "messageModel", MessageModel),
        enum_of(data, "consumeFromWhere", ConsumeFromWhere),
        tuple(decode_subscription(one, now_ms) for one in subscriptions),
        flag_of(data, "unitMode"),
    )


def _group(data: dict[str, Any]) -> str:
    """The name of a group; names that are too long are refused later, as RocketMQ does."""
    if data.get("groupName") is None:
        raise BadRequestError("a group lacks the member groupName")
    return text_of(data, "groupName", 1 << 16)
