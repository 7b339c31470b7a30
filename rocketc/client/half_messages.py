"""Half messages: stored by the broker, and given to consumers only after the end of the transaction.

Source: RocketMQ DefaultMQProducerImpl.sendMessageInTransaction, EndTransactionRequestHeader.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rocketc._layout import FLAG_COMPRESSED, FLAG_COMPRESSION_MASK, FLAG_PREPARED
from rocketc.client.names import PRODUCER_GROUP, TRANSACTION, TRANSACTION_ID
from rocketc.client.outgoing import PROPERTIES_MOST, Outgoing
from rocketc.client.send_results import SendResult
from rocketc.client.transaction_states import LocalTransactionState, end_fields, text_of
from rocketc.errors import AnswerError, IllegalMessageError
from rocketc.format._encoding import encode
from rocketc.format.ids import decode_offset_id
from rocketc.read._message import Message
from rocketc.read._opened_records import pulled_messages

_log = logging.getLogger("rocketc.client")

_COMPRESSION = FLAG_COMPRESSED | FLAG_COMPRESSION_MASK
_DELAYS = ("delay_level", "delay", "deliver_at")


def half_properties(group: str) -> dict[str, str]:
    """Return the properties that make a message a half message.

    group  of the producers that the broker may ask

    >>> half_properties("shop")
    {'TRAN_MSG': 'true', 'PGROUP': 'shop'}
    """
    return {TRANSACTION: "true", PRODUCER_GROUP: group}


def check_options(options: Mapping[str, object]) -> None:
    """Raise IllegalMessageError if the keywords of a send ask for a delay: RocketMQ would drop it without a word.

    >>> check_options({"tags": "web", "delay": 1.5})
    Traceback (most recent call last):
    rocketc.errors.IllegalMessageError: delay: a message of a transaction cannot be delayed
    """
    for name in _DELAYS:
        value = options.get(name)
        if value is not None and not (name == "delay_level" and value == 0):
            raise IllegalMessageError(f"{name}: a message of a transaction cannot be delayed")


def prepared(message: Outgoing) -> Outgoing:
    """Return a message with the bit of a half message.

    >>> prepared(Outgoing("orders", b"one", "", "K")).sys_flag
    4
    """
    return message._replace(sys_flag=message.sys_flag | FLAG_PREPARED)


class Half:
    """One half message that a broker has stored.

    sent     where
    message  as the local transaction and the check function get it
    address  of the master of its broker, when it was sent

    Raises AnswerError if the broker's answer lacks its place in the commit log.

    >>> from rocketc.client.routes import MessageQueue
    >>> from rocketc.client.send_results import SendStatus
    >>> outgoing = Outgoing("orders", b"one", "KEYS" + chr(1) + "o-1" + chr(2), "0A00")
    >>> queue = MessageQueue("orders", "broker-a", 3)
    >>> half = Half(outgoing, SendResult(SendStatus.SEND_OK, "0A00", queue, 7, "C0A8010A00002A9F0000000000001000"), 5)
    >>> half.message.keys, half.message.msg_id == half.sent.offset_msg_id
    ('o-1', True)
    """

    def __init__(self, outgoing: Outgoing, sent: SendResult, born: int) -> None:
        self.sent, self.topic, self.address = sent, outgoing.topic, ""
        self.transaction_id = sent.transaction_id or sent.msg_id
        try:
            place = decode_offset_id(sent.offset_msg_id)
        except ValueError as error:
            raise AnswerError(sent.queue.broker_name, f"the answer to a half message cannot be read: {error}") from None
        self.phy_offset = place.phy_offset
        properties = outgoing.properties.encode("utf-8", "replace")
        more = f"{TRANSACTION_ID}\x01{self.transaction_id}\x02".encode()
        if len(properties) + len(more) <= PROPERTIES_MOST:  # otherwise they are longer than in any record
            properties += more
        record = encode(
            outgoing.topic,
            outgoing.body,
            queue_id=sent.queue.queue_id,
            flag=outgoing.flag,
            queue_offset=sent.queue_offset,
            phy_offset=place.phy_offset,
            sys_flag=outgoing.sys_flag & _COMPRESSION,
            born_timestamp=born,
            store_host=(place.host, place.port),
            properties=properties,
        )
        messages, errors, _ = pulled_messages(record, broker=sent.queue.broker_name)
        if errors:
            raise errors[0]
        self.message: Message = messages[0]

    def end_fields(self, group: str, state: LocalTransactionState) -> dict[str, Any]:
        """Return the fields of END_TRANSACTION."""
        return end_fields(
            group,
            state,
            topic=self.topic,
            offset=self.sent.queue_offset,
            place=self.phy_offset,
            msg_id=self.sent.msg_id,
            transaction_id=self.transaction_id,
            is_checked=False,
        )

    @property
    def status_remark(self) -> str:
        """Why the local transaction does not run, if the status is another one than SEND_OK."""
        status = self.sent.status.name
        return f"the half message {self.sent.msg_id} was stored with the status {status}, so it is rolled back"

    def log_failure(self, error: Exception) -> None:
        """Log what the local transaction raised."""
        _log.warning("the local transaction of %s failed; the broker asks later: %s",
                     self.sent.msg_id, text_of(error), exc_info=error)  # fmt: skip
