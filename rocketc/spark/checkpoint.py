"""The folder in which a stream that we run keeps its place, in the form of Spark's own checkpoints.

    CHECKPOINT/offsets/7    where batch 7 ends; written before the batch is processed
    CHECKPOINT/commits/7    batch 7 is processed
    CHECKPOINT/begin        where batch 0 begins
    CHECKPOINT/metadata     an id, for Spark

So a query of Spark 4 continues with this folder as its checkpointLocation, and the other way round.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from typing import Any

from rocketc.errors import StoreLockedError
from rocketc.files.durable import errors_named, sync_folder
from rocketc.files.lock_file import StoreLock

KEPT = 100  # batches whose files stay, as in Spark
_OFFSETS, _COMMITS = "offsets", "commits"
Offset = dict[str, Any]


class Checkpoint:
    """The checkpoint of a stream, which this process holds until close().

    path  a local folder; it is created
    Raises StoreLockedError if another stream holds it, and StoreIOError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        with errors_named(self.path):
            for name in (_OFFSETS, _COMMITS):
                os.makedirs(os.path.join(self.path, name), exist_ok=True)
        try:
            self._lock = StoreLock(self.path)
        except StoreLockedError:
            raise StoreLockedError(f"{self.path}: another stream is using this checkpoint") from None
        if not os.path.exists(self._name("metadata")):
            self._write("metadata", json.dumps({"id": str(uuid.uuid4())}))

    def close(self) -> None:
        """Let another stream take the checkpoint."""
        self._lock.release()

    def begin(self) -> Offset | None:
        """Return where batch 0 begins; None: it is not known."""
        text = self._read("begin")
        return None if text is None else self._offset("begin", text)

    def keep_begin(self, offset: Offset) -> None:
        """Write where batch 0 begins."""
        self._write("begin", json.dumps(offset))

    def last(self) -> tuple[int, Offset | None, bool]:
        """Return the number of the last batch that was planned, its end, and whether it was processed; -1: no batch."""
        planned, done = self._numbers(_OFFSETS), self._numbers(_COMMITS)
        if not planned:
            return -1, None, True
        number = planned[-1]
        return number, self.end_of(number), bool(done) and done[-1] >= number

    def end_of(self, number: int) -> Offset:
        """Return where a batch ends that was planned. Raises ValueError if that is not known."""
        name = os.path.join(_OFFSETS, str(number))
        lines = (self._read(name) or "").splitlines()
        if len(lines) != 3 or lines[0] != "v1":
            raise self._wrong(name)
        return self._offset(name, lines[2])

    def plan(self, number: int, end: Offset) -> None:
        """Write where a batch ends, before it is processed."""
        now = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
        self._write(os.path.join(_OFFSETS, str(number)), "\n".join(["v1", json.dumps(now), json.dumps(end)]))

    def commit(self, number: int) -> None:
        """Write that a batch is processed, and forget old ones."""
        self._write(os.path.join(_COMMITS, str(number)), "v1\n" + json.dumps({"nextBatchWatermarkMs": 0}))
        for name in (_OFFSETS, _COMMITS):
            for old in self._numbers(name):
                if old <= number - KEPT:
                    for file in (str(old), f".{old}.crc"):  # Spark writes the second
                        with suppress(FileNotFoundError):
                            os.unlink(self._name(name, file))

    def _name(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in os.listdir(self._name(folder)) if name.isascii() and name.isdigit())

    def _read(self, name: str) -> str | None:
        path = self._name(name)
        with errors_named(path):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def _offset(self, name: str, text: str) -> Offset:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._wrong(name)
        return found

    def _wrong(self, name: str) -> ValueError:
        return ValueError(
            f"rocketmq: {self._name(name)}: not the offset of a stream of this source; use another checkpoint"
        )

    def _write(self, name: str, text: str) -> None:
        path = self._name(name)
        folder, own = os.path.split(path)
        new = os.path.join(folder, f".{own}.new")  # Spark ignores it
        with errors_named(path):
            with open(new, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(new, path)
            sync_folder(folder)
