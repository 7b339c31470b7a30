"""What makes a task of ours cheap in a Python worker of Spark."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from typing import Any

_QUICK = getattr(socket, "TCP_QUICKACK", None)  # Linux


class FastStartup:
    """What travels to a worker with a task. When it is there, what the JVM has sent is acknowledged.

    The JVM sends a task in two pieces, and keeps the second one back until the first is acknowledged (Nagle); the
    system of the worker keeps the acknowledgement back, to send it with an answer, 40 ms at most. No task can answer
    before it has both pieces, so each one would take these 40 ms. Between the pieces the worker unpickles the task.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """In a worker of Spark: tell whoever has sent something by TCP, now. Does nothing elsewhere.

    >>> acknowledge()
    """
    if _QUICK is None or not in_worker():
        return
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # no socket, or none of TCP
            connection = socket.socket(fileno=int(name))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
            finally:
                connection.detach()  # it is Spark's


def spare_collections() -> None:
    """In a worker of Spark: what is there by now, modules mostly, is left out when it collects garbage after each task.

    That costs more than all else that a task does in Python. Spark has workers apart for sources:
    nothing of a user's functions is left out.
    """
    if in_worker() and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def in_worker() -> bool:
    """Whether this process is a worker of Spark.

    >>> in_worker()
    False
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return main is not None and main.name in ("pyspark.daemon", "pyspark.worker")
