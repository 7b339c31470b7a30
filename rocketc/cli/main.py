"""The command `rocketc`: loads the commands, and reports usage errors in one line."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence

import click

from rocketc.cli.command_group import CommandGroup
from rocketc.cli.exit_codes import COULD_NOT, DONE, INTERRUPTED, SUMMARY

# Name -> short help; rocketc/cli/NAME.py is loaded when the command runs.
COMMANDS = {
    "info": "Show what a store holds: files, offsets, times, damage.",
    "cat": "Print messages, or follow a topic as it grows.",
    "get": "Find a message by offset, id or key; print all its fields.",
    "stats": "Count messages and bytes by topic, tag, host, hour.",
    "top": "Show live rates, consumer lag and dispatch backlog.",
    "verify": "Check every record of a store or a copy; report all errors.",
    "export": "Write messages to Parquet, Arrow, CSV or JSON Lines.",
    "put": "Put lines, files or JSON Lines into a store.",
    "consume": "Print a topic of a cluster as a consumer group.",
    "rebuild": "Rebuild the consume queues and the index from the log.",
    "salvage": "Copy all valid messages of a damaged store to a new one.",
    "replicate": "Copy the log of a running master, and keep up with it.",
    "clean": "Show which old log files would be deleted, ask, delete.",
    "namesrv": "Run a name server for RocketMQ's brokers and clients.",
    "bench": "Compare a store with this machine's memory and disk.",
    "decode-id": "Show the fields of a message id.",
    "admin": "Ask and change a cluster: topics, groups, lag, offsets.",
    "broker": "Serve a store to clients of RocketMQ, in any language.",
    "completion": "Print the shell completion script.",
}


def _load(name: str) -> click.Command:
    module = name.replace("-", "_")
    command: click.Command = getattr(importlib.import_module(f"rocketc.cli.{module}"), module)
    return command


@click.group(
    cls=CommandGroup,
    table=COMMANDS,
    load=_load,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"""\b
Examples:
  rocketc get /data/store --key 10086 -t orders
  rocketc cat /data/store -t orders --follow
  rocketc verify /backup/store
  rocketc export /data/store -o day.parquet --from 2026-01-31 --to 2026-02-01
  rocketc salvage /data/broken /data/new
  rocketc clean /data/store --older-than 7d --dry-run

Only put, rebuild and clean change a store; salvage and replicate create one. Results go to stdout, everything else to
stderr. Exit code: {SUMMARY}.""",
)
@click.version_option(package_name="rocketc", prog_name="rocketc", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Read and write the message store of Apache RocketMQ without a broker: a live, copied or damaged store."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its code."""
    logging.getLogger("rocketc").addHandler(logging.NullHandler())  # a command says itself what its user must know
    try:
        code = cli.main(args, prog_name="rocketc", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "rocketc"
        text = " ".join(error.format_message().split()).rstrip(".")
        if sys.stderr is not None:
            sys.stderr.write(f"{command}: {text}; see `{command} --help`\n")
        code = error.exit_code
    except click.exceptions.Abort:
        code = INTERRUPTED
    except OSError as error:  # click writes its help and the version itself: the disk of stdout is full
        from rocketc.cli.output import report_failed_output

        report_failed_output(error)
        code = COULD_NOT
    except SystemExit:  # from click: the pipe for its help is closed, or it has completed a word for the shell
        code = DONE
    sys.exit(code or DONE)
