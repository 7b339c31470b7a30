"""The offsets of consumer groups: what they committed, what they pulled, and resets that wait for their next pull.

Source: RocketMQ ConsumerOffsetManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from rocketc.broker.table_writer import Done, TableWriter
from rocketc.tables.offsets import ConsumerOffsets

_log = logging.getLogger("rocketc.broker")

_Key = tuple[str, str, int]  # topic, group, queue id


class ConsumerOffsetManager:
    """The offsets of all groups. Any thread may use it; no call but persist() and drop() waits for the disk.

    table  the committed offsets, config/consumerOffset.json; persist() writes it

    >>> import tempfile
    >>> offsets = ConsumerOffsetManager(ConsumerOffsets(tempfile.mkdtemp()))
    >>> offsets.commit("audit", "orders", 0, 12)
    >>> offsets.query("audit", "orders", 0), offsets.query("audit", "orders", 1)
    (12, -1)
    """

    def __init__(self, table: ConsumerOffsets) -> None:
        self.table = table
        self._pulled: dict[_Key, int] = {}
        self.resets: dict[_Key, int] = {}  # they wait for a pull; to look at
        self._lock = threading.Lock()
        self._pauses = 0
        # Changes by topic and group, then by queue id, while offsets must not move; None: removed
        self._held: dict[tuple[str, str], dict[int, int | None]] = {}
        self._dropped: list[Container[Any]] = []  # what the store deletes meanwhile
        self._at_end_of_pause: list[Callable[[], object]] = []

    # committed offsets

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the next offset of a group in a queue, also to a smaller one. Raises ValueError as the table does."""
        with self._lock:
            before = self._committed(topic, group, queue_id)
            self._set(topic, group, queue_id, offset)
        if offset < before:
            _log.info("%s@%s, queue %d: the offset goes back from %d to %d", topic, group, queue_id, before, offset)

    def replace(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the next offsets of a group in the queues of a topic. What it has in other queues is removed."""
        with self._lock:
            for queue_id in self._queues(topic, group).keys() - offsets.keys():
                self._set(topic, group, queue_id, None)
            self._set_all(topic, group, offsets)

    def _set_all(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        if self._pauses:
            self._held.setdefault((topic, group), {}).update(offsets)
        else:
            self.table.commit_all(topic, group, offsets)

    def _set(self, topic: str, group: str, queue_id: int, offset: int | None) -> None:
        if self._pauses:
            self._held.setdefault((topic, group), {})[queue_id] = offset
        elif offset is None:
            self.table.remove(topic, group, queue_id)
        else:
            self.table.commit(topic, group, queue_id, offset)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset: of a reset that waits, or else the committed one; -1 if there is none."""
        with self._lock:
            reset = self.resets.get((topic, group, queue_id))
            return self._committed(topic, group, queue_id) if reset is None else reset

    def query_all(self, group: str, topic: str, queue_ids: Iterable[int]) -> dict[int, int]:
        """Return what query() does for each of these queues, by queue id."""
        with self._lock:
            found, resets = self._queues(topic, group), self.resets
            if not resets:
                return {queue_id: found.get(queue_id, -1) for queue_id in queue_ids}
            return {one: resets.get((topic, group, one), found.get(one, -1)) for one in queue_ids}

    def _committed(self, topic: str, group: str, queue_id: int) -> int:
        held = self._held.get((topic, group)) if self._held else None
        if held is None or queue_id not in held:
            return self.table.get(topic, group, queue_id)
        offset = held[queue_id]
        return -1 if offset is None else offset

    def count(self, group: str, topic: str) -> int:
        """Return how many queues of a topic have an offset of the group."""
        return len(self.queues(topic, group))

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """Return the next offsets of a group in a topic, by queue id."""
        with self._lock:
            return self._queues(topic, group)

    def _queues(self, topic: str, group: str) -> dict[int, int]:
        found = self.table.queues(topic, group)
        for queue_id, offset in self._held.get((topic, group), {}).items():
            if offset is None or self._is_dropped(topic, queue_id):
                found.pop(queue_id, None)
            else:
                found[queue_id] = offset
        return found

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has committed an offset."""
        with self._lock:
            held = [topic for topic, name in self._held if name == group]
            return self._with_held(self.table.topics_of(group), held, lambda topic: (topic, group))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed an offset in a topic."""
        with self._lock:
            held = [group for name, group in self._held if name == topic]
            return self._with_held(self.table.groups_of(topic), held, lambda group: (topic, group))

    def _with_held(self, known: list[str], held: list[str], pair: Callable[[str], tuple[str, str]]) -> list[str]:
        changed = set(held)  # the others have offsets
        return [name for name in dict.fromkeys([*known, *held]) if name not in changed or self._queues(*pair(name))]

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield (topic, group, queue id, next offset) of all offsets."""
        with self._lock:
            found = [one for one in self.table.items() if one[:2] not in self._held]
            for topic, group in self._held:
                found += [(topic, group, *one) for one in self._queues(topic, group).items()]
        yield from found

    # pulled offsets

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note the offset after a pull; it is kept only in memory, for statistics."""
        with self._lock:
            self._pulled[topic, group, queue_id] = offset

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the latest pull; -1 if there was none."""
        return self._pulled.get((topic, group, queue_id), -1)

    def clear_pull_offsets(self, group: str, topic: str) -> None:
        """Forget the pulled offsets of a group in a topic."""
        with self._lock:
            for key in [key for key in self._pulled if key[:2] == (topic, group)]:
                del self._pulled[key]

    # resets

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the next offset on the server's side: the next pull of the queue is answered with it.

        Until then, updates of the group are ignored.
        """
        self.reset_all(group, topic, {queue_id: offset})

    def reset_all(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Do it for some queues, by queue id."""
        with self._lock:
            before = self._queues(topic, group)
            self._set_all(topic, group, offsets)
            self.resets |= {(topic, group, queue_id): offset for queue_id, offset in offsets.items()}
        backward = [queue_id for queue_id, offset in offsets.items() if offset < before.get(queue_id, -1)]
        if backward:
            _log.info(
                "%s@%s: the offsets of %d queues go back, the first is %d", topic, group, len(backward), backward[0]
            )

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the next pull of a queue."""
        return (topic, group, queue_id) in self.resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of the reset that waits for a pull of this queue, once; None if there is none."""
        if not self.resets:
            return None
        with self._lock:
            return self.resets.pop((topic, group, queue_id), None)

    # removal

    def clean_topic(self, topic: str) -> int:
        """Remove all offsets of a topic. Return how many groups had committed some."""
        return self._clean(topic=topic)

    def clean_group(self, group: str) -> int:
        """Remove all offsets of a group. Return in how many topics it had committed some."""
        return self._clean(group=group)

    def _clean(self, *, topic: str | None = None, group: str | None = None) -> int:
        with self._lock:
            tables: tuple[dict[Any, Any], ...] = (self._pulled, self.resets, self._held)
            for table in tables:
                for key in [key for key in table if key[0] == topic or key[1] == group]:
                    del table[key]
            return self.table.forget(topic=topic, group=group)

    # written

    def save(self, writer: TableWriter, done: Done) -> None:
        """Write the offsets, and then call `done`, see TableWriter.save(). Call it on the loop.

        While the store deletes topics, changes are not in the table. Then it writes when the deletion has ended.
        """
        save = partial(writer.save, self.table, done)
        loop = asyncio.get_running_loop()
        with self._lock:
            is_paused = self._pauses > 0
            if is_paused:
                self._at_end_of_pause.append(partial(_call_on, loop, save))
        if not is_paused:
            save()

    # deletion by the store, see MessageStore.attach_offsets()

    @contextlib.contextmanager
    def paused(self) -> Iterator[ConsumerOffsetManager]:
        """Keep all offsets as they are. Commits are not refused: they count afterwards, but for what is dropped."""
        with self._lock:
            self._pauses += 1
        ended: list[Callable[[], object]] = []
        try:
            yield self
        finally:
            with self._lock:
                self._pauses -= 1
                if not self._pauses:
                    held, self._held = self._held, {}
                    for (topic, group), queues in held.items():
                        for queue_id, offset in queues.items():
                            if not self._is_dropped(topic, queue_id):
                                self._set(topic, group, queue_id, offset)
                    self._dropped = []
                    ended, self._at_end_of_pause = self._at_end_of_pause, []
            for call in ended:
                call()

    def _is_dropped(self, topic: str, queue_id: int) -> bool:
        return any(topic in one or (topic, queue_id) in one for one in self._dropped)

    def drop(self, deleted: Container[Any]) -> None:
        """Remove the offsets of topics, and of queues as (topic, queue id), that are about to be deleted; durably.

        Raises StoreIOError or StoreFullError; then no committed offset is removed. Call it inside paused().
        """
        self.table.drop(deleted)
        with self._lock:
            self._dropped.append(deleted)
            for table in (self._pulled, self.resets):
                for key in [key for key in table if key[0] in deleted or (key[0], key[2]) in deleted]:
                    del table[key]

    def persist(self) -> bool:
        """Write the committed offsets, durably, if they changed. Raises StoreIOError or StoreFullError."""
        return self.table.persist()


def _call_on(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(call)
