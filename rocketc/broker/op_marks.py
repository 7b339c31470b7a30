"""Op marks: which half messages are ended. They are collected, and stored in batches.

Source: RocketMQ TransactionalMessageServiceImpl.deletePrepareMessage, TransactionalOpBatchService.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from rocketc._layout import PROPERTY_TAGS, PROPERTY_WAIT
from rocketc.broker import names
from rocketc.broker._ended_halves import EndedHalves
from rocketc.broker._send_path import SendPath
from rocketc.broker.config import BrokerConfig
from rocketc.broker.half_messages import OP_TAG, op_body
from rocketc.broker.send import encode_properties
from rocketc.errors import RocketcError
from rocketc.tables.config_manager import Clock

_log = logging.getLogger("rocketc.broker")

WAITING_MOST = 20_000  # marks of a half queue; above it, a mark is stored at once
_PROPERTIES = encode_properties({PROPERTY_WAIT: "true", PROPERTY_TAGS: OP_TAG})


class OpMarks:
    """The marks that are not stored yet. A kill loses them: Decisions then looks for the committed message.

    path    appends to the store
    config  transactionOpMsgMaxSize: bytes of the body of an op message
            transactionOpBatchInterval: ms that a mark waits
    host    of this broker, in stored form
    clock   ms since the epoch
    ended   the half messages that are marked, also by marks that are stored
    Create it on the thread of the event loop.
    """

    def __init__(self, path: SendPath, config: BrokerConfig, host: bytes, clock: Clock) -> None:
        self._path, self._config, self._host, self._clock = path, config, host, clock
        self._loop = asyncio.get_running_loop()
        self.ended = EndedHalves()
        # offsets by half queue, in the order in which they came
        self._waiting: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self._sizes: defaultdict[int, int] = defaultdict(int)  # bytes of their bodies, by half queue
        self._timer: asyncio.TimerHandle | None = None
        self._is_refused = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def is_waiting(self, queue_id: int, offset: int) -> bool:
        """Whether a half message is ended, and its mark is not stored yet."""
        return offset in self._waiting.get(queue_id, ())

    def add(self, queue_id: int, offset: int) -> bool:
        """Mark the half message at an offset of a half queue as ended. False: the store refuses the mark."""
        self.ended.add(queue_id, offset)
        waiting = self._waiting[queue_id]
        if offset in waiting:
            return True
        if len(waiting) >= WAITING_MOST:
            return self._put(queue_id, [offset])
        waiting[offset] = None
        size = self._sizes[queue_id] = self._sizes[queue_id] + len(str(offset)) + 1
        if size > self._config.transaction_op_msg_max_size and not self._is_refused:
            self._flush(queue_id, self._config.transaction_op_msg_max_size)
        if self._timer is None:
            self._timer = self._loop.call_later(self._config.transaction_op_batch_interval / 1000, self._on_time)
        return True

    def _on_time(self) -> None:
        self._timer = None
        if not self.flush():
            self._timer = self._loop.call_later(self._config.transaction_op_batch_interval / 1000, self._on_time)

    def flush(self) -> bool:
        """Store all marks. False: the store refuses some; they are tried again later."""
        refused = [queue_id for queue_id in self._waiting if not self._flush(queue_id)]
        return not refused

    def _flush(self, queue_id: int, least: int = 0) -> bool:
        """Store marks of a half queue, until at most `least` bytes of them wait. False: the store refuses some."""
        waiting = self._waiting[queue_id]
        while waiting and self._sizes[queue_id] > least:
            batch: list[int] = []
            size = 0
            for offset in waiting:
                size += len(str(offset)) + 1
                if batch and size > self._config.transaction_op_msg_max_size:
                    break
                batch.append(offset)
            if not self._put(queue_id, batch):
                return False
            for offset in batch:
                del waiting[offset]
            self._sizes[queue_id] -= len(op_body(batch))
        return True

    def _put(self, queue_id: int, offsets: list[int]) -> bool:
        fault = self._append(queue_id, op_body(offsets))
        if fault is not None:
            _log.log(
                logging.DEBUG if self._is_refused else logging.WARNING,
                "the end of %d transactions is not marked: %s; it is tried again", len(offsets), fault,
            )  # fmt: skip
            self._is_refused = True
            return False
        self._is_refused = False
        return True

    def _append(self, queue_id: int, body: bytes) -> str | None:
        """Store an op message; return None, or why it is not stored."""
        topic, message = names.OP_HALF_TOPIC.encode(), (0, body, _PROPERTIES)
        try:
            status, *_ = self._path.append(topic, queue_id, [message], 0, self._clock(), self._host, 0, False)
        except (RocketcError, OSError) as error:
            return str(error)
        return None if status.is_stored else status.name

    def close(self) -> None:
        """Store all marks, for the last time."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
