"""Timed messages: from the timer topic into the wheel, and out of it when they are due."""

from collections.abc import Iterable
from typing import NamedTuple

from rocketc.broker._deliveries import Deliveries
from rocketc.derived._timer_log import TimerLog
from rocketc.derived._timer_wheel import TimerWheel
from rocketc.status import PutStatus
from rocketc.store._gets import Getting
from rocketc.store._raw_records import RawGetResult

ENQUEUED_AT_ONCE: int

class Enqueued(NamedTuple):
    row: int
    status: PutStatus
    waits: bool

class Dequeued(NamedTuple):
    is_done: bool
    status: PutStatus

class Timers:
    queue_offset: int
    skipped: int
    repeated_until: int
    repeated_read_time: int
    @property
    def wheel(self) -> TimerWheel: ...
    @property
    def log(self) -> TimerLog: ...
    @property
    def step(self) -> int: ...
    @property
    def roll_ms(self) -> int: ...
    @property
    def read_time(self) -> int: ...
    @property
    def last_due(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def enqueued(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def rolled(self) -> int: ...
    @property
    def recalled(self) -> int: ...
    def __init__(
        self,
        store: Getting,
        deliver: Deliveries,
        wheel: TimerWheel,
        log: TimerLog,
        names: Iterable[str],
        roll_slots: int,
        read_time: int,
        queue_offset: int,
    ) -> None: ...
    def enqueue(self, found: RawGetResult, row: int, now: int, is_behind: bool = False) -> Enqueued: ...
    def take_counts(self) -> dict[str, int]: ...
    def dequeue(self, now: int) -> Dequeued: ...
    def touch(self) -> None: ...
    @property
    def to_deliver(self) -> int: ...
    def rewind(self, time: int) -> None: ...
    def apply(self, pos: int) -> None: ...
    def check_slots(self) -> bool: ...
    def offset_of(self, pos: int) -> int: ...
