"""Queries in the form of the golden stores' `queries.json`, and whether rocketc answers them as RocketMQ did.

RocketMQ's query by key also returns messages of other keys with the same hash. It returns a message once for each key
with that hash, and compares whole seconds. rocketc does so only if asked to (exact_keys=False). Its default answers are
checked against the messages.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Told = dict[str, Any]
Question = Mapping[str, Any]

INNER, ROLLBACK = 0x80, 0xC  # of sysFlag
FOREVER = (1 << 63) - 1


def keys_of(properties: Mapping[str, str]) -> set[str]:
    """The keys by which the index finds a message."""
    return {*filter(None, [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")])}


class Known:
    """The messages of a store, which decide whether an answer is right."""

    def __init__(self, messages: Iterable[Told], release: str) -> None:
        """messages: dicts with topic, properties, sysFlag and physicalOffset or phyOffset; release: RocketMQ's."""
        self.five = release >= "5"
        self.messages = {m["physicalOffset" if "physicalOffset" in m else "phyOffset"]: m for m in messages}
        self._keyed: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for phy_offset, m in sorted(self.messages.items()):
            if m["sysFlag"] & ROLLBACK != ROLLBACK:
                for key in keys_of(m["properties"]):
                    self._keyed.setdefault((m["topic"], key), []).append((phy_offset, m["storeTimestamp"]))

    def differences(self, store: Any, questions: Sequence[Question], answers: Iterable[Question]) -> list[Any]:
        """(query, rocketc's answer, required answer) of each query for which they differ."""
        wrong = []
        for question, answer in zip(questions, answers, strict=True):
            found, wanted = getattr(self, question["kind"])(store, question, answer)
            if found != wanted:
                wrong.append((dict(question), found, wanted))
        return wrong

    def getMessage(self, store: Any, question: Question, answer: Question) -> tuple[Told, Told]:
        where = question["topic"], question["queueId"], question["offset"], question["maxMsgNums"]
        how = {"tags": question["tags"], "exact_tags": False, "broker_limits": True}
        copied, raw = store.get(*where, **how), store.get_raw(*where, **how)
        for got, size in ((copied, len(copied.buffer)), (raw, sum(len(view) for view in raw.views))):
            found = {
                "status": got.status.name,
                "nextBeginOffset": got.next_offset,
                "minOffset": got.min_offset,
                "maxOffset": got.max_offset,
                "phyOffsets": list(got.phy_offsets),
                "bufferTotalSize": size,
            }
            wanted = {name: answer[name] for name in found}
            if found != wanted:
                break
        return found, wanted

    def getOffsetInQueueByTime(self, store: Any, question: Question, answer: Question) -> tuple[Told, Told]:
        where = question["topic"], question["queueId"], question["timestamp"]
        found = {"offset": store.offset_by_time(*where, "lower" if self.five else "nearest")}
        if self.five:
            found["upper"] = store.offset_by_time(*where, "upper")
        batches = self._batches_at(question)
        if batches == 0:
            del found["upper"]
        elif batches > 1:
            found.clear()
        return found, {name: answer[name] for name in found}

    def _batches_at(self, question: Question) -> int:
        """The number of inner batches that a queue has of that time, or -1 if it is not a batch queue.

        If there is none, RocketMQ's bisection for the upper bound ends at any place: at 0, or after the batch that it
        should have found. If there are several, it returns any of them.
        """
        where = question["topic"], question["queueId"]
        own = [m for m in self.messages.values() if (m["topic"], m["queueId"]) == where]
        if not any(m["sysFlag"] & INNER for m in own):
            return -1
        return sum(m["storeTimestamp"] == question["timestamp"] for m in own)

    def queryMessage(self, store: Any, question: Question, answer: Question) -> tuple[Told, Told]:
        topic, key, most = question["topic"], question["key"], question["maxNum"]
        begin, end = question["begin"], question["end"]
        got = store.query(topic, key, max_count=most, begin=begin, end=end, exact_keys=False)
        found = {
            "phyOffsets": got.phy_offsets,
            "indexLastUpdateTimestamp": got.index_last_update_timestamp,
            "indexLastUpdatePhyoffset": got.index_last_update_phy_offset,
        }
        wanted = {name: answer[name] for name in found}
        found["exact"] = store.query(topic, key, max_count=most, begin=begin, end=end).phy_offsets
        wanted["exact"] = [n for n, time in self._keyed.get((topic, key), []) if begin <= time <= end][-most:]
        return found, wanted

    def questions(self, bounds: Callable[[str, int], tuple[int, int]], seed: int = 0, each: int = 8) -> list[Told]:
        """Some queries of each kind, for every queue and key. bounds(topic, queue id): the min and the max offset."""
        chance = random.Random(seed)
        queues: dict[tuple[str, int], list[Told]] = {}
        keys: dict[tuple[str, str], list[int]] = {}
        for message in self.messages.values():
            queues.setdefault((message["topic"], message["queueId"]), []).append(message)
            for key in sorted(keys_of(message["properties"])):
                keys.setdefault((message["topic"], key), []).append(message["storeTimestamp"])
        asked: list[Told] = []
        for (topic, queue_id), messages in sorted(queues.items(), key=lambda item: item[0]):
            where = {"topic": topic, "queueId": queue_id}
            least, end = bounds(topic, queue_id)
            offsets = [least - 1, least, (least + end) // 2, end - 1, end, end + 1, end + 1000]
            offsets += [chance.randint(least, end) for _ in range(each)]
            tags = sorted({m["properties"]["TAGS"] for m in messages if "TAGS" in m["properties"]})
            for offset in offsets:
                some = chance.choice([None, None, ["none"], tags[:1] or None, tags[-2:] or None])
                count = chance.choice([1, 2, 7, 32, 33, 64])
                asked.append({"kind": "getMessage", **where, "offset": offset, "maxMsgNums": count, "tags": some})
            times = [0, messages[0]["storeTimestamp"] - 1000, messages[-1]["storeTimestamp"] + 1]
            times += [chance.choice(messages)["storeTimestamp"] + chance.choice([-1, 0, 1]) for _ in range(each)]
            asked += [{"kind": "getOffsetInQueueByTime", **where, "timestamp": time} for time in times]
        for (topic, key), stamps in sorted(keys.items()):
            time = chance.choice(stamps)
            spans = [(0, FOREVER), (time, time), (time - 1500, time + 1500), (0, time - 1), (time + 1, FOREVER)]
            for begin, end in spans:
                about = {"topic": topic, "key": key, "begin": begin, "end": end}
                asked.append({"kind": "queryMessage", **about, "maxNum": chance.choice([1, 5, 32, 64])})
        asked.append({"kind": "queryMessage", "topic": "a", "key": "none", "maxNum": 32, "begin": 0, "end": FOREVER})
        return asked
