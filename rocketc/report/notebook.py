"""Stores, scans and reports as HTML for notebooks, in the same tables as on the command line.

The HTML is self-contained, its styles do not affect the page, and its colors are readable on white and on black. All
text is escaped, because topics and file names may contain any bytes.
"""

from __future__ import annotations

import html as _html
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING

from rocketc.errors import ClosedError, CorruptRecordError
from rocketc.exports.export import ExportReport
from rocketc.files.remote import shown
from rocketc.jobs.rebuild import RebuildReport
from rocketc.jobs.salvage import SalvageReport
from rocketc.jobs.verify import VerifyReport
from rocketc.metrics.snapshot import SnapshotReader, StoreSnapshot
from rocketc.read._message import Message
from rocketc.read.scan import Scan
from rocketc.read.scan_report import ScanReport
from rocketc.report.summaries import clean_lines, clean_table, rebuild_lines, salvage_lines, verify_lines, verify_table
from rocketc.report.tables import columns, facts, few, section, some
from rocketc.report.text import in_words, many, show_size, show_time, visible
from rocketc.store._lookups import QueryResult
from rocketc.store._queue_reader import GetResult
from rocketc.store._results import ReadResult
from rocketc.store._store import MessageStore
from rocketc.store.cleaning import CleanReport

if TYPE_CHECKING:
    from rich.table import Column, Table
    from rich.text import Text

_COLORS = {"red": "color:#e0493b", "green": "color:#2f9e44", "yellow": "color:#b7791f", "dim": "opacity:.6"}
_TABLE = "color:inherit;border-collapse:collapse;margin:.2em 0 .6em 0;font-size:90%;border:none"
_CELL = "color:inherit;padding:.1em 1em .1em 0;text-align:{};vertical-align:top;border:none;background:transparent"
_BODY = 60  # bytes of a body to show
_Line = tuple[str, str, str]


@singledispatch
def html(thing: object) -> str:
    """Return HTML for a store, a scan, a report, or the result of get() or query().

    Raises TypeError for all other objects.

    >>> import rocketc
    >>> "&lt;b&gt;" in html(rocketc.decode(rocketc.encode("orders", b"hi"), topics="<b>"))
    True
    """
    raise TypeError(f"{type(thing).__name__}: there is no HTML form of this type")


@html.register
def _(report: VerifyReport) -> str:
    parts = [facts(verify_lines((), report, False))]
    return _page("VerifyReport", parts + [verify_table(report.files, False)] * bool(report.files))


@html.register
def _(report: SalvageReport) -> str:
    return _page("SalvageReport", [facts(salvage_lines(None, None, report, False))])


@html.register
def _(report: RebuildReport) -> str:
    return _page("RebuildReport", [facts(rebuild_lines(None, None, report, False))])


@html.register
def _(report: CleanReport) -> str:
    parts = [facts(clean_lines(None, report, 0, 0, True))]
    return _page("CleanReport", parts + [clean_table(None, report, False)] * bool(report.deleted))


@html.register
def _(report: ExportReport) -> str:
    return _page("ExportReport", [facts([*_export_lines(report), *_scan_lines(report.scan)])])


@html.register
def _(report: ScanReport) -> str:
    return _page("ScanReport", [facts(_scan_lines(report))])


@html.register
def _(scan: Scan) -> str:
    lines: list[_Line] = [(name, text, "") for name, text in scan.describe()]
    if scan.report.end is None:
        lines.append(("read", "nothing yet: iterate over it, or call batches() or to_arrow()", "dim"))
    else:
        lines += _scan_lines(scan.report)
    return _page("Scan", [facts(lines)])


@html.register
def _(store: MessageStore) -> str:
    mode = "reading only" if store.read_only else f"writing, flush {store.config.flush!r}"
    try:
        look = SnapshotReader(store).read()
    except (ClosedError, OSError) as error:
        state = "closed" if store.closed else str(error)
        return _page("MessageStore", [facts([("store", store.path, ""), ("state", state, "yellow")])])
    lines = [("store", store.path, ""), ("state", f"open for {mode}", "green"), *_look_lines(look)]
    if store.failed is not None:
        lines.append(("failed", str(store.failed), "red"))
    return _page("MessageStore", [facts(lines), *[_topic_table(look)] * bool(look.topics)])


@html.register
def _(result: GetResult) -> str:
    lines: list[_Line] = [
        ("status", result.status.name, "green" if result else "dim"),
        ("queue", f"offsets {result.min_offset} to {result.max_offset}; continue at {result.next_offset}", ""),
    ]
    return _answer("GetResult", lines, result)


@html.register
def _(result: QueryResult) -> str:
    return _answer("QueryResult", [("found", many(len(result.phy_offsets), "record"), "")], result)


def _answer(title: str, lines: list[_Line], result: ReadResult) -> str:
    try:
        messages = result.messages
    except CorruptRecordError as error:
        return _page(title, [facts([*lines, ("damage", str(error), "red")])])
    return _page(title, [facts(lines), *[_message_table(messages)] * bool(messages)])


def _message_table(messages: Sequence[Message]) -> Table:
    """Return a table of messages with the first bytes of their bodies."""
    from rich.text import Text

    table = columns("stored", "queue@offset", "tags", "keys", ">bytes", "body")
    for one in few(messages, False):
        if isinstance(one, str):
            table.add_row(Text(one.partition(",")[0], "dim"), *[""] * 5)
            continue
        try:
            body, size = bytes(one.body[:_BODY]), f"{len(one.body):,}"
            shown = Text(visible(body.decode("utf-8", "replace")) + (" ..." if len(one.body) > _BODY else ""))
        except ClosedError as error:  # its view was released
            shown, size = Text(str(error), "dim"), ""
        where = f"{one.topic}/{one.queue_id}@{one.queue_offset}"
        names = [visible(text or "") for text in (where, one.tags, one.keys)]
        table.add_row(show_time(one.store_timestamp), *names, size, shown)
    return table


def _export_lines(report: ExportReport) -> Iterator[_Line]:
    where = "" if report.path is None else f" to {shown(report.path)}"
    size = f"{show_size(report.bytes)} in {many(report.files, 'file')}, {report.format}"
    yield "written", f"{many(report.rows, 'message')}{where}: {size}", "green"


def _scan_lines(report: ScanReport) -> Iterator[_Line]:
    yield "read", f"{many(report.records, 'message')}, {show_size(report.bytes)} in {many(report.files, 'file')}", ""
    damage = some(report.damage, False, lambda one: f"{one}{in_words(one.reason)}")
    lost = {(one.start, one.stop) for one in report.damage}
    gaps = (f"{start} to {stop}: not read" for start, stop in report.missing if (start, stop) not in lost)
    yield from section("damage", [*damage, *gaps], "none")
    deleted = (f"{start} to {stop}: by the owner of the store, before they were read" for start, stop in report.deleted)
    yield from section("deleted", deleted, style="yellow")


def _look_lines(look: StoreSnapshot) -> Iterator[_Line]:
    yield "offsets", f"{look.first} to {look.end} ({show_size(look.end - look.first)})", ""
    if look.oldest is not None:
        yield "oldest", show_time(look.oldest), ""
    for name, behind in (("flush", look.flush_behind), ("dispatch", look.dispatch_behind)):
        if behind is not None:
            yield name, f"{show_size(behind)} behind" if behind else "all done", "yellow" if behind else "green"
    yield "size", f"{show_size(look.size)} in the files of log, queues and index", ""


def _topic_table(look: StoreSnapshot) -> Table:
    """Return a table of the topics of a store, those with the most messages first."""
    from rich.text import Text

    table = columns("topic", ">queues", ">messages")
    for row in few(sorted(look.topics.items(), key=lambda row: (-row[1].messages, row[0])), False):
        if isinstance(row, str):
            table.add_row(Text(row.partition(",")[0], "dim"), "", "")
        else:
            table.add_row(Text(visible(row[0])), f"{row[1].queues:,}", f"{row[1].messages:,}")
    return table


# ------------------------------------------------------------------------------------------- tables as HTML


def _page(title: str, tables: Iterable[Table]) -> str:
    head = f'<div style="font-weight:600">rocketc.{title}</div>'
    return f"<div>{head}{''.join(map(_table, tables))}</div>"


def _table(table: Table) -> str:
    rows = []
    if table.show_header and any(str(column.header) for column in table.columns):
        rows.append("".join(_cell("th", column.header, column) for column in table.columns))
    for row in zip(*(column.cells for column in table.columns), strict=True):
        rows.append("".join(_cell("td", cell, column) for cell, column in zip(row, table.columns, strict=True)))
    body = "".join(f'<tr style="background:transparent">{row}</tr>' for row in rows)
    return f'<table style="{_TABLE}">{body}</table>'


def _cell(tag: str, cell: object, column: Column) -> str:
    from rich.text import Text

    text = cell if isinstance(cell, Text) else Text(str(cell))
    style = _CELL.format("right" if column.justify == "right" else "left")
    style += ";font-weight:600" if column.style == "bold" or tag == "th" else ""
    style += ";white-space:nowrap" if column.no_wrap else ""
    return f'<{tag} style="{style}">{"".join(_spans(text))}</{tag}>'


def _spans(text: Text) -> Iterator[str]:
    """Yield the text in pieces with one style each, as HTML."""
    for piece in text.divide(sorted({at for span in text.spans for at in (span.start, span.end)} - {0, len(text)})):
        styles = [str(text.style), *(str(span.style) for span in piece.spans)]
        style = ";".join(dict.fromkeys(_COLORS[one] for one in styles if one in _COLORS))
        shown = escape(piece.plain)
        if shown:
            yield f'<span style="{style}">{shown}</span>' if style else shown


def escape(text: str) -> str:
    """Escape text for HTML; bytes that are not UTF-8 become U+FFFD.

    >>> escape("<b>&")
    '&lt;b&gt;&amp;'
    """
    return _html.escape(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
