"""RecordStream: a scan of records that are in no file, such as those that brokers send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from rocketc._arguments import seconds_of
from rocketc.read._filter import Filter
from rocketc.read._message import Message
from rocketc.read._pulled_records import PulledRecords
from rocketc.read._walk import Walker
from rocketc.read.record_block import RecordBlock
from rocketc.read.scan import Scan
from rocketc.read.scan_options import CRC_CODES, Crc, Errors, Offsets, Reading, Sql, Texts, When
from rocketc.read.scan_report import ScanReport
from rocketc.read.scan_run import ScanRun

Source = Callable[[Callable[[], None] | None], Iterable[bytes | RecordBlock]]


class RecordStream(Scan):
    """The messages of records that a function reads: a Scan with the same filters, columns and reports.

    Each pass calls the function again. The report of a pass does not have `end` and `files`.

    name    for repr() and errors
    source  called with None, it returns the records that are there now, in blocks of whole records: RecordBlock, or
            bytes if they are from no broker. Called with a function, it returns later ones, too, without end: it calls
            the function before each wait
    Other arguments: see scan(). A record is damage if its CRC is wrong, or if its length is impossible: then the rest
    of its block is lost.

    >>> import rocketc
    >>> block = rocketc.encode("orders", b"one", phy_offset=900) + rocketc.encode("orders", b"two", phy_offset=70)
    >>> stream = RecordStream("two records", lambda idle: [block])
    >>> [(m.body, m.phy_offset) for m in stream], stream.report.records
    ([(b'one', 900), (b'two', 70)], 2)
    """

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        queues: int | Iterable[int] | None = None,
        tags: Texts | None = None,
        keys: Texts | None = None,
        sql: Sql | None = None,
        begin: When | None = None,
        end: When | None = None,
        offsets: Offsets | None = None,
        columns: Sequence[str] | None = None,
        where: Callable[[Message], bool] | None = None,
        errors: Errors = "raise",
        crc: Crc = "body",
        decompress: bool = True,
        unwrap: bool = True,
        batch_bytes: int = 16 << 20,
        max_decompressed: int = 64 << 20,
    ) -> None:
        asked: dict[str, Any] = {
            "queues": queues,
            "tags": tags,
            "keys": keys,
            "sql": sql,
            "begin": begin,
            "end": end,
            "offsets": offsets,
        }
        reading = Reading(
            columns=columns,
            where=where,
            errors=errors,
            crc=crc,
            decompress=decompress,
            unwrap=unwrap,
            batch_bytes=batch_bytes,
            max_decompressed=max_decompressed,
        )
        filter = Filter(**asked, unwrap=unwrap)
        super().__init__([], name, b"", None, filter, reading, asked)
        self.source = source

    @property
    def is_ordered(self) -> bool:
        """False: the records are in the order of the source."""
        return False

    def _source(self) -> tuple[str, str]:
        return str(self.path), "a stream"

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self.run([]).blocks())

    def follow(self, poll: float = 0.1, idle: Callable[[], None] | None = None) -> Iterator[Message]:
        """Iterate over the messages that are there and all later ones, without end.

        poll  is not used: the source waits
        idle  called before each wait; an exception that it raises ends the iteration

        >>> import rocketc
        >>> stream = RecordStream("a record", lambda idle: [rocketc.encode("orders", b"one")])
        >>> next(stream.follow()).body
        b'one'
        """
        seconds_of("poll", poll, least=0)
        self._pass = run = _StreamRun(self, [], follow=poll, idle=idle)
        return chain.from_iterable(run.blocks())

    def run(self, columns: Sequence[str] | None, body: bool = True) -> ScanRun:
        """Start a pass, as Scan.run().

        >>> import rocketc
        >>> [len(block) for block in RecordStream("one", lambda idle: [rocketc.encode("t", b"a")]).run([]).blocks()]
        [1]
        """
        self._pass = run = _StreamRun(self, columns, body=body)
        return run

    def __reduce__(self) -> Any:
        """Refuse: what the source reads belongs to this process."""
        raise TypeError(f"{self!r} can't be pickled: it reads from connections of this process")


class _StreamRun(ScanRun):
    """One pass over the blocks of a source."""

    _scan: RecordStream

    def _walkers(self) -> Iterator[Walker]:
        scan = self._scan
        for block in scan.source(None if self._follow is None else self._wait):
            self._close()
            records, how = block if isinstance(block, bytes) else block.records, scan._reading
            walker = PulledRecords(records, 0, scan._filter, crc=CRC_CODES[how.crc], errors=how.errors)
            if not isinstance(block, bytes):
                walker.sent_by(block.brokers, block.runs)
            self._walker = walker
            yield walker
        self._close()

    def _wait(self) -> None:
        self.note()
        if self._idle is not None:
            self._idle()

    def report(self) -> ScanReport:
        report = super().report()
        report.end = None  # the blocks are from anywhere
        return report
