"""Spark imports every module named pyspark_* and registers its DefaultSource: spark.read.format("rocketmq")."""

from rocketc.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
