"""The peer of bench_spark.py: passes prepared rows from memory to Spark. Spark's workers import this module."""

import functools
import mmap
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


@functools.cache
def batches_in(path: str) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow file without a copy: mapped once per worker process, every page touched once."""
    source = pa.memory_map(path)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        pages[:: mmap.PAGESIZE]
    reader = pa.ipc.open_file(source)
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


class MemorySource(DataSource):
    """A data source that reads the Arrow files of a folder, one task per file."""

    @classmethod
    def name(cls) -> str:
        return "memory"

    def reader(self, schema) -> "MemoryReader":
        return MemoryReader(self.options["path"])


class MemoryReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self.folder).glob("*.arrow"))]

    def read(self, partition: InputPartition):
        return iter(batches_in(partition.value))
