"""rocketc export --follow, --append: keep a folder of Parquet files up to date with topics of a cluster."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from typing import Any

import click

from rocketc.cli.cluster_selection import ClusterSelection
from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, DONE, NOT_FOUND
from rocketc.cli.follow_progress import progress_shown
from rocketc.cli.output import Out, note
from rocketc.cli.signals import Ended, Stop
from rocketc.exports.cluster_archive import ClusterArchive, ClusterArchiveReport
from rocketc.report.text import many, show_size

_TAKEN = ("topics", "crc", "decompress", "errors", "unreadable")  # options of a selection: an archive has whole topics
_AGAIN_SECONDS = 5.0  # between two questions for the topics, until a name server answers


def refuse_narrowing(options: dict[str, Any], other: dict[str, Any], what: str) -> None:
    """Raise click.UsageError for options that an archive does not support.

    options  of a selection
    other    options of the command, with their values; those that are true are refused
    what     the option that makes the archive, for the error
    """
    refused = [name for name, value in other.items() if value]
    refused += [name for name, value in options.items() if name not in _TAKEN and value not in (None, True, False)]
    refused += ["--no-unwrap"] if not options["unwrap"] else []
    if refused:
        raise click.UsageError(f"{what} archives whole topics and can't be used with {', '.join(refused)}")


def export_cluster(
    selection: ClusterSelection,
    output: str,
    columns: list[str] | None,
    compression: str | None,
    interval: float | None,
    commit_size: int,
    metrics_port: int | None,
    metrics_host: str,
    as_json: bool,
) -> int:
    """Add the new messages of topics to an archive, and return the exit code.

    interval  seconds between two looks for new messages; None: end after the messages that are there now
    """
    options, stop = selection.options, Stop()
    try:
        with Out() as out, stop.installed():
            try:
                with stop.waiting():
                    archive = ClusterArchive(
                        selection.access,
                        selection.topics,
                        output,
                        waits=interval is not None,
                        group=selection.group,
                        all_topics=selection.all_topics,
                        columns=columns,
                        compression=compression,
                        crc=options["crc"],
                        decompress=options["decompress"],
                        commit_bytes=commit_size,
                    )
            except ImportError as error:
                note(str(error))
                return COULD_NOT
            with closing(archive):
                shown = nullcontext() if interval is None else progress_shown(archive, metrics_host, metrics_port)
                with shown:
                    code = _run(archive, stop, interval, options["errors"] == "raise")
            if as_json:
                out.json(_summary(archive.report))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except Ended as error:  # before anything was read, or a second signal
        return error.code
    report = archive.report
    if not as_json:
        files = f"{show_size(report.bytes)} in {many(report.files, 'file')}"
        note(f"{many(report.messages, 'message')} added to {output}: {files}" if report.commits else "nothing new")
    if code == DONE and not report.messages and selection.fail_if_empty:
        return NOT_FOUND
    return code


def _run(archive: ClusterArchive, stop: Stop, interval: float | None, strict: bool) -> int:
    """Make commits up to the end or a signal; return the exit code."""
    try:
        while True:
            with stop.waiting():
                staged = archive.stage()
            if staged is None and interval is None:
                break
            if staged is None:
                with stop.waiting():
                    time.sleep(min(interval or 0, _AGAIN_SECONDS) if archive.waits_for_topics else interval or 0)
                continue
            if strict and staged.damage:
                archive.discard()
                note("--strict: messages are lost or damaged; leave it out to continue without them")
                return DAMAGED
            archive.commit(staged)  # a signal waits for its end
    except Ended as error:
        return error.code
    return DAMAGED if archive.report.damage else DONE


def _summary(report: ClusterArchiveReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": "parquet",
        "rows": report.messages,
        "bytes": report.bytes,
        "files": report.files,
        "commits": report.commits,
        "damage": [one.to_json() for one in report.damage],
    }
