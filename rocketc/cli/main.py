"""The command `rocketc`: finds the commands, and says in one line what is wrong with a command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

# Name -> what it does; rocketc/cli/NAME.py is loaded when it is asked for.
COMMANDS = {
    "info": "Say what is in a store, and whether it is whole.",
    "cat": "Print messages; follow a store that grows.",
    "get": "Print one message in full, by offset, id or key.",
    "stats": "Count messages and bytes by topic, tag, host, hour.",
    "top": "Show what happens in a store now: rates, lags, what is behind.",
    "verify": "Check every record, and whether any is missing.",
    "export": "Write messages to Parquet, Arrow, CSV or JSON Lines.",
    "put": "Put lines, files or JSON lines into a store.",
    "rebuild": "Make queues and index anew from the log.",
    "salvage": "Copy all that is readable of a damaged store into a new one.",
    "clean": "Delete what is too old, or say what would be deleted.",
    "bench": "Measure a store beside this machine's memory and disk.",
    "decode-id": "Say what a message id says.",
    "completion": "Print what makes your shell complete words.",
}


class _Commands(click.Group):
    """The commands of COMMANDS, in that order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"rocketc.cli.{module}"), module)
        command.short_help = COMMANDS[name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  rocketc cat /data/store -t orders --from -15m --json | jq .keys
  rocketc export /data/store -o lake/ --partition-by topic,date

Only put, rebuild and clean write to a store; salvage makes one. Results go to stdout, all else to stderr.
Exit code: 0 fine, 1 damage or nothing to read, 2 wrong usage.""",
)
@click.version_option(package_name="rocketc", prog_name="rocketc", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Read the message store of Apache RocketMQ: live, copied or damaged, without a broker; and write one."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its code."""
    try:
        code = cli.main(args, prog_name="rocketc", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "rocketc"
        text = " ".join(error.format_message().split()).rstrip(".")
        if sys.stderr is not None:
            sys.stderr.write(f"{command}: {text}; see `{command} --help`\n")
        code = error.exit_code
    except click.exceptions.Abort:
        code = 130
    except SystemExit:  # click leaves so when the reader of its help is gone, and after completing a shell's word
        code = 0
    sys.exit(code or 0)
