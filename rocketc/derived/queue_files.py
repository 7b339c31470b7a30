"""The files of consume queues and index in a store's folder: their sizes, which have expired, and deleting these.

Files are only deleted here if the store is not open.
"""

from __future__ import annotations

import os
import stat
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from rocketc._layout import BCQ_UNIT_BYTES, CQ_PRE_BLANK_SIZE, CQ_UNIT_BYTES, INDEX_END_PHY_OFFSET_AT, LMQ_PREFIX
from rocketc.config import ROCKETMQ_SIZES, StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._index_reader import IndexFile
from rocketc.derived._key_index import KeyIndex
from rocketc.errors import RocketcError
from rocketc.files.durable import errors_named, sync_folder
from rocketc.files.regular import open_regular

_OFFSET = struct.Struct(">q")
UNIT_BYTES = {"consumequeue": CQ_UNIT_BYTES, "batchconsumequeue": BCQ_UNIT_BYTES}  # first in a unit: physical offset
QUEUE_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")  # with the extensions of consume queues


@dataclass(frozen=True)
class DerivedFile:
    """A file that is derived from the log. `size` is its length in bytes; it may use less disk space."""

    kind: str  # the folder below the root
    path: str
    size: int


def queues_below(root: str, config: StoreConfig, **how: Any) -> ConsumeQueues:
    """Return the consume queues of a store with these settings, not loaded; how: other arguments of ConsumeQueues.

    >>> import tempfile
    >>> len(queues_below(tempfile.mkdtemp(), StoreConfig(), read_only=True))
    0
    """
    return ConsumeQueues(
        root,
        config.mapped_file_size_consume_queue,
        config.mapper_file_size_batch_consume_queue,
        ext_file_size=config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else 0,
        open_queues=config.max_open_consume_queues,
        **how,
    )


def index_below(root: str, config: StoreConfig, read_only: bool = False) -> KeyIndex:
    """Return the index of a store with these settings, not loaded.

    >>> import tempfile
    >>> index_below(tempfile.mkdtemp(), StoreConfig(), read_only=True).load()
    []
    """
    folder = os.path.join(root, "index")
    return KeyIndex(folder, config.max_hash_slot_num, config.max_index_num, read_only=read_only)


def files_before(
    root: str | os.PathLike[str], phy_offset: int, kinds: tuple[str, ...] = (*UNIT_BYTES, "index")
) -> Iterator[DerivedFile]:
    """Yield the files in which all records are before a physical offset, in the order in which RocketMQ deletes them.

    kinds  folders of the store to read
    The last file of a queue and of the index is not included, and neither are files that can't be read. Files of
    `consumequeue_ext` depend on units, not on the log, and are not read.

    >>> import tempfile
    >>> list(files_before(tempfile.mkdtemp(), 1 << 30))
    []
    """
    root = os.fspath(root)
    for kind, unit in UNIT_BYTES.items():
        for folder in _queue_folders(root, kind) if kind in kinds else ():
            for path, size in _files(folder)[:-1]:
                at = _last(path, size, unit)
                if at is None or at >= phy_offset:
                    break
                yield DerivedFile(kind, path, size)
    for path, size in _files(os.path.join(root, "index"))[:-1] if "index" in kinds else ():
        at = _number(path, INDEX_END_PHY_OFFSET_AT)
        if at is None or at >= phy_offset:
            break
        yield DerivedFile("index", path, size)


class QueuesOnDisk:
    """The consume queues of a store that no process has open, for a Cleaner.

    >>> import tempfile
    >>> QueuesOnDisk(tempfile.mkdtemp()).delete_expired(1 << 30, lambda: None)
    {}
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root)

    def delete_expired(self, min_phy: int, pause: Callable[[], object]) -> dict[str, int]:
        """Delete the files in which all records are before an offset, durably. Raises StoreIOError.

        pause  called after each folder; a true result stops the deletion
        Returns {folder: number of deleted files}.
        """
        found: dict[str, int] = {}
        files = list(files_before(self._root, min_phy, tuple(UNIT_BYTES)))
        for folder, here in groupby(files, lambda one: os.path.dirname(one.path)):
            found[folder] = _delete(folder, [one.path for one in here])
            if pause():
                break
        return found


class IndexOnDisk:
    """The index of a store that no process has open, for a Cleaner.

    >>> import tempfile
    >>> IndexOnDisk(tempfile.mkdtemp()).delete_expired(1 << 30)
    0
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root)

    def delete_expired(self, min_phy: int) -> int:
        """Delete the files in which all records are before an offset, durably; return their number. StoreIOError."""
        paths = [one.path for one in files_before(self._root, min_phy, ("index",))]
        return _delete(os.path.join(self._root, "index"), paths)


def _delete(folder: str, paths: list[str]) -> int:
    for path in paths:
        with errors_named(path):
            os.unlink(path)
    if paths:
        sync_folder(folder)
    return len(paths)


def derived_bytes(root: str | os.PathLike[str]) -> int:
    """Return the total length of all files of consume queues and index.

    >>> import tempfile
    >>> derived_bytes(tempfile.mkdtemp())
    0
    """
    return sum(size for _, size in files_below(root))


def files_below(root: str | os.PathLike[str], *kinds: str) -> Iterator[tuple[str, int]]:
    """Yield (path, bytes) of the files of queues and index, or of some kinds of files.

    kinds  folders below the root

    >>> import tempfile
    >>> list(files_below(tempfile.mkdtemp()))
    []
    """
    root = os.fspath(root)
    for kind in kinds or (*QUEUE_FOLDERS, "index"):
        for folder in [os.path.join(root, kind)] if kind == "index" else _queue_folders(root, kind):
            yield from _files(folder)


def _queue_folders(root: str, kind: str) -> Iterator[str]:
    """Yield the queue folders of a kind. Symbolic links are skipped: callers may delete the files that are found."""
    top = os.path.join(root, kind)
    for topic in sorted(_names(top)):
        inner = os.path.join(top, topic)
        for queue_id in sorted(filter(str.isdecimal, [] if os.path.islink(inner) else _names(inner)), key=int):
            if not os.path.islink(path := os.path.join(inner, queue_id)):
                yield path


def _files(folder: str) -> list[tuple[str, int]]:
    """Return (path, bytes) of the files whose names are numbers, by name."""
    found = []
    for name in sorted(filter(str.isdecimal, _names(folder))):
        path = os.path.join(folder, name)
        try:
            info = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode):
            found.append((path, info.st_size))
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _last(path: str, size: int, unit: int) -> int | None:
    """Return the physical offset of a file's last unit with a record; -1 if there is none, None if the file is cut."""
    for pos in range(size - unit, -1, -unit):
        at = _number(path, pos)
        if at != 0 or _number(path, pos + 4) != CQ_PRE_BLANK_SIZE:
            return at
    return None if size < unit else -1


def _number(path: str, pos: int) -> int | None:
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            return int(_OFFSET.unpack(os.pread(file.fileno(), _OFFSET.size, pos))[0])
    except (OSError, struct.error):
        return None


_LEAST_EXT, _MOST = 64, (1 << 31) - 1  # bytes of a file of extensions, of any file


def detect_file_sizes(root: str, config: StoreConfig, most: int | None = None) -> StoreConfig:
    """Return settings with the sizes of most existing files of queues and index; others as presume_sizes() finds them.

    most  the number of queue files to look at; None: all

    >>> import tempfile
    >>> detect_file_sizes(tempfile.mkdtemp(), StoreConfig()).max_index_num
    400000
    """
    found: dict[str, Counter[int]] = {kind: Counter() for kind in QUEUE_FOLDERS}
    for kind, sizes in found.items():
        unit = UNIT_BYTES.get(kind, 1)
        least = UNIT_BYTES.get(kind, _LEAST_EXT)
        files = islice(files_below(root, kind), most)
        sizes.update(size for _, size in files if least <= size <= _MOST and size % unit == 0)
    queue, ext, batch = (
        _most_common(found[kind]) for kind in ("consumequeue", "consumequeue_ext", "batchconsumequeue")
    )
    if queue:
        config = config.replace(mapped_file_size_consume_queue=queue)
    if batch:
        config = config.replace(mapper_file_size_batch_consume_queue=batch)
    if ext:
        config = config.replace(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=ext)
    if any(name.startswith(LMQ_PREFIX) for name in _names(os.path.join(root, "consumequeue"))):
        config = config.replace(enable_lmq=True, enable_multi_dispatch=True)
    shapes: Counter[tuple[int, int]] = Counter()
    for path, _ in files_below(root, "index"):
        with suppress(RocketcError), IndexFile(path) as file:
            if file.slots and file.capacity:
                shapes[file.slots, file.capacity + 1] += 1  # including unit 0, which is never used
    if shapes:
        (slots, units), _ = shapes.most_common(1)[0]
        config = config.replace(max_hash_slot_num=slots, max_index_num=units)
    return presume_sizes(root, config)


def presume_sizes(root: str, config: StoreConfig, named: Collection[str] = ()) -> StoreConfig:
    """Return settings with RocketMQ's size for each kind of file that is missing from a store with RocketMQ's sizes.

    So a broker can open the store again with its own settings, also after a rebuild of all queues and the index.
    named  fields that are not changed; neither are those that do not have the default

    >>> import pathlib, tempfile
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> (root / "index").mkdir(), (root / "consumequeue/orders/0").mkdir(parents=True)
    (None, None)
    >>> _ = (root / "consumequeue/orders/0/00000000000000000000").write_bytes(bytes(6_000_000))
    >>> presume_sizes(str(root), StoreConfig()).max_index_num
    20000000
    """
    small = StoreConfig()
    queue, batch = (_some_size(os.path.join(root, kind), 2) for kind in UNIT_BYTES)
    log = next(filter(None, (_some_size(folder, 0) for folder in config.log_paths(root))), 0)
    index = _some_size(os.path.join(root, "index"), 0)
    if queue in (small.mapped_file_size_consume_queue, ROCKETMQ_SIZES["mapped_file_size_consume_queue"]):
        theirs = queue == ROCKETMQ_SIZES["mapped_file_size_consume_queue"]
    else:  # queues of other sizes, or none: their writer is known by the log
        theirs = log == ROCKETMQ_SIZES["mapped_file_size_commit_log"]
        theirs = theirs or (not queue and log not in (0, small.mapped_file_size_commit_log))
    if not theirs:
        return config
    missing = {
        "mapped_file_size_consume_queue": not queue,
        "mapper_file_size_batch_consume_queue": not batch,
        "max_hash_slot_num": not index,
        "max_index_num": not index,
    }
    sizes: dict[str, Any] = {
        name: ROCKETMQ_SIZES[name]
        for name, is_missing in missing.items()
        if is_missing and name not in named and getattr(config, name) == getattr(small, name)
    }
    return config.replace(**sizes)


def _some_size(folder: str, depth: int) -> int:
    """Return the size of some file whose name is a number, `depth` folders below a folder; 0 if there is none."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if depth:
                size = _some_size(entry.path, depth - 1) if entry.is_dir() else 0
            else:
                size = entry.stat().st_size if entry.name.isdecimal() and entry.is_file() else 0
            if size:
                return size
    return 0


def _most_common(sizes: Counter[int]) -> int:
    """Return the most common size; 0 if there is none."""
    return sizes.most_common(1)[0][0] if sizes else 0
