"""rocketc admin: ask and change a running cluster."""

from __future__ import annotations

import click

from rocketc.cli.admin_changes import create_topic, delete_topic, permissions, reset_offset
from rocketc.cli.admin_views import brokers, connections, groups, lag, topics
from rocketc.cli.command_group import CommandGroup

_COMMANDS = {
    "brokers": brokers,
    "topics": topics,
    "groups": groups,
    "lag": lag,
    "connections": connections,
    "reset-offset": reset_offset,
    "create-topic": create_topic,
    "delete-topic": delete_topic,
    "permissions": permissions,
}
_HELP = {
    "brokers": "Show the brokers, their rates and their disks.",
    "topics": "Show the topics, or the queues of some topics.",
    "groups": "Show the consumer groups.",
    "lag": "Show how far consumer groups are behind.",
    "connections": "Show the clients of a group that are online.",
    "reset-offset": "Let a group continue at another time.",
    "create-topic": "Create a topic.",
    "delete-topic": "Delete a topic with its messages.",
    "permissions": "Show or change who may send and consume.",
}


def _show_help(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


admin = CommandGroup(
    "admin",
    table=_HELP,
    load=_COMMANDS.__getitem__,
    invoke_without_command=True,
    callback=click.pass_context(_show_help),
    help="""Ask and change a running cluster, of RocketMQ's brokers or of rocketc's, over its name server.

    Each command takes -n HOST:PORT, the address of a name server. Without it, the environment variable NAMESRV_ADDR
    has the address; the default is 127.0.0.1:9876. Accounts and TLS are options of each command, too.
    """,
    epilog="""\b
Examples:
  rocketc admin lag -n 10.0.0.5:9876
  rocketc admin groups --credentials tools.yml --tls-ca ca.pem
""",
)
