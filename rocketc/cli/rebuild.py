"""rocketc rebuild: rebuild the consume queues and the index of a store from its log."""

from __future__ import annotations

from typing import Literal

import click

from rocketc.cli.arguments import is_new_store, read_conf, refuse_a_log, sizes_option
from rocketc.cli.exit_codes import DAMAGED, DONE
from rocketc.cli.output import command, note, print_result, progress
from rocketc.errors import StoreIOError
from rocketc.files.paths import resolve
from rocketc.jobs.rebuild import rebuild as rebuild_files
from rocketc.report.summaries import rebuild_lines
from rocketc.report.tables import facts, render


@command("rocketc rebuild /data/store", "rocketc rebuild /data/store --only index --json | jq .keys")
@click.argument("store", type=click.Path())
@click.option("--only", type=click.Choice(["cq", "index"]), help="Rebuild only the consume queues, or only the index.")
@sizes_option
@click.option("-J", "--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--all", "every", is_flag=True, help="Show every finding in the table.")
def rebuild(store: str, only: Literal["cq", "index"] | None, conf: str | None, as_json: bool, every: bool) -> int:
    """Rebuild the consume queues and the index of a store from its commit log.

    Use this if queues or index are lost or wrong; `rocketc verify` shows that. No other process may have the store
    open. The log is not changed. The old files stay until the new files are complete, so the disk needs room for both.
    If the command is killed, the store is unchanged.

    The exit code is 1 if the log is damaged (damaged records are not in the queues), and 3 if there is no log.
    """
    refuse_a_log(store)
    config = read_conf(conf) if conf is not None else None
    if config is None and is_new_store(store):
        note(f"nothing to rebuild: {store} is empty")
        return DONE
    try:
        logs = resolve(store)
    except StoreIOError:
        logs = []
    with progress("rebuilding", sum(file.size for log in logs for file in log.files)) as update:
        report = rebuild_files(store, only, config=config, tell=update)
    print_result(
        as_json,
        lambda: {"path": store, **report.to_dict()},
        lambda color: render([facts(rebuild_lines(store, only, report, every))], color),
    )
    if report.damage or report.missing:
        note("the log is damaged: run `rocketc verify` for details")
    return DONE if report.is_whole else DAMAGED
