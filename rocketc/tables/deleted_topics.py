"""Topics that were deleted, config/deletedTopics.json: what of their messages is left in the log makes no queue again.

RocketMQ forgets: after a crash a topic that was deleted is back, and its old messages take the places of new ones. The
file is rocketc's own; RocketMQ does not look at it.
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
    """For each topic that was deleted, the end of the log at that time: its records before it make no queue.

    root   the store's root; the file is config/deletedTopics.json below it

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
                self._warn(f"{self.path}: {name} was deleted at {end!r}, which is no physical offset; it is left out")

    def _to_write(self) -> dict[str, Any]:
        return {self._KEY: in_java_order(self.ends, 2048)}

    def gone(self) -> DeletedTopicOffsets:
        """What takes records from the log asks it.

        >>> import tempfile
        >>> ("orders", 0) in DeletedTopics(tempfile.mkdtemp()).gone()
        False
        """
        return DeletedTopicOffsets(self.ends)

    def add(self, names: Iterable[str], end: int, first: int = 0) -> None:
        """Topics are deleted now; it is on the disk when it returns.

        end    physical offset behind all records that are left over
        first  of the log: what ends before it is dropped
        Raises StoreIOError, StoreFullError, ValueError for a name that is no UTF-8; then nothing is kept.
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
        """Say anew where each ends; on the disk when it returns.

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
        """The ends of those topics that have records left, in a log that begins at `first`.

        >>> import tempfile
        >>> topics = DeletedTopics(tempfile.mkdtemp())
        >>> topics.add(["orders"], 4096)
        >>> topics.behind(0), topics.behind(4096)
        ({'orders': 4096}, {})
        """
        return {name: end for name, end in self.ends.items() if end > first}

    def believe(self, standing: dict[str, bool], *, all_of_them: bool = False) -> list[str]:
        """Drop topics whose queues' files tell more: RocketMQ has brought them back. Returns those that stay deleted,
        although files of theirs stand: the deletion was not ended.

        standing     ConsumeQueues.standing(ends)
        all_of_them  none of them stays deleted

        >>> import tempfile
        >>> topics = DeletedTopics(tempfile.mkdtemp())
        >>> topics.add(["orders", "audit"], 4096)
        >>> topics.believe({"orders": True, "audit": False}), topics.ends
        (['audit'], {'audit': 4096})
        """
        back = [name for name, goes_on in standing.items() if goes_on or all_of_them]
        for name in back:
            _log.info("%s: topic %s was deleted, and is back: its queues are believed", self.path, name)
            del self.ends[name]
            self._changed = True
        return [name for name in standing if name in self.ends]

    def end_with(self, end: int) -> None:
        """The log ends before what was deleted: what comes there now is new. On the disk when it returns.

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
    deleted: DeletedTopics, standing: dict[str, bool], without_units: set[str], delete: Callable[[dict[str, int]], Any]
) -> list[str]:
    """At an opening: delete the queues that a crash has left of deleted topics; what was done: text.

    without_units  topics whose queues' files lost their units to a power cut, of those that have records left in the
                   log: what came behind the deletion is in the log as well, and tells its numbers

    >>> import tempfile
    >>> end_deletions(DeletedTopics(tempfile.mkdtemp()), {}, set(), print)
    []
    """
    left = deleted.believe(standing)
    left += sorted(without_units.intersection(deleted.ends) - set(left))
    if left:
        delete({name: deleted.ends[name] for name in left})
    return [f"topic {name} was deleted, and its queues were not gone yet; they are now" for name in left]
