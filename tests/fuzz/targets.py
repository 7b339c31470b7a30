"""The fuzz targets: functions that take any bytes, and an empty folder. An exception is a finding.

Each target checks more than that nothing crashes: it compares with what tests/support/oracle.py reads, with a second
read, or with what is written again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from fuzz import bodies, brokers, frames, logs, mutate, opened, texts, timed, units, whole


@dataclass(frozen=True)
class Target:
    """A fuzz target.

    run      the function
    largest  bytes of an input
    mutator  makes an input from another one, by its format; None: only libFuzzer's own mutations
    """

    run: Callable[[bytes, Path], None]
    largest: int = 1024
    mutator: Callable[[bytes, int, int, mutate.Mutate], bytes] | None = None

    def __call__(self, data: bytes, folder: Path) -> None:
        """Run it. folder: created for each input."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with mock.patch("time.sleep"):  # no process writes these files, so do not wait at a torn end
            self.run(data, folder)


TARGETS = {
    "record": Target(logs.record, 4096, mutate.in_a_log(1, mutate.record_base)),
    "parts": Target(logs.parts, 2048, mutate.in_a_log(3, lambda data: logs.HERE)),
    "batch": Target(logs.batch),
    "queue": Target(units.queue),
    "batch-queue": Target(units.batch_queue),
    "queue-ext": Target(units.ext),
    "index": Target(units.index),
    "checkpoint": Target(units.checkpoint, 4096),
    "timers": Target(timed.service),
    "table": Target(texts.table),
    "conf": Target(texts.conf),
    "id": Target(texts.message_id, 256),
    "sql": Target(texts.sql),
    "frames": Target(frames.stream, 2048),
    "header": Target(frames.header),
    "broker": Target(brokers.requests, 2048),
    "tls": Target(brokers.tls, 2048),
    "namesrv-body": Target(bodies.namesrv, 2048),
    "broker-body": Target(bodies.broker, 2048),
    "store": Target(whole.store, 4096, mutate.in_a_store(0)),
    "opened": Target(opened.store, 4096, mutate.in_a_store(1)),
}
