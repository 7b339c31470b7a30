"""rocketc rebuild: consume queues and index of a store made anew from its log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

import click

from rocketc.cli.arguments import refuse_a_log
from rocketc.cli.conf import read_conf, sizes_option
from rocketc.cli.output import Out, ends_quietly, in_words, note
from rocketc.cli.progress import progress
from rocketc.cli.tables import facts, many, render, section, show_size, some
from rocketc.errors import StoreIOError
from rocketc.paths import resolve
from rocketc.rebuild import RebuildReport
from rocketc.rebuild import rebuild as make_anew


@click.command(
    epilog="""\b
Examples:
  rocketc rebuild /data/store
  rocketc rebuild /data/store --only index --json | jq .keys""",
)
@click.argument("store", type=click.Path())
@click.option("--only", type=click.Choice(["cq", "index"]), help="Only the consume queues, or only the index.")
@sizes_option
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object with all that was made.")
@click.option("--all", "every", is_flag=True, help="Every finding in the table, however many.")
@ends_quietly
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
        report = make_anew(store, only, config=config, tell=tell)
    with Out() as out:
        if as_json:
            out.json({"path": store, **report.to_dict()})
        else:
            out.write_text(render([facts(lines(store, only, report, every))], out.has_colour))
    if report.damage or report.missing:
        note("the log is damaged: `rocketc verify` tells more")
    return 0 if report.is_whole else 1


def lines(store: str | None, only: str | None, report: RebuildReport, every: bool) -> Iterator[tuple[str, str, str]]:
    """Name, text and style of each line; store: None if it is not known."""
    name = "" if store is None else f"{store}: "
    yield "log", f"{name}{show_size(report.bytes)} read, offsets {report.start} to {report.stop}", ""
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for path, size in report.files.items():
        sizes[path.split(os.sep)[0] == "index"].append(size)
    if only != "index":
        text = f"{many(report.messages, 'message')} in {many(report.queues, 'queue')}"
        yield "queues", f"{text}: {many(len(sizes[False]), 'file')}, {show_size(sum(sizes[False]))}", "green"
    if only != "cq":
        files = f"{many(len(sizes[True]), 'file')}, {show_size(sum(sizes[True]))}"
        yield "index", f"{many(report.keys, 'key')}: {files}", "green"
    if report.unqueued:
        yield "left out", f"{many(report.unqueued, 'record')} with a topic or queue offset that can't be true", "red"
    damage = (
        each if isinstance(each, str) else f"{each.start} to {each.stop}: {each.reason}{in_words(each.reason)}"
        for each in some(report.damage, every)
    )  # fmt: skip
    gaps = [f"{start} to {stop}: no file" for start, stop in report.missing]
    if report.damage or gaps:
        yield from section("damage", [*damage, *gaps], "")
