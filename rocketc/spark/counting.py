"""Counting what mode=DROPMALFORMED drops, in an accumulator of the driver."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pyspark.accumulators import Accumulator, AccumulatorParam, _deserialize_accumulator
from pyspark.errors import AnalysisException

from rocketc.scan import Damage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("rocketc.spark")


class Dropped(NamedTuple):
    """How many ranges of logs were dropped, and their bytes.

    >>> Dropped(1, 300) | Dropped(2, 50)
    Dropped(ranges=3, bytes=350)
    """

    ranges: int = 0
    bytes: int = 0

    def __or__(self, other: Dropped) -> Dropped:
        return Dropped(self.ranges + other.ranges, self.bytes + other.bytes)


class _Sum(AccumulatorParam[Dropped]):
    """Sums; in the driver each sum is logged, when a task brings something."""

    def __init__(self) -> None:
        self._driver = os.getpid()

    def zero(self, value: Dropped) -> Dropped:
        return Dropped()

    def addInPlace(self, value1: Dropped, value2: Dropped) -> Dropped:
        both = value1 | value2
        if value2.ranges and os.getpid() == self._driver:
            _log.warning("dropped %d damaged ranges, %d bytes, so far %d, %d", *value2, *both)
        return both


def dropped_accumulator(spark: SparkSession) -> Accumulator[Dropped]:
    """An accumulator for what mode=DROPMALFORMED drops: give its `aid` as option droppedAccumulator.

    Its value is Dropped(ranges, bytes). The driver logs each sum as a warning of "rocketc.spark". As with any
    accumulator of Spark, a task that is run twice counts twice.
    Registers the source with the session: Spark brings nothing back from sources that it has found by itself.
    Raises NotImplementedError in Spark 4.0, where such a source stays as it was found, and PySpark's own error in
    Spark Connect, which has no accumulators. mode=PERMISSIVE tells of damage everywhere.
    """
    from rocketc.spark.source import RocketmqSource  # which counts with us

    accumulator = spark.sparkContext.accumulator(Dropped(), _Sum())
    try:
        spark.dataSource.register(RocketmqSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        raise NotImplementedError(
            f"Spark {spark.version} brings no accumulator back from a source that it has found by itself, and takes no "
            "other for it: use Spark 4.1 or newer, or mode=PERMISSIVE, which tells of damage in rows"
        ) from None
    return accumulator


def add_dropped(aid: int, damage: Iterable[Damage]) -> None:
    """In a worker: add what a task dropped to the accumulator of this number."""
    sizes = [one.stop - one.start for one in damage]
    accumulator: Accumulator[Dropped] = _deserialize_accumulator(aid, Dropped(), _Sum())
    accumulator.add(Dropped(len(sizes), sum(sizes)))
