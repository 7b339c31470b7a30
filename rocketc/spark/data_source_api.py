"""Spark's classes for data sources in Python. Spark 3.5 does not have them: parts.py then calls ours by itself."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.serializers import CPickleSerializer

SERIALIZER: Any = CPickleSerializer()  # Spark's own, for what its tasks get and return

try:
    from pyspark.sql import datasource
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
        WriterCommitMessage,
    )
except ImportError:  # Spark 3.5
    HAS_DATA_SOURCES = False

    class DataSource:  # type: ignore[no-redef]
        """A stand-in."""

        def __init__(self, options: Any) -> None:
            self.options = options

    class DataSourceReader:  # type: ignore[no-redef]
        """A stand-in."""

    class DataSourceStreamReader:  # type: ignore[no-redef]
        """A stand-in."""

    class DataSourceWriter:  # type: ignore[no-redef]
        """A stand-in."""

    class DataSourceStreamWriter:  # type: ignore[no-redef]
        """A stand-in."""

    class InputPartition:  # type: ignore[no-redef]
        """A stand-in. value: what a task reads"""

        def __init__(self, value: Any) -> None:
            self.value = value

    class WriterCommitMessage:  # type: ignore[no-redef]
        """A stand-in."""

    ArrowWriter: Any = DataSourceWriter
    ArrowStreamWriter: Any = DataSourceStreamWriter
else:
    HAS_DATA_SOURCES = True
    # Spark 4.1 and newer pass Arrow batches instead of rows.
    ArrowWriter = getattr(datasource, "DataSourceArrowWriter", DataSourceWriter)
    ArrowStreamWriter = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)

__all__ = [
    "HAS_DATA_SOURCES",
    "ArrowStreamWriter",
    "ArrowWriter",
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamReader",
    "DataSourceStreamWriter",
    "DataSourceWriter",
    "InputPartition",
    "WriterCommitMessage",
    "need_data_sources",
]


def need_data_sources() -> None:
    """Raise ImportError if this Spark does not have data sources in Python."""
    if not HAS_DATA_SOURCES:
        raise ImportError(
            f'format("rocketmq") needs Spark 4.0 or newer, and this is Spark {pyspark.__version__}: '
            "use rocketc.spark.read_parts(spark, ...), write_parts() and PartStream, with the same options"
        )
