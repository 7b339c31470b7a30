"""The command `rocketc`: wires the commands, and says in one line what is wrong with a command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rocketc.cli.cat import cat
from rocketc.cli.info import info


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  rocketc info /data/store
  rocketc cat /data/store -t orders --from -15m --json | jq .keys

Nothing is ever written to a store. Results go to stdout, all else to stderr.
Exit code: 0 fine, 1 damage or nothing to read, 2 wrong usage.""",
)
@click.version_option(package_name="rocketc", prog_name="rocketc", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Read the message store of Apache RocketMQ: live, copied or damaged, without a broker."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli.add_command(cat)
cli.add_command(info)


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
