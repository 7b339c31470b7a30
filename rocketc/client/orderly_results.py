"""The turns of an orderly listener: when it may consume, and what follows from its result.

One turn at a time runs for each queue, because ProcessQueue.put() asks for it only then.
Source: RocketMQ ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from rocketc.client.consume_results import ConsumeOrderlyStatus
from rocketc.client.offset_stores import OffsetTable
from rocketc.client.process_queue import NOTHING, ProcessQueue
from rocketc.client.routes import MessageQueue
from rocketc.client.send_backs import Failed, LocalRetries
from rocketc.remoting.subscribing import MessageModel

RUN_MS = 60_000  # rocketmq.client.maxTimeConsumeContinuously
SOON_MS = 10  # until the next turn, or the next try to lock
LOCK_FIRST_MS = 100  # until a try to lock, before the first message of a turn
LOCK_REFUSED_MS = 3_000  # until the next turn if the broker refused the lock
LATER_MS = range(10, 30_001)  # allowed pauses of a queue

M = TypeVar("M", bound=Failed)


class Turn(enum.Enum):
    """What a turn may do now.

    END    nothing: the queue belongs to another consumer
    LOCK   after the delay, ask the broker for the lock. Begin a turn SOON_MS after that; if it refuses, LOCK_REFUSED_MS
    AGAIN  end this turn, and begin another after the delay: other queues need the thread
    TAKE   take messages; if there are none, the turn ends
    """

    END = "END"
    LOCK = "LOCK"
    AGAIN = "AGAIN"
    TAKE = "TAKE"


def turn(held: ProcessQueue[M], now: int, begun: int | None, model: MessageModel) -> tuple[Turn, int]:
    """Return what a turn may do, and after which delay in ms. Ask before each call of the listener.

    begun  when the turn began; None: it begins now

    >>> turn(ProcessQueue(), 0, None, MessageModel.CLUSTERING)
    (<Turn.LOCK: 'LOCK'>, 100)
    >>> turn(ProcessQueue(), 0, None, MessageModel.BROADCASTING)
    (<Turn.TAKE: 'TAKE'>, 0)
    """
    if held.is_dropped:
        return Turn.END, 0
    if model is not MessageModel.BROADCASTING and (not held.is_locked or held.is_lock_expired(now)):
        return Turn.LOCK, LOCK_FIRST_MS if begun is None else SOON_MS
    if begun is not None and now - begun > RUN_MS:
        return Turn.AGAIN, SOON_MS
    return Turn.TAKE, 0


class Check(NamedTuple):
    """The messages of a suspended call.

    dead     failed too many times: send each to the retry topic with retry_send(); the broker makes it a dead letter
    suspend  the others
    """

    dead: Sequence[Failed]
    suspend: Sequence[Failed]


def check_times(messages: Sequence[M], retries: LocalRetries, most: int) -> Check:
    """Divide the messages of a call that ended with SUSPEND_CURRENT_QUEUE_A_MOMENT.

    most  most_times()

    >>> from types import SimpleNamespace
    >>> check_times([SimpleNamespace(queue_offset=1, reconsume_times=3)], LocalRetries(), 3).suspend
    []
    """
    dead = [message for message in messages if retries.times(message) >= most]
    return Check(dead, [message for message in messages if retries.times(message) < most])


class OrderlyStep(NamedTuple):
    """What follows from a result.

    continues  the turn continues: ask turn()
    delay      ms until the next turn, if it ends
    is_misuse  the listener returned COMMIT or ROLLBACK, but commits are automatic: log it
    """

    continues: bool
    delay: int = 0
    is_misuse: bool = False


class OrderlyQueue(Generic[M]):
    """Applies the results of an orderly listener to one queue.

    later_ms  pause of the queue after a failure (suspendCurrentQueueTimeMillis)

    >>> from types import SimpleNamespace
    >>> held, queue, store = ProcessQueue(), MessageQueue("orders", "broker-a", 0), OffsetTable()
    >>> _ = held.put([SimpleNamespace(queue_offset=4, reconsume_times=0, body=b"")], now=0)
    >>> orderly, messages = OrderlyQueue(queue, held, store), held.take(1, now=0)
    >>> orderly.apply(messages, ConsumeOrderlyStatus.SUCCESS)
    OrderlyStep(continues=True, delay=0, is_misuse=False)
    >>> store.get(queue)
    5
    """

    def __init__(self, queue: MessageQueue, held: ProcessQueue[M], store: OffsetTable, later_ms: int = 1_000) -> None:
        self._queue, self._held, self._store, self._later_ms = queue, held, store, later_ms
        self.retries = LocalRetries()

    def apply(
        self,
        messages: Sequence[M],
        status: ConsumeOrderlyStatus,
        *,
        auto_commit: bool = True,
        later_ms: int = -1,
        suspended: Collection[Failed] | None = None,
    ) -> OrderlyStep:
        """Commit, keep, or return the messages of one call.

        auto_commit  each success is committed; otherwise only what the listener commits
        later_ms     pause that the listener chose; -1: that of the consumer
        suspended    after SUSPEND_CURRENT_QUEUE_A_MOMENT: check_times().suspend, and the dead messages that could not
                     be sent. If it is empty, the call counts as a success; None: all messages
        A message that was sent is delivered again if another one of its call suspends.
        """
        kind = ConsumeOrderlyStatus
        if status is kind.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            again = list(messages) if suspended is None else list(suspended)
            if again:
                self.retries.add(again)
                self._held.make_again(messages)
                return OrderlyStep(False, self._delay(later_ms))
            status = kind.SUCCESS
        if status is kind.ROLLBACK and not auto_commit:
            self._held.rollback()
            return OrderlyStep(False, self._delay(later_ms))
        if auto_commit or status is kind.COMMIT:
            self._commit()
        return OrderlyStep(True, is_misuse=auto_commit and status is not kind.SUCCESS)

    def _commit(self) -> None:
        offset = self._held.commit()
        if offset == NOTHING:
            return
        self.retries.forget(offset)
        if not self._held.is_dropped:
            self._store.update(self._queue, offset, increase_only=False)

    def _delay(self, chosen: int) -> int:
        delay = self._later_ms if chosen == -1 else chosen
        return max(LATER_MS[0], min(delay, LATER_MS[-1]))
