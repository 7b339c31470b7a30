"""The settings of clients, with RocketMQ's names and defaults.

Source: RocketMQ ClientConfig, DefaultMQProducer, DefaultMQPushConsumer, DefaultLitePullConsumer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, TypeVar

from rocketc.client.pull_decisions import PullLimits
from rocketc.client.starting_offsets import parse_consume_timestamp
from rocketc.client.strategies import AllocateStrategy, Divide, StrategyName, strategy_of
from rocketc.config_fields import INT32_MOST, check_setting, did_you_mean
from rocketc.format.traces import TRACE_TOPIC
from rocketc.remoting.subscribing import ConsumeFromWhere, MessageModel
from rocketc.tables.topics import topic_name_error

if TYPE_CHECKING:
    from collections.abc import Mapping

S = TypeVar("S", bound="ClientSettings")
ConsumeFromWhereName = Literal[
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
]  # of ConsumeFromWhere
MessageModelName = Literal["CLUSTERING", "BROADCASTING"]


@dataclass(frozen=True)
class ClientSettings:
    """What all clients have. Times are in ms.

    instance_name              part of the client id, another one for each client of a group. DEFAULT: pid and number
    unit_name                  part of the client id; empty: none
    client_ip                  part of the client id and of message ids; None: an address of this computer
    poll_name_server_interval  between questions for the routes of the topics in use
    heartbeat_broker_interval  between heartbeats
    mq_client_api_timeout      for a request to a name server, and for most requests to brokers
    enable_msg_trace           write to a topic what is sent and consumed (RocketMQ: enableMsgTrace)
    custom_trace_topic         that topic (RocketMQ: customizedTraceTopic)
    """

    instance_name: str = "DEFAULT"
    unit_name: str = ""
    client_ip: str | None = None
    poll_name_server_interval: int = 30_000
    heartbeat_broker_interval: int = 30_000
    mq_client_api_timeout: int = 3_000
    enable_msg_trace: bool = False
    custom_trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name == "allocate_message_queue_strategy":
                continue  # not only text
            least, most = _LEAST.get(field.name, 1), _MOST.get(field.name, INT32_MOST)
            check_setting(field.name, getattr(self, field.name), field.default, least, most)
        if error := topic_name_error(self.custom_trace_topic):
            raise ValueError(f"custom_trace_topic is {self.custom_trace_topic!r}: {error}")


@dataclass(frozen=True)
class ProducerSettings(ClientSettings):
    """What a producer has besides.

    send_msg_timeout                       for a send, all attempts included
    retry_times_when_send_failed           more attempts, each at another broker if there is one
    retry_another_broker_when_not_store_ok  whether a status but SEND_OK is such a failure
    compress_msg_body_over_howmuch         bytes; larger bodies are compressed
    max_message_size                       bytes of a body before it is compressed
    default_topic_queue_nums               queues on a broker of a topic that the send creates
    create_topic_key                       the topic whose settings a new topic gets
    send_latency_fault_enable              avoid brokers that were slow or failed
    max_in_flight                          messages sent and not answered (RocketMQ: backPressureForAsyncSendNum)
    max_bytes_in_flight                    their bytes (RocketMQ: backPressureForAsyncSendSize)
    """

    send_msg_timeout: int = 3_000
    retry_times_when_send_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    compress_msg_body_over_howmuch: int = 4_096
    max_message_size: int = 4 << 20
    default_topic_queue_nums: int = 4
    create_topic_key: str = "TBW102"
    send_latency_fault_enable: bool = False
    max_in_flight: int = 10_000
    max_bytes_in_flight: int = 100 << 20


@dataclass(frozen=True)
class TransactionSettings(ProducerSettings):
    """What a producer of transactions has besides.

    check_thread_pool_max_size  calls of the check function at the same time (RocketMQ: checkThreadPoolMaxSize)
    check_request_hold_max      questions of brokers that wait for it (RocketMQ: checkRequestHoldMax)
    """

    check_thread_pool_max_size: int = 1
    check_request_hold_max: int = 2_000


@dataclass(frozen=True)
class ConsumerSettings(ClientSettings):
    """What a consumer has besides.

    message_model                     CLUSTERING: members share the queues; BROADCASTING: each member gets all messages
    local_offset_store_dir            folder of broadcasting members; None: .rocketmq_offsets in the home folder
    consume_from_where                where a group without an offset in a queue begins, see ConsumeFromWhere
    consume_timestamp                 for CONSUME_FROM_TIMESTAMP: yyyyMMddHHmmss in local time; None: 30 minutes ago
    allocate_message_queue_strategy   AVG, AVG_BY_CIRCLE or CONSISTENT_HASH: how a group divides queues; or an object
                                      of rocketc.client.strategies; or your own function, see strategies.Divide
    consume_thread_max                listeners that run at the same time (RocketMQ: consumeThreadMax)
    consume_message_batch_max_size    messages of one call of a listener; above 1, it gets a list
    consume_concurrently_max_span     difference of the first and the last offset of a queue's messages
    pull_threshold_for_queue          messages of one queue that are pulled and not consumed
    pull_threshold_size_for_queue     MiB of their bodies
    pull_threshold_for_topic          messages of all queues; -1: no limit
    pull_threshold_size_for_topic     MiB of their bodies; -1: no limit
    pull_interval                     ms between two pulls of a queue
    pull_batch_size                   messages of one pull
    post_subscription_when_pull       send the expression with each pull
    max_reconsume_times               deliveries again before a message is a dead letter; -1: 16, orderly: no limit
    suspend_current_queue_time_millis  that the queue of an orderly consumer waits after a failure
    consume_timeout                   minutes; a message whose listener takes longer is delivered again
    persist_consumer_offset_interval  between two writes of the offsets
    await_termination_millis_when_shutdown  how long close() waits for listeners
    """

    message_model: MessageModelName = "CLUSTERING"
    local_offset_store_dir: str | None = None
    consume_from_where: ConsumeFromWhereName = "CONSUME_FROM_LAST_OFFSET"
    consume_timestamp: str | None = None
    allocate_message_queue_strategy: StrategyName | AllocateStrategy | Divide = "AVG"
    consume_thread_max: int = 20
    consume_message_batch_max_size: int = 1
    consume_concurrently_max_span: int = 2_000
    pull_threshold_for_queue: int = 1_000
    pull_threshold_size_for_queue: int = 100
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    pull_interval: int = 0
    pull_batch_size: int = 32
    post_subscription_when_pull: bool = False
    max_reconsume_times: int = -1
    suspend_current_queue_time_millis: int = 1_000
    consume_timeout: int = 15
    persist_consumer_offset_interval: int = 5_000
    await_termination_millis_when_shutdown: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pull_limits()
        _check_group_settings(self)
        if self.message_model not in MessageModel.__members__:
            names = ", ".join(MessageModel.__members__)
            raise ValueError(f"message_model is {self.message_model!r}; allowed are {names}")

    def pull_limits(self) -> PullLimits:
        """Return how much is pulled ahead. Raises ValueError."""
        return PullLimits(
            self.pull_threshold_for_queue,
            self.pull_threshold_size_for_queue,
            self.pull_threshold_for_topic,
            self.pull_threshold_size_for_topic,
            self.consume_concurrently_max_span,
        )


@dataclass(frozen=True)
class PullSettings(ClientSettings):
    """What a pull consumer has besides.

    auto_commit                       commit at a later poll(), and at the end, what poll() has returned before
    auto_commit_interval_millis       between two such commits, 1,000 at least
    poll_timeout_millis               how long poll() waits for a message
    pull_batch_size                   messages of one pull, and of one poll()
    pull_threshold_for_all            messages of all queues that are pulled and not returned by poll()
    pull_threshold_for_queue          messages of one queue
    pull_threshold_size_for_queue     MiB of their bodies
    consume_max_span                  difference of the first and the last offset of a queue's messages
    consume_from_where                where a group without an offset in a queue begins, see ConsumeFromWhere
    consume_timestamp                 for CONSUME_FROM_TIMESTAMP: yyyyMMddHHmmss in local time; None: 30 minutes ago
    allocate_message_queue_strategy   AVG, AVG_BY_CIRCLE or CONSISTENT_HASH: how a group divides queues
    persist_consumer_offset_interval  between two writes of the committed offsets, which repeat failed ones
    """

    auto_commit: bool = True
    auto_commit_interval_millis: int = 5_000
    poll_timeout_millis: int = 5_000
    pull_batch_size: int = 10
    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1_000
    pull_threshold_size_for_queue: int = 100
    consume_max_span: int = 2_000
    consume_from_where: ConsumeFromWhereName = "CONSUME_FROM_LAST_OFFSET"
    consume_timestamp: str | None = None
    allocate_message_queue_strategy: StrategyName | AllocateStrategy | Divide = "AVG"
    persist_consumer_offset_interval: int = 5_000

    # Of a push consumer; a pull consumer does not let you choose.
    message_model: ClassVar[Literal["CLUSTERING"]] = "CLUSTERING"
    local_offset_store_dir: ClassVar[str | None] = None
    post_subscription_when_pull: ClassVar[bool] = True
    pull_interval: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_group_settings(self)

    def pull_limits(self) -> PullLimits:
        """Return how much of each queue is pulled ahead."""
        return PullLimits(
            self.pull_threshold_for_queue,
            self.pull_threshold_size_for_queue,
            consume_concurrently_max_span=self.consume_max_span,
        )


def _check_group_settings(settings: ConsumerSettings | PullSettings) -> None:
    """Check where a group begins, and how it divides queues. Raises ValueError."""
    strategy_of(settings.allocate_message_queue_strategy)
    if settings.consume_from_where not in ConsumeFromWhere.__members__:
        names = ", ".join(ConsumeFromWhere.__members__)
        raise ValueError(f"consume_from_where is {settings.consume_from_where!r}; allowed are {names}")
    if settings.consume_timestamp is not None:
        parse_consume_timestamp(settings.consume_timestamp)


_LEAST = {
    "auto_commit_interval_millis": 1_000,
    "poll_timeout_millis": 0,
    "retry_times_when_send_failed": 0,
    "compress_msg_body_over_howmuch": 0,
    "pull_threshold_for_topic": -1,
    "pull_threshold_size_for_topic": -1,
    "pull_interval": 0,
    "max_reconsume_times": -1,
    "await_termination_millis_when_shutdown": 0,
}
_MOST = {
    "pull_threshold_for_all": 6_553_500,
    "pull_threshold_for_queue": 65_535,
    "pull_threshold_size_for_queue": 1_024,
    "consume_max_span": 65_535,
    "consume_thread_max": 1_000,
    "check_thread_pool_max_size": 1_000,
    "consume_message_batch_max_size": 1_024,
    "pull_batch_size": 1_024,
    "pull_interval": 65_535,
}


class ClientOptions(TypedDict, total=False):
    """The keywords of all clients for type checkers: the fields of ClientSettings. A test compares them."""

    instance_name: str
    unit_name: str
    client_ip: str | None
    poll_name_server_interval: int
    heartbeat_broker_interval: int
    mq_client_api_timeout: int
    enable_msg_trace: bool
    custom_trace_topic: str


class ProducerOptions(ClientOptions, total=False):
    """The keywords of a producer: the fields of ProducerSettings."""

    send_msg_timeout: int
    retry_times_when_send_failed: int
    retry_another_broker_when_not_store_ok: bool
    compress_msg_body_over_howmuch: int
    max_message_size: int
    default_topic_queue_nums: int
    create_topic_key: str
    send_latency_fault_enable: bool
    max_in_flight: int
    max_bytes_in_flight: int


class TransactionOptions(ProducerOptions, total=False):
    """The keywords of a producer of transactions: the fields of TransactionSettings."""

    check_thread_pool_max_size: int
    check_request_hold_max: int


class AsyncConsumerOptions(ClientOptions, total=False):
    """The keywords of an AsyncConsumer: the fields of ConsumerSettings that have an effect without a listener."""

    message_model: MessageModelName
    local_offset_store_dir: str | None
    consume_from_where: ConsumeFromWhereName
    consume_timestamp: str | None
    allocate_message_queue_strategy: StrategyName | AllocateStrategy | Divide
    consume_concurrently_max_span: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval: int
    pull_batch_size: int
    post_subscription_when_pull: bool
    persist_consumer_offset_interval: int


class ConsumerOptions(AsyncConsumerOptions, total=False):
    """The keywords of a consumer with listeners: the fields of ConsumerSettings."""

    consume_thread_max: int
    consume_message_batch_max_size: int
    max_reconsume_times: int
    suspend_current_queue_time_millis: int
    consume_timeout: int
    await_termination_millis_when_shutdown: int


class PullOptions(ClientOptions, total=False):
    """The keywords of a pull consumer: the fields of PullSettings."""

    auto_commit: bool
    auto_commit_interval_millis: int
    poll_timeout_millis: int
    pull_batch_size: int
    pull_threshold_for_all: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    consume_from_where: ConsumeFromWhereName
    consume_timestamp: str | None
    allocate_message_queue_strategy: StrategyName | AllocateStrategy | Divide
    persist_consumer_offset_interval: int


def settings_of(kind: type[S], options: Mapping[str, Any]) -> S:
    """Return the settings of these options. Raises TypeError for one that does not exist, ValueError for a wrong value.

    >>> settings_of(ProducerSettings, {"send_msg_timeout": 500}).send_msg_timeout
    500
    """
    known = [field.name for field in dataclasses.fields(kind)]
    for name in options:
        if name not in known:
            raise TypeError(f"unknown keyword {name}{did_you_mean(name, known)}")
    return kind(**options)


def settings_without_listeners(options: Mapping[str, Any]) -> ConsumerSettings:
    """Return the settings of an AsyncConsumer. Raises as settings_of(), and TypeError for a setting of listeners.

    >>> settings_without_listeners({"pull_batch_size": 64}).pull_batch_size
    64
    """
    for name in options:
        if name in ConsumerOptions.__annotations__ and name not in AsyncConsumerOptions.__annotations__:
            raise TypeError(f"{name}: an AsyncConsumer does not have this setting, because it does not call listeners")
    return settings_of(ConsumerSettings, options)
