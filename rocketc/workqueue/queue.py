"""rocketc.Queue: a durable queue inside a program, with the interface of queue.Queue."""

from __future__ import annotations

import atexit
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping
from queue import Full
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rocketc._arguments import seconds_of, whole_number
from rocketc._layout import DLQ_PREFIX
from rocketc.config import StoreConfig, refuse_unknown
from rocketc.config_fields import ConfigFields, Flush, Lock
from rocketc.files.lock_file import close_all
from rocketc.files.paths import StrPath
from rocketc.log._put_result import PutResult
from rocketc.store._store import MessageStore
from rocketc.store.futures import close_in_thread
from rocketc.store.opening import open as open_store
from rocketc.workqueue.consumer import CHECK_SECONDS, Consumer, ends_at, refuse_names
from rocketc.workqueue.coroutines import Waits
from rocketc.workqueue.offsets import GroupOffsets, is_mine

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self, Unpack

_open: weakref.WeakSet[Queue] = weakref.WeakSet()


class Queue(Consumer):
    """A durable queue: messages survive the process, and are delivered in order, at least once, until they are acked.

        with rocketc.Queue("jobs") as queue:
            queue.put(b"work")
            item = queue.get()              # bytes
            ...
            queue.ack(item)                 # or nack(item): it is delivered again

    Any number of threads may use it, in one process at a time. It is a store with one topic; the messages are in queue
    0. RocketMQ can read the messages and the positions of the groups.

    path                root folder of the store; it is created if it does not exist
    topic               topic of the messages; a valid RocketMQ name, so without '@'
    group               consumer group of this object. Each group receives all messages; see consumer() for others
    flush               "async" (default): a message survives the end of the process at once, and a power cut after some
                        hundred ms; "sync": when put() returns, the message survives a power cut
    visibility_timeout  seconds after which a message that is taken and not acked is delivered again; None: only after
                        the queue is opened again
    max_attempts        a message that was taken this many times and not acked becomes a dead letter; None: no limit
    maxsize             put() waits while this many messages wait to be taken; 0: no limit
    position_interval   minimum seconds between two writes of the groups' positions. A crash loses no message, but
                        messages acked since the last write are delivered again
    delete_acked        True: delete log files when no group needs them any more; False: only clean() of the store
                        deletes files
    lock                the put lock, as in rocketc.open()
    config              a StoreConfig; the other keywords are its fields, and override it
    Raises the errors of rocketc.open(), and IllegalMessageError for
    invalid names.

    >>> import rocketc, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with rocketc.Queue(folder) as queue:
    ...     _ = queue.put(b"survives")
    >>> with rocketc.Queue(folder) as queue:
    ...     queue.get()
    b'survives'
    """

    def __init__(
        self,
        path: StrPath,
        *,
        topic: str = "queue",
        group: str = "default",
        flush: Flush | None = None,
        lock: Lock | None = None,
        visibility_timeout: float | None = 900.0,
        max_attempts: int | None = None,
        maxsize: int = 0,
        position_interval: float = 1.0,
        delete_acked: bool = True,
        config: StoreConfig | None = None,
        **fields: Unpack[ConfigFields],
    ) -> None:
        self._closing = threading.RLock()  # reentrant: a signal handler may call close() during close()
        self._consumers: dict[tuple[str, str], Consumer] = {}
        if max_attempts is not None:
            max_attempts = whole_number("max_attempts", max_attempts, 1, (1 << 63) - 1)
        if visibility_timeout is not None:
            visibility_timeout = seconds_of("visibility_timeout", visibility_timeout)
        position_interval = seconds_of("position_interval", position_interval)
        maxsize = whole_number("maxsize", maxsize, -(1 << 63), (1 << 63) - 1)
        refuse_names(topic, group)
        if not fields.get("background", True):
            raise ValueError("background is False; a Queue needs background threads")
        refuse_unknown("Queue()", fields, (*(Queue.__init__.__kwdefaults__ or ()), "background"))
        store = open_store(path, flush=flush, lock=lock, config=config, **fields)
        try:
            positions = GroupOffsets(store, position_interval, delete_acked)
            super().__init__(store, positions, topic, group, visibility_timeout, max_attempts)
        except BaseException:
            store.close()
            raise
        self._options = (visibility_timeout, max_attempts)
        self.maxsize = maxsize
        self._promised = 0  # running puts that have reserved room
        self._puts = Waits()  # of coroutines
        _open.add(self)

    @property
    def store(self) -> MessageStore:
        """The MessageStore that holds the messages."""
        return self._store

    @property
    def closed(self) -> bool:
        return self._positions.closed or self._store.closed

    def put(
        self,
        item: Buffer,
        block: bool = True,
        timeout: float | None = None,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> PutResult:
        """Put a message. It is stored when the call returns; `flush` decides when it is durable.

        item            bytes-like, at most 4 MiB
        block, timeout  only with maxsize: wait for room without limit, for `timeout` seconds, or not at all
        tags, keys, properties  as in MessageStore.put()
        Raises queue.Full and the errors of MessageStore.put(); then the message is not stored.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.put(b"one", tags="A").queue_offset
        0
        """
        if self.maxsize <= 0:
            return self._store.put(self.topic, item, tags=tags, keys=keys, properties=properties)
        self._wait_for_room(block, timeout)
        try:
            return self._store.put(self.topic, item, tags=tags, keys=keys, properties=properties)
        finally:
            with self._lock:
                self._promised -= 1

    async def aput(
        self,
        item: Buffer,
        timeout: float | None = None,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> PutResult:
        """put() for asyncio: other tasks run while it waits, for room or for the flush. Raises the errors of put().

        >>> import asyncio, rocketc, tempfile
        >>> async def main():
        ...     async with rocketc.Queue(tempfile.mkdtemp(), flush="sync") as queue:
        ...         return await asyncio.gather(*(queue.aput(b"%d" % i) for i in range(3)))
        >>> [result.queue_offset for result in asyncio.run(main())]
        [0, 1, 2]
        """
        if self.maxsize <= 0:
            return await self._store.aput(self.topic, item, tags=tags, keys=keys, properties=properties)
        if not await self._puts.first(self._reserve, self._wait_for_some_room, ends_at(True, timeout)):
            raise Full
        try:
            return await self._store.aput(self.topic, item, tags=tags, keys=keys, properties=properties)
        finally:
            with self._lock:
                self._promised -= 1

    def put_nowait(self, item: Buffer) -> PutResult:
        """Call put() without waiting for room.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp(), maxsize=1) as queue:
        ...     _ = queue.put_nowait(b"one")
        ...     queue.full()
        True
        """
        return self.put(item, False)

    def put_many(self, items: Iterable[Buffer]) -> PutResult:
        """Put many messages in one call; this is the fastest way. maxsize does not apply.

        Returns the PutResult of the first message, with the count of all. Raises the errors of MessageStore.put_many().

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.put_many([b"one", b"two"]).count
        2
        """
        return self._store.put_many(self.topic, items)

    def full(self) -> bool:
        """Return True if put() would wait for room.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.full()
        False
        """
        return 0 < self.maxsize <= self.qsize()

    def consumer(self, group: str, topic: str | None = None) -> Consumer:
        """Return the Consumer of another group, or of another topic of the store.

        Each consumer has its own position. A new one starts with the first message in the store. Calls with the same
        names return the same object.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put(b"one")
        ...     queue.consumer("audit").get(), queue.get()
        (b'one', b'one')
        """
        self._check_open()
        name = (topic or self.topic, group)
        if name == (self.topic, self.group):
            return self
        with self._closing:
            if name not in self._consumers:
                self._consumers[name] = Consumer(self._store, self._positions, *name, *self._options)
            return self._consumers[name]

    def dead_letters(self, group: str | None = None) -> Consumer:
        """Return the Consumer of a group's dead letters: messages that it took max_attempts times and did not ack.

        group  None: the group of this object

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp(), max_attempts=1) as queue:
        ...     _ = queue.put(b"one")
        ...     queue.nack(queue.get())
        ...     queue.dead_letters().get()
        b'one'
        """
        group = group or self.group
        return self.consumer(group, DLQ_PREFIX + group)

    def flush(self) -> None:
        """Make all earlier puts and acks durable. Raises StoreFailedError, StoreIOError, StoreFullError.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put(b"one")
        ...     queue.flush()
        """
        self._check_open()
        self._positions.write()

    def close(self) -> None:
        """Write the positions and close the store. A second call does nothing.

        Waiting calls of get() raise ClosedError. Messages that are taken and not acked are delivered again after the
        queue is opened again. Raises the errors of flush(); the queue is closed then too. A signal handler may call
        close(). If its thread is in a call of the queue, such as get(), close() may raise ClosedError: the error ends
        that call, and the queue is still open.

        >>> import rocketc, tempfile
        >>> queue = rocketc.Queue(tempfile.mkdtemp())
        >>> queue.close()
        >>> queue.get()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rocketc.errors.ClosedError: ...: the store is closed
        """
        if self._store.closed:  # also in a forked child, where a locked lock would stay locked
            return
        self._refuse_inside()
        with self._closing:
            if self._positions.closed:
                return
            if self._positions.detach():
                self._wake_consumers()
                return
            try:
                try:
                    self._positions.stop()
                finally:  # stop() waits, and an exception of a signal handler can end it
                    self._wake_consumers()
                    self._positions.write()
            finally:
                self._store.close()

    def _refuse_inside(self) -> None:
        """Raise ClosedError if close() would wait for a call of its own thread. A close() within close() is allowed."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread runs signal handlers
            return
        if self._positions.closed and is_mine(self._closing):
            return
        locks = [self._positions.writing, self._lock, *(consumer._lock for consumer in self._consumers.values())]
        self._store._refuse_inside(any(map(is_mine, locks)))

    def _wake_consumers(self) -> None:
        for consumer in (self, *self._consumers.values()):
            consumer._wake_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await close_in_thread(self.close)

    def __reduce__(self) -> Any:
        raise TypeError("a Queue can't be pickled: it belongs to its process; open it in the other process")

    def __del__(self) -> None:
        if hasattr(self, "_options") and not self.closed:
            try:
                warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            finally:  # a warning may be an error
                self.close()

    def _wait_for_room(self, block: bool, timeout: float | None) -> None:
        """Wait for room for one message and reserve it. Raises Full, ClosedError."""
        until = ends_at(block, timeout)
        with self._lock:
            while not self._reserve():
                left = until - time.monotonic()
                if left <= 0:
                    raise Full
                self._wait_for_fewer(min(left, CHECK_SECONDS))

    def _reserve(self) -> bool | None:
        """Reserve room for one message; return None if there is none. Raises ClosedError."""
        self._check_open()
        with self._lock:
            if not self._has_room():
                return None
            self._promised += 1
            return True

    def _has_room(self) -> bool:
        """Whether there is room for one message. The caller holds the lock."""
        return self._waiting() + self._promised < self.maxsize

    def _wait_for_some_room(self) -> None:
        """Wait for room, for a moment at most."""
        with self._lock:
            if not self._has_room():
                self._wait_for_fewer(CHECK_SECONDS)


atexit.register(close_all, _open)  # writes the positions, so that acked messages are not delivered again
