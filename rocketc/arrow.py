"""Columns -> pyarrow, which is optional."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from rocketc._arrow import Batch, Schema

if TYPE_CHECKING:
    import pyarrow


def import_pyarrow() -> ModuleType:
    try:
        import pyarrow
    except ImportError:
        raise ImportError("this needs pyarrow: pip install 'rocketc[arrow]'") from None
    module: ModuleType = pyarrow
    return module


def record_batches(batches: Iterable[Batch]) -> Iterator[pyarrow.RecordBatch]:
    """Each batch as a pyarrow.RecordBatch, without a copy."""
    pa = import_pyarrow()
    for batch in batches:
        yield pa.record_batch(batch)


def table(batches: Iterable[Batch], columns: Iterable[str] | None) -> pyarrow.Table:
    """All batches as one pyarrow.Table, without a copy."""
    pa = import_pyarrow()
    return pa.Table.from_batches(list(record_batches(batches)), schema=pa.schema(Schema(columns)))
