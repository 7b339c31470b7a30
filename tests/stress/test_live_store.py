"""verify, info, stats and cat beside a process that writes at full rate: what it is doing is never taken for damage."""

import shutil
import time

import pytest
from support.live_writer import SIZES, live_writer

pytestmark = pytest.mark.promise(7)

COMMANDS = {
    "verify": [],
    "info": [],
    "stats": ["--by", "topic,queue"],
    "cat": ["-t", "T1", "-q", "2", "-o", "-100"],
}
ROUNDS, RUNS = 50, 4  # a long test: each command 200 times, in new stores because they grow


def check(run, root, command):
    code, out, err = run(command, root, *COMMANDS[command])
    assert code == 0, f"{command}: {code}\n{out[-4000:]}\n{err[-4000:]}"
    lines = err.splitlines()
    assert all("deleted by the owner of the store during this command" in line for line in lines), err
    return len(lines)


@pytest.mark.parametrize("mode", SIZES)
def test_commands_beside_a_live_writer(memory_path, run, mode):
    with live_writer(memory_path, mode):
        until = time.monotonic() + 2
        check(run, memory_path, "verify")
        while time.monotonic() < until:
            for command in COMMANDS:
                check(run, memory_path, command)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", SIZES)
def test_each_command_200_times_beside_a_live_writer(memory_path, run, mode):
    deleted = 0
    for n in range(ROUNDS):
        root = memory_path / str(n)
        with live_writer(root, mode):
            for _ in range(RUNS):
                for command in COMMANDS:
                    deleted += check(run, root, command)
        shutil.rmtree(root)
    assert deleted > 0 or mode == "keeps"
