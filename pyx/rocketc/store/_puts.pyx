# cython: language_level=3
"""Putting: the part of a store that appends messages.

A put prepares its arguments with the GIL. Then it releases the GIL for one call that appends the record and, in sync
mode, waits for its flush. A small record that does not have to wait is appended with the GIL, because releasing and
taking it again would cost as much as the append. If a message is not stored, the put raises an exception.
"""
import os
import threading

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport INT16_MAX, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from rocketc.c.atomic cimport rc_add_i64, rc_count_i64, rc_load_i64, rc_store_i64
from rocketc.c.histogram cimport rc_histogram_add
from rocketc.c.layout cimport (
    RC_ENTRY_MIN_BYTES, RC_FLAG_BORN_HOST_V6, RC_FLAG_INNER_BATCH, RC_FLAG_STORE_HOST_V6, RC_FLAG_TRANSACTION_MASK,
    RC_PROPERTY_DELAY, RC_PROPERTY_INNER_BASE, RC_PROPERTY_INNER_NUM,
)
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport (
    RC_BAD_ARGUMENT, RC_BAD_QUEUE_ID, RC_FLUSH_TIMEOUT, RC_MORE, RC_NOT_A_BATCH, RC_OK, RC_OUT_OF_ORDER,
    RC_UNKNOWN_TOPIC,
)
from rocketc.format._encoding cimport host_bytes
from rocketc.format._record cimport MessageArgs
from rocketc.format._text_table cimport KEEP, UNKNOWN
from rocketc.log._bodies cimport Bodies, check_body, check_iterable
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._flusher cimport flusher_wait, flusher_wake
from rocketc.log._message_args cimport PutCall, illegal_message, lacks_light_offsets, message_int
from rocketc.log._prepared_record cimport (
    APPEND_AT_ONCE, APPEND_IN_ORDER, PreparedRecord, batch_count, initials_of, is_same_queue, number_of, property_of,
    refuse, topic_fault,
)
from rocketc.log._put_result cimport PutResult, closed, disk_full, failure, refusal
from rocketc.store._pending_put cimport new_pending_put

from rocketc import _layout as layout
from rocketc.config_fields import unknown_keyword
from rocketc.errors import RocketcError
from rocketc.status import PutStatus

cdef enum:
    SLICE_NS = 50000000             # how long a wait runs before it checks for signals
    # Every 16th put is timed, because reading the clock twice costs as much as a small put. It also releases the GIL,
    # so that other threads can run beside a thread that puts without a pause.
    SAMPLE = 16
    MANY = 1024                     # most records of one call without the GIL; their queue offsets are consecutive
    SMALL_BYTES = 4096              # bodies up to this size are copied faster than the GIL is released and taken again
    HOSTS_V6 = RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6

cdef uint32_t INNER_INITIAL = 1 << (c"I" & 31)  # bit of initials_of() for properties that request queue offsets

cdef object PUT_OK = PutStatus.PUT_OK
cdef object FLUSH_DISK_TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT
cdef unsigned long generation = 0       # of this process; a forked child has its parent's generation + 1
cdef unsigned long main_thread = threading.main_thread().ident


def _forked():
    global generation, main_thread
    generation += 1
    main_thread = threading.main_thread().ident


os.register_at_fork(after_in_child=_forked)


cdef inline const uint8_t* bytes_at(bytes data) noexcept:
    return <const uint8_t*>PyBytes_AS_STRING(data)


cdef object property_in(bytes props, const char* name):
    return property_of(bytes_at(props), <int32_t>len(props), name)


cdef void fill_copies(PreparedRecord* records, const PutCall* c, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        records[i] = c.record


cdef int set_numbers(MessageArgs* d, queue_id, sys_flag, reconsume_times) except -1:
    """Check and set the numbers that all messages have. The V6 bits of sys_flag stay those of the hosts."""
    d.queue_id = <int32_t>message_int("queue_id", queue_id, 0, INT32_MAX)
    d.sys_flag |= <int32_t>message_int("sys_flag", sys_flag, INT32_MIN, INT32_MAX) & ~HOSTS_V6
    d.reconsume_times = <int32_t>message_int("reconsume_times", reconsume_times, INT32_MIN, INT32_MAX)
    return 0


cdef class Putting:
    """The methods of a MessageStore that append messages.

    put, put_async and aput repeat the same arguments: **fields would create a dict in each call, and hide the names
    from help().
    """

    def __cinit__(self):
        self._generation = generation

    def __init__(self, *args):
        raise TypeError("a MessageStore can't be created directly: call rocketc.open()")

    def put(
        self, str topic not None, body, *, tags=None, keys=None, properties=None, queue_id=0, flag=0, sys_flag=0,
        born_timestamp=None, born_host=None, store_host=None, reconsume_times=0, prepared_transaction_offset=0,
        bint wait_store_ok=True,
    ):
        """Append one message; return a PutResult when it is stored, in sync mode when it is durable.

        topic           text; with the broker's checks on (the default) at most 127 bytes of UTF-8
        body            bytes-like, at most max_message_size (4 MiB)
        tags, keys      text; several keys are separated by blanks, or given as a list
        properties      mapping of text to text, or the property string as bytes; at most 32767 bytes in total. Queue
                        offsets of light queues (INNER_MULTI_DISPATCH) and of an inner batch (INNER_NUM) are added
        queue_id        id of the queue, 0 to 2147483647; the message gets its next queue offset
        sys_flag        as stored, including the transaction type; the two V6 bits are set from the hosts
        flag, reconsume_times  any number of 32 bits; prepared_transaction_offset: of 64 bits
        born_timestamp  ms since the epoch; None: the store timestamp
        born_host, store_host  (address, port from 0 to 65535); None: the configured store_host
        wait_store_ok   False: in sync mode do not wait for the flush
        Raises IllegalMessageError, PageCacheBusyError, StoreFullError, StoreIOError, StoreFailedError, ClosedError. The
        errors have RocketMQ's PutStatus as `status`, and the message is not stored. If KeyboardInterrupt ends a put in
        sync mode, the message is stored.
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
        self, str topic not None, body, *, tags=None, keys=None, properties=None, queue_id=0, flag=0, sys_flag=0,
        born_timestamp=None, born_host=None, store_host=None, reconsume_times=0, prepared_transaction_offset=0,
        bint wait_store_ok=True, **unknown,
    ):
        """Append one message without waiting for the flush; it is in the log when the call returns.

        Arguments as in put(). Returns a concurrent.futures.Future of the PutResult. The future is done when the message
        is stored, in sync mode when it is durable; it can't be canceled. The errors of put() are raised by this call.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), flush="sync", mapped_file_size_commit_log=1 << 20) as store:
        ...     futures = [store.put_async("orders", b"%d" % i) for i in range(3)]
        ...     [f.result().queue_offset for f in futures]
        [0, 1, 2]
        """
        if unknown:
            raise unknown_keyword(self.put_async, unknown)
        cdef PutResult r = self._put(
            topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
            reconsume_times, prepared_transaction_offset, wait_store_ok, False,
        )
        cdef int64_t until = rc_clock_ns() + self._timeout_ns if self._sync and wait_store_ok else 0
        return new_pending_put(self._future, self, self.log, r, topic, until)

    def aput(
        self, str topic not None, body, *, tags=None, keys=None, properties=None, queue_id=0, flag=0, sys_flag=0,
        born_timestamp=None, born_host=None, store_host=None, reconsume_times=0, prepared_transaction_offset=0,
        bint wait_store_ok=True, **unknown,
    ):
        """put() for asyncio: `r = await store.aput(...)`. The message is in the log when the call returns.

        No thread waits: a file descriptor wakes the event loop when messages become durable. Several event loops may
        use one store.

        >>> import asyncio, rocketc, tempfile
        >>> async def main():
        ...     with rocketc.open(tempfile.mkdtemp(), flush="sync", mapped_file_size_commit_log=1 << 20) as store:
        ...         return await asyncio.gather(*(store.aput("orders", b"%d" % i) for i in range(3)))
        >>> [r.queue_offset for r in asyncio.run(main())]
        [0, 1, 2]
        """
        if unknown:
            raise unknown_keyword(self.aput, unknown)
        cdef PutResult r
        self._enter()           # for the whole call: close() closes the descriptor, whose number is then reused
        try:
            if self._event_loops is None:
                self._event_loops = self._event_loops_class(self)
            waiters = self._event_loops.running()
            r = self._put(
                topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
                reconsume_times, prepared_transaction_offset, wait_store_ok, False,
            )
            return waiters.wait(r, topic, self._sync and wait_store_ok)
        finally:
            self._leave()

    cdef PutResult _put(
        self, str topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
        reconsume_times, prepared, bint wait_store_ok, bint wait,
    ):
        cdef PutCall c
        cdef Py_buffer view
        cdef MessageArgs* d = &c.record.args
        cdef PutResult r
        cdef bint viewed = False
        _kept = self._encoder.encode(
            &c, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        set_numbers(d, queue_id, sys_flag, reconsume_times)
        d.flag = <int32_t>message_int("flag", flag, INT32_MIN, INT32_MAX)
        d.prepared_offset = message_int("prepared_transaction_offset", prepared, INT64_MIN, INT64_MAX)
        c.record.known = topic is self._last_topic
        if PyBytes_CheckExact(body):
            d.body = <const uint8_t*>PyBytes_AS_STRING(body)
            d.body_len = <int32_t>min(PyBytes_GET_SIZE(body), INT32_MAX)
        else:
            check_body(body, "body")
            PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            viewed = True
            d.body = <const uint8_t*>view.buf
            d.body_len = <int32_t>min(view.len, INT32_MAX)
        try:
            r = self._put_records(&c.record, 1, 0, store_host, wait and c.wait)
            if topic is not self._last_topic and self._known.get(d.topic, d.topic_len) == KEEP:    # not just deleted
                self._last_topic = topic
            return r
        finally:
            if viewed:
                PyBuffer_Release(&view)

    def put_batch(
        self, str topic not None, messages, *, queue_id=0, sys_flag=0, born_timestamp=None, born_host=None,
        store_host=None, reconsume_times=0, bint wait_store_ok=True, **unknown,
    ):
        """Append a client's batch: messages that are stored all or none, one after the other in one file.

        messages  (flag, body, properties) of each; properties as in put(), with tags and keys as TAGS and KEYS
        The other arguments are as in put(). Returns the PutResult of the first message, with the count of all. The
        batch must fit into one file. Raises the errors of put().
        Source: RocketMQ CommitLog.asyncPutMessages; batch properties are not added, as in 5.3.4.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_batch("orders", [(0, b"one", {"TAGS": "A"}), (0, b"two", None)])
        >>> r.count, r.queue_offset, r.size
        (2, 0, 207)
        """
        if unknown:
            raise unknown_keyword(self.put_batch, unknown)
        cdef PutCall c
        cdef PreparedRecord* records
        cdef list rows = []
        cdef Py_ssize_t total = 0, i
        cdef bytes raw, content, utf8 = topic.encode()
        if message_int("sys_flag", sys_flag, INT32_MIN, INT32_MAX) & RC_FLAG_TRANSACTION_MASK:
            raise illegal_message(f"sys_flag is {sys_flag}: a batch can't be part of a transaction")
        if topic.startswith(layout.RETRY_PREFIX):
            raise illegal_message(f"topic {topic!r}: a batch can't go to a retry topic")
        check_iterable(messages, "messages", "(flag, body, properties)")
        for number, message in enumerate(messages):
            try:
                flag, body, properties = message
            except (TypeError, ValueError) as error:
                raise type(error)(
                    f"messages[{number}] must be (flag, body, properties), not {type(message).__name__}"
                ) from None
            flag = message_int(f"messages[{number}]: flag", flag, INT32_MIN, INT32_MAX)
            raw = b"" if properties is None else self._encoder.stored(properties)
            if number_of(property_in(raw, RC_PROPERTY_DELAY)) > 0:
                raise illegal_message("a batch can't be delayed: one of its messages has the property DELAY")
            if self._encoder.multi and lacks_light_offsets(
                bytes_at(utf8), <int32_t>len(utf8), bytes_at(raw), <int32_t>len(raw)
            ):
                raise illegal_message(
                    "a message of a batch can't name light queues (INNER_MULTI_DISPATCH): put it alone with put()"
                )
            if not isinstance(body, bytes):
                check_body(body, f"the body in messages[{number}]")
                body = bytes(memoryview(body))
            rows.append((flag, body, raw))
            total += RC_ENTRY_MIN_BYTES + len(body) + len(raw)
        if not rows:
            raise illegal_message("the batch is empty")
        if total > self.config.max_message_size:
            raise illegal_message(
                f"topic {topic!r}: a batch of {total} bytes; max_message_size is {self.config.max_message_size} bytes"
            )
        self._encoder.encode(&c, topic, None, None, None, born_timestamp, born_host, store_host, True)
        set_numbers(&c.record.args, queue_id, sys_flag, reconsume_times)
        records = self._copies(&c, len(rows))
        try:
            for i in range(len(rows)):
                flag, content, raw = rows[i]
                records[i].args.flag = flag
                records[i].args.body = bytes_at(content)
                records[i].args.body_len = <int32_t>len(content)
                records[i].args.props = bytes_at(raw)
                records[i].args.props_len = <int32_t>len(raw)
            records.batch = <int32_t>len(rows)
            return self._put_records(records, <int>len(rows), 0, store_host, wait_store_ok)
        finally:
            free(records)

    def put_many(
        self, str topic not None, bodies, *, tags=None, keys=None, properties=None, queue_id=0, flag=0, sys_flag=0,
        born_timestamp=None, born_host=None, store_host=None, reconsume_times=0, bint wait_store_ok=True, **unknown,
    ):
        """Append many messages of one queue that differ only in their bodies. This is the fastest way to put messages.

        bodies  a list of bytes-like objects, another iterable of them, or an Arrow array of binary or string
        The other arguments are as in put(). Returns the PutResult of the first message, with count and size of all. The
        messages keep their order. Each 1,024 of them get consecutive queue offsets, even if other threads put at the
        same time. The messages are not stored all or none: an exception has `count`, the number of stored messages,
        which are the first ones.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two", b"three"], tags="A")
        >>> r.count, r.phy_offset, r.queue_offset
        (3, 0, 0)
        """
        if unknown:
            raise unknown_keyword(self.put_many, unknown)
        cdef PutCall c
        cdef PreparedRecord* records
        cdef Bodies source = Bodies(bodies)
        cdef Py_ssize_t done = 0
        cdef int n
        cdef PutResult first = None, r
        _kept = self._encoder.encode(
            &c, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        set_numbers(&c.record.args, queue_id, sys_flag, reconsume_times)
        c.record.args.flag = <int32_t>message_int("flag", flag, INT32_MIN, INT32_MAX)
        if self._needs_numbers(&c.record):
            raise illegal_message(
                "messages with INNER_MULTI_DISPATCH or INNER_NUM need queue offsets in their properties: use put()"
            )
        if source.count == 0:
            raise illegal_message("bodies is empty")
        records = self._copies(&c, min(source.count, MANY))
        try:
            while done < source.count:
                n = <int>min(source.count - done, MANY)
                if done > 0:
                    fill_copies(records, &c, n)
                try:
                    source.fill(done, n, records)
                    r = self._put_records(records, n, APPEND_IN_ORDER, store_host, c.wait and done + n == source.count)
                except (RocketcError, TypeError) as error:
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
            source.release()
            free(records)

    # prepared records

    cdef int append(self, PreparedRecord* records, int n, int how) except? -1:
        """Put n prepared records, of any topics and queues, in their order. For callers in C; call it with the GIL.

        how  bits of AppendFlags; this method sets APPEND_AT_ONCE itself
        As in put(), topics are looked up in the table of topics, or created. A record without hosts gets the store's
        host. The call does not wait for the flush: in sync mode a record is durable when flushed_phy_offset has reached
        its `end`.
        Returns RC_OK if all records are stored, otherwise the first other status. Each record has its own status;
        put_status() converts it to RocketMQ's PutStatus. The codes are those of CommitLog.append, and RC_BAD_QUEUE_ID,
        RC_UNFIT_TOPIC, RC_TOPIC_TOO_LONG, RC_UNKNOWN_TOPIC, RC_NOT_A_BATCH and RC_BAD_ARGUMENT. RC_BAD_ARGUMENT means
        that a record of a batch lacks queue offsets in its properties. Raises ClosedError, StoreFullError, and the
        errors of creating a topic; records with status RC_OK are stored then.
        """
        self._enter()
        try:
            return self._append(records, n, how, False)
        finally:
            self._leave()

    cdef PutResult _put_records(self, PreparedRecord* records, int n, int how, store_host, bint wait):
        """Put records and return their PutResult. With `wait`, wait for the flush in sync mode."""
        cdef int rc
        self._enter()
        try:
            rc = self._append(records, n, how, wait)
            if rc != RC_OK and rc != RC_FLUSH_TIMEOUT:
                raise refusal(records, n, self.log, self.path, self.config)
        finally:
            self._leave()
        return self._result(records, n, store_host, PUT_OK if rc == RC_OK else FLUSH_DISK_TIMEOUT)

    cdef PutResult _result(self, const PreparedRecord* records, int n, store_host, status):
        cdef PutResult r = PutResult.__new__(PutResult)
        cdef const PreparedRecord* last = &records[n - 1]
        cdef int i
        r.host = self._encoder.host if store_host is None else host_bytes("store_host", store_host)
        r.status = status
        r.phy_offset = records.args.phy_offset
        r.queue_offset = records.args.queue_offset
        r.store_timestamp = last.args.store_timestamp
        r.count = n
        r.size = records.size
        for i in range(1, n):
            r.size += records[i].size
        r.end = last.end
        return r

    cdef PreparedRecord* _copies(self, const PutCall* c, Py_ssize_t n) except NULL:
        """Return n copies of the record of c; the caller frees them."""
        cdef PreparedRecord* records = <PreparedRecord*>malloc(<size_t>n * sizeof(PreparedRecord))
        if records == NULL:
            raise MemoryError
        fill_copies(records, c, n)
        return records

    cdef int _append(self, PreparedRecord* records, int n, int how, bint wait) except? -1:
        """Check and append records. With `wait`, wait in sync mode until they are durable.

        Returns RC_OK, the first other status, or RC_FLUSH_TIMEOUT: the records are stored, but not known to be durable.
        """
        cdef int i = 0, k, rc = RC_OK, found
        if self._slave:
            raise closed(f"{self.path}: broker_role is SLAVE: a slave's store accepts only records of its master")
        if self._full:
            rc_count_i64(&self._refused, 1)
            raise disk_full(self.path)
        if rc_load_i64(&self.log.fl.news) != 0:
            self._report_news()
        if self._stepper is not None:
            self._stepper.read_clock()
        if not self._check_records(records, n):
            rc = self._append_run(records, n, how, wait)
        else:
            self._refuse_unnumbered(records, n)
            while i < n:
                k = i
                while k < n and (records[k].status != RC_MORE or not self._needs_numbers(&records[k])):
                    k += 1
                found = self._append_run(records + i, k - i, how, False) if k > i else RC_OK
                if found == RC_OK and k < n:
                    found = self._append_numbered(&records[k])
                    k += 1
                if rc == RC_OK:
                    rc = found
                if rc != RC_OK and how & APPEND_IN_ORDER:
                    break
                i = k
            if rc == RC_OK and wait and self._sync:
                if self._wait(records[n - 1].end, rc_clock_ns() + self._timeout_ns) is not PUT_OK:
                    rc = RC_FLUSH_TIMEOUT
        if rc == RC_FLUSH_TIMEOUT:
            self._note_timeout(records, n)
        elif rc != RC_OK:
            rc_count_i64(&self._refused, 1)
        return rc

    cdef int _append_run(self, PreparedRecord* records, int n, int how, bint wait) except? -1:
        """Do the work of _append() for records that are checked."""
        cdef CommitLog log = self.log
        cdef bint must_wait = wait and self._sync
        cdef int64_t until, begin = 0, size = 0
        cdef int i, rc = RC_MORE, waited = RC_OK
        for i in range(n):
            size += records[i].args.body_len
        self._puts += 1
        if self._puts % SAMPLE == 0:
            begin = rc_clock_ns()
        elif size <= SMALL_BYTES and not must_wait:
            rc = log.append(records, n, how | APPEND_AT_ONCE)
            if rc != RC_MORE and self._sync:
                flusher_wake(&log.fl)
        if rc != RC_MORE:
            return rc
        with nogil:
            until = rc_clock_ns() + self._timeout_ns if must_wait else 0
            rc = log.append(records, n, how)
            if rc == RC_OK and must_wait:
                waited = flusher_wait(&log.fl, records[n - 1].end, until, SLICE_NS)
            elif self._sync:
                flusher_wake(&log.fl)
            if begin != 0:
                rc_histogram_add(&log.put_time, <unsigned long long>(rc_clock_ns() - begin))
        if rc == RC_OK and waited != RC_OK:
            status = self._wait(records[n - 1].end, until) if waited == RC_MORE else self._status_of(waited)
            rc = RC_OK if status is PUT_OK else RC_FLUSH_TIMEOUT
        return rc

    cdef int _append_numbered(self, PreparedRecord* r) except? -1:
        """Append a record that must have queue offsets in its properties: INNER_BASE, INNER_MULTI_QUEUE_OFFSET.

        The properties are written before the record gets its queue offset. If another put takes that offset in between,
        the properties are written again.
        """
        cdef PreparedRecord again
        cdef int rc = RC_OUT_OF_ORDER
        cdef bytes stored
        cdef int64_t own = 0
        with self._numbering:
            while rc == RC_OUT_OF_ORDER and own >= 0:
                stored, own, light = self._encoder.with_queue_offsets(r, self.log.offsets)
                again = r[0]
                again.args.props = bytes_at(stored)
                again.args.props_len = <int32_t>len(stored)
                if own >= 0:
                    again.expected = own
                rc = self._append_run(&again, 1, 0, False)
            if rc == RC_OK:
                for name, offset in light.items():
                    self.log.offsets.set_at_least(name, 0, offset)
        again.args.props, again.args.props_len = r.args.props, r.args.props_len
        r[0] = again
        return rc

    cdef bint _check_records(self, PreparedRecord* records, int n) except -1:
        """Set missing hosts; refuse records with a bad queue id or topic.

        Returns True if a property may request queue offsets.
        """
        cdef PreparedRecord* r
        cdef PreparedRecord* before = NULL
        cdef uint32_t initials = 0
        cdef int i
        for i in range(n):
            r = &records[i]
            if r.status != RC_MORE:
                continue
            if r.args.queue_id < 0:
                r.status = RC_BAD_QUEUE_ID
                continue
            if not r.known and (before == NULL or not is_same_queue(before, r)):
                if self._known.get(r.args.topic, r.args.topic_len) != KEEP:
                    r.status = self._check_topic(r.args.topic, r.args.topic_len)
                    if r.status != RC_MORE:
                        continue
            if r.args.born_host == NULL or r.args.store_host == NULL:
                self._encoder.default_hosts(r)
            if r.args.props_len > 0 and (before == NULL or before.args.props != r.args.props):
                initials |= initials_of(r.args.props, r.args.props_len)
            before = r
        return initials & INNER_INITIAL != 0

    cdef int _refuse_unnumbered(self, PreparedRecord* records, int n) except -1:
        """Refuse each batch with a record that needs queue offsets in its properties: it must be put alone."""
        cdef int i = 0, k, batch
        while i < n:
            batch = batch_count(records + i, n - i)
            for k in range(i, i + batch if batch > 1 else i):
                if records[k].status == RC_MORE and self._needs_numbers(&records[k]):
                    records[k].status = RC_BAD_ARGUMENT
                if records[k].status != RC_MORE:
                    refuse(records + i, batch, records[k].status, RC_OK)
                    break
            i += batch
        return 0

    cdef bint _needs_numbers(self, PreparedRecord* r) except -1:
        """Return True if the properties of a record lack queue offsets that it must have.

        Sets r.messages of an inner batch; sets r.status if INNER_NUM is given and the record is not an inner batch, or
        if it is too large.
        """
        cdef const uint8_t* props = r.args.props
        cdef int32_t n = r.args.props_len
        if n <= 0 or not initials_of(props, n) & INNER_INITIAL:
            return False
        number = property_of(props, n, RC_PROPERTY_INNER_NUM)
        if number is not None:
            if not r.args.sys_flag & RC_FLAG_INNER_BATCH:
                r.status = RC_NOT_A_BATCH
                return False
            r.messages = <int32_t>max(number_of(number), 1)
            if r.messages > INT16_MAX:
                r.status = RC_NOT_A_BATCH
                return False
            if property_of(props, n, RC_PROPERTY_INNER_BASE) is None:
                return True
        return self._encoder.multi and lacks_light_offsets(r.args.topic, r.args.topic_len, props, n)

    cdef object _wait(self, int64_t end, int64_t until):
        """Wait until all bytes before `end` are durable, and check for signals; PUT_OK or FLUSH_DISK_TIMEOUT."""
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
        """Return True if the store was opened in this process; False in a forked child."""
        return self._generation == generation

    cdef int _check_topic(self, const uint8_t* topic, int32_t n) except? -1:
        """Check the topic of its first message, and add it to the table of topics; RC_MORE, or why it is refused."""
        cdef int rc = topic_fault(topic, n, self._encoder.checked, self._encoder.long_topics)
        if rc != RC_OK:
            return rc
        if self._keeps_topics and not self._maintenance.on_new_topic(topic[:n].decode()):
            return RC_UNKNOWN_TOPIC
        self._known.put(topic, n, KEEP)
        return RC_MORE

    cdef int _forget(self, names) except -1:
        """Forget deleted topics, so that the next message of each is treated as its first one."""
        cdef bytes text
        self._last_topic = None
        for name in names:
            text = name.encode("utf-8", "surrogateescape")
            self._known.put(bytes_at(text), <int>len(text), UNKNOWN)
        return 0

    cdef int _enter(self) except -1:
        """Begin a call that needs a store open for writing; close() waits until the call ends."""
        self._enter_reading()
        if self.log is None:
            self._leave()
            raise closed(f"{self.path}: the store is open for reading only")
        return 0

    cdef int _enter_reading(self) except -1:
        """Begin a call that only reads; close() waits until the call ends."""
        if self._closing or self.closed or self._generation != generation:
            if self._generation != generation:
                raise closed(f"{self.path}: the store was opened before this process was forked; open it again here")
            raise closed(f"{self.path}: the store is closed")
        rc_add_i64(&self._calls, 1)
        if PyThread_get_thread_ident() == main_thread:
            self._main_calls += 1
        return 0

    cdef int _report_news(self) except -1:
        """Report problems of flusher and dispatcher to the log of the library; their threads can't call Python."""
        if self.log is not None and rc_load_i64(&self.log.fl.news) != 0:
            rc_store_i64(&self.log.fl.news, 0)
            self._report(self.failed)
        return 0

    cdef int _note_timeout(self, const PreparedRecord* records, int n) except -1:
        """Count and report a call that returns FLUSH_DISK_TIMEOUT."""
        cdef int64_t size = 0
        cdef int i
        for i in range(n):
            size += records[i].size
        topic = records.args.topic[:records.args.topic_len].decode("utf-8", "replace")
        self._timed_out(topic, size, records[n - 1].end)
        return 0

    def _timed_out(self, str topic not None, int64_t size, int64_t end):
        """Count and report a put that returns FLUSH_DISK_TIMEOUT. Futures call it too.

        topic, size, end  of its messages: the first topic, bytes, the physical offset where they end
        """
        rc_add_i64(&self.log.fl.timeouts, 1)
        flushed = rc_load_i64(&self.log.q.flushed)
        behind = max(rc_load_i64(&self.log.q.wrote) - flushed, 0)
        self._report.timed_out(topic, size, end, behind)

    cdef bint _is_inside(self) noexcept:
        """Return True if this thread is already in a call of the store; for calls from a signal handler."""
        return self._main_calls > 0 and PyThread_get_thread_ident() == main_thread

    cdef void _leave(self) noexcept:
        if PyThread_get_thread_ident() == main_thread:
            self._main_calls -= 1
        rc_add_i64(&self._calls, -1)
