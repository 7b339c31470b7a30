"""The consumers of a group, and its offsets: queries and updates.

Source: RocketMQ ConsumerManageProcessor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from typing import Protocol

from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.store._store import MessageStore
from rocketc.tables.topics import TopicConfig

QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, GET_CONSUMER_LIST_BY_GROUP = 14, 15, 38
OTHER_QUEUES_MOST = 1024  # queues with offsets beyond the topic's own, per group: RocketMQ stores any queue id


class KnownTopics(Protocol):
    """Finds topics by name: a TopicManager."""

    def get(self, name: str, /) -> TopicConfig | None: ...


class ConsumerProcessor:
    """Answers lists of consumers (38), and queries (14) and updates (15) of offsets.

    groups              the groups that exist
    topics              by name
    min_offset          of a queue, (topic, queue id); 0 or less if the queue is new or unknown
    is_first_in_memory  whether a queue, (topic, queue id), has the message of queue offset 0, and it is in memory
    """

    codes = (QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, GET_CONSUMER_LIST_BY_GROUP)

    def __init__(
        self,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        groups: Container[str],
        *,
        topics: KnownTopics,
        min_offset: Callable[[str, int], int],
        is_first_in_memory: Callable[[str, int], bool],
    ) -> None:
        self._consumers, self._offsets, self._groups = consumers, offsets, groups
        self._topics = topics
        self._min_offset, self._is_first_in_memory = min_offset, is_first_in_memory

    def process(self, call: Call) -> Answer:
        if call.command.code == QUERY_CONSUMER_OFFSET:
            return self._query(call)
        if call.command.code == UPDATE_CONSUMER_OFFSET:
            return self._update(call)
        return self._list(call.values["consumerGroup"])

    def _list(self, name: str) -> Answer:
        group = self._consumers.group(name)
        if group is None:
            return Answer(Code.SYSTEM_ERROR, remark=f"no consumer for this group, {name}")
        body = json.dumps({"consumerIdList": group.client_ids}, ensure_ascii=False, separators=(",", ":"))
        return Answer(body=body.encode())

    def _query(self, call: Call) -> Answer:
        """The offset of a group. Without one, 0 if the queue is young: the group then gets all of its messages."""
        values = call.values
        topic, queue_id = values["topic"], values["queueId"]
        offset = self._offsets.query(values["consumerGroup"], topic, queue_id)
        if offset >= 0:
            return Answer(values={"offset": offset})
        if values.get("setZeroIfNotFound") is False:
            return Answer(Code.QUERY_NOT_FOUND, remark="Not found, do not set to zero, maybe this group boot first")
        if self._min_offset(topic, queue_id) <= 0 and self._is_first_in_memory(topic, queue_id):
            return Answer(values={"offset": 0})
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return Answer(Code.QUERY_NOT_FOUND, remark=remark)

    def _update(self, call: Call) -> Answer:
        values = call.values
        group, topic = values["consumerGroup"], values["topic"]
        queue_id, offset = values.get("queueId"), values.get("commitOffset")
        if group not in self._groups:
            return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"Topic {topic} not exist!")
        if queue_id is None:
            return Answer(Code.INVALID_PARAMETER, remark=f"QueueId is null, topic is {topic}")
        if offset is None:
            return Answer(Code.INVALID_PARAMETER, remark=f"Offset is null, topic is {topic}")
        if self._offsets.has_reset(group, topic, queue_id):
            return Answer(remark="Offset has been previously reset")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues and not self._has_room(group, topic, queue_id, queues):
            remark = f"queue {queue_id} of topic {topic} does not exist, and group {group} has too many offsets of such"
            return Answer(Code.INVALID_PARAMETER, remark=remark)
        self._offsets.commit(group, topic, queue_id, offset)
        return Answer()

    def _has_room(self, group: str, topic: str, queue_id: int, queues: int) -> bool:
        known = self._offsets.queues(topic, group)
        return queue_id in known or len(known) < queues + OTHER_QUEUES_MOST


def is_first_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether a queue has a message with queue offset 0, and it was not read from the disk lately.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     _ = store.put("orders", b"one", queue_id=0)
    ...     _ = store.wait_dispatched()
    ...     is_first_in_memory(store, "orders", 0), is_first_in_memory(store, "orders", 1)
    (True, False)
    """
    with store.get_raw(topic, queue_id, 0, 1) as first:
        return len(first) > 0 and not first.suggest_pulling_from_slave
