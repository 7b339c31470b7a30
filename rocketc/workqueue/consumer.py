"""Consumers of a durable queue: get, ack and nack; messages that are not acked are delivered again."""

from __future__ import annotations

import contextlib
import heapq
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from queue import Empty
from typing import NoReturn

from rocketc._arguments import seconds_of, whole_number
from rocketc._layout import (
    DLQ_PREFIX,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
)
from rocketc.errors import ClosedError, CorruptRecordError, CorruptUnitError, IllegalMessageError
from rocketc.read._message import Message
from rocketc.status import GetStatus
from rocketc.store._queue_reader import GetResult
from rocketc.store._store import MessageStore
from rocketc.tables.topics import refuse_no_folder
from rocketc.workqueue._in_flight import Item
from rocketc.workqueue.coroutines import Waits
from rocketc.workqueue.offsets import GroupOffsets

_log = logging.getLogger("rocketc.queue")

FETCH = 256  # messages that are read at a time
FETCH_BYTES = 4 << 20
CHECK_SECONDS = 0.1  # seconds that a wait runs before it checks for redeliveries and close()
DISPATCHED = 1.0  # seconds that get_nowait() waits for a message that was put but can't be read yet
_NEVER = float("inf")


def ends_at(block: bool, timeout: float | None) -> float:
    """Return the time when a wait ends, in seconds of the monotonic clock.

    >>> ends_at(True, None), ends_at(False, 5)
    (inf, -inf)
    """
    if not block:
        return float("-inf")
    if timeout is None:
        return _NEVER
    return time.monotonic() + seconds_of("timeout", timeout, least=0)


def refuse_names(topic: str, group: str) -> None:
    """Raise IllegalMessageError for a topic or group name that a Consumer can't have.

    >>> refuse_names("jobs", "default")
    >>> refuse_names("jobs@eu", "default")
    Traceback (most recent call last):
    rocketc.errors.IllegalMessageError: topic 'jobs@eu': '@' is not allowed; consumerOffset.json uses it as a separator
    """
    refuse_no_folder("topic", topic)
    refuse_no_folder("group", group, before=DLQ_PREFIX)
    for what, name in (("topic", topic), ("group", group)):  # the name of a group is part of its dead-letter topic
        if "@" in name:
            raise IllegalMessageError(
                f"{what} {name!r}: '@' is not allowed; consumerOffset.json uses it as a separator"
            )


class Consumer:
    """Takes messages for a group: each message goes to one thread, and is delivered again until it is acked.

    Queue.consumer() returns it. Any number of threads may use it. Messages are delivered in the order in which they
    were put; redeliveries come first. Messages may be acked in any order, but only one position per group is on the
    disk: the first message that is not acked. After a crash, later messages may be delivered twice.
    """

    def __init__(
        self,
        store: MessageStore,
        positions: GroupOffsets,
        topic: str,
        group: str,
        visibility_timeout: float | None,
        max_attempts: int | None,
    ) -> None:
        refuse_names(topic, group)
        self.topic = topic
        self.group = group
        self._store = store
        self._positions = positions
        self._visible_after = _NEVER if visibility_timeout is None else visibility_timeout
        self._max_attempts = max_attempts
        self._lock = threading.RLock()  # guards all below
        self._changed = threading.Condition(self._lock)
        self._fewer = threading.Condition(self._lock)  # a message was taken, or base has moved
        self._fewer_waits = 0  # threads that wait for `_fewer`: in join(), and in put() for room
        self._in_flight = positions.in_flight(topic, group, 0, self._lock)
        self._life = 0  # InFlight.life to which the offsets in _due belong
        self._due: list[tuple[float, int]] = []  # heap of (time, offset) to deliver again; some may be acked since
        self._asking = False  # True: a thread reads from the store
        self._gets = Waits()  # of coroutines

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Take the next message, or one that is due for redelivery.

        The message is in flight until it is acked, or until the visibility timeout ends; then it is delivered again.
        block, timeout  as in queue.Queue.get: wait without limit, for `timeout` seconds, or not at all
        Raises queue.Empty, ClosedError.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put(b"one")
        ...     item = queue.get()
        ...     queue.ack(item)
        >>> item, item.attempts, item.message.queue_offset
        (b'one', 1, 0)
        """
        if self._store.closed or self._positions.closed:
            self._refuse()
        with self._lock:
            now = time.monotonic()
            if now < self._in_flight.next_check:
                item = self._in_flight.take(self, now, self._visible_after)
                if item is not None:
                    if self._fewer_waits:
                        self._fewer.notify_all()
                    return item
            until = ends_at(block, timeout)
            while True:
                item = self._take(self._wait(until))
                if item is not None:
                    return item

    def get_nowait(self) -> Item:
        """Call get() without waiting.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.get_nowait()
        Traceback (most recent call last):
        _queue.Empty
        """
        return self.get(False)

    def get_many(self, max_count: int = 100, block: bool = True, timeout: float | None = None) -> list[Item]:
        """Take up to max_count messages, at least one. This is faster than single calls of get().

        Raises the errors of get().

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put_many([b"one", b"two", b"three"])
        ...     items = queue.get_many()
        ...     queue.ack(*items)
        >>> items
        [b'one', b'two', b'three']
        """
        max_count = whole_number("max_count", max_count, 1, (1 << 63) - 1)
        self._check_open()
        until = ends_at(block, timeout)
        items: list[Item] = []
        with self._lock:
            try:
                items = self._take_many(items, max_count, until)
                if len(items) > 1:
                    self._in_flight.forget_last()  # task_done() cannot know which of them is meant
                return items
            except BaseException:  # the caller does not get the items: deliver them again
                for item in items:
                    offset = self._in_flight.offset_of(self, item)
                    if self._in_flight.give_back(offset, item.attempts):
                        self._schedule_redelivery(offset, time.monotonic())
                raise

    async def aget(self, timeout: float | None = None) -> Item:
        """get() for asyncio: other tasks run while it waits. A task that is canceled has taken no message.

        Any number of tasks and event loops may wait; those of a loop get messages in the order of their calls.

        >>> import asyncio, rocketc, tempfile
        >>> async def main():
        ...     async with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...         waiting = asyncio.create_task(queue.aget())
        ...         await queue.aput(b"one")
        ...         item = await waiting
        ...         await queue.aack(item)
        ...         return item
        >>> asyncio.run(main())
        b'one'
        """
        until = ends_at(True, timeout)
        self._check_open()
        if self._in_flight.next < self._end():  # as _wait() does
            until = max(until, time.monotonic() + DISPATCHED)
        item = await self._gets.first(self._take_now, self._wait_a_moment, until)
        if item is None:
            raise Empty
        return item

    async def aack(self, *items: Item) -> None:
        """ack() for asyncio. It does not wait: positions are written by a thread.

        >>> import asyncio, rocketc, tempfile
        >>> async def main():
        ...     async with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...         await queue.aput(b"one")
        ...         await queue.aack(await queue.aget())
        ...         return queue.position
        >>> asyncio.run(main())
        1
        """
        self.ack(*items)

    def ack(self, *items: Item) -> None:
        """Mark messages as processed: they are not delivered again.

        Messages that are acked already, and messages of a deleted topic, are ignored. Positions are written to the disk
        every `position_interval` seconds: after a crash, messages acked since the last write are delivered again.
        Raises ValueError for an item of another consumer, ClosedError.

        >>> import rocketc, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with rocketc.Queue(folder) as queue:
        ...     _ = queue.put_many([b"one", b"two"])
        ...     queue.ack(queue.get())
        >>> with rocketc.Queue(folder) as queue:
        ...     queue.get()
        b'two'
        """
        if self._store.closed or self._positions.closed:
            self._refuse()
        with self._lock:
            if self._in_flight.ack(self, items):
                self._moved()

    def nack(self, *items: Item, delay: float = 0.0) -> None:
        """Give up messages that were not processed: they are delivered again, before all others.

        delay  seconds until the redelivery
        A message that was taken max_attempts times becomes a dead letter instead. Messages that are already acked, or
        already wait for redelivery, are ignored.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put(b"one")
        ...     queue.nack(queue.get())
        ...     queue.get().attempts
        2
        """
        delay = seconds_of("delay", delay)
        self._check_open()
        with self._lock:
            now = time.monotonic()
            for item in items:
                offset = self._in_flight.offset_of(self, item)
                attempts = self._in_flight.give_back(offset, item.attempts)
                if attempts:
                    self._return(offset, attempts, now, delay)

    def task_done(self) -> None:
        """Ack the message that this thread took last. For programs written for queue.Queue.

        Coroutines of one thread count as threads of their own here. Call ack() where a thread holds several messages,
        and where another thread or asyncio.to_thread() takes them.
        Raises ValueError if the last message is not taken any more, or if the thread took it with others in one
        get_many(). Then nothing is acked.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put(b"one")
        ...     _ = queue.get()
        ...     queue.task_done()
        ...     queue.join()
        """
        self._check_open()
        with self._lock:
            offset = self._in_flight.last_taken()
            if offset is None:
                raise ValueError(
                    "task_done() without a message that this thread took last and did not ack: call ack(item) instead"
                )
            self._finish(offset)

    def join(self) -> None:
        """Wait until all messages that were put are acked.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.join()
        """
        self._check_open()
        with self._lock:
            while self._in_flight.base < self._end():
                self._wait_for_fewer(CHECK_SECONDS)

    def qsize(self) -> int:
        """Return the number of messages that wait to be taken. Messages in flight are not counted.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put_many([b"one", b"two"])
        ...     _ = queue.get()
        ...     queue.qsize()
        1
        """
        self._check_open()
        with self._lock:
            return self._waiting()

    def empty(self) -> bool:
        """Return True if qsize() is 0.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.empty()
        True
        """
        return self.qsize() == 0

    def items(self, timeout: float | None = None) -> Iterator[Item]:
        """Iterate over messages; each one is acked when the loop asks for the next one.

        timeout  seconds to wait for a message before the iteration ends; None: no limit
        If the loop ends with an exception or `break`, the current message is not acked: it is delivered again.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put_many([b"one", b"two"])
        ...     for item in queue.items(timeout=0):
        ...         print(item.decode())
        one
        two
        """
        while True:
            try:
                item = self.get(timeout=timeout)
            except Empty:
                return
            try:
                yield item
            except BaseException:
                self._abandon(item)
                raise
            self.ack(item)

    async def aitems(self, timeout: float | None = None) -> AsyncIterator[Item]:
        """items() for asyncio.

        >>> import asyncio, rocketc, tempfile
        >>> async def main():
        ...     async with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...         queue.put_many([b"one", b"two"])
        ...         return [item async for item in queue.aitems(timeout=0)]
        >>> asyncio.run(main())
        [b'one', b'two']
        """
        while True:
            try:
                item = await self.aget(timeout)
            except Empty:
                return
            try:
                yield item
            except BaseException:
                self._abandon(item)
                raise
            self.ack(item)

    def _abandon(self, item: Item) -> None:
        """Give up an item whose loop has ended. If the queue is closed, it is delivered again anyway."""
        with contextlib.suppress(ClosedError):
            self.nack(item)

    def __repr__(self) -> str:
        return f"<rocketc.{type(self).__name__} {self._store.path!r}, topic {self.topic!r}, group {self.group!r}>"

    def __iter__(self) -> Iterator[Item]:
        return self.items()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self.aitems()

    @property
    def position(self) -> int:
        """The offset of the first message that is not acked. After a restart the group continues there."""
        return self._in_flight.base

    def _check_open(self) -> None:
        """Raise ClosedError if the queue is closed, or in a forked child, where a locked lock would stay locked."""
        if self._store.closed or self._positions.closed:
            self._refuse()

    def _refuse(self) -> NoReturn:
        self._store.wait_flushed(0)  # raises ClosedError with the reason, if the store is closed
        raise ClosedError(f"{self._store.path}: the queue is closed")

    def _end(self) -> int:
        """Return the offset of the next message that is put."""
        return self._store.max_offset(self.topic, 0, committed=False)

    def _wake_all(self) -> None:
        """Wake all waiting threads; each one checks whether the queue is closed."""
        with self._lock:
            self._changed.notify_all()
            self._fewer.notify_all()

    def _take_now(self) -> Item | None:
        """Take a message, if there is one that was read already or is due. Raises ClosedError, CorruptRecordError."""
        self._check_open()
        with self._lock:
            now = time.monotonic()
            return self._take(now) if self._is_there(now) else None

    def _wait_a_moment(self) -> None:
        """Wait until a message can be taken, for a moment at most."""
        with self._lock, contextlib.suppress(Empty):
            self._wait(time.monotonic() + CHECK_SECONDS)

    # The caller of the methods below holds the lock.

    def _wait_for_fewer(self, timeout: float) -> None:
        self._fewer_waits += 1
        try:
            self._fewer.wait(timeout)
        finally:
            self._fewer_waits -= 1
        self._check_open()

    def _waiting(self) -> int:
        return max(self._end() - self._in_flight.base - self._in_flight.finished - self._in_flight.taken, 0)

    def _finish(self, offset: int) -> None:
        before = self._in_flight.base
        self._in_flight.finish(offset)
        if self._in_flight.base != before:
            self._moved()

    def _moved(self) -> None:
        self._positions.mark_changed()
        if self._fewer_waits:
            self._fewer.notify_all()

    def _return(self, offset: int, attempts: int, now: float, delay: float) -> None:
        """Schedule a redelivery; after max_attempts attempts, put the message to the dead letters instead."""
        if self._max_attempts is not None and attempts >= self._max_attempts:
            try:
                self._put_dead_letter(offset, attempts)
            except BaseException:
                self._schedule_redelivery(offset, now + 1)
                raise
            self._finish(offset)
        else:
            self._schedule_redelivery(offset, now + delay)

    def _schedule_redelivery(self, offset: int, due: float) -> None:
        heapq.heappush(self._due, (due, offset))
        self._in_flight.next_check = min(self._in_flight.next_check, due)
        self._changed.notify()

    def _put_dead_letter(self, offset: int, attempts: int) -> None:
        """Put a message to the dead-letter topic, with the properties that RocketMQ sets."""
        message = self._read(offset)
        if message is None:
            return
        origin = message.properties
        properties = {
            PROPERTY_RETRY_TOPIC: message.topic,
            PROPERTY_ORIGIN_MESSAGE_ID: message.msg_id,
            **origin,
            PROPERTY_DLQ_ORIGIN_TOPIC: message.topic,
            PROPERTY_DLQ_ORIGIN_MESSAGE_ID: message.msg_id,
        }
        self._store.put(
            DLQ_PREFIX + self.group,
            message.stored_body,
            properties=properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            reconsume_times=attempts,
        )

    def _read(self, offset: int) -> Message | None:
        """Read a message again that was taken before; None if its file was deleted in the meantime."""
        for message in self._store.get(self.topic, 0, offset, 1):
            if message.queue_offset == offset:
                return message
        return None

    def _is_there(self, now: float) -> bool:
        """Return True if a message can be taken. Schedules redeliveries of messages that were not acked in time."""
        in_flight, due = self._in_flight, self._due
        if now >= in_flight.next_check:
            if self._life != in_flight.life:
                self._life = in_flight.life
                due.clear()
            for offset in in_flight.overdue(now):
                self._return(offset, in_flight.give_back(offset), now, 0)
            while due and not in_flight.is_returned(due[0][1]):
                heapq.heappop(due)  # acked since
            if due:
                in_flight.next_check = min(in_flight.next_check, due[0][0])
        return in_flight.has_ready or bool(due and due[0][0] <= now)

    def _wait(self, until: float) -> float:
        """Wait until a message can be taken; return the current time. Raises Empty, ClosedError."""
        now = time.monotonic()
        grace = now + DISPATCHED
        while not self._is_there(now):
            left = until - now
            if left <= 0 and self._in_flight.next < self._end():
                left = grace - now
            if left <= 0 and self._asking:
                raise Empty
            most = min(max(left, 0), CHECK_SECONDS)
            if self._due:
                most = min(most, max(self._due[0][0] - now, 0))
            if self._asking:
                self._changed.wait(most)
            else:
                self._ask(most)
            self._check_open()
            now = time.monotonic()
            if left <= 0 and not self._is_there(now):
                raise Empty
        return now

    def _ask(self, wait: float) -> None:
        """Read the next messages from the store; the lock is released during the read.

        Raises CorruptRecordError once for each damaged message; the next call continues after it.
        """
        damage = None
        life = self._in_flight.life
        self._asking = True
        self._lock.release()
        try:
            found, messages = self._read_from(self._in_flight.next, wait)
        except CorruptRecordError as error:
            damage = error
        finally:
            self._lock.acquire()
            self._asking = False
            self._changed.notify()
        if self._in_flight.life != life:
            return  # the messages belong to a queue that was deleted during the read
        if damage is not None:
            offset = self._in_flight.next
            self._in_flight.skip()
            self._leave_out(offset, damage)
        before = self._in_flight.base
        self._in_flight.add(messages, min(found.next_offset, found.max_offset))
        if self._in_flight.base != before:
            self._moved()
        self._changed.notify(len(messages))

    def _read_from(self, offset: int, wait: float) -> tuple[GetResult, list[Message]]:
        """Read messages from an offset on, without the lock. If one of them is damaged, read only the first."""
        for count in (FETCH, 1):
            try:
                found = self._store.get(self.topic, 0, offset, count, max_bytes=FETCH_BYTES, wait=wait or None)
                if found.status is GetStatus.OFFSET_OVERFLOW_BADLY:
                    time.sleep(wait)  # the queue's last messages are damaged; get() waits only at the queue's end
                return found, found.messages  # `messages` decompresses bodies, and may raise
            except CorruptRecordError:
                if count == 1:
                    raise
        raise AssertionError

    def _leave_out(self, offset: int, damage: CorruptRecordError) -> NoReturn:
        """Skip a damaged message and raise its error.

        If a unit of the consume queue is damaged, the position stays before the message: the next open() of the store
        repairs the queue, and the message is delivered then.
        """
        _log.warning("%s: skipped offset %d of topic %s: %s", self._store.path, offset, self.topic, damage)
        if not isinstance(damage, CorruptUnitError):
            self._finish(offset)
        raise damage

    def _take(self, now: float) -> Item | None:
        """Take a message that is ready or due; None if the file of a due message was deleted in the meantime."""
        if self._fewer_waits:
            self._fewer.notify_all()
        if not self._due or self._due[0][0] > now:
            return self._in_flight.take(self, now, self._visible_after)
        offset = self._due[0][1]  # stays in _due until the Item exists, because the read may fail
        try:
            message = self._read(offset)
        except CorruptRecordError as damage:
            heapq.heappop(self._due)
            self._leave_out(offset, damage)
        if message is None:
            self._finish(offset)
            item = None
        else:
            item = self._in_flight.hand_out(self, message, now, self._visible_after)
        heapq.heappop(self._due)
        return item

    def _take_many(self, items: list[Item], most: int, until: float) -> list[Item]:
        """Take at least one message. Also waits briefly for messages that were put but can't be read yet."""
        now = self._wait(until)
        grace = now + DISPATCHED
        while True:
            while len(items) < most and self._is_there(now):
                item = self._take(now)
                if item is not None:
                    items.append(item)
                if now < self._in_flight.next_check:
                    items += self._in_flight.take_many(self, now, self._visible_after, most - len(items))
            if not items:  # the files of all due messages were deleted
                now = self._wait(until)
                continue
            if len(items) >= most or self._asking or now > grace or self._in_flight.next >= self._end():
                return items
            self._ask(CHECK_SECONDS)
            now = time.monotonic()
