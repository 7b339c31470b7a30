"""The folder of an archive: how files are staged, committed and published in it.

    TARGET/data/topic=orders/date=2026-01-31/part-00000000001073741824-0.parquet    messages
    TARGET/_rocketc/statistics/part-00000001.parquet    TARGET/_rocketc/damage/part-00000001.parquet
    TARGET/_rocketc/commits/00000001.json   the list of files of commit 1; 00000001.moving while they are moved
    TARGET/_rocketc/staging/                files that are not committed, or not moved yet

Tools read the folder `data`: everything in it is messages. Archives of an older rocketc have the messages in TARGET
itself, beside `_statistics`, `_damage`, `_commits` and `_staging`; they are continued so.

The rename to `.moving` makes a commit. If a run ends before that rename, the next run deletes the staged files. After
that rename, the files are moved to their places, by the next run if necessary, and a second rename to `.json` publishes
the commit.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

from rocketc.errors import StoreIOError, StoreLockedError
from rocketc.exports.folder import is_partition
from rocketc.exports.sinks import sync, sync_tree
from rocketc.files.durable import errors_named
from rocketc.files.lock_file import StoreLock
from rocketc.files.remote import local_target
from rocketc.read._arrow import Schema

if TYPE_CHECKING:
    import pyarrow

VERSION = 1
_NAME = re.compile(r"(\d{8})\.(json|moving)")


@dataclass(frozen=True)
class Layout:
    """Where the parts of an archive are, below its folder.

    messages  folder of the folders of topics
    """

    messages: str
    commits: str
    staging: str
    statistics: str
    damage: str

    def holds(self, name: str) -> bool:
        """Whether a name may be in the folder of the archive.

        >>> NEW.holds("data"), NEW.holds("topic=orders"), OLD.holds("topic=orders")
        (True, False, True)
        """
        parts = {path.split(os.sep)[0] for path in astuple(self)}
        return name in parts or (not self.messages and is_partition(name))


NEW = Layout(
    messages="data",
    commits=os.path.join("_rocketc", "commits"),
    staging=os.path.join("_rocketc", "staging"),
    statistics=os.path.join("_rocketc", "statistics"),
    damage=os.path.join("_rocketc", "damage"),
)
OLD = Layout("", "_commits", "_staging", "_statistics", "_damage")


def layout_of(path: str) -> Layout:
    """Return the layout of an archive; that of new ones if the folder is not an archive.

    >>> layout_of("nowhere") is NEW
    True
    """
    return OLD if os.path.isdir(os.path.join(path, OLD.commits)) else NEW


@dataclass(frozen=True)
class Commit:
    """One commit of an archive: of a log, or of topics of a cluster.

    source, columns, topics  the arguments of the run
    start, stop  of a log: the range of physical offsets that was read
    anchor       of a log: offset, time, size and CRC of the last message before stop; None: there is no message
    messages     number of messages
    files        [path, path below the staging folder, bytes, rows] of each file, also those of the tables
    queues       of a cluster: topic -> broker -> queue id -> where the next commit begins; see queue_states. None: of
                 a log
    """

    number: int
    source: list[str]
    columns: list[str]
    topics: list[str] | None
    start: int
    stop: int
    anchor: dict[str, Any] | None
    messages: int
    files: list[list[Any]]
    queues: dict[str, dict[str, dict[str, list[int]]]] | None = None
    version: int = VERSION

    @property
    def message_files(self) -> list[list[Any]]:
        """The files with messages."""
        return [file for file in self.files if not file[0].startswith("_")]


class Target:
    """An archive that this process writes. The process holds a lock on it until close().

    Raises StoreIOError; StoreLockedError if another process writes to it; ValueError if the folder is not an archive.
    """

    def __init__(self, path: str) -> None:
        self.path = local_target(path, "an archive")
        with errors_named(path):
            names = os.listdir(path) if os.path.lexists(path) else []
            self.layout = layout_of(self.path)
            self.staging = os.path.join(self.path, self.layout.staging)
            self._commits = os.path.join(self.path, self.layout.commits)
            foreign = sorted(name for name in names if not self.layout.holds(name))
            if foreign or (names and not os.path.isdir(self._commits)):
                raise ValueError(f"{path}: not an archive: it holds {(foreign or sorted(names))[0]!r}")
            os.makedirs(self._commits, exist_ok=True)
        try:
            self._lock = StoreLock(self._commits)
        except StoreLockedError:
            raise StoreLockedError(f"{path}: another process is writing to this archive") from None

    def close(self) -> None:
        self._lock.release()

    def last(self) -> Commit | None:
        """Return the last commit. First finish the work of a killed run: publish its commit, delete staged files."""
        names = sorted(_names(self._commits))
        for name in names:
            if name.endswith(".moving"):
                self.publish(_read(self._commits, name))
        self.clean()
        return _read(self._commits, names[-1].replace(".moving", ".json")) if names else None

    def stage(self) -> str:
        """Create a folder below `staging` for the files of a commit, and return its path."""
        folder = os.path.join(self.staging, uuid.uuid4().hex)
        with errors_named(folder):
            os.makedirs(folder)
        reached("planned")
        return folder

    def place(self, staged: str, size: int, rows: int) -> list[Any]:
        """Return the entry of a file of messages in a Commit.

        staged  its path below `staging`: run, task, and the place among the messages
        """
        run_and_task = 2
        return [os.path.join(self.layout.messages, *staged.split(os.sep)[run_and_task:]), staged, size, rows]

    def stage_table(self, folder: str, table: str, number: int, rows: pyarrow.Table) -> list[Any]:
        """Write the rows of a commit for a table of the archive, and return their entry in the Commit.

        folder  of stage()
        table   where it is in the layout
        number  of the commit
        """
        from pyarrow.parquet import write_table

        name = f"part-{number:08d}.parquet"
        staged = os.path.join(folder, f"{os.path.basename(table)}-{name}")
        write_table(rows, staged)
        place = os.path.relpath(staged, self.staging)
        return [os.path.join(table, name), place, os.stat(staged).st_size, rows.num_rows]

    def commit(self, commit: Commit) -> None:
        """Make the staged files durable and the commit valid. Call publish() next."""
        name = os.path.join(self._commits, f"{commit.number:08d}")
        with errors_named(name):
            sync_tree(self.staging)
            with open(name + ".tmp", "w", encoding="utf-8") as file:
                json.dump(asdict(commit), file, ensure_ascii=False)
            sync(name + ".tmp")
            reached("written")
            os.rename(name + ".tmp", name + ".moving")
            sync(self._commits)

    def publish(self, commit: Commit) -> None:
        """Move the files of a commit to their places, in the order of the log. Continues an interrupted publish."""
        name = os.path.join(self._commits, f"{commit.number:08d}")
        folders = set(self._folders_of(self._commits))
        for path, staged, size, _ in commit.files:
            place = os.path.join(self.path, path)
            reached("moving")
            with errors_named(place):
                folder = os.path.dirname(place)
                if folder not in folders:
                    os.makedirs(folder, exist_ok=True)
                    folders |= {folder, *self._folders_of(folder)}
                try:
                    os.rename(os.path.join(self.staging, staged), place)
                except FileNotFoundError:
                    if not os.path.exists(place) or os.stat(place).st_size != size:
                        raise StoreIOError(
                            errno.ENOENT, f"a file of commit {commit.number} is missing, also in staging", place
                        ) from None
        with errors_named(name):
            for folder in folders:
                sync(folder)
            reached("moved")
            os.rename(name + ".moving", name + ".json")
            sync(self._commits)
            reached("published")
            shutil.rmtree(self.staging, ignore_errors=True)

    def _folders_of(self, path: str) -> Iterator[str]:
        """Yield the folders in which a path of the archive is, up to the archive."""
        below = os.path.relpath(path, self.path)
        while below:
            below = os.path.dirname(below)
            yield os.path.join(self.path, below)

    def clean(self) -> None:
        """Delete staged files that are not committed."""
        shutil.rmtree(self.staging, ignore_errors=True)  # workers of a killed run may still write there
        with errors_named(self._commits):
            for name in os.listdir(self._commits):
                if name.endswith(".tmp"):
                    os.unlink(os.path.join(self._commits, name))


def reached(step: str) -> None:
    """Called between two steps that change the folder, for tests."""


def archived_columns(last: Commit | None, columns: Sequence[str] | None) -> list[str]:
    """Return the columns of an archive: those that a run names, or those that the archive has, or all.

    last     its last commit
    columns  None: the run names none

    >>> last = Commit(1, [], ["topic", "body"], None, 0, 0, None, 0, [])
    >>> archived_columns(last, None), archived_columns(last, ["body"]), len(archived_columns(None, None)) > 20
    (['topic', 'body'], ['body'], True)
    """
    return list(last.columns if columns is None and last is not None else Schema(columns).names)


def commits_of(path: str) -> Iterator[Commit]:
    """Yield the published commits of an archive. Raises StoreIOError if the folder is not an archive."""
    commits = layout_of(path).commits
    folder = os.path.join(path, commits)
    if not os.path.isdir(folder):
        raise StoreIOError(errno.ENOENT, f"not an archive: it does not contain the folder {commits}", path)
    for name in sorted(_names(folder)):
        if name.endswith(".json"):
            yield _read(folder, name)


def _names(folder: str) -> list[str]:
    with errors_named(folder):
        return [name for name in os.listdir(folder) if _NAME.fullmatch(name)]


def _read(folder: str, name: str) -> Commit:
    path = os.path.join(folder, name)
    try:
        with errors_named(path), open(path, encoding="utf-8") as file:
            fields = json.load(file)
        if fields["version"] != VERSION:
            raise ValueError(f"{path}: version {fields['version']}; this rocketc reads version {VERSION}")
        return Commit(**fields)
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: not a commit of an archive: {error}") from None
