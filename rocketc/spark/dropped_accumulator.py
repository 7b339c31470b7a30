"""The accumulator with which a driver counts what mode=DROPMALFORMED dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator
from pyspark.errors import AnalysisException

from rocketc.spark.data_source_api import HAS_DATA_SOURCES
from rocketc.spark.dropped import Dropped, DroppedSum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dropped_accumulator(spark: SparkSession) -> Accumulator[Dropped]:
    """Return an accumulator for what mode=DROPMALFORMED drops; give its `aid` as the option droppedAccumulator.

    Its value is Dropped(ranges, bytes). The driver logs each sum as a warning of "rocketc.spark". As with any
    accumulator of Spark, a task that runs twice counts twice.
    This function registers the source with the session: Spark does not return accumulator values from sources that it
    found by itself. read_parts() does not need that, so in Spark 3.5 it is left out.
    Raises NotImplementedError in Spark 4.0, which can't register a source that it found by itself; PySpark's own error
    in Spark Connect, which does not support accumulators. mode=PERMISSIVE reports damage in all versions.
    """
    from rocketc.spark.source import RocketmqSource  # a slow import

    accumulator = spark.sparkContext.accumulator(Dropped(), DroppedSum())
    if not HAS_DATA_SOURCES:
        return accumulator
    try:
        spark.dataSource.register(RocketmqSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        raise NotImplementedError(
            f"Spark {spark.version} does not return accumulators from a source that it found by itself, and can't "
            "register another: use Spark 4.1 or newer, or mode=PERMISSIVE, which returns damage as rows"
        ) from None
    return accumulator
