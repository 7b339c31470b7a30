"""Delayed messages: how a put is changed for a delay level, and the delivery of those that are due.

Source: RocketMQ HookUtils.handleScheduleMessage, ScheduleMessageService.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import Any, Protocol

from rocketc._layout import PROPERTY_DELAY, SCHEDULE_TOPIC
from rocketc.broker import names
from rocketc.broker._deliveries import DELIVERIES_MAX, Delivered, Deliveries
from rocketc.errors import BadRequestError, CorruptRecordError
from rocketc.status import GetStatus, PutStatus
from rocketc.store._raw_records import RawGetResult
from rocketc.tables.config_manager import Clock
from rocketc.tables.offsets import DelayOffsets

_log = logging.getLogger("rocketc.broker")

START_SECONDS = 1.0  # after the start of the broker, before the first delivery
AGAIN_SECONDS = 0.1  # after a refused put, and while the store has not dispatched a message yet
LEAST_SECONDS = 0.01  # between two looks at messages that are not due
MOST_SECONDS = 1.0  # the wall clock may be set forward
ERROR_SECONDS = 10.0  # after an error
IDLE_SECONDS = 11.0  # between two looks at an empty level that nothing was put into

# Of one read. Its records are delivered in slices; between two of them, the event loop serves connections.
READ_RECORDS = 8 * DELIVERIES_MAX
READ_BYTES = 4 << 20

_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_INT32 = (-(1 << 31), (1 << 31) - 1)


def delay_level(properties: dict[str, str]) -> int:
    """Return the delay level that a message asks for; 0 or less: it is not delayed. Raises BadRequestError.

    >>> delay_level({PROPERTY_DELAY: "3"}), delay_level({})
    (3, 0)
    """
    text = properties.get(PROPERTY_DELAY)
    if not text:
        return 0
    if not _NUMBER.fullmatch(text) or not _INT32[0] <= int(text) <= _INT32[1]:
        raise BadRequestError(f"the property {PROPERTY_DELAY} is {text[:20]!r}, which is not a number")
    return int(text)


def delayed(properties: dict[str, str], level: int, topic: str, queue_id: int, levels: int) -> tuple[str, int]:
    """Change the properties of a message for a delay level; return the topic and the queue that store it meanwhile.

    level   as asked for, from 1
    levels  how many there are; a higher level is the last one

    >>> properties = {PROPERTY_DELAY: "99"}
    >>> delayed(properties, 99, "orders", 2, levels=18), properties
    (('SCHEDULE_TOPIC_XXXX', 17), {'DELAY': '18', 'REAL_TOPIC': 'orders', 'REAL_QID': '2'})
    """
    if level > levels:
        level = levels
        properties[PROPERTY_DELAY] = str(level)
    for name in names.TIMER:
        properties.pop(name, None)
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QUEUE] = str(queue_id)
    return SCHEDULE_TOPIC, level - 1


class DelayStore(Protocol):
    """What DelayService needs of a store."""

    @property
    def background(self) -> bool: ...
    def get_raw(self, topic: str, queue_id: int, offset: int, max_count: int, **how: Any) -> RawGetResult: ...
    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int: ...
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def flush(self) -> int: ...


class DelayService:
    """Delivers delayed messages. Each level has its own run(); a slice of one level is delivered per turn of the loop.

    delays   ms of each level; level n is at n - 1
    offsets  the table of next offsets, config/delayOffset.json
    deliver  puts messages into their own queues
    clock    ms since the epoch
    """

    def __init__(
        self, store: DelayStore, delays: list[int], offsets: DelayOffsets, deliver: Deliveries, clock: Clock
    ) -> None:
        self._store, self._delays, self._offsets = store, delays, offsets
        self._deliver, self._clock = deliver, clock
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._next: dict[int, int] = {}  # queue offset by level, of the levels that have had messages
        self._idle: dict[int, asyncio.Future[None]] = {}  # of empty levels
        self._due: dict[int, int] = {}  # ms, of the next message by level, as far as it was read
        self._persisting = threading.Lock()
        self._refused: set[int] = set()  # levels whose last put was refused
        for level in range(1, self.levels + 1):
            self._load(level)

    def _load(self, level: int) -> None:
        known = dict(self._offsets.items())
        end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
        if end > 0 or level in known:
            first = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            self._next[level] = max(first, min(known.get(level, 0), end))

    @property
    def levels(self) -> int:
        """How many there are."""
        return len(self._delays)

    def next_offset(self, level: int) -> int:
        """Return the queue offset of the next message of a level."""
        return self._next.get(level, 0)

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return (offset of the next message, end of the queue) of each level that has delivered messages."""
        return {
            level: (offset, self._store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level, offset in sorted(self._next.items())
            if offset > 0
        }

    def added(self, queue_id: int) -> None:
        """A message was put into a queue of the topic of delayed messages."""
        sleeping = self._idle.get(queue_id + 1)
        if sleeping is not None and not sleeping.done():
            sleeping.set_result(None)

    async def run(self, level: int) -> None:
        """Deliver the messages of a level for ever."""
        await asyncio.sleep(START_SECONDS)
        wrong = None
        while True:
            try:
                seconds = await self._step(level)
                wrong = None
            except Exception as error:  # any: the level continues, as in RocketMQ
                seconds = ERROR_SECONDS
                _log.log(
                    logging.DEBUG if str(error) == wrong else logging.WARNING,
                    "delay level %d: message %d is not delivered: %s; it is tried again",
                    level, self._next.get(level, 0), error,
                )  # fmt: skip
                wrong = str(error)
            await (self._pause(level) if seconds == IDLE_SECONDS else asyncio.sleep(seconds))

    async def _pause(self, level: int) -> None:
        """Wait until a message is put into an empty level, or a little."""
        future = self._idle[level] = self._loop.create_future()
        timer = self._loop.call_later(IDLE_SECONDS, self.added, level - 1)
        try:
            await future
        finally:
            timer.cancel()
            del self._idle[level]

    async def _step(self, level: int) -> float:
        """Read messages of a level and deliver those that are due; return the seconds until the next read."""
        offset, now = self._next.get(level, 0), self._clock()
        due = self._due.pop(level, -1)
        if now < due <= now + self._delays[level - 1]:
            return self._until(level, due, now)
        try:
            found = await self._read(level, offset)
        except CorruptRecordError as error:  # RocketMQ skips what it can't read
            self._deliver.skipped += 1
            self._next[level] = offset + 1
            _log.warning("delay level %d: message %d is damaged, it is skipped: %s", level, offset, error)
            return 0.0
        with found:
            if found.status is not GetStatus.FOUND:
                return self._without_messages(level, offset, found)
            row = 0
            while row < len(found):
                async with self._turn:
                    now = self._clock()
                    done = self._slice(level, found, now, row)
                    row = done.row
                    await asyncio.sleep(0)
                if done.due >= 0 or done.status is not PutStatus.PUT_OK:
                    break
        if done.status is not PutStatus.PUT_OK:
            if level not in self._refused:
                _log.warning(
                    "delay level %d: message %d is refused: %s; it is tried again",
                    level, done.next_offset, done.status.name,
                )  # fmt: skip
            self._refused.add(level)
            return AGAIN_SECONDS
        self._refused.discard(level)
        return 0.0 if done.due < 0 else self._until(level, done.due, now)

    def _slice(self, level: int, found: RawGetResult, now: int, row: int) -> Delivered:
        """Deliver the records of a read from a row on, as many as one append takes."""
        skipped = self._deliver.skipped
        done = self._deliver.deliver(found, now, self._delays[level - 1], row)
        self._next[level] = done.next_offset
        if self._deliver.skipped > skipped:
            _log.warning(
                "delay level %d: %d messages before %d can't be delivered; they are skipped",
                level, self._deliver.skipped - skipped, done.next_offset,
            )  # fmt: skip
        return done

    def _until(self, level: int, due: int, now: int) -> float:
        """Return the seconds until a message of a level is due, or a second: it is not read again before."""
        self._due[level] = due
        return min(max((due - now) / 1000, LEAST_SECONDS), MOST_SECONDS)

    def _without_messages(self, level: int, offset: int, found: RawGetResult) -> float:
        if found.next_offset != offset:  # the log no longer has them
            self._next[level] = found.next_offset
            return AGAIN_SECONDS
        is_put = self._store.max_offset(SCHEDULE_TOPIC, level - 1, committed=False) > offset
        return AGAIN_SECONDS if is_put else IDLE_SECONDS

    async def _read(self, level: int, offset: int) -> RawGetResult:
        """Read records. A thread reads the records once, so that the loop never waits for the disk."""
        if not self._store.background or self._store.max_offset(SCHEDULE_TOPIC, level - 1) <= offset:
            return self._get(level, offset)
        work = self._loop.run_in_executor(None, self._touched, level, offset)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})  # the store is closed after this
            raise

    def _touched(self, level: int, offset: int) -> RawGetResult:
        found = self._get(level, offset)
        found.touch()
        return found

    def _get(self, level: int, offset: int) -> RawGetResult:
        return self._store.get_raw(SCHEDULE_TOPIC, level - 1, offset, READ_RECORDS, max_bytes=READ_BYTES)

    def persist(self) -> bool:
        """Write the offsets of what is delivered, durably; return False if nothing changed. It waits for the disk.

        The delivered messages are flushed first: after a power cut, none is missing. Raises StoreIOError,
        StoreFullError and the errors of a flush.
        """
        with self._persisting:  # an earlier write, on another thread, must not come after this one
            return self._persist()

    def _persist(self) -> bool:
        found = dict(self._next)
        known = dict(self._offsets.items())
        changed = {level: offset for level, offset in found.items() if known.get(level) != offset}
        if changed:
            self._store.flush()
        for level, offset in changed.items():
            self._offsets.commit(level, offset)
        return self._offsets.persist()
