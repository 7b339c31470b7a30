"""rocketc info for files other than the commit log: the number of units, their offsets and times, and errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rocketc._layout import BCQ_UNIT_BYTES, CQ_UNIT_BYTES
from rocketc.cli.cat_files import not_shown, open_index, read_checkpoint, read_marker, refuse_other_options
from rocketc.cli.exit_codes import DAMAGED, DONE, code_of, code_of_files
from rocketc.cli.output import note, print_result, progress
from rocketc.derived._index_reader import UNIT_BYTES
from rocketc.errors import RocketcError
from rocketc.format import _queue_units as cq
from rocketc.jobs.file_kinds import QUEUE_KINDS, WORDS, Files
from rocketc.jobs.inventory import CHECKPOINT_FIELDS
from rocketc.jobs.unit_files import Fault, Faults, open_listed, read_ext, read_index, read_queue
from rocketc.report.tables import add_rows, columns, render_report, section, some
from rocketc.report.text import deleted_file_text, plain, show_time, visible
from rocketc.tables.table_file import read_table

if TYPE_CHECKING:
    from rich.table import Table

Entry = dict[str, Any]  # the facts about a queue or a file, as its JSON object


def info_files(path: str, found: Sequence[Files], as_json: bool, every: bool, index_slots: int | None) -> int:
    """Print a report about the files that find_files() found, and return the exit code."""
    if not found:
        note(f"nothing to read: {path}")
        return DONE
    kind = found[0].kind
    refuse_other_options(kind)
    info = _Info(path, kind, index_slots)
    with progress("reading", sum(map(_size, (path for files in found for path in files.paths)))) as update:
        info.update = update
        for files in found:
            info.read(files)
    print_result(as_json, info.to_dict, lambda color: info.draw(color, every))
    for path in info.faults.deleted:
        note(deleted_file_text(path))
    if info.is_empty and not info.problems:
        note(f"nothing to read: {path}")
    return info.code


class _Info:
    """The report about files of one kind."""

    def __init__(self, path: str, kind: str, index_slots: int | None) -> None:
        self.kind = kind
        self.index_slots = index_slots
        self.faults = Faults(self._take)
        self.update: Callable[[int], None] = lambda done: None
        self._done = 0
        self._path = path
        self._entries: list[Entry] = []
        self._faults: list[Fault] = []
        self._errors: list[str] = []  # errors of whole files
        self._codes: set[int] = set()  # of these errors

    @property
    def problems(self) -> int:
        return self.faults.count + len(self._errors)

    @property
    def is_empty(self) -> bool:
        """Whether files that consist of units do not contain any unit."""
        return not self.faults.deleted and all(entry.get("units") == 0 for entry in self._entries)

    def _take(self, fault: Fault) -> None:
        self._faults.append(fault)

    def read(self, files: Files) -> None:
        """Read these files and add them to the report."""
        try:
            entry = _LOOK[files.kind](self, files)
            self._entries += [entry] if entry else []
        except (RocketcError, ValueError) as error:
            self.error(plain(error), code_of(error) if isinstance(error, RocketcError) else DAMAGED)
        self.faults.flush()

    def error(self, text: str, code: int = DAMAGED) -> None:
        self._errors.append(text)
        self._codes.add(code)

    @property
    def code(self) -> int:
        """The exit code."""
        return code_of_files(self._codes | ({DAMAGED} if self.faults.count else set()), bool(self._entries))

    def step(self, size: int) -> None:
        """Move the progress bar by `size` bytes that were read."""
        self._done += size
        self.update(self._done)

    def to_dict(self) -> Entry:
        entries = "queues" if self.kind in QUEUE_KINDS else "files"
        faults = [{name: value for name, value in asdict(fault).items() if value != ""} for fault in self._faults]
        return {
            "path": self._path, "kind": self.kind, entries: self._entries, "problems": self.problems,
            "faults": faults, "errors": self._errors,
        }  # fmt: skip

    def draw(self, color: bool, every: bool) -> str:
        lines = [(WORDS[self.kind], self._path, "")]
        entries: Sequence[Entry] = self._entries
        if len(entries) == 1 and self.kind not in QUEUE_KINDS:
            lines += [(name, text, "") for name, text in _ONE[self.kind](entries[0])]
            entries = ()
        problems = [*self._errors, *map(str, self._faults)]
        if (hidden := self.faults.count - len(self._faults)) > 0:
            problems.append(f"{hidden} more in the same files")
        lines += section("problems", some(problems, every, str), "none")
        return render_report(lines, _table(self.kind, entries, every), color)


# ---------------------------------------------------------------- reading


def _queue(info: _Info, files: Files) -> Entry:
    units = blanks = 0
    first = last = None
    size = CQ_UNIT_BYTES if files.kind == "consumequeue" else BCQ_UNIT_BYTES
    for _, block in read_queue(files, info.faults):
        info.step(len(block) * size)
        real = [unit for unit in block if unit[-1] != cq.PRE_BLANK]
        blanks += len(block) - len(real)
        units += len(real)
        if real:
            first, last = first or real[0], real[-1]
    entry = _begin(files, units, sum(_size(path) // size for path in files.paths))
    if blanks:
        entry["preBlanks"] = blanks
    if first is not None and last is not None:
        if files.kind == "consumequeue":
            entry |= {"firstQueueOffset": first[0], "lastQueueOffset": last[0]}
        else:
            entry |= {"firstQueueOffset": first[5], "lastQueueOffset": last[5] + last[6] - 1}
            entry |= {"firstStoreTimestamp": first[4], "lastStoreTimestamp": last[4]}
        entry |= {"firstPhysicalOffset": first[1], "lastPhysicalOffset": last[1]}
    return entry


def _ext(info: _Info, files: Files) -> Entry:
    units = 0
    first = last = None
    for _, block in read_ext(files, info.faults):
        units += len(block)
        if block:
            first, last = first or block[0], block[-1]
    entry = _begin(files, units, None)
    if first is not None and last is not None:
        entry |= {"firstExtOffset": first[0], "lastExtOffset": last[0]}
        entry |= {"firstStoreTimestamp": first[3], "lastStoreTimestamp": last[3]}
    return entry


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # the function that reads the file reports the error


def _begin(files: Files, units: int, room: int | None) -> Entry:
    where = {} if files.topic is None else {"topic": files.topic, "queueId": files.queue_id}
    return {**where, "files": len(files.paths), "units": units, **({} if room is None else {"capacity": room})}


def _index(info: _Info, files: Files) -> Entry:
    [path] = files.paths
    opened = open_listed(path, info.faults, lambda path: open_index(path, info.index_slots))
    if opened is None:
        return {}
    with opened as file:
        header = file.header
        units = 0
        for block in read_index(file, info.faults):
            units += len(block)
            info.step(len(block) * UNIT_BYTES)
        entry: Entry = {
            "file": path, "beginTimestamp": header.begin_timestamp, "endTimestamp": header.end_timestamp,
            "beginPhyOffset": header.begin_phy_offset, "endPhyOffset": header.end_phy_offset,
            "hashSlotCount": header.hash_slot_count, "indexCount": header.index_count,
        }  # fmt: skip
        if file.slots is None:
            return entry
        used, bad, where = file.check_slots()
        for slot in where:
            info.faults.add(Fault(path, "bad_slot", "slot", slot, slot))
        info.faults.flush()
        info.faults.count += bad - len(where)
        return {**entry, "slots": file.slots, "slotsInUse": used, "capacity": file.capacity, "units": units}


def _checkpoint(info: _Info, files: Files) -> Entry:
    return {"file": files.paths[0], **read_checkpoint(files.paths[0])}


def _marker(info: _Info, files: Files) -> Entry:
    return {"file": files.paths[0], **read_marker(files.paths[0])}


def _config(info: _Info, files: Files) -> Entry:
    table = read_table(files.paths[0])
    if table.load_error is not None:
        info.error(f"{table.load_error}; the report is about {table.file}")
    return {"file": table.file, "counts": dict(_counts(table.data))}


def _counts(data: dict[Any, Any]) -> Iterator[tuple[str, int]]:
    """Yield what a table has entries for, and the number of entries."""
    for name, entries in data.items():
        if name == "dataVersion" or not isinstance(entries, dict):
            continue
        if name == "offsetTable" and any(isinstance(entry, dict) for entry in entries.values()):
            yield "topics", len({str(key).partition("@")[0] for key in entries})
            yield "groups", len({str(key).partition("@")[2] for key in entries})
        else:
            yield _COUNTED.get(name, str(name)), len(entries)


_COUNTED = {
    "topicConfigTable": "topics",
    "subscriptionGroupTable": "groups",
    "forbiddenTable": "groups with forbidden topics",
    "groupTopicMap": "groups with topics",
    "offsetTable": "delay levels",
    "filterDataByTopic": "topics",
    "table": "ordered topics",
    "timingCount": "topics",
    "transactionCount": "topics",
}


def _other(info: _Info, files: Files) -> Entry:
    info.error(not_shown(files.paths[0]))
    return {"file": files.paths[0], "size": _size(files.paths[0])}


_LOOK: dict[str, Callable[[_Info, Files], Entry]] = {
    **dict.fromkeys(QUEUE_KINDS, _queue),
    "consumequeue_ext": _ext,
    "index": _index,
    "checkpoint": _checkpoint,
    "json": _config,
    "abort": _marker,
    "lock": _marker,
    "other": _other,
}


# ---------------------------------------------------------------- printing


def _one_index(entry: Entry) -> Iterator[tuple[str, str]]:
    if "units" in entry:
        yield "units", f"{entry['units']}, room for {entry['capacity']}"
        yield "slots", f"{entry['slotsInUse']} in use of {entry['slots']}"
    else:
        yield "units", f"{max(entry['indexCount'], 1) - 1}"
    yield "times", f"{show_time(entry['beginTimestamp'])} to {show_time(entry['endTimestamp'])}"
    yield "offsets", f"{entry['beginPhyOffset']} to {entry['endPhyOffset']}"


def _one_checkpoint(entry: Entry) -> Iterator[tuple[str, str]]:
    for name, key in zip(("log", "queues", "index"), CHECKPOINT_FIELDS, strict=False):
        yield name, f"flushed up to {show_time(entry[key])}" if entry[key] else "never flushed"
    yield "master", f"flushed up to physical offset {entry['masterFlushedOffset']}"
    yield "confirmed", f"up to physical offset {entry['confirmPhyOffset']}"


def _one_config(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "read", entry["file"]
    yield "holds", _counts_text(entry)


def _counts_text(entry: Entry) -> str:
    counts = [f"{number} {what if number != 1 else what.removesuffix('s')}" for what, number in entry["counts"].items()]
    return ", ".join(counts) or "no entries"


def _one_marker(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "process", str(entry.get("pid", "unknown"))


def _one_other(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "size", f"{entry['size']} bytes"


_ONE: dict[str, Callable[[Entry], Iterator[tuple[str, str]]]] = {
    "index": _one_index,
    "checkpoint": _one_checkpoint,
    "json": _one_config,
    "abort": _one_marker,
    "lock": _one_marker,
    "other": _one_other,
}


def _table(kind: str, entries: Sequence[Entry], every: bool) -> Table:
    from rich.text import Text

    names, row = _TABLES.get(kind, (("file",), lambda entry: (os.path.basename(entry["file"]),)))
    return add_rows(columns(*names), entries, every, lambda entry: [Text(visible(cell)) for cell in row(entry)])


def _queue_row(entry: Entry) -> tuple[str, ...]:
    queue = f"{entry.get('topic', '?')}/{entry.get('queueId', '?')}"
    first, last = ("Ext" if "firstExtOffset" in entry else "Queue"), entry.get("lastPhysicalOffset")
    offsets = f"{entry[f'first{first}Offset']} to {entry[f'last{first}Offset']}" if entry["units"] else "-"
    phy = f"{entry['firstPhysicalOffset']} to {last}" if last is not None else "-"
    blanks = f"({entry['preBlanks']} blank in front)" if "preBlanks" in entry else ""
    return str(entry["files"]), str(entry["units"]), offsets, phy, f"{queue} {blanks}".strip()


def _index_row(entry: Entry) -> tuple[str, ...]:
    slots = f"{entry['slotsInUse']} of {entry['slots']}" if "slots" in entry else "?"
    units = str(entry.get("units", max(entry["indexCount"], 1) - 1))
    name = os.path.basename(entry["file"])
    return name, units, str(entry.get("capacity", "?")), slots, show_time(entry["beginTimestamp"])


_TABLES: dict[str, tuple[tuple[str, ...], Callable[[Entry], tuple[str, ...]]]] = {
    **dict.fromkeys(QUEUE_KINDS, ((">files", ">units", "offsets", "physical offsets", "queue"), _queue_row)),
    "index": (("file", ">units", ">room", "slots in use", "first message"), _index_row),
    "json": (("table", "holds"), lambda entry: (os.path.basename(entry["file"]), _counts_text(entry))),
}
