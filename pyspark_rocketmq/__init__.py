"""The data source for spark.read.format("rocketmq"). Spark imports modules named pyspark_* and their DefaultSource."""

from rocketc.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
