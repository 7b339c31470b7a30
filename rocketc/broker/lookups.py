"""Look-ups: offsets of queues by time, messages by key and by offset.

Source: RocketMQ AdminBrokerProcessor, QueryMessageProcessor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rocketc.broker.config import BrokerConfig
from rocketc.errors import RocketcError
from rocketc.read._message import Message
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call, failed

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
QUERY_MESSAGE, SEARCH_OFFSET, MAX_OFFSET, MIN_OFFSET, EARLIEST, VIEW = 12, 29, 30, 31, 32, 33
_READS_FILES = frozenset({QUERY_MESSAGE, SEARCH_OFFSET, EARLIEST, VIEW})  # any part of the store's files
_MOST_TIME = (1 << 63) - 1


class SearchedStore(Protocol):
    """What LookupProcessor needs of a store."""

    @property
    def background(self) -> bool: ...
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int: ...
    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: str) -> int: ...
    def store_time(self, topic: str, queue_id: int, offset: int) -> int: ...
    def message(self, phy_offset: int, *, crc: str = "body", decompress: bool = True) -> Message | None: ...
    def query(self, topic: str, key: str, **how: Any) -> Any: ...
    def read_raw(self, phy_offset: int, max_bytes: int = 262144) -> bytes: ...


class LookupProcessor:
    """Answers look-ups. Those that read the store's files do it on a thread: it may have to wait for the disk.

    It cannot be known before which pages of index, queue and log a look-up reads, so none is asked for first.
    """

    codes = (QUERY_MESSAGE, SEARCH_OFFSET, MAX_OFFSET, MIN_OFFSET, EARLIEST, VIEW)

    def __init__(self, store: SearchedStore, config: BrokerConfig) -> None:
        self._store, self._config = store, config
        self._by_code: dict[int, Callable[[Call], Answer]] = {
            QUERY_MESSAGE: self._query,
            SEARCH_OFFSET: self._search,
            MAX_OFFSET: self._max,
            MIN_OFFSET: self._min,
            EARLIEST: self._earliest,
            VIEW: self._view,
        }

    def process(self, call: Call) -> Answer | None:
        work = self._by_code[call.command.code]
        if not self._store.background or call.command.code not in _READS_FILES:
            return work(call)
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, self._answer_later, loop, call, work)
        return None

    def _answer_later(self, loop: asyncio.AbstractEventLoop, call: Call, work: Callable[[Call], Answer]) -> None:
        """Answer a look-up from a thread."""
        try:
            answer = work(call)
        except Exception as error:  # any: the client gets an answer
            answer = failed(call.connection, call.command, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the broker ended
            loop.call_soon_threadsafe(call.later, answer)

    def _search(self, call: Call) -> Answer:
        at = call.values
        boundary = "upper" if at.get("boundaryType", "").upper() == "UPPER" else "lower"
        return Answer(
            values={"offset": self._store.offset_by_time(at["topic"], at["queueId"], at["timestamp"], boundary)}
        )

    def _max(self, call: Call) -> Answer:
        at = call.values
        committed = at.get("committed", True)
        return Answer(values={"offset": self._store.max_offset(at["topic"], at["queueId"], committed=committed)})

    def _min(self, call: Call) -> Answer:
        first = self._store.min_offset(call.values["topic"], call.values["queueId"])
        return Answer(values={"offset": first}, remark="")  # RocketMQ's remark is empty here, too

    def _earliest(self, call: Call) -> Answer:
        topic, queue_id = call.values["topic"], call.values["queueId"]
        first = self._store.min_offset(topic, queue_id)
        is_empty = first >= self._store.max_offset(topic, queue_id)
        return Answer(values={"timestamp": -1 if is_empty else self._store.store_time(topic, queue_id, first)})

    def _query(self, call: Call) -> Answer:
        asked = call.values
        is_unique = call.command.fields.get(UNIQUE_KEY_QUERY, "").lower() == "true"
        most = self._config.default_query_max_num if is_unique else asked["maxNum"]
        found = self._store.query(
            asked["topic"],
            asked["key"],
            max_count=max(1, min(most, self._config.max_msgs_num_batch)),
            begin=max(0, asked["beginTimestamp"]),
            end=max(0, min(asked["endTimestamp"], _MOST_TIME)),
            exact_keys=False,
            crc="none",
            decompress=False,
            unwrap=False,
        )
        values = {
            "indexLastUpdateTimestamp": found.index_last_update_timestamp,
            "indexLastUpdatePhyoffset": found.index_last_update_phy_offset,
        }
        if not found:
            return Answer(Code.QUERY_NOT_FOUND, values, remark="can not find message, maybe time range not correct")
        return Answer(values=values, body=self._records(found.messages))

    def _view(self, call: Call) -> Answer:
        offset = call.values["offset"]
        try:
            found = self._store.message(offset, crc="none", decompress=False)
        except (RocketcError, ValueError):
            found = None
        if found is None:
            return Answer(Code.SYSTEM_ERROR, remark=f"can not find message by the offset, {offset}")
        return Answer(body=self._records([found])[0])

    def _records(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the stored bytes of messages."""
        return [self._store.read_raw(one.phy_offset, 1) for one in messages]  # one record is returned whole
