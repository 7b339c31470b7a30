"""What one task reads: splits of commit log files."""

from __future__ import annotations

import os
from typing import NamedTuple

from rocketc._filter import Filter
from rocketc._mapped_file import MappedFile
from rocketc._walk import Walker
from rocketc.paths import Paths, resolve


class Split(NamedTuple):
    """The records of a commit log file whose first byte lies in [start, stop), physical offsets.

    A list of splits makes a DataFrame that decode_batches() reads: spark.createDataFrame(splits(store)).
    """

    path: str
    start: int
    stop: int


def splits(path: Paths, max_bytes: int = 128 << 20) -> list[Split]:
    """Cut a store into splits for the tasks of Spark: no file in a split with another, no split above max_bytes.

    path       as in rocketc.scan(); tasks see the same files under the same absolute paths
    max_bytes  of stored records; the last record of a split may reach beyond
    Together they hold each record once, whatever max_bytes is. A task walks from record to record from the start of
    its file, so a file should not be cut into many more splits than there are cores.
    Raises StoreIOError as rocketc.scan() does.
    """
    if max_bytes < 1:
        raise ValueError(f"max_bytes={max_bytes}: at least 1")
    out = []
    for log in resolve(path):
        for file in log.files:
            base = file.base
            if base is None:  # the first record tells it
                base = Walker(MappedFile(file.path), None, Filter()).base
            parts = -(-file.size // max_bytes)
            step = -(-file.size // max(parts, 1))
            where = os.path.abspath(file.path)
            for start in range(0, file.size, max(step, 1)):
                out.append(Split(where, base + start, base + min(start + step, file.size)))
    return out
