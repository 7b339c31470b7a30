"""Locks of queues, for consumers that consume in order.

Source: RocketMQ AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rocketc.broker.bodies import list_of, number_of, object_of, parse_body, text_of
from rocketc.broker.heartbeat import CLIENT_ID_MOST
from rocketc.broker.locks import MessageQueue, RebalanceLockManager
from rocketc.errors import BadRequestError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call

LOCK_BATCH_MQ, UNLOCK_BATCH_MQ = 41, 42
QUEUES_MOST = 10_000  # queues of one request
NAME_MOST = 255  # characters of a group, a topic, a broker


class LockProcessor:
    """Answers locks (41) and unlocks (42) of queues.

    clock  gives ms
    A queue that another client has locked is left out of the answer; the code is SUCCESS all the same.
    """

    codes = (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ)

    def __init__(self, locks: RebalanceLockManager, *, clock: Callable[[], int]) -> None:
        self._locks, self._clock = locks, clock

    def process(self, call: Call) -> Answer:
        try:
            group, client_id, queues = _decode(call.command.body)
        except BadRequestError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        if call.command.code == UNLOCK_BATCH_MQ:
            self._locks.unlock(group, queues, client_id)
            return Answer()
        held = self._locks.lock(group, queues, client_id, self._clock())
        found = [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in dict.fromkeys(queues)
            if queue in held
        ]
        return Answer(body=json.dumps({"lockOKMQSet": found}, ensure_ascii=False, separators=(",", ":")).encode())


def _decode(body: bytes) -> tuple[str, str, list[MessageQueue]]:
    """Return group, client id and queues of a request. Raises BadRequestError."""
    data = object_of(parse_body(body), "the body")
    queues = [_queue(object_of(one, "a queue")) for one in list_of(data, "mqSet", QUEUES_MOST)]
    if queues:
        for name in ("consumerGroup", "clientId"):
            if data.get(name) is None:
                raise BadRequestError(f"the body lacks the member {name}")
    return text_of(data, "consumerGroup", NAME_MOST), text_of(data, "clientId", CLIENT_ID_MOST), queues


def _queue(data: dict[str, Any]) -> MessageQueue:
    topic = text_of(data, "topic", NAME_MOST)
    if not topic:
        raise BadRequestError("a queue lacks the member topic")
    return MessageQueue(topic, text_of(data, "brokerName", NAME_MOST), number_of(data, "queueId"))
