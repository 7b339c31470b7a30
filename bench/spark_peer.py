"""The peer of bench_spark.py: rows that lie ready in memory, handed to Spark as they are. Spark's workers import it."""

import functools
import mmap
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


@functools.cache
def batches_in(path: str) -> list[pa.RecordBatch]:
    """The batches of an Arrow file, in place: mapped once a worker process, every page touched once."""
    source = pa.memory_map(path)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        pages[:: mmap.PAGESIZE]
    reader = pa.ipc.open_file(source)
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


class MemorySource(DataSource):
    """The Arrow files of a folder, a task each."""

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
