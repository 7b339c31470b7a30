"""What a push consumer does before and after each pull: wait, pull, submit, or drop the queue. No I/O happens here.

Source: RocketMQ DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper, MQClientInstance.findBrokerAddressInSubscribe.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from rocketc.client.process_queue import ProcessQueue, Queued
from rocketc.client.routes import MessageQueue
from rocketc.client.subscriptions import SubscriptionData
from rocketc.errors import AnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.route_data import MASTER, BrokerData
from rocketc.remoting.subscribing import MessageModel, PullFlag

HOLD_MS = 15_000  # a broker may hold a pull for this time
PULL_TIMEOUT_MS = 30_000  # of the client, for one pull
FLOW_CONTROL_MS = 50  # pause while too many messages wait
PAUSED_MS = 1_000  # pause while the consumer is suspended, or has neither lock nor subscription
FAILED_MS = 1_000  # pause after an error
BUSY_MS = 20  # pause after FLOW_CONTROL of a broker
LITE_HOLD_MS = 20_000  # a broker may hold a pull of a pull consumer for this time
_LOGGED_EACH = 1_000  # pauses

_log = logging.getLogger("rocketc.client")

M = TypeVar("M", bound=Queued)

_RANGES = {
    "pull_threshold_for_queue": (1, 65_535),
    "pull_threshold_size_for_queue": (1, 1_024),
    "pull_threshold_for_topic": (1, 6_553_500),
    "pull_threshold_size_for_topic": (1, 102_400),
    "consume_concurrently_max_span": (1, 65_535),
}


@dataclass(frozen=True)
class PullLimits:
    """How much a consumer pulls ahead. A queue whose messages exceed a limit is not pulled for 50 ms.

    pull_threshold_for_queue       messages of one queue
    pull_threshold_size_for_queue  MiB of the bodies of one queue
    pull_threshold_for_topic, pull_threshold_size_for_topic  the same for all queues of the consumer; -1: no limit
    consume_concurrently_max_span  difference of the first and the last offset; not of orderly consumers
    Raises ValueError for a value that RocketMQ does not allow.

    >>> PullLimits(pull_threshold_for_queue=0)
    Traceback (most recent call last):
    ValueError: pull_threshold_for_queue is 0; allowed are 1 to 65535
    """

    pull_threshold_for_queue: int = 1_000
    pull_threshold_size_for_queue: int = 100
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    consume_concurrently_max_span: int = 2_000

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most and not (value == -1 and name.endswith("_topic")):
                raise ValueError(f"{name} is {value}; allowed are {least} to {most}")

    def shared(self, owned: int) -> PullLimits:
        """Return the limits of each queue after a rebalance: those of the topic are divided.

        owned  number of queues of the consumer, of all topics

        >>> PullLimits(pull_threshold_for_topic=1024).shared(3).pull_threshold_for_queue
        341
        """
        shares = {
            name.replace("_topic", "_queue"): max(1, value // owned)
            for name in ("pull_threshold_for_topic", "pull_threshold_size_for_topic")
            if owned and (value := getattr(self, name)) != -1
        }
        return replace(self, **{name: min(value, _RANGES[name][1]) for name, value in shares.items()})


@dataclass
class PullRequest(Generic[M]):
    """The pulls of one queue, one after the other.

    next_offset  of the next pull
    is_previously_locked  of an orderly consumer: the queue was locked at an earlier pull
    """

    queue: MessageQueue
    process_queue: ProcessQueue[M]
    next_offset: int
    is_previously_locked: bool = False

    def begin_at(self, offset: int) -> None:
        """Take the offset that was computed after Step.RECOMPUTE."""
        self.next_offset, self.is_previously_locked = offset, True


class Step(enum.Enum):
    """What to do with a pull request.

    FORGET     the queue was dropped: no further pull
    PAUSE      look again after the delay
    RECOMPUTE  an orderly consumer got the lock: compute where to begin, call PullRequest.begin_at(), look again. If it
               fails, look again after FAILED_MS
    PULL       send the pull
    """

    FORGET = "FORGET"
    PAUSE = "PAUSE"
    RECOMPUTE = "RECOMPUTE"
    PULL = "PULL"


class PullGate:
    """Decides about each pull of one consumer.

    limits      may be replaced at any time
    is_orderly  whether the queue must be locked, instead of a limit of the span

    >>> gate = PullGate(PullLimits(), is_orderly=False)
    >>> request = PullRequest(MessageQueue("orders", "broker-a", 0), ProcessQueue(), next_offset=0)
    >>> gate.step(request, now=0)
    (<Step.PULL: 'PULL'>, 0)
    >>> gate.step(request, now=0, is_paused=True)
    (<Step.PAUSE: 'PAUSE'>, 1000)
    """

    def __init__(self, limits: PullLimits, *, is_orderly: bool) -> None:
        self.limits = limits
        self._is_orderly = is_orderly
        self.pauses = 0  # by the limits, so far
        self._waits_for = "the listener"

    def step(
        self,
        request: PullRequest[M],
        now: int,
        *,
        is_running: bool = True,
        is_paused: bool = False,
        is_subscribed: bool = True,
    ) -> tuple[Step, int]:
        """Return what to do with a request, and after which delay in ms.

        is_running     the consumer has started and was not closed
        is_paused      the user has suspended it
        is_subscribed  it has a subscription for the topic
        """
        held = request.process_queue
        if held.is_dropped:
            return Step.FORGET, 0
        held.last_pull = now
        if not is_running or is_paused:
            return Step.PAUSE, PAUSED_MS
        if self.is_over(held):
            self._count(request)
            return Step.PAUSE, FLOW_CONTROL_MS
        if self._is_orderly:
            if not held.is_locked:
                return Step.PAUSE, PAUSED_MS
            if not request.is_previously_locked:
                return Step.RECOMPUTE, 0
        return (Step.PULL, 0) if is_subscribed else (Step.PAUSE, PAUSED_MS)

    def is_over(self, held: ProcessQueue[M]) -> bool:
        """Whether a queue must not be pulled now, because too many of its messages wait for the listener."""
        limits = self.limits
        return (
            len(held) > limits.pull_threshold_for_queue
            or held.size_mib > limits.pull_threshold_size_for_queue
            or (not self._is_orderly and held.span > limits.consume_concurrently_max_span)
        )

    def _count(self, request: PullRequest[M]) -> None:
        if self.pauses % _LOGGED_EACH == 0:
            held, queue = request.process_queue.info(0), request.queue
            where = f"{queue.topic}, {queue.broker_name}, queue {queue.queue_id}"
            first, last = held["cachedMsgMinOffset"], held["cachedMsgMaxOffset"]
            text = "%s: pulls wait for %s: %d messages, offsets %d to %d, %d MiB; %d pauses before this one"
            count, size = len(request.process_queue), held["cachedMsgSizeInMiB"]
            _log.warning(text, where, self._waits_for, count, first, last, size, self.pauses)
        self.pauses += 1


class PollGate(PullGate):
    """Decides about each pull of a pull consumer.

    most     messages of all queues that are pulled and not returned by poll()
    waiting  returns how many there are

    >>> gate = PollGate(PullLimits(), 100, lambda: 101)
    >>> request = PullRequest(MessageQueue("orders", "broker-a", 0), ProcessQueue(), next_offset=0)
    >>> gate.step(request, now=0)
    (<Step.PAUSE: 'PAUSE'>, 50)
    """

    def __init__(self, limits: PullLimits, most: int, waiting: Callable[[], int]) -> None:
        super().__init__(limits, is_orderly=False)
        self._most, self._waiting, self._waits_for = most, waiting, "poll()"

    def is_over(self, held: ProcessQueue[M]) -> bool:
        """Whether a queue must not be pulled now, because too many messages wait for poll()."""
        return super().is_over(held) or self._waiting() > self._most


def lite_fields(subscription: SubscriptionData) -> dict[str, Any]:
    """Return what a pull consumer sends instead of fields of pull_fields(). Its pulls commit nothing.

    >>> lite_fields(SubscriptionData("orders"))["sysFlag"]
    22
    """
    return {
        "commitOffset": 0,
        "sysFlag": int(PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL),
        "subscription": subscription.sub_string,
        "subVersion": 0,
        "suspendTimeoutMillis": LITE_HOLD_MS,
    }


def pull_fields(
    group: str,
    request: PullRequest[M],
    subscription: SubscriptionData,
    memory_offset: int,
    *,
    model: MessageModel = MessageModel.CLUSTERING,
    is_slave: bool = False,
    pull_batch_size: int = 32,
    pull_batch_size_in_bytes: int = 256 << 10,
    post_subscription_when_pull: bool = False,
) -> dict[str, Any]:
    """Return the fields of PULL_MESSAGE.

    memory_offset  the offset that the store has in memory. A clustering consumer commits it with the pull if it is
                   greater than 0, and the pull goes to a master
    post_subscription_when_pull  send the expression with each pull, and not only with heartbeats

    >>> request = PullRequest(MessageQueue("orders", "broker-a", 2), ProcessQueue(), next_offset=7)
    >>> fields = pull_fields("audit", request, SubscriptionData("orders"), memory_offset=5)
    >>> fields["queueOffset"], fields["commitOffset"], fields["sysFlag"]
    (7, 5, 3)
    """
    commits = model is MessageModel.CLUSTERING and memory_offset > 0 and not is_slave
    flags = PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET * commits | PullFlag.SUBSCRIPTION * post_subscription_when_pull
    fields = {
        "consumerGroup": group,
        "topic": request.queue.topic,
        "queueId": request.queue.queue_id,
        "queueOffset": request.next_offset,
        "maxMsgNums": pull_batch_size,
        "sysFlag": int(flags),
        "commitOffset": memory_offset if commits else 0,
        "suspendTimeoutMillis": HOLD_MS,
        "subVersion": subscription.sub_version,
        "expressionType": subscription.expression_type,
        "maxMsgBytes": pull_batch_size_in_bytes,
    }
    if post_subscription_when_pull:
        fields["subscription"] = subscription.sub_string
    return fields


def read_address(broker: BrokerData, broker_id: int, *, only_this: bool = False) -> tuple[str, bool] | None:
    """Return the address of a broker to read from, and whether it is a slave; None if there is no such broker.

    broker_id  the one that the broker suggested with the last pull, at first the master's
    only_this  no other one than this id, or the next one of a slave

    >>> read_address(BrokerData("a", "C", {0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}), 1)
    ('10.0.0.2:10911', True)
    """
    known = broker.addresses
    wanted = [broker_id] if broker_id == MASTER else [broker_id, broker_id + 1]
    found = next((one for one in wanted if one in known), None)
    if found is None and not only_this:
        found = min(known, default=None)
    return None if found is None else (known[found], found != MASTER)


class PullStatus(enum.Enum):
    """What a broker answered to a pull."""

    FOUND = Code.SUCCESS
    NO_NEW_MSG = Code.PULL_NOT_FOUND
    NO_MATCHED_MSG = Code.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = Code.PULL_OFFSET_MOVED


PULL_CODES = tuple(status.value for status in PullStatus)  # other codes are errors


class AfterPull(NamedTuple):
    """What to do after an answer.

    next_offset   of the next pull
    delay         ms until the next pull; None: no further pull of this request
    submits       put the messages into the process queue, then give them to the listener
    saves_offset  update the offset store with next_offset, increase-only: filtered messages are progress, too, those of
                  the broker and those that the check of the tags dropped. While other messages of the queue wait, the
                  process queue does it when they are consumed
    is_reset      the offset was outside the queue. Drop the process queue; update_and_freeze() the offset; persist it;
                  remove the process queue, and the offset from the store; rebalance at once
    """

    next_offset: int
    delay: int | None
    submits: bool = False
    saves_offset: bool = False
    is_reset: bool = False


def after_pull(
    request: PullRequest[M], status: PullStatus, next_begin_offset: int, wanted: int, pull_interval: int = 0
) -> AfterPull:
    """Return what to do after an answer; the caller sets request.next_offset.

    wanted         number of messages that are left after the check of the tags
    pull_interval  ms between pulls

    >>> request = PullRequest(MessageQueue("orders", "broker-a", 2), ProcessQueue(), next_offset=7)
    >>> after_pull(request, PullStatus.NO_NEW_MSG, 7, 0)
    AfterPull(next_offset=7, delay=0, submits=False, saves_offset=True, is_reset=False)
    """
    if status is PullStatus.OFFSET_ILLEGAL:
        return AfterPull(next_begin_offset, None, is_reset=True)
    if wanted:
        return AfterPull(next_begin_offset, pull_interval, submits=True)
    return AfterPull(next_begin_offset, 0, saves_offset=len(request.process_queue) == 0)


def delay_after_error(error: Exception) -> int:
    """Return after how many ms a failed pull is repeated with the same offset.

    >>> delay_after_error(AnswerError("10.0.0.1:10911", "busy", 215)), delay_after_error(OSError())
    (20, 1000)
    """
    return BUSY_MS if isinstance(error, AnswerError) and error.code == Code.FLOW_CONTROL else FAILED_MS
