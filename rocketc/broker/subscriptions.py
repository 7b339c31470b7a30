"""What a consumer group wants of a topic: all messages, or those with some tags.

Source: RocketMQ SubscriptionData, FilterAPI, ExpressionMessageFilter.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from rocketc._layout import RETRY_PREFIX
from rocketc.broker.bodies import LONGS, flag_of, number_of, numbers_of, object_of, text_of, texts_of
from rocketc.errors import BadRequestError, SubscriptionError
from rocketc.format._encoding import java_hash
from rocketc.remoting.subscribing import ALL, TAG, is_tag_type, tags_of
from rocketc.store._results import TagFilter
from rocketc.tables.groups import GROUP_MOST

TOPIC_MOST = len(RETRY_PREFIX) + GROUP_MOST  # characters of a topic: of the retries of a group, too
EXPRESSION_MOST = 1 << 16  # characters of one expression
TAGS_MOST = 4096  # tags of one subscription


@dataclass(frozen=True)
class Subscription:
    """One subscription.

    topic
    sub_string         the expression, as the consumer wrote it; "*" is everything
    tags_set           the tags
    code_set           the hash of each tag; the broker compares only these
    sub_version        of the expression; a later one is greater
    expression_type    "TAG", or another language of filters
    class_filter_mode  a filter server filters, and the broker passes everything on
    """

    topic: str
    sub_string: str = ALL
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    @property
    def takes_all(self) -> bool:
        """Whether the hashes of tags select nothing, so that they are not compared."""
        return self.class_filter_mode or self.sub_string == ALL or not is_tag_type(self.expression_type)

    @functools.cached_property
    def tag_filter(self) -> TagFilter | None:
        """The hashes of the tags, to read a queue with; None: all messages."""
        return None if self.takes_all else TagFilter((), self.code_set)

    def matches(self, tags_code: int) -> bool:
        """Whether a queue unit with this tags code may be wanted.

        tags_code  64 bits of the unit; the lower 32 are the hash of the message's tags
        Expressions of other types than TAG match always: the caller evaluates them on the message's properties.

        >>> parse_subscription("orders", "new || paid").matches(java_hash("paid"))
        True
        >>> parse_subscription("orders", "new || paid").matches(java_hash("sent"))
        False
        """
        return self.takes_all or (tags_code + (1 << 31) & 0xFFFFFFFF) - (1 << 31) in self.code_set


def parse_subscription(
    topic: str, text: str | None, expression_type: str | None = TAG, *, sub_version: int = 0
) -> Subscription:
    """Return the subscription of an expression.

    text             None, "" and "*" are everything; otherwise tags between `||`
    expression_type  of another language than TAG, the text is only kept
    Raises SubscriptionError for an expression of tags that consists of `||` only, and for an empty one of another type.
    It is raised, too, if the text or the number of tags is over the limits of this module.

    >>> sorted(parse_subscription("orders", "new||paid").tags_set)
    ['new', 'paid']
    >>> parse_subscription("orders", "||")
    Traceback (most recent call last):
    rocketc.errors.SubscriptionError: the expression '||' of topic orders names no tag
    """
    if text is not None and len(text) > EXPRESSION_MOST:
        raise SubscriptionError(
            f"the expression of topic {topic} has {len(text)} characters; {EXPRESSION_MOST} at most"
        )
    if expression_type is not None and not is_tag_type(expression_type):
        if not text:
            raise SubscriptionError(f"the {expression_type} expression of topic {topic} is empty")
        return Subscription(topic, text, sub_version=sub_version, expression_type=expression_type)
    if not text or text == ALL:
        return (
            _everything(topic, sub_version)
            if len(topic) <= TOPIC_MOST
            else Subscription(topic, sub_version=sub_version)
        )
    tags = frozenset(tags_of(topic, text))
    if len(tags) > TAGS_MOST:
        raise SubscriptionError(f"the expression of topic {topic} names {len(tags)} tags; {TAGS_MOST} at most")
    return Subscription(topic, text, tags, frozenset(map(java_hash, tags)), sub_version)


@functools.lru_cache(1024)
def _everything(topic: str, sub_version: int) -> Subscription:
    """Return the subscription of all messages; each pull may bring one."""
    return Subscription(topic, sub_version=sub_version)


def decode_subscription(data: object, now_ms: int = 0) -> Subscription:
    """Return the subscription of an object in a heartbeat.

    now_ms  the version of a subscription without one
    Unknown members are ignored; missing ones, other than the topic, have defaults. The code set is the peer's own, as
    in RocketMQ. Raises BadRequestError for wrong types, and for sizes over the limits of this module.

    >>> decode_subscription({"topic": "orders", "subString": "new", "codeSet": [108960], "subVersion": "7"}).sub_version
    7
    """
    data = object_of(data, "a subscription")
    topic = text_of(data, "topic", TOPIC_MOST)
    if not topic:
        raise BadRequestError("a subscription lacks the member topic")
    return Subscription(
        topic,
        text_of(data, "subString", EXPRESSION_MOST) or ALL,
        frozenset(texts_of(data, "tagsSet", EXPRESSION_MOST, TAGS_MOST)),
        frozenset(numbers_of(data, "codeSet", TAGS_MOST)),
        number_of(data, "subVersion", LONGS, missing=now_ms),
        text_of(data, "expressionType", TOPIC_MOST) or TAG,
        flag_of(data, "classFilterMode"),
    )
