"""Decisions: whether a transaction is committed or rolled back already. The first decision holds.

A transaction is a producer group and a UNIQ_KEY. It may have several half messages: a send that is tried again leaves
two, and each check adds a copy. The index of the store finds them, back to an hour before the one that is ended. A
transaction is decided if one of them is marked as ended, or if its committed message is in the log: a kill may lose the
mark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from rocketc._layout import PROPERTY_UNIQUE_KEY, SCHEDULE_TOPIC
from rocketc.broker import names
from rocketc.broker.half_messages import HalfMessage, op_offsets
from rocketc.broker.op_marks import OpMarks
from rocketc.errors import CorruptRecordError, RocketcError
from rocketc.read._message import Message
from rocketc.store._raw_records import RawGetResult

_log = logging.getLogger("rocketc.broker")

OPS_OF_A_READ = 256
READ_BYTES = 1 << 20
RETRIED_MS = 3_600_000  # a send is not tried again for longer; the index has a file or two for this time


class MarkStore(Protocol):
    """What Decisions needs of a store."""

    @property
    def max_phy_offset(self) -> int: ...
    def get_raw(
        self, topic: str, queue_id: int, offset: int, max_count: int, /, *, max_bytes: int = ...
    ) -> RawGetResult: ...
    def query(
        self, topic: str, key: str, /, *, begin: int | None = ..., crc: str = ..., decompress: bool = ...
    ) -> Iterable[Message]: ...
    def min_offset(self, topic: str, queue_id: int, /) -> int: ...
    def max_offset(self, topic: str, queue_id: int, /) -> int: ...
    def phy_offset_of(self, topic: str, queue_id: int, offset: int, /) -> int: ...


class Transaction(NamedTuple):
    """What the log says about a transaction.

    halves      its half messages
    is_decided  whether it is committed or rolled back
    """

    halves: list[HalfMessage]
    is_decided: bool


class Decisions:
    """Finds out whether a transaction is decided.

    marks   has the ends of this process; the others are read from the op queue when they are needed
    closed  called with the topic of each half message that a send has left, and that no end counts
    since   physical offset: half messages from there on were stored by this process
    """

    def __init__(self, store: MarkStore, marks: OpMarks, closed: Callable[[str], object]) -> None:
        self._store, self.marks, self._closed = store, marks, closed
        self.since = store.max_phy_offset
        self._loaded: dict[int, int] = {}  # first op message whose marks are known, by half queue
        self._is_failing = False

    def find(self, half: HalfMessage) -> Transaction:
        """Return the transaction of a half message."""
        halves = list(self._halves(half))
        first = min(one.message.phy_offset for one in halves)
        is_older = first < self.since
        if is_older:
            for queue_id in {one.message.queue_id for one in halves}:
                self._load(queue_id, first)
        return Transaction(halves, any(map(self._is_marked, halves)) or (is_older and self._is_committed(half)))

    def close(self, transaction: Transaction) -> None:
        """Mark all half messages of a transaction that is decided: no check asks about them."""
        unmarked = [one for one in transaction.halves if not self._is_marked(one)]
        sent = [one for one in unmarked if names.CHECK_TIMES not in one.properties]
        is_first = len(unmarked) == len(transaction.halves)  # its end counts one of those that were sent
        for one in sent[is_first:]:
            if one.place is not None:
                self._closed(one.place.topic)
        for one in unmarked:
            self.marks.add(one.message.queue_id, one.message.queue_offset)

    def forget(self, queue_id: int) -> None:
        """Free the memory for half messages that the store has deleted."""
        self.marks.ended.forget(queue_id, self._store.min_offset(names.HALF_TOPIC, queue_id))

    def _is_marked(self, half: HalfMessage) -> bool:
        return self.marks.ended.has(half.message.queue_id, half.message.queue_offset)

    # the index

    def _halves(self, half: HalfMessage) -> Iterator[HalfMessage]:
        yield half
        is_copy = names.CHECK_TIMES in half.properties
        begin = None if is_copy else half.store_timestamp - RETRIED_MS
        for message in self._query(names.HALF_TOPIC, half, begin):
            if message.phy_offset != half.message.phy_offset:
                yield HalfMessage(message)

    def _is_committed(self, half: HalfMessage) -> bool:
        topics = () if half.place is None else (half.place.topic, SCHEDULE_TOPIC)  # with a delay it waits there
        return any(True for topic in topics for _ in self._query(topic, half))

    def _query(self, topic: str, half: HalfMessage, begin: int | None = None) -> list[Message]:
        """Return the messages of a topic that belong to the transaction of a half message.

        begin  ms: the store timestamp of the first one; None: any
        """
        group, key = (half.properties.get(name) for name in (names.PRODUCER_GROUP, PROPERTY_UNIQUE_KEY))
        if not key:
            return []
        try:
            found = self._store.query(topic, key, begin=begin, crc="none", decompress=False)
            self._is_failing = False
        except (RocketcError, OSError) as error:
            _log.log(
                logging.DEBUG if self._is_failing else logging.WARNING,
                "the index can't be read: %s; transactions that are ended twice may not be recognized", error,
            )  # fmt: skip
            self._is_failing = True
            return []
        same = {names.PRODUCER_GROUP: group, PROPERTY_UNIQUE_KEY: key}.items()
        return [message for message in found if same <= message.properties.items()]

    # the op queue

    def _load(self, queue_id: int, after: int) -> None:
        """Read the marks of a half queue that were stored after a physical offset."""
        end = self._loaded.get(queue_id)
        if end is None:
            end = self._first_op(queue_id, self.since)
        offset = first = min(self._first_op(queue_id, after), end)
        while offset < end:
            offset = self._read(queue_id, offset, min(OPS_OF_A_READ, end - offset))
        self._loaded[queue_id] = min(first, self._loaded.get(queue_id, first))

    def _read(self, queue_id: int, offset: int, count: int) -> int:
        """Note the marks of some op messages; return where the next read begins.

        Marks of half messages that do not exist are ignored.
        """
        halves = self._store.max_offset(names.HALF_TOPIC, queue_id)
        try:
            with self._store.get_raw(names.OP_HALF_TOPIC, queue_id, offset, count, max_bytes=READ_BYTES) as found:
                for record in map(bytes, found):
                    for half in op_offsets(Message.of(record).body):
                        if half < halves:
                            self.marks.ended.add(queue_id, half)
                return max(found.next_offset, offset + 1)
        except CorruptRecordError:  # the check warns about it
            return offset + 1

    def _first_op(self, queue_id: int, after: int) -> int:
        """Return the queue offset of the first op message that was stored after a physical offset."""
        topic = names.OP_HALF_TOPIC
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            if self._store.phy_offset_of(topic, queue_id, middle) > after:
                high = middle
            else:
                low = middle + 1
        return low
