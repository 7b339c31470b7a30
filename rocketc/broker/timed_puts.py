"""Timed messages: how a put is changed for the time that its message asks for.

Source: RocketMQ HookUtils.handleScheduleMessage, observed on 5.3.3.
"""

from __future__ import annotations

import base64
import binascii
import random
import re
from collections.abc import Callable
from typing import NamedTuple

from rocketc._layout import PROPERTY_UNIQUE_KEY
from rocketc.broker import names
from rocketc.broker.config import BrokerConfig
from rocketc.status import PutStatus

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f]")
_INT64 = (-(1 << 63), (1 << 63) - 1)
HANDLE_VERSION = "v1"


def is_timed(properties: dict[str, str]) -> bool:
    """Return whether a message asks for a time. One that has TIMER_OUT_MS is in the timer topic already.

    >>> is_timed({"TIMER_DELAY_SEC": "3"}), is_timed({"TIMER_DELAY_SEC": "3", "TIMER_OUT_MS": "1"})
    (True, False)
    """
    return not properties.get(names.TIMER_OUT_MS) and any(properties.get(name) for name in names.TIMER)


def deliver_time(properties: dict[str, str], now: int) -> int:
    """Return when a message that asks for a time is due, in ms. Raises ValueError.

    TIMER_DELAY_SEC comes before TIMER_DELAY_MS, and both before TIMER_DELIVER_MS. The time may have more than 64 bits:
    in Java it wraps around, and such a message is due at once.

    >>> deliver_time({"TIMER_DELAY_SEC": "3", "TIMER_DELIVER_MS": "5"}, 1000)
    4000
    """
    for name, factor, start in (
        (names.TIMER_DELAY_SEC, 1000, now),
        (names.TIMER_DELAY_MS, 1, now),
        (names.TIMER_DELIVER_MS, 1, 0),
    ):
        if text := properties.get(name):
            if not _NUMBER.fullmatch(text) or not _INT64[0] <= int(text) <= _INT64[1]:
                raise ValueError(f"the property {name} is {text[:20]!r}, which is not a number")
            return int(text) * factor + start
    raise ValueError("the message does not ask for a time")


def rounded(deliver: int, precision: int) -> int:
    """Return the moment of a time: rounded down, and one step earlier if it is exact.

    >>> rounded(5999, 1000), rounded(6000, 1000)
    (5000, 5000)
    """
    return (deliver - 1) // precision * precision


class Refused(NamedTuple):
    """Why a timed message is not stored: status, and the remark of the answer."""

    status: PutStatus
    remark: str


class TimedPuts:
    """Changes timed messages for the timer topic.

    count   returns how many messages wait for a moment, in ms
    chance  random numbers
    """

    def __init__(self, config: BrokerConfig, count: Callable[[int], int], chance: random.Random) -> None:
        self._config, self._count, self._chance = config, count, chance

    def change(self, properties: dict[str, str], topic: str, queue_id: int, now: int) -> tuple[str, int] | Refused:
        """Change the properties of a message that asks for a time.

        Returns the topic and the queue that store it: those of the timer topic, or its own if its time is over; or why
        it is refused.
        """
        config = self._config
        if not config.timer_wheel_enable:
            return Refused(
                PutStatus.WHEEL_TIMER_NOT_ENABLE, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        most = config.timer_max_delay_sec * 1000
        illegal = Refused(
            PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
            f"timer message illegal, the delay time should not be bigger than the max delay {most}ms; "
            "or if set del msg, the delay time should be bigger than the current time",
        )
        try:
            deliver = deliver_time(properties, now)
        except ValueError:
            return illegal
        if deliver - now > most or (deliver <= now and properties.get(names.TIMER_DELETES)):
            return illegal
        if deliver <= now:
            return topic, queue_id
        out = rounded(deliver, config.timer_precision_ms)
        limit = config.timer_congest_num_each_slot
        if self._is_congested(self._count(out), limit):
            return Refused(
                PutStatus.WHEEL_TIMER_FLOW_CONTROL,
                f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater "
                f"than {limit} and less than {2 * limit}, trigger random flow control",
            )
        properties[names.TIMER_OUT_MS] = str(out)
        properties[names.REAL_TOPIC] = topic
        properties[names.REAL_QUEUE] = str(queue_id)
        return names.TIMER_TOPIC, 0

    def _is_congested(self, count: int, limit: int) -> bool:
        """Return whether a message for a moment with this many messages is refused. Between the limit and twice the
        limit it is by chance, and RocketMQ accepts more of them the more there are."""
        if count <= limit:
            return False
        return count >= 2 * limit or self._chance.random() * limit >= count - limit


def recall_handle(properties: dict[str, str], broker_name: str) -> str | None:
    """Return the handle that takes a stored timed message back; None for other messages.

    >>> recall_handle({"TIMER_OUT_MS": "5000", "REAL_TOPIC": "orders", "UNIQ_KEY": "K1"}, "broker-a")
    'djEgb3JkZXJzIGJyb2tlci1hIDUwMDEgSzE='
    """
    out, topic = properties.get(names.TIMER_OUT_MS, ""), properties.get(names.REAL_TOPIC)
    if not topic or not _NUMBER.fullmatch(out) or int(out) >= _INT64[1]:
        return None
    text = f"{HANDLE_VERSION} {topic} {broker_name} {int(out) + 1} {properties.get(PROPERTY_UNIQUE_KEY)}"
    return base64.urlsafe_b64encode(text.encode()).decode()


class Handle(NamedTuple):
    """A decoded recall handle."""

    topic: str
    broker_name: str
    deliver_ms: str
    key: str


def decode_handle(text: str) -> Handle:
    """Decode a recall handle. Further parts are ignored, as in RocketMQ. Raises ValueError.

    Control characters are refused: they would be further properties of the message that deletes, of other topics too.

    >>> decode_handle("djEgb3JkZXJzIGJyb2tlci1hIDUwMDEgSzE=")
    Handle(topic='orders', broker_name='broker-a', deliver_ms='5001', key='K1')
    """
    try:
        raw = text.encode("ascii")
        if not re.fullmatch(rb"[A-Za-z0-9_-]*={0,2}", raw):
            raise ValueError("not base64")
        parts = base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)).decode().rstrip(" ").split(" ")
    except (binascii.Error, ValueError):
        parts = []
    if len(parts) < 5 or parts[0] != HANDLE_VERSION or any(_CONTROL.search(part) for part in parts):
        raise ValueError("recall handle is invalid")
    return Handle(*parts[1:5])
