"""Each call that a store makes fails at its n-th time, for each n, once and permanently: see crash.fault_jobs.

The store raises an exception of the library that names the file. No acknowledged message is missing afterwards, and a
failed store says so until it is opened again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import preload
from support.native import ROOT
from support.promise_counts import count

pytestmark = pytest.mark.promise(1, 2, 3, 6)
SHIM = Path(__file__).parents[1] / "support/failing.c"
RUNS = {  # the number of parts; `make test` tries one of them
    ("write", "sync"): 20,
    ("write", "async"): 20,
    ("write", "pool"): 20,
    ("recover", "sync"): 20,
    ("clean", "sync"): 40,
    ("delete", "async"): 40,
    ("tables", "sync"): 20,
    ("queue", "async"): 40,
    ("transactions", "async"): 200,
    ("transactions", "sync"): 200,
}


def let_fail(folder: Path, job: str, mode: str, part: int, parts: int) -> None:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)]),
        "LD_PRELOAD": preload.loading(preload.built(SHIM)),
    }
    program = [sys.executable, "-X", "faulthandler", "-m", "crash.fault_jobs"]
    done = subprocess.run(
        [*program, str(folder), job, mode, str(part), str(parts)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-5000:]
    told = json.loads(done.stdout)
    assert told["faults"] > 0
    count("faults", told["faults"])


@pytest.mark.some(4)
@pytest.mark.parametrize(("job", "mode"), RUNS)
def test_some_calls_fail(memory_path, job, mode):
    let_fail(memory_path, job, mode, 0, RUNS[job, mode])


@pytest.mark.long
@pytest.mark.parametrize(("job", "mode"), RUNS)
def test_every_call_fails(memory_path, job, mode):
    let_fail(memory_path, job, mode, 0, 1)
