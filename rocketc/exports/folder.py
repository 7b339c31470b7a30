"""A folder of partitions in Hive's layout: topic=orders/date=2026-01-31/part-0.parquet."""

from __future__ import annotations

import datetime
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rocketc.exports.columns import gathered
from rocketc.exports.sinks import Sink, sink_to_end_of
from rocketc.files.durable import errors_named
from rocketc.read._message import Message
from rocketc.read.arrow_interop import import_pyarrow
from rocketc.read.parallel import in_order

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow

    from rocketc.exports.text import Encode

# The names for partition_by, and the columns with their values.
SOURCES = {"topic": "topic", "date": "storeTimestamp", "queueId": "queueId"}
_NOTHING = "__HIVE_DEFAULT_PARTITION__"  # all readers treat it as null
_DAY_MS = 86_400_000
_EPOCH = datetime.date(1970, 1, 1)

# Rows of small partitions are kept in memory, so that their files do not get tiny row groups.
WAITING_BYTES = 128 << 20
OPEN_WEIGHT = 4096  # row groups of open files: each keeps 18 KB of a footer in memory
OPEN_FILES = 512
_PACKED_AHEAD = 8
ROW_BYTES = 200  # approximate size of a row without its body

Key = tuple[Any, ...]  # topic, day since the epoch and queue id of a partition, as selected by partition_by


def folder_name(by: str, value: Any) -> str:
    """Return one level of the path of a partition.

    ASCII characters with a special meaning are escaped with %. Other characters are not, because Spark decodes an
    escape to a character, not to a byte of UTF-8. A value without a text form (null, an invalid text, a day outside of
    the years 1 to 9999) becomes null.

    >>> folder_name("topic", "%RETRY%g"), folder_name("topic", "支付"), folder_name("date", 19675)
    ('topic=%25RETRY%25g', 'topic=支付', 'date=2023-11-14')
    """
    if by == "date" and value is not None:
        try:
            value = (_EPOCH + datetime.timedelta(days=value)).isoformat()
        except OverflowError:
            value = None
    text = "" if value is None else str(value)
    return f"{by}={_ESCAPED.sub(_escape, text) or _NOTHING}"


_ESCAPED = re.compile(r"[\x00-\x7f](?<![0-9A-Za-z_.-])")


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def is_partition(name: str) -> bool:
    """Whether a name is the name of a partition's folder, of any export."""
    by, is_one, _ = name.partition("=")
    return bool(is_one) and by in SOURCES


class PartFile(Protocol):
    @property
    def weight(self) -> int: ...
    def write(self, rows: Any, /) -> None: ...
    def close(self) -> None: ...


class Parts:
    """The files of all partitions; limits the number of files being written at a time.

    A partition continues in its next file after a file is finished: part-0, part-1. A file descriptor is open only
    while a block is appended.

    root   folder where the files are created
    shown  final path of the folder, for errors
    make   creates a file
    stem   prefix of the file names
    """

    def __init__(
        self,
        root: str,
        shown: str,
        by: Sequence[str],
        suffix: str,
        make: Callable[[Sink], PartFile],
        stem: str = "part",
    ) -> None:
        self._root = root
        self._shown = shown
        self._by = by
        self._suffix = suffix
        self._make = make
        self._stem = stem
        self._open: OrderedDict[Key, tuple[PartFile, Sink]] = OrderedDict()
        self._numbers: dict[Key, int] = {}
        self.bytes = 0
        self.files = 0

    def write(self, parts: Sequence[tuple[Key, Any]], pool: Executor | None = None) -> None:
        """Write rows to some partitions; each partition may occur only once."""
        for at in range(0, len(parts), OPEN_FILES):
            some = parts[at : at + OPEN_FILES]
            files = [self._opened(key) for key, _ in some]
            rows = (rows for _, rows in some)
            for _ in pool.map(_write, files, rows) if pool else map(_write, files, rows):
                pass
            self._end_some()

    def _opened(self, key: Key) -> tuple[PartFile, Sink]:
        if key in self._open:
            self._open.move_to_end(key)
        else:
            number = self._numbers.get(key, 0)
            self._numbers[key] = number + 1
            names = [folder_name(by, value) for by, value in zip(self._by, key, strict=True)]
            names.append(f"{self._stem}-{number}{self._suffix}")
            path, shown = os.path.join(self._root, *names), os.path.join(self._shown, *names)
            with errors_named(shown):
                os.makedirs(os.path.dirname(path), exist_ok=True)
            sink = sink_to_end_of(path, shown)
            self._open[key] = self._make(sink), sink
            self.files += 1
        return self._open[key]

    def _end_some(self) -> None:
        """Finish the files that were written least recently, if there are too many."""
        weight = sum(file.weight for file, _ in self._open.values())
        while self._open and (len(self._open) > OPEN_FILES or weight > OPEN_WEIGHT):
            _, (file, sink) = self._open.popitem(last=False)
            weight -= file.weight
            self._end(file, sink)

    def _end(self, file: PartFile, sink: Sink) -> None:
        file.close()
        sink.flush()
        self.bytes += sink.bytes

    def close(self) -> None:
        while self._open:
            _, (file, sink) = self._open.popitem(last=False)
            self._end(file, sink)

    def drop(self) -> None:
        """Stop writing after an error."""
        for _, sink in self._open.values():
            sink.drop()


def _write(to: tuple[PartFile, Sink], rows: Any) -> None:
    file, sink = to
    file.write(rows)
    sink.flush()


def fill_with_columns(
    batches: Iterable[pyarrow.RecordBatch],
    columns: Sequence[str],
    by: Sequence[str],
    parts: Parts,
    pool: Executor | None,
) -> None:
    """Write these columns of all rows to their partitions; uses about twice WAITING_BYTES and a batch of memory."""
    pa = import_pyarrow()
    rest: list[pyarrow.Table] = []  # rows kept in memory: at most one table
    for table in gathered(batches, WAITING_BYTES // 2):
        rows = pa.concat_tables([*rest, table])
        del table
        rest = _write_largest(rows, columns, by, parts, pool, WAITING_BYTES // 2)
        del rows
    for table in rest:
        _write_largest(table, columns, by, parts, pool, 0)


def _write_largest(
    table: pyarrow.Table, columns: Sequence[str], by: Sequence[str], parts: Parts, pool: Executor | None, keep: int
) -> list[pyarrow.Table]:
    """Write the largest partitions; return the rows of the others, at most `keep` bytes."""
    pa = import_pyarrow()
    rows = _rows_by_key(table, by)
    sizes = {key: size for key, (_, size) in rows.items()}
    now = list(largest_first(sizes, keep))
    plain = table.select(list(columns))
    if len(now) == len(rows) == 1:
        parts.write([(now[0], plain)], pool)
        return []
    taken = plain.take(pa.chunked_array([rows[key][0] for key in now], pa.int32()))
    some, at = [], 0
    for key in now:
        count = len(rows[key][0])
        some.append((key, taken.slice(at, count)))
        at += count
    parts.write(some, pool)
    others = [numbers for key, (numbers, _) in rows.items() if key not in set(now)]
    return [table.take(pa.chunked_array(others, pa.int32()))] if others else []


def _rows_by_key(table: pyarrow.Table, by: Sequence[str]) -> dict[Key, tuple[pyarrow.Array, int]]:
    """Return for each partition the numbers of its rows in order, and their approximate size in bytes."""
    pa = import_pyarrow()
    import pyarrow.compute as pc

    columns: dict[str, Any] = {name: table.column(SOURCES[name]) for name in by}
    if "date" in by:
        columns["date"] = columns["date"].cast(pa.date32()).cast(pa.int32())
    ones = pa.repeat(pa.scalar(1, pa.int32()), table.num_rows)
    columns["row"] = pc.subtract(pc.cumulative_sum(ones), pa.scalar(1, pa.int32()))
    columns["bytes"] = pa.repeat(pa.scalar(ROW_BYTES, pa.int64()), table.num_rows)
    if "body" in table.column_names:
        bodies = pc.fill_null(pc.binary_length(table.column("body")), 0)
        columns["bytes"] = pc.add(columns["bytes"], bodies.cast(pa.int64()))
    groups = pa.table(columns).group_by(list(by), use_threads=False).aggregate([("row", "list"), ("bytes", "sum")])
    keys = zip(*(groups.column(name).to_pylist() for name in by), strict=True)
    numbers = (scalar.values for scalar in groups.column("row_list"))
    return dict(zip(keys, zip(numbers, groups.column("bytes_sum").to_pylist(), strict=True), strict=True))


def fill_with_text(
    blocks: Iterable[list[Message]],
    by: Sequence[str],
    parts: Parts,
    encode: Encode,
    pack: Callable[[bytes], bytes],
    pool: Executor | None,
) -> None:
    """Write all messages to their partitions; keeps WAITING_BYTES of text in memory."""
    texts: dict[Key, list[bytes]] = {}
    sizes: dict[Key, int] = {}
    waiting = 0

    def write(keep: int) -> int:
        keys = list(largest_first(sizes, keep))
        whole = (b"".join(texts.pop(key)) for key in keys)
        for key, text in zip(keys, in_order(pack, whole, pool, _PACKED_AHEAD), strict=True):
            parts.write([(key, text)])
            del sizes[key]
        return sum(sizes.values())

    for block in blocks:
        for key, messages in messages_by_key(block, by).items():
            text = encode(messages)
            texts.setdefault(key, []).append(text)
            sizes[key] = sizes.get(key, 0) + len(text) + ROW_BYTES
            waiting += len(text) + ROW_BYTES
        if waiting >= WAITING_BYTES:
            waiting = write(WAITING_BYTES // 2)
    write(0)


def messages_by_key(messages: Iterable[Message], by: Sequence[str]) -> dict[Key, list[Message]]:
    get: dict[str, Callable[[Message], Any]] = {
        "topic": lambda m: m.topic,
        "date": lambda m: m.store_timestamp // _DAY_MS,
        "queueId": lambda m: m.queue_id,
    }
    makers = [get[name] for name in by]
    out: dict[Key, list[Message]] = {}
    for message in messages:
        out.setdefault(tuple([make(message) for make in makers]), []).append(message)
    return out


def largest_first(sizes: dict[Key, int], keep: int) -> Iterator[Key]:
    """Yield the partitions to write, largest first, until at most `keep` bytes are left."""
    left = sum(sizes.values())
    for key, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if left <= keep:
            return
        left -= size
        yield key
