"""END_TRANSACTION: the producer of a half message commits it or rolls it back; and RESUME_CHECK_HALF_MESSAGE.

Source: RocketMQ EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage; answers were seen on 5.3.3.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from rocketc._layout import FLAG_COMMIT, FLAG_ROLLBACK, PROPERTY_UNIQUE_KEY
from rocketc.broker import names
from rocketc.broker._end_path import EndPath
from rocketc.broker._send_path import SendPath
from rocketc.broker.config import BrokerConfig
from rocketc.broker.decisions import RETRIED_MS, Decisions
from rocketc.broker.delays import DelayService, delay_level, delayed
from rocketc.broker.half_messages import HALF_QUEUE, HalfMessage, Place, committed_flags, immunity_ms
from rocketc.broker.send import encode_properties
from rocketc.broker.send_back import ReadStore
from rocketc.broker.topics import TopicManager
from rocketc.broker.transaction_stats import TransactionStats
from rocketc.errors import RocketcError
from rocketc.format.ids import decode_offset_id
from rocketc.read._message import Message
from rocketc.remoting import server
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.store._gets import Getting
from rocketc.store._raw_records import RawGetResult
from rocketc.tables.config_manager import Clock

END_TRANSACTION, RESUME_CHECK = 37, 323
UNKNOWN = 0  # commitOrRollback of a producer that does not know yet
RECENT_BYTES = 64 << 20  # at the end of the log: they are in memory
DISPATCH_SECONDS = 1.0  # that an end waits until its half message is in its queue and in the index

_NO_ANSWER = Answer(frame=b"")
_NOT_FOUND = "Find prepared transaction message failed"
_NOT_RESUMED = f"Exception was thrown when putting message back to {names.HALF_TOPIC}."


class Stored(NamedTuple):
    """What became of a copy of a message: the reason why it is not stored, or where it is.

    refused  the code and the remark of an answer; None: it is stored
    """

    refused: tuple[int, str | None] | None
    phy_offset: int = -1
    queue_offset: int = -1


class Copies:
    """Stores copies of half messages in other queues.

    path  appends to the store
    """

    def __init__(self, path: SendPath) -> None:
        self._path = path

    def put(self, half: HalfMessage, topic: str, queue_id: int, properties: bytes, **changed: Any) -> Stored:
        """Store a copy. It does not wait for a flush.

        properties  in stored form
        changed     other arguments of SendPath.append(): sys_flag, prepared_transaction_offset, store_host
        """
        message = half.message
        how: dict[str, Any] = {"sys_flag": message.sys_flag, **changed}
        try:
            status, offsets, queue_offset, _ = self._path.append(
                topic.encode(),
                queue_id,
                [(message.flag, message.stored_body, properties)],
                born_timestamp=message.born_timestamp,
                born_host=half.born_host,
                reconsume_times=message.reconsume_times,
                batch=False,
                **how,
            )
        except (RocketcError, OSError) as error:
            return Stored(self._path.refusals.of_error(error))
        if not status.is_stored:
            return Stored(self._path.refusals.of_status(status))
        return Stored(None, offsets[0], queue_offset)


class HalfStore(ReadStore, Protocol):
    """What EndTransactionProcessor needs of a store."""

    def get_raw(self, topic: str, queue_id: int, offset: int, max_count: int, /) -> RawGetResult: ...
    def max_offset(self, topic: str, queue_id: int, /, *, committed: bool = True) -> int: ...
    def wait_dispatched(self, timeout: float | None = None) -> bool: ...


class EndTransactionProcessor:
    """Ends transactions.

    copies     stores committed messages
    decisions  says which transactions are ended, and gets each end
    delays     delivers a committed message that has a delay
    stats      counts transactions
    """

    codes = (END_TRANSACTION, RESUME_CHECK)

    def __init__(
        self,
        store: HalfStore,
        copies: Copies,
        decisions: Decisions,
        topics: TopicManager,
        delays: DelayService,
        config: BrokerConfig,
        clock: Clock,
        stats: TransactionStats,
    ) -> None:
        self._store, self._copies, self._decisions = store, copies, decisions
        self._topics, self._delays = topics, delays
        self._config, self._clock, self._stats = config, clock, stats
        self._loop = asyncio.get_running_loop()

    def fast_path(self, path: SendPath, store: Getting) -> EndPath:
        """Return the compiled way for the ends that need nothing unusual."""
        return EndPath(
            path,
            store,
            self._topics,
            lambda topic: self._topics.get(topic) is not None,
            self._config,
            self._decisions.marks,
            self._decisions.since,
            RETRIED_MS,
            self._stats,
            self._clock,
            names.HALF_TOPIC,
            (names.REAL_TOPIC, names.REAL_QUEUE, names.PRODUCER_GROUP, PROPERTY_UNIQUE_KEY),
            (names.CHECK_IMMUNITY, names.CHECK_TIMES),
        )

    def process(self, call: Call) -> Answer | None:
        if call.command.code == RESUME_CHECK:
            return self._read(call, _phy_offset(call.values["msgId"]), self._resume)
        asked = call.values
        if self._config.broker_id != 0:
            return Answer(
                Code.SLAVE_NOT_AVAILABLE,
                remark="the broker is a slave, so end transaction is forbidden; ask the master",
            )
        if asked["commitOrRollback"] == UNKNOWN:
            return _NO_ANSWER
        if asked["commitOrRollback"] not in (FLAG_COMMIT, FLAG_ROLLBACK):
            return Answer(Code.SYSTEM_ERROR, remark="commitOrRollback field wrong")
        return self._read(call, asked["commitLogOffset"], self._end)

    # reading

    def _read(self, call: Call, phy_offset: int, then: Callable[[Call, Message | None], Answer]) -> Answer | None:
        """Answer with the record at a physical offset. A thread reads old ones, and waits for those that are new."""
        if not self._store.background:
            return then(call, self._look(phy_offset))
        if phy_offset >= self._store.max_phy_offset - RECENT_BYTES:
            message = self._look(phy_offset)
            if message is None or not self._is_new(message):
                return then(call, message)
        self._loop.run_in_executor(None, self._read_cold, call, phy_offset, then)
        return None

    def _is_new(self, message: Message) -> bool:
        """Whether a half message is not in its queue yet, and perhaps not in the index, where Decisions looks."""
        if message.topic != names.HALF_TOPIC:
            return False
        return message.queue_offset >= self._store.max_offset(message.topic, message.queue_id)

    def _look(self, phy_offset: int) -> Message | None:
        try:
            return self._store.message(phy_offset, decompress=False)
        except (RocketcError, ValueError, OSError):
            return None

    def _read_cold(self, call: Call, phy_offset: int, then: Callable[[Call, Message | None], Answer]) -> None:
        message = self._look(phy_offset)
        with contextlib.suppress(RocketcError, OSError):
            self._store.wait_dispatched(DISPATCH_SECONDS)
        if message is not None and message.topic == names.HALF_TOPIC:
            self._decisions.find(HalfMessage(message))  # so that all it reads is in memory
        self._loop.call_soon_threadsafe(self._answer_cold, call, message, then)

    def _answer_cold(self, call: Call, message: Message | None, then: Callable[[Call, Message | None], Answer]) -> None:
        try:
            answer = then(call, message)
        except Exception as error:
            answer = server.failed(call.connection, call.command, error)
        call.later(answer)

    # the end

    def _end(self, call: Call, message: Message | None) -> Answer:
        asked = call.values
        half = None if message is None else HalfMessage(message)
        if half is None or half.message.topic != names.HALF_TOPIC or half.place is None:
            return Answer(Code.SYSTEM_ERROR, remark=_NOT_FOUND)
        if not asked.get("fromTransactionCheck", False) and self._is_late(half):
            return Answer(Code.ILLEGAL_OPERATION, remark="the time of the producer is over: wait for the check")
        if half.properties.get(names.PRODUCER_GROUP) != asked["producerGroup"]:
            return Answer(Code.SYSTEM_ERROR, remark="The producer group wrong")
        queue_offset = half.message.queue_offset
        if queue_offset != asked["tranStateTableOffset"]:
            return Answer(Code.SYSTEM_ERROR, remark="The transaction state table offset wrong")
        if not self._is_queued(half.message):
            return Answer(Code.SYSTEM_ERROR, remark=_NOT_FOUND)
        transaction = self._decisions.find(half)
        if transaction.is_decided:
            self._decisions.close(transaction)
            return Answer(Code.SYSTEM_ERROR, remark=_decided(half))
        if asked["commitOrRollback"] == FLAG_COMMIT:
            refused = self._commit(half, half.place)
            if refused is not None:
                return refused
            self._stats.of(half.place.topic).commit(max(self._clock() - half.born_timestamp, 0) / 1000)
        else:
            self._stats.of(half.place.topic).roll_back()
        self._decisions.close(transaction)
        return Answer()

    def _is_queued(self, message: Message) -> bool:
        """Whether a record is in its queue: it is not a part of the body of another message."""
        store, topic, queue_id, offset = self._store, message.topic, message.queue_id, message.queue_offset
        try:
            if offset >= store.max_offset(topic, queue_id):
                return offset < store.max_offset(topic, queue_id, committed=False)  # it will be there
            with store.get_raw(topic, queue_id, offset, 1) as found:
                return found.phy_offsets == [message.phy_offset]
        except (RocketcError, ValueError, OSError):
            return False

    def _is_late(self, half: HalfMessage) -> bool:
        text = half.properties.get(names.CHECK_IMMUNITY)
        age = self._clock() - half.born_timestamp
        return text is not None and age > immunity_ms(text, self._config.transaction_time_out)

    def _commit(self, half: HalfMessage, place: Place) -> Answer | None:
        """Store the committed message. Return None, or the answer that says why it is not stored."""
        topic, queue_id = place
        is_created = self._topics.table.auto_create_topic_enable and not self._topics.is_hidden(topic)
        if self._topics.get(topic) is None and not is_created:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist")
        level, text = delay_level(half.properties), half.property_string
        if is_delayed := level > 0 and self._delays.levels > 0:
            properties = {name: value for name, value in half.properties.items() if name != names.TRANSACTION}
            topic, queue_id = delayed(properties, level, topic, queue_id, self._delays.levels)
            text = encode_properties(properties)
        stored = self._copies.put(
            half,
            topic,
            queue_id,
            text,
            sys_flag=committed_flags(half.message.sys_flag),
            store_host=half.store_host,
            prepared_transaction_offset=half.message.phy_offset,
        )
        if stored.refused is not None:
            code, remark = stored.refused
            return Answer(code, remark=remark)
        if is_delayed:
            self._delays.added(queue_id)
        return None

    # the check of a message that was given up

    def _resume(self, call: Call, message: Message | None) -> Answer:
        half = None if message is None else HalfMessage(message)
        is_known = half is not None and half.message.topic in (names.HALF_TOPIC, names.CHECK_MAX_TIME_TOPIC)
        if half is None or not is_known or half.place is None or not self._is_queued(half.message):
            return Answer(Code.SYSTEM_ERROR, remark=_NOT_RESUMED)
        refused = self._copies.put(half, names.HALF_TOPIC, HALF_QUEUE, encode_properties(half.asked(0))).refused
        if refused is not None:
            return Answer(Code.SYSTEM_ERROR, remark=f"Put message back to {names.HALF_TOPIC} failed: {refused[1]}")
        return Answer()


def _decided(half: HalfMessage) -> str:
    key, group = (half.properties.get(name) for name in (PROPERTY_UNIQUE_KEY, names.PRODUCER_GROUP))
    return f"transaction {key} of group {group} is ended already: the first decision holds, and this one is ignored"


def _phy_offset(msg_id: str) -> int:
    """Return the place in an offset id; -1 if it is not one."""
    try:
        return decode_offset_id(msg_id).phy_offset
    except ValueError:
        return -1
