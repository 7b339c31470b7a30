"""How far topics and groups are: offsets of queues, and times of their messages.

Source: RocketMQ AdminBrokerProcessor.getTopicStatsInfo, getConsumeStats, queryConsumeTimeSpan,
fetchAllConsumeStatsInBroker; shapes, codes and remarks are those of 5.3.3.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.broker.admin.statistics import Sums
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.locks import MessageQueue
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.topics import TopicManager
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.topics import TopicConfig

TOPIC_STATS, CONSUME_STATS, TIME_SPAN, BROKER_CONSUME_STATS = 202, 208, 303, 317


class QueueStore(Protocol):
    """What Progress needs of a store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int: ...
    def store_time(self, topic: str, queue_id: int, offset: int) -> int: ...


class Rated(Protocol):
    """What Progress needs of BrokerStatistics."""

    def topic_puts(self, topic: str) -> Sums: ...
    def group_gets(self, topic: str, group: str) -> Sums: ...


class Progress:
    """Answers requests about the progress of topics and groups.

    broker_name, address  as clients know the broker
    clock                 ms since the epoch
    """

    codes = (TOPIC_STATS, CONSUME_STATS, TIME_SPAN, BROKER_CONSUME_STATS)

    def __init__(
        self,
        store: QueueStore,
        topics: TopicManager,
        groups: GroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        statistics: Rated,
        work: StoreWork,
        *,
        broker_name: str,
        address: str,
        clock: Callable[[], int],
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._consumers, self._offsets, self._statistics = consumers, offsets, statistics
        self._work = work
        self._broker_name, self._address, self._clock = broker_name, address, clock
        self._by_code: dict[int, Callable[[Call], Answer]] = {
            TOPIC_STATS: self._topic_stats,
            CONSUME_STATS: self._consume_stats,
            TIME_SPAN: self._time_span,
            BROKER_CONSUME_STATS: self._broker_consume_stats,
        }

    def process(self, call: Call) -> Answer | None:
        """Answer on a thread: the times of messages may be read from the disk."""
        return self._work.answer(call, lambda: self._by_code[call.command.code](call))

    def _queues(self, topic: TopicConfig, count: int) -> Iterator[MessageQueue]:
        for queue_id in range(count):
            yield MessageQueue(topic.topic_name, self._broker_name, queue_id)

    def _time(self, queue: MessageQueue, offset: int) -> int:
        """The store time of a message; 0 if there is none."""
        if offset < 0:
            return 0
        return max(self._store.store_time(queue.topic, queue.queue_id, offset), 0)

    # topics

    def _topic_stats(self, call: Call) -> Answer:
        name = call.values["topic"]
        topic = self._topics.get(name)
        if topic is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{name}] not exist")
        table = {}
        for queue in self._queues(topic, max(topic.read_queue_nums, topic.write_queue_nums)):
            first = max(self._store.min_offset(name, queue.queue_id), 0)
            end = max(self._store.max_offset(name, queue.queue_id), 0)
            last = self._time(queue, end - 1) if end > first else 0
            table[queue] = {"lastUpdateTimestamp": last, "maxOffset": end, "minOffset": first}
        tps = forms.body(self._statistics.topic_puts(name).tps)
        return Answer(body=forms.joined({"offsetTable": forms.queue_map(table), "topicPutTps": tps}))

    # groups

    def _consume_stats(self, call: Call) -> Answer:
        group, topic = call.values["consumerGroup"], call.values.get("topic")
        asked = [one for one in call.values.get("topicList", "").split(";") if one]
        if topic:
            asked.append(topic)
        table: dict[MessageQueue, dict[str, int]] = {}
        tps = 0.0
        for config in self._consumed(group, asked or self._offsets.topics_of(group)):
            table |= self._of_topic(config, group)
            tps += self._statistics.group_gets(config.topic_name, group).tps
        return Answer(body=_consume_stats(tps, table))

    def _consumed(self, group: str, names: list[str]) -> Iterator[TopicConfig]:
        """The topics of a group; those that its consumers no longer subscribe to are left out while they are online."""
        online = self._consumers.group(group)
        for name in dict.fromkeys(names):
            topic = self._topics.get(name)
            is_left = online is not None and online.subscriptions and self._left(group, name)
            if topic is not None and not is_left:
                yield topic

    def _left(self, group: str, topic: str) -> bool:
        return self._consumers.find_subscription(group, topic, compensated=True) is None

    def _of_topic(
        self, topic: TopicConfig, group: str, *, with_pulls: bool = True
    ) -> dict[MessageQueue, dict[str, int]]:
        table = {}
        for queue in self._queues(topic, topic.read_queue_nums):
            name, queue_id = queue.topic, queue.queue_id
            consumed = max(self._offsets.query(group, name, queue_id), 0)
            pulled = self._offsets.pull_offset(group, name, queue_id)
            table[queue] = {
                "brokerOffset": max(self._store.max_offset(name, queue_id), 0),
                "consumerOffset": consumed,
                "lastTimestamp": self._time(queue, consumed - 1),
                "pullOffset": 0 if not with_pulls else consumed if pulled < 0 else pulled,
            }
        return table

    def _broker_consume_stats(self, call: Call) -> Answer:
        """The progress of all groups. As in RocketMQ, the pulled offsets are 0 here."""
        is_order, found, lag, in_flight = call.values.get("isOrder", False), [], 0, 0
        for group in list(self._groups.table):
            of_group = []
            for topic in self._consumed(group, self._offsets.topics_of(group)):
                if topic.order != is_order:
                    continue
                table = self._of_topic(topic, group, with_pulls=False)
                tps = self._statistics.group_gets(topic.topic_name, group).tps
                of_group.append(_consume_stats(tps, table))
                lag += sum(one["brokerOffset"] - one["consumerOffset"] for one in table.values())
                in_flight += sum(one["pullOffset"] - one["consumerOffset"] for one in table.values())
            found.append(forms.joined({group: forms.listed(of_group)}))
        return Answer(
            body=forms.joined(
                {
                    "brokerAddr": forms.body(self._address),
                    "consumeStatsList": forms.listed(found),
                    "totalDiff": forms.body(lag),
                    "totalInflightDiff": forms.body(in_flight),
                }
            )
        )

    def _time_span(self, call: Call) -> Answer:
        name, group, now = call.values["topic"], call.values["group"], self._clock()
        topic = self._topics.get(name)
        if topic is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{name}] not exist")
        spans: list[dict[str, Any]] = []
        for queue in self._queues(topic, topic.write_queue_nums):
            first = self._store.min_offset(name, queue.queue_id)
            end = self._store.max_offset(name, queue.queue_id)
            is_empty = first < 0 or end <= first
            first_time = -1 if is_empty else self._store.store_time(name, queue.queue_id, first)
            last_time = -1 if is_empty else self._store.store_time(name, queue.queue_id, end - 1)
            consumed = self._offsets.query(group, name, queue.queue_id)
            consumed_time, delay = first_time, now
            if consumed > 0:
                consumed_time = self._store.store_time(name, queue.queue_id, consumed - 1)
            if consumed >= 0:
                delay = 0 if consumed >= end else now - self._time(queue, consumed)
            spans.append(
                {
                    "consumeTimeStamp": consumed_time,
                    "consumeTimeStampStr": java_time(consumed_time),
                    "delayTime": delay,
                    "maxTimeStamp": last_time,
                    "maxTimeStampStr": java_time(last_time),
                    "messageQueue": forms.queue_object(queue),
                    "minTimeStamp": first_time,
                    "minTimeStampStr": java_time(first_time),
                }
            )
        return Answer(body=forms.body({"consumeTimeSpanSet": spans}))


def _consume_stats(tps: float, table: dict[MessageQueue, dict[str, int]]) -> bytes:
    return forms.joined({"consumeTps": forms.body(tps), "offsetTable": forms.queue_map(table)})


def java_time(ms: int) -> str:
    """Return a time as RocketMQ's UtilAll.timeMillisToHumanString2 writes it, in the time zone of this machine.

    >>> java_time(1700000000123)[-3:], java_time(-1)[-3:]
    ('123', '999')
    """
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.datetime.fromtimestamp(seconds):%Y-%m-%d#%H:%M:%S}:{rest:03d}"
