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
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from rocketc.c.atomic cimport rc_add_i64, rc_count_i64, rc_load_i64, rc_store_i64
from rocketc.c.histogram cimport rc_histogram_add
from rocketc.c.layout cimport (
    RC_ENTRY_MIN_BYTES, RC_FLAG_BORN_HOST_V6, RC_FLAG_INNER_BATCH, RC_FLAG_STORE_HOST_V6, RC_FLAG_TRANSACTION_MASK,
    RC_PROPERTY_DELAY, RC_PROPERTY_INNER_BASE, RC_PROPERTY_INNER_NUM,
)
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport (
    RC_BAD_ARGUMENT, RC_FLUSH_TIMEOUT, RC_MORE, RC_NOT_A_BATCH, RC_OK, RC_OUT_OF_ORDER, RC_UNKNOWN_TOPIC,
)
from rocketc.format._encoding cimport host_bytes
from rocketc.format._record cimport MessageArgs
from rocketc.format._text_table cimport KEEP, UNKNOWN
from rocketc.log._bodies cimport Bodies
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._flusher cimport flusher_wait, flusher_wake
from rocketc.log._message_args cimport PutCall, illegal_message, lacks_light_offsets
from rocketc.log._prepared_record cimport (
    APPEND_AT_ONCE, APPEND_IN_ORDER, PreparedRecord, batch_count, initials_of, is_same_queue, number_of, property_of,
    refuse, topic_fault,
)
from rocketc.log._put_result cimport PutResult, closed, disk_full, failure, refusal
from rocketc.store._pending_put cimport new_pending_put

from rocketc import _layout as layout
from rocketc.errors import RocketcError
from rocketc.status import PutStatus

cdef enum:
    SLICE_NS = 50000000             # how long a wait goes on before signals are looked after
    # Every so manieth put is timed: two looks at the clock cost as much as a small put. And it gives up the GIL: other
    # threads get on beside one that puts and puts.
    SAMPLE = 16
    MANY = 1024                     # records that one call without the GIL takes; their queue offsets are consecutive
    SMALL_BYTES = 4096              # of bodies that are copied in less time than to give up the GIL and get it back
    HOSTS_V6 = RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6

cdef uint32_t INNER_INITIAL = 1 << (c"I" & 31)  # initials_of() names of properties that ask for queue offsets

cdef object PUT_OK = PutStatus.PUT_OK
cdef object FLUSH_DISK_TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT
cdef unsigned long generation = 0       # of this process: a forked child has the next one
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
        cdef int64_t until = rc_clock_ns() + self._timeout_ns if self._sync and wait_store_ok else 0
        return new_pending_put(self._future, self, self.log, r, until)

    def aput(
        self, str topic not None, body, *, tags=None, keys=None, properties=None, int32_t queue_id=0, int32_t flag=0,
        int32_t sys_flag=0, born_timestamp=None, born_host=None, store_host=None, int32_t reconsume_times=0,
        int64_t prepared_transaction_offset=0, bint wait_store_ok=True,
    ):
        """put() for asyncio: `r = await store.aput(...)`. The message is in the log when the call returns.

        One descriptor tells the event loop of each group of messages that became durable; no thread waits. Several
        event loops may use one store.

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
            if self._event_loops is None:
                self._event_loops = self._event_loops_class(self)
            waiters = self._event_loops.running()
            r = self._put(
                topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
                reconsume_times, prepared_transaction_offset, wait_store_ok, False,
            )
            return waiters.wait(r, self._sync and wait_store_ok)
        finally:
            self._leave()

    cdef PutResult _put(
        self, str topic, body, tags, keys, properties, int32_t queue_id, int32_t flag, int32_t sys_flag, born_timestamp,
        born_host, store_host, int32_t reconsume_times, int64_t prepared, bint wait_store_ok, bint wait,
    ):
        cdef PutCall c
        cdef Py_buffer view
        cdef MessageArgs* d = &c.record.args
        cdef PutResult r
        cdef bint viewed = False
        _kept = self._encoder.encode(
            &c, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        d.queue_id = queue_id
        d.flag = flag
        d.sys_flag |= sys_flag & ~HOSTS_V6
        d.reconsume_times = reconsume_times
        d.prepared_offset = prepared
        c.record.known = topic is self._met
        if PyBytes_CheckExact(body):
            d.body = <const uint8_t*>PyBytes_AS_STRING(body)
            d.body_len = <int32_t>min(PyBytes_GET_SIZE(body), INT32_MAX)
        else:
            PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            viewed = True
            d.body = <const uint8_t*>view.buf
            d.body_len = <int32_t>min(view.len, INT32_MAX)
        try:
            r = self._put_records(&c.record, 1, 0, store_host, wait and c.wait)
            if topic is not self._met and self._known.get(d.topic, d.topic_len) == KEEP:    # not deleted meanwhile
                self._met = topic
            return r
        finally:
            if viewed:
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
        cdef PutCall c
        cdef PreparedRecord* records
        cdef list rows = []
        cdef Py_ssize_t total = 0, i
        cdef bytes raw, content
        if sys_flag & RC_FLAG_TRANSACTION_MASK:
            raise illegal_message("a batch can't be part of a transaction")
        if topic.startswith(layout.RETRY_PREFIX):
            raise illegal_message(f"topic {topic!r}: a batch can't go to a retry topic")
        for flag, body, properties in messages:
            raw = b"" if properties is None else self._encoder.stored(properties)
            if number_of(property_in(raw, RC_PROPERTY_DELAY)) > 0:
                raise illegal_message("a batch can't be delayed: one of its messages has the property DELAY")
            if self._encoder.multi and lacks_light_offsets(bytes_at(raw), <int32_t>len(raw)):
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
        self._encoder.encode(&c, topic, None, None, None, born_timestamp, born_host, store_host, True)
        c.record.args.queue_id = queue_id
        c.record.args.sys_flag |= sys_flag & ~HOSTS_V6
        c.record.args.reconsume_times = reconsume_times
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
        self, str topic not None, bodies, *, tags=None, keys=None, properties=None, int32_t queue_id=0, int32_t flag=0,
        int32_t sys_flag=0, born_timestamp=None, born_host=None, store_host=None, int32_t reconsume_times=0,
        bint wait_store_ok=True,
    ):
        """Append many messages of one queue that differ in their bodies only; the fastest way in.

        bodies  a list of bytes-like, any other iterable of them, or an Arrow array of binary or string
        The rest is as for put(). Returns the PutResult of the first, with their count and the size of all. They keep
        their order; each 1,024 of them get consecutive queue offsets, whatever other threads put. Not all or none: an
        exception's `count` says how many are stored, the first ones.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two", b"three"], tags="A")
        >>> r.count, r.phy_offset, r.queue_offset
        (3, 0, 0)
        """
        cdef PutCall c
        cdef PreparedRecord* records
        cdef Bodies source = Bodies(bodies)
        cdef Py_ssize_t done = 0
        cdef int n
        cdef PutResult first = None, r
        _kept = self._encoder.encode(
            &c, topic, tags, keys, properties, born_timestamp, born_host, store_host, wait_store_ok,
        )
        c.record.args.queue_id = queue_id
        c.record.args.flag = flag
        c.record.args.sys_flag |= sys_flag & ~HOSTS_V6
        c.record.args.reconsume_times = reconsume_times
        if self._needs_numbers(&c.record):
            raise illegal_message(
                "messages with INNER_MULTI_DISPATCH or INNER_NUM get queue offsets of their own: put() them"
            )
        if source.count == 0:
            raise illegal_message("no messages")
        records = self._copies(&c, min(source.count, MANY))
        try:
            while done < source.count:
                n = <int>min(source.count - done, MANY)
                if done > 0:
                    fill_copies(records, &c, n)
                source.fill(done, n, records)
                try:
                    r = self._put_records(records, n, APPEND_IN_ORDER, store_host, c.wait and done + n == source.count)
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
            source.release()
            free(records)

    # prepared records

    cdef int append(self, PreparedRecord* records, int n, int how) except? -1:
        """For native callers with the GIL: put n prepared records, of any topics and queues, in their order.

        how  bits of AppendFlags; APPEND_AT_ONCE is set here, where it helps
        Topics are looked up in the table of topics, or made, as put() does; a record without hosts has the store's.
        It does not wait for the flush: in sync mode all before `end` is durable once flushed_phy_offset is there.
        Returns RC_OK if all are stored, else the first status that is not; the status of each record says what became
        of it, put_status() says it in RocketMQ's words. Besides those of CommitLog.append there are RC_UNFIT_TOPIC,
        RC_TOPIC_TOO_LONG, RC_UNKNOWN_TOPIC, RC_NOT_A_BATCH, and RC_BAD_ARGUMENT for a batch with a record whose
        properties lack queue offsets. Raises ClosedError, StoreFullError, and what making a
        topic raises: those whose status is RC_OK are stored then.
        """
        self._enter()
        try:
            return self._append(records, n, how, False)
        finally:
            self._leave()

    cdef PutResult _put_records(self, PreparedRecord* records, int n, int how, store_host, bint wait):
        """Put records, wait as the flush mode says (unless not wait), and say where they are."""
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
        r.host = self._encoder.host if store_host is None else host_bytes(store_host)
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
        """n records as c has one; the caller frees them."""
        cdef PreparedRecord* records = <PreparedRecord*>malloc(<size_t>n * sizeof(PreparedRecord))
        if records == NULL:
            raise MemoryError
        fill_copies(records, c, n)
        return records

    cdef int _append(self, PreparedRecord* records, int n, int how, bint wait) except? -1:
        """Judge and append records; with `wait`, wait until they are durable, if the store is in sync mode.

        Returns RC_OK, the first status that is not, or RC_FLUSH_TIMEOUT: stored, and not known to be durable.
        """
        cdef int i = 0, k, rc = RC_OK, found
        if self._slave:
            raise closed(f"{self.path}: the store is a slave's (broker_role): it takes no messages of its own")
        if self._full:
            rc_count_i64(&self._refused, 1)
            raise disk_full(self.path)
        if rc_load_i64(&self.log.fl.news) != 0:
            self._tell_news()
        if self._stepper is not None:
            self._stepper.read_clock()
        if not self._judge(records, n):
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
        if rc != RC_OK and rc != RC_FLUSH_TIMEOUT:
            rc_count_i64(&self._refused, 1)
        return rc

    cdef int _append_run(self, PreparedRecord* records, int n, int how, bint wait) except? -1:
        """_append() of records that are judged."""
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
        """Append a record whose properties are to say queue offsets: INNER_BASE, INNER_MULTI_QUEUE_OFFSET.

        They stand in the record, so they are taken before it is laid down; another may have taken the record's own
        meanwhile, and then they are taken again.
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

    cdef bint _judge(self, PreparedRecord* records, int n) except -1:
        """Give records hosts, refuse those whose topic is none; whether a record may need queue offsets in it."""
        cdef PreparedRecord* r
        cdef PreparedRecord* before = NULL
        cdef uint32_t initials = 0
        cdef int i
        for i in range(n):
            r = &records[i]
            if r.status != RC_MORE:
                continue
            if not r.known and (before == NULL or not is_same_queue(before, r)):
                if self._known.get(r.args.topic, r.args.topic_len) != KEEP:
                    r.status = self._meet(r.args.topic, r.args.topic_len)
                    if r.status != RC_MORE:
                        continue
            if r.args.born_host == NULL or r.args.store_host == NULL:
                self._encoder.default_hosts(r)
            if r.args.props_len > 0 and (before == NULL or before.args.props != r.args.props):
                initials |= initials_of(r.args.props, r.args.props_len)
            before = r
        return initials & INNER_INITIAL != 0

    cdef int _refuse_unnumbered(self, PreparedRecord* records, int n) except -1:
        """Refuse batches with a record that needs queue offsets in it: such a record is put alone, a batch is not."""
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
        """Whether the properties of a record lack queue offsets that it must have; how many messages it stands for, and
        that it is refused, is noted in it."""
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
            if property_of(props, n, RC_PROPERTY_INNER_BASE) is None:
                return True
        return self._encoder.multi and lacks_light_offsets(props, n)

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

    cdef int _meet(self, const uint8_t* topic, int32_t n) except? -1:
        """The first message of a topic: its table takes the topic. RC_MORE, or why the topic is none."""
        cdef int rc = topic_fault(topic, n, self._encoder.checked, self._encoder.long_topics)
        if rc != RC_OK:
            return rc
        if self._keeps_topics and not self._maintenance.on_new_topic(topic[:n].decode()):
            return RC_UNKNOWN_TOPIC
        self._known.put(topic, n, KEEP)
        return RC_MORE

    cdef int _forget(self, names) except -1:
        """Topics were deleted: the next message of each is the first one."""
        cdef bytes text
        self._met = None
        for name in names:
            text = name.encode("utf-8", "surrogateescape")
            self._known.put(bytes_at(text), <int>len(text), UNKNOWN)
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
