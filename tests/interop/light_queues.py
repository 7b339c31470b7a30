"""Light queues (%LMQ%): what a broker answers to those who read them, with plain requests."""

import time

from interop.asking import Asking
from support.admin_story import GROUP, heartbeat

LIGHT = "%LMQ%a"
SEND = {
    "a": "shop", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0, "k": False, "l": 0,
    "m": False, "i": "INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2",
}  # fmt: skip

KEPT = ("offset", "nextBeginOffset", "minOffset", "maxOffset", "timestamp")  # fields of answers


def pull(topic, offset=0, queue_id=0, **fields):
    asked = {
        "consumerGroup": GROUP, "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    return ("PULL_MESSAGE", {**asked, **fields})


def at(name, topic, queue_id=0, **fields):
    return (name, {"topic": topic, "queueId": queue_id, **fields})


def of_group(name, topic, queue_id=0, **fields):
    return (name, {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id, **fields})


QUESTIONS = [
    *(pull(*args) for args in ((LIGHT, 0), ("%LMQ%b", 1), (LIGHT, 3), (LIGHT, 9), ("%LMQ%none", 0))),
    *(pull(*args) for args in ((LIGHT, 0, 1), (LIGHT, 0, -1), ("unknown", 0))),
    pull(LIGHT, 1, sysFlag=5, commitOffset=1),
    *(at(name, topic) for topic in (LIGHT, "%LMQ%none", "unknown") for name in ("GET_MAX_OFFSET", "GET_MIN_OFFSET")),
    *(at("SEARCH_OFFSET_BY_TIMESTAMP", topic, timestamp=1) for topic in (LIGHT, "%LMQ%none")),
    at("GET_EARLIEST_MSG_STORETIME", "%LMQ%none"),
    *(of_group("QUERY_CONSUMER_OFFSET", topic) for topic in (LIGHT, "%LMQ%b", "%LMQ%none")),
    *(of_group("UPDATE_CONSUMER_OFFSET", topic, commitOffset=2) for topic in (LIGHT, "%LMQ%none", "unknown")),
    of_group("UPDATE_CONSUMER_OFFSET", LIGHT, 1, commitOffset=2),
    *(of_group("QUERY_CONSUMER_OFFSET", topic) for topic in (LIGHT, "%LMQ%b", "%LMQ%none")),
    ("GET_TOPIC_STATS_INFO", {"topic": LIGHT}),
    ("GET_CONSUME_STATS", {"consumerGroup": GROUP, "topic": LIGHT}),
]


def answers(address, *, is_on=True):
    """Send three messages into two light queues; return the question, code, fields and messages of each answer.

    is_on  whether the broker has light queues
    """
    asking = Asking(address)
    try:
        assert asking.ask("HEART_BEAT", heartbeat("orders"))[0] == 0
        for body in (b"0", b"1", b"2"):
            assert asking.ask("SEND_MESSAGE_V2", body, **SEND)[0] == 0
        queue = at("GET_MAX_OFFSET", LIGHT if is_on else "orders")
        while asking.ask(queue[0], **queue[1])[1]["offset"] != "3":
            time.sleep(0.01)
        found = []
        for name, fields in QUESTIONS:
            code, answer, body = asking.ask(name, **fields)
            kept = {key: value for key, value in answer.items() if key in KEPT}
            found.append(
                (name, fields["topic"], fields.get("queueId"), code, kept, body.count(b"INNER_MULTI_DISPATCH"))
            )
        return found
    finally:
        asking.close()
