"""Export the messages of a scan to JSON Lines, CSV, Parquet or Arrow, as one file or a folder of partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from rocketc._arguments import whole_number
from rocketc.config_fields import Size, size_of
from rocketc.exports.columns import ROW_GROUP_BYTES, ColumnFile, gathered, schema_of
from rocketc.exports.folder import SOURCES, PartFile, Parts, fill_with_columns, fill_with_text
from rocketc.exports.formats import Format, Name, choose_format
from rocketc.exports.sinks import (
    BLOCK_BYTES,
    Sink,
    is_special,
    refuse_existing,
    refuse_existing_folder,
    sink_to_stream,
    whole_file,
    whole_folder,
)
from rocketc.files.remote import local_target
from rocketc.read import arrow_interop
from rocketc.read._message import Message
from rocketc.read.parallel import in_order, processors
from rocketc.read.scan import Scan
from rocketc.read.scan_report import ScanReport
from rocketc.rendering import HtmlRepr

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow

__all__ = ["Export", "ExportReport", "export"]

Update = Callable[[int], None]

_UPDATE_EVERY = 64  # blocks of messages between two progress reports


@dataclass(frozen=True)
class ExportReport(HtmlRepr):
    """The result of an export.

    path    the file or folder; None: a stream of the caller
    format  "jsonl", "csv", "parquet", "arrow"
    rows    number of messages
    bytes   of all files
    files   number of files
    scan    the report of the scan, with the damage found
    """

    path: str | None
    format: str
    rows: int
    bytes: int
    files: int
    scan: ScanReport


def export(
    scan: Scan,
    path: str | os.PathLike[str] | BinaryIO,
    format: str | None = None,
    *,
    partition_by: str | Sequence[str] = (),
    compression: str | None = None,
    row_group_size: Size = ROW_GROUP_BYTES,
    overwrite: bool = False,
    jobs: int | None = None,
    progress: Update | None = None,
) -> ExportReport:
    """Write the messages of a scan to a file, or to a folder of partitions, in the order of the log.

    The file or folder appears under its name when it is complete and durable. After an error or a kill, the path is
    unchanged.

    scan            its columns are written; JSON Lines have a key for each column
    path            a file, a folder if partition_by is given, or a binary file that is open for writing (Arrow then
                    uses the stream format)
    format          "jsonl", "csv", "parquet", "arrow"; None: by the suffix (.feather is "arrow"; .jsonl.gz and .csv.zst
                    are compressed), Parquet for a folder
    partition_by    some of "topic", "date" (UTC day of storeTimestamp), "queueId": the levels of the folder
    compression     Parquet: "zstd" (default), "snappy", "gzip", "lz4", "none"; Arrow: "none" (default, can be mapped),
                    "zstd", "lz4"; text: "gzip", "zstd", "none", the default is chosen by the suffix
    row_group_size  approximate bytes of a row group in memory, a number or text such as "64MiB"; at most 2**20 rows
    overwrite       replace an existing file, or a folder that contains only what an older export wrote: a manifest
                    beside the folder, .NAME.rocketc-export.json, lists it
    jobs            number of threads; None: the number of cores, up to 8
    progress        called with the bytes of the log read so far

    Raises ValueError for options that contradict each other, FileExistsError, StoreFullError if the disk is full,
    StoreIOError for other errors when writing, and the errors of reading the scan.

    >>> import pathlib, tempfile, rocketc
    >>> path = pathlib.Path(tempfile.mkdtemp(), "orders.csv")
    >>> rocketc.export(rocketc.decode(rocketc.encode("orders", b"hi"), columns=["topic", "body"]), path).rows
    1
    >>> path.read_text().splitlines()
    ['topic,body,bodyBase64', 'orders,hi,']
    """
    return Export(scan, path, format, partition_by, compression, row_group_size, overwrite, jobs).run(progress)


class Export:
    """An export with checked options; run() does the work."""

    def __init__(
        self,
        scan: Scan,
        path: str | os.PathLike[str] | BinaryIO,
        format: str | None = None,
        partition_by: str | Sequence[str] = (),
        compression: str | None = None,
        row_group_size: Size = ROW_GROUP_BYTES,
        overwrite: bool = False,
        jobs: int | None = None,
    ) -> None:
        self._scan = scan
        self._columns = list(scan.column_names)
        self._by = _checked_partition(partition_by)
        self._overwrite = overwrite
        self._row_group_size = size_of("row_group_size", row_group_size, 1)
        self._jobs = whole_number("jobs", jobs, 1, (1 << 31) - 1) if jobs is not None else min(processors(), 8)
        self.path, self._stream = None, None
        if isinstance(path, (str, os.PathLike)):
            self.path = os.fspath(path)
            local_target(path, "export()")
        else:
            self._stream = path
        if self.path is not None and not self._by and (self.path.endswith(os.sep) or os.path.isdir(self.path)):
            raise ValueError(f"{self.path!r} is a folder: give partition_by to write a folder")
        default: Name | None = "parquet" if self._by else None
        self.format: Format = choose_format(self.path or "", format, compression, default)
        if self._by and not self._columns_inside():
            raise ValueError("all columns are in partition_by: select at least one more")
        self._check_place()

    def _check_place(self) -> None:
        if self.path is None:
            if self._by:
                raise ValueError("partition_by needs a folder, not a stream")
            return
        for inside in _folders_read(self._scan):
            if _is_within(self.path, inside):
                raise ValueError(f"{self.path!r} is inside {inside!r}, which is read; choose another path")
        for file in _files_read(self._scan):
            if os.path.realpath(file) == os.path.realpath(self.path) or (self._by and _is_within(file, self.path)):
                raise ValueError(f"{self.path!r} contains {file!r}, which is read; choose another path")
        if self._by:
            refuse_existing_folder(self.path, self._overwrite)
        elif not is_special(self.path):
            refuse_existing(os.path.realpath(self.path), self._overwrite, self.path)

    def run(self, progress: Update | None = None, check: Callable[[ScanReport], None] | None = None) -> ExportReport:
        """Run the export.

        check  called when all rows are written, before the file or folder gets its name: after an exception that it
               raises, the path is unchanged

        >>> import io, rocketc
        >>> out = io.BytesIO()
        >>> Export(rocketc.decode(rocketc.encode("orders", b"hi"), columns=["body"]), out, "jsonl").run().bytes
        15
        """
        update = progress or (lambda done: None)
        check = check or (lambda report: None)
        if self.path is not None and self._by:
            with whole_folder(self.path, self._overwrite) as root:
                size, files = self._fill(root, update)
                check(self._scan.report)
        elif self.path is not None:
            with whole_file(self.path, self._overwrite) as sink:
                size, files = self._write(sink, is_special(self.path), update), 1
                check(self._scan.report)
        else:
            assert self._stream is not None
            sink = sink_to_stream(self._stream)
            size, files = self._write(sink, True, update), 1
            check(self._scan.report)
        report = self._scan.report
        return ExportReport(self.path, self.format.name, report.records, size, files, report)

    def _file(self, sink: Sink, header: bytes, columns: Sequence[str], stream: bool) -> PartFile:
        if self.format.is_text:
            from rocketc.exports.text import TextFile, packer

            return TextFile(sink, header, packer(self.format.compression))
        return ColumnFile(sink, self.format, schema_of(columns), self._row_group_size, self._scan.is_ordered, stream)

    def _write(self, sink: Sink, stream: bool, update: Update) -> int:
        """Write all rows to one file; return its size in bytes."""
        text = self.format.is_text
        # A write to a pipe may block forever, and Ctrl-C interrupts it only in the main thread.
        with self._threads(1 if not text else self._jobs, text or not stream) as pool:
            try:
                file = self._write_text(sink, update, pool) if text else self._write_columns(sink, stream, update, pool)
                file.close()
                sink.flush()
            except BaseException:
                sink.drop()
                raise
        return sink.bytes

    def _write_text(self, sink: Sink, update: Update, pool: Executor | None) -> PartFile:
        from rocketc.exports.text import encoder, in_blocks, packer

        header, encode = encoder(self.format, self._columns)
        file = self._file(sink, header, self._columns, False)
        pack = packer(self.format.compression)
        texts = in_blocks(map(encode, self._blocks(update)), BLOCK_BYTES)
        for packed in in_order(pack, texts, pool, 2 * self._jobs):
            file.write(packed)
        return file

    def _write_columns(self, sink: Sink, stream: bool, update: Update, pool: Executor | None) -> PartFile:
        """Write a row group while the next one is decoded: both release the GIL."""
        file = self._file(sink, b"", self._columns, stream)
        for _ in in_order(file.write, gathered(self._batches(self._columns, update), self._row_group_size), pool, 1):
            pass
        return file

    def _columns_inside(self) -> list[str]:
        """Return the columns in the files of a partitioned folder; the others are in the names of the folders."""
        whole = self.format.name == "jsonl"  # a line is the same in any file
        return [name for name in self._columns if whole or name not in self._by]

    def _fill(self, root: str, update: Update) -> tuple[int, int]:
        """Write all rows to the partitions of a folder; return the numbers of bytes and files."""
        from rocketc.exports.text import encoder, packer

        assert self.path is not None
        columns = self._columns_inside()
        header, encode = encoder(self.format, columns) if self.format.is_text else (b"", None)
        parts = Parts(root, self.path, self._by, self.format.suffix, lambda to: self._file(to, header, columns, False))
        with self._threads(self._jobs, True) as pool:
            try:
                if encode is not None:
                    pack = packer(self.format.compression)
                    fill_with_text(self._blocks(update), self._by, parts, encode, pack, pool)
                else:
                    needed = [SOURCES[by] for by in self._by if SOURCES[by] not in self._columns]
                    batches = self._batches([*self._columns, *needed], update)
                    fill_with_columns(batches, columns, self._by, parts, pool)
                parts.close()
            except BaseException:
                parts.drop()
                raise
        return parts.bytes, parts.files

    def _threads(self, number: int, useful: bool) -> AbstractContextManager[Executor | None]:
        """Return a pool of threads, or None if they could only do work that holds the GIL."""
        if self._jobs == 1 or not useful or (self.format.is_text and self.format.compression == "none"):
            return nullcontext()
        from concurrent.futures import ThreadPoolExecutor  # its import takes a tenth of the start time of a command

        return ThreadPoolExecutor(number)

    def _batches(self, columns: Sequence[str], update: Update) -> Iterator[pyarrow.RecordBatch]:
        run = self._scan.run(columns)
        for batch in arrow_interop.record_batches(run.batches()):
            update(run.report().bytes)
            yield batch

    def _blocks(self, update: Update) -> Iterator[list[Message]]:
        run = self._scan.run([], body="body" in self._columns)
        for number, block in enumerate(run.blocks()):
            if not number % _UPDATE_EVERY:
                update(run.report().bytes)
            yield block


def _checked_partition(by: str | Sequence[str]) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else tuple(by)
    for name in names:
        if name not in SOURCES:
            raise ValueError(f"partition_by: unknown name {name!r}; use {', '.join(SOURCES)}")
        if names.count(name) > 1:
            raise ValueError(f"partition_by: {name!r} is given twice")
    return names


def _files_read(scan: Scan) -> list[str]:
    return [file.path for log in scan.logs for file in log.files]


def _folders_read(scan: Scan) -> set[str]:
    """Return the folders in which nothing may be written: those given to the scan, and the stores of its files."""
    given = scan.path if isinstance(scan.path, list) else [scan.path]
    folders = {os.fspath(path) for path in given if scan.logs and os.path.isdir(path)}
    for folder in {os.path.dirname(os.path.realpath(file)) for file in _files_read(scan)}:
        if os.path.basename(folder) == "commitlog":
            folders.add(os.path.dirname(folder))
    return folders


def _is_within(path: str, folder: str) -> bool:
    inner, outer = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([inner, outer]) == outer
