"""df.write and writeStream to a store: append the rows of a write, all or none; docs/howto/spark.md, Writing.

A store has one writer. So tasks only stage their rows, in files below `sparkwrite` in the store's folder. commit(), on
the driver, appends them in the order of the partitions. Meanwhile sparkwrite/journal.json holds the former end of the
log. If the commit fails, it cuts off the rows that it appended; if it is killed, the next write cuts them off.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from rocketc._layout import PROPERTY_UNIQUE_KEY
from rocketc.errors import IllegalMessageError, RocketcError, StoreIOError
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.files.durable import errors_named, sync_folder
from rocketc.files.lock_file import StoreLock
from rocketc.log.message_copy import ASSIGNED_ON_PUT, put_arguments
from rocketc.log.truncation import truncate
from rocketc.read._arrow import Schema
from rocketc.read.scan import scan
from rocketc.spark.data_source_api import ArrowStreamWriter, ArrowWriter, WriterCommitMessage
from rocketc.spark.options import near
from rocketc.spark.schema import SCHEMA
from rocketc.spark.worker import FastStartup
from rocketc.store.opening import open as open_store

if TYPE_CHECKING:
    import pyarrow

    from rocketc.store._store import MessageStore

FOLDER = "sparkwrite"
_OLD_S = 7 * 86_400  # a folder of staged rows that is older than this will not be committed
_COLUMNS = {field.name: field.dataType for field in SCHEMA}
_ID_TYPES = ("string", "int", "bigint")


@dataclass
class Staged(WriterCommitMessage):
    """The staged rows of a task: the path of their file; None if the task had no rows."""

    path: str | None
    rows: int


class _Writer(FastStartup):
    """What both writers have.

    Before a task runs, it raises ValueError for wrong columns and for mode("overwrite"), and StoreLockedError if
    another process has the store open.
    """

    def __init__(
        self,
        paths: list[str],
        settings: Mapping[str, Any],
        schema: StructType,
        overwrite: bool,
        id_column: str | None = None,
    ) -> None:
        if overwrite:
            raise ValueError('rocketmq: a log can\'t be replaced: use mode("append"), or another path')
        if len(paths) != 1:
            raise ValueError(f"rocketmq: option path: {len(paths)} paths; a write needs exactly one store")
        check_columns(schema, id_column)
        self._id_column = id_column
        self._root = os.path.abspath(paths[0])
        self._settings, self._types = dict(settings), schema
        self._folder = os.path.join(self._root, FOLDER, uuid.uuid4().hex)
        _check_place(self._root)
        if os.path.isdir(os.path.join(self._root, "commitlog")):
            StoreLock(self._root).release()
            end_killed(self._root, self._settings)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of a task in a durable file."""
        import pyarrow as pa

        batches = (batch for batch in _checked(batches_of(iterator, self._types), self._id_column) if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return Staged(None, 0)
        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, f"{uuid.uuid4().hex}.arrow")
        rows = 0
        try:
            with open(path, "xb") as file:
                with pa.ipc.new_stream(file, first.schema) as writer:
                    for batch in chain([first], batches):
                        writer.write_batch(batch)
                        rows += batch.num_rows
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        return Staged(path, rows)

    def _append(self, messages: list[Staged | None]) -> None:
        """Append the staged rows in the order of the partitions, and flush. On an error, restore the end of the log."""
        paths = [one.path for one in messages if one is not None and one.path is not None]
        if not paths:
            return
        _forget_old(self._root, {os.path.basename(os.path.dirname(path)) for path in paths})
        end_killed(self._root, self._settings)
        store = open_store(self._root, flush="async", **self._settings)
        journal = _Journal(store, paths)
        try:
            journal.write(self._root)
            for row, values in enumerate(_rows(paths, self._id_column)):
                try:
                    store.put(**values)
                except IllegalMessageError as error:
                    raise IllegalMessageError(f"rocketmq: message {row} of the write: {error}") from None
            store.flush()
            journal.remove(self._root)  # while the store is locked: another job would undo these rows
        except BaseException:
            with suppress(RocketcError):
                store.close()
            journal.undo(self._root)
            raise
        try:
            store.close()
        except RocketcError as error:  # the rows are durable
            print(f"rocketc: {self._root}: all rows are written, but closing failed: {error}", file=sys.stderr)


class RocketmqWriter(_Writer, ArrowWriter):  # type: ignore[misc]
    """One write of a batch query."""

    def commit(self, messages: list[Staged | None]) -> None:
        """Append the staged rows: all of them, or none and an error."""
        self._append(messages)
        self.abort(messages)

    def abort(self, messages: list[Staged | None]) -> None:
        """Delete the staged rows, after a task or commit() has failed finally."""
        shutil.rmtree(self._folder, ignore_errors=True)
        _remove_empty(self._root)


class RocketmqStreamWriter(_Writer, ArrowStreamWriter):  # type: ignore[misc]
    """The writes of a streaming query, one for each of its batches.

    Spark makes another writer for each commit, so the names of the staged files come from the tasks.
    """

    def commit(self, messages: list[Staged | None], batchId: int) -> None:
        """Append the staged rows of a batch: all of them, or none and an error."""
        self._append(messages)
        self.abort(messages, batchId)

    def abort(self, messages: list[Staged | None], batchId: int) -> None:
        """Delete the staged rows of a batch."""
        for one in messages:
            if one is not None and one.path is not None:
                with suppress(OSError):
                    os.unlink(one.path)
                    os.rmdir(os.path.dirname(one.path))
        _remove_empty(self._root)


class _Journal:
    """The journal of a commit: where the log ended before it, and which staged files it appends."""

    def __init__(self, store: MessageStore, paths: Sequence[str]) -> None:
        self.start = store.max_phy_offset
        self.paths = list(paths)
        self.folders = store.config.commit_log_paths(store.path)
        self._file_size = store.config.mapped_file_size_commit_log
        self._read_only = list(store.config.read_only_paths)

    def write(self, root: str) -> None:
        path = os.path.join(root, FOLDER, "journal.json")
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump({"version": 1, "start": self.start, "staged": self.paths}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".tmp", path)
        sync_folder(os.path.dirname(path))

    @staticmethod
    def read(root: str) -> tuple[int, list[str]] | None:
        """Return the former end of the log and the staged files of a commit that did not end; None: no such commit."""
        path = os.path.join(root, FOLDER, "journal.json")
        try:
            with open(path, encoding="utf-8") as file:
                fields = json.load(file)
            if fields["version"] != 1:
                raise ValueError(f"{path}: version {fields['version']}; this rocketc reads version 1")
            return int(fields["start"]), [str(one) for one in fields["staged"]]
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: not a journal of a write: {error}") from None

    @staticmethod
    def remove(root: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(root, FOLDER, "journal.json"))
            sync_folder(os.path.join(root, FOLDER))

    def undo(self, root: str) -> None:
        """Cut the log of a closed store back to its former end. The next open repairs queues and index.

        If the journal does not exist any more, nothing is cut: another job undid this commit, and may have appended.
        """
        lock = StoreLock(root, self.folders)
        try:
            if self.read(root) == (self.start, self.paths):
                self.cut()
                self.remove(root)
        finally:
            lock.release()

    def cut(self) -> None:
        queue = MappedFileQueue(self.folders, self._file_size, self._read_only)
        queue.load()
        truncate(queue, self.start)


def end_killed(root: str, settings: Mapping[str, Any]) -> None:
    """Cut off the rows that a killed commit appended.

    Raises RocketcError if another writer has appended after it; nothing is cut then.
    """
    if _Journal.read(root) is None:
        return
    with open_store(root, **dict(settings)) as store:
        journal = _Journal(store, ())
    lock = StoreLock(root, journal.folders)
    try:
        found = _Journal.read(root)
        if found is None:  # another job was faster
            return
        journal.start, paths = found
        appended = _appended(root, journal.start, paths)
        if appended is None:
            place = os.path.join(root, FOLDER, "journal.json")
            raise RocketcError(
                f"{root}: a write by Spark was killed at physical offset {journal.start}, and another writer has "
                f"appended since. Check the rows from there on, then delete {place} to keep them and continue"
            )
        if appended:
            journal.cut()
        journal.remove(root)
    finally:
        lock.release()
    for folder in {os.path.dirname(path) for path in paths}:
        shutil.rmtree(folder, ignore_errors=True)


def _appended(root: str, start: int, paths: Sequence[str]) -> int | None:
    """Return the number of staged rows at the end of the log; None if other messages are there."""
    count = 0
    rows = _rows(paths)
    for message in scan(root, start=start, errors="skip", unwrap=False, decompress=False):
        try:
            values = next(rows, None)
        except OSError:  # the staged files are gone
            return None
        if values is None or (message.topic, bytes(message.body), message.queue_id) != (
            values["topic"],
            values["body"],
            values.get("queue_id", 0),
        ):
            return None
        count += 1
    return count


def check_columns(schema: StructType, id_column: str | None = None) -> None:
    """Raise ValueError if rows of this schema are not messages. The columns topic and body are required.

    id_column  the column with the unique ids; None: the messages have those of their properties, if any

    >>> check_columns(StructType().add("topic", "string").add("body", "string"))
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: column body must be binary, not string
    """
    if id_column is not None:
        check_id_column(schema, id_column)
    for at, field in enumerate(schema):
        if field.name == id_column and field.name not in _COLUMNS:
            continue
        if field.name not in _COLUMNS:
            hint = near(field.name, _COLUMNS)
            raise ValueError(
                f"rocketmq: unknown column {field.name!r}{hint}: drop it; a message has {', '.join(_COLUMNS)}"
            )
        wanted = _COLUMNS[field.name]
        if type(field.dataType) is not type(wanted) or field.dataType.simpleString() != wanted.simpleString():
            raise ValueError(
                f"rocketmq: column {field.name} must be {wanted.simpleString()}, not {field.dataType.simpleString()}"
            )
        if field.name in schema.names[:at]:
            raise ValueError(f"rocketmq: column {field.name} exists twice")
    for name in ("topic", "body"):
        if name not in schema.names:
            raise ValueError(f"rocketmq: column {name} is missing; a message needs topic and body")


def check_id_column(schema: StructType, name: str) -> None:
    """Raise ValueError if the column of the option idColumn is missing, or its values are not ids."""
    found = [field.dataType.simpleString() for field in schema if field.name == name]
    if not found:
        raise ValueError(
            f"rocketmq: option idColumn={name!r}: the rows do not have this column{near(name, schema.names)}"
        )
    if found[0] not in _ID_TYPES:
        raise ValueError(f"rocketmq: option idColumn: {name} must be {' or '.join(_ID_TYPES)}, not {found[0]}")


def _check_place(root: str) -> None:
    """Raise StoreIOError if no store can be created at this path."""
    if not os.path.lexists(root):
        return
    with errors_named(root):
        names = set(os.listdir(root))
    if "commitlog" not in names and names - {FOLDER, "lost+found"}:
        raise StoreIOError(errno.ENOTEMPTY, "not a store, and not empty", root)


def batches_of(iterator: Iterable[Any], types: StructType) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows from Spark as batches; Spark 4.0 passes rows, newer versions pass batches.

    types  the schema of the rows
    """
    import pyarrow as pa

    waiting: list[dict[str, Any]] = []
    for one in iterator:
        if isinstance(one, pa.RecordBatch):
            yield one
            continue
        waiting.append(one.asDict())
        if len(waiting) >= 10_000:
            yield _as_batch(waiting, types)
            waiting = []
    if waiting:
        yield _as_batch(waiting, types)


def _as_batch(rows: list[dict[str, Any]], types: StructType) -> pyarrow.RecordBatch:
    import pyarrow as pa

    known = {field.name: field.type for field in pa.schema(Schema())}
    others = {
        "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    made = [(one.name, known.get(one.name) or others[one.dataType.simpleString()]) for one in types]
    rows = [{name: _aware(value) for name, value in row.items()} for row in rows]
    return pa.RecordBatch.from_pylist(rows, pa.schema(made))


def _aware(value: Any) -> Any:
    """Return a time with a time zone. Spark's rows have naive local times, which Arrow would read as UTC."""
    return value.astimezone(timezone.utc) if isinstance(value, datetime) and value.tzinfo is None else value


def _checked(batches: Iterable[pyarrow.RecordBatch], id_column: str | None) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches. Raises IllegalMessageError for a null topic, body or id. The store checks other columns."""
    import pyarrow.compute as pc

    before = 0
    for batch in batches:
        for name in ("topic", "body", id_column):
            if name is None:
                continue
            column = batch.column(name)
            if column.null_count:
                row = before + pc.index(column.is_null(), True).as_py()
                raise IllegalMessageError(f"rocketmq: {name} is null in row {row} of a partition")
        before += batch.num_rows
        yield batch


def _rows(paths: Sequence[str], id_column: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the arguments of store.put() for staged rows."""
    import pyarrow as pa

    for path in paths:
        with pa.OSFile(path) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                names = [name for name in batch.schema.names if name not in ASSIGNED_ON_PUT]
                columns = []
                for name in names:
                    column = batch.column(name)
                    if name == "bornTimestamp":
                        column = column.cast(pa.int64())
                    columns.append(column.to_pylist())
                ids = [None] * batch.num_rows if id_column is None else batch.column(id_column).to_pylist()
                for key, values in zip(ids, zip(*columns, strict=True), strict=True):
                    yield _message(
                        {name: value for name, value in zip(names, values, strict=True) if value is not None}, key
                    )


def _message(row: dict[str, Any], key: str | int | None) -> dict[str, Any]:
    """Return the arguments of store.put() for a staged row. key: its unique id; None: that of its properties"""
    if "bornTimestamp" in row:
        row["bornTimestamp"] //= 1000  # from us
    if "properties" in row:
        row["properties"] = dict(row["properties"])
    if key is not None:
        row["properties"] = {**row.get("properties", {}), PROPERTY_UNIQUE_KEY: str(key)}
    return put_arguments(row)


def _forget_old(root: str, own: Collection[str]) -> None:
    """Delete staged rows of jobs whose driver was killed long ago."""
    folder = os.path.join(root, FOLDER)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if name not in own and os.path.isdir(path) and time.time() - os.stat(path).st_mtime > _OLD_S:
                shutil.rmtree(path, ignore_errors=True)


def _remove_empty(root: str) -> None:
    """Remove the folder of staged rows if it is empty, and the root if it is empty, too."""
    with suppress(OSError):
        os.rmdir(os.path.join(root, FOLDER))
        os.rmdir(root)
