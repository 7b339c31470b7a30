"""Offsets of groups as tools see them: reset by time, cloned to another group, compared, listed.

Source: RocketMQ AdminBrokerProcessor, Broker2Client.resetOffset; codes and remarks are those of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.broker.admin.client_relay import UNSET, V3_0_7
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.config import BrokerConfig
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.groups import GroupManager, is_group_name
from rocketc.broker.locks import MessageQueue
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.table_writer import TableWriter, answering
from rocketc.broker.topics import TopicManager
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.fastjson import in_java_order
from rocketc.tables.offsets import DelayOffsets
from rocketc.tables.topics import TopicConfig

ALL, DELAYS, RESET, CORRECTION, CLONE = 43, 45, 222, 308, 314
RESET_CLIENT = 220
LATEST = -1  # timestamp of a reset: the end of each queue
_LIST_LANGUAGES = ("CPP",)  # whose clients read the table of a reset as a list

Send = Callable[[Any, int, Mapping[str, Any], bytes], object]


class TimedStore(Protocol):
    """What OffsetAdmin needs of a store."""

    @property
    def path(self) -> str: ...
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int: ...
    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: str) -> int: ...


class OffsetAdmin:
    """Answers requests about offsets of groups.

    send  sends a request without an answer to a client: (connection, code, values, body)
    A reset and a clone are on the disk before they are answered.
    """

    codes = (ALL, DELAYS, RESET, CORRECTION, CLONE)

    def __init__(
        self,
        store: TimedStore,
        topics: TopicManager,
        groups: GroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        writer: TableWriter,
        work: StoreWork,
        send: Send,
        config: BrokerConfig,
    ) -> None:
        self._store, self._topics, self._groups, self._consumers = store, topics, groups, consumers
        self._offsets, self._writer, self._work, self._send, self._config = offsets, writer, work, send, config
        self._by_code: dict[int, Callable[[Call], Answer | None]] = {
            ALL: self._all,
            DELAYS: lambda call: work.answer(call, self._delays),
            RESET: self._reset,
            CORRECTION: self._correction,
            CLONE: self._clone,
        }

    def process(self, call: Call) -> Answer | None:
        return self._by_code[call.command.code](call)

    def _saved(self, call: Call, answer: Answer) -> None:
        self._offsets.save(self._writer, answering(call, answer))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._config.broker_name, queue_id)

    # reset

    def _reset(self, call: Call) -> Answer | None:
        if self._config.use_server_side_reset_offset:
            return self._reset_here(call)
        return self._reset_clients(call)

    def _at(self, topic: str, queue_ids: Iterable[int], timestamp: int) -> dict[int, int]:
        """The offset of the first message at a time or later, by queue; the end of each queue for LATEST.

        It may read any part of the queues and the log, so it runs on a thread.
        """
        found = {}
        for queue_id in queue_ids:
            offset = -1 if timestamp == LATEST else self._store.offset_by_time(topic, queue_id, timestamp, "lower")
            found[queue_id] = max(offset if offset >= 0 else self._store.max_offset(topic, queue_id), 0)
        return found

    def _reset_here(self, call: Call) -> Answer | None:
        """Reset on the broker: the next pull of each queue is answered with the new offset."""
        name, queue_id, timestamp = call.values["topic"], call.values.get("queueId", -1), call.values["timestamp"]
        topic = self._reset_topic(call)
        if isinstance(topic, Answer):
            return topic
        if queue_id >= 0 and (offset := call.values.get("offset", -1)) != -1:
            first, end = (max(one(name, queue_id), 0) for one in (self._store.min_offset, self._store.max_offset))
            if not first <= offset <= end + 1:
                remark = f"Target offset {offset} not in consume queue range [{first}-{end}]"
                return Answer(Code.SYSTEM_ERROR, remark=remark)
            return self._reset_to(call, {queue_id: offset}, self._table(name, {queue_id: offset}))
        queue_ids = [queue_id] if queue_id >= 0 else range(topic.read_queue_nums)

        def read() -> tuple[dict[int, int], bytes]:
            offsets = self._at(name, queue_ids, timestamp)
            return offsets, self._table(name, offsets)  # here: it takes a second for a topic with 65,536 queues

        return self._work.look(call, read, lambda found: self._reset_to(call, *found))

    def _reset_topic(self, call: Call) -> TopicConfig | Answer:
        name, group, queue_id = call.values["topic"], call.values["group"], call.values.get("queueId", -1)
        topic = self._topics.get(name)
        if topic is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"Topic {name} does not exist")
        if group not in self._groups:
            return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"Group {group} does not exist")
        if queue_id >= topic.read_queue_nums:
            return Answer(Code.SYSTEM_ERROR, remark=f"{queue_id}@{name} is not exist!")
        return topic

    def _reset_to(self, call: Call, offsets: Mapping[int, int], body: bytes) -> Answer | None:
        topic = self._reset_topic(call)  # again: topic and group may have been deleted since
        if isinstance(topic, Answer):
            return topic
        self._offsets.reset_all(call.values["group"], topic.topic_name, offsets)
        self._saved(call, Answer(body=body))
        return None

    def _table(self, topic: str, offsets: Mapping[int, int]) -> bytes:
        table = {self._queue(topic, queue_id): offset for queue_id, offset in offsets.items()}
        return forms.joined({"offsetTable": forms.queue_map(table)})

    def _reset_clients(self, call: Call) -> Answer | None:
        """Tell the online consumers to go back; without isForce only where the new offset is smaller."""
        name, group, timestamp = call.values["topic"], call.values["group"], call.values["timestamp"]
        topic = self._topics.get(name)
        if topic is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={name}"
            return Answer(Code.TOPIC_NOT_EXIST, remark=remark)
        now = self._offsets.query_all(group, name, range(topic.write_queue_nums))
        if any(offset < 0 for offset in now.values()):
            return Answer(Code.SYSTEM_ERROR, remark=f"The consumer group <{group}> not exist")

        def read() -> tuple[bytes, bytes]:
            is_forced, new = call.values.get("isForce", False), self._at(name, now, timestamp)
            offsets = {one: offset if is_forced or offset < now[one] else now[one] for one, offset in new.items()}
            return self._table(name, offsets), self._list(name, offsets)

        return self._work.look(call, read, lambda bodies: self._tell_clients(call, *bodies))

    def _tell_clients(self, call: Call, body: bytes, body_of_list: bytes) -> Answer:
        """Send the offsets to the consumers of the group, in the form that each of them reads."""
        name, group, timestamp = call.values["topic"], call.values["group"], call.values["timestamp"]
        online = self._consumers.group(group)
        if online is None:
            return Answer(
                Code.CONSUMER_NOT_ONLINE,
                remark=f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} "
                f"Timestamp: {timestamp}",
            )
        for channel in online.channels.values():
            if channel.version < V3_0_7:
                remark = f"the client does not support this feature. version={channel.version}"
                return Answer(Code.SYSTEM_ERROR, remark=remark)
        values = {"topic": name, "group": group, "queueId": -1, "timestamp": timestamp, "isForce": False}
        for connection, channel in list(online.channels.items()):
            told = body_of_list if channel.language in _LIST_LANGUAGES else body
            self._send(connection, RESET_CLIENT, values, told)
        return Answer(body=body, remark=UNSET)

    def _list(self, topic: str, offsets: Mapping[int, int]) -> bytes:
        found = [
            {**forms.queue_object(self._queue(topic, queue_id)), "offset": offset}
            for queue_id, offset in offsets.items()
        ]
        return forms.body({"offsetTable": found})

    # others

    def _clone(self, call: Call) -> None:
        """Give a group the offsets of another one, in one topic or all; they replace its own."""
        values = call.values
        source, target, topic = values["srcGroup"], values["destGroup"], values.get("topic")
        if not is_group_name(target):
            call.later(Answer(Code.INVALID_PARAMETER, remark=f"{target[:40]!r} is not a name of a consumer group"))
            return
        online = None if values.get("offline", False) else self._consumers.group(source)
        for name in [topic] if topic else self._offsets.topics_of(source):
            is_left = online is not None and online.subscriptions and self._left(source, name)
            offsets = self._offsets.queues(name, source)
            if self._topics.get(name) is not None and not is_left and offsets:
                self._offsets.replace(target, name, offsets)
        self._saved(call, Answer())

    def _left(self, group: str, topic: str) -> bool:
        return self._consumers.find_subscription(group, topic, compensated=True) is None

    def _correction(self, call: Call) -> Answer:
        """The smallest offset of each queue among all groups, without some."""
        topic = call.values["topic"]
        left_out = {one.strip() for one in call.values.get("filterGroups", "").split(",")}
        found: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group not in left_out:
                for queue_id, offset in self._offsets.queues(topic, group).items():
                    found[queue_id] = min(offset, found.get(queue_id, offset))
        return Answer(body=forms.body({"correctionOffsets": dict(sorted(found.items()))}))

    def _all(self, call: Call) -> Answer:
        offsets: dict[str, dict[int, int]] = {}
        topics: dict[str, dict[str, None]] = {}
        for topic, group, queue_id, offset in self._offsets.items():
            offsets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
            topics.setdefault(group, {})[topic] = None
        table = {name: in_java_order(found, 64) for name, found in offsets.items()}
        found = {
            "dataVersion": forms.data_version(self._offsets.table),
            "groupTopicMap": {group: list(names) for group, names in topics.items()},
            "offsetTable": table,
        }
        return Answer(body=forms.body(found))

    def _delays(self) -> Answer:
        table = DelayOffsets(self._store.path)
        found = {"dataVersion": forms.data_version(table), "offsetTable": dict(table.items())}
        return Answer(body=forms.body(found))
