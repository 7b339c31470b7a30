"""The topics of a store, and names that are not among them, for messages about typing errors."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress

from rocketc.errors import ConfigTableError, StoreIOError
from rocketc.files.paths import base_of, local_of
from rocketc.files.remote import Options, RemotePath, is_url
from rocketc.files.remote import join as join_url
from rocketc.files.remote import split as split_url
from rocketc.read.regex import limited
from rocketc.tables.config_manager import path_of
from rocketc.tables.table_file import read_table

Topic = str | re.Pattern[str]

_QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")
_LOG = "commitlog"
_LIKE = 0.6  # least similarity of a name that is suggested


def known_topics(paths: Iterable[str | os.PathLike[str]], storage: Options | None = None) -> set[str] | None:
    """Return the names of all topics in stores; None if a path is not a part of a store with consume queues.

    paths    store roots, commit log folders or log files
    storage  options of the file systems of URLs
    The names are those of the folders of the queues, and those in config/topics.json.

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 20) as store:
    ...     _ = store.put("Orders", b"hi")
    >>> sorted(known_topics([root]))
    ['Orders']
    """
    found: set[str] = set()
    for one in paths:
        path = os.fspath(one)
        queues = _topics_of_url(path, storage) if is_url(path) else _topics_of(_root_of(local_of(path)))
        if not queues:
            return None
        found |= queues
    return found


def _root_of(path: str) -> str:
    """Return the root of the store that a root, a folder `commitlog` or a log file belongs to."""
    path = os.path.abspath(path)
    if base_of(path) is not None:
        path = os.path.dirname(path)
    return os.path.dirname(path) if os.path.basename(path) == _LOG else path


def _topics_of(root: str) -> set[str]:
    found: set[str] = set()
    for kind in _QUEUE_FOLDERS:
        with suppress(OSError):
            found.update(os.listdir(os.path.join(root, kind)))
    if found:
        with suppress(StoreIOError, ConfigTableError):
            table = read_table(path_of(root, "topics.json")).data.get("topicConfigTable")
            found.update(name for name in table or () if isinstance(name, str))
    return found


def _topics_of_url(url: str, storage: Options | None) -> set[str]:
    root = split_url(url)[0] if base_of(url) is not None else url
    if split_url(root)[1] == _LOG:
        root = split_url(root)[0]
    found: set[str] = set()
    for kind in _QUEUE_FOLDERS:
        with suppress(StoreIOError):
            found.update(RemotePath(join_url(root, kind), storage).names() or ())
    return found


def not_among(asked: Iterable[Topic], known: Collection[str]) -> list[Topic]:
    """Return the names that are not known, and the patterns that match no known name.

    >>> not_among(["Order", "Bills", re.compile("O.*")], {"Orders", "Bills"})
    ['Order']
    """
    return [topic for topic in asked if not any(_is(topic, name) for name in known)]


def _is(topic: Topic, name: str) -> bool:
    return name == topic if isinstance(topic, str) else limited(topic.fullmatch, name) is not None


def missing_text(missing: Iterable[Topic], known: Collection[str], where: str = "this store") -> str:
    """Return one line about topics that do not exist, with the most similar names that do.

    >>> missing_text(["Order"], {"Orders", "Bills"}), missing_text(["x", re.compile("y.*")], ())
    ('no topic Order in this store; did you mean Orders?', 'no topics x, /y.*/ in this store')
    """
    names = [topic if isinstance(topic, str) else f"/{topic.pattern}/" for topic in missing]
    near = dict.fromkeys(one for one in (_nearest(name, known) for name in names) if one is not None)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    if len(names) == 1:
        return f"no topic {names[0]} in {where}{hint}"
    return f"no topics {', '.join(names)} in {where}{hint}"


def _nearest(name: str, known: Collection[str]) -> str | None:
    import difflib  # its import is slow

    by_lower = {one.lower(): one for one in sorted(known, reverse=True)}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, cutoff=_LIKE)
    return by_lower[found[0]] if found else None
