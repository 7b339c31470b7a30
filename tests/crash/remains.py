"""The files that a crash leaves of a store: copied while it runs, and written to another folder.

A kill leaves the page cache unchanged, so reading the files at any moment returns what a kill at that moment leaves.
"""

import os
import shutil
import tempfile
from pathlib import Path

from support import oracle

Files = dict[str, bytes]


def memory() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory, where there is such a file system: syncs cost nothing there."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def take(root: Path) -> Files:
    """Every file under a store's root, by its relative path."""
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
    """(physical offset, bytes) of each log file, in order, without files at the end that were only preallocated."""
    names = sorted(name for name in files if name.startswith("commitlog/"))
    while names and not any(files[names[-1]]):
        names.pop()
    return [(int(os.path.basename(name)), files[name]) for name in names]


def messages(files: Files) -> list[oracle.Record]:
    """The log's records as the oracle reads them; the log has nothing but these and blank records."""
    items = oracle.walk_log(log(files))
    assert oracle.damage(items) == []
    return oracle.records(items)


def kept(files: Files) -> Files:
    """The bytes that recoveries cut off and kept."""
    return {name: data for name, data in files.items() if name.startswith("cut/")}


def zeroed(files: Files, start: int, stop: int | None = None) -> Files:
    """The same files with zeros at physical offsets start to stop, or to the end: bytes that never reached the disk."""
    out = dict(files)
    for base, data in log(files):
        low = max(start - base, 0)
        high = len(data) if stop is None else min(stop - base, len(data))
        if low < high:
            out[f"commitlog/{base:020d}"] = data[:low] + bytes(high - low) + data[high:]
    return out
