"""Resolve a path of the user (store root, commit log folder, file, glob, URL, or a list) to the files to read."""

from __future__ import annotations

import bisect
import errno
import functools
import glob
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from rocketc.errors import StoreIOError
from rocketc.files import remote
from rocketc.files.durable import errors_named
from rocketc.files.regular import open_regular
from rocketc.files.remote import Options, RemotePath, is_url, shown
from rocketc.files.sparse import written_blocks

StrPath = str | os.PathLike[str]
Paths = StrPath | Iterable[StrPath]

_LISTINGS = 100  # attempts to list folders whose files are being deleted
_OFFSET_NAME = re.compile(r"[0-9]{20}")
_NUMBER = re.compile(r"[0-9]{17}|[0-9]{20}")  # names of index files, and of all others
_NO_LOG = "no commit log here: neither a folder `commitlog` nor files named by 20 digits"
_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\3\4": "zip"}
_FILE_URI = re.compile(r"file:(?://(?:localhost)?)?(?=/)")


@dataclass(frozen=True)
class LogFile:
    """One commit log file of a scan.

    path   of a local file, or a URL
    base   physical offset of its first byte, from its name; None: the name is not an offset
    size   its size in bytes
    limit  the size in bytes that it should have: more than size if its end was not copied, never less
    last   no file with data follows in the same log
    start, stop  read only the records that begin between these physical offsets, if set; parts() sets them
    exact  a record begins at start, as the report of a scan says: do not search for one
    exact_stop  where a record ends, at or after stop: nothing after it is read; None: unknown
    """

    path: str
    base: int | None
    size: int
    limit: int
    last: bool
    start: int | None = None
    stop: int | None = None
    exact: bool = False
    exact_stop: int | None = None

    @property
    def origin(self) -> int:
        """The physical offset of its first byte. A file whose name is not an offset, such as a renamed copy, counts as
        the first file of its log."""
        return self.base or 0

    @property
    def next_base(self) -> int:
        """The physical offset at which the next file of the log begins."""
        return self.origin + self.limit

    @property
    def begin(self) -> int:
        """The physical offset at which reading begins."""
        return self.origin if self.start is None else self.start

    @property
    def end(self) -> int:
        """The physical offset at which reading ends: `stop`, or the end of the file. The last bytes may be zeros."""
        end = self.origin + self.size
        return end if self.stop is None else min(self.stop, end)

    @property
    def name(self) -> str:
        """The path in a form that is safe to print: a URL without its password."""
        return shown(self.path)

    def __repr__(self) -> str:
        values = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self)[1:])
        return f"LogFile({', '.join([repr(self.name), *values])})"


@dataclass(frozen=True)
class Log:
    """The files of one commit log in order, and the gaps between them.

    missing  ranges of physical offsets between two files that none of the files contains
    lost     those of them for which there is no file in the folder either: a file was lost. What is missing before the
             first file was deleted because it was old, and is in neither
    folder   where a lost file would be; safe to print
    """

    files: tuple[LogFile, ...]
    missing: tuple[tuple[int, int], ...]
    lost: tuple[tuple[int, int], ...] = ()
    folder: str = ""

    def lost_between(self, start: int | None, stop: int | None) -> Iterator[tuple[int, int]]:
        """Yield the parts of the lost ranges that are in [start, stop); None: no bound.

        >>> list(Log((), (), lost=((100, 200), (300, 400))).lost_between(150, 300))
        [(150, 200)]
        """
        for first, behind in self.lost:
            first = first if start is None else max(first, start)
            behind = behind if stop is None else min(behind, stop)
            if first < behind:
                yield first, behind

    def lost_name(self, phy_offset: int) -> str | None:
        """Return the path of the lost file that began at this physical offset, safe to print; None: no folder is known.

        >>> Log((), (), folder="store/commitlog").lost_name(1024)
        'store/commitlog/00000000000000001024'
        """
        name = f"{phy_offset:020d}"
        return _joined(self.folder, name) if self.folder else None


def base_of(path: str) -> int | None:
    """Return the physical offset in a file's name, or None.

    >>> base_of("store/commitlog/00000000001073741824"), base_of("notes.txt")
    (1073741824, None)
    """
    name = _split(path)[1]
    return int(name) if _OFFSET_NAME.fullmatch(name) and int(name) < 1 << 63 else None


def refusal_of(path: str) -> str | None:
    """Return why an existing file can't be read, with its path; None if it can.

    >>> refusal_of("nowhere") is None
    True
    """
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def _split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a path."""
    return remote.split(path) if is_url(path) else os.path.split(path)


def _joined(folder: str, name: str) -> str:
    return remote.join(folder, name) if is_url(folder) else os.path.join(folder, name)


def local_of(path: str) -> str:
    """Convert a file: URI to a local path; return any other path unchanged. Spark does not percent-encode its URIs, but
    other programs do.

    >>> local_of("file:///data/store"), local_of("data/store"), local_of("s3://data/store")
    ('/data/store', 'data/store', 's3://data/store')
    """
    name = _FILE_URI.sub("", path, count=1)
    if name != path and "%" in name and not os.path.lexists(name):
        from urllib.parse import unquote  # late: keeps `import rocketc` fast

        return unquote(name) if os.path.lexists(unquote(name)) else name
    return name


def resolve(path: Paths | LogFile | Log, storage: Options | None = None) -> list[Log]:
    """Find the commit log files of a path.

    path  a store root (contains `commitlog/`), a commit log folder (contains files named by 20 digits), a file, a glob,
          or a list of these. A Log or a LogFile that this function returned is accepted too. A URL works like a local
          path, in another file system
    storage  options of the file systems of URLs
    Several folders of one log (RocketMQ's storePathCommitLog with commas) make one log. Files that are named by their
    offset and do not overlap make one log, in whatever folders they are; each other file is a log of its own.
    The other files in the same folder show whether a file is the last of its log, and the size that it should have.
    They do not have to be in the path.
    Raises StoreIOError: path not found, no permission, no commit log in a folder, a compressed file.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "00000000000000000000").write_bytes(b"data")
    >>> [(file.base, file.size, file.last) for log in resolve(folder) for file in log.files]
    [(0, 4, True)]
    """
    if isinstance(path, Log):
        return [path]
    if isinstance(path, LogFile):
        return [Log((path,), ())]
    items: list[StrPath] = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not items:
        raise ValueError("path: an empty list")
    given = [local_of(os.fspath(item)) for item in items]
    for _ in range(_LISTINGS):
        try:
            found = _find(given, storage)
            # A folder is not listed at one moment: if a file seems to be lost, list the folder again.
            return _find(given, storage) if any(log.lost for log in found) else found
        except StoreIOError as error:
            if error.errno != errno.ENOENT or error.filename in map(shown, given):
                raise
            # A listed file was deleted meanwhile: a running store deletes old files.
    return _find(given, storage)


def was_deleted(path: str) -> bool:
    """Whether the owner of a store has deleted a file that was listed before, as the oldest one of its folder.

    path  of a file whose name is a number: of the log, a queue, or the index; False for a URL
    True if it is gone and the first file of its folder is a later one. A file that is missing after others is lost.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for base in (0, 4, 8):
    ...     _ = (folder / f"{base:020d}").write_bytes(b"data")
    >>> first, second, _ = (file.path for file in resolve(folder)[0].files)
    >>> os.unlink(second), was_deleted(second)
    (None, False)
    >>> os.unlink(first), was_deleted(second)
    (None, True)
    """
    folder, name = os.path.split(path)
    if not _NUMBER.fullmatch(name) or is_url(path) or os.path.lexists(path):
        return False
    try:
        names = os.listdir(folder or os.curdir)
    except OSError:
        return False
    return min((int(other) for other in names if _NUMBER.fullmatch(other)), default=-1) > int(name)


def _find(given: list[str], storage: Options | None) -> list[Log]:
    groups = [_expand(path, storage) for path in given]
    together = [file for group in groups for file in group]
    bases = [base_of(file) for file in together]
    if None not in bases and len(set(bases)) == len(bases):
        return [_log(together, storage)]
    return [_log(part, storage) for group in groups for part in _parts(group)]


def _parts(files: list[str]) -> list[list[str]]:
    """Group files: those named by offset together (per folder if an offset occurs twice), each other file alone."""
    named = [file for file in files if base_of(file) is not None]
    parts = [named] if named else []
    if len({base_of(file) for file in named}) < len(named):
        parts = [list(part) for _, part in itertools.groupby(sorted(named), key=lambda file: _split(file)[0])]
    return parts + [[file] for file in files if base_of(file) is None]


def _expand(path: str, storage: Options | None) -> list[str]:
    if is_url(path):
        return _expand_url(path, storage)
    if os.path.isdir(path):
        return _folder(path)
    if os.path.lexists(path):
        return [path]
    if glob.has_magic(path):
        found = sorted(glob.glob(path))
        if found:
            return [file for item in found for file in (_folder(item) if os.path.isdir(item) else [item])]
        raise StoreIOError(errno.ENOENT, "no file matches", path)
    raise StoreIOError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _folder(path: str) -> list[str]:
    inner = os.path.join(path, "commitlog")
    is_root = os.path.isdir(inner)
    folder = inner if is_root else path
    with errors_named(folder):
        names = sorted(os.listdir(folder))
    files = [os.path.join(folder, name) for name in names if base_of(name) is not None]
    if not files and not is_root and os.path.basename(os.path.abspath(path)) != "commitlog":
        raise StoreIOError(errno.ENOENT, _NO_LOG, path)
    return files


def _expand_url(url: str, storage: Options | None) -> list[str]:
    if base_of(url) is not None:
        return [url]
    found = RemotePath(url, storage).matches()
    if found is None:
        return _folder_of_url(url, storage)
    if not found:
        raise StoreIOError(errno.ENOENT, "no file matches", shown(url))
    return [file for one in found for file in ([one] if base_of(one) is not None else _folder_of_url(one, storage))]


def _folder_of_url(url: str, storage: Options | None) -> list[str]:
    """Do _folder() for a URL. Return the URL itself if it is a file."""
    names = RemotePath(url, storage).names()
    if names is None:
        return [url]
    is_root = names.get("commitlog") == remote.FOLDER
    folder = remote.join(url, "commitlog") if is_root else url
    if is_root:
        names = RemotePath(folder, storage).names() or {}
    files = [remote.join(folder, name) for name in sorted(names) if base_of(name) is not None]
    if not files and not is_root and _split(url)[1] != "commitlog":
        raise StoreIOError(errno.ENOENT, _NO_LOG, shown(url))
    return files


def _log(paths: list[str], storage: Options | None) -> Log:
    """Build a log of these files: all named by offset, or a single file that is not."""
    if len(paths) == 1 and base_of(paths[0]) is None:
        size = _size(paths[0], storage)
        _refuse_packed(paths[0], size, storage)
        return Log((LogFile(paths[0], None, size, size, True),), ())
    files = {int(_split(path)[1]): path for path in paths}
    there = _neighbors(files, storage)
    there |= {base: (path, _size(path, storage)) for base, path in files.items() if base not in there}
    order = sorted(there)
    usual = max((size for _, size in there.values()), default=0)
    end = next((base for base in reversed(order) if _has_data(*there[base], storage)), -1)  # the last file with data
    named = sorted(files)
    out: list[LogFile] = []
    missing: list[tuple[int, int]] = []
    lost: list[tuple[int, int]] = []
    for i, base in enumerate(named):
        path, size = there[base]
        limit = size
        next_at = bisect.bisect_right(order, base)
        if next_at < len(order):
            limit = max(size, min(usual, order[next_at] - base))
        if i + 1 < len(named) and base + limit < named[i + 1]:
            missing.append((base + limit, named[i + 1]))
            if order[next_at] == named[i + 1]:
                lost.append(missing[-1])
        out.append(LogFile(path, base, size, limit, base >= end))
        if base >= end:
            break  # the files after it were created ahead and are empty
    folder = shown(_split(out[0].path)[0]) or os.curdir if out else ""
    return Log(tuple(out), tuple(missing), tuple(lost), folder)


def _neighbors(files: dict[int, str], storage: Options | None) -> dict[int, tuple[str, int]]:
    """Return the other files of the same folders that are named by an offset, with their sizes; for URLs also
    `files`."""
    out: dict[int, tuple[str, int]] = {}
    for folder in sorted({_split(path)[0] for path in files.values()}):
        listed = _sizes_of_url(folder, storage) if is_url(folder) else _sizes_in(folder, files)
        for base, found in listed.items():
            if base not in files or files[base] == found[0]:
                out.setdefault(base, found)
    return out


def _sizes_in(folder: str, files: dict[int, str]) -> dict[int, tuple[str, int]]:
    """Return the files of a folder whose name is an offset that is not in `files`."""
    out: dict[int, tuple[str, int]] = {}
    try:
        names = os.listdir(folder or os.curdir)
    except OSError:
        return out  # files can be readable in a folder that can't be listed
    for name in names:
        base = base_of(name)
        if base is None or base in files:
            continue
        path = os.path.join(folder, name)
        try:
            info = os.stat(path)
        except OSError:
            continue  # deleted meanwhile
        if stat.S_ISREG(info.st_mode):
            out[base] = (path, info.st_size)
    return out


def _sizes_of_url(folder: str, storage: Options | None) -> dict[int, tuple[str, int]]:
    """Return all files of a folder that are named by an offset."""
    out: dict[int, tuple[str, int]] = {}
    try:
        names = RemotePath(folder, storage).names() or {}
    except StoreIOError:
        return out
    for name, size in names.items():
        base = base_of(name)
        if base is not None and size != remote.FOLDER:
            url = remote.join(folder, name)
            out[base] = (url, _size(url, storage) if size is None else size)
    return out


def _refuse_packed(path: str, size: int, storage: Options | None) -> None:
    """Raise StoreIOError if a file is compressed, instead of a later error about missing records."""
    head = RemotePath(path, storage).head(size) if is_url(path) else _head(path)
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise StoreIOError(errno.EINVAL, f"compressed with {name}; unpack it first", shown(path))


def _head(path: str) -> bytes:
    try:
        fd = open_regular(path)
        try:
            return os.pread(fd, 6, 0)
        finally:
            os.close(fd)
    except OSError:
        return b""  # reading the file will report the error


def _size(path: str, storage: Options | None) -> int:
    if is_url(path):
        return RemotePath(path, storage).size()
    with errors_named(path):
        return os.stat(path).st_size


def _has_data(path: str, size: int, storage: Options | None) -> bool:
    """Whether a file has a byte other than zero. True if the file can't be read, because it may have data."""
    if is_url(path):
        return RemotePath(path, storage).written_blocks(size)
    try:
        fd = open_regular(path)
        try:
            info = os.fstat(fd)
            if any(os.pread(fd, 8, 0)):
                return True
        finally:
            os.close(fd)
        return _has_data_behind(path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
    except OSError:
        return True


@functools.lru_cache(maxsize=64)
def _has_data_behind(path: str, *_: int) -> bool:
    """Whether a file whose first bytes are zero has other bytes.

    The result is cached as long as the arguments stay the same: a reader that follows a log asks again and again.
    """
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        return any(True for _ in written_blocks(file.fileno()))
