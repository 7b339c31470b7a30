"""rocketc.Queue: a durable queue inside a program, with the manners of queue.Queue."""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping
from queue import Full
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rocketc._layout import DLQ_PREFIX
from rocketc.files.lock_file import close_all
from rocketc.files.paths import StrPath
from rocketc.log._put_result import PutResult
from rocketc.store._store import MessageStore
from rocketc.store.opening import open as open_store
from rocketc.workqueue.consumer import LOOK_AGAIN, Consumer, ends_at, refuse_names
from rocketc.workqueue.offsets import GroupOffsets, is_mine

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

FILE_BYTES = 64 << 20  # of the log's files, where there is no log yet: room is taken by whole files

_open: weakref.WeakSet[Queue] = weakref.WeakSet()


class Queue(Consumer):
    """A queue that outlives the process: what is put comes out until it is acked. At least once, in order, to any
    number of threads; of one process at a time.

        with rocketc.Queue("jobs") as queue:
            queue.put(b"work")
            item = queue.get()              # bytes
            ...
            queue.ack(item)                 # or nack(item): it comes again

    It is a store with one topic, and messages in its queue 0; RocketMQ reads it, and how far the groups have come.

    path                root folder of the store, made if it is not there
    topic               where messages are put; a name as RocketMQ has them, so without '@'
    group               who takes them here. Other groups, see consumer(), take all the messages once more
    flush               "async" (default): what was put survives the death of the process, and some hundred ms later a
                        power cut; "sync": put returns when it survives that, too
    visibility_timeout  seconds after which a message that was taken and not acked comes again; None: not before the
                        queue is opened anew
    max_attempts        a message that was taken so often, in vain, becomes a dead letter; None: it comes again for ever
    maxsize             put() waits while so many messages wait to be taken; 0: it never does
    position_interval   seconds: how often the positions of the groups are written at most. A crash between them loses
                        nothing, but what was acked since then comes again
    delete_acked        files of the log go when no group needs them any more; False: the store keeps them until it is
                        cleaned
    The other keywords are fields of StoreConfig. Raises what rocketc.open() raises, IllegalMessageError for names.

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
        flush: str = "async",
        visibility_timeout: float | None = 900.0,
        max_attempts: int | None = None,
        maxsize: int = 0,
        position_interval: float = 1.0,
        delete_acked: bool = True,
        **fields: Any,
    ) -> None:
        self._closing = threading.RLock()  # a signal's handler may close what this thread is closing
        self._consumers: dict[tuple[str, str], Consumer] = {}
        if max_attempts is not None and max_attempts < 1:
            raise ValueError(f"max_attempts is {max_attempts}; 1 is the least")
        refuse_names(topic, group)
        if not fields.get("background", True):
            raise ValueError("background is False; a Queue needs threads: those of its store, and its own")
        if not os.path.isdir(os.path.join(os.fspath(path), "commitlog")):
            fields.setdefault("mapped_file_size_commit_log", FILE_BYTES)
        store = open_store(path, flush=flush, **fields)
        try:
            positions = GroupOffsets(store, position_interval, delete_acked)
            super().__init__(store, positions, topic, group, visibility_timeout, max_attempts)
        except BaseException:
            store.close()
            raise
        self._options = (visibility_timeout, max_attempts)
        self.maxsize = maxsize
        self._promised = 0  # messages of puts that have room and are under way
        _open.add(self)

    @property
    def store(self) -> MessageStore:
        """The store below: everything else that can be done with its messages."""
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
        """Put a message; it is stored when the call returns, and durable as `flush` says.

        item            bytes-like, at most 4 MiB
        block, timeout  of a queue with a maxsize: wait for room for ever, for so many seconds, or not at all
        tags, keys, properties  as MessageStore.put() takes them
        Raises queue.Full, and what MessageStore.put() raises; then it is not stored.

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

    def put_nowait(self, item: Buffer) -> PutResult:
        """put() that does not wait for room.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp(), maxsize=1) as queue:
        ...     _ = queue.put_nowait(b"one")
        ...     queue.full()
        True
        """
        return self.put(item, False)

    def put_many(self, items: Iterable[Buffer]) -> PutResult:
        """Put many messages in one call, the fastest way in; maxsize is not looked at.

        Returns the PutResult of the first, with their count. Raises what MessageStore.put_many() raises.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.put_many([b"one", b"two"]).count
        2
        """
        return self._store.put_many(self.topic, items)

    def full(self) -> bool:
        """Whether put() would wait for room.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     queue.full()
        False
        """
        return 0 < self.maxsize <= self.qsize()

    def consumer(self, group: str, topic: str | None = None) -> Consumer:
        """The consumer of another group, or of another topic of the store: it has a position of its own, and begins
        with the first message that is left. The same one each time.

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
        """The consumer of what a group, this one's if none is named, took max_attempts times in vain.

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
        """Make durable what was put and what was acked before. Raises StoreFailedError, StoreIOError, StoreFullError.

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put(b"one")
        ...     queue.flush()
        """
        self._check_open()
        self._positions.write()

    def close(self) -> None:
        """Write the positions and close the store; does nothing the second time. Who waits in get() gets ClosedError.

        Messages that were taken and are not acked come again when the queue is opened anew. Raises what flush() raises;
        it is closed then, too. A signal's handler may call it: where that is in the midst of a get() or another call of
        the same thread, it may raise ClosedError, which ends that call; the queue is open then.

        >>> import rocketc, tempfile
        >>> queue = rocketc.Queue(tempfile.mkdtemp())
        >>> queue.close()
        >>> queue.get()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rocketc.errors.ClosedError: ...: the store is closed
        """
        if self._store.closed:  # in a forked child, too, where nobody would let go of the lock
            return
        self._refuse_inside()
        with self._closing:
            if self._positions.closed:
                return
            if self._positions.detach():
                self._tell_consumers()
                return
            try:
                try:
                    self._positions.stop()
                finally:  # it waits, and what a signal's handler raises ends that
                    self._tell_consumers()
                    self._positions.write()
            finally:
                self._store.close()

    def _refuse_inside(self) -> None:
        """Raise ClosedError where close() would wait for its own caller; in the midst of itself it does not wait."""
        if threading.current_thread() is not threading.main_thread():  # which alone runs handlers of signals
            return
        if self._positions.closed and is_mine(self._closing):
            return
        locks = [self._positions.writing, self._lock, *(consumer._lock for consumer in self._consumers.values())]
        self._store._refuse_inside(any(map(is_mine, locks)))

    def _tell_consumers(self) -> None:
        for consumer in (self, *self._consumers.values()):
            consumer._tell_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Queue belongs to its process: open it in the other one")

    def __del__(self) -> None:
        if hasattr(self, "_options") and not self.closed:
            try:
                warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            finally:  # a warning may be an error
                self.close()

    def _wait_for_room(self, block: bool, timeout: float | None) -> None:
        """Promise room to one message. Raises Full, ClosedError."""
        self._check_open()
        until = ends_at(block, timeout)
        with self._lock:
            while self._waiting() + self._promised >= self.maxsize:
                left = until - time.monotonic()
                if left <= 0:
                    raise Full
                self._wait_for_fewer(min(left, LOOK_AGAIN))
            self._promised += 1


atexit.register(close_all, _open)  # what was acked is not to come again
