"""rocketc salvage: copy every valid record of a damaged store to a new store."""

from __future__ import annotations

import errno
import os

import click

from rocketc.cli.arguments import is_new_store, read_conf, sizes_option
from rocketc.cli.exit_codes import DAMAGED, DONE
from rocketc.cli.output import command, note, print_result, progress
from rocketc.errors import StoreIOError
from rocketc.files.paths import resolve
from rocketc.jobs.salvage import UNFINISHED
from rocketc.jobs.salvage import salvage as copy_out
from rocketc.report.summaries import salvage_lines
from rocketc.report.tables import facts, render


@command(
    "rocketc salvage /data/broken /data/store --dry-run", "rocketc salvage /data/broken /data/store --json | jq .lost"
)
@click.argument("src", type=click.Path())
@click.argument("dst", type=click.Path())
@click.option("--compact", is_flag=True, help="Write the records without gaps; a map file lists old and new offsets.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied and what is lost; write nothing.")
@sizes_option
@click.option("-J", "--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--all", "every", is_flag=True, help="Show every lost range in the table.")
def salvage(src: str, dst: str, compact: bool, dry_run: bool, conf: str | None, as_json: bool, every: bool) -> int:
    """Copy every valid record of the damaged store SRC to a new store DST that a broker can open.

    SRC is only read; it may be live, or a read-only copy. Records keep their physical offsets, so message ids stay
    valid. Filler records, which are in no queue, replace lost bytes. The tables in config of SRC are copied, queues and
    index are rebuilt. The new store is in DST.unfinished until it is complete. If the command is killed or the disk is
    full, run the same command again to continue.

    The exit code is 1 if something is lost.
    """
    config = read_conf(conf) if conf is not None else None
    if config is None and is_new_store(src):
        note(f"nothing to read: {src}")
        return DONE
    try:
        total = 2 * sum(file.size for log in resolve(src) for file in log.files)
    except StoreIOError:
        total = 0
    try:
        with progress("salvaging", total) as update:
            report = copy_out(src, dst, compact=compact, dry_run=dry_run, config=config, tell=update)
    except KeyboardInterrupt:
        if os.path.isdir(dst + UNFINISHED):
            note(f"interrupted: {dst}{UNFINISHED} is kept; run the same command again")
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except StoreIOError as error:
        if error.errno == errno.EEXIST:
            raise click.UsageError(f"{error.filename} {error.strerror}") from None
        raise
    print_result(
        as_json,
        lambda: {"path": src, "store": dst, **report.to_dict()},
        lambda color: render([facts(salvage_lines(src, dst, report, every))], color),
    )
    if not report.records:
        note(f"nothing to read: {src}")
    return DONE if report.is_whole else DAMAGED
