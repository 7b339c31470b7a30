"""Processes that strace watches, and kills when one of their threads enters a call for the n-th time.

The kill happens before the call has done anything.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.native import ROOT
from support.promise_counts import count

# The calls of a store for files and maps; `?` is for systems that do not have all of them.
SET = (
    "?openat,?mkdir,?mkdirat,?fcntl,?fallocate,?ftruncate,?lseek,?mmap,?munmap,?madvise,?mlock,?msync,?fdatasync,?fsync,"
    "?pread64,?pwrite64,?write,?rename,?renameat,?renameat2,?link,?linkat,?unlink,?unlinkat,?rmdir,?close"
)


class Zygote:
    """A process to be traced: run() lets it fork a child for a job, and returns how the child ended and its output."""

    def __init__(self, folder: Path, *packages: Path, **environment: str) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lines, lines = os.pipe()
        self._options: tuple[str, ...] = ()
        os.set_blocking(self._lines, False)
        self._errors = folder / "errors"
        path = [*map(str, packages), str(ROOT / "tests"), *filter(None, sys.path)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment}
        with theirs, open(self._errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crash.zygote", str(theirs.fileno())],
                stdout=lines,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                env=env,
                cwd=folder,  # Python searches for modules there first
            )
        os.close(lines)
        assert self._ours.recv(100) == b"ready", self._errors.read_text()

    def close(self) -> None:
        self._ours.close()
        self.process.wait()
        os.close(self._lines)

    def run(self, job: str, root: Path, fields: dict[str, object], **more: object) -> tuple[bool, list[str]]:
        """(whether it was killed, the lines that it wrote)"""
        self._ours.send(json.dumps({"job": job, "root": str(root), "fields": fields, **more}).encode())
        with self._tracer(int(self._ours.recv(100))):
            self._ours.send(b"go")
            status = int(self._ours.recv(100))
        said = b""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._lines, 65536):
                said += data
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, (status, self._errors.read_text())
        count("kills", int(killed))
        return killed, said.decode().splitlines()

    @contextlib.contextmanager
    def traced(self, *options: str) -> Iterator[None]:
        """Trace the processes of the jobs meanwhile, from their first call on, but not the process that forks them."""
        self._options = options
        try:
            yield
        finally:
            self._options = ()

    @contextlib.contextmanager
    def _tracer(self, pid: int) -> Iterator[None]:
        if not self._options:
            yield
            return
        command = ["strace", "-f", "-p", str(pid), *self._options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            if "attached" not in line:
                tracer.kill()
                self._ours.send(b"no")
                self._ours.recv(100)
                pytest.skip(f"strace can't trace here: {line.strip()}")
            try:
                yield
            finally:
                tracer.terminate()
                tracer.stderr.read()

    def counted(self, run: Callable[[], object], report: Path, calls: str = SET) -> dict[str, int]:
        """How often run() makes each call, at most, in one thread."""
        with self.traced("-e", f"trace={calls}", "-o", str(report)):
            run()
        counts = Counter(re.findall(r"^(\d+) +(\w+)\(", report.read_text(), re.M))
        most: dict[str, int] = {}
        for (_, name), times in counts.items():
            most[name] = max(most.get(name, 0), times)
        return most

    def killed_at(self, name: str, number: int) -> contextlib.AbstractContextManager[None]:
        return self.traced(
            "-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={number}", "-o", "/dev/null"
        )


def every(counts: dict[str, int]) -> list[tuple[str, int]]:
    """(call, number) of the kills: one more than was counted, because the number of calls differs between runs."""
    return [(name, n) for name, count in sorted(counts.items()) for n in range(1, count + 2)]


# ---------------------------------------------------------------- a writer
