"""How a failed message returns to the broker: for a later delivery, or for the dead letters of its group.

Source: RocketMQ DefaultMQPushConsumerImpl.sendMessageBack, ConsumeMessageOrderlyService.sendMessageBack.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from rocketc._layout import (
    DLQ_PREFIX,
    PROPERTY_DELAY,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_UNIQUE_KEY,
    RETRY_PREFIX,
)

SEND_BACK_TIMEOUT_MS = 5_000
DEAD_LETTER, BROKER_DECIDES = -1, 0  # delay levels
EXPIRED_LEVEL = 3  # of a message whose listener takes longer than consumeTimeout
DEFAULT_TIMES = 16  # max_reconsume_times of a concurrent consumer that has -1
FOR_EVER = (1 << 31) - 1  # the same of an orderly consumer

_FIRST_LEVEL = 3
_TRANSACTION, _TIMES, _MOST_TIMES = "TRAN_MSG", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"


class Failed(Protocol):
    """What a message must have: attributes of rocketc.Message."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def phy_offset(self) -> int: ...

    @property
    def topic(self) -> str: ...

    @property
    def body(self) -> bytes: ...

    @property
    def flag(self) -> int: ...

    @property
    def keys(self) -> str | None: ...

    @property
    def properties(self) -> dict[str, str]: ...

    @property
    def msg_id(self) -> str: ...

    @property
    def reconsume_times(self) -> int: ...


def retry_topic(group: str) -> str:
    """Return the topic with the failed messages of a group.

    >>> retry_topic("audit")
    '%RETRY%audit'
    """
    return RETRY_PREFIX + group


def shown_topic(group: str, message: Failed) -> str:
    """Return the topic that a listener sees: the first one of a message that returned from the retry topic.

    >>> from rocketc.format._encoding import encode
    >>> from rocketc.read._message import Message
    >>> shown_topic("audit", Message.of(encode("%RETRY%audit", properties={"RETRY_TOPIC": "orders"})))
    'orders'
    """
    if message.topic != retry_topic(group):
        return message.topic
    return message.properties.get(PROPERTY_RETRY_TOPIC) or message.topic


def most_times(max_reconsume_times: int, *, is_orderly: bool) -> int:
    """Return how many times a message is delivered again.

    max_reconsume_times  of the user; -1: RocketMQ's own number

    >>> most_times(-1, is_orderly=False), most_times(-1, is_orderly=True), most_times(3, is_orderly=True)
    (16, 2147483647, 3)
    """
    if max_reconsume_times != -1:
        return max_reconsume_times
    return FOR_EVER if is_orderly else DEFAULT_TIMES


def send_back_fields(
    group: str, message: Failed, delay_level: int = BROKER_DECIDES, max_reconsume_times: int = -1
) -> dict[str, Any]:
    """Return the fields of CONSUMER_SEND_MSG_BACK of a concurrent consumer, for the broker that has the message.

    delay_level          DEAD_LETTER, BROKER_DECIDES, or a level of RocketMQ from 1 on
    max_reconsume_times  of the user
    If this request fails, send retry_send() instead.

    >>> from rocketc.format._encoding import encode
    >>> from rocketc.read._message import Message
    >>> fields = send_back_fields("audit", Message.of(encode("orders", phy_offset=77)))
    >>> fields["offset"], fields["originTopic"], fields["maxReconsumeTimes"]
    (77, 'orders', 16)
    """
    return {
        "offset": message.phy_offset,
        "group": group,
        "delayLevel": delay_level,
        "originMsgId": _id(message),
        "originTopic": shown_topic(group, message),
        "unitMode": False,
        "maxReconsumeTimes": most_times(max_reconsume_times, is_orderly=False),
    }


def attempt_of(group: str, message: Failed, times: int) -> str:
    """Return what to log about an attempt to consume a message.

    times  that it was delivered again

    >>> from rocketc.format._encoding import encode
    >>> from rocketc.read._message import Message
    >>> record = encode("orders", properties={"KEYS": "o-7", "UNIQ_KEY": "AC12"})
    >>> print(attempt_of("audit", Message.of(record), 2))
    AC12 of topic orders, keys 'o-7', attempt 3
    """
    topic, keys = shown_topic(group, message), f"keys {message.keys!r}" if message.keys else "without keys"
    return f"{_id(message)} of topic {topic}, {keys}, attempt {times + 1}"


def dead_letter_topic(group: str) -> str:
    """Return the topic with the messages that a group could not consume.

    >>> dead_letter_topic("audit")
    '%DLQ%audit'
    """
    return DLQ_PREFIX + group


@dataclass(frozen=True)
class RetrySend:
    """A message for the retry topic of a group, and two fields of the header of its send, which properties repeat."""

    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int


def retry_send(group: str, message: Failed, times: int, most: int, *, is_orderly: bool) -> RetrySend:
    """Return the message that an ordinary send puts into the retry topic. A broker makes it a dead letter if it is due.

    Orderly consumers send it for a message that failed too many times; concurrent ones if a send-back failed.
    times  how many times the message was delivered again so far
    most   most_times()
    As in RocketMQ, a concurrent consumer does not set ORIGIN_MESSAGE_ID. RocketMQ also sends properties that its client
    adds to each message: MIN_OFFSET, MAX_OFFSET and CONSUME_START_TIME.

    >>> from rocketc.format._encoding import encode
    >>> from rocketc.read._message import Message
    >>> sent = retry_send("audit", Message.of(encode("orders", b"x")), times=2, most=16, is_orderly=False)
    >>> sent.topic, sent.properties["RETRY_TOPIC"], sent.properties["DELAY"], sent.reconsume_times
    ('%RETRY%audit', 'orders', '5', 3)
    """
    properties = dict(message.properties)
    properties.pop(_TRANSACTION, None)
    if is_orderly:
        properties[PROPERTY_ORIGIN_MESSAGE_ID] = properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or _id(message)
    properties[PROPERTY_RETRY_TOPIC] = shown_topic(group, message)
    properties[PROPERTY_DELAY] = str(_FIRST_LEVEL + times)
    properties[_TIMES], properties[_MOST_TIMES] = str(times + 1), str(most)
    return RetrySend(retry_topic(group), message.body, message.flag, properties, times + 1, most)


class LocalRetries:
    """How many times this process delivered messages of one queue again; the messages themselves cannot say it.

    >>> from types import SimpleNamespace
    >>> retries, message = LocalRetries(), SimpleNamespace(queue_offset=7, reconsume_times=2)
    >>> retries.add([message])
    >>> retries.times(message)
    3
    """

    def __init__(self) -> None:
        self._more: dict[int, int] = {}  # by queue offset

    def __len__(self) -> int:
        return len(self._more)

    def times(self, message: Failed) -> int:
        """Return how many times a message was delivered again, by brokers and by this process."""
        return message.reconsume_times + self._more.get(message.queue_offset, 0)

    def add(self, messages: Iterable[Failed]) -> None:
        """Count one more delivery of each message."""
        for message in messages:
            self._more[message.queue_offset] = self._more.get(message.queue_offset, 0) + 1

    def forget(self, before: int) -> None:
        """Forget the messages before an offset: they are committed."""
        if self._more:
            self._more = {offset: count for offset, count in self._more.items() if offset >= before}


def _id(message: Failed) -> str:
    """Return the id that a listener sees: the unique key, if the producer set one."""
    return message.properties.get(PROPERTY_UNIQUE_KEY) or message.msg_id
