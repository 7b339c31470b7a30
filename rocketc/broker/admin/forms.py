"""JSON bodies of answers to tools, as fastjson of RocketMQ writes them: also maps whose names are queues.

Source: RocketMQ remoting/protocol/body, RemotingSerializable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rocketc.broker.bodies import BODY_MOST, LONGS, number_of, object_of, parse_body, text_of
from rocketc.broker.locks import MessageQueue
from rocketc.broker.subscriptions import Subscription
from rocketc.errors import BadRequestError
from rocketc.tables.config_manager import ConfigManager
from rocketc.tables.fastjson import to_bytes
from rocketc.tables.topics import TopicConfig

_NAME_MOST = 1000  # characters


def body(data: Any) -> bytes:
    """Return a value as the body of an answer.

    >>> body({"a": [1]})
    b'{"a":[1]}'
    """
    return to_bytes(data, compact=True)


def queue_object(queue: MessageQueue) -> dict[str, Any]:
    """Return a queue as an object.

    >>> queue_object(MessageQueue("orders", "broker-a", 0))
    {'brokerName': 'broker-a', 'queueId': 0, 'topic': 'orders'}
    """
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_map(table: Mapping[MessageQueue, Any]) -> bytes:
    """Return a map by queues. Its names are objects, which only fastjson writes and reads.

    >>> queue_map({MessageQueue("orders", "broker-a", 0): 7})
    b'{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7}'
    """
    return b"{" + b",".join(body(queue_object(queue)) + b":" + body(value) for queue, value in table.items()) + b"}"


_QUEUE_NAME = re.compile(r"([{,])[ \t\r\n]*(\{[^{}]*\})[ \t\r\n]*:")


def queue_numbers(body: bytes, member: str) -> dict[MessageQueue, int]:
    """Return a map of queues to numbers, such as offsets, from a body of a client; both forms of fastjson are read.

    member  of the body, an object whose names are queues
    Raises BadRequestError.

    >>> queue_numbers(b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}', "messageQueueTable")
    {MessageQueue(topic='t', broker_name='b', queue_id=0): 7}
    """
    if len(body) > BODY_MOST:
        raise BadRequestError(f"the body has {len(body)} bytes; {BODY_MOST} at most")
    text = body.decode("utf-8", "replace")
    quoted = _QUEUE_NAME.sub(lambda found: f"{found[1]}{json.dumps(found[2])}:", text)
    table = object_of(object_of(parse_body(quoted.encode()), "the body").get(member) or {}, f"the member {member}")
    found = {}
    for name in table:
        queue = object_of(parse_body(name.encode("utf-8", "replace")), "a queue")
        key = MessageQueue(
            text_of(queue, "topic", _NAME_MOST), text_of(queue, "brokerName", _NAME_MOST), number_of(queue, "queueId")
        )
        found[key] = number_of(table, name, LONGS)
    return found


def joined(members: Mapping[str, bytes]) -> bytes:
    """Return an object of members that are JSON already.

    >>> joined({"consumeTps": b"0.0", "offsetTable": b"{}"})
    b'{"consumeTps":0.0,"offsetTable":{}}'
    """
    return b"{" + b",".join(body(name) + b":" + value for name, value in members.items()) + b"}"


def listed(values: Iterable[bytes]) -> bytes:
    """Return a list of values that are JSON already.

    >>> listed([b"1", b"{}"])
    b'[1,{}]'
    """
    return b"[" + b",".join(values) + b"]"


def data_version(table: ConfigManager) -> dict[str, int]:
    """Return the data version of a table.

    >>> import tempfile
    >>> from rocketc.tables.topics import Topics
    >>> sorted(data_version(Topics(tempfile.mkdtemp())))
    ['counter', 'stateVersion', 'timestamp']
    """
    counter, timestamp = table.version
    return {"counter": counter, "stateVersion": 0, "timestamp": timestamp}


def topic_object(topic: TopicConfig) -> dict[str, Any]:
    """Return a topic as an object.

    >>> topic_object(TopicConfig("orders"))["topicName"]
    'orders'
    """
    return topic.to_file()


def subscription_object(subscription: Subscription) -> dict[str, Any]:
    """Return a subscription as an object.

    >>> subscription_object(Subscription("orders"))["subString"]
    '*'
    """
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": sorted(subscription.code_set),
        "expressionType": subscription.expression_type,
        "subString": subscription.sub_string,
        "subVersion": subscription.sub_version,
        "tagsSet": sorted(subscription.tags_set),
        "topic": subscription.topic,
    }
