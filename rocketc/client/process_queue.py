"""The messages of one queue that a consumer has pulled and not finished, and the offset that it may commit.

It knows neither sockets nor clocks: times are arguments. Use it on one thread, which is that of the client's loop.
Source: RocketMQ ProcessQueue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

LOCK_LIVE_MS = 30_000  # rocketmq.client.rebalance.lockMaxLiveTime
PULL_IDLE_MS = 120_000  # rocketmq.client.pull.pullMaxIdleTime
NOTHING = -1  # there is no offset to commit

_MIB = 1 << 20


class Queued(Protocol):
    """What a message must have: its offset in the queue, and its body."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def body(self) -> bytes: ...


M = TypeVar("M", bound=Queued)


class ProcessQueue(Generic[M]):
    """The messages of a queue between the pull and the commit, ordered by offset.

    A concurrent consumer uses put() and remove(). An orderly consumer uses put(), take(), and one of commit(),
    rollback() and make_again(). The time of a call depends on the number of its messages, not on that of the queue, as
    long as messages come in the order of their offsets.

    pulled_to          the offset after what was pulled, messages that no put() added included
    size               bytes of the bodies of all messages
    is_dropped         the queue belongs to another consumer now, or its offset was reset: results count no more
    is_locked          a broker gave the lock of the queue to this consumer, which orderly consumers need
    is_consuming       an orderly consumer works on the queue
    behind             messages that the broker had after the last one that was put, as far as the broker said
    last_pull, last_consume, last_lock  ms of the caller's clock

    >>> from types import SimpleNamespace
    >>> messages = [SimpleNamespace(queue_offset=offset, body=b"") for offset in (5, 6, 7)]
    >>> queue = ProcessQueue()
    >>> queue.put(messages, now=0)
    True
    >>> queue.remove(messages[1:2]), queue.remove(messages[:1]), queue.remove(messages[2:])
    (5, 7, 8)
    """

    def __init__(self, now: int = 0) -> None:
        self._waiting: dict[int, M] = {}  # by offset
        self._order: deque[int] = deque()  # sorted offsets of `_waiting`, and of removed messages between its ends
        self._in_hand: dict[int, M] = {}  # by an orderly consumer, not committed yet
        self._started: dict[int, int] = {}  # when the consumption of a message began
        self._arrivals: deque[tuple[int, int]] = deque()  # of each put: the offset after its last message, and when
        self._size = 0
        self.pulled_to = 0
        self.is_dropped = False
        self.is_locked = False
        self.is_consuming = False
        self.behind = 0
        self.last_pull = self.last_consume = self.last_lock = now

    def __len__(self) -> int:
        """The number of messages, those that an orderly consumer has taken included."""
        return len(self._waiting) + len(self._in_hand)

    def __contains__(self, offset: int) -> bool:
        """Whether the message with this offset waits, or is with a concurrent consumer."""
        return offset in self._waiting

    @property
    def size(self) -> int:
        return self._size

    @property
    def size_mib(self) -> int:
        """Whole MiB of the bodies."""
        return self._size // _MIB

    @property
    def span(self) -> int:
        """The difference of the last and the first offset; 0 if there is no message."""
        return self._order[-1] - self._order[0] if self._order else 0

    def put(self, messages: Sequence[M], now: int, max_offset: int | None = None) -> bool:
        """Add the messages of a pull, in the order of their offsets. Known offsets are ignored.

        max_offset  of the queue, as the broker said with the pull
        Returns whether an orderly consumer has to start to work on the queue; then `is_consuming` is set.
        """
        self.last_pull = now
        waiting, order, size = self._waiting, self._order, 0
        greatest = order[-1] if order else -1
        if self._in_hand:
            greatest = max(greatest, max(self._in_hand))
        late: list[M] = []
        for message in messages:
            offset = message.queue_offset
            if offset > greatest:
                waiting[offset] = message
                order.append(offset)
                greatest = offset
                size += len(message.body)
            else:
                late.append(message)
        self._size += size
        if len(late) < len(messages):
            self._arrivals.append((greatest + 1, now))
        if late:
            self._put_late(late)
        if order:
            self.skip_to(order[-1] + 1)
        if messages and max_offset is not None and max_offset > messages[-1].queue_offset:
            self.behind = max_offset - messages[-1].queue_offset
        if self._waiting and not self.is_consuming:
            self.is_consuming = True
            return True
        return False

    def skip_to(self, offset: int) -> None:
        """Note that no other message before this offset is to be consumed: a pull found none, or a filter dropped them.

        >>> from types import SimpleNamespace
        >>> message, queue = SimpleNamespace(queue_offset=5, body=b""), ProcessQueue()
        >>> _ = queue.put([message], now=0), queue.skip_to(9)
        >>> queue.remove([message])
        9
        """
        self.pulled_to = max(self.pulled_to, offset)

    def remove(self, messages: Iterable[M]) -> int:
        """Remove messages that a concurrent consumer has finished.

        Returns the offset to commit: that of the first message that is left, or `pulled_to`.
        Returns NOTHING if the queue was empty before.
        """
        if not self._waiting:
            return NOTHING
        waiting, started, size = self._waiting, self._started, 0
        for message in messages:
            offset = message.queue_offset
            found = waiting.pop(offset, None)
            if found is not None:
                size += len(found.body)
                if started:
                    started.pop(offset, None)
        self._size -= size
        return self._strip()

    def _strip(self) -> int:
        """Drop the offsets of removed messages at both ends of `_order`. Returns the offset to commit."""
        waiting, order = self._waiting, self._order
        if not waiting:
            order.clear()
            self._forget_arrivals()
            return self.pulled_to
        while order[0] not in waiting:
            order.popleft()
        self._forget_arrivals()
        while order[-1] not in waiting:
            order.pop()
        return order[0]

    def _first(self) -> int:
        """Return the offset of the first message that waits, or that of the next one to come."""
        return self._order[0] if self._order else self.pulled_to

    def _forget_arrivals(self) -> None:
        """Forget the times of puts whose messages have all left."""
        if not self._in_hand:
            first = self._first()
            while self._arrivals and self._arrivals[0][0] <= first:
                self._arrivals.popleft()

    def start(self, messages: Iterable[M], now: int) -> None:
        """Note when a concurrent consumer begins with these messages, for expired()."""
        self.last_consume = now
        started = self._started
        for message in messages:
            started[message.queue_offset] = now

    def started(self, offset: int) -> int | None:
        """Return when the consumption of a message began; None if that is not known."""
        return self._started.get(offset)

    def arrivals(self, messages: Iterable[M]) -> list[tuple[int, int]]:
        """Return (when messages were put, how many of these), for messages that are still here.

        >>> from types import SimpleNamespace
        >>> queue = ProcessQueue()
        >>> messages = [SimpleNamespace(queue_offset=offset, body=b"") for offset in (5, 6, 7)]
        >>> _ = queue.put(messages[:2], now=10), queue.put(messages[2:], now=20)
        >>> queue.arrivals(messages)
        [(10, 2), (20, 1)]
        """
        found: list[tuple[int, int]] = []
        at, past, count = 0, -1, 0
        for message in messages:
            offset = message.queue_offset
            if offset >= past or not count:
                if count:
                    found.append((at, count))
                past, at = next((one for one in self._arrivals if offset < one[0]), (-1, 0))
                count = 0
                if past < 0:
                    continue
            count += 1
        if count:
            found.append((at, count))
        return found

    def expired(self, now: int, timeout: int) -> M | None:
        """Return the first message if its consumption began more than `timeout` ms ago, or None.

        The caller sends it back to the broker with the delay level 3. After that, it calls remove_first(). RocketMQ
        repeats this 16 times at most in one pass.
        """
        if not self._order:
            return None
        first = self._order[0]
        started = self._started.get(first)
        return self._waiting[first] if started is not None and now - started > timeout else None

    def remove_first(self, message: M) -> bool:
        """Remove a message if it is still the first one; returns whether it was. The offset is committed later."""
        if not self._order or self._waiting[self._order[0]] is not message:
            return False
        self.remove([message])
        return True

    def take(self, count: int, now: int) -> list[M]:
        """Return the first messages for an orderly consumer, `count` at most; they stay here as taken.

        If there is none, the consumer has finished: `is_consuming` is cleared.
        """
        self.last_consume = now
        waiting, order, taken = self._waiting, self._order, self._in_hand
        given: list[M] = []
        while order and len(given) < count:
            offset = order.popleft()
            message = waiting.pop(offset, None)
            if message is not None:
                taken[offset] = message
                given.append(message)
        if not given:
            self.is_consuming = False
        if len(order) != len(waiting):
            self._strip()
        return given

    def commit(self) -> int:
        """Remove all taken messages. Returns the offset to commit; NOTHING if no message was taken.

        It is that of the first message that still waits, or `pulled_to`.
        """
        if not self._in_hand:
            return NOTHING
        self._size -= sum(len(message.body) for message in self._in_hand.values())
        self._in_hand.clear()
        self._forget_arrivals()
        return self._first()

    def rollback(self) -> None:
        """Return all taken messages to the queue: the next take() returns them again."""
        self._return(sorted(self._in_hand))

    def make_again(self, messages: Iterable[M]) -> None:
        """Return some of the taken messages to the queue: the next take() returns them again."""
        self._return(sorted({message.queue_offset for message in messages} & self._in_hand.keys()))

    def _return(self, offsets: list[int]) -> None:
        if not offsets:
            return
        for offset in offsets:
            self._waiting[offset] = self._in_hand.pop(offset)
        if not self._order or offsets[-1] < self._order[0]:
            self._order.extendleft(reversed(offsets))
        else:
            self._order = deque(sorted(self._waiting))

    def clear(self) -> None:
        """Forget all messages, for a reset of the offset. The next put() is as that of a new queue."""
        self._waiting.clear()
        self._order.clear()
        self._in_hand.clear()
        self._started.clear()
        self._arrivals.clear()
        self._size = self.pulled_to = 0

    def set_locked(self, now: int) -> None:
        """A broker gave the lock of this queue, or renewed it."""
        self.is_locked, self.last_lock = True, now

    def is_lock_expired(self, now: int) -> bool:
        """Whether the lock is so old that the broker may have given it to another consumer."""
        return now - self.last_lock > LOCK_LIVE_MS

    def is_pull_expired(self, now: int) -> bool:
        """Whether the last pull is too long ago: the queue has to be removed and added again."""
        return now - self.last_pull > PULL_IDLE_MS

    def info(self, commit_offset: int) -> dict[str, int | bool]:
        """Return what a consumer reports about the queue, under RocketMQ's names (ProcessQueueInfo)."""
        return {
            "cachedMsgCount": len(self._waiting),
            "cachedMsgMaxOffset": self._order[-1] if self._order else 0,
            "cachedMsgMinOffset": self._order[0] if self._order else 0,
            "cachedMsgSizeInMiB": self.size_mib,
            "commitOffset": commit_offset,
            "droped": self.is_dropped,
            "lastConsumeTimestamp": self.last_consume,
            "lastLockTimestamp": self.last_lock,
            "lastPullTimestamp": self.last_pull,
            "locked": self.is_locked,
            "transactionMsgCount": len(self._in_hand),
            "transactionMsgMaxOffset": max(self._in_hand, default=0),
            "transactionMsgMinOffset": min(self._in_hand, default=0),
            "tryUnlockTimes": 0,
        }

    def _put_late(self, messages: Iterable[M]) -> None:
        """Add messages whose offsets are not greater than the last one."""
        size, known = 0, len(self._waiting)
        for message in messages:
            offset = message.queue_offset
            if offset not in self._waiting and offset not in self._in_hand:
                self._waiting[offset] = message
                size += len(message.body)
        if len(self._waiting) > known:
            self._size += size
            self._order = deque(sorted(self._waiting))
