"""Retries and dead letters: what a send-back and a direct send to a group's retry topic have in common.

Source: RocketMQ AbstractSendMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rocketc._layout import DLQ_PREFIX, RETRY_PREFIX
from rocketc.broker.counts import BrokerCounts
from rocketc.broker.locks import RebalanceLockManager
from rocketc.broker.topics import READ_WRITE, UNIT_SUBSCRIPTION, TopicManager
from rocketc.config_fields import INT32_MOST
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer
from rocketc.tables.config_manager import Clock
from rocketc.tables.groups import CONSUMER_GROUP_MOST, RETRIED_GROUP_MOST, SubscriptionGroupConfig
from rocketc.tables.topics import TopicConfig

LAST_LEVEL = INT32_MOST  # a delay level beyond the last one is the last one
KNOWS_MOST = 121  # V3_4_9: older clients do not send maxReconsumeTimes


class LastStop(NamedTuple):
    """Where a message without retries left goes: to the queue 0 of a topic, after a delay.

    level  of the delay; 0: none
    """

    topic: TopicConfig
    level: int


class Retries:
    """The topics and the limits of a group's retries.

    groups  returns the settings of a group, created if the broker may; None: it does not exist
    locks   of queues that are consumed in order
    clock   ms since the epoch
    counts  gets the number of messages that can't become dead letters
    """

    def __init__(
        self,
        topics: TopicManager,
        groups: Callable[[str], SubscriptionGroupConfig | None],
        locks: RebalanceLockManager,
        clock: Clock,
        counts: BrokerCounts | None = None,
    ) -> None:
        self._counts = BrokerCounts() if counts is None else counts
        self._topics, self._groups, self._locks, self._clock = topics, groups, locks, clock

    def group(self, name: str) -> SubscriptionGroupConfig | Answer:
        """Return the settings of a group, or the answer that it does not exist."""
        found = self._groups(name)
        if found is None:
            return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"subscription group not exist, {name} ")
        return found

    def most(self, group: SubscriptionGroupConfig, asked: int | None, version: int) -> int:
        """Return how many times a message is retried.

        asked    maxReconsumeTimes of the request
        version  of the client
        """
        return asked if asked is not None and version >= KNOWS_MOST else group.retry_max_times

    def is_over(self, group: SubscriptionGroupConfig, times: int, asked: int | None, version: int) -> bool:
        """Whether a message that a client sends to the retry topic itself is a dead letter.

        times  how many times it was retried
        A group that has locked a queue consumes in order: it does not retry, and sends only dead letters.
        """
        return times > self.most(group, asked, version) or not self._locks.all_expired(group.group_name, self._clock())

    def topic(self, group: SubscriptionGroupConfig, *, unit_mode: bool = False) -> TopicConfig | Answer:
        """Return the retry topic of a group; create it if it is missing.

        Or an answer: the topic is being deleted, or its name would be too long for the store.
        """
        if len(group.group_name) > RETRIED_GROUP_MOST:
            return Answer(
                Code.SYSTEM_ERROR,
                remark=f"the group has a name of {len(group.group_name)} characters, too long for a topic of retries; "
                f"use at most {CONSUMER_GROUP_MOST}",
            )
        sys_flag = UNIT_SUBSCRIPTION if unit_mode else 0
        return self._topic(RETRY_PREFIX + group.group_name, group.retry_queue_nums, sys_flag)

    def queues(self, group: SubscriptionGroupConfig, topic: TopicConfig) -> int:
        """Return how many queues of a group's retry topic get retries.

        The topic may have fewer than the group asks for, for example if retryQueueNums was raised later. Consumers do
        not see what is stored in others.
        """
        return max(min(group.retry_queue_nums, topic.read_queue_nums, topic.write_queue_nums), 0)

    def last_stop(self, group: SubscriptionGroupConfig) -> LastStop | Answer:
        """Return where a message of a group without retries left goes. Or an answer, as topic().

        That is the topic of dead letters, created if it is missing. If its name would be too long for the store, the
        message comes again after the longest delay.
        """
        if len(group.group_name) <= CONSUMER_GROUP_MOST:
            dead = self._topic(DLQ_PREFIX + group.group_name, 1)
            return dead if isinstance(dead, Answer) else LastStop(dead, 0)
        topic = self.topic(group)
        if isinstance(topic, Answer):
            return topic
        if self.queues(group, topic) == 0:
            return without_queues(topic)
        self._counts.keep_back(group.group_name)
        return LastStop(topic, LAST_LEVEL)

    def _topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig | Answer:
        found = self._topics.create_if_missing(name, queues, READ_WRITE, sys_flag)
        return Answer(Code.SYSTEM_ERROR, remark=f"topic[{name}] not exist") if found is None else found


def without_queues(topic: TopicConfig) -> Answer:
    """Return the answer for a retry topic in which no queue can be written and read: the consumer keeps the message.

    >>> without_queues(TopicConfig("%RETRY%g", read_queue_nums=1, write_queue_nums=0)).remark.partition(":")[0]
    'the topic[%RETRY%g] has 1 queues to read and 0 to write'
    """
    read, write = topic.read_queue_nums, topic.write_queue_nums
    fault = f"the topic[{topic.topic_name}] has {read} queues to read and {write} to write: no queue can hold retries"
    return Answer(Code.SYSTEM_ERROR, remark=f"{fault}; give it at least 1 of each")
