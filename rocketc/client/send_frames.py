"""Frames of sends. What is the same in all sends to a topic at a broker is encoded once.

Source: RocketMQ SendMessageRequestHeaderV2.
"""

from __future__ import annotations

import json
import struct

from rocketc.client.outgoing import Outgoing
from rocketc.client.routes import MessageQueue
from rocketc.remoting.command import LANGUAGE, VERSION, Command
from rocketc.remoting.requests import CODES, REQUESTS

SEND, SEND_BATCH = CODES["SEND_MESSAGE_V2"], CODES["SEND_BATCH_MESSAGE"]

END = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'  # of a header, after the opaque

_quoted = json.encoder.encode_basestring
_Key = tuple[int, str, str]  # code, topic, broker name
_KEPT = 1000  # texts


class SendFrames:
    """Encodes the sends of one producer.

    group          of the producer
    default_topic  and
    queue_nums     for topics that do not exist yet
    """

    def __init__(self, group: str, default_topic: str, queue_nums: int) -> None:
        self._group, self._default_topic, self._queue_nums = group, default_topic, queue_nums
        self._texts: dict[_Key, tuple[str, str]] = {}

    def values(self, code: int, message: Outgoing, queue: MessageQueue, born: int) -> dict[str, object]:
        """Return the fields of a send by their names in the table of requests.

        code  SEND or SEND_BATCH
        born  ms since 1970
        """
        return {
            "producerGroup": self._group,
            "topic": message.topic,
            "defaultTopic": self._default_topic,
            "defaultTopicQueueNums": self._queue_nums,
            "queueId": queue.queue_id,
            "sysFlag": message.sys_flag,
            "bornTimestamp": born,
            "flag": message.flag,
            "properties": message.properties,
            "reconsumeTimes": message.reconsume_times,
            "unitMode": False,
            "maxReconsumeTimes": message.max_reconsume_times,
            "batch": code == SEND_BATCH,
            "brokerName": queue.broker_name,
        }

    def encode(self, code: int, message: Outgoing, queue: MessageQueue, born: int, opaque: int) -> bytes:
        """Return the frame of a send. The arguments are those of values(), and the number of the request.

        >>> frames = SendFrames("shop", "TBW102", 4)
        >>> message, queue = Outgoing("orders", b"one", "", "K"), MessageQueue("orders", "broker-a", 3)
        >>> frame = frames.encode(SEND, message, queue, 1_764_000_000_000, 7)
        >>> Command.decode(0, frame[8:-3]).fields["e"], frame[-3:]
        ('3', b'one')
        """
        if message.reconsume_times or message.max_reconsume_times is not None:
            fields = REQUESTS[code].encode(self.values(code, message, queue, born))
            return Command(code, fields, message.body, opaque).encode()
        texts = self._texts.get((code, message.topic, queue.broker_name)) or self._begin(code, message, queue)
        header = (
            f'{texts[0]}{queue.queue_id}","f":"{message.sys_flag}","g":"{born}","h":"{message.flag}",'
            f'"i":{_quoted(message.properties)},{texts[1]}"flag":0,"language":"{LANGUAGE}","opaque":{opaque}{END}'
        ).encode("utf-8", "replace")
        return struct.pack(">II", 4 + len(header) + len(message.body), len(header)) + header + message.body

    def ends(self, code: int, queue: MessageQueue) -> tuple[bytes, bytes]:
        """Return what all frames of plain sends to a queue have: from the header to the time of birth, and from the
        properties to the opaque. END is after the opaque.

        code  SEND or SEND_BATCH
        """
        message = Outgoing(queue.topic, b"", "", "")
        texts = self._texts.get((code, queue.topic, queue.broker_name)) or self._begin(code, message, queue)
        head = f'{texts[0]}{queue.queue_id}","f":"0","g":"'
        tail = f'",{texts[1]}"flag":0,"language":"{LANGUAGE}","opaque":'
        return head.encode("utf-8", "replace"), tail.encode("utf-8", "replace")

    def _begin(self, code: int, message: Outgoing, queue: MessageQueue) -> tuple[str, str]:
        """Keep the text before the queue id, and the text between the properties and the flag."""
        sample = message._replace(properties="", sys_flag=0, flag=0)
        fields = REQUESTS[code].encode(self.values(code, sample, queue._replace(queue_id=0), 0))
        text = Command(code, fields).encode()[8:].decode()
        before, after = text.split('0","f":"0","g":"0","h":"0","i":"",', 1)
        texts = before, after.split('"flag":0,"language"', 1)[0]
        if len(self._texts) < _KEPT:
            self._texts[code, message.topic, queue.broker_name] = texts
        return texts
