"""rocketc cat for files other than the commit log: one line per unit of queues and indexes, small files in full."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import click

from rocketc._layout import SCHEDULE_TOPIC
from rocketc.cli.arguments import Start
from rocketc.cli.exit_codes import DAMAGED, DONE, code_of, code_of_files
from rocketc.cli.output import Out, note
from rocketc.derived._index_reader import IndexFile
from rocketc.errors import RocketcError
from rocketc.files import _checkpoint
from rocketc.files.block_file import BlockFile
from rocketc.files.lock_file import pid_in
from rocketc.format import _queue_units as cq
from rocketc.jobs.file_kinds import QUEUE_KINDS, WORDS, Files
from rocketc.jobs.inventory import CHECKPOINT_FIELDS
from rocketc.jobs.unit_files import Faults, open_listed, read_ext, read_index, read_queue
from rocketc.report.text import deleted_file_text, plain, show_time, visible, visible_json
from rocketc.tables.table_file import read_table

Row = dict[str, Any]  # a unit or a small file, as its JSON object

_HASHES = range(-1 << 31, 1 << 31)  # tags codes that are hashes

# Options that apply to files of every kind, and those that apply to one kind.
_ALWAYS = {"path", "kind", "as_json", "every"}
_ALSO = {
    "consumequeue": {"offset", "count"},
    "batchconsumequeue": {"offset", "count"},
    "consumequeue_ext": {"count"},
    "index": {"count", "index_slots"},
}


def refuse_other_options(kind: str) -> None:
    """Raise click.UsageError for an option of this command line that does not apply to files of this kind."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in _ALWAYS | _ALSO.get(kind, set()):
            raise click.UsageError(f"{max(parameter.opts, key=len)} does not apply to {WORDS[kind]}s")


def cat_files(
    found: Sequence[Files], offset: Start | None, count: int | None, as_json: bool, index_slots: int | None
) -> int:
    """Print the files that find_files() found, and return the exit code."""
    for files in found[:1]:
        refuse_other_options(files.kind)
    if offset is not None and offset.kind == "end":
        raise click.UsageError("-o end begins after the last unit, and only a commit log can be followed")
    with Out() as out:
        cat = _Cat(out, offset, as_json, index_slots)
        rows = ((files, row) for files in found for row in cat.rows(files))
        for of, row in islice(rows, count):
            cat.show(of, row)
        cat.faults.flush()
    for path in cat.faults.deleted:
        note(deleted_file_text(path))
    if cat.shown or cat.codes or cat.faults.deleted or offset is not None:
        return code_of_files(cat.codes, bool(cat.shown))
    note("nothing to read")
    return DONE


class _Cat:
    """One run of the command."""

    def __init__(self, out: Out, offset: Start | None, as_json: bool, index_slots: int | None) -> None:
        self.offset = offset
        self.index_slots = index_slots
        self.faults = Faults(self.report)
        self.shown = 0  # rows
        self.codes: set[int] = set()  # of the errors that were reported on stderr
        self._out = out
        self._as_json = as_json
        self._headed = ""

    def report(self, what: object, code: int = DAMAGED) -> None:
        """Report an error on stderr, after the results that were printed before it."""
        self.codes.add(code)
        self._out.flush()
        note(str(what))

    def rows(self, files: Files) -> Iterator[Row]:
        """Yield the rows to print of these files; report an error if they can't be read."""
        try:
            yield from _READ[files.kind](self, files)
        except RocketcError as error:
            self.faults.flush()
            self.report(plain(error), code_of(error))

    def show(self, files: Files, row: Row) -> None:
        self.shown += 1
        if self._as_json:
            text = _json(row)
        elif files.kind in _LINES:
            head, line = _LINES[files.kind]
            text = self._with_head(row, head, files.kind == "index") + visible(line(files, row))
        else:
            text = _WHOLE[files.kind](row)
        if self._out.is_terminal and (self._as_json or files.kind == "json"):
            text = visible_json(text) if self._as_json else "\n".join(map(visible_json, text.split("\n")))
        self._out.write_text(text + "\n")

    def _with_head(self, row: Row, head: str, of_file: bool) -> str:
        """Return the column names for the first line; with `of_file`, the path and names for each file's first line."""
        head = f"{visible(row['file'])}\n{head}\n" if of_file else f"{head}\n"
        if head == self._headed:
            return ""
        before = "\n" if self._headed else ""
        self._headed = head
        return before + head


def _json(row: Row, **layout: Any) -> str:
    return json.dumps(row, ensure_ascii=False, **layout)


# ---------------------------------------------------------------- units


def _queue(cat: _Cat, files: Files) -> Iterator[Row]:
    start = cat.offset.number if cat.offset is not None and cat.offset.kind == "offset" else 0
    rows = (_queue_row if files.kind == "consumequeue" else _batch_row)(files, cat.faults, start)
    if cat.offset is not None and cat.offset.kind == "last":
        rows = iter(deque(rows, cat.offset.number))
    return rows


def _queue_row(files: Files, faults: Faults, start: int) -> Iterator[Row]:
    where = _where(files)
    for path, units in read_queue(files, faults, start):
        for number, phy_offset, size, code, fault in units:
            if fault == cq.PRE_BLANK:
                continue
            row = {**where, "queueOffset": number, "physicalOffset": phy_offset, "storeSize": size, "tagsCode": code}
            if code < _HASHES.start:
                row["extOffset"] = code + (1 << 63)
            elif files.topic == SCHEDULE_TOPIC and code not in _HASHES:
                row["deliverTimestamp"] = code
            row["file"] = path
            yield row


def _batch_row(files: Files, faults: Faults, start: int) -> Iterator[Row]:
    where = _where(files)
    for path, units in read_queue(files, faults):
        for _, phy_offset, size, code, when, base, batch, compacted, _, _ in units:
            if base + batch > start:
                yield {
                    **where, "queueOffset": base, "batchSize": batch, "physicalOffset": phy_offset, "storeSize": size,
                    "tagsCode": code, "storeTimestamp": when, "compactedOffset": compacted, "file": path,
                }  # fmt: skip


def _ext(cat: _Cat, files: Files) -> Iterator[Row]:
    where = _where(files)
    for path, units in read_ext(files, cat.faults):
        for pos, size, code, when, bit_map in units:
            yield {
                **where, "extOffset": pos, "size": size, "tagsCode": code, "storeTimestamp": when,
                "bitMap": bit_map.hex(), "file": path,
            }  # fmt: skip


def _index(cat: _Cat, files: Files) -> Iterator[Row]:
    [path] = files.paths
    opened = open_listed(path, cat.faults, lambda path: open_index(path, cat.index_slots))
    if opened is None:
        return
    with opened as file:
        for units in read_index(file, cat.faults):
            for number, key_hash, phy_offset, when, previous, slot, _ in units:
                yield {
                    "unit": number, "keyHash": key_hash, "slot": slot, "previous": previous,
                    "physicalOffset": phy_offset, "storeTimestamp": when, "file": path,
                }  # fmt: skip


def open_index(path: str, slots: int | None) -> IndexFile:
    """Open an index file. Raises click.UsageError if the file can't have this number of slots."""
    try:
        return IndexFile(path, slots)
    except ValueError as error:
        raise click.UsageError(f"--index-slots: {error}") from None


def _where(files: Files) -> Row:
    """Topic and queue id, if the path of the files has them."""
    return {} if files.topic is None else {"topic": files.topic, "queueId": files.queue_id}


def _tags(row: Row) -> str:
    if "extOffset" in row:
        return f"ext@{row['extOffset']}"
    return show_time(row["deliverTimestamp"]) if "deliverTimestamp" in row else str(row["tagsCode"])


def _queue_line(files: Files, row: Row) -> str:
    place = f"{files.name}@{row['queueOffset']}"
    return f"{place:<28} {row['physicalOffset']:>15} {row['storeSize']:>9}  {_tags(row)}"


def _batch_line(files: Files, row: Row) -> str:
    place = f"{files.name}@{row['queueOffset']}+{row['batchSize']}"
    when = show_time(row["storeTimestamp"])
    return f"{place:<21} {row['physicalOffset']:>12} {row['storeSize']:>8} {when} {row['tagsCode']}"


def _ext_line(files: Files, row: Row) -> str:
    head = f"{row['extOffset']:>12} {row['size']:>5} {show_time(row['storeTimestamp'])}"
    return f"{head} {row['tagsCode']:>12} {row['bitMap']}"


def _index_line(files: Files, row: Row) -> str:
    head = f"{row['unit']:>8} {row['keyHash']:>10} {row['slot']:>8} {row['previous']:>8}"
    return f"{head} {row['physicalOffset']:>15} {show_time(row['storeTimestamp'])}"


# Kind of file -> column names, and the function that formats a line.
_LINES: dict[str, tuple[str, Callable[[Files, Row], str]]] = {
    "consumequeue": (f"{'queue@offset':<28} {'physicalOffset':>15} {'storeSize':>9}  tagsCode", _queue_line),
    "batchconsumequeue": (
        f"{'queue@offset+count':<21} {'physicalOff.':>12} {'size':>8} {'storeTimestamp':<24} tagsCode",
        _batch_line,
    ),
    "consumequeue_ext": (f"{'extOffset':>12} {'size':>5} {'storeTimestamp':<24} {'tagsCode':>12} bitMap", _ext_line),
    "index": (
        f"{'unit':>8} {'keyHash':>10} {'slot':>8} {'previous':>8} {'physicalOffset':>15} storeTimestamp",
        _index_line,
    ),
}


# ---------------------------------------------------------------- small files


def read_checkpoint(path: str) -> Row:
    """Read a checkpoint file. Raises StoreIOError; ValueError that names the file if it is too short."""
    with BlockFile(path) as file:
        try:
            fields = _checkpoint.decode(file.read(0, _checkpoint.FILE_BYTES))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return dict(zip(CHECKPOINT_FIELDS, fields, strict=True))


def read_marker(path: str) -> Row:
    """Read an abort or lock file. From RocketMQ 5.0 on, the abort file holds the id of its process."""
    with BlockFile(path) as file:
        pid = pid_in(file.read(0, 20))
    return {"present": True, **({} if pid is None else {"pid": pid})}


def _checkpoint_file(cat: _Cat, files: Files) -> Iterator[Row]:
    [path] = files.paths
    try:
        yield {**read_checkpoint(path), "file": path}
    except ValueError as error:
        cat.report(error)


def _table(cat: _Cat, files: Files) -> Iterator[Row]:
    table = read_table(files.paths[0])
    if table.load_error is not None:
        cat.report(f"{table.load_error}; the output is that of {table.file}")
    yield {**table.data, "file": table.file}


def _marker(cat: _Cat, files: Files) -> Iterator[Row]:
    [path] = files.paths
    yield {**read_marker(path), "file": path}


def not_shown(path: str) -> str:
    return f"{path}: not shown: rocketc does not read this kind of file"


def _other(cat: _Cat, files: Files) -> Iterator[Row]:
    cat.report(not_shown(files.paths[0]))
    return iter(())


def _checkpoint_text(row: Row) -> str:
    lines = []
    for key in CHECKPOINT_FIELDS:
        when = f"  {show_time(row[key])}" if key.endswith("Timestamp") and row[key] else ""
        lines.append(f"{key:<20} {row[key]:>15}{when}")
    return "\n".join(lines)


def _marker_text(row: Row) -> str:
    return f"{visible(row['file'])}: " + (f"process {row['pid']}" if "pid" in row else "exists, without a process id")


def _table_text(row: Row) -> str:
    return _json({name: value for name, value in row.items() if name != "file"}, indent=2)


_READ: dict[str, Callable[[_Cat, Files], Iterator[Row]]] = {
    **dict.fromkeys(QUEUE_KINDS, _queue),
    "consumequeue_ext": _ext,
    "index": _index,
    "checkpoint": _checkpoint_file,
    "json": _table,
    "abort": _marker,
    "lock": _marker,
    "other": _other,
}
_WHOLE: dict[str, Callable[[Row], str]] = {
    "checkpoint": _checkpoint_text,
    "json": _table_text,
    "abort": _marker_text,
    "lock": _marker_text,
}
