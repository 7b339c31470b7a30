"""rocketc clean: delete old files of a store, or show which files would be deleted and why."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from rocketc.cli.arguments import JAVA_INT_MAX, read_conf, refuse_a_log
from rocketc.cli.exit_codes import COULD_NOT, DONE, NOT_FOUND
from rocketc.cli.output import can_ask, command, confirm, has_color, note, print_result
from rocketc.cli.times import Age
from rocketc.config import StoreConfig
from rocketc.derived.queue_files import IndexOnDisk, QueuesOnDisk
from rocketc.errors import StoreIOError
from rocketc.files.lock_file import StoreLock
from rocketc.files.remote import refuse_urls
from rocketc.report.summaries import clean_total, draw_clean
from rocketc.store.cleaning import Cleaner, CleanReport, LogOnDisk, sync_system
from rocketc.store.opening import refuse_links


@command(
    "rocketc clean /data/store --older-than 7d --yes",
    "rocketc clean /data/store --dry-run --as-broker --conf broker.conf",
)
@click.argument("store", type=click.Path())
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be deleted, and why; delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Delete without a question. A script without a terminal needs it.")
@click.option(
    "--older-than", type=Age(), metavar="AGE",
    help="Delete log files that were last changed longer ago than AGE: 90m, 72h, 7d. Default: fileReservedTime, 72h.",
)  # fmt: skip
@click.option(
    "--as-broker", is_flag=True, help="Apply the rules of one run of a broker now: hours, disk use, at most ten files."
)
@click.option("--conf", type=click.Path(), metavar="FILE", help="The broker.conf, for paths, times and disk levels.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print the report as one JSON object; times in ms.")
@click.option("--all", "every", is_flag=True, help="Show every file in the table.")
def clean(
    store: str,
    dry_run: bool,
    yes: bool,
    older_than: int | None,
    as_broker: bool,
    conf: str | None,
    as_json: bool,
    every: bool,
) -> int:
    """Delete the oldest files of a store's commit log, then the consume queue and index files that only refer to them.

    On a terminal, the command first shows which files would be deleted, and why, and asks. With --yes, it deletes
    without a question. If there is no terminal, it deletes nothing without --yes, and the exit code is 2.

    With --dry-run, it only shows the files, also with --yes; this also works while a broker runs on the store.

    Files are deleted from the first one on, up to the first file that is young enough to keep. The last file always
    stays. Except for --dry-run, no broker may run on the store. A store that was not closed does not have to be
    recovered first, and no free disk space is needed.

    The exit code is 1 if the answer is not yes, and 3 if there is no log.
    """
    if as_broker and older_than is not None:
        raise click.UsageError("--older-than and --as-broker exclude each other")
    refuse_urls([store], "clean")
    refuse_a_log(store)
    config = _config(conf, as_broker)
    root = os.path.abspath(store)
    log = LogOnDisk(config.commit_log_paths(root), config.read_only_paths)
    if not log.files:
        if not os.path.lexists(root):
            raise StoreIOError(errno.ENOENT, os.strerror(errno.ENOENT), store)
        if any(map(os.path.isdir, config.commit_log_paths(root))):
            note(f"nothing to clean: {store} is empty")
            return DONE
        note(f"nothing to clean: {store} does not contain a commit log")
        return COULD_NOT
    start, before = int(os.path.basename(log.files[0])), len(log.files)
    how: dict[str, Any] = {} if as_broker else {"asked": True, "expired_ms": older_than}
    settle = sync_system if os.path.exists(os.path.join(root, "abort")) else None

    cleaner = Cleaner(log, config, root=root, queues=QueuesOnDisk(root), index=IndexOnDisk(root), settle=settle)

    def draw(report: CleanReport, color: bool) -> str:
        return draw_clean(store, report, before, start, color, every, as_broker)

    if dry_run:
        report = cleaner.plan(**how)
    elif not yes and not can_ask():
        raise click.UsageError("nothing is deleted without a terminal for the question; add --yes, or --dry-run")
    else:
        refuse_links(root, config)
        # Held during the question, so that the answer is about these files.
        lock = StoreLock(root, config.commit_log_paths(root))
        try:
            if not yes:
                plan = cleaner.plan(**how)
                if plan.deleted:
                    sys.stderr.write(draw(plan, has_color(sys.stderr)))
                    if not confirm(f"delete {clean_total(plan)}?"):
                        note("nothing deleted")
                        return NOT_FOUND
                how["now"], log.limit = plan.now, plan.log_files  # no more than was shown, even if the disk fills up
            report = cleaner.run(detailed=True, **how)
        finally:
            lock.release()
    print_result(as_json, lambda: {"path": store, **report.to_dict()}, lambda color: draw(report, color))
    return DONE


def _config(conf: str | None, as_broker: bool) -> StoreConfig:
    config = StoreConfig() if conf is None else read_conf(conf)
    if as_broker:
        return config
    # Delete every file that is old enough, and no other file, regardless of disk use.
    return config.replace(
        clean_file_forcibly_enable=False, delete_file_batch_max=JAVA_INT_MAX, delete_commit_log_files_interval=0,
        delete_consume_queue_files_interval=0,
    )  # fmt: skip
