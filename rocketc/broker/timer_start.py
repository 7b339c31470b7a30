"""Where the delivery of timed messages continues if timercheck is lost, or names a time that can't be true.

RocketMQ's broker begins with the oldest slot of the wheel then, and delivers again what the wheel still has. If the
time is ahead of the clock, it delivers nothing until that time.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketc._layout import PROPERTY_UNIQUE_KEY
from rocketc.broker import names
from rocketc.derived._timer_log import DELETE, ROLL, TimerLog
from rocketc.derived._timer_wheel import TimerWheel
from rocketc.errors import RocketcError
from rocketc.read._message import Message
from rocketc.store._store import MessageStore

Slot = tuple[int, int, int, int]  # time, first and last unit, count

CHAIN_MOST = 1000  # units that delete, before the last one that delivers
READ_MOST = 20_000  # messages of a queue that are compared; if the delivery is not among them, it is done again
READ_AT_ONCE = 500


class TimerStart:
    """Compares the slots of a wheel with what their queues have.

    Slots are delivered in the order of their times, so a few comparisons find the last one that was delivered. It may
    have been delivered in part, so it is delivered again.
    """

    def __init__(self, store: MessageStore, wheel: TimerWheel, log: TimerLog) -> None:
        self._store, self._wheel, self._log = store, wheel, log

    def without_check(self, now: int) -> int:
        """Return the first moment that may still have to be delivered, not later than `now`. Both are ms."""
        past = sorted(slot for slot in self._wheel.used() if slot[0] < now)
        return past[max(self._delivered(past) - 1, 0)][0] if past else now

    def instead_of(self, read_time: int) -> int | None:
        """Return a moment as without_check() for a time that is ahead of the clock, in ms.

        None: all slots before it were delivered, because the clock was ahead, too.
        """
        before = sorted(slot for slot in self._wheel.used() if slot[0] < read_time)
        done = self._delivered(before)
        return before[max(done - 1, 0)][0] if done < len(before) else None

    def _delivered(self, slots: Sequence[Slot]) -> int:
        """Return how many of the first slots were delivered; rather too few than too many."""
        least, most = 0, len(slots)
        while least < most:
            middle = (least + most) // 2
            if self._is_delivered(slots[middle]):
                least = middle + 1
            else:
                most = middle
        return least

    def _is_delivered(self, slot: Slot) -> bool:
        """Whether the last message of a slot is in its queue; True if there is no such message."""
        time, _, pos, _ = slot
        step = self._wheel.precision_ms
        for _ in range(CHAIN_MOST):
            unit = self._log.unit(pos)
            if unit is None or (unit[2] + unit[3]) // step * step != time:
                return True  # damaged, or a slot of another precision
            pos, magic, phy_offset = unit[0], unit[1], unit[4]
            if not magic & DELETE:
                break
        else:
            return False
        try:
            waiting = self._store.message(phy_offset, crc="none", decompress=False)
            return waiting is None or self._is_in_queue(waiting, time, rolls=bool(magic & ROLL))
        except (RocketcError, ValueError, KeyError):
            return True  # it is damaged, so it can't be delivered

    def _is_in_queue(self, waiting: Message, time: int, *, rolls: bool) -> bool:
        """Whether the queue that gets a message has it since a time; a message that rolls is in the timer topic."""
        store, topic, queue_id = self._store, names.TIMER_TOPIC, 0
        if not rolls:
            topic, queue_id = waiting.properties[names.REAL_TOPIC], int(waiting.properties[names.REAL_QUEUE])
        first = store.offset_by_time(topic, queue_id, time)
        end = store.max_offset(topic, queue_id)
        for offset in range(first, min(end, first + READ_MOST), READ_AT_ONCE):
            found = store.get(topic, queue_id, offset, READ_AT_ONCE, max_bytes=1 << 30, decompress=False)
            if any(_is_same(one, waiting) for one in found.messages):
                return True
        return False


def _is_same(one: Message, other: Message) -> bool:
    keys = (PROPERTY_UNIQUE_KEY, names.TIMER_OUT_MS)
    return one.born_timestamp == other.born_timestamp and all(
        one.properties.get(key) == other.properties.get(key) for key in keys
    )
