"""rocketc rebuild: consume queues and index of a store made anew from its log."""

from __future__ import annotations

from typing import Literal

import click

from rocketc.cli.arguments import read_conf, refuse_a_log, sizes_option
from rocketc.cli.output import command, note, print_result, progress
from rocketc.errors import StoreIOError
from rocketc.files.paths import resolve
from rocketc.jobs.rebuild import rebuild as rebuild_files
from rocketc.report.summaries import rebuild_lines
from rocketc.report.tables import facts, render


@command("rocketc rebuild /data/store", "rocketc rebuild /data/store --only index --json | jq .keys")
@click.argument("store", type=click.Path())
@click.option("--only", type=click.Choice(["cq", "index"]), help="Only the consume queues, or only the index.")
@sizes_option
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object with all that was made.")
@click.option("--all", "every", is_flag=True, help="Every finding in the table, however many.")
def rebuild(store: str, only: Literal["cq", "index"] | None, conf: str | None, as_json: bool, every: bool) -> int:
    """Make the consume queues and the index of a store anew from its commit log.

    For a store whose queues or index are lost or wrong; `rocketc verify` tells. Nobody may have it open. The log is
    only read. The old files stay until the new ones are whole, so there must be room for both; killed in between, the
    store is as before.

    The exit code is 1 if the log is damaged (what lies there is in no queue), or if there is none.
    """
    refuse_a_log(store)
    config = read_conf(conf) if conf is not None else None
    try:
        logs = resolve(store)
    except StoreIOError:
        logs = []
    with progress("rebuilding", sum(file.size for log in logs for file in log.files)) as tell:
        report = rebuild_files(store, only, config=config, tell=tell)
    print_result(
        as_json,
        lambda: {"path": store, **report.to_dict()},
        lambda colour: render([facts(rebuild_lines(store, only, report, every))], colour),
    )
    if report.damage or report.missing:
        note("the log is damaged: `rocketc verify` tells more")
    return 0 if report.is_whole else 1
