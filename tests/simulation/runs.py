"""Run the seeds of a simulation in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from crash import remains
from support.native import ROOT


def run(module: str, seeds: list[int], *options: str, **environment: str) -> list[dict[str, Any]]:
    """Return what each seed found. environment: variables of the process, besides those of this one."""
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path, **environment}
    with remains.memory() as folder:
        command = [sys.executable, "-X", "faulthandler", "-m", module, folder, *map(str, seeds)]
        done = subprocess.run([*command, *options], env=env, capture_output=True, text=True)
    assert done.returncode == 0, (seeds, done.stdout[-200:], done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]
