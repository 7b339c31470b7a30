"""Format the results of verify, salvage, rebuild and clean as lines and tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from os.path import basename
from typing import TYPE_CHECKING

from rocketc.files.remote import shown
from rocketc.jobs.other_files import OtherFile
from rocketc.jobs.rebuild import RebuildReport
from rocketc.jobs.salvage import SalvageReport
from rocketc.jobs.verify import FileReport, QueueRange, VerifyReport
from rocketc.jobs.verify_derived import DerivedReport, Finding
from rocketc.report.tables import add_rows, columns, render_report, section, some
from rocketc.report.text import damage_text, gap_text, in_words, many, show_size, show_span, show_time, visible
from rocketc.store.cleaning import CleanReport

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_OTHERS = 20  # names of files in a line

_ENDS = {
    "closed": ("whole", "green"),
    "open": ("whole; the log ends in it", "green"),
    "torn": ("torn tail", "red"),
    "ahead": ("made ahead, empty", "dim"),
    "deleted": ("deleted by the owner before it was read", "dim"),
    "unreadable": ("unreadable", "red"),
}


def draw_verify(path: Sequence[str], report: VerifyReport, color: bool, every: bool) -> str:
    """Return the whole report as text for the terminal's width, or for 80 columns without a terminal."""
    return render_report(verify_lines(path, report, every), verify_table(report.files, every), color)


def verify_lines(path: Sequence[str], report: VerifyReport, every: bool) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and style of each line above the table of files; path: () if unknown."""
    if path:
        yield "log", " ".join(map(shown, path)), ""
    batches = f" ({many(report.messages, 'message')})" if report.messages != report.records else ""
    files = many(sum(file.end != "ahead" for file in report.files), "file")
    yield "checked", f"{many(report.records, 'record')}{batches} of {many(report.queues, 'queue')}, in {files}", ""
    times = [file for file in report.files if file.first_store_timestamp is not None]
    if times:
        first, last = times[0].first_store_timestamp or 0, times[-1].last_store_timestamp or 0
        yield "times", f"{show_time(first)} to {show_time(last)}", ""
    torn = {id(file.damage[-1]) for file in report.files if file.end == "torn"}
    damage = some(report.damage, every, lambda one: damage_text(one, "torn tail, " if id(one) in torn else ""))
    yield from section("damage", damage, "none")
    unreadable = (f"{basename(file.file)}: {file.error}" for file in report.files if file.error is not None)
    yield from section("files", [*some(report.missing, every, lambda gap: gap_text(*gap)), *unreadable])
    missing = some(report.missing_offsets, every, lambda one: _range_text(one, "missing", "before"))
    twice = some(report.duplicate_offsets, every, lambda one: _range_text(one, "more than once", "again from"))
    cut = ["too many errors or queues: not all queue offsets were checked"] if report.incomplete else []
    yield from section("queues", [*missing, *twice, *cut], "no missing or duplicate queue offsets")
    if report.derived is not None:
        yield from _derived_lines(report.derived, every)
    yield from other_lines(report.others, every)
    yield from section("advice", _verify_advice(path[0] if path else "PATH", report), style="yellow")
    backwards = [file for file in report.files if file.backwards]
    yield from section("clock", some(backwards, every, _clock_text), style="yellow")
    holes = [(file, hole) for file in report.files for hole in file.holes]
    yield from section("holes", some(holes, every, lambda one: _hole_text(*one)), style="yellow")


def other_lines(others: Sequence[OtherFile], every: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the lines about a store's other files: the errors, then the names of the others.

    Those that can't be read are in the lines `not read`.
    """
    wrong = [one for one in others if one.error is not None and one.state != "not read"]
    yield from section("others", some(wrong, every, lambda one: f"{one.file}: {one.error}"))
    name = "" if wrong else "others"
    for state, style in (("valid", "green"), ("not checked", "dim")):
        names = {one.file: one.files for one in others if one.state == state}
        pairs = {file for file in names if f"{file}.bak" in names}
        files = [
            file + ("(.bak)" if file in pairs else f" ({many(count, 'file')})" if file.endswith("/") else "")
            for file, count in names.items()
            if file.removesuffix(".bak") not in pairs or file in pairs
        ]
        if files:
            shown = files if every else files[:_OTHERS]
            more = f" and {len(files) - len(shown)} more" if len(files) > len(shown) else ""
            yield name, f"{state}: {', '.join(shown)}{more}", style
            name = ""


def _verify_advice(path: str, report: VerifyReport) -> Iterator[str]:
    """Yield what to do next about the errors found, if a command can repair them."""
    torn = [file for file in report.files if file.end == "torn" and len(file.damage) == 1]
    lost = [(file.damage[0].start, file.damage[0].stop) for file in torn]
    findings, problems = ([], []) if report.derived is None else (report.derived.findings, report.derived.problems)
    findings = [one for one in findings if not any(start <= one.phy_offset < stop for start, stop in lost)]
    last = max((file.last_offset for file in report.files if file.last_offset is not None), default=-1)
    missing, needs_rebuild = 0, False
    twice = {(one.topic, one.queue_id) for one in report.duplicate_offsets}  # a queue cannot contain these
    for one in findings:
        if one.what in ("no_record", "key_no_record") and one.phy_offset > last:
            missing += one.count if one.what == "no_record" else 0
        else:
            needs_rebuild |= (one.topic, one.queue_id) not in twice
    if missing:
        count = many(missing, "message")
        yield f"queues point to {count} after the end of the log: is a file missing? opening or rebuilding drops them"
    if report.derived is not None and report.derived.unreadable:
        yield "run the command as a user who may read the whole store"
    if report.missing or any(file.error or (file.damage and file not in torn) for file in report.files):
        yield f"`rocketc salvage {path} NEW` copies all readable records"
        return
    checkpoint = os.path.join(path, "checkpoint")
    unreadable = report.derived is not None and report.derived.unreadable
    if needs_rebuild or any(not unreadable and not text.startswith(checkpoint) for text in problems):
        yield f"`rocketc rebuild {path}` rebuilds queues and index from the log"


def _derived_lines(report: DerivedReport, every: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the lines about the files that are derived from the log."""
    for is_index, name in ((False, "units"), (True, "index")):
        there = report.keys if is_index else report.queues
        findings = [one for one in report.findings if one.what.startswith("key_") == is_index]
        lines = some(findings, every, _finding_text)
        if ("index" if is_index else "queues") in report.not_checked:
            yield name, "not checked", "red"
        elif there is None:
            yield name, f"the store is without {'an index' if is_index else 'consume queues'}", "dim"
        elif is_index:
            yield from section(name, lines, f"{many(there, 'key')} as the log says")
        else:
            yield from section(name, lines, f"{many(report.units, 'unit')} of {many(there, 'queue')} as the log says")
    yield from section("derived", some(report.problems, every, str))
    yield from section("not read", some(report.unreadable, every, str))
    if report.behind:
        text = f"{many(report.behind, 'record')} behind: not dispatched yet; the store is open, or was not closed"
        yield "", text, "yellow"


_FINDINGS = {
    "lacks": "missing, from byte {} of the log on",
    "elsewhere": "point to another place than byte {} of the log",
    "bad_size": "have another size than the record at byte {} of the log",
    "bad_tags_code": "have another tags code than the record at byte {} of the log",
    "no_record": "point to byte {} of the log, where there is no such record",
    "key_no_record": "point to byte {} of the log, where there is no record with that key",
    "key_bad_time": "have another store time than the record at byte {} of the log",
    "key_bad_header": "is the first or last of the file, whose header differs from the record at byte {} of the log",
}


def _finding_text(one: Finding) -> str:
    if one.what == "no_queue":
        return f"{many(one.count, 'record')} of missing queues, bytes {one.first} to {one.last} of the log"
    if one.what == "key_lacks":
        return f"{many(one.count, 'key')} missing, of records at bytes {one.first} to {one.last} of the log"
    numbers = str(one.first) if one.first == one.last else f"{one.first} to {one.last}"
    units = f"unit{'s' * (one.count > 1)}"
    where = f"{one.topic}/{one.queue_id}:" if one.file is None else f"{basename(one.file)}: {units}"
    return f"{where} {numbers} {_FINDINGS[one.what].format(one.phy_offset)}"


def _range_text(each: QueueRange, what: str, place: str) -> str:
    numbers = str(each.start) if each.stop == each.start + 1 else f"{each.start} to {each.stop - 1}"
    return f"{each.topic}/{each.queue_id}: {numbers} {what}, {place} byte {each.phy_offset} of the log"


def _clock_text(file: FileReport) -> str:
    steps = many(file.backwards, "step")
    span = show_span(file.backwards_ms)
    return f"{steps} back in {basename(file.file)}, by up to {span}, first at byte {file.backwards_at} of the log"


def _hole_text(file: FileReport, hole: tuple[int, int]) -> str:
    start, stop = hole
    return f"{start} to {stop} ({show_size(stop - start)}) in {basename(file.file)}: never written, or cut out"


def verify_table(files: Sequence[FileReport], every: bool) -> Table:
    from rich.text import Text

    def cells(file: FileReport) -> tuple[Text | str, ...]:
        return Text(visible(basename(file.file))), show_size(file.size), str(file.records), Text(*_file_state(file))

    return add_rows(columns("file", ">size", ">records", "state"), files, every, cells)


def _file_state(file: FileReport) -> tuple[str, str]:
    """Return the state of a file and its style."""
    if file.error is not None:
        return f"unreadable: {visible(file.error)}", "red"
    if not file.damage:
        return ("empty", "dim") if file.bytes == 0 and file.end == "open" else _ENDS[file.end]
    lost = sum(damage.stop - damage.start for damage in file.damage)
    if file.end == "torn" and len(file.damage) == 1:
        return f"torn tail, {show_size(lost)} lost", "red"
    text = f"{many(len(file.damage), 'damaged range')}, {show_size(lost)} lost"
    return text + ("; torn tail" if file.end == "torn" else ""), "red"


def salvage_lines(
    src: str | None, dst: str | None, report: SalvageReport, every: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and style of each line; src, dst: None if unknown."""
    if src is not None:
        yield "from", src, ""
    if dst is not None or not report.records:
        yield "would make" if report.dry else "made", dst if dst is not None and report.records else "nothing", ""
    batches = f" ({many(report.messages, 'message')})" if report.messages != report.records else ""
    log = [size for path, size in report.files.items() if path.split(os.sep)[0] == "commitlog"]
    text = f"{many(report.records, 'record')}{batches}, {show_size(report.bytes)}, in {many(len(log), 'file')}"
    yield "whole", text + ("" if report.dry else f"; {many(report.queues, 'queue')}"), "green"
    lost = [*some(report.lost, every, damage_text), *some(report.missing, every, lambda gap: gap_text(*gap))]
    if report.behind:
        end = f"{many(report.behind, 'record')} after the end of the log, up to {report.behind_to}"
        lost.append(f"{end}: queues point to them")
    yield from section("lost", lost, "nothing")
    if report.unqueued:
        text = f"{many(report.unqueued, 'record')} with an invalid topic or queue offset: only in the log"
        yield "no queue", text, "red"
    if report.map is not None and report.records:
        yield "map", report.map if dst is None else os.path.join(dst, basename(report.map)), ""
    elif report.hides:
        text = "RocketMQ skips messages after the loss in the file at offset 0; use --compact to avoid this"
        yield "advice", text, "yellow"


def rebuild_lines(
    store: str | None, only: str | None, report: RebuildReport, every: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and style of each line; store: None if unknown."""
    name = "" if store is None else f"{store}: "
    yield "log", f"{name}{show_size(report.bytes)} read, offsets {report.start} to {report.stop}", ""
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for path, size in report.files.items():
        sizes[path.split(os.sep)[0] == "index"].append(size)
    if only != "index":
        text = f"{many(report.messages, 'message')} in {many(report.queues, 'queue')}"
        yield "queues", f"{text}: {many(len(sizes[False]), 'file')}, {show_size(sum(sizes[False]))}", "green"
    if only != "cq":
        files = f"{many(len(sizes[True]), 'file')}, {show_size(sum(sizes[True]))}"
        yield "index", f"{many(report.keys, 'key')}: {files}", "green"
    if report.unqueued:
        yield "left out", f"{many(report.unqueued, 'record')} with an invalid topic or queue offset", "red"
    damage = some(report.damage, every, lambda one: f"{one.start} to {one.stop}: {one.reason}{in_words(one.reason)}")
    yield from section("damage", [*damage, *(f"{start} to {stop}: no file" for start, stop in report.missing)])


def draw_clean(
    store: str, report: CleanReport, files: int, start: int, color: bool, every: bool, as_broker: bool
) -> str:
    """Return the whole report as text for the terminal's width, or for 80 columns without a terminal."""
    lines = clean_lines(store, report, files, start, as_broker)
    return render_report(lines, clean_table(store, report, every), color)


def clean_lines(
    store: str | None, report: CleanReport, files: int, start: int, as_broker: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and style of each line above the table of files.

    store      None if unknown; files and start are then ignored
    files      number of files in the log
    start      physical offset of the first one
    as_broker  whether the run was automatic: add the reason
    """
    if store is not None:
        yield "log", f"{store}: {many(files, 'file')}, from offset {start} on", ""
    disks = ", ".join(f"{_relative_path(store, path)} {_share_text(share)}" for path, share in report.disks.items())
    yield "disk", disks, "red" if report.disk_full else ""
    if as_broker:
        because = "; ".join(report.because)
        if store is not None:
            because = because.replace(os.path.join(os.path.abspath(store), ""), "")
        yield "why now", because or "there is no reason", ""
    verb = "would go" if report.dry else "deleted"
    if report.deleted:
        yield verb, clean_total(report), "yellow" if report.dry else "green"
    else:
        yield verb, "nothing", ""
    if report.kept is not None:
        name, changed = basename(report.kept.path), _minute(report, report.kept.age)
        rest = f", from {name} on" if report.kept.files > 1 else f", {name}"
        yield "stays", f"{many(report.kept.files, 'file')}{rest}, changed {changed}: {report.kept.why}", ""


def _share_text(share: float) -> str:
    return "not found" if share < 0 else f"{100 * share:.0f} %"


def clean_total(report: CleanReport) -> str:
    """Return how many files were deleted, or would be, and their size."""
    others = len(report.deleted) - report.log_files
    tail = f", and {others} of queues and index" if others else ""
    return f"{many(report.log_files, 'file')} of the log{tail}: {show_size(report.size)}"


def clean_table(store: str | None, report: CleanReport, every: bool) -> Table:
    """Return a table of the deleted log files, with one row for each queue that lost files and one for the index."""
    from rich.text import Text

    rows = [(one.size, _minute(report, one.age), one.why, one.path, "") for one in report.deleted if one.age >= 0]
    others: dict[str, list[int]] = {}
    for one in report.deleted:
        if one.age < 0:
            others.setdefault(os.path.dirname(one.path), []).append(one.size)
    for folder, sizes in others.items():
        files = f" ({len(sizes)} files)" if len(sizes) > 1 else ""
        rows.append((sum(sizes), "", "follows", folder, files))

    def cells(row: tuple[int, str, str, str, str]) -> tuple[Text | str, ...]:
        size, changed, why, path, files = row
        return show_size(size), changed, why, Text(visible(_relative_path(store, path)) + files)

    return add_rows(columns(">size", "changed", "why", "file"), rows, every, cells)


def _minute(report: CleanReport, age: int) -> str:
    return show_time(report.now - age)[:16] + "Z"


def _relative_path(store: str | None, path: str) -> str:
    if store is None:
        return path
    below = os.path.relpath(path, store)
    return store if below == "." else path if below.startswith("..") else below
