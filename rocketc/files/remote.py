"""Remote files: find the files of a URL with fsspec (extra `remote`), read ranges of them, hide secrets of URLs."""

from __future__ import annotations

import errno
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from rocketc.errors import StoreIOError

Options = Mapping[str, Any]

FOLDER = -1  # in place of a size
PIECE_BYTES = 1 << 20  # unit of fetches
RUN_PIECES = 8  # most pieces in one fetch of a sequential read
KEEP_PIECES = 4  # pieces kept before the last request: a reader looks ahead and returns

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]+://")
_LINK = re.compile(r"(?P<before>(?:[A-Za-z0-9+.-]+::)*)(?P<link>[A-Za-z0-9+.-]+://.*?)(?P<after>(?:::.*)?)", re.DOTALL)
_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s]*)(?=@)")
_QUERY = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\")]*")
_SHORTEST_SECRET = 4  # a shorter text occurs in many other words
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)
_PROBE_BYTES = 4096
_PROBES_FROM = 1 << 20
_SHORT_BYTES = 16 << 20


def is_url(path: str) -> bool:
    """Whether a path is the URL of a file system, including chained ones: simplecache::s3://bucket/store.

    >>> is_url("s3://bucket/store"), is_url("simplecache::s3://bucket/store"), is_url("/data/store")
    (True, True, False)
    """
    return _URL.match(path) is not None


def shown(url: str) -> str:
    """Return a path that is safe to print: a URL without its password and without its query string.

    >>> shown("ftp://me:secret@host/store"), shown("https://host/file?signature=secret"), shown("/data/store")
    ('ftp://me:***@host/store', 'https://host/file?***', '/data/store')
    """
    return _QUERY.sub(r"\1?***", _PASSWORD.sub(r"\1:***", url)) if is_url(url) else url


def refuse_urls(paths: Iterable[str], who: str) -> None:
    """Raise StoreIOError for a URL, on behalf of a function that reads local files only.

    >>> refuse_urls(["/data/store"], "info")
    """
    for path in paths:
        if is_url(path):
            raise StoreIOError(errno.ENOTSUP, f"it is a URL; {who} takes local paths only; copy it first", shown(path))


def local_target(path: str | os.PathLike[str], writer: str) -> str:
    """Return the absolute path of a file or folder to be written. Raises StoreIOError for a URL.

    writer  name of the function that writes, for the error

    >>> local_target("/data/lake/", "export()")
    '/data/lake'
    """
    if is_url(name := os.fspath(path)):
        why = f"it is a URL; {writer} writes local files only; write to a local path, and copy the result to the URL"
        raise StoreIOError(errno.ENOTSUP, why, shown(name))
    return os.path.abspath(name)


def join(url: str, name: str) -> str:
    """Return the URL of an entry of a folder.

    >>> join("s3://bucket/store/", "commitlog"), join("zip://commitlog::s3://bucket/store.zip", "0")
    ('s3://bucket/store/commitlog', 'zip://commitlog/0::s3://bucket/store.zip')
    """
    before, link, after = _link(url)
    scheme, _, path = link.partition("://")
    path = path.rstrip("/") + "/" if path.strip("/") else path
    return f"{before}{scheme}://{path}{name}{after}"


def split(url: str) -> tuple[str, str]:
    """Return the URL of the parent folder, and the name in it.

    >>> split("s3://bucket/store/commitlog"), split("zip://commitlog/0::s3://bucket/store.zip")
    (('s3://bucket/store', 'commitlog'), ('zip://commitlog::s3://bucket/store.zip', '0'))
    """
    before, link, after = _link(url)
    scheme, _, path = link.partition("://")
    folder, slash, name = path.rstrip("/").rpartition("/")
    return f"{before}{scheme}://{folder or slash}{after}", name


def _link(url: str) -> tuple[str, str, str]:
    """Split a chain of file systems into the link with the path, the text before it and the text after it."""
    found = _LINK.fullmatch(url)
    if found is None:
        raise ValueError(f"{shown(url)}: not a URL")
    return found["before"], found["link"], found["after"]


class StorageOptions(dict[str, Any]):
    """Options of a file system. The repr shows their names only.

    >>> StorageOptions(key="AKIA", secret="swordfish")
    {'key': '***', 'secret': '***'}
    """

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, "***"))


class RemotePath:
    """A file or folder at a URL.

    options  of its file system, as fsspec names them: for s3 key, secret, ...; they are never printed
    Every method raises StoreIOError with the URL and the message of the file system, without any secret. The
    constructor raises it if fsspec, or a package that it needs for this kind of URL, is not installed.
    """

    def __init__(self, url: str, options: Options | None = None) -> None:
        self.url = url
        self._options = dict(options or {})
        try:
            from fsspec.core import url_to_fs  # late, and only here: an extra
        except ImportError:
            raise StoreIOError(
                errno.EPROTONOSUPPORT, "fsspec is needed to read a URL: pip install 'rocketc[remote]'", shown(url)
            ) from None
        with self._wrap_errors():
            self._system, self._path = url_to_fs(url, **self._options)
        self._is_http = "http" in self._protocols
        self._seeks = "hdfs" in self._protocols  # before fsspec 2026.7.0 the cat_file() of hdfs returns whole files

    @property
    def _protocols(self) -> tuple[str, ...]:
        protocol = self._system.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    def names(self) -> dict[str, int | None] | None:
        """List this folder: names of entries with the file size, FOLDER for a folder, None for an unknown size. Return
        None if this is a file.

        >>> RemotePath("memory://nowhere").names()
        Traceback (most recent call last):
            ...
        rocketc.errors.StoreIOError: [Errno 2] No such file or directory: 'memory://nowhere'
        """
        with self._wrap_errors():
            self._system.invalidate_cache()  # a store grows
            if self._is_http and not self._path.endswith("/"):  # listing it would fetch a file as a whole
                kind = self._system.info(self._path).get("mimetype")
                if kind != "text/html":
                    return None
            found = self._system.ls(self._path, detail=True)
            own = self._path.rstrip("/")
            if len(found) == 1 and found[0]["name"].rstrip("/") == own and found[0]["type"] == "file":
                return None
            return {
                split("any://" + entry["name"])[1]: FOLDER if entry["type"] == "directory" else entry["size"]
                for entry in found
                if entry["name"].rstrip("/") != own  # object stores keep empty objects in place of folders
            }

    def matches(self) -> list[str] | None:
        """Return the URLs that this pattern matches, in order; None if this URL is not a pattern."""
        magic = "*[" if self._is_http else "*[?"
        if not any(char in self._path for char in magic):
            return None
        with self._wrap_errors():
            self._system.invalidate_cache()
            before, link, after = _link(self.url)
            scheme, _, rest = link.partition("://")
            host, _, path = rest.partition("/")
            is_apart = path.strip("/") == self._path.strip("/")  # the file system's own paths lack the host
            root = f"{scheme}://{host}/" if is_apart else f"{scheme}://"
            found = sorted(self._system.glob(self._path))
            return [before + (one if is_url(one) else root + one.lstrip("/")) + after for one in found]

    def size(self) -> int:
        """Return the size of this file in bytes."""
        with self._wrap_errors():
            info = self._system.info(self._path)
        if info.get("type") == "directory":
            raise StoreIOError(errno.EISDIR, os.strerror(errno.EISDIR), shown(self.url))
        if info.get("size") is None:
            raise StoreIOError(errno.ENOTSUP, "the server does not report its size; copy it first", shown(self.url))
        return int(info["size"])

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop) of this file. Raises StoreIOError if any are missing."""
        with self._wrap_errors(f"at byte {start}"):
            data = b"" if self._seeks else self._system.cat_file(self._path, start=start, end=stop)
            if len(data) > stop - start and not self._is_http:
                self._seeks = True
            if self._seeks:
                with self._system.open(self._path, "rb") as file:
                    file.seek(start)
                    data = file.read(stop - start)
        if len(data) != stop - start:
            what = "the file is shorter than before" if len(data) < stop - start else _NO_RANGES
            text = f"at byte {start}: {len(data)} bytes instead of {stop - start}; {what}"
            raise StoreIOError(errno.EIO, text, shown(self.url))
        return bytes(data)

    def head(self, size: int) -> bytes:
        """Return the first bytes of a file of this size, without reading more if the server does not support ranges."""
        stop = min(size, _PROBE_BYTES)
        if not self._is_http or stop == size:
            return self.read(0, stop)
        with self._wrap_errors(), self._system.open(self._path, size=size, cache_type="none") as file:
            try:
                file.seek(1)  # for a read from position 0, fsspec accepts a reply without ranges
                file.read(1)
            except ValueError:
                raise OSError(errno.ENOTSUP, _NO_RANGES) from None
        return self.read(0, stop)

    def written_blocks(self, size: int) -> bool:
        """Whether a file of this size has a byte other than zero, as far as probes show.

        The probes read the first bytes, the last bytes, and some at 1 MiB, 2 MiB, 4 MiB and so on; a short file is read
        completely. A broker creates files of 1 GiB ahead and writes each from start to end. So data is missed only if
        the beginning of a last file was zeroed, and that beginning is at least half of the written bytes.
        """
        if size == 0 or not _is_zero(self.head(size)):
            return size > 0
        if size <= _SHORT_BYTES:
            probes = [(0, size)]
        else:
            places = [_PROBES_FROM << n for n in range(43) if _PROBES_FROM << n < size - _PROBE_BYTES]
            probes = [(at, at + _PROBE_BYTES) for at in [*places, size - _PROBE_BYTES]]
        return not all(_is_zero(self.read(start, stop)) for start, stop in probes)

    @contextmanager
    def _wrap_errors(self, where: str = "") -> Iterator[None]:
        """Convert any exception of a file system to a StoreIOError without secrets."""
        try:
            yield
        except StoreIOError:
            raise
        except Exception as error:
            number, text = _reason(error)
            text = f"{where}: {text}" if where else text
            raise StoreIOError(number, self._without_secrets(text), shown(self.url)) from None

    def _without_secrets(self, text: str) -> str:
        from urllib.parse import unquote  # late: keeps `import rocketc` fast

        secrets = {secret for found in _PASSWORD.finditer(self.url) for secret in (found[2], unquote(found[2]))}
        for secret in sorted(secrets | set(_texts(self._options)), key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return _QUERY.sub(r"\1?***", _PASSWORD.sub(r"\1:***", text))


_NO_RANGES = "the server sends whole files only, no ranges of bytes; copy it first"


def _is_zero(data: bytes) -> bool:
    return data == bytes(len(data))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in the values of options, at any depth."""
    if isinstance(value, (str, bytes)):
        yield value if isinstance(value, str) else value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from _texts(one)


def _reason(error: Exception) -> tuple[int, str]:
    """Return the errno and the message for an exception of a file system."""
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # over HTTP every error is a missing file; the cause has the details
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return errno.ENOENT, os.strerror(errno.ENOENT)
    if isinstance(error, PermissionError) or status in (401, 403):
        return errno.EACCES, f"{os.strerror(errno.EACCES)} ({_words(error)})"
    if isinstance(error, ImportError) or (isinstance(error, ValueError) and "rotocol not known" in str(error)):
        return errno.EPROTONOSUPPORT, f"fsspec can't read such a URL here: {error}"
    if isinstance(error, TimeoutError):
        return errno.ETIMEDOUT, _words(error)
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    return number, _words(error)


def _words(error: Exception) -> str:
    text = error.strerror if type(error) is OSError and error.strerror else str(error)
    text = text.strip().partition("\n")[0]
    return text if type(error) is OSError else f"{type(error).__name__}: {text}".rstrip(": ")


class RemoteFile:
    """A remote file as memory that is filled on request. Memory before the current position is released.

    place  the file
    size   its size in bytes
    stop   nothing is fetched ahead from this byte on
    piece  size of a piece in bytes
    The address range has the file's size, but only fetched bytes use memory. Zeros of the file are fetched once, and do
    not use memory either.
    """

    def __init__(self, place: RemotePath, size: int, stop: int | None = None, piece: int = 0) -> None:
        self._place = place
        self._size = size
        self._piece = piece or PIECE_BYTES
        self._count = -(-size // self._piece)
        self._wanted = self._count if stop is None else min(-(-max(stop, 0) // self._piece), self._count)
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
            self._memory = mmap.mmap(-1, max(size, 1), flags=flags)
        except (OSError, OverflowError, ValueError):
            text = f"no address space for a file of {size} bytes, the size that the server reports"
            raise StoreIOError(errno.ENOMEM, text, shown(place.url)) from None
        self._there: set[int] = set()  # pieces whose bytes are in memory
        self._zero: set[int] = set()  # pieces of zeros: memory that was not written to is zero
        self._low = 0  # no piece before this byte is in memory
        self._next = -1  # the piece after the last fetched run
        self._run = 1  # pieces of the next run
        self._pool: ThreadPoolExecutor | None = None
        self._coming: tuple[int, int, Future[bytes]] | None = None  # the run that is being fetched in the background

    @property
    def view(self) -> memoryview:
        """The bytes of the whole file; bytes that were not fetched are zero."""
        return memoryview(self._memory)[: self._size]

    def fetch(self, start: int, stop: int) -> int:
        """Fetch the bytes [start, stop), and return up to where bytes are present. Bytes before start may be
        released."""
        self._give_back(start)
        at, behind = start // self._piece, -(-stop // self._piece)
        while at < self._count and (at < behind or self._is_there(at)):
            if not self._is_there(at):
                self._fetch_run(at, behind)
            at += 1
        return min(at * self._piece, self._size)

    def _is_there(self, piece: int) -> bool:
        return piece in self._there or piece in self._zero

    def _fetch_run(self, first: int, behind: int) -> None:
        """Fetch pieces from `first` to at least `behind`; fetch more if the file is read sequentially."""
        self._run = min(2 * self._run, RUN_PIECES) if first == self._next else 1
        if self._coming is not None and self._coming[0] == first:
            _, end, coming = self._coming
            self._coming = None
            data = coming.result()
        else:
            self._coming = None
            end = min(max(min(behind, first + RUN_PIECES), min(first + self._run, self._wanted)), self._count)
            end = next((piece for piece in range(first + 1, end) if self._is_there(piece)), end)
            data = self._read(first, end)
        self._put(first, end, data)
        self._next = end
        if self._run > 1 and end < self._wanted and not self._is_there(end):
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "rocketc-fetch")
            ahead = min(end + RUN_PIECES, self._wanted)
            self._coming = end, ahead, self._pool.submit(self._read, end, ahead)

    def _read(self, first: int, end: int) -> bytes:
        return self._place.read(first * self._piece, min(end * self._piece, self._size))

    def _put(self, first: int, end: int, data: bytes) -> None:
        self._low = min(self._low, first * self._piece)
        for piece in range(first, end):
            at = (piece - first) * self._piece
            part = data[at : at + self._piece]
            if _is_zero(part):
                self._zero.add(piece)
                continue
            start = piece * self._piece
            self._memory[start : start + len(part)] = part
            self._there.add(piece)

    def _give_back(self, start: int) -> None:
        """Release whole pages far before start."""
        low = (start - KEEP_PIECES * self._piece) // mmap.PAGESIZE * mmap.PAGESIZE
        if low <= self._low:
            return
        begin = self._low // mmap.PAGESIZE * mmap.PAGESIZE
        self._memory.madvise(mmap.MADV_DONTNEED, begin, low - begin)
        self._there = {piece for piece in self._there if piece * self._piece >= low}
        self._low = low
