"""The check service: it asks the producers of transactions that are not ended.

Source: RocketMQ TransactionalMessageCheckService, AbstractTransactionalMessageCheckListener.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from rocketc._layout import PROPERTY_UNIQUE_KEY, PROPERTY_WAIT
from rocketc.broker import names
from rocketc.broker.config import BrokerConfig
from rocketc.broker.decisions import Decisions
from rocketc.broker.end_transaction import RECENT_BYTES, Copies, Stored
from rocketc.broker.half_messages import HalfMessage, op_offsets
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.op_marks import OpMarks
from rocketc.broker.producers import ProducerManager
from rocketc.broker.send import MOST_PROPERTIES, encode_properties
from rocketc.broker.topics import TopicManager
from rocketc.broker.transaction_check import (
    OPS_MOST,
    Ask,
    CheckPass,
    GiveUp,
    NoHalf,
    Op,
    Ops,
    Pause,
    PutBack,
    ReadHalf,
    ReadOps,
    Rules,
    Step,
)
from rocketc.errors import BadRequestError, CorruptRecordError, RocketcError
from rocketc.format.ids import OffsetId
from rocketc.read._message import Message
from rocketc.remoting.codes import Code
from rocketc.status import GetStatus
from rocketc.store._raw_records import RawGetResult
from rocketc.store._store import MessageStore
from rocketc.tables.config_manager import Clock

_log = logging.getLogger("rocketc.broker")

CHECK_TRANSACTION_STATE = 39
STEPS = 16  # of a pass, between two turns of the loop
COPIES = 1000  # that are stored between two writes of the offsets of a pass
READ_MOST = 64  # half messages of one read
READ_BYTES = 1 << 20
_HOUR_MS = 3_600_000
_ADDED = (names.TRANSACTION_ID, names.MSG_REGION, names.TRACE_ON, names.CLUSTER)  # by brokers; no client needs them

Send = Callable[[Any, int, Mapping[str, Any], bytes], object]  # connection, code, fields, body


def _records(found: RawGetResult) -> list[tuple[int, bytes]]:
    """Return (queue offset, copy of the record) of each record of a read."""
    return list(zip(found.queue_offsets, map(bytes, found), strict=True))


def _half(record: bytes) -> HalfMessage:
    """Decode a half message. Raises CorruptRecordError, also for its body: a copy would have a valid CRC."""
    message = Message.of(record)
    if message.stored_body and zlib.crc32(message.stored_body) & 0x7FFFFFFF != message.body_crc:
        raise CorruptRecordError(None, message.phy_offset, "bad_body_crc")
    return HalfMessage(message)


def _forms(half: HalfMessage, properties: dict[str, str]) -> Iterator[bytes]:
    """Yield the properties of a copy in stored form, each shorter than the one before: the last ones fit always."""
    yield encode_properties(properties)
    yield encode_properties({name: value for name, value in properties.items() if name not in _ADDED})
    yield half.property_string


class _Halves:
    """The half messages of a queue. Those that follow each other are read together."""

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self._records: dict[int, bytes] = {}
        self._next, self.count = -1, 1

    def get(self, offset: int) -> HalfMessage | None:
        record = self._records.pop(offset, None)
        return None if record is None else _half(record)

    def expect(self, offset: int) -> int:
        """Return how many to read at an offset: one, and more while they follow each other."""
        self.count = min(2 * self.count, READ_MOST) if offset == self._next else 1
        return self.count

    def fill(self, found: RawGetResult) -> None:
        self._records = dict(_records(found))
        self._next = found.next_offset


class TransactionService:
    """Asks producers. run() is a service of the broker.

    copies     stores copies of half messages
    marks      the ends that are not stored yet
    decisions  says which transactions are ended by another half message, or were committed before a kill
    offsets    keeps how far it is, as the offsets of the group CID_RMQ_SYS_TRANS
    send       sends a client a request that is not answered
    host       (address, port) that clients know
    may_send   whether a client reads what it is sent
    given_up   called with the topic of each transaction that is given up
    """

    def __init__(
        self,
        store: MessageStore,
        copies: Copies,
        marks: OpMarks,
        decisions: Decisions,
        topics: TopicManager,
        offsets: ConsumerOffsetManager,
        producers: ProducerManager,
        config: BrokerConfig,
        send: Send,
        host: tuple[str, int],
        clock: Clock,
        *,
        may_send: Callable[[Any], bool] = lambda connection: True,
        given_up: Callable[[str], object] = lambda topic: None,
    ) -> None:
        self._store, self._copies, self._marks, self._topics = store, copies, marks, topics
        self._decisions = decisions
        self._offsets, self._producers, self._config = offsets, producers, config
        self._send, self._may_send, self._host, self._clock, self._given_up = send, may_send, host, clock, given_up
        self._loop = asyncio.get_running_loop()
        self._is_first = True  # of the messages that a check gives up: only that one is a warning
        self.asked = self.given_up = self.unasked = 0  # half messages; unasked: without a producer to ask

    async def run(self) -> None:
        """Look at all half queues, again and again."""
        wrong = None
        while True:
            await asyncio.sleep(self._config.transaction_check_interval / 1000)
            if self._config.broker_id != 0:
                continue
            try:
                await self.check()
                wrong = None
            except Exception as error:  # any: the next pass tries again
                level = logging.DEBUG if str(error) == wrong else logging.WARNING
                _log.log(level, "the check of transactions failed: %s; it is tried again", error)
                wrong = str(error)

    async def check(self) -> None:
        """Look at all half queues once."""
        self._is_first = True
        topic = self._topics.get(names.HALF_TOPIC)
        for queue_id in range(1 if topic is None else max(topic.read_queue_nums, 1)):
            half, op = (self._offset(name, queue_id) for name in (names.HALF_TOPIC, names.OP_HALF_TOPIC))
            self._decisions.forget(queue_id)
            if half >= 0 and op >= 0:
                await self._pass(queue_id, half, op)

    def _offset(self, topic: str, queue_id: int) -> int:
        found = self._offsets.query(names.TRANSACTION_GROUP, topic, queue_id)
        return found if found >= 0 else self._store.min_offset(topic, queue_id)

    async def _pass(self, queue_id: int, half_offset: int, op_offset: int) -> None:
        config = self._config
        rules = Rules(
            config.transaction_time_out,
            config.transaction_check_max,
            self._store.config.file_reserved_time * _HOUR_MS,
        )
        one = CheckPass(half_offset, op_offset, rules, self._clock, partial(self._marks.is_waiting, queue_id))
        steps, halves, kept = one.steps(), _Halves(queue_id), (half_offset, op_offset)
        done = copies = 0
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = await self._do(step, halves)
                done += 1
                copies += isinstance(step, PutBack | Ask | GiveUp)
                if copies >= COPIES:
                    kept, copies = await self._keep(one, queue_id, kept), 0
                elif done % STEPS == 0 or isinstance(step, ReadOps):
                    await asyncio.sleep(0)
        except StopIteration:
            await self._keep(one, queue_id, kept)
        except BaseException:
            with contextlib.suppress(RocketcError, OSError):  # the first error counts; a cancellation must stay one
                await self._keep(one, queue_id, kept)
            raise
        finally:
            steps.close()

    async def _keep(self, one: CheckPass, queue_id: int, kept: tuple[int, int]) -> tuple[int, int]:
        """Note how far a pass is. The copies and ends before are durable then: a power cut loses none."""
        now = one.half_offset, one.op_offset
        if now != kept:
            await self._in_thread(self._store.flush)
            for topic, offset in zip((names.HALF_TOPIC, names.OP_HALF_TOPIC), now, strict=True):
                self._offsets.commit(names.TRANSACTION_GROUP, topic, queue_id, offset)
        return now

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Do work that may wait for the disk; the store is not closed before it is done."""
        if not self._store.background:
            return work()
        running = self._loop.run_in_executor(None, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})
            raise

    # steps

    async def _do(self, step: Step, halves: _Halves) -> Any:
        if isinstance(step, ReadOps):
            return await self._read_ops(halves.queue_id, step.offset)
        if isinstance(step, ReadHalf):
            return await self._read_half(halves, step.offset)
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        half: HalfMessage = step.half
        if await self._is_decided(half):
            return True
        if isinstance(step, PutBack):
            return self._copy(half, names.HALF_TOPIC, halves.queue_id, half.immune(step.times)).refused is None
        return self._ask(half, step.times) if isinstance(step, Ask) else self._give_up(half, step.times)

    async def _is_decided(self, half: HalfMessage) -> bool:
        """Whether the transaction of a half message is decided; then it is marked. A thread reads old messages."""
        if half.message.phy_offset < self._store.max_phy_offset - RECENT_BYTES:
            await self._in_thread(partial(self._decisions.find, half))  # so that all it reads is in memory
        transaction = self._decisions.find(half)
        if transaction.is_decided:
            self._decisions.close(transaction)
        return transaction.is_decided

    def _copy(self, half: HalfMessage, topic: str, queue_id: int, properties: dict[str, str]) -> Stored:
        """Store a copy. If its properties are too long for a record, it lacks some that brokers add."""
        for text in _forms(half, properties):
            stored = self._copies.put(half, topic, queue_id, text)
            if stored.refused is None or stored.refused[0] != Code.MESSAGE_ILLEGAL:
                break
        return stored

    async def _read(self, topic: str, queue_id: int, offset: int, count: int) -> RawGetResult:
        get = partial(self._store.get_raw, topic, queue_id, offset, count, max_bytes=READ_BYTES)
        if not self._store.background or self._store.max_offset(topic, queue_id) <= offset:
            return get()

        def touched() -> RawGetResult:
            found = get()
            found.touch()
            return found

        found: RawGetResult = await self._in_thread(touched)
        return found

    async def _read_ops(self, queue_id: int, offset: int) -> Ops:
        topic = names.OP_HALF_TOPIC
        if offset == self._store.max_offset(topic, queue_id):
            return Ops([], offset)
        try:
            with await self._read(topic, queue_id, offset, OPS_MOST) as found:
                end = self._store.max_offset(names.HALF_TOPIC, queue_id)
                ops = [self._op(queue_id, *one, end) for one in _records(found)]
                if found.status is GetStatus.FOUND:
                    return Ops(ops, found.next_offset)
                return Ops([], found.next_offset, is_illegal=found.next_offset != offset)
        except CorruptRecordError as error:
            _log.warning("op message %d of half queue %d is damaged, it is skipped: %s", offset, queue_id, error)
            return Ops([Op(offset, 0, [])], offset + 1)

    def _op(self, queue_id: int, offset: int, record: bytes, end: int) -> Op:
        """Decode an op message. Marks of half messages from `end` on are ignored: these do not exist."""
        try:
            message = Message.of(record)
            return Op(offset, message.born_timestamp, [half for half in op_offsets(message.body) if half < end])
        except CorruptRecordError as error:
            _log.warning("op message %d of half queue %d is damaged, it is skipped: %s", offset, queue_id, error)
            return Op(offset, 0, [])

    async def _read_half(self, halves: _Halves, offset: int) -> HalfMessage | NoHalf:
        try:
            if (half := halves.get(offset)) is not None:
                return half
            with await self._read(names.HALF_TOPIC, halves.queue_id, offset, halves.expect(offset)) as found:
                halves.fill(found)
                is_end = found.next_offset == offset
                return halves.get(offset) or NoHalf(found.next_offset, is_end)
        except CorruptRecordError as error:
            _log.warning("half message %d of queue %d is damaged, it is skipped: %s", offset, halves.queue_id, error)
            return NoHalf(offset + 1, is_end=False)

    def _give_up(self, half: HalfMessage, times: int) -> bool:
        if self._topics.create_if_missing(names.CHECK_MAX_TIME_TOPIC, 1) is None:
            return False
        if self._copy(half, names.CHECK_MAX_TIME_TOPIC, 0, half.asked(times)).refused is not None:
            return False
        self.given_up += 1
        _log.log(
            logging.WARNING if self._is_first else logging.DEBUG,
            "transaction %s of group %s: it is given up after %d checks; the message is in %s",
            half.properties.get(PROPERTY_UNIQUE_KEY), half.properties.get(names.PRODUCER_GROUP), times,
            names.CHECK_MAX_TIME_TOPIC,
        )  # fmt: skip
        self._is_first = False
        if half.place is not None:
            self._given_up(half.place.topic)
        return True

    def _ask(self, half: HalfMessage, times: int) -> bool:
        """Store the copy, and ask a producer of the group about it."""
        properties = half.asked(times)
        queue_id = half.message.queue_id
        stored = self._copy(half, names.HALF_TOPIC, queue_id, properties)
        if stored.refused is not None:
            return False
        connection = self._producers.available(properties.get(names.PRODUCER_GROUP, ""))
        if connection is None or not self._may_send(connection):
            self.unasked += 1
            return True
        key = properties.get(PROPERTY_UNIQUE_KEY)
        values = {
            "topic": names.HALF_TOPIC,
            "tranStateTableOffset": stored.queue_offset,
            "commitLogOffset": stored.phy_offset,
            "msgId": key,
            "transactionId": properties.get(names.TRANSACTION_ID, key),
            "offsetMsgId": OffsetId(*self._host, stored.phy_offset).encode(),
            "bname": self._config.broker_name,
        }
        try:
            forms = _forms(half, {**properties, PROPERTY_WAIT: "false"})
            text = next(one for one in forms if len(one) <= MOST_PROPERTIES)
            body = half.check_body(stored.phy_offset, stored.queue_offset, text)
            self._send(connection, CHECK_TRANSACTION_STATE, values, body)
            self.asked += 1
        except (BadRequestError, RocketcError, ValueError) as error:  # a half message that no client can be asked about
            self.unasked += 1
            _log.debug("half message %d of queue %d: %s", half.message.queue_offset, queue_id, error)
        return True
