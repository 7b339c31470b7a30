"""The manifest of an exported folder: the files that the export wrote, so that the next one removes only these.

It is beside the folder, not in it: Polars reads every file of a folder, whatever its name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress

_VERSION = 1
_LONGEST = 200  # bytes of a folder's name that is part of the manifest's name
_NAMED = 5  # paths in an error

File = tuple[str, int]  # the path below the folder, and the size in bytes


def manifest_of(folder: str) -> str:
    """Return the path of the manifest of a folder.

    >>> manifest_of("data/lake")
    'data/.lake.rocketc-export.json'
    """
    above, name = os.path.split(folder)
    if len(os.fsencode(name)) > _LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return os.path.join(above, f".{name}.rocketc-export.json")


def write_manifest(folder: str, files: Collection[File]) -> None:
    """Write the manifest of a folder, durable and all or nothing; without files, remove it. Raises OSError."""
    path = manifest_of(folder)
    if not files:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8", errors="surrogateescape") as file:
            listed = [{"path": name, "bytes": size} for name, size in sorted(files)]
            json.dump({"version": _VERSION, "files": listed}, file, ensure_ascii=False, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read_manifest(folder: str) -> set[File]:
    """Return the files that exports wrote into a folder; nothing if this is unknown.

    >>> import tempfile
    >>> folder = os.path.join(tempfile.mkdtemp(), "lake")
    >>> write_manifest(folder, [("topic=a/part-0.parquet", 700)])
    >>> read_manifest(folder), read_manifest("nowhere")
    ({('topic=a/part-0.parquet', 700)}, set())
    """
    try:
        fd = os.open(manifest_of(folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="surrogateescape") as file:
            found = json.load(file)
        return {(one["path"], one["bytes"]) for one in found["files"]} if found["version"] == _VERSION else set()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def refuse_foreign(folder: str, shown: str) -> None:
    """Raise FileExistsError with the path `shown` if a folder has anything that no export wrote.

    That is a file, a link or an empty folder that the manifest does not list, or a file whose size has changed.
    """
    ours = read_manifest(folder)
    foreign = sorted(path for path, size in files_in(folder) if (path, size) not in ours)
    if foreign:
        more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
        text = f"contains what no export wrote: {', '.join(foreign[:_NAMED])}{more}; move it, or export elsewhere"
        raise FileExistsError(errno.ENOTEMPTY, text, shown)


def remove_export(folder: str, ours: Collection[File], heir: str) -> None:
    """Remove the files that an export wrote, and the folders that are empty then. An OSError keeps what is left.

    ours  the files of the manifest
    heir  the folder that has replaced this one: it gets the other files, which came after refuse_foreign()
    """
    for path, size in list(files_in(folder)):
        here, there = os.path.join(folder, path), os.path.join(heir, path)
        with suppress(OSError):
            if (path, size) in ours:
                os.unlink(here)
            elif not os.path.lexists(there):
                os.makedirs(os.path.dirname(there), exist_ok=True)
                os.rename(here, there)
    for above, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(above)


def files_in(folder: str) -> Iterator[File]:
    """Yield the paths below a folder: files with their bytes, links and devices with -1, empty folders with -2."""
    for above, folders, names in os.walk(folder):
        if not folders and not names and above != folder:
            yield os.path.relpath(above, folder), -2
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        for path in (os.path.join(above, name) for name in (*links, *names)):
            with suppress(FileNotFoundError):
                facts = os.lstat(path)
                yield os.path.relpath(path, folder), facts.st_size if stat.S_ISREG(facts.st_mode) else -1
