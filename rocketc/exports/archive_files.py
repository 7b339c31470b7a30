"""Write messages to staged Parquet files of an archive, by topic and day."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rocketc.exports.columns import ROW_GROUP_BYTES, ColumnFile, schema_of
from rocketc.exports.folder import Parts, fill_with_columns
from rocketc.exports.formats import choose_format
from rocketc.exports.sinks import sync_tree

if TYPE_CHECKING:
    import pyarrow

BY = ("topic", "date")


def write_files(
    batches: Iterable[pyarrow.RecordBatch],
    columns: Sequence[str],
    staging: str,
    stem: str,
    compression: str | None,
    *,
    ordered: bool,
) -> list[list[Any]]:
    """Write messages to files in a new folder below a staging folder, and make the files durable.

    columns  of the messages; those of BY are in the names of folders
    stem     begin of the names of the files
    ordered  the messages are in the order of a log
    Returns [path below staging, bytes, messages] of each file. After an error no files are left.
    """
    root = os.path.join(staging, f"task-{uuid.uuid4().hex}")
    columns = [name for name in columns if name not in BY]
    form = choose_format("", "parquet", compression, "parquet")
    schema = schema_of(columns)

    def make(sink: Any) -> ColumnFile:
        return ColumnFile(sink, form, schema, ROW_GROUP_BYTES, ordered=ordered, stream=False)

    out = Parts(root, root, BY, form.suffix, make, stem)
    try:
        fill_with_columns(batches, columns, BY, out, None)
        out.close()
        if out.files:
            sync_tree(root)
    except BaseException:
        out.drop()
        shutil.rmtree(root, ignore_errors=True)
        raise
    return sorted(_files(staging, root))


def _files(staging: str, root: str) -> Iterator[list[Any]]:
    from pyarrow.parquet import read_metadata

    for where, _, names in os.walk(root):
        for name in names:
            path = os.path.join(where, name)
            yield [os.path.relpath(path, staging), os.stat(path).st_size, read_metadata(path).num_rows]
