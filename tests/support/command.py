"""The command `rocketc` as users run it: in its own process, with stdout a pipe or a terminal."""

import fcntl
import io
import os
import pty
import resource
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROCKETC = [sys.executable, "-m", "rocketc"]


def environment(**changes):
    """The environment without variables that change the command's behavior; a change to None removes a variable."""
    unwanted = {"NO_COLOR", "COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONWARNINGS"}
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    env |= {"TERM": "xterm"} | changes
    return {name: value for name, value in env.items() if value is not None}


def start(*args, env=None, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
    command = [*ROCKETC, *map(str, args)]
    return subprocess.Popen(command, cwd="/", env=environment(**(env or {})), **options)


def processor_seconds():
    """CPU time of the commands that have ended so far. It hardly depends on the other load of the machine."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rocketc(*args, env=None, timeout=120, **options):
    """Run the command to its end; return a CompletedProcess with bytes."""
    with start(*args, env=env, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def python(code, timeout=120):
    """Run code in its own Python process, with the modules of these tests; return its output."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=timeout, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def on_terminal(*args, columns=80, env=None):
    """Run the command with stdout and stderr on a terminal; return its exit code and what the terminal gets."""
    ours, its = pty.openpty()
    try:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = start(*args, env=env, stdout=its, stderr=its)
    finally:
        os.close(its)
    parts = []
    try:
        while part := os.read(ours, 1 << 16):
            parts.append(part)
    except OSError:  # EIO: the other end is closed
        pass
    finally:
        os.close(ours)
    return process.wait(timeout=120), b"".join(parts).decode().replace("\r\n", "\n")


class Terminal(io.StringIO):
    """A stream whose isatty() is true."""

    def isatty(self):
        return True


class GrowingLog:
    """A commit log as a broker writes it: records are written one by one into files of full length."""

    def __init__(self, folder: Path, file_size: int = 4096) -> None:
        self.folder = folder
        self.file_size = file_size
        self.end = 0  # physical offset
        self._queues: dict[tuple[str, int], int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def file_at(self, phy_offset: int) -> Path:
        return self.folder / f"{phy_offset - phy_offset % self.file_size:020d}"

    def append(self, topic: str, body: bytes, *, queue_id: int = 0, **fields) -> int:
        """Write a message with the next offsets; return its physical offset."""
        from rocketc import encode, encode_blank

        queue_offset = self._queues.get((topic, queue_id), 0)
        size = len(encode(topic, body, **fields))
        room = self.file_size - self.end % self.file_size
        if size + 8 > room:
            self.write(encode_blank(room)[:8])
            self.end += room
        at = self.end
        self.write(encode(topic, body, queue_id=queue_id, queue_offset=queue_offset, phy_offset=at, **fields))
        self.end += size
        self._queues[topic, queue_id] = queue_offset + 1
        return at

    def write(self, data: bytes) -> None:
        """Write bytes at the end of the log in one call, without moving `end`."""
        path = self.file_at(self.end)
        if not path.exists():
            made = path.with_suffix(".new")
            made.write_bytes(bytes(self.file_size))
            made.rename(path)
        with open(path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data, self.end % self.file_size)
