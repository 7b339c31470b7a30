"""rocketc export: write messages of a store to files for other tools."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import click

from rocketc.cli.arguments import Number, Seconds, Size
from rocketc.cli.exit_codes import COULD_NOT, DONE, NOT_FOUND
from rocketc.cli.metrics_option import serves_metrics
from rocketc.cli.output import DamageNotes, Out, command, note, progress, writes_output
from rocketc.cli.security_options import with_security
from rocketc.cli.selecting import selects
from rocketc.cli.selection import Selection
from rocketc.cli.signals import Ended, signals_raise
from rocketc.exports.columns import ROW_GROUP_BYTES
from rocketc.exports.export import Export, ExportReport
from rocketc.exports.folder import SOURCES
from rocketc.exports.formats import COMPRESSIONS
from rocketc.read._arrow import COLUMN_NAMES
from rocketc.read.scan_report import ScanReport
from rocketc.report.text import many, show_size

_INTERVAL = 300.0  # seconds between two looks for new messages
_COMMIT_BYTES = 1 << 30


class Names(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A comma-separated list of known names."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        names = value if isinstance(value, list) else [name.strip() for name in value.split(",")]
        for name in names:
            if name not in self._known:
                self.fail(f"{name!r} is not one of {', '.join(self._known)}", param, ctx)
            if names.count(name) > 1:
                self.fail(f"{name!r} is given twice", param, ctx)
        return names


@command(
    "rocketc export /data/store -o day.parquet --from 2026-01-31 --to 2026-02-01",
    "rocketc export /data/store -o archive/ --engine spark",
    "rocketc export rocketmq://127.0.0.1:9876/orders -o orders.parquet",
    "rocketc export rocketmq://127.0.0.1:9876/orders* -o lake/ --follow",
)
@selects
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="The file to write: .jsonl .csv .parquet .arrow .feather, also .jsonl.gz, .csv.zst and so on; `-` for stdout; "
    "with --partition-by, a folder.",
)
@click.option(
    "--format", "form", type=click.Choice(list(COMPRESSIONS)), help="The format of the file. Default: from its suffix."
)
@click.option("--columns", type=Names(COLUMN_NAMES), metavar="A,B,C", help="Write only these columns, in this order.")
@click.option(
    "--partition-by",
    type=Names(list(SOURCES)),
    metavar="A,B",
    help="Write one folder per value of: topic, date (UTC day of storeTimestamp), queueId.",
)
@click.option(
    "--compression",
    type=click.Choice(sorted({name for names in COMPRESSIONS.values() for name in names})),
    help="Compression. Default: zstd for Parquet, none for Arrow, from the suffix for text.",
)
@click.option(
    "--row-group-size",
    type=Size(),
    default=ROW_GROUP_BYTES,
    metavar="SIZE",
    help="Parquet and Arrow: size of a row group before compression. Default: 64MiB.",
)
@click.option("--force", is_flag=True, help="Replace an existing file, or a folder that has only an earlier export.")
@click.option(
    "--engine",
    type=click.Choice(["rocketc", "spark"]),
    default="rocketc",
    help="spark: write an archive by topic,date; each run adds the new messages, and tables of damage and statistics.",
)
@click.option(
    "-F",
    "--follow",
    is_flag=True,
    help="Of a cluster: keep a folder by topic,date up to date until Ctrl-C. It has each message once, also after a "
    "kill; the next run continues.",
)
@click.option("--append", is_flag=True, help="As --follow, but add the messages that are there now, and end.")
@click.option(
    "--interval",
    type=Seconds(0.01, 86_400),
    metavar="SECONDS",
    help="With --follow: time between two looks for new messages. Default: 300.",
)
@click.option(
    "--commit-size",
    type=Size(),
    metavar="SIZE",
    help="With --follow, --append: size of the messages that are added at once, about. Default: 1GiB.",
)
@click.option("--jobs", type=Number(1, 256), metavar="N", help="Number of threads. Default: one per core.")
@serves_metrics
@click.option("-J", "--json", "as_json", is_flag=True, help="Print a summary as one JSON object on stdout.")
@with_security
def export(
    selection: Selection,
    output: str,
    form: str | None,
    columns: list[str] | None,
    partition_by: list[str] | None,
    compression: str | None,
    row_group_size: int,
    force: bool,
    engine: str,
    follow: bool,
    append: bool,
    interval: float | None,
    commit_size: int | None,
    jobs: int | None,
    metrics_port: int | None,
    metrics_host: str,
    as_json: bool,
) -> int:
    """Write the messages of a store to a file, or to a folder of partitions, in the order of the log.

    To export one day, give that date with --from and the next date with --to. Dates are days in UTC, and a message
    belongs to the day when it was stored.

    PATH can also be a topic of a running cluster, rocketmq://HOST:PORT/TOPIC: the messages that are there are written.

    With --follow or --append, new messages are added to a folder of Parquet files that earlier runs have written.

    The file appears when it is complete: an export that fails or is killed leaves no file. Parquet and Arrow need
    pyarrow. JSON Lines are those of `rocketc cat --json`. Times in CSV are ISO-8601 in UTC; a body that is not UTF-8 is
    in the column bodyBase64. Damaged bytes are skipped and reported on stderr; the exit code is then 1.
    """
    other = {"-o -": output == "-", "--format": form not in (None, "parquet"), "--force": force}
    other["--row-group-size"] = row_group_size != ROW_GROUP_BYTES
    _check_growing(selection, engine, follow, append, interval, commit_size, metrics_port)
    if engine == "spark":
        from rocketc.cli.export_spark import export_spark

        return export_spark(selection, output, columns, partition_by, compression, jobs, as_json, other)
    if follow or append:
        from rocketc.cli.export_cluster import export_cluster, refuse_narrowing

        what = "--follow" if follow else "--append"
        refuse_narrowing(selection.options, other | {"--jobs": jobs}, what)
        if partition_by not in (None, ["topic", "date"]):
            raise click.UsageError(f"{what} writes folders by topic,date: leave out --partition-by")
        wait = (_INTERVAL if interval is None else interval) if follow else None
        size = commit_size or _COMMIT_BYTES
        return export_cluster(
            selection,  # type: ignore[arg-type]
            output,
            columns,
            compression,
            wait,
            size,
            metrics_port,
            metrics_host,
            as_json,
        )
    to_stdout = output == "-"
    if to_stdout and as_json:
        raise click.UsageError("--json prints a summary on stdout and can't be used with -o -")
    if to_stdout and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("-o - needs a pipe or file, and stdout is a terminal: use rocketc cat to see messages")
    with Out() as out, DamageNotes(out):
        scan = selection.scan(columns=columns)
        try:
            plan = Export(
                scan,
                sys.stdout.buffer if to_stdout else output,
                form or ("jsonl" if to_stdout else None),
                partition_by=partition_by or (),
                compression=compression,
                row_group_size=row_group_size,
                overwrite=force,
                jobs=jobs,
            )
        except FileExistsError as error:
            raise click.UsageError(_existing_text(error)) from None
        except (ValueError, NotADirectoryError) as error:
            raise click.UsageError(str(error)) from None
        ended = _Ended(selection)
        try:
            writing = writes_output() if to_stdout else nullcontext()
            with writing, signals_raise(), progress("exporting", scan.bytes) as update:
                report = plan.run(update, ended.check)
        except _NothingFoundError:
            return ended.code or NOT_FOUND
        except Ended as error:
            return error.code
        except ImportError as error:
            note(str(error))
            return COULD_NOT
        if as_json:
            out.json(_summary(report))
    if not as_json:
        where = "" if report.path is None else f" to {report.path}"
        files = f" in {many(report.files, 'file')}" if partition_by else ""
        note(f"{many(report.rows, 'message')} written{where}: {show_size(report.bytes)}{files}")
    return ended.code if ended.code is not None else selection.conclude(report.scan, report.rows)


def _check_growing(
    selection: Selection,
    engine: str,
    follow: bool,
    append: bool,
    interval: float | None,
    commit_size: int | None,
    metrics_port: int | None,
) -> None:
    """Raise click.UsageError for options of archives that do not fit together."""
    if follow and append:
        raise click.UsageError("--follow and --append exclude each other")
    if interval is not None and not follow:
        raise click.UsageError("--interval is for --follow")
    if metrics_port is not None and not follow:
        raise click.UsageError("--metrics-port is for --follow")
    if commit_size is not None and not (follow or append):
        raise click.UsageError("--commit-size is for --follow and --append")
    if not (follow or append):
        return
    if engine == "spark":
        raise click.UsageError("--engine spark adds the messages that are there now: leave out --follow and --append")
    if type(selection) is Selection:
        raise click.UsageError(
            "--follow and --append are for a cluster, rocketmq://HOST:PORT/TOPIC; a store needs --engine spark"
        )


class _NothingFoundError(Exception):
    """No message is selected, and the command line says that this is an error."""


class _Ended:
    """Ends an export without messages: there is no file if this is an error."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self.code: int | None = None  # of an export without messages

    def check(self, report: ScanReport) -> None:
        """Raise _NothingFoundError if there are no messages, and there must be some."""
        if report.records:
            return
        self.code = self._selection.conclude(report, 0)
        if self.code == COULD_NOT or (self.code != DONE and (self._selection.fail_if_empty or not report.damage)):
            raise _NothingFoundError


def _existing_text(error: FileExistsError) -> str:
    if error.errno == errno.ENOTEMPTY:
        return f"{error.filename} {error.strerror}"
    return f"{error.filename} exists: use --force to replace it"


def _summary(report: ExportReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": report.format,
        "rows": report.rows,
        "bytes": report.bytes,
        "files": report.files,
        "bytesRead": report.scan.bytes,
        "damage": [asdict(damage) for damage in report.scan.damage],
        "missing": report.scan.missing,
        "deleted": report.scan.deleted,
    }
