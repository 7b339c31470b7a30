"""Makes tasks faster in Spark's Python workers: early TCP acknowledgements, fewer garbage collections."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from typing import Any

_WRITE = "pyspark.sql.worker.write_into_data_source"
_COMMIT = "pyspark.sql.worker.python_streaming_sink_runner"
_QUICK = getattr(socket, "TCP_QUICKACK", None)  # Linux


class FastStartup:
    """Base of objects that Spark sends to a worker with a task. Unpickling one acknowledges what the JVM has sent.

    The JVM sends a task in two pieces. Nagle's algorithm delays the second piece until the first is acknowledged. The
    kernel of the worker delays that acknowledgement by up to 40 ms, to send it with an answer. A task can't answer
    before it has both pieces, so each task would take 40 ms longer. The worker unpickles the task between the pieces.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """In a worker of Spark: send the TCP acknowledgements of all connections now. Does nothing in other processes.

    >>> acknowledge()
    """
    if _QUICK is None or not in_worker():
        return
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # not a TCP socket
            connection = socket.socket(fileno=int(name))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
            finally:
                connection.detach()  # do not close the descriptor: it belongs to Spark


def spare_collections() -> None:
    """In a worker of Spark: exclude the objects that exist now, mostly modules, from garbage collection.

    Spark collects garbage after each task, which takes longer than the other Python work of a task. Spark runs sources
    in workers of their own, so no objects of a user's functions are excluded. Functions for mapInArrow share workers:
    what a user's functions keep when a worker first runs read_parts() is excluded, too.
    """
    if in_worker() and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def in_worker() -> bool:
    """Whether this process is a worker of Spark.

    >>> in_worker()
    False
    """
    return _main() in ("pyspark.daemon", "pyspark.worker")


def in_write() -> bool:
    """Whether this is the process in which Spark creates a source in order to write.

    >>> in_write()
    False
    """
    return _main() == _WRITE or _WRITE in sys.modules


def in_commit() -> bool:
    """Whether this is the process in which Spark commits a batch of a streaming write.

    >>> in_commit()
    False
    """
    return _main() == _COMMIT or _COMMIT in sys.modules


def _main() -> str | None:
    """Return the name of the module that this process runs."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return main.name if main is not None else None
