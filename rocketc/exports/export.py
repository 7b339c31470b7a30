"""Messages of a scan as files for other tools: JSON Lines, CSV, Parquet, Arrow; one file, or a folder of partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from rocketc.exports.columns import ROW_GROUP_BYTES, ColumnFile, gathered, schema_of
from rocketc.exports.folder import SOURCES, PartFile, Parts, fill_with_columns, fill_with_text, is_partition
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
from rocketc.read import arrow_interop
from rocketc.read._message import Message
from rocketc.read.parallel import in_order, processors
from rocketc.read.scan import Scan, ScanReport
from rocketc.rendering import HtmlRepr

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow

__all__ = ["Export", "ExportReport", "export"]

Tell = Callable[[int], None]

_TOLD_EVERY = 64  # blocks of messages


@dataclass(frozen=True)
class ExportReport(HtmlRepr):
    """What an export has written.

    path    the file or folder; None: a stream of the caller's
    format  "jsonl", "csv", "parquet", "arrow"
    rows    messages
    bytes   of all files
    files   how many
    scan    what was read, and the damage that was met
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
    row_group_size: int = ROW_GROUP_BYTES,
    overwrite: bool = False,
    jobs: int | None = None,
    progress: Tell | None = None,
) -> ExportReport:
    """Write the messages of a scan to a file, or to a folder of partitions, in the order of the log.

    The name appears when all is written and on the disk: an error or a kill leaves what was there before.

    scan            its columns are written; JSON Lines have a key for each
    path            file, folder if there is partition_by, or a binary file that is open for writing (Arrow is a
                    stream then)
    format          "jsonl", "csv", "parquet", "arrow"; None: the suffix says it (.feather is "arrow"; .jsonl.gz,
                    .csv.zst are compressed); a folder is Parquet
    partition_by    some of "topic", "date" (UTC day of storeTimestamp), "queueId": the levels of the folder
    compression     Parquet: "zstd" (default), "snappy", "gzip", "lz4", "none"; Arrow: "none" (default, can be mapped),
                    "zstd", "lz4"; text: as the suffix says, or "gzip", "zstd", "none"
    row_group_size  bytes of a row group in memory, about; it has no more than 2**20 rows
    overwrite       replace an existing file, or a folder that holds nothing but an older export
    jobs            threads, None: as many as cores
    progress        called with the bytes of the log that are done
    Raises ValueError for options that do not fit, FileExistsError, StoreFullError if the disk is full, StoreIOError
    for what else goes wrong in writing, and what reading the scan raises.

    >>> import pathlib, tempfile, rocketc
    >>> path = pathlib.Path(tempfile.mkdtemp(), "orders.csv")
    >>> rocketc.export(rocketc.decode(rocketc.encode("orders", b"hi"), columns=["topic", "body"]), path).rows
    1
    >>> path.read_text().splitlines()
    ['topic,body,bodyBase64', 'orders,hi,']
    """
    return Export(scan, path, format, partition_by, compression, row_group_size, overwrite, jobs).run(progress)


class Export:
    """An export whose options are checked and fit; run() does it."""

    def __init__(
        self,
        scan: Scan,
        path: str | os.PathLike[str] | BinaryIO,
        format: str | None = None,
        partition_by: str | Sequence[str] = (),
        compression: str | None = None,
        row_group_size: int = ROW_GROUP_BYTES,
        overwrite: bool = False,
        jobs: int | None = None,
    ) -> None:
        self._scan = scan
        self._columns = list(scan.column_names)
        self._by = _checked_partition(partition_by)
        self._overwrite = overwrite
        self._row_group_size = _at_least_1("row_group_size", row_group_size)
        self._jobs = _at_least_1("jobs", jobs) if jobs is not None else min(processors(), 8)
        self.path, self._stream = None, None
        if isinstance(path, (str, os.PathLike)):
            self.path = os.fspath(path)
        else:
            self._stream = path
        if self.path is not None and not self._by and (self.path.endswith(os.sep) or os.path.isdir(self.path)):
            raise ValueError(f"{self.path!r} is a folder: partition_by says what stands in it")
        default: Name | None = "parquet" if self._by else None
        self.format: Format = choose_format(self.path or "", format, compression, default)
        if self._by and not self._columns_inside():
            raise ValueError("no column is left beside partition_by")
        self._check_place()

    def _check_place(self) -> None:
        if self.path is None:
            if self._by:
                raise ValueError("partition_by needs a folder, not a stream")
            return
        for inside in _folders_read(self._scan):
            if _is_within(self.path, inside):
                raise ValueError(f"{self.path!r} lies in {inside!r}, which is read")
        for file in _files_read(self._scan):
            if os.path.realpath(file) == os.path.realpath(self.path) or (self._by and _is_within(file, self.path)):
                raise ValueError(f"{self.path!r} holds {file!r}, which is read")
        if self._by:
            refuse_existing_folder(self.path, self._overwrite, is_partition)
        elif not is_special(self.path):
            refuse_existing(os.path.realpath(self.path), self._overwrite, self.path)

    def run(self, progress: Tell | None = None) -> ExportReport:
        """Do it.

        >>> import io, rocketc
        >>> out = io.BytesIO()
        >>> Export(rocketc.decode(rocketc.encode("orders", b"hi"), columns=["body"]), out, "jsonl").run().bytes
        15
        """
        tell = progress or (lambda done: None)
        if self.path is not None and self._by:
            with whole_folder(self.path, self._overwrite, is_partition) as root:
                size, files = self._fill(root, tell)
        elif self.path is not None:
            with whole_file(self.path, self._overwrite) as sink:
                size, files = self._write(sink, is_special(self.path), tell), 1
        else:
            assert self._stream is not None
            sink = sink_to_stream(self._stream)
            size, files = self._write(sink, True, tell), 1
        report = self._scan.report
        return ExportReport(self.path, self.format.name, report.records, size, files, report)

    def _file(self, sink: Sink, header: bytes, columns: Sequence[str], stream: bool) -> PartFile:
        if self.format.is_text:
            from rocketc.exports.text import TextFile, packer

            return TextFile(sink, header, packer(self.format.compression))
        ordered = len(self._scan.logs) < 2
        return ColumnFile(sink, self.format, schema_of(columns), self._row_group_size, ordered, stream)

    def _write(self, sink: Sink, stream: bool, tell: Tell) -> int:
        """All rows into one file; its bytes."""
        text = self.format.is_text
        # What is written to a pipe may wait for ever: Ctrl-C ends that only in the thread that began.
        with self._threads(1 if not text else self._jobs, text or not stream) as pool:
            try:
                file = self._write_text(sink, tell, pool) if text else self._write_columns(sink, stream, tell, pool)
                file.close()
                sink.flush()
            except BaseException:
                sink.drop()
                raise
        return sink.bytes

    def _write_text(self, sink: Sink, tell: Tell, pool: Executor | None) -> PartFile:
        from rocketc.exports.text import encoder, in_blocks, packer

        header, encode = encoder(self.format, self._columns)
        file = self._file(sink, header, self._columns, False)
        pack = packer(self.format.compression)
        texts = in_blocks(map(encode, self._blocks(tell)), BLOCK_BYTES)
        for packed in in_order(pack, texts, pool, 2 * self._jobs):
            file.write(packed)
        return file

    def _write_columns(self, sink: Sink, stream: bool, tell: Tell, pool: Executor | None) -> PartFile:
        """While a row group is written, the next one is decoded: both let go of the GIL."""
        file = self._file(sink, b"", self._columns, stream)
        for _ in in_order(file.write, gathered(self._batches(self._columns, tell), self._row_group_size), pool, 1):
            pass
        return file

    def _columns_inside(self) -> list[str]:
        """Those in the files of a folder of partitions; the names of the folders tell the others."""
        whole = self.format.name == "jsonl"  # a line is the same wherever it stands
        return [name for name in self._columns if whole or name not in self._by]

    def _fill(self, root: str, tell: Tell) -> tuple[int, int]:
        """All rows into the partitions of a folder; bytes and files."""
        from rocketc.exports.text import encoder, packer

        assert self.path is not None
        columns = self._columns_inside()
        header, encode = encoder(self.format, columns) if self.format.is_text else (b"", None)
        parts = Parts(root, self.path, self._by, self.format.suffix, lambda to: self._file(to, header, columns, False))
        with self._threads(self._jobs, True) as pool:
            try:
                if encode is not None:
                    pack = packer(self.format.compression)
                    fill_with_text(self._blocks(tell), self._by, parts, encode, pack, pool)
                else:
                    needed = [SOURCES[by] for by in self._by if SOURCES[by] not in self._columns]
                    batches = self._batches([*self._columns, *needed], tell)
                    fill_with_columns(batches, columns, self._by, parts, pool)
                parts.close()
            except BaseException:
                parts.drop()
                raise
        return parts.bytes, parts.files

    def _threads(self, number: int, useful: bool) -> AbstractContextManager[Executor | None]:
        """Threads beside this one; none if there is nothing to do for them but what holds the GIL."""
        if self._jobs == 1 or not useful or (self.format.is_text and self.format.compression == "none"):
            return nullcontext()
        from concurrent.futures import ThreadPoolExecutor  # takes a tenth of the time to start a command

        return ThreadPoolExecutor(number)

    def _batches(self, columns: Sequence[str], tell: Tell) -> Iterator[pyarrow.RecordBatch]:
        run = self._scan.run(columns)
        for batch in arrow_interop.record_batches(run.batches()):
            tell(run.report().bytes)
            yield batch

    def _blocks(self, tell: Tell) -> Iterator[list[Message]]:
        run = self._scan.run([])
        for number, block in enumerate(run.blocks()):
            if not number % _TOLD_EVERY:
                tell(run.report().bytes)
            yield block


def _checked_partition(by: str | Sequence[str]) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else tuple(by)
    for name in names:
        if name not in SOURCES:
            raise ValueError(f"partition_by: {name!r} is none of {', '.join(SOURCES)}")
        if names.count(name) > 1:
            raise ValueError(f"partition_by: {name!r} comes twice")
    return names


def _at_least_1(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name}={value}: at least 1")
    return value


def _files_read(scan: Scan) -> list[str]:
    return [file.path for log in scan.logs for file in log.files]


def _folders_read(scan: Scan) -> set[str]:
    """Where nothing may be written: the folders that the scan was given, and the stores that its files belong to."""
    given = scan.path if isinstance(scan.path, list) else [scan.path]
    folders = {os.fspath(path) for path in given if scan.logs and os.path.isdir(path)}
    for folder in {os.path.dirname(os.path.realpath(file)) for file in _files_read(scan)}:
        if os.path.basename(folder) == "commitlog":
            folders.add(os.path.dirname(folder))
    return folders


def _is_within(path: str, folder: str) -> bool:
    inner, outer = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([inner, outer]) == outer
