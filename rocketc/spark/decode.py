"""Decoding in Spark's Python workers: mapPartitions and mapInArrow."""

from __future__ import annotations

import errno
import os
import re
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row

from rocketc.errors import StoreIOError
from rocketc.exports.text import attribute_of
from rocketc.files.paths import LogFile, base_of, local_of, resolve
from rocketc.files.remote import Options, is_url, shown
from rocketc.read._arrow import COLUMN_NAMES, Schema
from rocketc.read.scan import Scan, decode, scan
from rocketc.spark.worker import acknowledge

if TYPE_CHECKING:
    import pyarrow

_FORMS = ("row", "message", "dict", "batch")

# Column -> attribute of Message. Timestamps are aware datetimes: the same instant in every time zone of Spark.
_ATTRIBUTES = {name: attribute_of(name) for name in COLUMN_NAMES}
_ATTRIBUTES |= {"storeTimestamp": "store_time", "bornTimestamp": "born_time"}

_OTHER_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

_WHAT = ({"path", "start", "stop"}, {"path", "content"}, {"path"})
_BESIDE = {"modificationTime", "length"}  # the other columns of Spark's binaryFile source


def decode_partition(items: Iterable[Any], *, as_: str = "row", **scan_options: Any) -> Iterator[Any]:
    """Decode the messages that the items of a partition name: rdd.mapPartitions(rocketc.spark.decode_partition).

    items  each is one of these:
           - a split (file, start, stop) of splits(): the records whose first byte is in that range
           - a path: local, file:/... or a URL, as in rocketc.scan()
           - a pair (path, bytes): a whole file, as from sc.binaryFiles. Reading ends at zero bytes, because the next
             file of the log is not known
    as_    "row"      pyspark Row of the columns of SCHEMA, or of `columns`, with aware datetimes
           "message"  rocketc.Message
           "dict"     Message.to_dict(): ready for JSON, without absent values
           "batch"    pyarrow.RecordBatch
    Other options are those of rocketc.scan(); set them with functools.partial(decode_partition, as_="dict",
    topics="orders").
    Raises TypeError for another kind of item. An error of rocketc.scan() reaches the driver as text, with its file and
    offset.
    """
    if as_ not in _FORMS:
        raise ValueError(f"as_={as_!r}: {', '.join(map(repr, _FORMS))}")
    acknowledge()  # nothing of the partition is read yet
    return _decode_items(items, as_, scan_options)


def decode_batches(batches: Iterable[pyarrow.RecordBatch], **scan_options: Any) -> Iterator[pyarrow.RecordBatch]:
    """Decode the messages that rows of a DataFrame name: df.mapInArrow(rocketc.spark.decode_batches, SCHEMA).

    batches  rows of one of these forms, with the meaning that they have in decode_partition():
             (path, start, stop), as from spark.createDataFrame(splits(store));
             (path, content), whole files as from spark.read.format("binaryFile"), which may keep its columns
             modificationTime and length;
             (path)
    Other options are those of rocketc.scan(); set them with functools.partial(decode_batches, columns=[...]). Give
    mapInArrow the schema of the same columns, schema([...]): Spark compares positions, not names.
    A row with a whole file is large: set spark.sql.execution.arrow.maxRecordsPerBatch to 1 for files of several MiB.
    Raises ValueError for other columns and for a null; TypeError for columns of other types.
    """
    acknowledge()  # nothing of the partition is read yet
    for batch in batches:
        names = batch.schema.names
        what = set(names) - _BESIDE
        if what not in _WHAT or len(set(names)) < len(names):
            raise ValueError(
                f"rocketc.spark: columns {', '.join(names) or '(none)'}; use (path, start, stop), (path, content) "
                "or (path), optionally with modificationTime and length"
            )
        for row in _rows(batch, what):
            yield from _scan(row, scan_options).batches()


def _rows(batch: pyarrow.RecordBatch, what: set[str]) -> Iterator[Any]:
    """Yield the rows of a batch as items of decode_partition(); contents are not copied."""
    paths = batch.column("path").to_pylist()
    if "content" in what and str(batch.schema.field("content").type) not in ("binary", "large_binary", "binary_view"):
        raise TypeError(f"rocketc.spark: content is {batch.schema.field('content').type}, not binary")
    for i, path in enumerate(paths):
        if path is None:
            raise ValueError(f"rocketc.spark: path is null in row {i} of a batch")
        if "start" in what:
            yield path, batch.column("start")[i].as_py(), batch.column("stop")[i].as_py()
        elif "content" in what:
            content = batch.column("content")[i].as_buffer()
            if content is None:
                raise ValueError(f"rocketc.spark: content is null for {path}")
            yield path, memoryview(content)
        else:
            yield path


def _decode_items(items: Iterable[Any], as_: str, options: dict[str, Any]) -> Iterator[Any]:
    columns = Schema(options.get("columns")).names
    for item in items:
        messages = _scan(item, options)
        if as_ == "batch":
            yield from messages.batches()
        elif as_ == "message":
            yield from messages
        elif as_ == "row":
            yield from _as_rows(messages, columns)
        elif options.get("columns") is None:
            for message in messages:
                yield message.to_dict()
        else:
            wanted = {*columns, "bodyBase64"} if "body" in columns else {*columns}
            for message in messages:
                yield {name: value for name, value in message.to_dict().items() if name in wanted}


def _as_rows(messages: Scan, columns: list[str]) -> Iterator[Row]:
    row = Row(*columns)
    if len(columns) > 1:
        values = attrgetter(*(_ATTRIBUTES[name] for name in columns))
        for message in messages:
            yield row(*values(message))
    else:
        for message in messages:
            yield row(*(getattr(message, _ATTRIBUTES[name]) for name in columns))


def _scan(item: Any, options: dict[str, Any]) -> Scan:
    """Return the scan of an item."""
    if isinstance(item, (str, os.PathLike)):
        return scan(path_of(os.fspath(item)), **options)
    if isinstance(item, (tuple, list)) and item and isinstance(item[0], (str, os.PathLike)):
        path = os.fspath(item[0])
        if len(item) == 3 and all(bound is None or isinstance(bound, int) for bound in item[1:]):
            return scan(_part(path_of(path), item[1], item[2], options.get("storage_options")), **options)
        if len(item) == 2 and isinstance(item[1], (bytes, bytearray, memoryview)):
            name = local_of(path)
            return decode(item[1], base_of(name), file=name, **options)
    raise TypeError(
        f"rocketc.spark: {reprlib.repr(item)} ({type(item).__name__}) is not a split (file, start, stop) with int "
        "offsets, a path or a pair (path, bytes)"
    )


def _part(path: str, start: int | None, stop: int | None, storage: Options | None) -> LogFile:
    """Return the part of a file that a split names."""
    if start is not None and stop is not None and stop < start:
        raise ValueError(f"{shown(path)}: a split from {start} to {stop}; the second number is the end, not the length")
    [log] = resolve(path, storage)
    [file] = log.files
    if stop is not None and file.base is not None and stop >= file.base + file.size:
        stop = None
    return replace(file, start=start, stop=stop)


def path_of(path: str) -> str:
    """Convert a path of Spark to one of rocketc.scan(): a file: URI to a local path; another URL stays the same."""
    name = local_of(path)
    return name if is_url(name) and not name.startswith("file:") else _local(name)


def _local(path: str) -> str:
    """Return the local path of a path or a file: URI."""
    name = local_of(path)
    if _OTHER_URI.match(name):
        raise StoreIOError(
            errno.EINVAL, "not a local path; read it with sc.binaryFiles or Spark's binaryFile source", shown(path)
        )
    return name
