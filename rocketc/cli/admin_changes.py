"""The commands of `rocketc admin` that change the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from rocketc.cli.admin_options import PERMISSIONS, admin_command, show_perm
from rocketc.cli.admin_results import Outcome, outcome_of
from rocketc.cli.admin_tables import Table, print_tables
from rocketc.cli.admin_views import Asks
from rocketc.cli.arguments import Number
from rocketc.cli.exit_codes import DONE, NOT_FOUND
from rocketc.cli.output import can_ask, confirm, note, print_result
from rocketc.cli.times import When
from rocketc.client.admin import EARLIEST, LATEST, Admin
from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError
from rocketc.remoting.codes import Code
from rocketc.tables.topics import ALLOWED_ATTRIBUTES, MESSAGE_TYPE, TopicConfig, topic_name_error

_YES = click.option("-y", "--yes", is_flag=True, help="Do it without a question. A script without a terminal needs it.")
_DRY = click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
_BROKERS = click.option(
    "-b", "--broker", "brokers", multiple=True, metavar="NAME", help="Only on this one; repeatable."
)
_JSON = click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object, also of servers that fail.")
_PERM = click.Choice(list(PERMISSIONS))


class _Position(When):
    """A time, or `earliest` or `latest`."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value in ("earliest", "latest"):
            return EARLIEST if value == "earliest" else LATEST
        return super().convert(value, param, ctx)


@admin_command(
    "rocketc admin reset-offset billing orders --to -2h --dry-run",
    "rocketc admin reset-offset billing orders --to latest --yes",
    name="reset-offset",
)
@click.argument("group")
@click.argument("topic")
@click.option(
    "--to", "position", type=_Position(), required=True, metavar="TIME",
    help="earliest, latest, or a time: ISO-8601, epoch ms, -2h.",
)  # fmt: skip
@_DRY
@_YES
@_JSON
def reset_offset(asks: Asks, group: str, topic: str, position: int, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Let the consumer group GROUP continue at a time, in all queues of TOPIC.

    It first shows the old and the new offset of each queue, and asks. Messages after the new offset are consumed, also
    those that the group has consumed before. Consumers may be online.
    The exit code is 1 if the answer is not yes or there is no topic TOPIC or group GROUP, and 3 if a broker fails; the
    others are changed.
    """
    try:
        plan = outcome_of(asks, lambda admin: admin.reset_plan(group, topic, position))
        _may_ask(dry_run or yes)
        old = {queue: before for queues in plan.changed.values() for queue, (before, _) in queues.items()}
        if dry_run or not yes:
            new = {queue: after for queues in plan.changed.values() for queue, (_, after) in queues.items()}
            _print_offsets(as_json and dry_run, group, old, new, plan)
            code = plan.conclude("no plan for")
        if dry_run:
            return code
        if not yes and not confirm(f"reset {group} in {topic}?"):
            return NOT_FOUND
        done = outcome_of(asks, lambda admin: admin.reset_offset(group, topic, position))
    except AnswerError as error:
        return _missing(error)
    if yes or done.failed:
        new = {queue: after for queues in done.changed.values() for queue, after in queues.items()}
        _print_offsets(as_json, group, old, new, done)
    return done.conclude()


def _print_offsets(
    as_json: bool, group: str, old: dict[MessageQueue, int | None], new: dict[MessageQueue, int], outcome: Outcome
) -> None:
    print_tables(
        as_json,
        lambda: {
            "group": group,
            "queues": [
                {
                    "topic": queue.topic,
                    "broker": queue.broker_name,
                    "queueId": queue.queue_id,
                    "oldOffset": old.get(queue),
                    "newOffset": offset,
                }
                for queue, offset in new.items()
            ],
            "results": outcome.json(),
        },
        Table(("~broker", ">queue", ">old offset", ">new offset", "messages"), _offset_rows(old, new)),
    )


def _offset_rows(old: dict[MessageQueue, int | None], new: dict[MessageQueue, int]) -> Iterable[Sequence[object]]:
    for queue, offset in new.items():
        before = old.get(queue)
        text = "-"
        if before is not None and before != offset:
            text = f"{abs(before - offset):,} {'again' if offset < before else 'skipped'}"
        yield queue.broker_name, queue.queue_id, "-" if before is None else f"{before:,}", f"{offset:,}", text


@admin_command(
    "rocketc admin create-topic orders --queues 8",
    "rocketc admin create-topic payments -b broker-a --type FIFO",
    name="create-topic",
)
@click.argument("topic")
@click.option("--queues", type=Number(1, 1 << 16), default=8, metavar="N", help="On each broker. Default: 8.")
@click.option("--perm", type=_PERM, default="rw", help="Whether it may be read and written. Default: rw.")
@click.option("--order", is_flag=True, help="Its messages are ordered.")
@click.option(
    "--type", "kind", type=click.Choice(ALLOWED_ATTRIBUTES[MESSAGE_TYPE][1:]),
    help="Type of its messages, for brokers of 5.x.",
)  # fmt: skip
@_BROKERS
@_JSON
def create_topic(
    asks: Asks, topic: str, queues: int, perm: str, order: bool, kind: str | None, brokers: tuple[str, ...],
    as_json: bool,
) -> int:  # fmt: skip
    """Create TOPIC on all brokers, or change its settings.

    The exit code is 3 if a broker fails; the others are changed.
    """
    fault = topic_name_error(topic)
    if fault is not None:
        raise click.UsageError(f"{topic!r}: {fault}")
    attributes = {} if kind is None else {MESSAGE_TYPE: kind}
    config = TopicConfig(topic, queues, queues, PERMISSIONS[perm], order, attributes=attributes)
    outcome = outcome_of(asks, lambda admin: admin.create_topic(config, brokers or None))
    if not outcome.changed and not outcome.failed:
        note("the name server does not know a broker")
        return NOT_FOUND
    _print_change(as_json, topic, outcome, f"{queues} queues on {outcome.names}")
    return outcome.conclude()


@admin_command("rocketc admin delete-topic orders", "rocketc admin delete-topic orders --yes", name="delete-topic")
@click.argument("topic")
@_YES
@_JSON
def delete_topic(asks: Asks, topic: str, yes: bool, as_json: bool) -> int:
    """Delete TOPIC with its queues on all brokers, and the offsets of all groups in it.

    It first shows what would be deleted, and asks. The messages stay in the commit log until its files expire.
    The exit code is 1 if the answer is not yes or there is no topic TOPIC, and 3 if a broker fails; the others have
    deleted it.
    """
    _may_ask(yes)
    try:
        if not yes:
            state = asks(lambda admin: admin.topic_state(topic))
            messages = sum(queue.max_offset - queue.min_offset for queue in state.values())
            names = ", ".join(sorted({queue.broker_name for queue in state})) or "no broker"
            if not confirm(f"delete {topic}, {messages:,} messages on {names}?"):
                return NOT_FOUND
        outcome = outcome_of(asks, lambda admin: _delete(admin, topic))
    except AnswerError as error:
        return _missing(error)
    _print_change(as_json, topic, outcome, f"deleted on {outcome.names}")
    return outcome.conclude(advice=f"name servers still know {topic}; delete it again when all servers answer")


async def _delete(admin: Admin, topic: str) -> dict[str, None]:
    return dict.fromkeys(await admin.delete_topic(topic))


def _print_change(as_json: bool, topic: str, outcome: Outcome, text: str) -> None:
    print_result(
        as_json,
        lambda: {"topic": topic, "results": outcome.json()},
        lambda color: f"{topic}: {text}\n" if outcome.changed else "",
    )


@admin_command(
    "rocketc admin permissions orders --set r", "rocketc admin permissions -b broker-a --set r", partial=True
)
@click.argument("topic", required=False)
@click.option("--set", "chosen", type=_PERM, help="The new permission: r read, w write.")
@_BROKERS
@_JSON
def permissions(asks: Asks, topic: str | None, chosen: str | None, brokers: tuple[str, ...], as_json: bool) -> int:
    """Show the permissions of TOPIC on each broker, or change them with --set.

    Without TOPIC, `-b NAME --set r` stops sends to a broker, for example before it is shut down. Producers then use
    other brokers, and consumers read it to its end. `-b NAME --set rw` ends that, and so does a restart of the broker.
    The exit code is 1 if there is no topic TOPIC, and 3 if a server fails; the others are changed.
    """
    if topic is None:
        if chosen not in ("r", "rw") or len(brokers) != 1:
            raise click.UsageError("give TOPIC; or -b NAME and --set r or rw for a whole broker")
        return _set_writable(asks, brokers[0], chosen == "rw", as_json)
    try:
        if chosen is None:
            outcome = Outcome(asks(lambda admin: admin.topic_config(topic)))
        else:
            perm = PERMISSIONS[chosen]
            outcome = outcome_of(asks, lambda admin: admin.set_topic_permission(topic, perm, brokers or None))
    except AnswerError as error:
        return _missing(error)
    shown = {name: config.perm for name, config in outcome.changed.items() if not brokers or name in brokers}
    results = {} if chosen is None else {"results": outcome.json()}
    print_tables(
        as_json,
        lambda: {"topic": topic, "permissions": shown, **results},
        Table(("~broker", "permission"), ((name, show_perm(perm)) for name, perm in shown.items())),
    )
    return outcome.conclude()


def _set_writable(asks: Asks, broker: str, writable: bool, as_json: bool) -> int:
    outcome = outcome_of(asks, lambda admin: admin.set_broker_writable(broker, writable))
    count = max(outcome.changed.values(), default=0)
    print_result(
        as_json,
        lambda: {"broker": broker, "topics": count, "results": outcome.json()},
        lambda color: f"{broker}: {count} topics changed in the name server\n" if outcome.changed else "",
    )
    return outcome.conclude() or (DONE if count else NOT_FOUND)


def _missing(error: AnswerError) -> int:
    """Report a topic or a group that does not exist; raise any other error."""
    if error.code not in (Code.TOPIC_NOT_EXIST, Code.SUBSCRIPTION_GROUP_NOT_EXIST):
        raise error
    note(str(error))
    return NOT_FOUND


def _may_ask(without: bool) -> None:
    if not without and not can_ask():
        raise click.UsageError("there is no terminal to ask on; give --yes")
