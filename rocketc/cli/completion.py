"""rocketc completion: print a shell completion script; and the completion of topics."""

from __future__ import annotations

import os
from contextlib import suppress

import click
from click.shell_completion import CompletionItem, get_completion_class

from rocketc.cli.exit_codes import DONE
from rocketc.cli.output import Out, command
from rocketc.derived.queue_files import UNIT_BYTES

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "rocketc"
VARIABLE = "_ROCKETC_COMPLETE"  # the environment variable that click reads


@command(
    "rocketc completion bash > ~/.local/share/bash-completion/completions/rocketc",
    "rocketc completion fish > ~/.config/fish/completions/rocketc.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the shell completion script: it completes commands, options, paths, and topics after -t.

    bash (4.4 or newer) and fish: run the command below, then open a new shell. zsh: add `eval "$(rocketc completion
    zsh)"` to ~/.zshrc, after compinit. Topics are completed if the path of the store comes before -t.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.Command(PROGRAM), {}, PROGRAM, VARIABLE)
    with Out() as out:
        out.write((script.source_template % script.source_vars()).strip().encode() + b"\n")
    return DONE


def complete_topic(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the topics of the stores in the command line so far: the folders of their consume queues."""
    found = set()
    named = [context.params.get("store"), *(context.params.get("path") or ())]
    for path in filter(None, [*named, *context.args]):  # in args if the line ends with -t
        for kind in UNIT_BYTES:
            with suppress(OSError):
                found.update(os.listdir(os.path.join(path, kind)))
    return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]
