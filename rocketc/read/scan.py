"""Scan: iterate over the messages of a log, or read them as Arrow columns, with filters."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from rocketc._arguments import seconds_of, whole_number
from rocketc.config_fields import Size, size_of, unknown_keyword
from rocketc.files.paths import Log, LogFile, Paths, local_of, resolve
from rocketc.files.remote import Options, is_url, shown
from rocketc.read import arrow_interop
from rocketc.read._arrow import Schema, stream_capsule
from rocketc.read._few_records import few_messages
from rocketc.read._filter import Filter
from rocketc.read._message import Message
from rocketc.read.scan_options import (
    Crc,
    Errors,
    Offsets,
    Reading,
    Sql,
    Texts,
    Topics,
    Unreadable,
    When,
    checked_offsets,
)
from rocketc.read.scan_report import ScanReport
from rocketc.read.scan_run import ScanRun
from rocketc.read.schemes import find_factory
from rocketc.rendering import HtmlRepr

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Buffer

INT64 = (-(1 << 63), (1 << 63) - 1)

# Shared by all calls of decode() with default options; never modified.
_PLAIN = Reading()
_NO_FILTER = Filter()
_USUAL = (_PLAIN.errors, _PLAIN.crc, _PLAIN.batch_bytes, _PLAIN.max_decompressed)


class Scan(HtmlRepr):
    """The messages of commit log files, read on demand. Created by rocketc.scan() and rocketc.decode().

    Iteration returns Message objects. batches(), to_arrow() and all consumers of the Arrow PyCapsule protocol (DuckDB,
    Polars, pandas, pyarrow, nanoarrow) get columns. Each pass starts from the beginning, and `report` describes the
    latest pass. Use a pass in one thread only. Several passes, also of one Scan, may run in several threads, and
    columns are decoded without the GIL.

    >>> import rocketc
    >>> scan = rocketc.decode(rocketc.encode("orders", b"hi") + b"no record", errors="skip")
    >>> [m.body for m in scan]
    [b'hi']
    >>> scan.report.damage
    [Damage(file=None, start=99, stop=108, reason='bad_magic')]

    path  the path given to scan(), or the buffer's name given to decode(), or None
    logs  the logs that are read; empty for a buffer
    """

    # Class attributes, so that decode() of a short buffer with default options creates as little as possible.
    _reading = _PLAIN
    _filter = _NO_FILTER
    _asked: Mapping[str, object] = {}
    _column_names: list[str] | None = None
    _pass: ScanRun | list[Message] | None = None

    def __init__(
        self,
        logs: list[Log],
        path: Paths | LogFile | Log | None,
        buffer: Any,
        base: int | None,
        filter: Filter,
        reading: Reading,
        asked: Mapping[str, object],
    ) -> None:
        self.logs = logs
        self.path: Any = path
        self._listed: Any = None if isinstance(path, (Log, LogFile)) else path  # is listed again if its files are gone
        self._buffer = buffer
        self._base = base
        self._filter = filter
        self._reading = reading
        self._asked = {name: value for name, value in asked.items() if value is not None}
        self._column_names = Schema(reading.columns).names

    @property
    def is_ordered(self) -> bool:
        """Whether a pass returns the messages in ascending order of their physical offsets."""
        return len(self.logs) < 2

    @property
    def column_names(self) -> list[str]:
        """The columns of batches, in order."""
        if self._column_names is None:
            self._column_names = Schema(self._reading.columns).names
        return self._column_names

    def __repr__(self) -> str:
        texts = [*self._source(), *(f"{name}={text}" for name, text in self._options())]
        return f"<rocketc.Scan of {', '.join(texts)}>"

    def describe(self) -> list[tuple[str, str]]:
        """Return names and values as text: `log` and `size`, then the options that differ from their defaults.

        >>> import rocketc
        >>> rocketc.decode(b"", topics="orders").describe()
        [('log', 'a buffer'), ('size', '0 bytes'), ('topics', "'orders'")]
        """
        log, size = self._source()
        return [("log", log), ("size", size), *self._options()]

    def _source(self) -> tuple[str, str]:
        if self._buffer is not None:
            return "a buffer" if self.path is None else str(self.path), f"{self.bytes} bytes"
        names = [file.name for log in self.logs for file in log.files]
        one = isinstance(self.path, (str, os.PathLike))
        log = shown(os.fspath(self.path)) if one else names[0] if len(names) == 1 else f"{len(names)} files"
        return log, f"{self.bytes} bytes in {len(names)} file{'s' * (len(names) != 1)}"

    def _options(self) -> Iterator[tuple[str, str]]:
        """Yield the options of scan() that differ from their defaults, with their values as text of limited length."""
        usual = Reading()
        asked = {name: value for name, value in vars(self._reading).items() if value != getattr(usual, name)}
        for name, value in {**self._asked, **asked}.items():
            if name != "storage":
                text = repr(value)
                yield name, text if len(text) <= 80 else f"{text[:76]} ..."

    def _is_outside(self, file: LogFile) -> bool:
        """Whether no record of the file can begin in [start, stop)."""
        if file.base is None:
            return False
        start, stop = self._reading.start, self._reading.stop
        before = start is not None and file.next_base <= start
        return before or (stop is not None and file.base >= stop)

    def _lost(self, log: Log) -> Iterator[tuple[int, int]]:
        """Yield the ranges in [start, stop) whose files were lost, unless the caller reads a part of the log."""
        return log.lost_between(self._reading.start, self._reading.stop) if not self._reading.partial else iter(())

    def _missing_topics(self) -> str | None:
        """Return a line about the topics of this scan if no store has any of them, or None.

        A scan of files, such as one that by_file() returns, is a part of a larger one: other files may have them.
        """
        asked: Any = self._asked.get("topics")
        topics = [asked] if isinstance(asked, (str, re.Pattern)) else list(asked or ())
        given = [self.path] if isinstance(self.path, (str, os.PathLike)) else self.path
        if not topics or self._buffer is not None or not isinstance(given, list):
            return None
        paths = [local_of(os.fspath(path)) for path in given]
        if any(is_url(path) or not os.path.isdir(path) for path in paths):
            return None
        from rocketc.read.topics import known_topics, missing_text, not_among  # late: keeps the start of commands fast

        known = known_topics(paths)
        if known is None and (len(self._asked) > 1 or self._reading.is_narrow or self.bytes == 0):
            return None  # the folders are not a store, and the other options may have left out the messages
        missing = not_among(topics, known or ())
        where = "this store" if len(paths) == 1 else "these stores"
        return missing_text(missing, known or (), where) if len(missing) == len(topics) else None

    def run(self, columns: Sequence[str] | None, body: bool = True) -> ScanRun:
        """Start a pass: its blocks() returns messages (columns: []), its batches() returns batches of these columns.

        body  False: the bodies of the messages are not used, and are not decompressed

        >>> import rocketc
        >>> [len(block) for block in rocketc.decode(rocketc.encode("t", b"a")).run([]).blocks()]
        [1]
        """
        self._pass = run = ScanRun(self, columns, body=body)
        return run

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages in log order.

        >>> import rocketc
        >>> two = rocketc.encode("t", b"a") + rocketc.encode("t", b"b", phy_offset=93)
        >>> [m.body for m in rocketc.decode(two)]
        [b'a', b'b']
        """
        if self._reading is _PLAIN:
            few = few_messages(self._buffer, self._base, self.path)
            if few is not None:
                self._pass = few
                return iter(few)
        return itertools.chain.from_iterable(self.run([]).blocks())

    def follow(self, poll: float = 0.1, idle: Callable[[], None] | None = None) -> Iterator[Message]:
        """Iterate over the messages in the log and all later ones, without end or up to the `stop` of the scan.

        poll  seconds between two checks for new messages
        idle  called before each wait; an exception that it raises ends the iteration

        Requires one log whose files are named by their offset. Raises ValueError for a buffer or several logs.

        >>> import pathlib, tempfile, rocketc
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "00000000000000000000").write_bytes(rocketc.encode("t", b"first") + bytes(100))
        >>> next(rocketc.scan(folder).follow()).body
        b'first'
        """
        poll = seconds_of("poll", poll, least=0)
        if len(self.logs) != 1:
            raise ValueError("follow() needs one commit log")
        if any(is_url(file.path) for file in self.logs[0].files):
            raise ValueError("follow() reads local files only, not URLs")
        self._pass = run = ScanRun(self, [], follow=poll, idle=idle)
        return itertools.chain.from_iterable(run.blocks())

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Read batches of about batch_bytes as pyarrow.RecordBatch (extra `arrow`).

        >>> import rocketc
        >>> [batch.num_rows for batch in rocketc.decode(rocketc.encode("t", b"a")).batches()]
        [1]
        """
        return arrow_interop.record_batches(self.run(self.column_names).batches())

    def to_arrow(self) -> pyarrow.Table:
        """Read everything into one pyarrow.Table (extra `arrow`).

        >>> import rocketc
        >>> rocketc.decode(rocketc.encode("t", b"a"), columns=["topic", "body"]).to_arrow().to_pylist()
        [{'topic': 't', 'body': b'a'}]
        """
        return arrow_interop.table(self.run(self.column_names).batches(), self.column_names)

    def count(self) -> int:
        """Count the messages. They are checked as by iteration, but compressed bodies are not decompressed.

        >>> import rocketc
        >>> rocketc.decode(rocketc.encode("t", b"a")).count()
        1
        """
        run = self.run([])
        for _ in run.batches():
            pass
        return run.report().records

    def by_file(self) -> list[Scan]:
        """Return one scan per file, in log order. They can be read in parallel, and together they equal this scan.

        Each has its own report; ScanReport.total() adds them up.

        >>> import pathlib, tempfile, rocketc
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for base in (0, 100):
        ...     record = rocketc.encode("t", b"123456789", phy_offset=base)  # 100 bytes
        ...     _ = (folder / f"{base:020d}").write_bytes(record)
        >>> [[m.phy_offset for m in part] for part in rocketc.scan(folder).by_file()]
        [[0], [100]]
        """
        if self._buffer is not None:
            return [self]
        out = []
        for log in self.logs:
            lost = list(log.lost)
            for file in log.files:
                if not self._is_outside(file):
                    missing = tuple(gap for gap in log.missing if gap[0] == file.next_base)
                    mine = tuple(gap for gap in lost if gap[0] == file.next_base or gap[1] == file.origin)
                    lost = [gap for gap in lost if gap not in mine]
                    one = self._part(replace(log, files=(file,), missing=missing, lost=mine), file.path)
                    one._listed = self._listed if len(self.logs) == 1 and file is log.files[-1] else None
                    out.append(one)
            if len(lost) == len(log.lost) and any(self._lost(log)):  # all of [start, stop) is in a lost file
                out.append(self._part(replace(log, files=(), missing=()), self.path))
        return out

    def around_start(self) -> Scan:
        """Return this scan, with the record that `start` is in: `start` may be any byte of a record.

        >>> import pathlib, tempfile, rocketc
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "00000000000000000000").write_bytes(rocketc.encode("t", b"a"))
        >>> scan = rocketc.scan(folder, start=7)
        >>> scan.count(), scan.around_start().count()
        (0, 1)
        """
        reading = replace(self._reading, around=True)
        return Scan(self.logs, self.path, self._buffer, self._base, self._filter, reading, self._asked)

    def _part(self, log: Log, path: Any) -> Scan:
        return Scan([log], path, None, None, self._filter, self._reading, self._asked)

    @property
    def bytes(self) -> int:
        """Number of bytes that a pass reads: the size of the buffer, or of all files together.

        >>> import rocketc
        >>> rocketc.decode(bytes(100)).bytes
        100
        """
        if self._buffer is not None:
            return len(self._buffer)
        return sum(file.size for log in self.logs for file in log.files if not self._is_outside(file))

    @property
    def report(self) -> ScanReport:
        """The report of the latest pass so far."""
        if isinstance(self._pass, list):
            size = len(self._buffer)
            return ScanReport(records=len(self._pass), bytes=size, files=1, end=self._pass[0].phy_offset + size)
        return self._pass.report() if self._pass is not None else ScanReport()

    def __reduce__(self) -> Any:
        """Pickle the scan: its files and options, or the bytes of its buffer; not the report of a pass.

        A scan in another process reads the same files, which must be there. `where` must be a function of a module, and
        the values of storage_options, secrets too, are in the pickle.

        >>> import pickle, rocketc
        >>> [m.body for m in pickle.loads(pickle.dumps(rocketc.decode(rocketc.encode("t", b"a"), topics="t")))]
        [b'a']
        """
        buffer = self._buffer if self._buffer is None else bytes(self._buffer)
        return _scan_of, (self.logs, self.path, buffer, self._base, self._reading, dict(self._asked))

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refuse to become an array of Message objects: pandas.DataFrame(scan) asks for one."""
        raise TypeError(
            "a Scan is not an array; for a pandas.DataFrame call scan.to_arrow().to_pandas(), or "
            "pandas.DataFrame.from_arrow(scan) with pandas 3"
        )

    def __arrow_c_schema__(self) -> object:
        return Schema(self.column_names).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Start a new pass as an Arrow stream.

        Raises ValueError if the requested schema has other columns; its types are ignored.
        """
        return stream_capsule(self.run(self.column_names).batches(), self.column_names, requested_schema)


def _scan_of(
    logs: list[Log], path: Any, buffer: bytes | None, base: int | None, reading: Reading, asked: dict[str, Any]
) -> Scan:
    """Return an unpickled scan."""
    return Scan(logs, path, buffer, base, Filter(**asked, unwrap=reading.unwrap), reading, asked)


_ASKED = ("topics", "queues", "tags", "keys", "sql", "begin", "end", "offsets")  # arguments of scan() for the filter


def _asked_for(logs: list[Log], path: Any, buffer: Any, base: int | None, reading: Reading, *asked: Any) -> Scan:
    """Create a scan; asked are the values of _ASKED."""
    named = dict(zip(_ASKED, asked, strict=True))
    return Scan(logs, path, buffer, base, Filter(**named, unwrap=reading.unwrap), reading, named)


def scan(
    path: Paths | LogFile | Log,
    *,
    topics: Topics | None = None,
    queues: int | Iterable[int] | None = None,
    tags: Texts | None = None,
    keys: Texts | None = None,
    sql: Sql | None = None,
    begin: When | None = None,
    end: When | None = None,
    offsets: Offsets | None = None,
    start: int | None = None,
    stop: int | None = None,
    columns: Sequence[str] | None = None,
    where: Callable[[Message], bool] | None = None,
    errors: Errors = "raise",
    crc: Crc = "body",
    decompress: bool = True,
    unwrap: bool = True,
    batch_bytes: Size = 16 << 20,
    max_decompressed: Size = 64 << 20,
    storage_options: Options | None = None,
    partial: bool = False,
    unreadable: Unreadable = "raise",
    credentials: object = None,
    tls: object = False,
    group: str | None = None,
    all_topics: bool = False,
    **unknown: NoReturn,
) -> Scan:
    """Read the messages of a RocketMQ commit log, without a broker. The log may be in use, copied or damaged.

    Or read the topics of a running cluster: rocketmq://127.0.0.1:9876/orders, with the address of a name server. A pass
    then reads the messages that are there when it begins, and leaves nothing in the brokers.

    path        store root, commit log folder, file, glob, or a list of them. URLs need the extra `remote`: s3://,
                hdfs://, gs://, http://, and all others that fsspec supports. A cluster: rocketmq://HOST:PORT/TOPIC,
                with more name servers after `;`. A `*` in the topic is any text, see all_topics
    topics      names, and compiled patterns that match the whole topic. If the scan finds no message, and the store
                does not have these topics, a MissingTopicWarning names the most similar one. Of a cluster: for a URL
                without a topic
    queues      queue ids
    tags        the message's TAGS is one of them; "A||B" is both, "*" is all
    keys        one of them is among the blank-separated KEYS, or is UNIQ_KEY
    sql         an SQL92 filter over the properties, in RocketMQ's language (extra `sql`): "price > 10 AND a IS NULL".
                A broker with the same subscription returns the same messages
    begin, end  store timestamps, [begin, end): ms since the epoch, or aware datetimes
    offsets     {topic: {queue id: (begin, end)}}: queue offsets, [begin, end), None for no bound. As in Spark, -2 as
                begin is the first message, and -1 as end is the end of the queue. Of a topic listed here only the
                listed queues pass; None as queue id means all other queues. Of a cluster: a queue id is that of a
                queue on each broker
    start, stop physical offsets, [start, stop): records whose first byte is in this range
    columns     names and order of the Arrow columns; None: all
    where       a predicate of Message, applied last
    errors      "raise": raise CorruptRecordError at the first damage; "skip": continue at the next record; "report":
                continue and issue a DamageWarning. With both, `report.damage` lists the lost ranges
    crc         "none"; "body": check BODYCRC of each record returned; "full": check the property CRC too, if there is
                one
    decompress  decompress zlib, LZ4 and zstd bodies, each up to max_decompressed bytes. LZ4 and zstd need the extra
                `compression`; without it, such a message is damage (`missing_codec`), and "raise" raises
                MissingCodecError
    unwrap      return the messages of an inner batch instead of the batch
    batch_bytes approximate bytes of the stored records in an Arrow batch; this and max_decompressed may be text such as
                "64MiB"
    storage_options  options for fsspec's file systems of URLs: {"key": ..., "secret": ...}; never shown
    partial     the path has only a part of the log: do not report a file that is missing between two others.
                Without it, such a file in [start, stop) is damage (`missing_file`). Files before the first one were
                deleted because they were old, and files that the path leaves out are not read: neither is damage
    unreadable  of a file without permission or with a disk error: "raise": raise StoreIOError; "skip": the file is
                damage (`no_permission`, `unreadable`), unless errors is "raise"
    credentials of a cluster: the account that signs requests, a rocketc.client.Credentials; never shown
    tls         of a cluster: True, or a rocketc.client.Tls
    group       of a cluster: the consumer group of the pulls, for accounts that may not use TOOLS_CONSUMER
    all_topics  of a cluster: a `*` or a pattern matches RocketMQ's own topics, too: retries, dead letters, delayed and
                half messages. Without it, name them, or their beginning: %DLQ%*

    start, stop, storage_options, partial and unreadable are for files. Raises StoreIOError at once for a path that
    cannot be read, ValueError and TypeError for invalid options (SqlError, a ValueError, for a wrong filter). A pass of
    a cluster raises TopicNotFoundError, NotSentError, NoAnswerError, ConnectionLostError or AnswerError.

    >>> import pathlib, tempfile, rocketc
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> record = rocketc.encode("orders", b"hi", properties={"TAGS": "A"})
    >>> _ = (folder / "00000000000000000000").write_bytes(record)
    >>> [m.body for m in rocketc.scan(folder, topics="orders", tags="A")]
    [b'hi']
    """
    if unknown:
        raise unknown_keyword(scan, unknown)
    offsets = offsets and checked_offsets(offsets)
    if not isinstance(path, (str, os.PathLike, LogFile, Log)):
        path = list(path)
    sizes = size_of("batch_bytes", batch_bytes, 1), size_of("max_decompressed", max_decompressed)
    if (found := find_factory(path)) is not None:
        url, factory = found
        of_files = {"start": start, "stop": stop, "storage_options": storage_options, "partial": partial}
        scanned: Scan = factory(
            url, topics=topics, queues=queues, tags=tags, keys=keys, sql=sql, begin=begin, end=end, offsets=offsets,
            columns=columns, where=where, errors=errors, crc=crc, decompress=decompress, unwrap=unwrap,
            batch_bytes=sizes[0], max_decompressed=sizes[1], credentials=credentials, tls=tls, group=group,
            unreadable=unreadable, all_topics=all_topics, **of_files,
        )  # fmt: skip
        return scanned
    for name, value in (
        ("credentials", credentials),
        ("tls", tls or None),
        ("group", group),
        ("all_topics", all_topics or None),
    ):
        if value is not None:
            raise ValueError(f"{name} is for a cluster, as in rocketmq://127.0.0.1:9876/orders, not for files")
    reading = Reading(
        start, stop, columns, where, errors, crc, decompress, unwrap, *sizes, storage_options, partial, unreadable
    )
    logs = resolve(path, storage_options)
    return _asked_for(logs, path, None, None, reading, topics, queues, tags, keys, sql, begin, end, offsets)


def decode(
    buffer: Buffer,
    base_offset: int | None = 0,
    *,
    topics: Topics | None = None,
    queues: int | Iterable[int] | None = None,
    tags: Texts | None = None,
    keys: Texts | None = None,
    sql: Sql | None = None,
    begin: When | None = None,
    end: When | None = None,
    offsets: Offsets | None = None,
    start: int | None = None,
    stop: int | None = None,
    columns: Sequence[str] | None = None,
    where: Callable[[Message], bool] | None = None,
    errors: Errors = "raise",
    crc: Crc = "body",
    decompress: bool = True,
    unwrap: bool = True,
    batch_bytes: Size = 16 << 20,
    max_decompressed: Size = 64 << 20,
    file: str | None = None,
    **unknown: NoReturn,
) -> Scan:
    """Read the messages in a buffer: bytes, memoryview, mmap, numpy array. All other arguments are those of scan().

    buffer       contiguous; kept, not copied; zeros end it
    base_offset  physical offset of its first byte; None: read it from the first record
    file         name of the buffer in `file`, in errors and in the report

    >>> import rocketc
    >>> rocketc.decode(rocketc.encode("t", b"a", phy_offset=4096), base_offset=None).count()
    1
    """
    if unknown:
        raise unknown_keyword(decode, unknown)
    offsets = offsets and checked_offsets(offsets)
    if base_offset is not None and base_offset != 0:
        base_offset = whole_number("base_offset", base_offset, *INT64)
    view = buffer if type(buffer) is bytes else memoryview(buffer).cast("B")
    if (
        (topics is None and queues is None and tags is None and keys is None and sql is None and begin is None)
        and (end is None and offsets is None and start is None and stop is None and columns is None and where is None)
        and decompress is True
        and unwrap is True
        and (errors, crc, batch_bytes, max_decompressed) == _USUAL
    ):
        scan = Scan.__new__(Scan)
        scan.logs, scan.path, scan._buffer, scan._base = [], file, view, base_offset
        return scan
    sizes = size_of("batch_bytes", batch_bytes, 1), size_of("max_decompressed", max_decompressed)
    reading = Reading(start, stop, columns, where, errors, crc, decompress, unwrap, *sizes)
    return _asked_for([], file, view, base_offset, reading, topics, queues, tags, keys, sql, begin, end, offsets)
