"""QUERY_CONSUME_QUEUE: the units of a queue, and the subscription of a group to its topic.

Source: RocketMQ AdminBrokerProcessor.queryConsumeQueue; shapes, codes and remarks are those of 5.3.3.
"""

from __future__ import annotations

from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.filters import ConsumerFilterManager
from rocketc.broker.topics import TopicManager
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.store._raw_records import RawGetResult
from rocketc.tables.fastjson import to_bytes

QUERY = 321
UNITS_MOST = 1000  # of one answer
_BYTES_MOST = 1 << 30  # of the records, which are not read


class UnitStore(Protocol):
    """What QueueUnits needs of a store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int: ...
    def get_raw(self, topic: str, queue_id: int, offset: int, max_count: int, **how: Any) -> RawGetResult: ...


class QueueUnits:
    """Answers QUERY_CONSUME_QUEUE (321)."""

    codes = (QUERY,)

    def __init__(
        self,
        store: UnitStore,
        topics: TopicManager,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
        work: StoreWork,
    ) -> None:
        self._store, self._topics, self._consumers, self._filters = store, topics, consumers, filters
        self._work = work

    def process(self, call: Call) -> Answer | None:
        """Answer on a thread: the units may be read from the disk."""
        return self._work.answer(call, lambda: self._answer(call))

    def _answer(self, call: Call) -> Answer:
        topic, queue_id = call.values["topic"], call.values["queueId"]
        index, count = call.values["index"], call.values["count"]
        config = self._topics.get(topic)
        if config is None or not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return Answer(Code.SYSTEM_ERROR, remark=f"{queue_id}@{topic} is not exist!")
        first, end = max(self._store.min_offset(topic, queue_id), 0), max(self._store.max_offset(topic, queue_id), 0)
        if not first <= index < end:
            return Answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        found: dict[str, Any] = {"maxQueueIndex": end, "minQueueIndex": first, "queueData": []}
        if count > 0:
            found["queueData"] = self._units(topic, queue_id, index, min(count, UNITS_MOST, end - index))
        if group := call.values.get("consumerGroup"):
            found |= self._filter(group, topic)
        return Answer(body=forms.body(dict(sorted(found.items()))), remark="not set any response code")

    def _units(self, topic: str, queue_id: int, index: int, count: int) -> list[dict[str, Any]]:
        with self._store.get_raw(topic, queue_id, index, count, max_bytes=_BYTES_MOST) as found:
            return [
                {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": tags}
                for offset, size, tags in zip(found.phy_offsets, found.sizes, found.tags_codes, strict=True)
            ]

    def _filter(self, group: str, topic: str) -> dict[str, Any]:
        subscription = self._consumers.find_subscription(group, topic)
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        data = self._filters.find(topic, group)
        text = "null" if data is None else to_bytes(self._filters.table.to_file(data)).decode("utf-8", "replace")
        return {"filterData": text, "subscriptionData": forms.subscription_object(subscription)}
