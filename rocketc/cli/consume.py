"""rocketc consume: print messages of a cluster as a member of a consumer group."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import click

from rocketc.cli.arguments import choose_printer, prints_messages
from rocketc.cli.cluster_selection import warnings_noted
from rocketc.cli.cluster_url import SCHEME, is_cluster
from rocketc.cli.exit_codes import DONE
from rocketc.cli.output import Out, command
from rocketc.cli.security_options import Security, take_security, with_security
from rocketc.cli.selecting import sql_option
from rocketc.cli.signals import Ended, Stop
from rocketc.cli.times import When
from rocketc.client.access import access_to
from rocketc.client.async_consumer import AsyncConsumer
from rocketc.client.cluster_url import topic_url
from rocketc.client.loop_thread import give_back_loop, shared_loop
from rocketc.client.topic_reader import TopicReader
from rocketc.read._sql_filter import SqlFilter
from rocketc.remoting.subscribing import ALL
from rocketc.report.messages import Printer, json_printer

_MOST = 256  # messages between two commits
_LOOK = 500  # ms between two looks whether the reader of the pipe is there


@command(
    "rocketc consume rocketmq://127.0.0.1:9876/orders -g billing",
    "rocketc consume rocketmq://127.0.0.1:9876/orders -g billing -c 9 | jq .body",
    "rocketc consume rocketmq://127.0.0.1:9876/orders -g audit --sql 'price > 10'",
)
@click.argument("url", metavar="rocketmq://HOST:PORT/TOPIC")
@click.option("-g", "--consumer-group", "group", metavar="GROUP", required=True, help="The consumer group.")
@click.option(
    "-o",
    "--offset",
    type=click.Choice(["beginning", "end"]),
    default="end",
    help="Where the group begins in a queue in which it never was. Default: end, only messages that come from now on. "
    "But brokers begin with the first message of a queue that is still in memory.",
)
@click.option("--from", "begin", type=When(), metavar="TIME", help="There the group begins at TIME, as in `cat`.")
@click.option(
    "--tag",
    multiple=True,
    metavar="TAG",
    help="Only this tag; 'A||B' is either. Repeatable. All members of a group must have the same tags.",
)
@sql_option
@prints_messages("see `rocketc cat -h`. Default: JSON", "Form of the body, as in `cat`.")
@with_security
def consume(
    url: str,
    group: str,
    offset: str,
    begin: int | None,
    tag: tuple[str, ...],
    sql: SqlFilter | None,
    count: int | None,
    as_json: bool,
    spec: str | None,
    body: str,
    **given: Any,
) -> int:
    """Print the messages of a topic as a member of a consumer group: one JSON object per line, until Ctrl-C or -c.

    The members of a group share the queues of the topic, with clients of all languages. The brokers keep the offsets of
    the group. They move on when the lines are written, not before: a message whose line was not written, because of
    an error or a closed pipe, comes again. Use `rocketc cat` to read without a group.
    """
    if not is_cluster(url):
        raise click.UsageError(f"{url}: name a topic of a cluster, as in {SCHEME}127.0.0.1:9876/orders")
    if tag and sql is not None:
        raise click.UsageError("--tag and --sql: a group has either tags or a filter; TAGS is a name in a filter")
    try:
        where = topic_url(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if where.topic is None:
        raise click.UsageError(f"{url}: name the topic, as in {SCHEME}{where.name_server}/orders")
    text = None if sql is None else sql.text
    wanted = _Wanted(where.name_server, where.topic, group, "||".join(tag) or ALL, text, take_security(given))
    with Out(live=True) as out, warnings_noted():
        show = choose_printer(spec, as_json, body, out, lambda form, color: json_printer(form, out.is_terminal))
        return _consume(wanted, _options(offset, begin), count, show, out)


class _Wanted(NamedTuple):
    """What is consumed, by whom."""

    name_server: str
    topic: str
    group: str
    tags: str
    sql: str | None
    security: Security


def _options(offset: str, begin: int | None) -> dict[str, Any]:
    """Where a new group begins, as options of AsyncConsumer."""
    if begin is not None:
        local = datetime.fromtimestamp(begin / 1000).strftime("%Y%m%d%H%M%S")
        return {"consume_from_where": "CONSUME_FROM_TIMESTAMP", "consume_timestamp": local}
    names = {"beginning": "CONSUME_FROM_FIRST_OFFSET", "end": "CONSUME_FROM_LAST_OFFSET"}
    return {"consume_from_where": names[offset]}


def _consume(wanted: _Wanted, options: dict[str, Any], count: int | None, show: Printer, out: Out) -> int:
    """Print messages until a signal, the end of the pipe, or the count; commit those that are written."""
    try:
        consumer = AsyncConsumer(
            wanted.group,
            wanted.name_server,
            topics={wanted.topic: wanted.tags},
            sql=wanted.sql,
            credentials=wanted.security.credentials,
            tls=wanted.security.tls,
            **options,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    thread, stop = shared_loop(), Stop()
    try:
        with stop.installed():
            try:
                with stop.waiting():
                    thread.run(_check(wanted))
                    thread.run(consumer.start())
                left = count
                while left is None or left > 0:
                    with stop.waiting():
                        found = thread.run(consumer.getmany(_MOST if left is None else min(left, _MOST), _LOOK))
                        for message in found:
                            out.write_later(show(message))
                        out.flush()
                    if found:
                        thread.run(consumer.commit())
                    else:
                        out.check_reader()
                    left = None if left is None else left - len(found)
                    stop.check()
            except Ended as error:
                out.forget()
                return error.code
            finally:
                thread.run(consumer.close())
    except Ended as error:  # a second signal, while the consumer was closed
        return error.code
    finally:
        give_back_loop(thread)
    return DONE


async def _check(wanted: _Wanted) -> None:
    """Raise the error that a broker has for this group, and TopicNotFoundError. A consumer would only log it."""
    access = access_to(wanted.name_server, wanted.security.credentials, wanted.security.tls)
    async with TopicReader(access, group=wanted.group) as reader:
        for queue in (await reader.queues(wanted.topic))[:1]:
            behind = (await reader.range_of(queue)).end
            await reader.pull(queue, behind, expression=wanted.tags)  # start() of the consumer checks a filter
