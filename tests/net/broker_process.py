"""A broker in a process of its own, for tests that need real sockets."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.native import ROOT

CONF = """\
bindAddress=127.0.0.1
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=1000
maxIndexNum=4000
"""


@dataclass
class RunningProcess:
    """port: of the broker"""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def anonymous_kib(self) -> int:
        """The memory that is not of files, in KiB."""
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1])

    def errors(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if " ERROR " in line or "Traceback" in line]


@contextlib.contextmanager
def broker_process(folder: Path) -> Iterator[RunningProcess]:
    """Run `rocketc broker` on a new store; it must end in order."""
    (folder / "broker.conf").write_text(CONF)
    log = folder / "broker.log"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-X", "faulthandler", "-c", "from rocketc_command import main; main()"]
    command += [
        "broker",
        str(folder / "store"),
        "-c",
        str(folder / "broker.conf"),
        "--port",
        "0",
        "--namesrv-port",
        "0",
    ]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env)
    try:
        deadline = time.monotonic() + 30
        while not (found := re.search(r"broker 127\.0\.0\.1:(\d+), store", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        yield RunningProcess(process, int(found[1]), log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
