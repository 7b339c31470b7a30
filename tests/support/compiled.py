"""Libraries that tests compile: once for all processes of a session, and again when a source changes."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "tests"


def compiled(name: str, sources: Iterable[bytes], command: Iterable[str], make: Callable[[Path, Path], None]) -> Path:
    """The library that `make` builds.

    sources   contents of files that it depends on, besides the C headers of the package and its .pxd files
    command   of the compiler, and what else changes the result
    make      make(folder, library) builds in an empty folder
    """
    digest = hashlib.sha256(repr(list(command)).encode())
    shared = sorted([*(ROOT / "include").rglob("*.h"), *(ROOT / "pyx").rglob("*.pxd")])
    for data in (*sources, *(path.read_bytes() for path in shared)):
        digest.update(len(data).to_bytes(8, "big") + data)
    folder = FOLDER / digest.hexdigest()[:20]
    library = folder / name
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may build it now
        if not library.exists():
            made = Path(tempfile.mkdtemp(dir=folder))
            make(made, made / name)
            os.rename(made / name, library)
            shutil.rmtree(made)
    return library
