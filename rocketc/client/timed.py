"""Timed messages: consumers get them at a time that the producer chooses, with brokers of RocketMQ 5.

Source: RocketMQ Message.setDelayTimeSec, setDelayTimeMs, setDeliverTimeMs, RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math

from rocketc.client.names import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from rocketc.errors import AnswerError, IllegalMessageError, UnsupportedError
from rocketc.remoting.codes import Code
from rocketc.remoting.versions import V5_0_0, version_name

TIMERS_SINCE = V5_0_0  # brokers before it ignore the properties, and deliver at once

_MOST = (1 << 63) - 1
_MOST_DELAY = 1 << 62  # ms: brokers of RocketMQ add their time, and deliver at once if that has more than 64 bits


def timer_property(delay: float | None, deliver_at: int | datetime.datetime | None) -> dict[str, str]:
    """Return the property for the time of a message, from one of the arguments.

    delay       seconds
    deliver_at  ms since 1970, or a datetime; without a time zone, it is local time
    Raises TypeError, IllegalMessageError.

    >>> timer_property(30, None), timer_property(1.5, None)
    ({'TIMER_DELAY_SEC': '30'}, {'TIMER_DELAY_MS': '1500'})
    >>> timer_property(None, datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc))
    {'TIMER_DELIVER_MS': '1767225600000'}
    """
    if delay is not None:
        if deliver_at is not None:
            raise IllegalMessageError("give delay or deliver_at, not both")
        if isinstance(delay, bool) or not isinstance(delay, int | float):
            raise TypeError(f"delay: expected a number of seconds, got {type(delay).__name__}")
        if not math.isfinite(delay) or not 0 <= delay * 1000 <= _MOST_DELAY:
            raise IllegalMessageError(f"delay: {delay} is not a number of seconds from 0 to {_MOST_DELAY // 1000}")
        if delay == int(delay):
            return {TIMER_DELAY_SEC: str(int(delay))}
        return {TIMER_DELAY_MS: str(round(delay * 1000))}
    at = milliseconds("deliver_at", deliver_at)
    if not 0 < at <= _MOST:
        raise IllegalMessageError(f"deliver_at: {at} is not a time in ms since 1970")
    return {TIMER_DELIVER_MS: str(at)}


def milliseconds(what: str, time: object) -> int:
    """Return a time as ms since 1970. Raises TypeError, which says what it is.

    time  ms since 1970, or a datetime; without a time zone, it is local time

    >>> milliseconds("timestamp", datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc))
    1767225600000
    """
    if isinstance(time, datetime.datetime):
        return round(time.timestamp() * 1000)
    if isinstance(time, bool) or not isinstance(time, int):
        raise TypeError(f"{what}: expected ms since 1970 or a datetime, got {type(time).__name__}")
    return time


def check_timers(address: str, version: int) -> None:
    """Raise UnsupportedError if a broker does not know timed messages.

    version  of the broker, an ordinal of RocketMQ's MQVersion

    >>> check_timers("10.0.0.1:10911", 407)
    Traceback (most recent call last):
    rocketc.errors.UnsupportedError: 10.0.0.1:10911: a broker V4_9_7 ignores delay and deliver_at: use delay_level
    """
    if version < TIMERS_SINCE:
        raise UnsupportedError(
            f"{address}: a broker {version_name(version)} ignores delay and deliver_at: use delay_level"
        )


def broker_of(recall_handle: str) -> str:
    """Return the name of the broker that has a timed message. Raises TypeError, IllegalMessageError.

    recall_handle  SendResult.recall_handle: version, topic, broker name, time and message id, in base64

    >>> broker_of("djEgdGltZWQgYnJva2VyLWEgMTc5NTY4MTM3MTAwMSA3RjAwMDAwMTAwMDE=")
    'broker-a'
    """
    if not isinstance(recall_handle, str):
        raise TypeError(f"recall_handle: expected str, got {type(recall_handle).__name__}")
    try:
        parts = base64.urlsafe_b64decode(recall_handle).decode().split(" ")
    except (binascii.Error, ValueError):
        parts = []
    if len(parts) != 5 or parts[0] != "v1":
        raise IllegalMessageError("recall_handle: this is not the recall_handle of a SendResult")
    return parts[2]


_RECALL_HINTS: dict[int | None, str] = {
    Code.NO_PERMISSION: "the broker needs recallMessageEnable=true",
    Code.REQUEST_CODE_NOT_SUPPORTED: "brokers take messages back since RocketMQ 5.3.1",
}


def explained(error: AnswerError) -> AnswerError:
    """Return the error of a recall, with what the operator of the broker can do.

    >>> str(explained(AnswerError("10.0.0.1:10911", "answered with 16", Code.NO_PERMISSION)))
    '10.0.0.1:10911: answered with 16; the broker needs recallMessageEnable=true'
    """
    hint = _RECALL_HINTS.get(error.code)
    return error if hint is None else AnswerError(error.address, f"{error.args[1]}; {hint}", error.code)
