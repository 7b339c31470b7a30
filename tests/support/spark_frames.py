"""DataFrames of Spark as pyarrow tables that can be compared with those of a scan."""

import pyarrow as pa
from pyspark.sql import DataFrame

import rocketc


def table_of(df: DataFrame) -> pa.Table:
    """The rows that the driver gets, with the columns' own types."""
    table = df.toArrow()
    wanted = pa.schema([pa.schema(rocketc.decode(b"")).field(name) for name in table.column_names])
    for ours, field in zip(wanted, table.schema, strict=True):
        assert field.type == ours.type or (pa.types.is_timestamp(ours.type) and field.type.tz is not None), field
    return table.cast(wanted)


def sort(table: pa.Table) -> pa.Table:
    """Sort a table in log order, in one chunk."""
    return table.sort_by([("physicalOffset", "ascending"), ("queueOffset", "ascending")]).combine_chunks()
