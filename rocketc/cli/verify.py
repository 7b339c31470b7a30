"""rocketc verify: check every record of a log, and whether any is missing."""

from __future__ import annotations

import click

from rocketc.cli.arguments import Number
from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, DONE
from rocketc.cli.output import command, note, print_result, progress
from rocketc.cli.selection import paths_argument
from rocketc.files.paths import resolve
from rocketc.files.remote import shown
from rocketc.jobs.verify import root_of
from rocketc.jobs.verify import verify as check
from rocketc.report.summaries import draw_verify
from rocketc.report.text import deleted_text


@command("rocketc verify /data/store", "rocketc verify /data/store --json | jq '.files[] | select(.damage)'")
@paths_argument
@click.option("-J", "--json", "as_json", is_flag=True, help="Print the report as one JSON object; times in ms.")
@click.option("--all", "every", is_flag=True, help="Show every file and finding in the table.")
@click.option(
    "--jobs", type=Number(1, 1024), metavar="N", help="Number of files to read in parallel. Default: one per core."
)
def verify(path: tuple[str, ...], as_json: bool, every: bool, jobs: int | None) -> int:
    """Check every record of a store, a commit log folder, or log files. Nothing is changed.

    PATH can be a live store, a copy or a backup. Of each record it checks the lengths, the position in the log, and the
    CRC of the body and of the properties (if there is one). It reports missing files, missing or repeated queue
    offsets, and a clock that was set back. Bodies are not decompressed. In a store, every unit of the consume queues
    and the index, and the checkpoint, are also compared with the log.

    While another process writes to the store, two things are normal: the last records are not in the queues yet, and
    old files are deleted. Both are reported, and the exit code is 0.

    The exit code is 1 if anything is damaged, missing or inconsistent, and 3 if no file can be read. A torn last
    record, which a killed broker leaves, is also damage; RocketMQ cuts it off at its next start.
    """
    total = sum(file.size for log in resolve(path) for file in log.files) * (1 if root_of(path) is None else 2)
    with progress("checking", total) as update:
        report = check(path, jobs=jobs, tell=update)
    print_result(
        as_json,
        lambda: {"path": [*map(shown, path)], **report.to_dict()},
        lambda color: draw_verify(path, report, color, every),
    )
    for gap in report.deleted:
        note(deleted_text(*gap))
    if report.is_empty:
        note(f"nothing to read: {' '.join(map(shown, path))}")
    if report.files and all(file.error is not None for file in report.files):
        return COULD_NOT
    return DONE if report.is_whole else DAMAGED
