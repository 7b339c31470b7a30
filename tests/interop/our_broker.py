"""`rocketc broker` in a process of its own, with a port and a store that tests choose."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from support.command import start

_T = TypeVar("_T")


class OurBroker:
    """A broker of rocketc that serves. Errors and warnings of its log go to its stderr.

    store    root folder of its store
    options  of the command
    fields   settings of BrokerConfig and StoreConfig
    """

    def __init__(self, store: Path, *options: object, **fields: object) -> None:
        fields = {"clean_resource_interval": 0, **fields}  # the disk of a test's machine may be full
        chosen = ["--namesrv-port", 0, "--json", "--settings", json.dumps(fields), *options]
        self._process = start("broker", store, *chosen)
        line = self._process.stdout.readline()
        if not line.startswith(b'{"name_server"'):
            self.kill()
            raise AssertionError((line, self.errors))
        told = json.loads(line)
        self.address, self.name_server = told["address"], told["name_server"]

    def end(self, warning: bytes = b"") -> None:
        """End it in order; it ends with 0, and has nothing to complain about, or one line with this warning."""
        self._process.send_signal(signal.SIGTERM)
        _, errors = self._process.communicate(timeout=20)
        assert self._process.returncode == 0, errors
        assert errors == b"" if not warning else warning in errors and errors.count(b"\n") == 1, errors

    def kill(self) -> None:
        """SIGKILL; idempotent."""
        self._process.kill()
        if self._process.stderr is not None and not self._process.stderr.closed:
            self.errors = self._process.communicate()[1].decode()

    close = kill


def wait_for(look: Callable[[], _T], seconds: float = 15.0) -> _T:
    """The first value of look() that is true, or its last one."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return found
