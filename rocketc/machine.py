"""What the machine has for this process."""

from __future__ import annotations

import os


def processors() -> int:
    """How many it may use: fewer than there are, where taskset or a container says so.

    >>> processors() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
