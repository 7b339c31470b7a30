"""The data source for spark.read.format("rocketmq"). Spark imports modules named pyspark_* and their DefaultSource.

Spark 3.5 does not have data sources in Python. There, importing this module raises ImportError.
"""

from rocketc.spark.data_source_api import need_data_sources
from rocketc.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]

need_data_sources()
