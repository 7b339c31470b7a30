"""rocketc verify: is every record of a log what was stored, and is any missing?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from rocketc.cli.arguments import Number
from rocketc.cli.output import Out, ends_quietly, in_words, note, visible
from rocketc.cli.progress import progress
from rocketc.cli.tables import columns, facts, many, render, section, show_size, some
from rocketc.cli.times import show_span, show_time
from rocketc.paths import resolve
from rocketc.remote import shown
from rocketc.scan import Damage
from rocketc.verify import FileReport, QueueRange, VerifyReport, root_of
from rocketc.verify import verify as check
from rocketc.verify_derived import DerivedReport, Finding

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_ENDS = {
    "closed": ("whole", "green"),
    "open": ("whole; the log ends in it", "green"),
    "torn": ("torn tail", "red"),
    "ahead": ("made ahead, empty", "dim"),
    "unreadable": ("unreadable", "red"),
}


@click.command(
    epilog="""\b
Examples:
  rocketc verify /data/store
  rocketc verify /data/store --json | jq '.files[] | select(.damage)'""",
)
@click.argument("path", nargs=-1, required=True, type=click.Path())
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object with all that was found; times in ms.")
@click.option("--all", "every", is_flag=True, help="Every file and finding in the table, however many.")
@click.option(
    "--jobs", type=Number(1, 1024), metavar="N", help="Files read at the same time; all processors if not given."
)
@ends_quietly
def verify(path: tuple[str, ...], as_json: bool, every: bool, jobs: int | None) -> int:
    """Check every record of a store, a commit log folder, or files, and what the records say together.

    Lengths, CRC of the body and of the properties (where there is one), place in the log; missing files; in each queue,
    queue offsets that are missing or come twice; a clock that was set back. Bodies are not decompressed. Of a store
    every unit of its consume queues and its index, and the checkpoint, too: do they say what the log says?

    The exit code is 1 if anything is damaged, missing or does not agree, or if there is nothing to read. A torn tail,
    the last record of a broker that was killed, is damage too: RocketMQ cuts it off at its next start.
    """
    total = sum(file.size for log in resolve(path) for file in log.files) * (1 if root_of(path) is None else 2)
    with progress("checking", total) as tell:
        report = check(path, jobs=jobs, tell=tell)
    with Out() as out:
        if as_json:
            out.json({"path": [*map(shown, path)], **report.to_dict()})
        else:
            out.write_text(draw(path, report, out.has_colour, every))
    if report.is_empty:
        note(f"nothing to read: {' '.join(map(shown, path))}")
    return 0 if report.is_whole and not report.is_empty else 1


def draw(path: Sequence[str], report: VerifyReport, colour: bool, every: bool) -> str:
    """The table, fit for the terminal's width, or for 80 columns where there is none."""
    parts: list[RenderableType] = [facts(lines(path, report, every))]
    if report.files:
        parts += ["", file_table(report.files, every)]
    return render(parts, colour)


def lines(path: Sequence[str], report: VerifyReport, every: bool) -> Iterator[tuple[str, str, str]]:
    """Name, text and style of each line above the files; path: () if it is not known."""
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
    damage = (_tell_damage(entry, torn) for entry in some(report.damage, every))
    yield from section("damage", damage, "none")
    unreadable = [file for file in report.files if file.error is not None]
    if report.missing or unreadable:
        gaps = (_tell_gap(gap) for gap in some(report.missing, every))
        files_lost = (each if isinstance(each, str) else f"{_name(each.file)}: {each.error}" for each in unreadable)
        yield from section("files", [*gaps, *files_lost], "")
    missing = (_tell_range(each, "missing") for each in some(report.missing_offsets, every))
    twice = (_tell_range(each, "more than once") for each in some(report.duplicate_offsets, every))
    cut = ["too much is wrong: not all queue offsets were looked at"] if report.incomplete else []
    yield from section("queues", [*missing, *twice, *cut], "no queue offset is missing or comes twice")
    if report.derived is not None:
        yield from _derived_lines(report.derived, every)
    for i, text in enumerate(_advice(path[0] if path else "PATH", report)):
        yield "advice" if i == 0 else "", text, "yellow"
    backwards = [file for file in report.files if file.backwards]
    for i, each in enumerate(some(backwards, every)):
        yield "clock" if i == 0 else "", each if isinstance(each, str) else _tell_clock(each), "yellow"
    holes = [(file, hole) for file in report.files for hole in file.holes]
    for i, one in enumerate(some(holes, every)):
        yield "holes" if i == 0 else "", one if isinstance(one, str) else _tell_hole(*one), "yellow"


def _advice(path: str, report: VerifyReport) -> Iterator[str]:
    """What to do next, where something is wrong that something mends."""
    torn = [file for file in report.files if file.end == "torn" and len(file.damage) == 1]
    lost = [(file.damage[0].start, file.damage[0].stop) for file in torn]
    findings, amiss = ([], []) if report.derived is None else (report.derived.findings, report.derived.amiss)
    findings = [one for one in findings if not any(start <= one.phy_offset < stop for start, stop in lost)]
    last = max((file.last_offset for file in report.files if file.last_offset is not None), default=-1)
    gone, mended = 0, False
    twice = {(one.topic, one.queue_id) for one in report.duplicate_offsets}  # no queue can hold these
    for one in findings:
        if one.what in ("no_record", "key_no_record") and one.phy_offset > last:
            gone += one.count if one.what == "no_record" else 0
        else:
            mended |= (one.topic, one.queue_id) not in twice
    if gone:
        count = many(gone, "message")
        yield f"queues lead to {count} behind the log's end: is a file missing? an opening, or a rebuild, forgets them"
    if report.missing or any(file.error or (file.damage and file not in torn) for file in report.files):
        yield f"`rocketc salvage {path} NEW` saves all that can be read"
        return
    checkpoint = os.path.join(path, "checkpoint")
    if mended or any(not text.startswith(checkpoint) for text in amiss):
        yield f"`rocketc rebuild {path}` makes queues and index anew from the log"


def _derived_lines(report: DerivedReport, every: bool) -> Iterator[tuple[str, str, str]]:
    """What is said of the files that are derived from the log."""
    for is_index, name in ((False, "units"), (True, "index")):
        there = report.keys if is_index else report.queues
        findings = [one for one in report.findings if one.what.startswith("key_") == is_index]
        told = (one if isinstance(one, str) else _tell_finding(one) for one in some(findings, every))
        if there is None:
            yield name, f"the store has no {'index' if is_index else 'consume queues'}", "dim"
        elif is_index:
            yield from section(name, told, f"{many(there, 'key')} as the log says")
        else:
            yield from section(name, told, f"{many(report.units, 'unit')} of {many(there, 'queue')} as the log says")
    if report.amiss:
        yield from section("derived", some(report.amiss, every), "")
    if report.behind:
        text = f"{many(report.behind, 'record')} at the end not there yet: the store runs, or was not closed"
        yield "", text, "yellow"


_FINDINGS = {
    "lacks": "missing, from byte {} of the log on",
    "elsewhere": "lead elsewhere than to byte {} of the log",
    "bad_size": "say another size than the record at byte {} of the log",
    "bad_tags_code": "say other tags than the record at byte {} of the log",
    "no_record": "lead to byte {} of the log, where no record of them is",
    "key_no_record": "lead to byte {} of the log, where no record has that key",
    "key_bad_time": "have another time than the record at byte {} of the log",
    "key_bad_header": "begins or ends the file, whose header says else than the record at byte {} of the log",
}


def _tell_finding(one: Finding) -> str:
    if one.what == "no_queue":
        return f"{many(one.count, 'record')} of queues that are not there, bytes {one.first} to {one.last} of the log"
    if one.what == "key_lacks":
        return f"{many(one.count, 'key')} missing, of records at bytes {one.first} to {one.last} of the log"
    numbers = str(one.first) if one.first == one.last else f"{one.first} to {one.last}"
    where = f"{one.topic}/{one.queue_id}: " if one.file is None else f"{_name(one.file)}: unit{'s' * (one.count > 1)} "
    return where + numbers + " " + _FINDINGS[one.what].format(one.phy_offset)


def _tell_damage(damage: Damage | str, torn: set[int]) -> str:
    if isinstance(damage, str):
        return damage
    where = f"{damage.start} to {damage.stop} in {_name(damage.file or '')}: "
    if id(damage) in torn:
        return where + f"torn tail, {damage.reason}{in_words(damage.reason)}"
    return where + damage.reason + in_words(damage.reason)


def _tell_gap(gap: tuple[int, int] | str) -> str:
    if isinstance(gap, str):
        return gap
    return f"{gap[0]} to {gap[1]} ({show_size(gap[1] - gap[0])}): no file"


def _tell_range(each: QueueRange | str, what: str) -> str:
    if isinstance(each, str):
        return each
    place = "before" if what == "missing" else "again from"
    numbers = str(each.start) if each.stop == each.start + 1 else f"{each.start} to {each.stop - 1}"
    return f"{each.topic}/{each.queue_id}: {numbers} {what}, {place} byte {each.phy_offset} of the log"


def _tell_clock(file: FileReport) -> str:
    steps = many(file.backwards, "step")
    span = show_span(file.backwards_ms)
    return f"{steps} back in {_name(file.file)}, by up to {span}, first at byte {file.backwards_at} of the log"


def _tell_hole(file: FileReport, hole: tuple[int, int]) -> str:
    start, stop = hole
    return f"{start} to {stop} ({show_size(stop - start)}) in {_name(file.file)}: never written, or cut out"


def file_table(files: Sequence[FileReport], every: bool) -> Table:
    from rich.text import Text

    table = columns("file", ">size", ">records", "state")
    for file in some(files, every):
        if isinstance(file, str):
            table.add_row("", "", "", Text(file, "dim"))
            continue
        table.add_row(Text(visible(_name(file.file))), show_size(file.size), str(file.records), Text(*_state(file)))
    return table


def _state(file: FileReport) -> tuple[str, str]:
    """What is to be said of a file, and in which style."""
    if file.error is not None:
        return f"unreadable: {visible(file.error)}", "red"
    if not file.damage:
        return ("empty", "dim") if file.bytes == 0 and file.end == "open" else _ENDS[file.end]
    lost = sum(damage.stop - damage.start for damage in file.damage)
    if file.end == "torn" and len(file.damage) == 1:
        return f"torn tail, {show_size(lost)} lost", "red"
    text = f"{many(len(file.damage), 'damaged range')}, {show_size(lost)} lost"
    return text + ("; torn tail" if file.end == "torn" else ""), "red"


def _name(path: str) -> str:
    return os.path.basename(path)
