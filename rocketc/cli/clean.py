"""rocketc clean: delete what is too old in a store, or say what would be deleted and why."""

from __future__ import annotations

import os
from typing import Any

import click

from rocketc.cli.arguments import JAVA_INT_MAX, read_conf, refuse_a_log
from rocketc.cli.output import command, note, print_result
from rocketc.cli.times import Age
from rocketc.config import StoreConfig
from rocketc.derived.queue_files import IndexOnDisk, QueuesOnDisk
from rocketc.files.lock_file import StoreLock
from rocketc.report.summaries import draw_clean
from rocketc.store.cleaning import Cleaner, LogOnDisk, sync_system


@command(
    "rocketc clean /data/store --older-than 7d", "rocketc clean /data/store --as-broker --conf broker.conf --dry-run"
)
@click.argument("store", type=click.Path())
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be deleted, and why; write nothing.")
@click.option(
    "--older-than", type=Age(), metavar="AGE",
    help="Delete log files that were not changed for so long: 90m, 72h, 7d. Usual: fileReservedTime, 72h.",
)  # fmt: skip
@click.option(
    "--as-broker", is_flag=True, help="What one run of a broker would do now: its hours, disk use, ten files at most."
)
@click.option("--conf", type=click.Path(), metavar="FILE", help="A broker.conf: paths, times, levels of disk use.")
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object with all that was found; times in ms.")
@click.option("--all", "every", is_flag=True, help="Every file in the table, however many.")
def clean(
    store: str, dry_run: bool, older_than: int | None, as_broker: bool, conf: str | None, as_json: bool, every: bool
) -> int:
    """Delete the oldest files of a store's commit log, then what its consume queues and index say of them.

    Files go from the first one on; the first that is younger ends it, and the last one stays. No broker may run on the
    store meanwhile; --dry-run may look at a live one. A store that was not closed needs no recovery first, and a full
    disk no room.
    """
    if as_broker and older_than is not None:
        raise click.UsageError("--older-than and --as-broker exclude each other")
    refuse_a_log(store)
    config = _config(conf, as_broker)
    root = os.path.abspath(store)
    log = LogOnDisk(config.commit_log_paths(root), config.read_only_paths)
    if not log.files:
        note(f"nothing to clean: {store} holds no commit log")
        return 1
    start, before = int(os.path.basename(log.files[0])), len(log.files)
    how: dict[str, Any] = {} if as_broker else {"asked": True, "expired_ms": older_than}
    settle = sync_system if os.path.exists(os.path.join(root, "abort")) else None
    cleaner = Cleaner(log, config, root=root, queues=QueuesOnDisk(root), index=IndexOnDisk(root), settle=settle)
    if dry_run:
        report = cleaner.plan(**how)
    else:
        lock = StoreLock(root)
        try:
            report = cleaner.run(detailed=True, **how)
        finally:
            lock.release()
    print_result(
        as_json,
        lambda: {"path": store, **report.to_dict()},
        lambda colour: draw_clean(store, report, before, start, colour, every, as_broker),
    )
    return 0


def _config(conf: str | None, as_broker: bool) -> StoreConfig:
    config = StoreConfig() if conf is None else read_conf(conf)
    if as_broker:
        return config
    # All that is old enough, and nothing else, however full the disk is.
    return config.replace(
        clean_file_forcibly_enable=False, delete_file_batch_max=JAVA_INT_MAX, delete_commit_log_files_interval=0,
        delete_consume_queue_files_interval=0,
    )  # fmt: skip
