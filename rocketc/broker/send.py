"""SEND_MESSAGE and its variants, with all rules. The compiled SendPath takes the simple ones.

Source: RocketMQ SendMessageProcessor, AbstractSendMessageProcessor, HookUtils.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from rocketc._layout import (
    DLQ_PREFIX,
    FLAG_COMMIT,
    FLAG_INNER_BATCH,
    FLAG_MULTI_TAGS,
    FLAG_NEED_UNWRAP,
    FLAG_TRANSACTION_MASK,
    PROPERTY_DELAY,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    RETRY_PREFIX,
)
from rocketc.broker import names
from rocketc.broker._send_path import SendPath, peer_host
from rocketc.broker.answer_waits import AnswerWaits
from rocketc.broker.batches import decode_batch
from rocketc.broker.config import BrokerConfig
from rocketc.broker.delays import DelayService, delay_level, delayed
from rocketc.broker.half_messages import is_transaction, make_half
from rocketc.broker.put_refusals import refusal_code
from rocketc.broker.retries import LastStop, Retries
from rocketc.broker.timed_puts import Refused, TimedPuts, is_timed, recall_handle
from rocketc.broker.topics import FORBIDDEN, READ_WRITE, TopicManager, name_fault
from rocketc.broker.unique_keys import UniqueKeys
from rocketc.errors import BadRequestError, RocketcError
from rocketc.format.ids import OffsetId
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.status import PutStatus
from rocketc.tables.topics import PERM_WRITE, TopicConfig

SEND_BATCH = 320
MOST_PROPERTIES = 32767  # bytes
_QUEUES = 99_999_999
_SHORT = range(-(1 << 15), 1 << 15)
_NUMBER = re.compile(r"[+-]?\d{1,40}")

# Properties that need a decision, so that the compiled path leaves the message to the processor.
SPECIAL = (
    names.TRANSACTION,
    names.POP_CHECK_POINT,
    names.MSG_REGION,
    names.TRACE_ON,
    names.CLUSTER,
    *names.TIMER,
    names.TIMER_OUT_MS,
    PROPERTY_DELAY,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
)


def decode_properties(text: str) -> dict[str, str]:
    """Return the properties of a text in stored form; of two with one name, the last counts.

    One without a name or a value is left out. Source: RocketMQ MessageDecoder.string2messageProperties.

    >>> decode_properties("TAGS\\x01A\\x02KEYS\\x01k1")
    {'TAGS': 'A', 'KEYS': 'k1'}
    """
    pairs = (pair.split("\1", 1) for pair in text.split("\2"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and all(pair)}


def encode_properties(properties: dict[str, str]) -> bytes:
    """Return properties in stored form.

    >>> encode_properties({"TAGS": "A"})
    b'TAGS\\x01A\\x02'
    """
    return "".join(f"{name}\1{value}\2" for name, value in properties.items()).encode("utf-8", "replace")


class SendProcessor:
    """Checks and stores messages.

    path    appends to the store
    waits   of answers until a flush or a report of a slave; None: nothing waits
    retries the rules of %RETRY% topics
    delays  delivers delayed messages
    timed   the rules of timed messages
    timed_added  called when a message was put into the timer topic
    host    (address, port) that clients know
    prepared  called with the topic of each half message that is stored
    """

    codes = (10, 310, SEND_BATCH)

    def __init__(
        self,
        path: SendPath,
        waits: AnswerWaits | None,
        topics: TopicManager,
        retries: Retries,
        delays: DelayService,
        timed: TimedPuts,
        timed_added: Callable[[], object],
        config: BrokerConfig,
        host: tuple[str, int],
        max_message_size: int,
        clock: Callable[[], int],
        chance: random.Random,
        prepared: Callable[[str], object] = lambda topic: None,
    ) -> None:
        self._path, self._waits, self._topics, self._prepared = path, waits, topics, prepared
        self._retries, self._delays = retries, delays
        self._timed, self._timed_added = timed, timed_added
        self._config, self._host, self._most = config, host, max_message_size
        self._clock, self._chance = clock, chance
        self._id_begin = OffsetId(*host, 0).encode()[:-16]  # of message ids: the host
        self._keys = UniqueKeys(host[0], clock, chance)
        self._told = {names.MSG_REGION: config.region_id, names.TRACE_ON: str(config.trace_on).lower()}

    def process(self, call: Call) -> Answer | None:
        answer = self._send(call)
        if answer is None:
            return None
        answer.fields = {**answer.fields, **self._told}
        name = call.values["topic"]
        if name not in self._topics.table or self._topics.is_written(name):
            return answer
        self._topics.when_written(lambda: call.later(answer))  # a topic that an answer shows survives a kill
        return None

    def _send(self, call: Call) -> Answer | None:
        sent = call.values
        if self._clock() < self._config.start_accept_send_request_time_stamp:
            return Answer(
                Code.SYSTEM_ERROR,
                remark=f"broker unable to service, until {self._config.start_accept_send_request_time_stamp}",
            )
        found = self.check(sent)
        if isinstance(found, Answer):
            return found
        queue_id = sent["queueId"]
        if queue_id < 0:
            queue_id = self._chance.randrange(_QUEUES) % max(found.write_queue_nums, 1)
        is_batch = call.command.code == SEND_BATCH or sent.get("batch", False)
        if not call.command.body:
            raise BadRequestError("the message lacks a body")  # RocketMQ's answer is an exception's too
        last = self._last_stop(call, found)
        if isinstance(last, Answer):
            return last
        if last is not None:
            found, queue_id = last.topic, 0
        try:
            needs_key = not is_batch or found.queue_type == "BatchCQ"
            properties = self._properties(sent.get("properties") or "", needs_key)
            if last is not None:
                properties[PROPERTY_DELAY] = str(last.level or -1)
                properties.pop(names.TRANSACTION, None)
            if (refused := self._refuse(sent, found, properties, is_batch)) is not None:
                return refused
            return self._store(call, found, queue_id, properties, is_batch)
        except BadRequestError:
            raise
        except ValueError as error:
            return Answer(Code.MESSAGE_ILLEGAL, remark=str(error))

    def _last_stop(self, call: Call, topic: TopicConfig) -> LastStop | Answer | None:
        """Return where a send to a retry topic goes if no retry is left; None: to its topic; or an answer."""
        if not topic.topic_name.startswith(RETRY_PREFIX):
            return None
        sent = call.values
        group = self._retries.group(topic.topic_name[len(RETRY_PREFIX) :])
        if isinstance(group, Answer):
            return group
        times, most = sent.get("reconsumeTimes", 0), sent.get("maxReconsumeTimes")
        if not self._retries.is_over(group, times, most, call.command.version):
            return None
        last = self._retries.last_stop(group)
        if not isinstance(last, Answer):
            sent["topic"] = last.topic.topic_name  # the one that must be on the disk before the answer
        return last

    def check(self, sent: dict[str, Any]) -> TopicConfig | Answer:
        """Check the topic of a send or of a reply, in RocketMQ's order. Return the topic, or the answer."""
        name = sent["topic"]
        topic = self._topics.get(name)
        if not self._config.broker_permission & PERM_WRITE and topic is not None and topic.order:
            return Answer(
                Code.NO_PERMISSION, remark=f"the broker[{self._host[0]}:{self._host[1]}] sending message is forbidden"
            )
        if fault := name_fault(name):
            return Answer(Code.INVALID_PARAMETER, remark=fault)
        if name in FORBIDDEN:
            return Answer(Code.NO_PERMISSION, remark=f"Sending message to topic[{name}] is forbidden.")
        if topic is None:
            topic = self._topics.create_in_send(
                name, sent["defaultTopic"], sent["defaultTopicQueueNums"], sent.get("unitMode", False)
            )
        if topic is None and name.startswith(RETRY_PREFIX):
            topic = self._topics.create_if_missing(name, 1, READ_WRITE)
        if topic is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{name}] not exist, apply first please!")
        if sent["queueId"] >= max(topic.write_queue_nums, topic.read_queue_nums):
            return Answer(
                Code.INVALID_PARAMETER, remark=f"request queueId[{sent['queueId']}] is illegal, {shown_topic(topic)}"
            )
        return topic

    def _properties(self, text: str, needs_key: bool) -> dict[str, str]:
        """Decode the properties of a send, and change them as the broker does.

        needs_key  make a missing unique key. False for a batch: each of its messages has a key
        """
        properties = decode_properties(text)
        properties.pop(names.POP_CHECK_POINT, None)
        properties.pop(PROPERTY_INNER_BASE, None)  # the store sets it, for the queue that the message gets
        if needs_key and not properties.get(PROPERTY_UNIQUE_KEY):
            properties[PROPERTY_UNIQUE_KEY] = self._keys.make()
        properties |= self._told
        properties[names.CLUSTER] = self._config.broker_cluster_name
        return properties

    def _refuse(
        self, sent: dict[str, Any], topic: TopicConfig, properties: dict[str, str], is_batch: bool
    ) -> Answer | None:
        """Refuse what this broker can't do with a message. Raises BadRequestError."""
        level = delay_level(properties)
        if self._is_half(sent, properties, is_batch):
            if not self._config.reject_transaction_message:
                return None
            return Answer(
                Code.NO_PERMISSION,
                remark=f"the broker[{self._host[0]}:{self._host[1]}] sending transaction message is forbidden",
            )
        if is_batch and sent["sysFlag"] & FLAG_TRANSACTION_MASK:
            return Answer(Code.MESSAGE_ILLEGAL, remark=self._too_long())
        if is_batch and level > 0:
            return Answer(Code.MESSAGE_ILLEGAL, remark="a batch can't be delayed")
        if is_batch and topic.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return Answer(Code.MESSAGE_ILLEGAL, remark="batch request does not support retry group " + topic.topic_name)
        return None

    def _is_half(self, sent: dict[str, Any], properties: dict[str, str], is_batch: bool) -> bool:
        """Whether a send is the first part of a transaction. Messages of a batch are not, as in RocketMQ."""
        is_retried = sent.get("reconsumeTimes", 0) > 0 and delay_level(properties) > 0  # by a client before 4.6.1
        return not is_batch and not is_retried and is_transaction(properties)

    def _check_inner(self, sys_flag: int, topic: TopicConfig, properties: dict[str, str], is_inner: bool) -> None:
        """Check what marks an inner batch: the bit of sysFlag, and INNER_NUM, the number of its messages.

        is_inner  the broker makes the inner batch, and sets both
        Raises ValueError for an illegal message, BadRequestError for a wrong number.
        Source: RocketMQ HookUtils, observed on 5.3.3.
        """
        is_marked, count = sys_flag & FLAG_INNER_BATCH, properties.get(PROPERTY_INNER_NUM)
        if is_inner or (not is_marked and count is None):
            return
        if not is_marked or topic.queue_type != "BatchCQ":
            raise ValueError(self._too_long())
        if count is not None and not _is_short(count):
            raise BadRequestError(
                f"the property {PROPERTY_INNER_NUM} is {count[:20]!r}, which is not a number of 16 bits"
            )

    def _messages(self, call: Call, properties: dict[str, str], is_batch: bool) -> list[tuple[int, bytes, bytes]]:
        """Return (flag, body, properties in stored form) of each message. Raises ValueError for sizes."""
        stored = encode_properties(properties)
        body = call.command.body
        if len(body) > self._most:
            raise ValueError(self._too_long())
        if not is_batch:
            messages = [(call.values["flag"], body, stored)]
        else:
            try:
                batch = decode_batch(body)
            except BadRequestError as error:
                raise ValueError(str(error)) from None  # no error of the store
            messages = [
                (flag, one, own + (b"\2" if own and not own.endswith(b"\2") else b"") + stored)
                for flag, one, own in batch
            ]
        if any(len(own) > MOST_PROPERTIES for _, _, own in messages):
            raise ValueError(self._too_long())
        if not messages:
            raise ValueError("the batch is empty")
        return messages

    def _too_long(self) -> str:
        return (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {self._most}B, msg properties length limit 32KB."
        )

    def _store(
        self,
        call: Call,
        topic: TopicConfig,
        queue_id: int,
        properties: dict[str, str],
        is_batch: bool,
    ) -> Answer | None:
        """Store the messages of a call. Raises ValueError for sizes."""
        sent = call.values
        sys_flag = sent["sysFlag"] | (FLAG_MULTI_TAGS if topic.topic_filter_type == "MULTI_TAG" else 0)
        is_inner = is_batch and topic.queue_type == "BatchCQ"
        if is_inner:
            sys_flag |= FLAG_NEED_UNWRAP | FLAG_INNER_BATCH
        name, stored_queue, level = topic.topic_name, queue_id, delay_level(properties)
        is_half = self._is_half(sent, properties, is_batch)
        if is_half:
            name, stored_queue = make_half(properties, name, queue_id)
            sys_flag, level = sys_flag & ~FLAG_TRANSACTION_MASK, 0
        may_wait = sys_flag & FLAG_TRANSACTION_MASK in (0, FLAG_COMMIT)
        if is_delayed := may_wait and level > 0 and self._delays.levels > 0:
            name, stored_queue = delayed(properties, level, name, queue_id, self._delays.levels)
        elif may_wait and not is_half and name != names.TIMER_TOPIC and is_timed(properties):
            to = self._timed.change(properties, name, queue_id, self._clock())
            if isinstance(to, Refused):
                return Answer(refusal_code(to.status), remark=to.remark)
            name, stored_queue = to
        try:
            self._check_inner(sent["sysFlag"], topic, properties, is_inner)
            status, ids, queue_offset, end = self._append(
                call, name, stored_queue, properties, sys_flag, is_batch, is_inner
            )
        except (RocketcError, OSError) as error:
            code, text = self._path.refusals.of_error(error)
            return Answer(code, remark=text)
        code, remark = self._path.refusals.of_status(status)
        if not status.is_stored:
            return Answer(code, remark=remark)
        if is_delayed:
            self._delays.added(stored_queue)
        elif name == names.TIMER_TOPIC:
            self._timed_added()
        if is_half:
            self._prepared(topic.topic_name)
        values: dict[str, Any] = {
            "msgId": ids,
            "queueId": queue_id,
            "queueOffset": queue_offset,
        }
        if (key := properties.get(PROPERTY_UNIQUE_KEY)) is not None:
            values["transactionId"] = key
        if is_inner:
            values["batchUniqId"] = key
        if not is_batch and (handle := recall_handle(properties, self._config.broker_name)) is not None:
            values["recallHandle"] = handle
        answer = Answer(values=values)
        if self._waits is None or properties.get(PROPERTY_WAIT, "true").lower() != "true":
            return answer

        def flushed(code: int) -> None:
            told = Answer(code, answer.values, fields=self._told)
            is_written = self._topics.is_written(topic.topic_name)
            call.later(told) if is_written else self._topics.when_written(lambda: call.later(told))

        self._waits.add(end, flushed)
        return None

    def _append(
        self,
        call: Call,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        sys_flag: int,
        is_batch: bool,
        is_inner: bool,
    ) -> tuple[PutStatus, str, int, int]:
        """Append the messages of a call: (PutStatus, their ids, queue offset, end). Raises ValueError for sizes."""
        sent, body, host = call.values, call.command.body, call.connection.host
        if host is None:
            host = call.connection.host = peer_host(call.connection.peer)
        name, times, born = topic.encode(), sent.get("reconsumeTimes", 0), sent["bornTimestamp"]
        if is_batch and not is_inner and len(body) <= self._most:
            stored = encode_properties(properties)
            appended = self._path.append_batch(name, queue_id, body, stored, sys_flag, born, host, times)
            if appended is not None:
                return appended
        messages = self._messages(call, properties, is_batch)
        if is_inner:
            messages = [_inner_batch(call, messages, properties)]
        status, offsets, queue_offset, end = self._path.append(
            name, queue_id, messages, sys_flag, born, host, times, is_batch and not is_inner
        )
        return status, ",".join(f"{self._id_begin}{offset:016X}" for offset in offsets), queue_offset, end


def shown_topic(topic: TopicConfig) -> str:
    """Return a topic as a text for a peer.

    >>> shown_topic(TopicConfig("orders", 4, 4))
    'TopicConfig [topicName=orders, readQueueNums=4, writeQueueNums=4, perm=RW-]'
    """
    perm = "".join(letter if topic.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}]"
    )


def _inner_batch(
    call: Call, messages: list[tuple[int, bytes, bytes]], properties: dict[str, str]
) -> tuple[int, bytes, bytes]:
    """Return the one record of a batch for a topic whose queues have a unit per batch. Raises BadRequestError."""
    if len(messages) > _SHORT[-1]:
        raise BadRequestError(f"the batch has {len(messages)} messages; {_SHORT[-1]} at most")
    stored = encode_properties({**properties, PROPERTY_INNER_NUM: str(len(messages))})
    return call.values["flag"], call.command.body, stored


def _is_short(text: str) -> bool:
    """Whether Java's Short.parseShort() reads a text."""
    return _NUMBER.fullmatch(text) is not None and int(text) in _SHORT
