"""Delayed messages that are due: from the topic of delayed messages into their own queues."""

from typing import NamedTuple

from rocketc.status import PutStatus
from rocketc.store._puts import Putting
from rocketc.store._raw_records import RawGetResult

DELIVERIES_MAX: int

class Delivered(NamedTuple):
    next_offset: int
    due: int
    status: PutStatus
    end: int
    row: int

class Deliveries:
    skipped: int
    @property
    def delivered(self) -> int: ...
    def __init__(self, store: Putting, real_topic: str, real_queue: str, discarded: str) -> None: ...
    def deliver(self, found: RawGetResult, now: int, delay: int, row: int = 0) -> Delivered: ...
