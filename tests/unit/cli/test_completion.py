"""Shell completion: the scripts, the answers to click's protocol, and bash."""

import shutil
import subprocess
import sys

import pytest
from support.command import environment, rocketc

from rocketc.cli.main import COMMANDS


def complete(line, shell="bash", cwd="/"):
    """Return the completions of the last word of the line: (kind, text) of each."""
    words = line.split(" ")
    variables = {"_ROCKETC_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = rocketc(env=variables)
    assert (done.returncode, done.stderr) == (0, b"")
    return [tuple(row.split(",", 1)) for row in done.stdout.decode().splitlines() if row]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The folders of a store: topics are completed from the folder names only."""
    root = tmp_path_factory.mktemp("store")
    for topic in ("orders", "order-events", "%RETRY%group"):
        (root / "consumequeue" / topic / "0").mkdir(parents=True)
    (root / "batchconsumequeue" / "order-batches" / "0").mkdir(parents=True)
    return root


def test_commands():
    assert complete("rocketc ") == [("plain", name) for name in COMMANDS]
    assert complete("rocketc ver") == [("plain", "verify")]
    assert complete("rocketc nothing") == []


def test_options_and_choices():
    assert complete("rocketc get x --p") == [("plain", "--phy-offset")]
    assert ("plain", "--json") in complete("rocketc verify --")
    assert complete("rocketc get x --body he") == [("plain", "hex")]
    assert complete("rocketc completion ") == [("plain", shell) for shell in ("bash", "zsh", "fish")]


@pytest.mark.parametrize("command", ["cat", "info", "get", "verify"])
def test_paths_are_completed_by_the_shell(command):
    assert complete(f"rocketc {command} /da") == [("file", "/da")]


def test_topics_of_the_store_on_the_command_line(store):
    line = f"rocketc get {store} -t "
    assert complete(line) == [("plain", name) for name in ("%RETRY%group", "order-batches", "order-events", "orders")]
    assert complete(f"{line}order-") == [("plain", "order-batches"), ("plain", "order-events")]
    assert complete(f"rocketc put {store} -t order-") == [("plain", "order-batches"), ("plain", "order-events")]
    assert complete(f"rocketc put {store} x -t orders") == [("plain", "orders")]
    assert complete("rocketc get -t or") == []
    assert complete("rocketc get /no/such/store -t or") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell, run):
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert f"_ROCKETC_COMPLETE={shell}_complete" in out and "rocketc" in out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=out.encode(), check=True, timeout=60)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash(store, tmp_path):
    """The script is loaded, and its function is called as readline calls it."""
    script = rocketc("completion", "bash").stdout.decode()
    program = tmp_path / "bin" / "rocketc"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocketc "$@"\n')
    program.chmod(0o755)
    ask = """
complete_line() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _rocketc_completion rocketc
    echo "${COMPREPLY[@]}"
}
compopt() { :; }
complete -p rocketc
complete_line rocketc de
complete_line rocketc get "$STORE" -t order-
complete_line rocketc verify --j
"""
    done = subprocess.run(
        ["bash", "-c", script + ask], capture_output=True, text=True, timeout=120, cwd="/",
        env=environment(STORE=str(store), PATH=f"{program.parent}:/usr/bin:/bin"),
    )  # fmt: skip
    registered, *replies = done.stdout.splitlines()
    assert "_rocketc_completion rocketc" in registered and done.stderr == ""
    assert replies == ["decode-id", "order-batches order-events", "--json --jobs"]


def test_an_unknown_shell():
    done = rocketc("completion", "csh")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1 and b"'csh'" in done.stderr
