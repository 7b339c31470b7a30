"""DataFrames of Spark as pyarrow tables that can be compared with those of a scan; what Spark 3.5 lacks."""

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import rocketc
from rocketc.spark.data_source_api import HAS_DATA_SOURCES

NO_SOURCES = "Spark 3.5 does not have data sources in Python"
needs_sources = pytest.mark.skipif(not HAS_DATA_SOURCES, reason=NO_SOURCES)
# Spark 4 runs the same code through its sources, in other tests. pytest.mark.spark changes nothing
long_with_sources = pytest.mark.long if HAS_DATA_SOURCES else pytest.mark.spark


def arrow_of(df: DataFrame) -> pa.Table:
    """DataFrame.toArrow(), also in Spark 3.5."""
    if hasattr(df, "toArrow"):
        return df.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = df._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(df.schema).empty_table()


def ddl(text: str) -> StructType:
    """StructType.fromDDL(), which needs Spark 4, and in some versions a session."""
    made = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        if kind == "map<string,string>":
            from pyspark.sql.types import MapType, StringType

            made.add(name, MapType(StringType(), StringType()))
        else:
            made.add(name, {"int": "integer", "bigint": "long"}.get(kind, kind))
    return made


def table_of(df: DataFrame) -> pa.Table:
    """The rows that the driver gets, with the columns' own types."""
    table = arrow_of(df)
    wanted = pa.schema([pa.schema(rocketc.decode(b"")).field(name) for name in table.column_names])
    for ours, field in zip(wanted, table.schema, strict=True):
        assert field.type == ours.type or (pa.types.is_timestamp(ours.type) and field.type.tz is not None), field
    return table.cast(wanted)


def sort(table: pa.Table) -> pa.Table:
    """Sort a table in log order, in one chunk."""
    return table.sort_by([("physicalOffset", "ascending"), ("queueOffset", "ascending")]).combine_chunks()
