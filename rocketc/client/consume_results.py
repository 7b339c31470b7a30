"""What follows from the result of a concurrent listener: which messages return to the broker, what is committed.

Source: RocketMQ ConsumeMessageConcurrentlyService, ConsumeMessageDirectlyResult.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rocketc.client.offset_stores import OffsetTable
from rocketc.client.process_queue import NOTHING, ProcessQueue, Queued
from rocketc.client.routes import MessageQueue
from rocketc.remoting.subscribing import MessageModel

RETRY_LOCALLY_MS = 5_000  # until a listener gets unsent messages again, and until a full pool is tried again
EACH_MESSAGE = (1 << 31) - 1  # the ack index of a listener that sets none

M = TypeVar("M", bound=Queued)


class ConsumeConcurrentlyStatus(enum.Enum):
    """What a concurrent listener may return."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(enum.Enum):
    """What an orderly listener may return. COMMIT and ROLLBACK are for listeners that commit themselves."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


def concurrently_status(returned: object) -> ConsumeConcurrentlyStatus:
    """Return the status that a listener means; any value that is not a status is success.

    A listener that raises means RECONSUME_LATER. Raises TypeError for a status of orderly listeners.

    >>> concurrently_status(None)
    <ConsumeConcurrentlyStatus.CONSUME_SUCCESS: 'CONSUME_SUCCESS'>
    """
    if isinstance(returned, ConsumeOrderlyStatus):
        raise TypeError(f"a listener returned {returned!r}; expected a ConsumeConcurrentlyStatus")
    return returned if isinstance(returned, ConsumeConcurrentlyStatus) else ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def orderly_status(returned: object) -> ConsumeOrderlyStatus:
    """Return the status that a listener means; any value that is not a status is success.

    A listener that raises means SUSPEND_CURRENT_QUEUE_A_MOMENT. Raises TypeError for a status of concurrent listeners.

    >>> orderly_status(None)
    <ConsumeOrderlyStatus.SUCCESS: 'SUCCESS'>
    """
    if isinstance(returned, ConsumeConcurrentlyStatus):
        raise TypeError(f"a listener returned {returned!r}; expected a ConsumeOrderlyStatus")
    return returned if isinstance(returned, ConsumeOrderlyStatus) else ConsumeOrderlyStatus.SUCCESS


def batches(messages: Sequence[M], consume_message_batch_max_size: int = 1) -> Iterator[Sequence[M]]:
    """Divide the messages of a pull into the batches that listeners get.

    >>> list(batches("abcde", 2))
    ['ab', 'cd', 'e']
    """
    for at in range(0, len(messages), consume_message_batch_max_size):
        yield messages[at : at + consume_message_batch_max_size]


@dataclass(frozen=True)
class ConcurrentResult(Generic[M]):
    """What to do with the messages of one call of a listener.

    failed   send each back to the broker (send_back_fields(), then retry_send()), before finish() is called
    ignored  failed messages of a broadcasting consumer: log them; they count as consumed
    """

    failed: Sequence[M]
    ignored: Sequence[M]


_ALL_CONSUMED: ConcurrentResult[Any] = ConcurrentResult((), ())


def concurrent_result(
    messages: Sequence[M],
    status: ConsumeConcurrentlyStatus,
    held: ProcessQueue[M],
    model: MessageModel,
    ack_index: int = EACH_MESSAGE,
) -> ConcurrentResult[M] | None:
    """Return what follows from the result of a listener; None if the queue was dropped: then nothing follows.

    ack_index  index of the last message that was consumed, if the status is success

    >>> from types import SimpleNamespace
    >>> messages, held = [SimpleNamespace(queue_offset=i, body=b"") for i in (4, 5)], ProcessQueue()
    >>> _ = held.put(messages, now=0)
    >>> result = concurrent_result(messages, concurrently_status(None), held, MessageModel.CLUSTERING, ack_index=0)
    >>> [message.queue_offset for message in result.failed]
    [5]
    """
    if held.is_dropped:
        return None
    consumed = max(0, ack_index + 1) if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS else 0
    rest = messages[consumed:]
    if not rest:
        return _ALL_CONSUMED
    if model is MessageModel.BROADCASTING:
        return ConcurrentResult((), rest)
    # One that is missing took too long: it was sent back already.
    return ConcurrentResult([message for message in rest if message.queue_offset in held], ())


def finish(
    queue: MessageQueue,
    messages: Sequence[M],
    held: ProcessQueue[M],
    store: OffsetTable,
    unsent: Collection[M] = (),
) -> Sequence[M]:
    """Remove consumed messages from the process queue, and keep the offset to commit in the store.

    messages  all messages of the call of the listener
    unsent    those that could not be sent back. They stay: count them in LocalRetries, and give the returned list to
              the listener again after RETRY_LOCALLY_MS
    Returns the unsent messages in their order.

    >>> from types import SimpleNamespace
    >>> messages = [SimpleNamespace(queue_offset=i, body=b"") for i in (4, 5)]
    >>> held, store = ProcessQueue(), OffsetTable()
    >>> _ = held.put(messages, now=0)
    >>> queue = MessageQueue("orders", "broker-a", 0)
    >>> finish(queue, messages, held, store), store.get(queue)
    ([], 6)
    """
    again: list[M] = []
    if unsent:
        offsets = {message.queue_offset for message in unsent}
        again = [message for message in messages if message.queue_offset in offsets]
        messages = [message for message in messages if message.queue_offset not in offsets]
    offset = held.remove(messages)
    if offset != NOTHING and not held.is_dropped:
        store.update(queue, offset, increase_only=True)
    return again


_DIRECTLY = {
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: "CR_SUCCESS",
    ConsumeConcurrentlyStatus.RECONSUME_LATER: "CR_LATER",
    ConsumeOrderlyStatus.SUCCESS: "CR_SUCCESS",
    ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: "CR_LATER",
    ConsumeOrderlyStatus.COMMIT: "CR_COMMIT",
    ConsumeOrderlyStatus.ROLLBACK: "CR_ROLLBACK",
}


def directly_result(
    outcome: ConsumeConcurrentlyStatus | ConsumeOrderlyStatus | Exception,
    spent_ms: int,
    *,
    is_orderly: bool,
    auto_commit: bool = True,
) -> dict[str, object]:
    """Return the body of the answer to CONSUME_MESSAGE_DIRECTLY, which an operator sends to test a listener.

    outcome  what the listener meant, or the exception that it raised

    >>> directly_result(ValueError("no amount"), 7, is_orderly=False)["remark"]
    'ValueError: no amount'
    """
    is_error = isinstance(outcome, Exception)
    return {
        "autoCommit": auto_commit,
        "consumeResult": "CR_THROW_EXCEPTION" if isinstance(outcome, Exception) else _DIRECTLY[outcome],
        "order": is_orderly,
        **({"remark": f"{type(outcome).__name__}: {outcome}"} if is_error else {}),
        "spentTimeMills": spent_ms,
    }
