"""Options of clusters in the configuration of a Spark session, such as spark.rocketmq.nameServer."""

from __future__ import annotations

from pyspark.sql import SparkSession

from rocketc.spark import cluster_options
from rocketc.spark.options import near

PREFIX = "spark.rocketmq."
_NAMES = tuple(dict.fromkeys((*cluster_options.TO_READ, *cluster_options.TO_WRITE)))
_GROUPS = {"read": ("producerGroup",), "write": ("consumerGroup",)}


def configured_options(spark: SparkSession, use: str = "read") -> dict[str, str]:
    """Return the options of clusters in the configuration of a session, for .options(**configured_options(spark)).

    use  "read" leaves out producerGroup, "write" consumerGroup
    Spark does not give its configuration to a source in Python, so a program has to do that. Options that are set
    after these win. Raises ValueError for a name that is not such an option; no error has a value.
    """
    if use not in _GROUPS:
        raise ValueError(f"use={use!r}: 'read' or 'write'")
    for key in _keys(spark):
        name = key.removeprefix(PREFIX)
        if name != key and name not in _NAMES:
            raise ValueError(f"rocketmq: unknown key {key} in Spark's configuration{near(name, _NAMES)}")
    found = {name: spark.conf.get(PREFIX + name, None) for name in _NAMES if name not in _GROUPS[use]}
    return {name: value for name, value in found.items() if value is not None}


def _keys(spark: SparkSession) -> list[str]:
    """Return the keys of the configuration."""
    if hasattr(type(spark.conf), "getAll"):
        return list(spark.conf.getAll)
    return [row.key for row in spark.sql("SET").collect()]  # Spark 3.5; it hides values of secret keys
