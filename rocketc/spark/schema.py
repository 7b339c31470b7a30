"""Spark schemas: the columns of a scan, of Spark's Kafka source, and of damaged ranges."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
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

from rocketc.read._arrow import Schema

_TYPES: dict[str, DataType] = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "brokerName": StringType(),
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
    """Return the Spark schema of these columns in this order; None: all columns. Every column is nullable.

    Raises ValueError for a name that is not a column, or that is given twice.

    >>> schema(["topic", "queueId"]).simpleString()
    'struct<topic:string,queueId:int>'
    """
    return StructType([StructField(name, _TYPES[name]) for name in Schema(columns).names])


SCHEMA = schema()

# The columns that mode=PERMISSIVE adds. A row of a damaged range has these and `file`; its other columns are null.
DAMAGE = StructType(
    [
        StructField("_corrupt_offset", LongType()),
        StructField("_corrupt_length", LongType()),
        StructField("_error", StringType()),
    ]
)

# The columns of Spark's Kafka source, for columns=kafka.
KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
    ]
)

FIELDS = {field.name: field for field in (*SCHEMA, *KAFKA, *DAMAGE)}
