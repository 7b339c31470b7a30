"""What the tests tried, counted by name, and the cases that held each promise: promise_table.py makes a table of it.

Where ROCKETC_COUNTS names a folder each process of pytest leaves its counts there when it ends.
"""

import json
import os
from collections import Counter
from pathlib import Path

NAMES = {
    "images": "images of a disk after a power cut",
    "kills": "kills",
    "faults": "calls made to fail",
    "inputs": "hostile inputs",
    "damaged": "stores damaged in one byte or one range",
    "acknowledged": "acknowledged messages looked for and found",
}
_counts: Counter[str] = Counter()


def count(name: str, n: int = 1) -> None:
    """n more things of a name were tried, and all was well."""
    if name not in NAMES:
        raise KeyError(name)
    _counts[name] += n


def held(promise: int) -> None:
    """One more case has held a promise."""
    _counts[f"promise {promise}"] += 1


def broken() -> None:
    """A case that should hold a promise has failed."""
    _counts["broken"] += 1


def leave() -> None:
    """Write this process's counts, where somebody asks for them."""
    if (folder := os.environ.get("ROCKETC_COUNTS")) and _counts:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(_counts))


def added_up(folder: Path) -> Counter[str]:
    """What the processes of a run have left."""
    total: Counter[str] = Counter()
    for path in folder.glob("*.json"):
        total.update(json.loads(path.read_text()))
    return total
