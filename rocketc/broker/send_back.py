"""CONSUMER_SEND_MSG_BACK: a consumer failed; its message is delivered to the group again, later, or is a dead letter.

Source: RocketMQ AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Protocol

from rocketc._layout import (
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT,
)
from rocketc.broker import names
from rocketc.broker._send_back_path import CheckedBack, SendBackPath
from rocketc.broker._send_path import SendPath, peer_host
from rocketc.broker.answer_waits import AnswerWaits
from rocketc.broker.config import BrokerConfig
from rocketc.broker.counts import BrokerCounts
from rocketc.broker.delays import DelayService, delayed
from rocketc.broker.retries import Retries, without_queues
from rocketc.broker.send import encode_properties
from rocketc.broker.topics import TopicManager
from rocketc.config_fields import INT32_MOST
from rocketc.errors import RocketcError
from rocketc.read._message import Message
from rocketc.remoting.addresses import split_address
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call, failed
from rocketc.status import PutStatus
from rocketc.store._gets import Getting
from rocketc.tables.groups import SubscriptionGroupConfig
from rocketc.tables.topics import PERM_WRITE, TopicConfig

SEND_BACK = 36
FIRST_LEVEL = 3  # of the first retry
RECENT_BYTES = 64 << 20  # at the end of the log: they are in memory


class ReadStore(Protocol):
    """What SendBackProcessor needs of a store."""

    @property
    def background(self) -> bool: ...
    @property
    def max_phy_offset(self) -> int: ...
    def message(self, phy_offset: int, *, crc: str = "body", decompress: bool = True) -> Message | None: ...


class Table(Protocol):
    """Something that the checks of a group read."""

    @property
    def generation(self) -> int: ...


class SendBackProcessor:
    """Takes messages back from consumers.

    path    appends to the store
    waits   of answers until a flush or a report of a slave; None: nothing waits
    retries the topics and limits of groups
    delays  delivers the messages again
    counts  gets the numbers of messages that came back
    """

    codes = (SEND_BACK,)

    def __init__(
        self,
        store: ReadStore,
        path: SendPath,
        waits: AnswerWaits | None,
        topics: TopicManager,
        retries: Retries,
        delays: DelayService,
        config: BrokerConfig,
        host: tuple[str, int],
        chance: random.Random,
        counts: BrokerCounts | None = None,
    ) -> None:
        self._store, self._path, self._waits, self._topics = store, path, waits, topics
        self._retries, self._delays, self._config, self._host = retries, delays, config, host
        self._chance, self._counts = chance, BrokerCounts() if counts is None else counts
        self._loop = asyncio.get_running_loop()

    def fast_path(self, store: Getting, tables: Iterable[Table]) -> SendBackPath:
        """Return the compiled way for the send-backs that need nothing unusual.

        tables  of topics and groups
        """
        return SendBackPath(
            self._path,
            store,
            tables,
            self._checked,
            self._chance.randrange,
            self._copied,
            names.TIMER,
            (names.REAL_TOPIC, names.REAL_QUEUE),
        )

    def _checked(self, name: str) -> CheckedBack | None:
        """Check a group for the fast path; None: its send-backs need this processor."""
        group = self._retries.group(name)
        if isinstance(group, Answer) or not self._config.broker_permission & PERM_WRITE or self._waits is not None:
            return None
        if group.retry_queue_nums <= 0 or self._delays.levels <= 0:
            return None
        topic = self._retries.topic(group)
        if isinstance(topic, Answer) or not topic.perm & PERM_WRITE or not self._topics.is_written(topic.topic_name):
            return None
        queues = self._retries.queues(group, topic)
        if queues == 0:
            return None
        return CheckedBack(name, topic.topic_name, queues, group.retry_max_times, self._delays.levels)

    def _copied(self, origin: str, group: str, queue_id: int) -> None:
        """A copy of a message waits for its delay."""
        self._delays.added(queue_id)
        if origin in self._topics.table:
            self._counts.send_back(origin, group)

    def process(self, call: Call) -> Answer | None:
        asked = call.values
        group = self._retries.group(asked["group"])
        if isinstance(group, Answer):
            return group
        if not self._config.broker_permission & PERM_WRITE:
            return Answer(
                Code.NO_PERMISSION, remark=f"the broker[{self._host[0]}:{self._host[1]}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            return Answer()
        topic = self._topic(call, group)
        if isinstance(topic, Answer):
            return topic
        if self._store.background and asked["offset"] < self._store.max_phy_offset - RECENT_BYTES:
            self._loop.run_in_executor(None, self._read_cold, call, group)
            return None
        return self._send_back(call, group, topic, self._look(asked["offset"]))

    def _topic(self, call: Call, group: SubscriptionGroupConfig) -> TopicConfig | Answer:
        topic = self._retries.topic(group, unit_mode=call.values.get("unitMode", False))
        if not isinstance(topic, Answer) and not topic.perm & PERM_WRITE:
            return Answer(Code.NO_PERMISSION, remark=f"the topic[{topic.topic_name}] sending message is forbidden")
        return topic

    def _look(self, offset: int) -> Message | None:
        try:
            return self._store.message(offset, decompress=False)
        except (RocketcError, ValueError, OSError):
            return None

    def _read_cold(self, call: Call, group: SubscriptionGroupConfig) -> None:
        """Read an old message on a thread; then continue on the loop."""
        message = self._look(call.values["offset"])
        self._loop.call_soon_threadsafe(self._answer_cold, call, group, message)

    def _answer_cold(self, call: Call, group: SubscriptionGroupConfig, message: Message | None) -> None:
        try:
            topic = self._topic(call, group)  # again: it may have been deleted since
            answer = topic if isinstance(topic, Answer) else self._send_back(call, group, topic, message)
        except Exception as error:
            answer = failed(call.connection, call.command, error)
        if answer is not None:
            call.later(answer)

    def _send_back(
        self, call: Call, group: SubscriptionGroupConfig, topic: TopicConfig, message: Message | None
    ) -> Answer | None:
        asked = call.values
        if message is None:
            return Answer(Code.SYSTEM_ERROR, remark=f"look message by offset failed, {asked['offset']}")
        properties, level = self._properties(message), asked["delayLevel"]
        most = self._retries.most(group, asked.get("maxReconsumeTimes"), call.command.version)
        if message.reconsume_times >= most or level < 0:
            last = self._retries.last_stop(group)
            if isinstance(last, Answer):
                return last
            (topic, level), queue_id = last, 0
        elif (queues := self._retries.queues(group, topic)) == 0:
            return without_queues(topic)
        else:
            queue_id = self._chance.randrange(queues)
            level = level or FIRST_LEVEL + message.reconsume_times
        properties[PROPERTY_DELAY] = str(level)
        name = topic.topic_name
        if is_delayed := level > 0 and self._delays.levels > 0:
            name, queue_id = delayed(properties, level, name, queue_id, self._delays.levels)
        status, end, remark = self._append(message, name, queue_id, properties)
        if status is not PutStatus.PUT_OK:
            return Answer(Code.SYSTEM_ERROR, remark=remark)
        if is_delayed:
            self._delays.added(queue_id)
        if (origin := properties[PROPERTY_RETRY_TOPIC]) in self._topics.table:
            self._counts.send_back(origin, group.group_name)
        return self._stored(call, topic, end)

    def _properties(self, message: Message) -> dict[str, str]:
        properties = message.properties
        properties.pop(PROPERTY_CRC32, None)  # of the record that was read
        properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.msg_id)
        properties[PROPERTY_WAIT] = "false"
        return properties

    def _append(
        self, message: Message, topic: str, queue_id: int, properties: dict[str, str]
    ) -> tuple[PutStatus, int, str]:
        """Store a copy of a message; return its status, the end of its record, and a remark."""
        try:
            status, _, _, end = self._path.append(
                topic.encode(),
                queue_id,
                [(message.flag, message.stored_body, encode_properties(properties))],
                message.sys_flag,
                message.born_timestamp,
                peer_host(split_address(message.born_host)),
                min(message.reconsume_times + 1, INT32_MOST),
                False,
            )
        except (RocketcError, OSError) as error:
            return PutStatus.UNKNOWN_ERROR, -1, self._path.refusals.of_error(error)[1]
        return status, end, status.name

    def _stored(self, call: Call, topic: TopicConfig, end: int) -> Answer | None:
        """Answer when the message survives a kill or, with sync flush, a power cut.

        RocketMQ does not wait for the flush. But the consumer commits its offset after the answer: a message that a
        power cut then takes would never come again.
        """
        if self._waits is not None:
            self._waits.add(end, lambda code: self._flushed(call, topic, code))
            return None
        if self._topics.is_written(topic.topic_name):
            return Answer()
        self._topics.when_written(lambda: call.later(Answer()))
        return None

    def _flushed(self, call: Call, topic: TopicConfig, code: int) -> None:
        # If slaves lack it, it is still accepted: the client would send another one, which they lack too.
        is_done = code in (Code.SUCCESS, Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE)
        values: dict[str, Any] = {} if is_done else {"code": 1, "remark": Code(code).name}
        answer = Answer(**values)
        is_written = self._topics.is_written(topic.topic_name)
        call.later(answer) if is_written else self._topics.when_written(lambda: call.later(answer))
