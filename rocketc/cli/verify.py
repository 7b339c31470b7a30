"""rocketc verify: is every record of a log what was stored, and is any missing?"""

from __future__ import annotations

import click

from rocketc.cli.arguments import Number
from rocketc.cli.output import command, note, print_result, progress
from rocketc.cli.selection import paths_argument
from rocketc.files.paths import resolve
from rocketc.files.remote import shown
from rocketc.jobs.verify import root_of
from rocketc.jobs.verify import verify as check
from rocketc.report.summaries import draw_verify


@command("rocketc verify /data/store", "rocketc verify /data/store --json | jq '.files[] | select(.damage)'")
@paths_argument
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object with all that was found; times in ms.")
@click.option("--all", "every", is_flag=True, help="Every file and finding in the table, however many.")
@click.option(
    "--jobs", type=Number(1, 1024), metavar="N", help="Files read at the same time; all processors if not given."
)
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
    print_result(
        as_json,
        lambda: {"path": [*map(shown, path)], **report.to_dict()},
        lambda colour: draw_verify(path, report, colour, every),
    )
    if report.is_empty:
        note(f"nothing to read: {' '.join(map(shown, path))}")
    return 0 if report.is_whole and not report.is_empty else 1
