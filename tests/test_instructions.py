"""The number of instructions per record has not grown: runs bench/instructions.py --check against its table."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "bench" / "instructions.py"
NOT_COMPARABLE = 77


@pytest.mark.long
@pytest.mark.measure
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="callgrind counts on Linux")
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is missing; on Debian: apt-get install valgrind")
@pytest.mark.skipif("ROCKETC_TEST_PACKAGE" in os.environ, reason="the table is for this tree's own build")
@pytest.mark.skipif(not SCRIPT.exists(), reason="the bench folder is missing")
def test_no_path_takes_more_than_five_percent_more_instructions():
    run = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    if run.returncode == NOT_COMPARABLE:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, f"{run.stdout}{run.stderr}"
