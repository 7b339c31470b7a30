"""Write Arrow batches to Parquet or Arrow files, in row groups of limited size. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rocketc.exports.formats import Format
from rocketc.exports.sinks import Sink
from rocketc.read.arrow_interop import import_pyarrow

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1 << 20

# The encoding of columns: a dictionary for few distinct values; differences for ascending numbers; different suffixes
# for ids with equal prefixes. All other columns mostly have a different value in each row, and are not encoded.
_FEW_VALUES = {
    "topic", "queueId", "brokerName", "tags", "flag", "sysFlag", "reconsumeTimes", "bornHost", "storeHost", "storeSize",
    "file", "preparedTransactionOffset",
}  # fmt: skip
_ENCODINGS = {
    "queueOffset": "DELTA_BINARY_PACKED",
    "physicalOffset": "DELTA_BINARY_PACKED",
    "storeTimestamp": "DELTA_BINARY_PACKED",
    "bornTimestamp": "DELTA_BINARY_PACKED",
    "msgId": "DELTA_BYTE_ARRAY",
}
_NO_STATISTICS = {"body", "properties"}  # not useful for queries, and the values would be in each footer


def parquet_options(schema: pyarrow.Schema, compression: str, ordered: bool) -> dict[str, Any]:
    """Return the options of ParquetWriter.

    ordered  whether the rows are in ascending order of physicalOffset
    """
    import_pyarrow()
    from pyarrow.parquet import SortingColumn

    names = schema.names
    dictionary = [name for name in names if name in _FEW_VALUES]
    if "properties" in names:
        dictionary.append("properties.key_value.key")
    options: dict[str, Any] = {
        "compression": compression,
        "use_dictionary": dictionary,
        "column_encoding": {name: _ENCODINGS[name] for name in names if name in _ENCODINGS},
        "write_statistics": [name for name in names if name not in _NO_STATISTICS],
        "write_page_index": True,
    }
    if ordered and "physicalOffset" in names:
        options["sorting_columns"] = SortingColumn.from_ordering(schema, [("physicalOffset", "ascending")])
    return options


class ColumnFile:
    """A Parquet or Arrow file; each table is written as its own row groups."""

    def __init__(
        self, sink: Sink, format: Format, schema: pyarrow.Schema, row_group_bytes: int, ordered: bool, stream: bool
    ) -> None:
        pa = import_pyarrow()
        self._row_group_bytes = row_group_bytes
        self.weight = 1
        if format.name == "parquet":
            from pyarrow.parquet import ParquetWriter

            self._writer = ParquetWriter(sink, schema, **parquet_options(schema, format.compression, ordered))
            self._limit = "row_group_size"
        else:
            compression = None if format.compression == "none" else format.compression
            make = pa.ipc.new_stream if stream else pa.ipc.new_file
            self._writer = make(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression))
            self._limit = "max_chunksize"

    def write(self, table: pyarrow.Table) -> None:
        groups = max(-(-table.nbytes // self._row_group_bytes), -(-table.num_rows // ROW_GROUP_ROWS), 1)
        self._writer.write_table(table, **{self._limit: max(-(-table.num_rows // groups), 1)})
        self.weight += groups

    def close(self) -> None:
        self._writer.close()


def gathered(
    batches: Iterable[pyarrow.RecordBatch], most_bytes: int, most_rows: int = ROW_GROUP_ROWS
) -> Iterator[pyarrow.Table]:
    """Combine batches to tables; a table is complete when it has `most_bytes` bytes or `most_rows` rows."""
    pa = import_pyarrow()
    waiting: list[pyarrow.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if size >= most_bytes or rows >= most_rows:
            table, waiting, size, rows = pa.Table.from_batches(waiting), [], 0, 0
            yield table
            del table  # release it before the next batches are created
    if waiting:
        yield pa.Table.from_batches(waiting)


def schema_of(columns: Sequence[str]) -> pyarrow.Schema:
    from rocketc.read._arrow import Schema

    schema: pyarrow.Schema = import_pyarrow().schema(Schema(columns))
    return schema
