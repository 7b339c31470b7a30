"""rocketc info: show what a store holds, as a table or as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from os.path import basename
from typing import TYPE_CHECKING

import click

from rocketc.cli.arguments import named_files, takes_kind
from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, DONE
from rocketc.cli.output import command, note, print_result, progress
from rocketc.jobs.inventory import CHECKPOINT_FIELDS, File, Hole, Inventory, take_inventory
from rocketc.read.scan_report import torn_tail
from rocketc.report.summaries import other_lines
from rocketc.report.tables import add_rows, columns, render_report, section, some
from rocketc.report.text import damage_text, deleted_text, gap_text, many, show_size, show_span, show_time, visible

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


@command("rocketc info /data/store", "rocketc info /data/store --json | jq .end")
@click.argument("path", type=click.Path())
@click.option("-J", "--json", "as_json", is_flag=True, help="Print the report as one JSON object; times in ms.")
@click.option("--all", "every", is_flag=True, help="Show every file, hole and damaged range in the table.")
@takes_kind
def info(path: str, as_json: bool, every: bool, kind: str | None, index_slots: int | None) -> int:
    """Show what a store, a commit log folder or a log file holds: files, offsets, times, damage, and how it was closed.

    `sizes` are lines for broker.conf: RocketMQ opens the store only with these sizes of files.

    It reads the first record of each file, and the whole last file; `rocketc verify` checks every record. The exit code
    is 1 if something is damaged or missing, and 3 if no file can be read. Files that another process deletes meanwhile
    are named on stderr; they are not missing.

    PATH can also be another file or folder of a store (consumequeue, index, checkpoint, config, ...): its units are
    counted and checked.
    """
    if (files := named_files([path], kind, index_slots)) is not None:
        from rocketc.cli.info_files import info_files

        return info_files(path, files, as_json, every, index_slots)
    found = take_inventory(path, progress)
    print_result(as_json, found.to_dict, lambda color: draw(found, color, every))
    for gap in found.deleted:
        note(deleted_text(*gap))
    if found.is_empty:
        note(f"nothing to read: {path}")
    if found.files and all(file.state.startswith("unreadable") for file in found.files):
        return COULD_NOT
    return DAMAGED if found.has_errors else DONE


def draw(found: Inventory, color: bool, every: bool) -> str:
    """Return the table, as wide as the terminal, or 80 columns without a terminal."""
    return render_report(_lines(found, every), _file_table(found.files, every), color)


def _lines(found: Inventory, every: bool) -> Iterator[tuple[str, str, str]]:
    """Name, text and style of each line above the files."""
    yield {"store": "store", "commitlog": "log", "file": "file"}[found.kind], found.path, ""
    if found.begin is not None and found.end is not None:
        length, files = show_size(found.end - found.begin), many(len(found.files), "file")
        yield "offsets", f"{found.begin} to {found.end} ({length}), in {files}", ""
    if found.firstStoreTimestamp is not None:
        first, last = found.firstStoreTimestamp, found.lastStoreTimestamp
        until = "?" if last is None else show_time(last)
        span = f" ({show_span(last - first)})" if last is not None and last > first else ""
        yield "times", f"{show_time(first)} to {until}{span}", ""
    if found.end is not None and found.lastFile is not None:
        yield "end", _end_text(found), ""
    yield from _state_lines(found)
    if found.consumeQueues is not None:
        topics, queues = found.consumeQueues["topics"], found.consumeQueues["queues"]
        index = many(found.indexFiles or 0, "index file")
        if found.indexFiles is None and os.path.isdir(os.path.join(found.path, "index")):
            index = "index not read"
        least = "at least " if found.consumeQueues.get("incomplete") else ""
        yield "queues", f"{least}{many(queues, 'queue')} of {many(topics, 'topic')}, {index}", ""
        yield from other_lines(found.others, every)
        if queues or found.indexFiles:
            yield "", "not checked: units of queues and index; `rocketc verify` compares them with the log", "dim"
    yield from section("not read", some(found.unreadable, every, str))
    if found.brokerConf is not None:
        yield from section("sizes", [conf_line(*line) for line in found.brokerConf.items()], style="")
    if found.cut is not None and found.cut["files"]:
        kept = f"{show_size(found.cut['bytes'])} in {many(found.cut['files'], 'file')}"
        yield "cut", f"{kept} that a recovery cut off the log: `rocketc cat {os.path.join(found.path, 'cut')}`", ""
    yield from section("holes", some(found.holes, every, _hole_text), "none")
    damage = [*some(found.damage, every, damage_text)]
    if (last := found.had_messages_until) is not None:
        damage.append(f"the end of the log is missing: the checkpoint has messages until {show_time(last)}")
    yield from section("damage", damage, _checked_text(found))


def conf_line(key: str, value: object) -> str:
    """Return a line of broker.conf.

    >>> conf_line("enableConsumeQueueExt", True)
    'enableConsumeQueueExt=true'
    """
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"


def _checked_text(found: Inventory) -> str:
    if len(found.files) < 2:
        return "none"
    return "none found in the first record of each file and in the last file"


def _end_text(found: Inventory) -> str:
    end, follows = found.end or 0, ""
    if torn := torn_tail(found.damage, end):
        end, follows = torn.start, f"; {torn.stop - torn.start} damaged bytes follow"
    last = next(file for file in found.files if file.file == found.lastFile)
    messages = many(found.lastFileMessages, "message")
    return f"byte {end - (last.physicalOffset or 0)} of {basename(last.file)}, after its {messages}{follows}"


def _state_lines(found: Inventory) -> Iterator[tuple[str, str, str]]:
    if found.abort is not None:
        who = f" of process {found.abort['pid']}" if "pid" in found.abort else ""
        if found.lock is not None and "pid" in found.lock:
            who = f"process {found.lock['pid']}" if found.lock["pid"] else "an unknown process"
            yield "state", f"in use: {who} holds the lock", "yellow"
        elif found.abort["present"]:
            yield "state", f"abort marker{who}: not shut down cleanly, or running", "yellow"
        else:
            yield "state", "no abort marker: shut down cleanly", "green"
    if found.checkpoint is not None:
        times = [
            f"{name:6} {show_time(found.checkpoint[key]) if found.checkpoint[key] else 'never'}"
            for name, key in zip(("log", "queues", "index"), CHECKPOINT_FIELDS, strict=False)
        ]
        yield from section("flushed", times, style="")


def _hole_text(hole: Hole) -> str:
    if hole.kind == "missing":
        return gap_text(hole.start, hole.stop)
    where, name = f"{hole.start} to {hole.stop} ({show_size(hole.stop - hole.start)})", basename(hole.file or "")
    if hole.kind == "short":
        return f"{where}: cut off {name}"
    return f"{where}: never written in {name}, but data follows"


def _file_table(files: Sequence[File], every: bool) -> Table:
    from rich.text import Text

    def cells(file: File) -> tuple[Text | str, ...]:
        first = show_time(file.storeTimestamp) if file.storeTimestamp is not None else "-"
        row = Text(first)
        if file.state == "empty":
            row = Text("made ahead, empty" if len(files) > 1 else "empty", "dim")
        elif file.state:
            row = Text.assemble("" if first == "-" else f"{first} ", (visible(file.state), "red"))
        return Text(visible(basename(file.file))), show_size(file.size), show_size(file.allocated), row

    return add_rows(columns("file", ">size", ">on disk", "first message"), files, every, cells)
