"""Counts the ranges that mode=DROPMALFORMED drops, in an accumulator of the driver."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import NamedTuple

from pyspark.accumulators import Accumulator, AccumulatorParam, _deserialize_accumulator

from rocketc.read.scan_report import Damage

_log = logging.getLogger("rocketc.spark")


class Dropped(NamedTuple):
    """The number of dropped ranges of logs, and their bytes.

    >>> Dropped(1, 300) | Dropped(2, 50)
    Dropped(ranges=3, bytes=350)
    """

    ranges: int = 0
    bytes: int = 0

    def __or__(self, other: Dropped) -> Dropped:
        return Dropped(self.ranges + other.ranges, self.bytes + other.bytes)


class DroppedSum(AccumulatorParam[Dropped]):
    """Adds up Dropped values. The driver logs each new sum to which a task added a range."""

    def __init__(self) -> None:
        self._driver = os.getpid()

    def zero(self, value: Dropped) -> Dropped:
        return Dropped()

    def addInPlace(self, value1: Dropped, value2: Dropped) -> Dropped:
        both = value1 | value2
        if value2.ranges and os.getpid() == self._driver:
            _log.warning("dropped %d damaged ranges, %d bytes, so far %d, %d", *value2, *both)
        return both


def add_dropped(aid: int, damage: Iterable[Damage]) -> None:
    """In a worker: add the ranges that a task dropped to the accumulator with this number."""
    sizes = [one.stop - one.start for one in damage]
    accumulator: Accumulator[Dropped] = _deserialize_accumulator(aid, Dropped(), DroppedSum())
    accumulator.add(Dropped(len(sizes), sum(sizes)))
