"""What slaves ask about timed messages: how far they are delivered, and how many wait.

Source: RocketMQ AdminBrokerProcessor; the bodies are those of 5.3.3.
"""

from __future__ import annotations

from typing import Protocol

from rocketc.broker.admin import forms
from rocketc.derived.timer_check import TimerCheck
from rocketc.remoting.server import Answer, Call
from rocketc.tables.topic_counts import TimerCounts

CHECK_POINT, METRICS = 60, 61


class Timed(Protocol):
    """What TimerTables needs of a TimerService."""

    @property
    def counts(self) -> TimerCounts: ...
    def checkpoint(self) -> TimerCheck: ...


class TimerTables:
    """Answers GET_TIMER_CHECK_POINT (60) and GET_TIMER_METRICS (61)."""

    codes = (CHECK_POINT, METRICS)

    def __init__(self, timers: Timed) -> None:
        self._timers = timers

    def process(self, call: Call) -> Answer:
        if call.command.code == METRICS:
            return Answer(body=forms.body(self._timers.counts.whole()))
        return Answer(body=self._timers.checkpoint().encode_fields())
