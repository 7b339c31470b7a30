"""What a crash leaves of a store: its files taken while it runs, and laid down somewhere else.

A process that is killed leaves the page cache as it is: that is what reading the files gives at any moment.
"""

import os
import shutil
import tempfile
from pathlib import Path

from support import oracle

Files = dict[str, bytes]


def memory() -> tempfile.TemporaryDirectory[str]:
    """A folder without a disk below it, where there is such a file system: syncing costs nothing there."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def take(root: Path) -> Files:
    """Every file under a store's root, by its path below it."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def lay(files: Files, root: Path) -> Path:
    """Make root a store of exactly these files."""
    shutil.rmtree(root, ignore_errors=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def log(files: Files) -> list[tuple[int, bytes]]:
    """(physical offset, bytes) of each file of the log, in order, but those at its end that were only made ready."""
    names = sorted(name for name in files if name.startswith("commitlog/"))
    while names and not any(files[names[-1]]):
        names.pop()
    return [(int(os.path.basename(name)), files[name]) for name in names]


def messages(files: Files) -> list[oracle.Record]:
    """The log's records as the oracle reads them; there is nothing else in it but blanks."""
    items = oracle.walk_log(log(files))
    assert oracle.damage(items) == []
    return oracle.records(items)


def kept(files: Files) -> Files:
    """What recoveries cut off and kept."""
    return {name: data for name, data in files.items() if name.startswith("cut/")}


def zeroed(files: Files, start: int, stop: int | None = None) -> Files:
    """The same with zeros at physical offsets start to stop, or to the end: bytes that never reached the disk."""
    out = dict(files)
    for base, data in log(files):
        low = max(start - base, 0)
        high = len(data) if stop is None else min(stop - base, len(data))
        if low < high:
            out[f"commitlog/{base:020d}"] = data[:low] + bytes(high - low) + data[high:]
    return out
