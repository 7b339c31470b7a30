"""The queues of a pull consumer: which messages poll() returns next, and which offsets may be committed. No I/O happens
here.

Source: RocketMQ DefaultLitePullConsumerImpl, AssignedMessageQueue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rocketc.client.process_queue import ProcessQueue, Queued
from rocketc.client.routes import MessageQueue

M = TypeVar("M", bound=Queued)


@dataclass(eq=False)
class PolledQueue(Generic[M]):
    """One queue since it was taken, or since the last seek.

    held       messages that were pulled and not returned
    position   offset of the next message that poll() returns, or a smaller one
    finished   the position when the last poll() began: the caller has finished what came before
    is_moved   something but the start of the consumer has set the position
    is_paused  poll() returns nothing of the queue
    """

    held: ProcessQueue[M]
    position: int
    finished: int
    is_moved: bool = False
    is_paused: bool = False


class Taken(NamedTuple, Generic[M]):
    """Messages of one queue that a poll() returns."""

    queue: MessageQueue
    source: PolledQueue[M]
    messages: list[M]


class PolledQueues(Generic[M]):
    """The queues of one consumer. The pulls put messages into the process queues, and poll() takes them out.

    No offset that it returns is greater than that of a message which poll() has not returned.

    >>> from types import SimpleNamespace
    >>> queues, queue, held = PolledQueues(), MessageQueue("orders", "broker-a", 0), ProcessQueue()
    >>> queues.add(queue, held, offset=4)
    >>> _ = held.put([SimpleNamespace(queue_offset=offset, body=b"") for offset in (4, 5, 6)], now=0)
    >>> [message.queue_offset for taken in queues.take(2, now=0) for message in taken.messages]
    [4, 5]
    >>> queues.positions() == {queue: 6}, queues.finished() == {queue: 4}
    (True, True)
    >>> queues.begin()
    >>> queues.finished() == {queue: 6}
    True
    """

    def __init__(self) -> None:
        self._queues: dict[MessageQueue, PolledQueue[M]] = {}  # the next take() begins with the first one
        self._returned: set[PolledQueue[M]] = set()  # by the last take()

    def __contains__(self, queue: object) -> bool:
        return queue in self._queues

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def count(self) -> int:
        """The number of messages that wait, of all queues."""
        return sum(len(one.held) for one in self._queues.values())

    def add(self, queue: MessageQueue, held: ProcessQueue[M], offset: int) -> None:
        """Begin with a queue.

        offset  of the first pull
        """
        self._queues[queue] = PolledQueue(held, offset, offset)

    def remove(self, queue: MessageQueue) -> int | None:
        """End with a queue: another consumer has it. Returns the offset to commit; None: there is nothing new."""
        one = self._queues.pop(queue, None)
        return None if one is None or not one.is_moved else one.finished

    def begin(self) -> None:
        """A poll() begins: its caller has finished the messages that were returned before."""
        for one in self._returned:
            one.finished = one.position
        self._returned.clear()

    def take(self, most: int, now: int) -> list[Taken[M]]:
        """Return the next messages, `most` at most. Those of a queue come in their order, queues take turns."""
        found: list[Taken[M]] = []
        for queue, one in self._queues.items():
            if one.is_paused or not len(one.held):
                continue
            messages = one.held.take(most, now)
            one.position, one.is_moved = one.held.commit(), True
            self._returned.add(one)
            found.append(Taken(queue, one, messages))
            most -= len(messages)
            if most <= 0:
                break
        for taken in found:
            self._queues[taken.queue] = self._queues.pop(taken.queue)  # the others are first next time
        return found

    def give_back(self, taken: Sequence[Taken[M]], now: int) -> None:
        """Undo a take() whose messages did not reach the caller. A queue with a later seek() does not change."""
        for queue, one, messages in taken:
            if self._queues.get(queue) is one:
                one.held.put(messages, now)
                one.position = min(one.position, messages[0].queue_offset)
                one.finished = min(one.finished, one.position)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset. Messages that were pulled before are forgotten; the caller begins a new pull."""
        before = self._queues[queue]
        before.held.clear()
        self._returned.discard(before)
        self._queues[queue] = PolledQueue(before.held, offset, offset, True, before.is_paused)

    def committed(self, queue: MessageQueue, offset: int) -> None:
        """The program has committed this offset, so it has finished what comes before, up to the next begin()."""
        one = self._queues.get(queue)
        if one is not None:
            one.finished = offset
            if offset < one.position:
                self._returned.add(one)

    def pulled(self, queue: MessageQueue, next_offset: int) -> None:
        """A pull found nothing before next_offset: if no message waits, that is progress."""
        one = self._queues.get(queue)
        if one is not None and not len(one.held) and next_offset > one.position:
            if one.finished == one.position:
                one.finished = next_offset
            else:
                self._returned.add(one)
            one.position, one.is_moved = next_offset, True

    def moved(self, queue: MessageQueue, offset: int, next_offset: int) -> None:
        """A broker does not have the offset of a pull, and said where to continue.

        Messages that were pulled before an offset further on are still returned; an earlier one is like a seek().
        """
        if next_offset > offset:
            self.pulled(queue, next_offset)
        elif queue in self._queues:
            self.seek(queue, next_offset)

    def pause(self, queue: MessageQueue, is_paused: bool) -> None:
        """Begin or end to leave out a queue."""
        self._queues[queue].is_paused = is_paused

    def is_paused(self, queue: MessageQueue) -> bool:
        one = self._queues.get(queue)
        return one is not None and one.is_paused

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message of a queue. Raises KeyError."""
        return self._queues[queue].position

    def positions(self) -> dict[MessageQueue, int]:
        """Return what commit() commits: the positions of the queues that have moved."""
        return {queue: one.position for queue, one in self._queues.items() if one.is_moved}

    def finished(self) -> dict[MessageQueue, int]:
        """Return what may be committed while the caller works on the messages of its last poll()."""
        return {queue: one.finished for queue, one in self._queues.items() if one.is_moved}

    def clear(self) -> None:
        """End with all queues."""
        self._queues.clear()
        self._returned.clear()
