"""Counts of what the tests tried, by name, and of the cases that held each promise; promise_table.py prints them.

If ROCKETC_COUNTS names a folder, each process of pytest writes its counts there when it ends.
"""

import json
import os
from collections import Counter
from pathlib import Path

NAMES = {
    "images": "images of a disk after a power cut",
    "kills": "kills",
    "faults": "calls made to fail",
    "simulated": "clusters on virtual time",
    "inputs": "hostile inputs",
    "damaged": "stores damaged in one byte or one range",
    "acknowledged": "acknowledged messages looked for and found",
    "delayed": "of these, delayed ones, none early",
    "sent back": "messages sent back, found again or among the dead letters",
}
_counts: Counter[str] = Counter()


def count(name: str, n: int = 1) -> None:
    """Count n more things of a name that were tried successfully."""
    if name not in NAMES:
        raise KeyError(name)
    _counts[name] += n


def held(promise: int) -> None:
    """Count one more case that has held a promise."""
    _counts[f"promise {promise}"] += 1


def broken() -> None:
    """Count a case that failed to hold a promise."""
    _counts["broken"] += 1


def leave() -> None:
    """Write this process's counts if ROCKETC_COUNTS asks for them."""
    if (folder := os.environ.get("ROCKETC_COUNTS")) and _counts:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(_counts))


def added_up(folder: Path) -> Counter[str]:
    """The sum of the counts of a run's processes."""
    total: Counter[str] = Counter()
    for path in folder.glob("*.json"):
        total.update(json.loads(path.read_text()))
    return total
