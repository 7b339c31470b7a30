"""What a consumer says about itself, in words that clients and brokers share: its kind, tags, pulls.

The members of each enum are in Java's order: some clients send the numbers.

Source: RocketMQ ConsumeType, MessageModel, ConsumeFromWhere, FilterAPI.
"""

from __future__ import annotations

import enum

from rocketc.errors import SubscriptionError

ALL = "*"  # the expression for all messages
TAG, SQL92 = "TAG", "SQL92"  # types of expressions

_BLANKS = "".join(map(chr, range(0x21)))  # what Java's trim() removes


class ConsumeType(enum.Enum):
    """How a group gets its messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(enum.Enum):
    """Whether the consumers of a group share the messages, or each gets all of them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(enum.Enum):
    """Where a group without offsets begins. The second to the fourth name are deprecated."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class PullFlag(enum.IntEnum):
    """The bits of a pull's sysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression lists tags.

    >>> is_tag_type("TAG"), is_tag_type(None), is_tag_type("SQL92")
    (True, True, False)
    """
    return not expression_type or expression_type == TAG


def tags_of(topic: str, expression: str) -> list[str]:
    """Return the tags of an expression of the type TAG, each once, in their order.

    topic  for the message of an error
    Raises SubscriptionError for an expression that consists of `||` only.

    >>> tags_of("orders", "new || paid ||new")
    ['new', 'paid']
    >>> tags_of("orders", "||")
    Traceback (most recent call last):
    rocketc.errors.SubscriptionError: the expression '||' of topic orders names no tag
    """
    parts = expression.split("||")
    if not any(parts):
        raise SubscriptionError(f"the expression {expression[:40]!r} of topic {topic} names no tag")
    return list(dict.fromkeys(tag for part in parts if (tag := part.strip(_BLANKS))))
