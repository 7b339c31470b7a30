"""Questions to a store in the words of the golden stores' `queries.json`, rocketc's answers to them, and RocketMQ's
answers as rocketc's have to be.

RocketMQ returns messages of other keys whose hash is the same, and a message as often as it has keys of that hash;
rocketc does not. For all else the answers are equal.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Told = dict[str, Any]
Question = Mapping[str, Any]

MOST = 64  # of RocketMQ's answer to a query by key
FOREVER = (1 << 63) - 1


def keys_of(properties: Mapping[str, str]) -> set[str]:
    """What a message is found by in the index."""
    return {*filter(None, [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")])}


class Known:
    """What a store's messages are: what makes an answer right."""

    def __init__(self, messages: Iterable[Told], release: str) -> None:
        """messages: dicts with topic, properties, sysFlag and physicalOffset or phyOffset; release: RocketMQ's."""
        self.five = release >= "5"
        self.messages = {m["physicalOffset" if "physicalOffset" in m else "phyOffset"]: m for m in messages}

    def differences(self, store: Any, questions: Sequence[Question], answers: Iterable[Question]) -> list[Any]:
        """(question, what rocketc says, what it has to say) where these differ."""
        wrong = []
        for question, answer in zip(questions, answers, strict=True):
            found, wanted = getattr(self, question["kind"])(store, question, answer)
            if found != wanted:
                wrong.append((dict(question), found, wanted))
        return wrong

    def getMessage(self, store: Any, question: Question, answer: Question) -> tuple[Told, Told]:
        got = store.get(
            question["topic"],
            question["queueId"],
            question["offset"],
            question["maxMsgNums"],
            tags=question["tags"],
            exact_tags=False,
        )
        found = {
            "status": got.status.name,
            "nextBeginOffset": got.next_offset,
            "minOffset": got.min_offset,
            "maxOffset": got.max_offset,
            "phyOffsets": list(got.phy_offsets),
            "bufferTotalSize": len(got.buffer),
        }
        return found, {name: answer[name] for name in found}

    def getOffsetInQueueByTime(self, store: Any, question: Question, answer: Question) -> tuple[Told, Told]:
        where = question["topic"], question["queueId"], question["timestamp"]
        found = {"offset": store.offset_by_time(*where, "lower" if self.five else "nearest")}
        if self.five:
            found["upper"] = store.offset_by_time(*where, "upper")
        return found, {name: answer[name] for name in found}

    def queryMessage(self, store: Any, question: Question, answer: Question) -> tuple[Told, Told]:
        topic, key, most = question["topic"], question["key"], question["maxNum"]
        got = store.query(topic, key, max_count=most, begin=question["begin"], end=question["end"])
        offsets = [message.phy_offset for message in got]
        told = answer["phyOffsets"]
        wanted = [n for n in dict.fromkeys(told) if self._has(n, topic, key)]
        if len(told) >= min(most, MOST):  # RocketMQ stopped there, and had counted those that are not meant
            assert len(offsets) >= len(wanted)
            offsets = offsets[len(offsets) - len(wanted) :]
        last = got.index_last_update_timestamp, got.index_last_update_phy_offset
        theirs = answer["indexLastUpdateTimestamp"], answer["indexLastUpdatePhyoffset"]
        if told and not wanted:  # only messages that are not meant: whether that is nothing is not said
            last = theirs
        return {"phyOffsets": offsets, "last": last}, {"phyOffsets": wanted, "last": theirs}

    def _has(self, phy_offset: int, topic: str, key: str) -> bool:
        message = self.messages[phy_offset]
        return message["topic"] == topic and key in keys_of(message["properties"])

    def questions(self, bounds: Callable[[str, int], tuple[int, int]], seed: int = 0, each: int = 8) -> list[Told]:
        """Some of each kind, about every queue and key. bounds(topic, queue id): the least and the next offset."""
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
