"""The tasks of an archive, in Spark's workers: write parts of a log to Parquet files by topic and date, and report."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rocketc.errors import MissingCodecError
from rocketc.exports.archive_files import write_files
from rocketc.files.paths import LogFile
from rocketc.read.scan import scan
from rocketc.read.scan_report import torn_tail
from rocketc.spark.worker import FastStartup

BY = ("topic", "date")
_ANCHOR = ("physicalOffset", "storeTimestamp", "storeSize", "bodyCRC")
_NEEDED = ("topic", "storeTimestamp", "physicalOffset", "storeSize", "bodyCRC")


@dataclass(frozen=True)
class Job(FastStartup):
    """The settings of all tasks of a commit.

    staging      folder of the archive where tasks write; each attempt of a task has its own folder in it
    columns      columns of the messages; `topic` is in the names of folders
    options      keyword arguments of rocketc.scan()
    compression  of the Parquet files
    gaps         gaps between two files of the log: physical offset where a gap begins -> where it ends
    """

    staging: str
    columns: tuple[str, ...]
    options: Mapping[str, Any]
    compression: str | None
    gaps: Mapping[int, int]


def write_tasks(
    batches: Iterable[pa.RecordBatch], tasks: Sequence[Sequence[LogFile]], job: Job
) -> Iterator[pa.RecordBatch]:
    """For mapInArrow over the numbers of tasks: run each task and yield its result as JSON."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            done = {"task": number, **write_task(tasks[number], job)}
            yield pa.record_batch({"done": pa.array([json.dumps(done)], pa.string())})


def write_task(parts: Sequence[LogFile], job: Job) -> dict[str, Any]:
    """Write the messages of these parts of a log to Parquet files, make the files durable, and return a report.

    The report is a dict for JSON:
    begin, end  physical offsets where reading began and ended. If a part does not begin where the part before it ended,
                this part and all later ones are left out. This happens if a log grows while it is read
    files       [path below staging, bytes, messages] of each file
    statistics  [file, topic, days, messages, bytes, first and last offset, first and last time in us] of each group
    damage      [file, start, stop, reason] of each damaged range
    torn        whether the last damaged range is at the end of the log, which may still grow
    anchor      offset, time, size and CRC of the last message; None: there is no message
    """
    sums = _Sums(job)
    stem = f"part-{parts[0].begin:020d}"
    files = write_files(sums.batches(parts), job.columns, job.staging, stem, job.compression, ordered=True)
    return sums.summary() | {"files": files}


class _Sums:
    """The counts and statistics of the parts that a task has read so far."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._columns = list(dict.fromkeys([*job.columns, *_NEEDED]))
        self._begin: int | None = None
        self._end: int | None = None
        self._damage: list[list[Any]] = []
        self._torn = False
        self._anchor: dict[str, Any] | None = None
        self._sums: dict[tuple[Any, ...], list[int]] = {}

    def batches(self, parts: Sequence[LogFile]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the parts, up to the first part that does not follow the one before it."""
        for part in parts:
            messages = scan(part, errors="skip", columns=self._columns, **self._job.options)
            fits = None
            for batch in messages.batches():
                fits = self._follows(messages.report) if fits is None else fits
                if not fits:
                    return
                self._count(part.path, batch)
                yield batch
            report = messages.report
            if not (self._follows(report) if fits is None else fits):
                return
            self._end = report.end
            if any(one.reason == "missing_codec" for one in report.damage):  # an archive must not lose these messages
                raise MissingCodecError(
                    f"{part.name}: a worker lacks the library for a compressed body: pip install 'rocketc[compression]'"
                )
            self._damage += [[one.file, one.start, one.stop, one.reason] for one in report.damage]
            self._torn = part.last and torn_tail(report.damage, report.end) is not None

    def _follows(self, report: Any) -> bool:
        """Whether a part begins where the one before it ended."""
        begin = report.end - report.bytes
        if self._begin is None:
            self._begin = self._end = begin
        if begin != self._end and begin == self._job.gaps.get(self._end or 0):
            self._damage.append([None, self._end, begin, "missing_file"])
            self._end = begin
        return bool(begin == self._end)

    def _count(self, file: str, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        offsets = batch.column("physicalOffset")
        times = batch.column("storeTimestamp")
        before = None if self._anchor is None else self._anchor["physicalOffset"]
        earlier = pa.concat_arrays([pa.array([before], pa.int64()), offsets.slice(0, batch.num_rows - 1)])
        again = pc.fill_null(pc.equal(offsets, earlier), False)  # an inner batch is one record: its size counts once
        table = pa.table(
            {
                "topic": batch.column("topic"),
                "day": times.cast(pa.date32()).cast(pa.int32()),
                "size": pc.if_else(again, 0, batch.column("storeSize")),
                "offset": offsets,
                "time": times.cast(pa.int64()),
            }
        )
        sums = [("offset", "count"), ("size", "sum"), *((c, f) for c in ("offset", "time") for f in ("min", "max"))]
        found = table.group_by(["topic", "day"], use_threads=False).aggregate(sums)
        for row in found.select(["topic", "day", *(f"{c}_{f}" for c, f in sums)]).to_pylist():
            topic, day, *new = row.values()
            add_up(self._sums, (file, topic, day), new)
        last = batch.slice(batch.num_rows - 1)
        values = (last.column(name)[0] for name in _ANCHOR)
        self._anchor = dict(zip(_ANCHOR, (v.value if hasattr(v, "value") else v.as_py() for v in values), strict=True))

    def summary(self) -> dict[str, Any]:
        return {
            "begin": self._begin,
            "end": self._end,
            "statistics": [[*key, *sums] for key, sums in self._sums.items()],
            "damage": self._damage,
            "torn": self._torn,
            "anchor": self._anchor,
        }


def add_up(sums: dict[tuple[Any, ...], list[int]], key: tuple[Any, ...], new: list[int]) -> None:
    """Add a row of the statistics to the sums of its key."""
    old = sums.setdefault(key, [0, 0, *new[2:]])
    old[:2] = old[0] + new[0], old[1] + new[1]
    old[2:] = min(old[2], new[2]), max(old[3], new[3]), min(old[4], new[4]), max(old[5], new[5])


def run_tasks(spark: Any, tasks: Sequence[Sequence[LogFile]], job: Job) -> list[dict[str, Any]]:
    """Run each task in a Spark task; return their reports, in the order of `tasks`."""
    numbers = spark.range(0, len(tasks), 1, len(tasks))  # one partition per task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Spark warns of a newer pandas, which is not used here
        rows = numbers.mapInArrow(partial(write_tasks, tasks=tasks, job=job), "done string").collect()
    return sorted((json.loads(row.done) for row in rows), key=lambda done: done["task"])
