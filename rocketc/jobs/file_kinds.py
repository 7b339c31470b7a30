"""Find out which kind of file a path names, by its position in the store or by --as."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rocketc.derived.queue_files import UNIT_BYTES
from rocketc.files.durable import errors_named
from rocketc.files.paths import base_of
from rocketc.files.remote import is_url, refuse_urls

QUEUE_KINDS = (*UNIT_BYTES, "consumequeue_ext")  # also the names of their folders
KINDS = ("commitlog", *QUEUE_KINDS, "index", "checkpoint", "json")
WORDS = {
    "commitlog": "commit log",
    "consumequeue": "consume queue",
    "batchconsumequeue": "batch consume queue",
    "consumequeue_ext": "consume queue ext file",
    "index": "index file",
    "checkpoint": "checkpoint",
    "json": "table",
    "abort": "abort marker",
    "lock": "lock file",
    "other": "unshown file",
}

_TABLES = ("timermetrics", "transactionMetrics")  # names of tables in config/ without the suffix .json
_KNOWN_TABLES = re.compile(
    "topics|consumerOffset|delayOffset|subscriptionGroup|consumerFilter|topicQueueMapping|consumerOrderInfo"
    "|lmqConsumerOffset|messageRequestMode"
)
_NOT_SHOWN = ("timerwheel", "timerlog", "timercheck", "compaction", "epochFileCheckpoint", "brokerIdentity")
_INDEX_NAME = re.compile(r"[0-9]{17}")
_QUEUE_NAME = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class Files:
    """Files of one kind that belong together, in order: all files of one queue, or a single file.

    kind             one of WORDS
    topic, queue_id  of a queue, if the path contains them
    """

    kind: str
    paths: tuple[str, ...]
    topic: str | None = None
    queue_id: int | None = None

    @property
    def name(self) -> str:
        """The first word of a queue's lines."""
        return f"{self.topic if self.topic is not None else '?'}/{self.queue_id if self.queue_id is not None else '?'}"


def find_files(paths: Sequence[str], kind: str | None, index_slots: int | None = None) -> list[Files] | None:
    """Return the files that paths name, or None if they are commit logs.

    kind         one of KINDS; None: derive it from each path
    index_slots  value of the command line option

    Raises ValueError if the paths are of several kinds, or if index_slots is given without an index file; StoreIOError
    if a folder cannot be read.

    >>> find_files(["/data/store/config/topics.json"], None)
    [Files(kind='json', paths=('/data/store/config/topics.json',), topic=None, queue_id=None)]
    """
    if kind not in (None, "commitlog"):
        refuse_urls(paths, f"--as {kind}")
    paths = [found for path in paths for found in _matches(path)]
    kinds = {path: kind or kind_of(path) or "commitlog" for path in paths}
    if index_slots is not None and "index" not in kinds.values():
        raise ValueError(f"--index-slots does not apply to {WORDS[next(iter(kinds.values()))]}s")
    if set(kinds.values()) == {"commitlog"}:
        return None
    if len(set(kinds.values())) > 1:
        (first, one), (second, other) = [*{kind: (path, kind) for path, kind in kinds.items()}.values()][:2]
        raise ValueError(f"one kind of files at a time: {first} ({WORDS[one]}), {second} ({WORDS[other]})")
    if paths and kinds[paths[0]] in QUEUE_KINDS:
        return [queue for path in paths for queue in _queues(path, kinds[path])]
    return [Files(kinds[path], (file,)) for path in paths for file in _files(path, kinds[path])]


def _matches(path: str) -> list[str]:
    if not os.path.lexists(path) and glob.has_magic(path):
        return sorted(glob.glob(path)) or [path]
    return [path]


def kind_of(path: str) -> str | None:
    """Return one of WORDS for a path's position in the store; None for all other paths, which are read as commit logs.

    >>> kind_of("store/consumequeue/orders/0/00000000000000000000"), kind_of("store/commitlog")
    ('consumequeue', None)
    """
    if is_url(path):
        return None
    *above, name = os.path.abspath(path).split(os.sep)
    parents = [*reversed(above), "", "", ""]
    if os.path.isdir(path):
        return _kind_of_folder(path, name, parents)
    if parents[2] in QUEUE_KINDS and _QUEUE_NAME.fullmatch(parents[0]) and base_of(name) is not None:
        return parents[2]
    if parents[0] == "index" and _INDEX_NAME.fullmatch(name):
        return "index"
    if name in ("checkpoint", "abort", "lock"):
        return name
    if name in _NOT_SHOWN or parents[0] in ("timerlog", "compaction"):
        return "other"
    return "json" if _is_table(name.removesuffix(".bak"), parents[0]) else None


def _is_table(name: str, folder: str) -> bool:
    stem, suffix = os.path.splitext(name)
    return name in _TABLES or (suffix == ".json" and (folder == "config" or _KNOWN_TABLES.fullmatch(stem) is not None))


def _kind_of_folder(path: str, name: str, parents: Sequence[str]) -> str | None:
    if os.path.isdir(os.path.join(path, "commitlog")):
        return None  # a store's root with any name
    if name in QUEUE_KINDS or parents[0] in QUEUE_KINDS:
        return name if name in QUEUE_KINDS else parents[0]
    if parents[1] in QUEUE_KINDS and _QUEUE_NAME.fullmatch(name):
        return parents[1]
    if name in ("timerlog", "compaction"):
        return "other"
    return {"index": "index", "config": "json"}.get(name)


def _queues(path: str, kind: str, deeper: int = 2) -> list[Files]:
    """Return the queues in a kind's folder, a topic's folder or a queue's folder; or a file's queue with this file."""
    if not os.path.isdir(path):
        return [_queue(kind, os.path.dirname(os.path.abspath(path)), (path,))]
    names = _names(path)
    files = tuple(os.path.join(path, name) for name in names if base_of(name) is not None)
    if files:
        return [_queue(kind, os.path.abspath(path), files)]
    folders = [name for name in names if deeper and os.path.isdir(os.path.join(path, name))]
    folders.sort(key=lambda name: (int(name) if _QUEUE_NAME.fullmatch(name) else -1, name))
    return [queue for name in folders for queue in _queues(os.path.join(path, name), kind, deeper - 1)]


def _queue(kind: str, folder: str, files: tuple[str, ...]) -> Files:
    topic, queue_id = os.path.basename(os.path.dirname(folder)), os.path.basename(folder)
    if not _QUEUE_NAME.fullmatch(queue_id):
        return Files(kind, files)
    return Files(kind, files, topic, int(queue_id))


def _files(path: str, kind: str) -> list[str]:
    """Return the files of a kind that a path names; a file may not exist, then its reader reports the error."""
    if kind == "other" or not os.path.isdir(path):
        return [path]
    names = _names(path)
    if kind == "index":
        names = [name for name in names if _INDEX_NAME.fullmatch(name)]
    elif kind == "json":
        there = {name.removesuffix(".bak") for name in names}
        names = sorted(name for name in there if name.endswith(".json") or name in _TABLES)
    else:
        names = [kind]
    return [os.path.join(path, name) for name in names]


def _names(folder: str) -> list[str]:
    with errors_named(folder):
        return sorted(os.listdir(folder))
