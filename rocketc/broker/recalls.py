"""RECALL_MESSAGE: a producer takes a timed message back before its time.

Source: RocketMQ RecallMessageProcessor, observed on 5.3.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rocketc._layout import PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rocketc.broker import names
from rocketc.broker._send_path import SendPath, peer_host
from rocketc.broker.answer_waits import AnswerWaits
from rocketc.broker.config import BrokerConfig
from rocketc.broker.put_refusals import refusal_code
from rocketc.broker.send import encode_properties
from rocketc.broker.timed_puts import Refused, TimedPuts, decode_handle
from rocketc.errors import RocketcError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.topics import TopicConfig

BODY = b"0"
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class RecallProcessor:
    """Answers RECALL_MESSAGE (370): it puts a message that deletes the timed message, due at the same moment.

    find    returns a topic by its name
    path    appends to the store
    timed   the rules of timed messages
    added   called when a message was put into the timer topic
    waits   of answers until a flush or a report of a slave; None: nothing waits
    clock   ms since the epoch
    """

    codes = (370,)

    def __init__(
        self,
        find: Callable[[str], TopicConfig | None],
        path: SendPath,
        timed: TimedPuts,
        added: Callable[[], object],
        waits: AnswerWaits | None,
        config: BrokerConfig,
        clock: Callable[[], int],
    ) -> None:
        self._find, self._path, self._timed, self._added = find, path, timed, added
        self._waits, self._config, self._clock = waits, config, clock
        self._told = {names.MSG_REGION: config.region_id}

    def process(self, call: Call) -> Answer | None:
        answer = self._recall(call)
        if answer is not None:
            answer.fields = {**answer.fields, **self._told}
        return answer

    def _recall(self, call: Call) -> Answer | None:
        asked = call.values
        if not self._config.recall_message_enable:
            return Answer(Code.NO_PERMISSION, remark="recall failed, operation is forbidden")
        if self._config.broker_id != 0:
            return Answer(Code.SLAVE_NOT_AVAILABLE, remark="recall failed, broker service not available")
        if self._find(asked["topic"]) is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"recall failed, the topic[{asked['topic']}] not exist")
        try:
            handle = decode_handle(asked.get("recallHandle") or "")
        except ValueError as error:
            return Answer(Code.ILLEGAL_OPERATION, remark=str(error))
        if handle.topic != asked["topic"]:
            return Answer(Code.ILLEGAL_OPERATION, remark="recall failed, topic not match")
        if handle.broker_name != self._config.broker_name:
            return Answer(Code.ILLEGAL_OPERATION, remark="recall failed, broker service not available")
        now, most = self._clock(), self._config.timer_max_delay_sec * 1000
        deliver = int(handle.deliver_ms) if _NUMBER.fullmatch(handle.deliver_ms) else 0
        if not 0 < deliver - now < most:
            return Answer(Code.ILLEGAL_OPERATION, remark="recall failed, timestamp invalid")
        properties = {
            names.TIMER_DELETES: f"{handle.topic}+{handle.key}",
            PROPERTY_UNIQUE_KEY: handle.key,
            names.TIMER_DELIVER_MS: handle.deliver_ms,
            PROPERTY_TAGS: names.RECALL_TAG,
            names.BORN_TIMESTAMP: str(now),
        }
        if group := asked.get("producerGroup"):
            properties[names.PRODUCER_GROUP] = group
        return self._put(call, handle.topic, properties, now)

    def _put(self, call: Call, topic: str, properties: dict[str, str], now: int) -> Answer | None:
        to = self._timed.change(properties, topic, 0, now)
        if isinstance(to, Refused):
            return Answer(refusal_code(to.status), remark=to.remark)
        host = call.connection.host
        if host is None:
            host = call.connection.host = peer_host(call.connection.peer)
        try:
            status, _, _, end = self._path.append(
                to[0].encode(), to[1], [(0, BODY, encode_properties(properties))], 0, now, host, 0, False
            )
        except (RocketcError, OSError) as error:
            code, text = self._path.refusals.of_error(error)
            return Answer(code, remark=text)
        if not status.is_stored:
            code, remark = self._path.refusals.of_status(status)
            return Answer(code, remark=remark)
        self._added()
        values = {"msgId": properties[PROPERTY_UNIQUE_KEY]}
        if self._waits is None:
            return Answer(values=values)
        self._waits.add(end, lambda code: call.later(Answer(code, values, fields=self._told)))
        return None
