"""rocketc top: show the activity of a store, or of a broker."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rocketc.cli.arguments import Seconds, read_conf, refuse_a_log
from rocketc.cli.cluster_url import SCHEME, is_cluster
from rocketc.cli.exit_codes import DAMAGED, DONE
from rocketc.cli.output import command, note, print_result
from rocketc.cli.security_options import Security, take_security, with_security
from rocketc.cli.top_broker import BrokerReader, TopicBrokersReader
from rocketc.config import StoreConfig
from rocketc.files.paths import refusal_of
from rocketc.files.remote import refuse_urls
from rocketc.metrics.snapshot import SnapshotReader
from rocketc.report.broker_rates import BrokerRates, BrokersRates, draw_broker, draw_brokers
from rocketc.report.rates import SORTS, VIEWS, Rates, draw
from rocketc.report.tables import render
from rocketc.store.opening import open as open_store

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rocketc.cli.top_screen import Top

# Files that it reads besides log, queues and index; a snapshot leaves out what they would tell.
_FILES = ("checkpoint", "config/consumerOffset.json", "config/subscriptionGroup.json", "config/topics.json")


@command(
    "rocketc top /data/store", "rocketc top /data/store --json -n 10 | jq '.groups[].lagMessages'",
    "rocketc top rocketmq://127.0.0.1:9876/orders --once",
    below="Keys: q quits, s sorts by the next column, t switches between topics and groups.",
)  # fmt: skip
@click.argument("path", type=click.Path())
@click.option(
    "-n",
    "--interval",
    type=Seconds(0.1, 3600),
    default=1.0,
    metavar="SECONDS",
    help="Time between two snapshots; rates are averages over it. Default: 1.",
)
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], help="Order of the topics. Default: messages.")
@click.option("--groups", is_flag=True, help="Show consumer groups instead of topics.")
@click.option("--conf", type=click.Path(), metavar="FILE", help="The broker.conf, if it sets the path of the log.")
@click.option("--once", is_flag=True, help="Print the table once after one interval. Does not need textual.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object after one interval; times in ms.")
@with_security
def top(
    path: str, interval: float, sort: str, groups: bool, conf: str | None, once: bool, as_json: bool, **options: Any
) -> int:
    """Show the activity of a store: messages and bytes per second by topic, dispatch backlog, lag of consumer groups.

    PATH is the folder of a store, or rocketmq://host:port for a broker that runs. Of a broker it shows rates, latency
    and backlog, but neither topics nor groups. With the address of a name server, rocketmq://host:port/topic shows all
    brokers that have the topic.

    It only reads, also while a broker or another program writes to the store. Rates count the messages that are added
    to the consume queues. The lag of a group is computed from config/consumerOffset.json, which a broker writes every
    few seconds.
    """
    if is_cluster(path):
        if groups:
            raise click.UsageError(
                "a broker does not tell the lag of groups in this answer; name the folder of its store"
            )
        security = take_security(options)
        return _top_broker(path, security, interval, sort, is_screen=not (once or as_json), as_json=as_json)
    if any(options.values()):
        raise click.UsageError("accounts and TLS are for a broker, as in rocketmq://127.0.0.1:10911")
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
        as_json, lambda: {"path": path, **rates.to_dict()}, lambda color: render(draw(path, rates, sort, view), color)
    )
    refused = [refusal_of(os.path.join(path, name)) for name in _FILES]
    for why in filter(None, refused):
        note(why)
    return DAMAGED if any(refused) else DONE


def _show(path: str, config: StoreConfig | None, interval: float, sort: str, view: str) -> int:
    """Draw on the terminal until the user quits."""
    screen = _screen()
    with open_store(path, read_only=True, config=config) as store:
        screen(path, SnapshotReader(store), interval, sort, view).run()
    return DONE


def _screen() -> type[Top]:
    if sys.stdout is None or not sys.stdout.isatty():
        raise click.UsageError("stdout is not a terminal; use --once or --json to print one snapshot")
    try:
        from rocketc.cli.top_screen import Top
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    return Top


def _top_broker(url: str, security: Security, interval: float, sort: str, *, is_screen: bool, as_json: bool) -> int:
    """Show a broker, or those of a topic."""
    try:
        reader, between, draw = _reader(url, security)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        if is_screen:
            _screen()(url, reader, interval, sort, VIEWS[0], between=between, draw=draw).run()
            return DONE
        before = reader.read()
        time.sleep(interval)
        rates = between(before, reader.read())
    finally:
        reader.close()
    print_result(
        as_json,
        lambda: {"path": url, **rates.to_dict()},
        lambda color: render(draw(url, rates, sort, VIEWS[0]), color),
    )
    return DAMAGED if isinstance(rates, BrokersRates) and rates.look.errors else DONE


def _reader(url: str, security: Security) -> tuple[Any, Callable[[Any, Any], Any], Callable[..., list[RenderableType]]]:
    """Return a reader, and functions that make rates of its snapshots, and lines of these. Raises ValueError."""
    if url.removeprefix(SCHEME).partition("/")[2]:
        return TopicBrokersReader(url, security), BrokersRates.between, draw_brokers
    return BrokerReader(url, security), BrokerRates.between, draw_broker
