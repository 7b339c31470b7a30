"""What a send returns, and which answers of a broker mean that another one may take the message.

Source: RocketMQ SendResult, MQClientAPIImpl.processSendResponse, DefaultMQProducer.retryResponseCodes.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, BadRequestError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS


class SendStatus(enum.Enum):
    """RocketMQ's SendStatus. The message is stored in each case.

    SEND_OK              in the log, and where the broker's settings ask for it
    FLUSH_DISK_TIMEOUT   not known to be on the disk yet
    FLUSH_SLAVE_TIMEOUT  not known to be on a slave yet
    SLAVE_NOT_AVAILABLE  no slave could take it

    >>> SendStatus.SEND_OK.name
    'SEND_OK'
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """Where a message is stored.

    status          see SendStatus
    msg_id          the unique id that the client gave it (property UNIQ_KEY)
    queue           topic, broker name and queue id
    queue_offset    of the message in the queue
    offset_msg_id   the id that the broker gave it
    transaction_id  of a transaction, otherwise None
    recall_handle   takes a timed message back; None if the broker does not support it
    """

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None


STORED = tuple(status.value for status in SendStatus)

# RocketMQ's DefaultMQProducer.retryResponseCodes: another broker may take the message.
RETRY = frozenset(
    {
        Code.TOPIC_NOT_EXIST,
        Code.SERVICE_NOT_AVAILABLE,
        Code.SYSTEM_ERROR,
        Code.SYSTEM_BUSY,
        Code.NO_PERMISSION,
        204,  # NO_BUYER_ID
        205,  # NOT_IN_CURRENT_UNIT
        Code.GO_AWAY,
    }
)

_SEND = REQUESTS[310]
_STATUS = {status.value: status for status in SendStatus}


def result_of(address: str, answer: Command, key: str, queue: MessageQueue) -> SendResult:
    """Return the result of a send from its answer, whose code is in STORED. Raises AnswerError.

    key  the unique id of the message

    >>> queue = MessageQueue("orders", "a", 1)
    >>> fields = {"msgId": "7F", "queueId": "1", "queueOffset": "5", "transactionId": "0A"}
    >>> result_of("10.0.0.1:10911", Command(0, fields), "0A", queue)[:4]  # doctest: +ELLIPSIS
    (<SendStatus.SEND_OK: 0>, '0A', MessageQueue(topic='orders', broker_name='a', queue_id=1), 5)
    """
    fields = answer.fields
    try:
        queue_id, queue_offset, msg_id = int(fields["queueId"]), int(fields["queueOffset"]), fields["msgId"]
    except (KeyError, ValueError):
        raise AnswerError(address, _fault(fields)) from None
    if queue_id != queue.queue_id:
        queue = queue._replace(queue_id=queue_id)
    transaction = fields.get("transactionId")
    return SendResult(
        _STATUS[answer.code],
        key,
        queue,
        queue_offset,
        msg_id,
        None if transaction == key else transaction,
        fields.get("recallHandle"),
    )


def _fault(fields: dict[str, str]) -> str:
    try:
        _SEND.decode_answer(fields)
    except BadRequestError as error:
        return str(error)
    return "the answer to a send has a number that is not one"
