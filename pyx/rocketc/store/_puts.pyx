# cython: language_level=3
"""Putting: the side of a store that takes messages.

A put prepares its arguments with the GIL, gives it up for one call that lays the record into the log and, in sync
mode, waits for its flush, and comes back for the result. A small record that has to wait for nothing is laid down with
the GIL: to give that up and get it back would cost as much. Whatever is not stored is an exception.
"""
import os
import threading

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from rocketc.c.atomic cimport rc_add_i64, rc_count_i64, rc_load_i64, rc_store_i64
from rocketc.c.histogram cimport rc_histogram_add
from rocketc.c.layout cimport RC_ENTRY_MIN_BYTES, RC_FLAG_TRANSACTION_MASK, RC_PROPERTY_DELAY
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport RC_FLUSH_TIMEOUT, RC_MORE, RC_OK, RC_OUT_OF_ORDER
from rocketc.log._bodies cimport Bodies
from rocketc.log._commit_log cimport Appended, CommitLog, Entry
from rocketc.log._flusher cimport flusher_wait, flusher_wake
from rocketc.log._message_args cimport PutCall, illegal_message, number_of, property_of
from rocketc.log._put_result cimport PutResult, closed, disk_full, failure, refusal

from rocketc import _layout as layout
from rocketc.errors import RocketcError
from rocketc.status import PutStatus

cdef enum:
    SLICE_NS = 50000000             # how long a wait goes on before signals are looked after
    # Every so manieth put is timed: two looks at the clock cost as much as a small put. And it gives up the GIL: other
    # threads get on beside one that puts and puts.
    SAMPLE = 16
    MANY = 65536                    # records that one call without the GIL takes
    SMALL_BYTES = 4096              # a body that is copied in less time than the GIL takes to give up and to get back

cdef object PUT_OK = PutStatus.PUT_OK
cdef object FLUSH_DISK_TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT
cdef unsigned long generation = 0       # of this process: a forked child has the next one
cdef unsigned long main_thread = threading.main_thread().ident


def _forked():
    global generation, main_thread
    generation += 1
    main_thread = threading.main_thread().ident


os.register_at_fork(after_in_child=_forked)


cdef class Putting:
    """What a MessageStore is to those who put; the store itself opens, closes and reads.

    put, put_async and aput spell out the same arguments: **fields would cost each call a dict, and help() their names.
    """

    def __cinit__(self):
        self._generation = generation

    def __init__(self, *args):
        raise TypeError("a MessageStore is made by rocketc.open()")

    def put(
        self, str topic not None, body, *, tags=None, keys=None, properties=None, int32_t queue_id=0, int32_t flag=0,
        int32_t sys_flag=0, born_timestamp=None, born_host=None, store_host=None, int32_t reconsume_times=0,
        int64_t prepared_transaction_offset=0, bint wait_store_ok=True,
    ):
        """Append one message; return a PutResult once it is stored, in sync mode once it is durable.

        topic           text; with the broker's checks on (the default) at most 127 bytes of UTF-8
        body            bytes-like, at most max_message_size (4 MiB)
        tags, keys      text; several keys are separated by blanks, or come as a list
        properties      mapping of text to text, or the stored string as bytes; all of it at most 32767 bytes; queue
                        offsets of light queues (INNER_MULTI_DISPATCH) and of an inner batch (INNER_NUM) are added
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
        until = rc_clock_ns() + self._timeout_ns if self._sync and wait_store_ok else 0
        return self._future(self, self.log, r, until)

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
        self._enter()           # all of it: close() gives the descriptor up, which may be somebody else's then
        try:
            if self._waiters is None:
                self._waiters = self._loop_waiters(self)
            self._waiters.attach()
            r = self._put(
                topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
                reconsume_times, prepared_transaction_offset, wait_store_ok, False,
            )
            return self._waiters.wait(r, self._sync and wait_store_ok)
        finally:
            self._leave()

    cdef PutResult _put(
        self, str topic, body, tags, keys, properties, int32_t queue_id, int32_t flag, int32_t sys_flag, born_timestamp,
        born_host, store_host, int32_t reconsume_times, int64_t prepared, bint wait_store_ok, bint wait,
        int64_t expected=-1,
    ):
        """Put one message; None if its queue offset would not be the one expected."""
        cdef PutCall c
        cdef Entry entry
        cdef Py_buffer view
        cdef list keep
        c.d.queue_id = queue_id
        c.d.sys_flag = sys_flag
        c.d.reconsume_times = reconsume_times
        c.d.prepared_offset = prepared
        keep = self._encoder.encode(
            &c, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        if c.unnumbered:
            return self._put_numbered(
                topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
                reconsume_times, prepared, wait_store_ok, wait and c.wait,
            )
        c.expected = expected
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

    cdef PutResult _put_numbered(
        self, str topic, body, tags, keys, properties, int32_t queue_id, int32_t flag, int32_t sys_flag, born_timestamp,
        born_host, store_host, int32_t reconsume_times, int64_t prepared, bint wait_store_ok, bint wait,
    ):
        """Put a message whose properties are to say queue offsets: INNER_BASE, INNER_MULTI_QUEUE_OFFSET.

        They stand in the record, so they are taken before it is laid down; another may have taken the message's own
        meanwhile, and then they are taken anew.
        """
        cdef PutResult r = None
        self._enter()
        try:
            with self._numbering:
                while r is None:
                    stored, expected, light = self._encoder.with_queue_offsets(
                        topic, queue_id, properties, self.log.offsets
                    )
                    r = self._put(
                        topic, body, tags, keys, stored, queue_id, flag, sys_flag, born_timestamp, born_host,
                        store_host, reconsume_times, prepared, wait_store_ok, False, expected,
                    )
                for name, offset in light.items():
                    self.log.offsets.set_at_least(name, 0, offset)
            if self._sync and wait:
                r.status = self._wait(r.end, rc_clock_ns() + self._timeout_ns)
        finally:
            self._leave()
        return r

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
        cdef PutCall c
        cdef list rows = []
        cdef Py_ssize_t total = 0
        if sys_flag & RC_FLAG_TRANSACTION_MASK:
            raise illegal_message("a batch can't be part of a transaction")
        if topic.startswith(layout.RETRY_PREFIX):
            raise illegal_message(f"topic {topic!r}: a batch can't go to a retry topic")
        for flag, body, properties in messages:
            raw = b"" if properties is None else self._encoder.stored(properties)
            if number_of(property_of(raw, RC_PROPERTY_DELAY)) > 0:
                raise illegal_message("a batch can't be delayed: one of its messages has the property DELAY")
            if self._encoder.lacks_light_offsets(raw):
                raise illegal_message(
                    "one of a batch's messages names light queues (INNER_MULTI_DISPATCH): put() takes it"
                )
            body = body if isinstance(body, bytes) else bytes(memoryview(body))
            rows.append((flag, body, raw))
            total += RC_ENTRY_MIN_BYTES + len(body) + len(raw)
        if not rows:
            raise illegal_message("a batch of no messages")
        if total > self.config.max_message_size:
            raise illegal_message(
                f"topic {topic!r}: a batch of {total} bytes; max_message_size is {self.config.max_message_size} bytes"
            )
        c.d.queue_id = queue_id
        c.d.sys_flag = sys_flag
        c.d.reconsume_times = reconsume_times
        c.d.prepared_offset = 0
        keep = self._encoder.encode(&c, topic, None, None, None, born_timestamp, born_host, store_host, wait_store_ok)
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
        cdef PutCall c
        c.d.queue_id = queue_id
        c.d.sys_flag = sys_flag
        c.d.reconsume_times = reconsume_times
        c.d.prepared_offset = 0
        keep = self._encoder.encode(
            &c, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        if c.unnumbered:
            raise illegal_message(
                "messages with INNER_MULTI_DISPATCH or INNER_NUM get queue offsets of their own: put() them"
            )
        return self._put_bodies(&c, keep, topic, Bodies(bodies), flag)

    cdef PutResult _put_bodies(self, PutCall* c, list keep, str topic, Bodies bodies, int32_t flag):
        cdef Entry* entries
        cdef Py_ssize_t done = 0
        cdef int i, n
        cdef PutResult first = None, r
        if bodies.count == 0:
            raise illegal_message("no messages")
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

    cdef PutResult _put_rows(self, PutCall* c, list keep, str topic, list rows, bint whole):
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

    cdef PutResult _append(self, PutCall* c, list keep, str topic, Entry* entries, int n, bint whole, bint wait):
        """Append n records, wait as the flush mode says (unless not wait), and say where they are."""
        cdef Appended out
        cdef PutResult r
        cdef int rc = RC_MORE, waited = RC_OK
        cdef bint must_wait = self._sync and wait and c.wait
        cdef int64_t until = 0, begin = 0
        cdef CommitLog log
        if self._slave:
            raise closed(f"{self.path}: the store is a slave's (broker_role): it takes no messages of its own")
        if self._known is not None and topic not in self._known:
            self._meet(topic)
        self._enter()
        try:
            if self._full:
                rc_count_i64(&self._refused, 1)
                raise disk_full(self.path)
            log = self.log
            if rc_load_i64(&log.fl.news) != 0:
                self._tell_news()
            self._puts += 1
            if self._puts % SAMPLE != 0 and n == 1 and entries.body_len <= SMALL_BYTES and not must_wait:
                rc = log.append(&c.d, entries, n, whole, c.advance, c.expected, True, &out)
                if rc == RC_OK and self._sync:
                    flusher_wake(&log.fl)
            if rc == RC_MORE:
                if self._puts % SAMPLE == 0:
                    begin = rc_clock_ns()
                with nogil:
                    rc = log.append(&c.d, entries, n, whole, c.advance, c.expected, False, &out)
                    if rc == RC_OK and must_wait:
                        until = rc_clock_ns() + self._timeout_ns
                        waited = flusher_wait(&log.fl, out.end, until, SLICE_NS)
                    elif rc == RC_OK and self._sync:
                        flusher_wake(&log.fl)
                    if begin != 0:
                        rc_histogram_add(&log.put_time, <unsigned long long>(rc_clock_ns() - begin))
            if rc == RC_OUT_OF_ORDER:
                return None
            if rc != RC_OK:
                rc_count_i64(&self._refused, 1)
                raise refusal(rc, &out, log, self.path, self.config, topic, entries, n)
            status = PUT_OK
            if must_wait and waited != RC_OK:
                status = self._wait(out.end, until) if waited == RC_MORE else self._status_of(waited)
        finally:
            self._leave()
        r = PutResult.__new__(PutResult)
        r.host = <bytes>keep[0]
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
        raise failure(self.log, self.path)

    cdef bint _is_ours(self) noexcept:
        """Was it opened in this process? If not, it was forked since."""
        return self._generation == generation

    cdef int _meet(self, str topic) except -1:
        """The first message of a topic: its table takes the topic, or it is refused."""
        if not self._maintenance.on_new_topic(topic):
            rc_count_i64(&self._refused, 1)
            raise illegal_message(
                f"topic {topic!r} is not in config/topics.json, and auto_create_topic_enable is off: "
                "create_topic() makes it"
            )
        self._known.add(topic)
        return 0

    cdef int _enter(self) except -1:
        """Begin a call that needs the log to be written: close() waits for its end."""
        self._enter_reading()
        if self.log is None:
            self._leave()
            raise closed(f"{self.path}: the store is open for reading only")
        return 0

    cdef int _enter_reading(self) except -1:
        """Begin a call that reads: close() waits for its end."""
        if self._closing or self.closed or self._generation != generation:
            if self._generation != generation:
                raise closed(f"{self.path}: the store was opened before this process was forked; open it here")
            raise closed(f"{self.path}: the store is closed")
        rc_add_i64(&self._calls, 1)
        if PyThread_get_thread_ident() == main_thread:
            self._main_calls += 1
        return 0

    cdef int _tell_news(self) except -1:
        """Let the library's log say what flusher and dispatcher have met; they have no Python to do it."""
        if self.log is not None and rc_load_i64(&self.log.fl.news) != 0:
            rc_store_i64(&self.log.fl.news, 0)
            self._tell(self.failed)
        return 0

    cdef bint _is_inside(self) noexcept:
        """Whether this thread is in a call already: a signal's handler asks, in the midst of it."""
        return self._main_calls > 0 and PyThread_get_thread_ident() == main_thread

    cdef void _leave(self) noexcept:
        if PyThread_get_thread_ident() == main_thread:
            self._main_calls -= 1
        rc_add_i64(&self._calls, -1)
