"""What a consumer wants of a topic, the heartbeat that says so, and the check of the tags of pulled messages.

Source: RocketMQ SubscriptionData, FilterAPI, HeartbeatData, ConsumerData, PullAPIWrapper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from rocketc.errors import AnswerError, IllegalMessageError, SubscriptionError
from rocketc.format._encoding import java_hash
from rocketc.remoting.codes import Code
from rocketc.remoting.subscribing import (
    ALL,
    SQL92,
    TAG,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    is_tag_type,
    tags_of,
)
from rocketc.tables.fastjson import to_bytes
from rocketc.tables.topics import topic_name_error

FIRST_WITH_FILTERS = 232  # V4_1_0_SNAPSHOT


class Tagged(Protocol):
    """What a message must have: its tag, or None."""

    @property
    def tags(self) -> str | None: ...


M = TypeVar("M", bound=Tagged)


@dataclass(frozen=True)
class SubscriptionData:
    """The subscription of a topic. subscribe() makes it.

    sub_string       the expression, as the user wrote it; "*" is everything
    tags             the tags of the expression
    sub_version      ms since 1970; a later version replaces an earlier one in the brokers
    expression_type  "TAG", or another language of filters, such as "SQL92"
    """

    topic: str
    sub_string: str = ALL
    tags: tuple[str, ...] = ()
    sub_version: int = 0
    expression_type: str = TAG

    @cached_property
    def _tag_set(self) -> frozenset[str]:
        return frozenset(self.tags)

    @property
    def meaning(self) -> tuple[object, ...]:
        """What is equal for expressions that want the same messages: the order of tags does not count."""
        return (frozenset(self.tags),) if self.tags else (self.expression_type, self.sub_string)

    def wanted(self, messages: Sequence[M]) -> Sequence[M]:
        """Return the messages whose tag is in the expression: brokers compare only hashes of tags.

        Expressions of other types than TAG were evaluated by the broker, so all messages are wanted.
        """
        tags = self._tag_set
        return [message for message in messages if message.tags in tags] if tags else messages

    def renewed(self, sub_version: int) -> SubscriptionData:
        """Return this subscription with a later version: the consumer's queues changed, so brokers must hear of it."""
        return replace(self, sub_version=sub_version)

    def members(self) -> dict[str, Any]:
        """Return the members of the JSON object, in RocketMQ's order.

        >>> subscribe("orders", "new || paid").members()["codeSet"]
        [108960, 3433164]
        """
        return {
            "classFilterMode": False,
            "codeSet": list(dict.fromkeys(map(java_hash, self.tags))),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


def subscribe(
    topic: str, expression: str | None = ALL, expression_type: str | None = TAG, *, sub_version: int = 0
) -> SubscriptionData:
    """Return the subscription of a topic.

    expression       None, "" and "*" are everything; otherwise tags between `||`
    expression_type  of another type than TAG, the expression is only kept; brokers parse it
    Raises SubscriptionError for an expression of tags that consists of `||` only, and for an empty one of another type.

    >>> subscribe("orders", "new || paid").tags
    ('new', 'paid')
    >>> subscribe("orders", "amount > 5", "SQL92").tags
    ()
    """
    if expression_type is not None and not is_tag_type(expression_type):
        if not expression:
            raise SubscriptionError(f"the {expression_type} expression of topic {topic} is empty")
        return SubscriptionData(topic, expression, sub_version=sub_version, expression_type=expression_type)
    if not expression or expression == ALL:
        return SubscriptionData(topic, sub_version=sub_version)
    return SubscriptionData(topic, expression, tuple(tags_of(topic, expression)), sub_version)


def subscribe_all(
    topics: Iterable[str] | Mapping[str, str], sql: str | Mapping[str, str] | None = None
) -> list[SubscriptionData]:
    """Return the subscriptions of the arguments `topics` and `sql` of a consumer.

    topics  names, or a mapping from names to tags between `||`
    sql     an expression of SQL92 for all topics instead of tags, or a mapping from some of them to expressions
    Raises TypeError, ValueError for an expression without its topic, IllegalMessageError for the name of a topic, and
    SubscriptionError or SqlError for an expression. It refuses also what brokers read in part only.

    >>> [one.sub_string for one in subscribe_all({"orders": "new", "bills": "*"})]
    ['new', '*']
    >>> [one.sub_string for one in subscribe_all(["orders", "bills"], {"bills": "amount > 5"})]
    ['*', 'amount > 5']
    """
    if isinstance(topics, str):
        raise TypeError(f"topics: expected names, got the text {topics!r}; for one topic write [{topics!r}]")
    if not isinstance(topics, Iterable):
        raise TypeError(f"topics: expected names, got {type(topics).__name__}")
    wanted = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, ALL)
    expressions = dict(sql) if isinstance(sql, Mapping) else dict.fromkeys(wanted, sql)
    for topic in expressions.keys() - wanted.keys():
        raise ValueError(f"sql: the expression of {topic!r} needs this name in topics, too")
    return [subscription_of(topic, tags, expressions.get(topic)) for topic, tags in wanted.items()]


def subscription_of(topic: str, tags: str, sql: str | None = None) -> SubscriptionData:
    """Return the subscription of a topic, after a check of the arguments. Raises as subscribe_all().

    sql  an expression of SQL92 instead of tags

    >>> subscription_of("orders", "new || paid").tags
    ('new', 'paid')
    >>> subscription_of("orders", "*", "amount > 5").expression_type
    'SQL92'
    """
    for name, text in (("topic", topic), ("tags", tags), ("sql", "" if sql is None else sql)):
        if not isinstance(text, str):
            raise TypeError(f"{name}: expected str, got {type(text).__name__}")
    if error := topic_name_error(topic):
        raise IllegalMessageError(f"topic {topic!r}: {error}")
    if sql is None:
        return subscribe(topic, tags)
    subscription = subscribe(topic, sql, SQL92)
    if find_spec("lark") is not None:  # otherwise only brokers check it, those that have the topic
        from rocketc.read.sql import whole_sql  # late: most clients do not need it

        whole_sql(sql)
    return subscription


def check_filter_version(subscription: SubscriptionData, address: str, version: int | None) -> None:
    """Raise AnswerError if a broker is too old for the expression. Brokers know SQL92 since 4.1.0.

    version  of the broker, as its answer to the heartbeat says; None: it has not answered yet

    >>> check_filter_version(subscribe("orders", "a > 5", "SQL92"), "10.0.0.1:10911", 479)
    """
    if version is not None and version < FIRST_WITH_FILTERS and not is_tag_type(subscription.expression_type):
        raise AnswerError(
            address,
            f"this broker does not know the {subscription.expression_type} expression of topic {subscription.topic}: "
            "update it to 4.1.0 or later, or use tags",
            Code.REQUEST_CODE_NOT_SUPPORTED,
        )


@dataclass(frozen=True)
class ConsumerData:
    """One consumer group of a client, as a heartbeat describes it."""

    group: str
    subscriptions: tuple[SubscriptionData, ...] = ()
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    unit_mode: bool = False

    def members(self) -> dict[str, Any]:
        """Return the members of the JSON object, in RocketMQ's order.

        >>> ConsumerData("audit").members()["messageModel"]
        'CLUSTERING'
        """
        return {
            "consumeFromWhere": self.consume_from_where.name,
            "consumeType": self.consume_type.name,
            "groupName": self.group,
            "messageModel": self.message_model.name,
            "subscriptionDataSet": [one.members() for one in self.subscriptions],
            "unitMode": self.unit_mode,
        }


def heartbeat_members(consumers: Iterable[ConsumerData], producers: Iterable[str] = ()) -> dict[str, Any]:
    """Return the members of HeartbeatData, but for the client id: the groups of a client.

    producers  names of its producer groups

    >>> heartbeat_members([], ["shop"])["producerDataSet"]
    [{'groupName': 'shop'}]
    """
    return {
        "consumerDataSet": [one.members() for one in consumers],
        "heartbeatFingerprint": 0,  # only of heartbeats that may leave out subscriptions
        "producerDataSet": [{"groupName": name} for name in producers],
        "withoutSub": False,
    }


def encode_heartbeat(client_id: str, consumers: Iterable[ConsumerData], producers: Iterable[str] = ()) -> bytes:
    """Return the body of a heartbeat, with the members in RocketMQ's order.

    >>> encode_heartbeat("10.0.0.1@7", [])[:40]
    b'{"clientID":"10.0.0.1@7","consumerDataSe'
    """
    return to_bytes({"clientID": client_id, **heartbeat_members(consumers, producers)}, compact=True)


def encode_client_config(client_id: str, group: str, subscription: SubscriptionData) -> bytes:
    """Return the body of CHECK_CLIENT_CONFIG: asks a broker whether it accepts an expression, before the first pull.

    >>> encode_client_config("10.0.0.1@7", "audit", subscribe("orders", "a > 5", "SQL92"))[:40]
    b'{"clientId":"10.0.0.1@7","group":"audit"'
    """
    return to_bytes({"clientId": client_id, "group": group, "subscriptionData": subscription.members()}, compact=True)
