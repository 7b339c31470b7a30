"""rocketc top: what happens in a store now."""

from __future__ import annotations

import sys
import time

import click

from rocketc.cli.arguments import Seconds, read_conf, refuse_a_log
from rocketc.cli.output import command, print_result
from rocketc.config import StoreConfig
from rocketc.files.remote import refuse_urls
from rocketc.metrics.snapshot import SnapshotReader
from rocketc.report.rates import SORTS, VIEWS, Rates, draw
from rocketc.report.tables import render
from rocketc.store.opening import open as open_store


@command(
    "rocketc top /data/store", "rocketc top /data/store --json -n 10 | jq '.groups[].lagMessages'",
    below="Keys: q ends it, s sorts by the next column, t shows topics or groups.",
)  # fmt: skip
@click.argument("path", type=click.Path())
@click.option(
    "-n",
    "--interval",
    type=Seconds(0.1, 3600),
    default=1.0,
    metavar="SECONDS",
    help="Between two looks; rates are those of that time. Default: 1.",
)
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], help="Order of the topics. Default: messages.")
@click.option("--groups", is_flag=True, help="Show groups of consumers instead of topics.")
@click.option("--conf", type=click.Path(), metavar="FILE", help="The broker.conf, if it says where the log lies.")
@click.option("--once", is_flag=True, help="Look twice, print the table, and end; for this textual is not needed.")
@click.option("-J", "--json", "as_json", is_flag=True, help="The same as one JSON object; times in ms.")
def top(path: str, interval: float, sort: str, groups: bool, conf: str | None, once: bool, as_json: bool) -> int:
    """Show what happens in a store: messages and bytes by the second and by topic, what is behind, lags of groups.

    It only reads, beside a broker or a program that writes the store, or of a store that nobody writes. Rates are of
    what comes into the consume queues; what a group lags is by the offsets in config/consumerOffset.json, which a
    broker writes every few seconds.
    """
    refuse_urls([path], "top")
    refuse_a_log(path)
    config = read_conf(conf) if conf is not None else None
    view = VIEWS[1] if groups else VIEWS[0]
    if not (once or as_json):
        return _show(path, config, interval, sort, view)
    with open_store(path, read_only=True, config=config) as store:
        watch = SnapshotReader(store)
        before = watch.read()
        time.sleep(interval)
        rates = Rates.between(before, watch.read())
    print_result(
        as_json, lambda: {"path": path, **rates.to_dict()}, lambda colour: render(draw(path, rates, sort, view), colour)
    )
    return 0


def _show(path: str, config: StoreConfig | None, interval: float, sort: str, view: str) -> int:
    """Draw on the terminal until the user has seen enough."""
    if sys.stdout is None or not sys.stdout.isatty():
        raise click.UsageError("it draws on a terminal; --once or --json prints one look")
    try:
        from rocketc.cli.top_screen import Top
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    with open_store(path, read_only=True, config=config) as store:
        Top(path, SnapshotReader(store), interval, sort, view).run()
    return 0
