"""The accumulator that a driver gives to a read, to learn what mode=DROPMALFORMED dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator
from pyspark.errors import AnalysisException

from rocketc.spark.dropped import Dropped, DroppedSum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dropped_accumulator(spark: SparkSession) -> Accumulator[Dropped]:
    """An accumulator for what mode=DROPMALFORMED drops: give its `aid` as option droppedAccumulator.

    Its value is Dropped(ranges, bytes). The driver logs each sum as a warning of "rocketc.spark". As with any
    accumulator of Spark, a task that is run twice counts twice.
    Registers the source with the session: Spark brings nothing back from sources that it has found by itself.
    Raises NotImplementedError in Spark 4.0, where such a source stays as it was found, and PySpark's own error in
    Spark Connect, which has no accumulators. mode=PERMISSIVE tells of damage everywhere.
    """
    from rocketc.spark.source import RocketmqSource  # not before it is needed

    accumulator = spark.sparkContext.accumulator(Dropped(), DroppedSum())
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
