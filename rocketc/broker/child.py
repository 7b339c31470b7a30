"""A broker in a process of its own, as Broker(process=True) starts it: `rocketc broker --json --until-eof`."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import rocketc.errors

if TYPE_CHECKING:
    from rocketc.tables.topics import TopicConfig, Topics

_log = logging.getLogger("rocketc.broker")

END_SECONDS = 10.0  # from SIGTERM to SIGKILL
# The new interpreter begins there, so that it finds this rocketc, and no module of the program's folder.
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(rocketc.errors.__file__)))


def error_line(error: BaseException) -> dict[str, Any]:
    """Return an error at the start of a broker as members of the line that `--json` prints.

    >>> error_line(FileNotFoundError(2, "No such file", "/nowhere"))
    {'error': 'FileNotFoundError', 'text': 'No such file', 'errno': 2, 'filename': '/nowhere'}
    """
    if isinstance(error, OSError) and error.errno is not None:
        name = None if error.filename is None else str(error.filename)
        return {"error": type(error).__name__, "text": error.strerror, "errno": error.errno, "filename": name}
    return {"error": type(error).__name__, "text": str(error)}


def error_of(line: Mapping[str, Any]) -> Exception:
    """Return the exception that error_line() described; one that only its module knows is a RuntimeError.

    >>> error_of({"error": "StoreLockedError", "text": "/data: locked"})
    StoreLockedError('/data: locked')
    """
    text = str(line.get("text"))
    kind = getattr(rocketc.errors, str(line.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = {"ValueError": ValueError, "TypeError": TypeError}.get(str(line.get("error")))
    number = line.get("errno")
    if isinstance(number, int):
        made = OSError if kind is None or not issubclass(kind, OSError) else kind
        return made(number, text, line["filename"]) if line.get("filename") else made(number, text)
    return RuntimeError(f"the broker did not start: {text}") if kind is None else kind(text)


class ChildBroker:
    """Starts a broker in a new process, and returns when it serves.

    path          of the store; None: a temporary one
    options       arguments for the command, beside those that this class sets
    settings      fields of BrokerConfig and StoreConfig
    Its stderr is that of this process. Its stdin ends when this process ends, for whatever reason; then it ends too.
    Ctrl-C at a terminal does not reach it.
    Raises the error of the start.
    """

    store = None

    def __init__(self, path: str | None, options: list[str], settings: Mapping[str, Any]) -> None:
        self._is_temporary = path is None
        command = [sys.executable, "-m", "rocketc", "broker", "--json", "--until-eof", *options]
        command += ["--settings", json.dumps(dict(settings), default=os.fspath)]
        command += ["--temporary"] if path is None else ["--", path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_HOME, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin = self._process.stdin
        try:
            text = self._process.stdout.readline()
        except BaseException:  # Ctrl-C
            self._end()
            raise
        line = json.loads(text) if text else {}
        if "error" in line or not text:
            self._stdin.close()
            self._end(END_SECONDS)  # it removes its folder
            raise error_of(line) if text else self._failed()
        self.name_server: str = line["name_server"]
        self.address: str = line["address"]
        self.ha_address: str = line["ha_address"]
        self.metrics_url: str | None = line.get("metrics")
        self.path: str = line["store"]
        self.pid: int = line["pid"]

    @property
    def topics(self) -> Topics:
        from rocketc.tables.topics import Topics

        return Topics(self.path)

    def close(self) -> None:
        """End the process in order; kill it if that takes too long. Raises ChildProcessError if it had failed."""
        has_failed = self._process.poll() is not None
        self._process.terminate()
        try:
            self._end(END_SECONDS)
        finally:
            if self._is_temporary:  # a process that was killed has not removed it
                shutil.rmtree(self.path, ignore_errors=True)
        if has_failed or self._process.returncode != 0:
            raise self._failed()

    def _end(self, seconds: float = 0.0) -> None:
        """Wait for the end of the process for some seconds, then kill it; close the pipes."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            if seconds:
                _log.warning("the broker's process %d does not end; it is killed", self._process.pid)
        finally:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()

    def _failed(self) -> ChildProcessError:
        return ChildProcessError(f"the process of the broker ended with {self._process.returncode}; stderr says why")

    def forget(self) -> None:
        """In a forked child: close the pipe whose end ends the broker. The number of the descriptor stays in use."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._stdin.fileno())
        os.close(null)

    def create_topic(self, name: str, queue_nums: int | None) -> TopicConfig:
        import asyncio  # late: see Broker
        import concurrent.futures

        from rocketc.broker.new_topic import create_topic
        from rocketc.tables.topics import DEFAULT_TOPIC, NEW_TOPIC_QUEUES

        template = self.topics.get(DEFAULT_TOPIC)
        if queue_nums is None:
            queue_nums = NEW_TOPIC_QUEUES
        elif template is not None and queue_nums > template.write_queue_nums and name not in self.topics:
            raise ValueError(
                f"topic {name!r}: default_topic_queue_nums is {template.write_queue_nums}, so the broker does not "
                f"create {queue_nums} queues; give it to Broker()"
            )
        name_server = self.name_server.partition(";")[0]
        main = create_topic(self.address, name_server, name, queue_nums, lambda: self.topics.get(name))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:  # the caller's thread may run a loop
            return pool.submit(asyncio.run, main).result()
