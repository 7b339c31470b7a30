"""The delivery of timed messages: files, recovery, the loop that drives it, and what is written to the disk.

Source: RocketMQ TimerMessageStore.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from rocketc.broker import names
from rocketc.broker._deliveries import Deliveries
from rocketc.broker._timers import Timers
from rocketc.broker.config import BrokerConfig
from rocketc.broker.timer_start import TimerStart
from rocketc.derived import timer_check
from rocketc.derived._timer_log import TimerLog
from rocketc.derived._timer_wheel import SLOTS, TimerWheel
from rocketc.derived.timer_check import TimerCheck
from rocketc.errors import CorruptRecordError
from rocketc.files.durable import errors_named
from rocketc.status import GetStatus, PutStatus
from rocketc.store._raw_records import RawGetResult
from rocketc.store._store import MessageStore
from rocketc.tables.config_manager import Clock
from rocketc.tables.topic_counts import TimerCounts

_log = logging.getLogger("rocketc.broker")
T = TypeVar("T")

START_SECONDS = 1.0  # after the start of the broker, before the first step
PUT_SECONDS = 0.05  # from a put to the step that takes it into the wheel
AGAIN_SECONDS = 0.1  # after a refused put, and while the store has not dispatched a message yet
ERROR_SECONDS = 10.0  # after an error
IDLE_SECONDS = 11.0  # between two looks without messages
MOST_SECONDS = 1.0  # the wall clock may be set forward
COUNTS_MS = 10_000  # between two writes of timermetrics
BEHIND_MS = 1500  # deliveries that are later by this much take in what was stored meanwhile first
CLEAN_MS = 60_000  # between two checks for files of the timer log to delete
SLICES = 8  # deliveries between two reads of pages on a thread

READ_RECORDS = 4096
READ_BYTES = 4 << 20
_NAMES = (
    names.TIMER_TOPIC,
    names.TIMER_OUT_MS,
    names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS,
    names.TIMER_ROLL_TIMES,
    names.TIMER_DELETES,
)


class TimerService:
    """Puts the messages of the timer topic into the wheel, and delivers those that are due.

    store   open for writing
    clock   ms since the epoch
    The files are made with the first timed message. A slice of the work is done per turn of the loop.
    Raises StoreIOError if an existing file can't be read.
    """

    def __init__(self, store: MessageStore, config: BrokerConfig, clock: Clock) -> None:
        self._store, self._config, self._clock = store, config, clock
        self._loop = asyncio.get_running_loop()
        self._folder = store.path
        self._check_path = os.path.join(store.path, "config", "timercheck")
        self.counts = TimerCounts(store.path, clock=clock)
        self.timers: Timers | None = None
        self._check = TimerCheck()
        self._kept: tuple[int, ...] = ()  # numbers of what the last persist() wrote
        self._persisting = threading.Lock()
        self._idle: asyncio.Future[None] | None = None
        self._skipped = 0
        self._is_refused = False
        self._counts_at = self._clean_at = clock()
        self._must_persist = False
        self._is_first = True  # the next step is the first one
        if any(os.path.lexists(os.path.join(self._folder, name)) for name in ("timerwheel", "timerlog")):
            self._open()

    # what the broker asks

    def added(self) -> None:
        """A message was put into the timer topic."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def count(self, time: int) -> int:
        """Return how many messages wait for a moment, in ms."""
        slot = None if self.timers is None else self.timers.wheel.slot(time)
        return 0 if slot is None else slot[2]

    @property
    def enqueued(self) -> int:
        """How many messages came into the wheel since the start."""
        return 0 if self.timers is None else self.timers.enqueued

    @property
    def delivered(self) -> int:
        """How many messages came out of the wheel since the start, those that were rolled included."""
        return 0 if self.timers is None else self.timers.delivered

    @property
    def pending(self) -> int:
        """How many messages wait in the wheel. A recall of a message that is not there counts as -1 until it is due."""
        return 0 if self.timers is None else max(self.timers.pending, 0)

    @property
    def offset_behind(self) -> int:
        """How many messages of the timer topic are not in the wheel yet."""
        done = 0 if self.timers is None else self.timers.queue_offset
        return max(self._store.max_offset(names.TIMER_TOPIC, 0) - done, 0)

    @property
    def read_behind(self) -> int:
        """How many ms the deliveries are late."""
        if self.timers is None or self.timers.read_time > self.timers.last_due:
            return 0
        return max(self._clock() - self.timers.read_time - self.timers.step, 0)

    def checkpoint(self) -> TimerCheck:
        """Return how far timed messages are delivered and in the wheel now; of a slave, what its master has said."""
        timers, now = self.timers, self._clock()
        if timers is None:
            return timer_check.read(self._check_path) or TimerCheck(now - now % self._config.timer_precision_ms)
        offset = timers.queue_offset
        return dataclasses.replace(
            self._check,
            last_read_time_ms=timers.read_time,
            last_timer_queue_offset=offset,
            master_timer_queue_offset=offset,
            timestamp=now,
        )

    # files

    def _open(self) -> Timers:
        """Open or create the files, and continue where the last broker ended."""
        config = self._config
        log = TimerLog(os.path.join(self._folder, "timerlog"), config.mapped_file_size_timer_log)
        if problems := log.load():
            _log.warning("%s: %d files do not belong to the timer log; they are not read", log.folder, problems)
        wheel = TimerWheel(os.path.join(self._folder, "timerwheel"), config.timer_precision_ms)
        check = self._checked(timer_check.read(self._check_path), wheel, log)
        timers = self._timers(wheel, log, check.read_time, check.last_timer_queue_offset)
        self._recover(timers, check)
        self.timers, self._check = timers, check
        return timers

    def _timers(self, wheel: TimerWheel, log: TimerLog, read_time: int, queue_offset: int) -> Timers:
        store, slots = self._store, roll_slots(self._config)
        deliver = Deliveries(store, names.REAL_TOPIC, names.REAL_QUEUE, "")
        return Timers(store, deliver, wheel, log, _NAMES, slots, read_time, queue_offset)

    def _checked(self, check: TimerCheck | None, wheel: TimerWheel, log: TimerLog) -> TimerCheck:
        """Return what timercheck says, with another read time if the time can't be true; None: it is missing."""
        now, step = self._clock(), wheel.precision_ms
        if check is not None and check.read_time <= now + step:
            return check
        if (wheel.is_new or check is None) and log.last >= 0:  # a power cut may leave some of its pages, or none
            log.cut_damaged(0 if check is None else check.last_timer_log_flush_pos)
            log.cut_lost(self._store.max_phy_offset)
            unit = log.unit(log.last) if log.last >= 0 else None
            newest = now if unit is None else unit[2] + roll_slots(self._config) * step
            self._timers(wheel, log, max(newest + step - wheel.span_ms, 0), 0).apply(log.start)
        start = TimerStart(self._store, wheel, log)
        if check is None:
            read_time, check = start.without_check(now), TimerCheck()
            is_told = read_time < now
        else:
            found = start.instead_of(check.read_time)
            read_time, is_told = (check.read_time, False) if found is None else (found, True)
        if is_told:
            _log.warning(
                "%s: it is missing or wrong; timed messages that were due from %d on are delivered, some of them again",
                self._check_path, read_time,
            )  # fmt: skip
        return dataclasses.replace(check, last_read_time_ms=read_time)

    def _recover(self, timers: Timers, check: TimerCheck) -> None:
        """Compare wheel, log and commit log; find the next message of the timer topic."""
        store, log = self._store, timers.log
        flushed = check.last_timer_log_flush_pos
        log.cut_damaged(flushed)  # pages of it were not written before the power was cut
        log.cut_lost(store.max_phy_offset)  # the commit log lost its end
        next_offset = timers.offset_of(log.last) + 1 if log.last >= 0 else 0
        first, end = store.min_offset(names.TIMER_TOPIC, 0), store.max_offset(names.TIMER_TOPIC, 0, committed=False)
        if timers.queue_offset > end:  # damaged, or the commit log lost its end
            timers.queue_offset = next_offset
        if flushed > log.end:
            _log.warning(
                "%s: the timer log ends at %d, but it was durable up to %d; its end is made again",
                log.folder,
                log.end,
                flushed,
            )
            timers.repeated_until, timers.repeated_read_time = timers.queue_offset, timers.read_time
            timers.queue_offset = next_offset
        else:
            timers.queue_offset = max(timers.queue_offset, next_offset)
        timers.queue_offset = max(first, min(timers.queue_offset, end))
        timers.apply(log.start if timers.wheel.is_new or flushed > log.end else flushed)
        if not timers.check_slots():
            _log.warning("%s: slots do not match the timer log; the wheel is made again", timers.wheel.path)
            timers.wheel.clear_all()
            timers.apply(log.start)
            timers.check_slots()
        if timers.wheel.is_other:
            _log.warning("%s: timerPrecisionMs was changed; timed messages are read again", timers.wheel.path)
            timers.repeated_until, timers.repeated_read_time = timers.queue_offset, timers.read_time
            timers.queue_offset = first
            log.cut(log.start)
            timers.wheel.clear_all()
            timers.check_slots()

    # the loop

    async def run(self) -> None:
        """Deliver timed messages for ever."""
        await asyncio.sleep(START_SECONDS)
        wrong = None
        while True:
            try:
                seconds = await self._step()
                wrong = None
            except Exception as error:  # any: it continues, as in RocketMQ
                seconds = ERROR_SECONDS
                _log.log(
                    logging.DEBUG if str(error) == wrong else logging.WARNING,
                    "timed messages are not delivered: %s; it is tried again", error,
                )  # fmt: skip
                wrong = str(error)
            await (asyncio.sleep(seconds) if seconds == ERROR_SECONDS else self._pause(seconds))

    async def _pause(self, seconds: float) -> None:
        """Wait for some seconds, or until a timed message was put and a little more, so that a step takes several."""
        if seconds <= PUT_SECONDS:
            await asyncio.sleep(seconds)
            return
        future = self._idle = self._loop.create_future()
        timer = self._loop.call_later(seconds - PUT_SECONDS, self.added)
        try:
            await future
        finally:
            timer.cancel()
            self._idle = None
        await asyncio.sleep(PUT_SECONDS)

    async def _step(self) -> float:
        """Deliver what is due, and put new messages into the wheel; return the seconds until the next step."""
        timers = self.timers
        if timers is None:
            if self._store.max_offset(names.TIMER_TOPIC, 0, committed=False) == 0:
                return IDLE_SECONDS
            timers = self._open()
        now = self._clock()
        if now - now % timers.step < timers.read_time - timers.step:
            _log.warning("the clock was set back by %d ms; timed messages follow it", timers.read_time - now)
            await self._in_thread(self._store.flush)  # so that no message is delivered twice
            timers.rewind(now)
            self._must_persist = True
        if self._must_persist:  # before a message comes into a slot that counted as delivered
            await self._in_thread(self.persist)
        is_behind = now - timers.read_time > BEHIND_MS and timers.read_time <= timers.last_due
        if (self._is_first or is_behind) and not await self._catch_up(timers):
            return AGAIN_SECONDS
        if not await self._deliver_due(timers):
            return AGAIN_SECONDS
        if (seconds := await self._take_in(timers)) is not None:
            return seconds
        if timers.read_time > timers.last_due:
            is_put = self._store.max_offset(names.TIMER_TOPIC, 0, committed=False) > timers.queue_offset
            return AGAIN_SECONDS if is_put else IDLE_SECONDS
        now = self._clock()
        return min((timers.step - now % timers.step) / 1000, MOST_SECONDS)

    async def _deliver_due(self, timers: Timers) -> bool:
        """Deliver all messages that are due; return False if the store refuses one."""
        touched = 0  # slices whose pages are in memory
        while True:
            touched = max(touched - 1, 0) if timers.to_deliver else 0
            if self._store.background and timers.to_deliver and touched == 0:
                await self._in_thread(timers.touch)
                touched = SLICES
            done = timers.dequeue(self._clock())
            self._note(timers, done.status)
            if done.is_done or done.status is not PutStatus.PUT_OK:
                return done.status is PutStatus.PUT_OK
            await asyncio.sleep(0)

    async def _catch_up(self, timers: Timers) -> bool:
        """Put the messages that came while nothing was delivered into the wheel. So a recall deletes its message,
        although both are due by now: after a kill, or when the clock was set forward.

        Return False if the store has not dispatched them yet.
        """
        end = self._store.max_offset(names.TIMER_TOPIC, 0, committed=False)
        while timers.queue_offset < end:
            seconds = await self._take_in(timers, is_behind=True)
            if seconds != 0:
                return seconds is not None  # the wheel is full before some are delivered, or the store refuses
        self._is_first = False
        return True

    async def _take_in(self, timers: Timers, is_behind: bool = False) -> float | None:
        """Put new messages of the timer topic into the wheel; return the seconds to wait; None: until the next slot."""
        try:
            found = await self._read(timers.queue_offset)
        except CorruptRecordError as error:
            _log.warning("timed message %d is damaged, it is skipped: %s", timers.queue_offset, error)
            timers.queue_offset += 1
            return 0.0
        with found:
            if found.status is not GetStatus.FOUND:
                if found.next_offset != timers.queue_offset:  # the log no longer has them
                    timers.queue_offset = found.next_offset
                    return AGAIN_SECONDS
                return None
            row = 0
            while row < len(found):
                done = timers.enqueue(found, row, self._clock(), is_behind)
                row = done.row
                self._note(timers, done.status)
                if done.waits or done.status is not PutStatus.PUT_OK:
                    return AGAIN_SECONDS
                await asyncio.sleep(0)
        return 0.0

    def _note(self, timers: Timers, status: PutStatus) -> None:
        """Count and log what a slice has done."""
        for topic, change in timers.take_counts().items():
            self.counts.add(topic, change)
        if timers.skipped > self._skipped:
            _log.warning(
                "%d timed messages before %d of the timer topic can't be delivered; they are skipped",
                timers.skipped - self._skipped, timers.queue_offset,
            )  # fmt: skip
            self._skipped = timers.skipped
        if status is not PutStatus.PUT_OK and not self._is_refused:
            _log.warning("a timed message is refused: %s; it is tried again", status.name)
        self._is_refused = status is not PutStatus.PUT_OK
        if (now := self._clock()) >= self._clean_at + CLEAN_MS:
            self._clean_at = now
            timers.log.delete_before(self._store.min_phy_offset)

    async def _read(self, offset: int) -> RawGetResult:
        """Read messages of the timer topic. A thread reads them once, so that the loop never waits for the disk."""
        if not self._store.background or self._store.max_offset(names.TIMER_TOPIC, 0) <= offset:
            return self._get(offset)
        return await self._in_thread(lambda: self._touched(offset))

    def _touched(self, offset: int) -> RawGetResult:
        found = self._get(offset)
        found.touch()
        return found

    def _get(self, offset: int) -> RawGetResult:
        return self._store.get_raw(names.TIMER_TOPIC, 0, offset, READ_RECORDS, max_bytes=READ_BYTES)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if not self._store.background:
            return work()
        running = self._loop.run_in_executor(None, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})  # the store is closed after this
            raise

    # the disk

    def persist(self, *, last: bool = False) -> bool:
        """Make durable what was done, then write how far; return False if nothing changed. It waits for the disk.

        last  the broker ends: all is written
        The delivered messages, the timer log and the wheel come first: after a power cut, no message is missing.
        Raises StoreIOError, StoreFullError and the errors of a flush.
        """
        with self._persisting:  # an earlier write, on another thread, must not come after this one
            is_changed = self._persist(last)
            now = self._clock()
            if self.counts.changed and (last or not self._counts_at <= now < self._counts_at + COUNTS_MS):
                self._counts_at = now
                self.counts.persist()
            return is_changed

    def _persist(self, last: bool) -> bool:
        timers = self.timers
        if timers is None:
            return False
        is_forced = self._must_persist
        read_time, offset = timers.read_time, timers.queue_offset
        kept = (offset, timers.log.end, timers.delivered, timers.recalled, timers.skipped)
        if kept == self._kept and not last and not is_forced:
            return False
        before = self._check
        self._store.flush()
        flushed = timers.log.flush()
        timers.wheel.flush()
        check = TimerCheck(read_time, flushed, offset, offset, before.state_version, self._clock(), before.counter + 1)
        timer_check.write(self._check_path, check)
        self._check, self._kept = check, kept
        if is_forced:  # not for a change of the clock after the line above
            self._must_persist = False
        return True

    def close(self) -> None:
        """Unmap the files, after the last persist()."""
        if self.timers is not None:
            self.timers.wheel.close()


def forget_wheel(root: str | os.PathLike[str]) -> None:
    """Remove the timer wheel and the timer log of a store that a slave opens; nothing happens without them.

    A slave does not keep them up to date. When it becomes the master, it makes them from the timer topic; timercheck
    says which of the messages were delivered. Raises StoreIOError.

    >>> import tempfile
    >>> forget_wheel(tempfile.mkdtemp())
    """
    path, log = (os.path.join(os.fspath(root), name) for name in ("timerwheel", "timerlog"))
    if not os.path.lexists(path) and not os.path.lexists(log):
        return
    check_path = os.path.join(os.fspath(root), "config", "timercheck")
    check = timer_check.read(check_path)
    if check is not None and check.last_timer_log_flush_pos == 0:
        timer_check.write(check_path, dataclasses.replace(check, last_timer_log_flush_pos=1))
    with errors_named(log):
        for name in os.listdir(log) if os.path.isdir(log) else ():
            os.unlink(os.path.join(log, name))
    with errors_named(log), contextlib.suppress(FileNotFoundError):
        os.rmdir(log)
    with errors_named(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def roll_slots(config: BrokerConfig) -> int:
    """Return the slots of the roll window: those of the settings, or the most that the wheel and a unit allow.

    >>> roll_slots(BrokerConfig()), roll_slots(BrokerConfig(timer_roll_window_slot=1_000_000))
    (172800, 604740)
    """
    in_unit = ((1 << 31) - 1) // config.timer_precision_ms - SLOTS // 128
    return max(min(config.timer_roll_window_slot, SLOTS // 2 - 60, in_unit), 2)
