"""rocketc export --engine spark: write an archive with Spark."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, DONE
from rocketc.cli.output import Out, note, progress
from rocketc.cli.selection import Selection
from rocketc.cli.signals import Ended, signals_raise
from rocketc.exports.archive_queues import QueueDamage
from rocketc.files.paths import resolve
from rocketc.report.text import many, show_size

if TYPE_CHECKING:
    from rocketc.spark.archive import ArchiveReport

_TAKEN = {
    "topics",
    "crc",
    "decompress",
    "errors",
    "partial",
    "unreadable",
}  # allowed options of a selection: an archive has whole topics


def export_spark(
    selection: Selection,
    output: str,
    columns: list[str] | None,
    partition_by: list[str] | None,
    compression: str | None,
    jobs: int | None,
    as_json: bool,
    other: dict[str, Any],
) -> int:
    """Add the new messages of a log to an archive, and return the exit code.

    other  options of the command that an archive does not support, with their values
    """
    options = selection.options
    refused = [name for name, value in other.items() if value]
    refused += [name for name in options if name not in _TAKEN and not _is_default(options[name])]
    refused += ["strict"] if options["errors"] == "raise" else []
    refused += ["partial"] if options["partial"] else []
    if refused:
        raise click.UsageError(f"--engine spark archives whole topics and can't be used with {', '.join(refused)}")
    if partition_by not in (None, ["topic", "date"]):
        raise click.UsageError("--engine spark writes folders by topic,date: leave out --partition-by")
    topics = options["topics"]
    of_cluster: dict[str, Any] = {}
    if type(selection) is not Selection:
        from rocketc.cli.cluster_selection import ClusterSelection

        assert isinstance(selection, ClusterSelection)
        security = selection.security
        of_cluster = {"credentials": security.credentials, "tls": security.tls, "group": selection.group}
        topics = None if selection.names_topic else selection.topics
    elif topics is not None and not all(isinstance(topic, str) for topic in topics):
        raise click.UsageError("--engine spark takes topic names, not a /REGEX/")
    try:
        from rocketc.spark import archive as spark_archive  # first: without pyspark its error says what to install
    except ImportError as error:
        note(str(error))
        return COULD_NOT
    from py4j.protocol import Py4JError  # type: ignore[import-untyped, unused-ignore]
    from pyspark.errors import PySparkException

    source = selection.paths[0] if len(selection.paths) == 1 else list(selection.paths)
    with Out() as out, signals_raise():
        try:
            spark = _session(jobs)
            try:
                size = 0 if of_cluster else sum(file.size for log in resolve(source) for file in log.files)
                with progress("archiving", size) as update:
                    report = spark_archive.archive(
                        spark,
                        source,
                        output,
                        topics=topics,
                        columns=columns,
                        crc=options["crc"],
                        decompress=options["decompress"],
                        compression=compression,
                        progress=update,
                        **of_cluster,
                    )
            finally:
                spark.stop()
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        except (PySparkException, Py4JError) as error:
            note(f"Spark: {said(str(error))}")
            return COULD_NOT
        except Ended as error:
            return error.code
        if as_json:
            out.json(_summary(report))
    if not as_json:
        files = f"{show_size(report.bytes)} in {many(report.files, 'file')}"
        note(f"{many(report.messages, 'message')} added to {output}: {files}" if report.commits else "nothing new")
    if report.torn:
        note(f"{report.torn}; it is at the end of the log, and the next run reads it again")
    if report.damage:
        lost, what = sum(one.stop - one.start for one in report.damage), "messages" if of_cluster else "bytes"
        note(f"damage: {many(len(report.damage), 'range')}, {lost} {what} lost")
        return DAMAGED
    return DONE if report.messages else selection.conclude_archive()


def said(text: str) -> str:
    """Return the important line of a Spark error: the error of a Python worker, or the first line.

    >>> said("[A] failed.\\n\\tat org.apache...")
    '[A] failed.'
    """
    worker = text.rpartition("Traceback (most recent call last):")[2]
    lines = [line for line in worker.splitlines() if line and not line[0].isspace()]
    return lines[0] if lines else "failed"


def _is_default(value: Any) -> bool:
    """Whether an option has its default; 1 is a number that was given."""
    return value is None or value is True


def _session(jobs: int | None) -> Any:
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")  # pandas is not used here
    builder = SparkSession.builder.appName("rocketc export").config("spark.ui.showConsoleProgress", "false")
    if jobs is not None:
        builder = builder.master(f"local[{jobs}]")
    return builder.getOrCreate()


def _summary(report: ArchiveReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": "parquet",
        "rows": report.messages,
        "bytes": report.bytes,
        "files": report.files,
        "start": report.start,
        "stop": report.stop,
        "damage": [one.to_json() if isinstance(one, QueueDamage) else asdict(one) for one in report.damage],
        "torn": asdict(report.torn) if report.torn else None,
    }
