# cython: language_level=3
"""MessageStore: put, flush, close.

A put prepares its arguments with the GIL, gives it up for one call that lays the record into the log and, in sync
mode, waits for its flush, and comes back for the result. Whatever is not stored is an exception.
"""
import atexit
import os
import warnings
import weakref

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport usleep

from rocketc._append_file cimport View
from rocketc._atomic cimport rc_add_i64, rc_load_i64
from rocketc._bodies cimport Bodies
from rocketc._commit_log cimport Appended, CommitLog, Entry
from rocketc._draft cimport Call, Drafter, illegal, number_of, property_of
from rocketc._flusher cimport flusher_flush, flusher_wait, flusher_wake
from rocketc._guard cimport enter as guard_enter
from rocketc._guard cimport leave as guard_leave
from rocketc._histogram cimport rc_histogram_add
from rocketc._layout cimport RC_FLAG_TRANSACTION_MASK, RC_PROPERTIES_MAX_BYTES
from rocketc._message cimport message_of
from rocketc._record cimport Record, parse_record
from rocketc._service cimport rc_clock_ns
from rocketc._status cimport (
    RC_BODY_TOO_LONG,
    RC_FAILED,
    RC_FLUSH_TIMEOUT,
    RC_MORE,
    RC_NO_FILE,
    RC_OK,
    RC_PAGE_CACHE_BUSY,
    RC_PROPERTIES_TOO_LONG,
    RC_RECORD_TOO_LONG,
    io_error,
)
from rocketc._text cimport rc_hex
from rocketc._vm cimport rc_guard

from rocketc.errors import (
    ClosedError,
    PageCacheBusyError,
    RocketcError,
    StoreFailedError,
)
from rocketc.status import PutStatus

cdef enum:
    SLICE_NS = 50000000             # how long a wait goes on before signals are looked after
    SAMPLE = 16                     # every so manieth put is timed: two looks at the clock cost as much as a small put
    MANY = 65536                    # records that one call without the GIL takes
    BATCH_ENTRY_BYTES = 22          # of a batch's message on the wire, beside body and properties

cdef object PUT_OK = PutStatus.PUT_OK
cdef object FLUSH_DISK_TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT
cdef unsigned long generation = 0       # of this process: a forked child has the next one

_open = weakref.WeakSet()


def _forked():
    """In a forked child the stores of its parent are dead: no thread of theirs is here, and the files are not ours."""
    global generation
    generation += 1
    for store in list(_open):
        store._abandon()


def _close_all():
    """The end of the interpreter: what was acknowledged goes to the disk."""
    for store in list(_open):
        store.close()


os.register_at_fork(after_in_child=_forked)
atexit.register(_close_all)


@cython.freelist(64)
cdef class PutResult:
    """Where a message went.

    status           PutStatus: PUT_OK, or FLUSH_DISK_TIMEOUT (stored, not known to be durable)
    phy_offset       physical offset of its record
    queue_offset     its place in its queue
    store_timestamp  ms since the epoch
    size             bytes of the record
    count            messages: more than 1 from put_batch and put_many; the offsets are those of the first then, the
                     size is that of all
    end              physical offset behind the last record
    """

    @property
    def msg_id(self):
        """Offset message id of the (first) record: what `message_by_id` and RocketMQ's tools take."""
        cdef uint8_t text[56]
        cdef bytes raw = self._host + (<object>self.phy_offset).to_bytes(8, "big")
        rc_hex(text, <const uint8_t*>PyBytes_AS_STRING(raw), <size_t>len(raw))
        return text[: 2 * len(raw)].decode()

    def _set_late(self):
        """It was not known to be durable in time."""
        self.status = FLUSH_DISK_TIMEOUT

    def __repr__(self):
        many = f", count={self.count}" if self.count != 1 else ""
        return (
            f"PutResult({self.status.name}, phy_offset={self.phy_offset}, queue_offset={self.queue_offset}, "
            f"size={self.size}{many})"
        )


cdef class MessageStore:
    """A store that is open: rocketc.open() makes it, close() or `with` ends it.

    Any number of threads may use it. It belongs to the process that opened it: a forked child can't write.
    """

    def __init__(self, *args):
        raise TypeError("a MessageStore is made by rocketc.open()")

    @staticmethod
    def _make(str path, config, log, root, future, loop_waiters):
        """For rocketc.open: a recovered log whose threads run, or None to read only; the classes of who waits."""
        cdef MessageStore store = MessageStore.__new__(MessageStore)
        store.path = path
        store.config = config
        store.log = log
        store._root = root
        store._future = future
        store._loop_waiters = loop_waiters
        store._drafter = Drafter(config)
        store._timeout_ns = config.sync_flush_timeout * 1_000_000
        store._generation = generation
        store._sync = config.flush == "sync"
        store._slave = config.broker_role == "SLAVE"
        if log is not None:
            _open.add(store)
        return store

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __reduce__(self):
        raise TypeError("a MessageStore belongs to its process: open it in the other one")

    def __del__(self):
        if self.log is not None and not self.closed and self._generation == generation:
            try:
                warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self)
            finally:                    # a warning may be an error
                self.close()

    def __repr__(self):
        state = "closed" if self.closed else "read-only" if self.log is None else self.config.flush
        return f"<rocketc.MessageStore {self.path!r}, {state}>"

    # putting

    def put(
        self, str topic not None, body, *, tags=None, keys=None, properties=None, int32_t queue_id=0, int32_t flag=0,
        int32_t sys_flag=0, born_timestamp=None, born_host=None, store_host=None, int32_t reconsume_times=0,
        int64_t prepared_transaction_offset=0, bint wait_store_ok=True,
    ):
        """Append one message; return a PutResult once it is stored, in sync mode once it is durable.

        topic           text; with the broker's checks on (the default) at most 127 bytes of UTF-8
        body            bytes-like, at most max_message_size (4 MiB)
        tags, keys      text; several keys are separated by blanks, or come as a list
        properties      mapping of text to text, or the stored string as bytes; all of it at most 32767 bytes
        queue_id        the queue; its next offset is taken
        sys_flag        as stored, the transaction type too; the two V6 bits are set by the hosts
        born_timestamp  ms; None: the store timestamp
        born_host, store_host  (address, port); None: the configured store_host
        wait_store_ok   False: in sync mode do not wait for the flush
        Raises IllegalMessageError, PageCacheBusyError, StoreFullError, StoreIOError, StoreFailedError, ClosedError, all
        with RocketMQ's PutStatus as `status`: nothing is stored then. A KeyboardInterrupt in sync mode comes after the
        message was stored.
        Source: RocketMQ CommitLog.asyncPutMessage.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"hello", tags="A", keys="k1 k2")
        >>> r.status.name, r.phy_offset, r.queue_offset, r.size
        ('PUT_OK', 0, 0, 120)
        """
        return self._put(
            topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
            reconsume_times, prepared_transaction_offset, wait_store_ok, True,
        )

    def put_async(
        self, str topic not None, body, *, tags=None, keys=None, properties=None, int32_t queue_id=0, int32_t flag=0,
        int32_t sys_flag=0, born_timestamp=None, born_host=None, store_host=None, int32_t reconsume_times=0,
        int64_t prepared_transaction_offset=0, bint wait_store_ok=True,
    ):
        """put() that does not wait for the flush: the message is in the log when it returns.

        Returns a concurrent.futures.Future of the PutResult, done when the flush mode's promise holds. It can't be
        cancelled. Raises what put() raises, at once.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), flush="sync", mapped_file_size_commit_log=1 << 20) as store:
        ...     futures = [store.put_async("orders", b"%d" % i) for i in range(3)]
        ...     [f.result().queue_offset for f in futures]
        [0, 1, 2]
        """
        cdef PutResult r = self._put(
            topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
            reconsume_times, prepared_transaction_offset, wait_store_ok, False,
        )
        return self._future(self, r, rc_clock_ns() + self._timeout_ns if self._sync and wait_store_ok else 0)

    def aput(
        self, str topic not None, body, *, tags=None, keys=None, properties=None, int32_t queue_id=0, int32_t flag=0,
        int32_t sys_flag=0, born_timestamp=None, born_host=None, store_host=None, int32_t reconsume_times=0,
        int64_t prepared_transaction_offset=0, bint wait_store_ok=True,
    ):
        """put() for asyncio: `r = await store.aput(...)`. The message is in the log when the call returns.

        One descriptor tells the event loop of each group of messages that became durable; no thread waits. A store
        serves one event loop at a time.

        >>> import asyncio, rocketc, tempfile
        >>> async def main():
        ...     with rocketc.open(tempfile.mkdtemp(), flush="sync", mapped_file_size_commit_log=1 << 20) as store:
        ...         return await asyncio.gather(*(store.aput("orders", b"%d" % i) for i in range(3)))
        >>> [r.queue_offset for r in asyncio.run(main())]
        [0, 1, 2]
        """
        cdef PutResult r
        self._enter()           # the descriptor of a closed store may be somebody else's by now
        self._leave()
        if self._waiters is None:
            self._waiters = self._loop_waiters(self)
        self._waiters.attach()
        r = self._put(
            topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
            reconsume_times, prepared_transaction_offset, wait_store_ok, False,
        )
        return self._waiters.wait(r, self._sync and wait_store_ok)

    cdef PutResult _put(
        self, str topic, body, tags, keys, properties, int32_t queue_id, int32_t flag, int32_t sys_flag, born_timestamp,
        born_host, store_host, int32_t reconsume_times, int64_t prepared, bint wait_store_ok, bint wait,
    ):
        cdef Call c
        cdef Entry entry
        cdef Py_buffer view
        cdef list keep = []
        c.d.queue_id = queue_id
        c.d.sys_flag = sys_flag
        c.d.reconsume_times = reconsume_times
        c.d.prepared_offset = prepared
        self._drafter.draft(
            &c, keep, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        entry.flag = flag
        entry.props = c.d.props
        entry.props_len = c.d.props_len
        if PyBytes_CheckExact(body):
            entry.body = <const uint8_t*>PyBytes_AS_STRING(body)
            entry.body_len = <int32_t>min(PyBytes_GET_SIZE(body), INT32_MAX)
            return self._append(&c, keep, topic, &entry, 1, True, wait)
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            entry.body = <const uint8_t*>view.buf
            entry.body_len = <int32_t>min(view.len, INT32_MAX)
            return self._append(&c, keep, topic, &entry, 1, True, wait)
        finally:
            PyBuffer_Release(&view)

    def put_batch(
        self, str topic not None, messages, *, int32_t queue_id=0, int32_t sys_flag=0, born_timestamp=None,
        born_host=None, store_host=None, int32_t reconsume_times=0, bint wait_store_ok=True,
    ):
        """Append messages all or none, one behind the other in one file: a client's batch.

        messages  (flag, body, properties) of each; properties as put() takes them, tags and keys as TAGS and KEYS
        Returns the PutResult of the first, with their count. All of them together must fit into one file. Raises what
        put() raises.
        Source: RocketMQ CommitLog.asyncPutMessages; batch properties are not added, as in 5.3.4.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_batch("orders", [(0, b"one", {"TAGS": "A"}), (0, b"two", None)])
        >>> r.count, r.queue_offset, r.size
        (2, 0, 207)
        """
        cdef Call c
        cdef list rows = []
        cdef Py_ssize_t total = 0
        if sys_flag & RC_FLAG_TRANSACTION_MASK:
            raise illegal("a batch can't be part of a transaction")
        if topic.startswith("%RETRY%"):
            raise illegal(f"topic {topic!r}: a batch can't go to a retry topic")
        for flag, body, properties in messages:
            raw = b"" if properties is None else self._drafter._stored(properties)
            if number_of(property_of(raw, b"DELAY")) > 0:
                raise illegal("a batch can't be delayed: one of its messages has the property DELAY")
            body = body if isinstance(body, bytes) else bytes(memoryview(body))
            rows.append((flag, body, raw))
            total += BATCH_ENTRY_BYTES + len(body) + len(raw)
        if not rows:
            raise illegal("a batch of no messages")
        if total > self.config.max_message_size:
            raise illegal(
                f"topic {topic!r}: a batch of {total} bytes; max_message_size is {self.config.max_message_size} bytes"
            )
        c.d.queue_id = queue_id
        c.d.sys_flag = sys_flag
        c.d.reconsume_times = reconsume_times
        c.d.prepared_offset = 0
        keep = []
        self._drafter.draft(&c, keep, topic, None, None, None, born_timestamp, born_host, store_host, wait_store_ok)
        return self._put_rows(&c, keep, topic, rows, True)

    def put_many(
        self, str topic not None, bodies, *, tags=None, keys=None, properties=None, int32_t queue_id=0, int32_t flag=0,
        int32_t sys_flag=0, born_timestamp=None, born_host=None, store_host=None, int32_t reconsume_times=0,
        bint wait_store_ok=True,
    ):
        """Append many messages of one queue that differ in their bodies only; the fastest way in.

        bodies  a list of bytes-like, any other iterable of them, or an Arrow array of binary or string
        The rest is as for put(). Returns the PutResult of the first, with their count and the size of all. They keep
        their order; not all or none: an exception's `count` says how many are stored, the first ones.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two", b"three"], tags="A")
        >>> r.count, r.phy_offset, r.queue_offset
        (3, 0, 0)
        """
        cdef Call c
        c.d.queue_id = queue_id
        c.d.sys_flag = sys_flag
        c.d.reconsume_times = reconsume_times
        c.d.prepared_offset = 0
        keep = []
        self._drafter.draft(
            &c, keep, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        return self._put_bodies(&c, keep, topic, Bodies(bodies), flag)

    cdef PutResult _put_bodies(self, Call* c, list keep, str topic, Bodies bodies, int32_t flag):
        cdef Entry* entries
        cdef Py_ssize_t done = 0
        cdef int i, n
        cdef PutResult first = None, r
        if bodies.count == 0:
            raise illegal("no messages")
        entries = <Entry*>malloc(<size_t>min(bodies.count, MANY) * sizeof(Entry))
        if entries == NULL:
            raise MemoryError
        try:
            while done < bodies.count:
                n = <int>min(bodies.count - done, MANY)
                for i in range(n):
                    entries[i].flag = flag
                    entries[i].props = c.d.props
                    entries[i].props_len = c.d.props_len
                bodies.fill(done, n, entries)
                try:
                    r = self._append(c, keep, topic, entries, n, False, done + n == bodies.count)
                except RocketcError as error:
                    error.count = done + getattr(error, "count", 0)
                    raise
                if first is None:
                    first = r
                else:
                    first.count += r.count
                    first.size += r.size
                    first.end = r.end
                    first.store_timestamp = r.store_timestamp
                    first.status = r.status
                done += n
                PyErr_CheckSignals()
            return first
        finally:
            bodies.release()
            free(entries)

    cdef PutResult _put_rows(self, Call* c, list keep, str topic, list rows, bint whole):
        cdef Entry* entries = <Entry*>malloc(<size_t>len(rows) * sizeof(Entry))
        cdef Py_ssize_t i, n = len(rows)
        cdef bytes raw, body
        if entries == NULL:
            raise MemoryError
        try:
            for i in range(n):
                flag, body, raw = rows[i]
                entries[i].flag = flag
                entries[i].body = <const uint8_t*>PyBytes_AS_STRING(body)
                entries[i].body_len = <int32_t>min(len(body), INT32_MAX)
                entries[i].props = <const uint8_t*>PyBytes_AS_STRING(raw)
                entries[i].props_len = <int32_t>min(len(raw), INT32_MAX)
            return self._append(c, keep, topic, entries, <int>n, whole, True)
        finally:
            free(entries)

    cdef PutResult _append(self, Call* c, list keep, str topic, Entry* entries, int n, bint whole, bint wait):
        """Append n records, wait as the flush mode says (unless not wait), and say where they are."""
        cdef Appended out
        cdef PutResult r
        cdef int rc, waited = RC_OK
        cdef bint must_wait = self._sync and wait and c.wait
        cdef int64_t until = 0, begin = 0
        cdef CommitLog log
        if self._slave:
            error = ClosedError(f"{self.path}: the store is a slave's (broker_role): it takes no messages of its own")
            error.status = PutStatus.SERVICE_NOT_AVAILABLE
            raise error
        self._enter()
        try:
            log = self.log
            self._puts += 1
            if self._puts % SAMPLE == 0:
                begin = rc_clock_ns()
            with nogil:
                rc = log.append(&c.d, entries, n, whole, c.advance, &out)
                if rc == RC_OK and must_wait:
                    until = rc_clock_ns() + self._timeout_ns
                    waited = flusher_wait(&log.fl, out.end, until, SLICE_NS)
                elif rc == RC_OK and self._sync:
                    flusher_wake(&log.fl)
                if begin != 0:
                    rc_histogram_add(&log.put_time, <unsigned long long>(rc_clock_ns() - begin))
            if rc != RC_OK:
                raise self._error(rc, &out, topic, entries, n)
            status = PUT_OK
            if must_wait and waited != RC_OK:
                status = self._wait(out.end, until) if waited == RC_MORE else self._status_of(waited)
        finally:
            self._leave()
        r = PutResult.__new__(PutResult)
        r._host = <bytes>keep[0]
        r.status = status
        r.phy_offset = out.phy_offset
        r.queue_offset = out.queue_offset
        r.store_timestamp = out.store_timestamp
        r.size = out.size
        r.count = out.count
        r.end = out.end
        return r

    cdef object _wait(self, int64_t end, int64_t until):
        """Wait until all before `end` is durable, and look after signals meanwhile; PUT_OK or FLUSH_DISK_TIMEOUT."""
        cdef int rc = RC_MORE
        while rc == RC_MORE:
            PyErr_CheckSignals()
            with nogil:
                rc = flusher_wait(&self.log.fl, end, until, SLICE_NS)
        return self._status_of(rc)

    cdef object _status_of(self, int rc):
        if rc == RC_OK:
            return PUT_OK
        if rc == RC_FLUSH_TIMEOUT:
            return FLUSH_DISK_TIMEOUT
        raise self._failure()

    cdef object _failure(self):
        """The exception for a store that has failed."""
        cdef CommitLog log = self.log
        path = os.fsdecode(log.fl.failed_path) if log.fl.failed_path != NULL else self.path
        reason = io_error(<int>rc_load_i64(&log.fl.failed), path)
        error = StoreFailedError(
            f"{reason}: nothing more is taken, because what was written last may not be durable; "
            "close the store and open it again, which recovers it"
        )
        error.status = PutStatus.SERVICE_NOT_AVAILABLE
        error.__cause__ = reason
        return error

    cdef object _error(self, int rc, const Appended* out, str topic, const Entry* entries, int n):
        """The exception for a put that was refused."""
        cdef int64_t longest = 0, total = 0
        cdef int i
        if rc == RC_FAILED:
            error = self._failure()
        elif rc == RC_PAGE_CACHE_BUSY:
            most = self.config.os_page_cache_busy_time_out_mills
            error = PageCacheBusyError(f"the log has been appended to for more than {most} ms; try again in a moment")
            error.status = PutStatus.OS_PAGE_CACHE_BUSY
        elif rc == RC_NO_FILE:
            error = io_error(out.error, os.path.join(self.path, "commitlog"))
            error.status = PutStatus.CREATE_MAPPED_FILE_FAILED
        elif rc == RC_PROPERTIES_TOO_LONG:
            error = illegal(
                f"topic {topic!r}: the properties are longer than {RC_PROPERTIES_MAX_BYTES} bytes",
                PutStatus.PROPERTIES_SIZE_EXCEEDED,
            )
        elif rc == RC_BODY_TOO_LONG or rc == RC_RECORD_TOO_LONG:
            for i in range(n):
                longest = max(longest, entries[i].body_len)
                total += entries[i].body_len
            what = f"a body of {longest} bytes" if n == 1 else f"{n} messages, bodies of {total} bytes together"
            error = illegal(
                f"topic {topic!r}: {what}; max_message_size is {self.config.max_message_size} bytes, "
                f"and a file of the log has {self.config.mapped_file_size_commit_log}"
            )
        else:
            error = RocketcError(f"result code {rc}")
            error.status = PutStatus.UNKNOWN_ERROR
        error.count = out.count
        return error

    cdef int _enter(self) except -1:
        """Begin a call that needs the log: close() waits for its end."""
        if self._closing or self.closed or self._generation != generation:
            if self._generation != generation:
                error = ClosedError(f"{self.path}: the store was opened before this process was forked; open it here")
            else:
                error = ClosedError(f"{self.path}: the store is closed")
            error.status = PutStatus.SERVICE_NOT_AVAILABLE
            raise error
        if self.log is None:
            error = ClosedError(f"{self.path}: the store is open for reading only")
            error.status = PutStatus.SERVICE_NOT_AVAILABLE
            raise error
        rc_add_i64(&self._calls, 1)
        return 0

    cdef void _leave(self) noexcept:
        rc_add_i64(&self._calls, -1)

    # durability and the end

    def flush(self):
        """Make durable all that was put before; return the flushed physical offset. Raises StoreFailedError.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.flush() == store.put("orders", b"hello").phy_offset
        True
        """
        cdef int rc
        self._enter()
        try:
            with nogil:
                rc = flusher_flush(&self.log.fl, 0)
            if rc != RC_OK:
                raise self._failure()
            return rc_load_i64(&self.log.q.flushed)
        finally:
            self._leave()

    def wait_flushed(self, int64_t end, timeout=None):
        """Wait until all before a physical offset is durable: True, or False if it is not after timeout seconds.

        Raises StoreFailedError.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.wait_flushed(store.put("orders", b"hello").end, timeout=5)
        True
        """
        cdef int64_t until = INT64_MAX if timeout is None else rc_clock_ns() + <int64_t>(timeout * 1e9)
        self._enter()
        try:
            return self._wait(end, until) is PUT_OK
        finally:
            self._leave()

    def close(self):
        """Let the calls under way end, flush, and give the store up; does nothing the second time.

        Puts of other threads that come later get ClosedError. Raises StoreFailedError if the store has failed; it is
        closed then too, and the next open() recovers it.

        >>> import rocketc, tempfile
        >>> store = rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20)
        >>> store.close()
        >>> store.put("orders", b"hello")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rocketc.errors.ClosedError: ...: the store is closed
        """
        cdef int rc
        if self.closed:
            return
        if self._generation != generation or self.log is None:
            self.closed = True
            return
        if self._closing:
            while not self.closed:
                with nogil:
                    usleep(1000)
                PyErr_CheckSignals()
            return
        self._closing = True
        while rc_load_i64(&self._calls) > 0:
            with nogil:
                usleep(200)
        rc = self.log.stop()
        _open.discard(self)
        try:
            if self._waiters is not None:
                self._waiters.detach()
                self._waiters = None
            self._root.close(rc == RC_OK, self.log)
        finally:
            self.closed = True
        if rc != RC_OK:
            raise self._failure()

    def _abandon(self):
        """In a forked child: nothing of the store is ours."""
        self.closed = True
        self.log.forget()

    # what it is doing

    @property
    def read_only(self):
        return self.log is None

    @property
    def failed(self):
        """The StoreFailedError that a put would raise, or None."""
        if self.log is None or rc_load_i64(&self.log.fl.failed) == 0:
            return None
        return self._failure()

    @property
    def max_phy_offset(self):
        """The end of the log: where the next record goes, or a blank one before it."""
        return self._root.max_phy_offset if self.log is None else rc_load_i64(&self.log.q.wrote)

    @property
    def min_phy_offset(self):
        """Physical offset that the first file begins at; 0 for an empty log."""
        return self._root.min_phy_offset if self.log is None else max(self.log.queue.min_offset, 0)

    @property
    def flushed_phy_offset(self):
        """All records before it are durable."""
        return self.max_phy_offset if self.log is None else rc_load_i64(&self.log.q.flushed)

    def message(self, int64_t phy_offset):
        """The message whose record begins at a physical offset, or None if none does.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.message(store.put("orders", b"hello").phy_offset).body
        b'hello'
        """
        cdef View view
        cdef rc_guard guard
        cdef Record r
        cdef int cut = 0, rc
        if self.closed:
            raise ClosedError(f"{self.path}: the store is closed")
        if self.log is None:
            return self._root.message(phy_offset)
        self._enter()
        try:
            view = self.log.queue.select(phy_offset) if phy_offset >= 0 else None
            if view is None:
                return None
            guard_enter(&guard, view._file.base, view._file.size, &cut)
            try:
                rc = parse_record(view._at, <size_t>view._size, &r)
                if rc != RC_OK or r.phy_offset != phy_offset:
                    return None
                return message_of(&r, &r, None, None, os.fsdecode(view._file.path))
            finally:
                guard_leave(&guard)
        finally:
            self._leave()

    def stats(self):
        """Counters since the store was opened, and how long things took.

        Times are in ns: {"count", "p50", "p99", "p999", "max"} of every 16th put, each flush, each roll to a new file,
        and each wait for the put lock that was not free.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), flush="sync", mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"hello")
        ...     store.stats()["records"], store.stats()["flush_time"]["count"]
        (1, 1)
        """
        if self.log is None:
            return {}
        return self.log.stats()

    # test hooks

    def _set_clock(self, timestamp):
        self.log.set_clock(timestamp)

    def _roll(self):
        self.log.roll()

    def _hook(self, str name, value):
        self.log.hook(name, value)

    def _notify(self, int fd, int64_t at):
        """For LoopWaiters: write to fd once all before `at` is durable; a store that has failed tells at once."""
        self.log.notify(fd, at)
