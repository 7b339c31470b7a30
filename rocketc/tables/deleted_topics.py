"""Deleted topics, config/deletedTopics.json: their messages that are still in the log are not dispatched again.

RocketMQ does not keep this. After a crash, a deleted topic exists again there, and its old messages take the queue
offsets of new ones. Only rocketc uses this file; RocketMQ ignores it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from rocketc.tables._deleted_topics import DeletedTopicOffsets
from rocketc.tables.config_manager import ConfigManager, path_of
from rocketc.tables.fastjson import in_java_order

_log = logging.getLogger("rocketc.recovery")


class DeletedTopics(ConfigManager):
    """Maps each deleted topic to the end of the log at its deletion. Its earlier records are not put into queues.

    root   folder of the store; the file is config/deletedTopics.json

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> DeletedTopics(root).add(["orders"], 4096)
    >>> DeletedTopics(root).ends
    {'orders': 4096}
    """

    NAME = "deletedTopics.json"
    _KEY = "deletedTopics"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        super().__init__(path_of(root, self.NAME))
        self.ends: dict[str, int] = {}
        for name, end in self._part(self._KEY).items():
            if type(end) is int and end >= 0:
                self.ends[str(name)] = end
            else:
                self._warn(f"{self.path}: {name} was deleted at {end!r}, which is not a physical offset; it is skipped")

    def _to_write(self) -> dict[str, Any]:
        return {self._KEY: in_java_order(self.ends, 2048)}

    def offsets(self) -> DeletedTopicOffsets:
        """Return the table for the dispatcher.

        >>> import tempfile
        >>> ("orders", 0) in DeletedTopics(tempfile.mkdtemp()).offsets()
        False
        """
        return DeletedTopicOffsets(self.ends)

    def add(self, names: Iterable[str], end: int, first: int = 0) -> None:
        """Add topics that are being deleted, durably.

        end    physical offset after all records of the topics
        first  physical offset of the first record of the log; topics that end before it are removed
        Raises StoreIOError, StoreFullError, or ValueError for a name that is not UTF-8; then nothing is changed.
        """
        with self._lock:
            before = self.ends
            self.ends = {**self.behind(first), **dict.fromkeys(names, end)}
            self._changed = True
            try:
                self.persist()
            except BaseException:
                self.ends = before
                self._changed = False
                raise

    def replace(self, ends: dict[str, int]) -> None:
        """Replace the table, durably.

        >>> import tempfile
        >>> root = tempfile.mkdtemp()
        >>> DeletedTopics(root).replace({"orders": 4096})
        >>> DeletedTopics(root).ends
        {'orders': 4096}
        """
        self.ends = dict(ends)
        self._changed = True
        self.persist()

    def behind(self, first: int) -> dict[str, int]:
        """Return the topics with records in a log that begins at `first`.

        >>> import tempfile
        >>> topics = DeletedTopics(tempfile.mkdtemp())
        >>> topics.add(["orders"], 4096)
        >>> topics.behind(0), topics.behind(4096)
        ({'orders': 4096}, {})
        """
        return {name: end for name, end in self.ends.items() if end > first}

    def remove_recreated(self, remaining: dict[str, bool], *, remove_all: bool = False) -> list[str]:
        """Remove topics that RocketMQ has created again, as the files of their queues show. Returns the other topics
        that have files: the deletion of these was interrupted.

        remaining     ConsumeQueues.remaining(ends)
        remove_all  remove all topics that have files

        >>> import tempfile
        >>> topics = DeletedTopics(tempfile.mkdtemp())
        >>> topics.add(["orders", "audit"], 4096)
        >>> topics.remove_recreated({"orders": True, "audit": False}), topics.ends
        (['audit'], {'audit': 4096})
        """
        back = [name for name, goes_on in remaining.items() if goes_on or remove_all]
        for name in back:
            _log.info("%s: the deleted topic %s exists again: its queues are kept", self.path, name)
            del self.ends[name]
            self._changed = True
        return [name for name in remaining if name in self.ends]

    def end_with(self, end: int) -> None:
        """Limit the table to the end of the log, durably: records that are put after it are new.

        >>> import tempfile
        >>> topics = DeletedTopics(tempfile.mkdtemp())
        >>> topics.add(["orders"], 4096)
        >>> topics.end_with(1000)
        >>> topics.ends
        {'orders': 1000}
        """
        if any(old > end for old in self.ends.values()):
            self.ends = {name: min(old, end) for name, old in self.ends.items()}
            self._changed = True
        self.persist()


def end_deletions(
    deleted: DeletedTopics, remaining: dict[str, bool], without_units: set[str], delete: Callable[[dict[str, int]], Any]
) -> list[str]:
    """Delete the queues of deleted topics that a crash has left. Called at an opening; returns actions as text.

    without_units  topics with records in the log whose queues' files lost their units in a power cut. Their queues can
                   be deleted: records after the deletion are in the log too, with their queue offsets

    >>> import tempfile
    >>> end_deletions(DeletedTopics(tempfile.mkdtemp()), {}, set(), print)
    []
    """
    left = deleted.remove_recreated(remaining)
    left += sorted(without_units.intersection(deleted.ends) - set(left))
    if left:
        delete({name: deleted.ends[name] for name in left})
    return [f"topic {name} was deleted, but its queues still existed; they are deleted now" for name in left]
