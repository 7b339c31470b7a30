"""Convert columns to pyarrow, which is optional."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from rocketc.read._arrow import Batch, Schema

if TYPE_CHECKING:
    import pyarrow


def import_pyarrow() -> ModuleType:
    """Return the module pyarrow, or raise ImportError with the command to install it.

    >>> import_pyarrow().__name__
    'pyarrow'
    """
    try:
        import pyarrow
    except ImportError:
        raise ImportError("this needs pyarrow: pip install 'rocketc[arrow]'") from None
    module: ModuleType = pyarrow
    return module


def record_batches(batches: Iterable[Batch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield each batch as a pyarrow.RecordBatch, without a copy.

    >>> list(record_batches([]))
    []
    """
    pa = import_pyarrow()
    for batch in batches:
        yield pa.record_batch(batch)


def table(batches: Iterable[Batch], columns: Iterable[str] | None) -> pyarrow.Table:
    """Return all batches as one pyarrow.Table, without a copy.

    columns  of the batches; a table without rows has them too. None: all

    >>> table([], ["topic", "body"]).schema.names
    ['topic', 'body']
    """
    pa = import_pyarrow()
    return pa.Table.from_batches(list(record_batches(batches)), schema=pa.schema(Schema(columns)))
