"""rocketc stats: count messages and bytes by group; print a table, a chart or JSON."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rocketc.cli.arguments import Number
from rocketc.cli.output import Out, command, note, progress
from rocketc.cli.security_options import with_security
from rocketc.cli.selecting import selects
from rocketc.cli.selection import Selection
from rocketc.jobs.counts import DIMENSIONS, Count, Group, count
from rocketc.report import plots
from rocketc.report.tables import facts, render, width
from rocketc.report.text import EPOCH, in_words, many, show_size, show_span, show_time, visible

if TYPE_CHECKING:
    from rich.table import Table

Value = str | int | None

TIMES = {"second": "%Y-%m-%dT%H:%M:%SZ", "minute": "%Y-%m-%dT%H:%MZ", "hour": "%Y-%m-%dT%H:%MZ", "day": "%Y-%m-%d"}
JSON_KEYS = {
    "queue": "queueId", "broker": "brokerName", "tag": "tags", "key": "keys", "host": "bornHost",
    "store-host": "storeHost",
}  # fmt: skip
TEXTS = ("topic", "broker", "tag", "key", "host", "store-host")
TOP = 20  # groups of a table that is not in the order of time or size
BATCH_BYTES = 4 << 20  # the columns of such a batch stay in the cache

_ALIASES = {word.lower(): name for name, word in JSON_KEYS.items()} | {"born-host": "host"}


class By(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A comma-separated list of dimensions, by their names or those of the columns."""

    name = "dimensions"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip().lower() for word in value.split(",")]
        names = tuple(_ALIASES.get(word, word) for word in words) if words != [""] else ()
        for name in names:
            if name not in DIMENSIONS:
                near = difflib.get_close_matches(name, DIMENSIONS, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                self.fail(f"{name!r} is not one of {', '.join(DIMENSIONS)}{hint}", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"a name is given twice in {value!r}", param, ctx)
        return names


@dataclass(frozen=True)
class View:
    """The groups that are shown.

    groups      in the order of the table
    other       the sums of the groups that are not shown, or None
    other_name  a text with the number of groups that are not shown
    other_count the number of these groups; a lower bound if there were more groups than can be counted
    """

    groups: list[Group]
    other: Group | None
    other_name: str
    other_count: int


@command(
    "rocketc stats /data/store --by topic,queue",
    "rocketc stats /data/store -t orders --by hour,tag --plot",
    "rocketc stats rocketmq://127.0.0.1:9876/orders",
    context_settings={"default_map": {"crc": "none"}},
)  # fmt: skip
@selects
@click.option(
    "--by",
    type=By(),
    default="topic",
    metavar="NAME,..",
    help=f"Group by any of: {', '.join(DIMENSIONS)}. Times are store times in UTC; host is the born host; "
    "size is a power of two. '' counts everything as one group. Default: topic.",
)
@click.option(
    "--sort",
    type=click.Choice(["bytes", "messages", "name", "time"]),
    help="Order of the groups: largest first, by name, or by first store time. Default: bytes; name (which is the "
    "order of time) if --by has a time or size.",
)
@click.option(
    "--top",
    type=Number(0),
    metavar="N",
    help=f"Show the N largest groups, and the others as one; 0: all. Default: {TOP}; all with --json, or if --by has "
    "a time or size.",
)
@click.option("--plot", is_flag=True, help="Draw a bar chart, over time if --by has a time. Needs rocketc[plot].")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object per group; times in ms.")
@with_security
def stats(
    selection: Selection, by: tuple[str, ...], sort: str | None, top: int | None, plot: bool, as_json: bool
) -> int:
    """Count the messages of a store, a commit log folder, or log files, and their bytes on the disk.

    Bodies are read only with --crc or --grep. Headers are always checked; use `rocketc verify` to find damaged bodies.
    Damaged bytes are skipped and reported on stderr; the exit code is then 1.

    PATH can also be a topic of a running cluster, rocketmq://HOST:PORT/TOPIC. Without other options the command shows
    the offsets and times of each queue, and reads no message. With --by, --plot or a selection it counts messages.
    """
    if type(selection) is not Selection and not plot and selection.is_whole and not _is_given("by"):
        from rocketc.cli.stats_cluster import show_queues  # late: it needs the client

        return show_queues(selection, as_json)  # type: ignore[arg-type]
    if plot and as_json:
        raise click.UsageError("--json and --plot exclude each other")
    if plot:
        try:
            plots.import_plotext()
        except ImportError as error:
            raise click.UsageError(str(error)) from None
    found = _count(selection, by)
    ordered = any(name in TIMES or name == "size" for name in by)
    if top is None:
        top = 0 if as_json or ordered else TOP
    view = choose(found, sort or ("name" if ordered else "bytes"), top)
    with Out() as out:
        if as_json:
            for group in to_json(found, view):
                out.json(group)
        elif found.total.messages and plot:
            out.write_text(chart(found, view, sort == "messages", out.has_color))
        elif found.total.messages:
            out.write_text(table(found, view, out.has_color))
    if found.more.messages:
        note(
            f"there are more than {len(found)} groups: {many(found.more.messages, 'message')} of the later groups "
            "are counted together"
        )
    for damage in found.report.damage:
        note(f"{damage}{in_words(damage.reason)}")
    return selection.conclude(found.report, found.total.messages)


for _parameter in stats.params:
    if _parameter.name == "crc" and isinstance(_parameter, click.Option):
        _parameter.help = "CRCs to check: none (default); body; full: also that of the properties, if they have one."


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _count(selection: Selection, by: tuple[str, ...]) -> Count:
    options = selection.options
    strict = options["errors"] == "raise"
    # One thread finds the first damage of the log, and Ctrl-C or the time limit can end a regular expression there.
    interruptible = options["where"] is not None or any(not isinstance(topic, str) for topic in options["topics"] or ())
    threads = 1 if strict or interruptible else None
    scan = selection.scan(errors="raise" if strict else "skip", batch_bytes=BATCH_BYTES)
    with progress("counting", scan.bytes) as update:
        return count(scan, by, threads=threads, update=update)


# ---- which groups, in which order


def choose(found: Count, sort: str, top: int) -> View:
    """Return the `top` largest groups (0: all) in order, and the sums of the others."""
    top = min(top or len(found), len(found))
    groups, other = found.largest(top, sort == "messages")
    order = {"bytes": _by_bytes, "messages": _by_messages, "name": _by_name, "time": _by_time}
    groups.sort(key=order[sort])
    hidden = many(len(found) - top, "group")
    name = f"(other: more than {hidden})" if found.more.messages else f"(other: {hidden})"
    return View(groups, other if other.messages else None, name, len(found) - top)


def _by_name(group: Group) -> Any:
    return [(value is not None, value) for value in group.values]


def _by_bytes(group: Group) -> Any:
    return -group.bytes, -group.messages, _by_name(group)


def _by_messages(group: Group) -> Any:
    return -group.messages, -group.bytes, _by_name(group)


def _by_time(group: Group) -> Any:
    return group.first is None, group.first or 0, _by_name(group)


# ---- JSON


def to_json(found: Count, view: View) -> Iterator[dict[str, Any]]:
    """Yield an object for each group; then one for the others, which has `otherGroups` instead of names."""
    for group in view.groups:
        named = zip(found.by, group.values, strict=True)
        yield _object({JSON_KEYS.get(name, name): value for name, value in named if value is not None}, group)
    if view.other is not None:
        yield _object({"otherGroups": view.other_count}, view.other)


def _object(names: dict[str, Any], group: Group) -> dict[str, Any]:
    sums = {
        "messages": group.messages,
        "storeSize": group.bytes,
        "minStoreSize": group.smallest,
        "maxStoreSize": group.largest,
        "firstStoreTimestamp": group.first,
        "lastStoreTimestamp": group.last,
    }
    return names | {key: value for key, value in sums.items() if value is not None}


# ---- the table


def show_value(name: str, value: Value) -> str:
    """Return the name of a group's value.

    >>> show_value("hour", 1_700_000_400_000 // 3_600_000 * 3_600_000), show_value("size", 512), show_value("tag", None)
    ('2023-11-14T22:00Z', '512 B to 1 KiB', '(none)')
    """
    if value is None:
        return "(none)"
    if name in TIMES:
        try:
            return (EPOCH + datetime.timedelta(milliseconds=int(value))).strftime(TIMES[name])
        except OverflowError:
            return show_time(int(value))
    if name == "size":
        return f"{_round(int(value))} to {_round(2 * int(value))}"
    return visible(str(value)) or '""'


def _round(size: int) -> str:
    return show_size(size).replace(".0 ", " ")


def show_share(part: int, whole: int) -> str:
    """Return a share in percent.

    >>> show_share(1, 3), show_share(1, 100_000), show_share(3, 3), show_share(0, 0)
    ('33.3%', '<0.1%', '100%', '0%')
    """
    if part == 0 or part == whole:
        return "100%" if part else "0%"
    if 1000 * part < whole:
        return "<0.1%"
    return f"{min(100 * part / whole, 99.9):.1f}%"


def table(found: Count, view: View, color: bool) -> str:
    """Return times and sizes of all messages, and a line per group; as wide as the terminal, or 80 columns."""
    return render([facts(_total_lines(found)), "", _groups(found, view)], color)


def _total_lines(found: Count) -> Iterator[tuple[str, str, str]]:
    total = found.total
    if total.first is not None and total.last is not None:
        span = f" ({show_span(total.last - total.first)})" if total.last > total.first else ""
        yield "times", f"{show_time(total.first)} to {show_time(total.last)}{span}", ""
    parts = [f"{part}% up to {_round(found.percentile(part / 100) or 0)}" for part in (50, 90, 99)]
    yield "sizes", f"{_round(total.smallest or 0)} to {_round(total.largest or 0)}; {', '.join(parts)}", ""


@dataclass(frozen=True)
class _Column:
    title: str
    show: Callable[[Group], str]


def _groups(found: Count, view: View) -> Table:
    """The table of groups. Columns of numbers have their least width, and the names get the rest of the width.

    If that is not enough for the names, the last columns are left out.
    """
    from rich.table import Table
    from rich.text import Text

    total = found.total
    rows: list[tuple[list[str], Group, str]] = [
        ([show_value(name, value) for name, value in zip(found.by, group.values, strict=True)], group, "")
        for group in view.groups
    ]
    if view.other is not None:
        rows.append(([view.other_name], view.other, "dim"))
    if len(rows) > 1 or not found.by:
        rows = [*(row for row in rows if found.by), (["total"], total, "bold" if found.by else "")]
    numbers = _columns(total)
    cells = [[column.show(group) for column in numbers] for _, group, _ in rows]
    texts = zip(*cells, strict=True)
    widths = [max(map(len, (column.title, *text))) for column, text in zip(numbers, texts, strict=True)]
    shown = _how_many_fit(widths, width() - _room_for_names(found.by, [labels for labels, _, _ in rows]))

    out = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in found.by or [""]:
        out.add_column(name.replace("-", " "), overflow="fold", no_wrap=name not in TEXTS)
    for column in numbers[:shown]:
        out.add_column(column.title, justify="right", no_wrap=True)
    for (labels, _, style), text in zip(rows, cells, strict=True):
        names = labels + [""] * (len(found.by) - len(labels))
        out.add_row(*(Text(name, style) for name in names), *(Text(number, style) for number in text[:shown]))
    return out


def _room_for_names(by: tuple[str, ...], labels: list[list[str]]) -> int:
    """Return the width of the name columns. The width of texts has a limit that fits most of them; longer ones fold."""
    fold_at = 30 if sum(name in TEXTS for name in by) < 2 else 20
    room = 0
    for i, name in enumerate(by or [""]):
        own = max([len(name), *(len(row[i]) for row in labels if len(row) == len(by))])
        shown = min(own, fold_at) if name in TEXTS else own
        room += 2 + (shown if i else max([shown, *(len(row[0]) for row in labels if len(row) != len(by))]))
    return room


def _columns(total: Group) -> list[_Column]:
    """The columns of numbers, the most important first: the last columns are left out first."""
    show_when = _clock(total)
    return [
        _Column("messages", lambda group: str(group.messages)),
        _Column("share", lambda group: show_share(group.messages, total.messages)),
        _Column("bytes", lambda group: show_size(group.bytes)),
        _Column("share", lambda group: show_share(group.bytes, total.bytes)),
        _Column("mean", lambda group: _round(group.bytes // max(group.messages, 1))),
        _Column("max", lambda group: _round(group.largest or 0)),
        _Column("first", lambda group: show_when(group.first)),
        _Column("last", lambda group: show_when(group.last)),
    ]


def _how_many_fit(widths: Iterable[int], room: int) -> int:
    """Return how many of these columns fit; at least three."""
    fit = 0
    for n, each in enumerate(widths, 1):
        room -= each + 2
        if room + 2 >= 0 or n <= 3:
            fit = n
    return fit


def _clock(total: Group) -> Callable[[int | None], str]:
    """Return a function that formats a time, without the day if all times are of the same day."""
    one_day = (
        total.first is not None and total.last is not None and total.first // 86_400_000 == total.last // 86_400_000
    )

    def show(ms: int | None) -> str:
        if ms is None:
            return "-"
        text = show_time(ms)
        if text.endswith("ms"):
            return text
        return text[-13:-5] if one_day else f"{text[:-14]} {text[-13:-8]}"

    return show


# ---- the chart


def chart(found: Count, view: View, messages: bool, color: bool) -> str:
    """Return bars over time if one of the dimensions is a time, otherwise one bar per group.

    messages  draw messages instead of bytes
    """
    what = "messages" if messages else "bytes"
    time = next((i for i, name in enumerate(found.by) if name in TIMES), None)
    if time is None:
        return _bars(found, view, what, color)
    groups = []
    for group in found:
        when = group.values[time]
        if when is not None:
            named = zip(found.by, group.values, strict=True)
            label = " ".join(_in_legend(name, value) for i, (name, value) in enumerate(named) if i != time)
            groups.append((int(when), label, group.messages if messages else group.bytes))
    if not groups:
        return "no message has a valid time\n"
    return plots.draw_over_time(what, found.by[time], groups, not messages, color)


def _in_legend(name: str, value: Value) -> str:
    return f"queue {value}" if name == "queue" else show_value(name, value)


def _bars(found: Count, view: View, what: str, color: bool) -> str:
    named = [
        (" ".join(show_value(name, value) for name, value in zip(found.by, group.values, strict=True)), group)
        for group in view.groups
    ]
    if view.other is not None:
        named.append((view.other_name, view.other))
    is_size = what == "bytes"
    whole = found.total.bytes if is_size else found.total.messages
    bars = []
    for name, group in named:
        value = group.bytes if is_size else group.messages
        text = f"{show_size(value) if is_size else value}  {show_share(value, whole)}"
        bars.append((name or "total", value, text))
    by = f" by {', '.join(found.by)}" if found.by else ""
    title = f"{what}{by}; {show_size(whole) if is_size else whole} in all"
    return plots.draw_bars(title, bars, is_size, color)
