"""The columns of a scan as a Spark schema."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketc._arrow import Schema

_TYPES: dict[str, DataType] = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "physicalOffset": LongType(),
    "storeTimestamp": TimestampType(),
    "bornTimestamp": TimestampType(),
    "keys": StringType(),
    "tags": StringType(),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "msgId": StringType(),
    "flag": IntegerType(),
    "sysFlag": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "bodyCRC": IntegerType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "preparedTransactionOffset": LongType(),
    "storeSize": IntegerType(),
    "file": StringType(),
}


def schema(columns: Sequence[str] | None = None) -> StructType:
    """The Spark schema of these columns in this order; None: of all. Every column is nullable, as Spark wants it.

    Raises ValueError for a name that is no column, or that comes twice.

    >>> schema(["topic", "queueId"]).simpleString()
    'struct<topic:string,queueId:int>'
    """
    return StructType([StructField(name, _TYPES[name]) for name in Schema(columns).names])


SCHEMA = schema()
