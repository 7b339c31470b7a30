# cython: language_level=3
"""Getting: the part of a store that returns messages.

The reading itself is in _queue_reader (by queue) and _lookups (by key, id, time). This module checks that the store
is open, and waits for messages.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from posix.unistd cimport usleep

from rocketc._arguments cimport checked_int, checked_until
from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport RC_FLUSH_TIMEOUT, RC_MORE, RC_OK
from rocketc.log._put_result cimport closed, failure
from rocketc.store._lookups cimport KeyQuery, prepare_query
from rocketc.store._puts cimport Putting
from rocketc.store._queue_reader cimport GetRequest, GetResult
from rocketc.store._raw_records cimport RawRecords
from rocketc.store._results cimport TagFilter, read_flags

from rocketc.config_fields import unknown_keyword
from rocketc.status import GetStatus

cdef enum:
    SLICE_NS = 50000000             # how long a wait runs before it checks for signals
    PAUSE_US = 500                  # first pause between checks for records of another process
    PAUSE_MOST_US = 50000           # longest pause: a long wait uses almost no CPU
    PAUSES = 16                     # a pause is 1/16 of the time waited so far

cdef object FOUND = GetStatus.FOUND
cdef object NO_MATCHED_MESSAGE = GetStatus.NO_MATCHED_MESSAGE
cdef object OFFSET_OVERFLOW_ONE = GetStatus.OFFSET_OVERFLOW_ONE
cdef object NO_MESSAGE_IN_QUEUE = GetStatus.NO_MESSAGE_IN_QUEUE
cdef object NO_MATCHED_LOGIC_QUEUE = GetStatus.NO_MATCHED_LOGIC_QUEUE


cdef class Getting(Putting):
    """The methods of a MessageStore that read messages."""

    cdef int _look_around(self) except -1:
        """Dispatch earlier puts to queues and index; in a store that another process writes, map its new files."""
        if self.dispatcher is None:
            self.reader.log.refresh()
            self.reader.queues.min_phy_offset = max(self.reader.log.min_offset, 0)
            if self.lookups.index is not None:
                self.lookups.index.refresh()
        elif rc_load_i64(&self.dispatcher.position) < rc_load_i64(&self.log.last_end):
            self._reach(rc_load_i64(&self.log.last_end))
        return 0

    cdef int _reach(self, int64_t end) except -1:
        """Dispatch all records before a physical offset. If that fails, queues and index are read unchanged.

        The reason, such as a full disk, is in the log of the library; wait_dispatched() raises it.
        """
        cdef int rc = RC_MORE
        while rc == RC_MORE:
            with nogil:
                rc = self.dispatcher.reach(end)
            if rc == RC_MORE:
                PyErr_CheckSignals()
        return 0

    def get(
        self, str topic not None, queue_id=0, offset=0, max_count=32, *, tags=None, max_bytes=None, wait=None,
        bint views=False, bint exact_tags=True, bint broker_limits=False, str crc not None="body",
        bint decompress=True, bint unwrap=True, **unknown,
    ):
        """Return messages of a queue from a queue offset on as a GetResult, even if the queue or offset does not exist.

        max_count      number of messages; 1 or more
        tags           "A || B", or several such texts; None, "" and "*": all. As in RocketMQ, the hash of the tag
                       selects units; then the tag itself is compared
        max_bytes      of all records together; None: 128 MiB. The first record is returned whatever its size
        wait           seconds to wait for a matching message if there is none yet; None: do not wait. With
                       read_only=True the store is polled, every 0.5 ms at first and every 50 ms later. With
                       background=False only None and 0 are allowed, because no thread could store the message
        views          True: bodies are memoryviews into the file; release() of the result, or its end, releases the
                       file
        exact_tags     False: comparing the hash is enough, as in RocketMQ's store
        broker_limits  True: the max_transfer_* limits of the configuration apply, as in RocketMQ: 32 messages, or 8
                       that are not in memory, 256 or 64 KiB; only one consume queue file is read
        crc            what is checked in each record: "none", "body" (the body's CRC), "full" (also the property CRC)
        decompress     False: bodies as they are stored
        unwrap         False: an inner batch is one message; True: its messages, without those before offset
        A filter reads at most max_filter_message_size bytes of the queue (800 units), or max_count units if more.
        When a put has returned, all threads find its message. In sync mode, a message put without waiting is found when
        it is durable, or immediately with read_un_committed. The other methods that read do the same.
        Raises CorruptUnitError and CorruptRecordError if the first message is damaged; messages before the damage are
        returned first. Raises ClosedError, also during the wait; StoreIOError, TypeError, ValueError.
        Source: RocketMQ DefaultMessageStore.getMessage.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two"])
        ...     found = store.get("orders", wait=5)
        >>> found.status.name, [m.body for m in found], found.next_offset
        ('FOUND', [b'one', b'two'], 2)
        """
        if unknown:
            raise unknown_keyword(self.get, unknown)
        cdef int how = read_flags(crc, decompress, unwrap, views, exact_tags, broker_limits)
        cdef int64_t until = checked_until("wait", wait), since = rc_clock_ns() if wait is not None else 0, at
        cdef GetResult r
        if wait is not None and self._stepper is not None and wait > 0:
            raise ValueError(f"wait={wait}: a store with background=False can't wait; call step(), then get() again")
        self._enter_reading()
        try:
            while True:
                self._look_around()
                r = self.reader.read(topic, queue_id, offset, max_count, tags, max_bytes, how)
                if wait is None or r.status is FOUND:
                    return r
                at = r.next_offset
                if r.status is NO_MATCHED_MESSAGE and at < r.max_offset and at > offset:
                    offset = at             # the filter rejected all units of this read
                    continue
                if r.status is NO_MATCHED_MESSAGE or r.status is OFFSET_OVERFLOW_ONE:
                    offset = at
                elif r.status is not NO_MESSAGE_IN_QUEUE and r.status is not NO_MATCHED_LOGIC_QUEUE:
                    return r
                if not self._wait_for_more(topic, queue_id, offset, since, until):
                    return r
        finally:
            self._leave()

    def get_raw(
        self, str topic not None, queue_id=0, offset=0, max_count=32, *, tags=None, max_bytes=None,
        bint exact_tags=True, bint broker_limits=False, **unknown,
    ):
        """Return the records that get() would read, in place in the log and without a copy, as a RawGetResult.

        max_count, tags, max_bytes, exact_tags, broker_limits  as in get()
        The result is a sequence of memoryviews, one per stored record: compressed bodies and inner batches are
        unchanged. It has the physical offset, queue offset and tags code of each. Its files stay mapped until
        release(), or its end. Size, magic number, physical offset, queue id and queue offset of each record are
        compared with the consume queue. CRCs and topic are not checked: Message.of() and decode() read the records. As
        with views=True, this process dies if another process truncates a file while a memoryview of it is read.
        Raises CorruptUnitError if the first record does not match its unit; records before it are returned first.
        Raises ClosedError, StoreIOError, TypeError, ValueError.
        Source: RocketMQ DefaultMessageStore.getMessage, GetMessageResult.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two"], tags="web")
        ...     store.wait_dispatched()
        ...     with store.get_raw("orders") as found:
        ...         found.status.name, len(found), len(found.views), found.queue_offsets, found.tags_codes
        True
        ('FOUND', 2, 1, [0, 1], [117588, 117588])
        """
        if unknown:
            raise unknown_keyword(self.get_raw, unknown)
        cdef int how = read_flags("none", True, True, False, exact_tags, broker_limits)
        self._enter_reading()
        try:
            self._look_around()
            return self.reader.raw(topic, queue_id, offset, max_count, tags, max_bytes, how)
        finally:
            self._leave()

    cdef int get_records(self, const GetRequest* a, TagFilter tags, RawRecords* h) except -1:
        """get_raw() for callers in C: QueueReader.get_records() of an open store. It does not make Python objects.

        Call it with the GIL, which is released while queue and log are read. h may be used and released without the
        GIL. Raises ClosedError and the errors of QueueReader.get_records().
        """
        self._enter_reading()
        try:
            self._look_around()
            with nogil:
                self.reader.get_records(a, tags, h)
        finally:
            self._leave()
        return 0

    cdef int64_t skip_unwanted(self, GetRequest* a, TagFilter tags, RawRecords* h) except? -2:
        """Return -1 if a message from a.offset on passes a filter. Otherwise: the offset after the last one.

        a  its offset is changed
        h  initialized by raw_init(); it holds nothing afterwards
        Nothing counts as read. -1 is returned also if only get_records() can say what there is, such as an error. Call
        it with the GIL, which is released while queue and log are read. Raises ClosedError.
        """
        cdef bint found = False
        self._enter_reading()
        try:
            self._look_around()
            with nogil:
                found = self.reader.skip_unwanted(a, tags, h)
        finally:
            self._leave()
        return -1 if found else a.offset

    cdef bint _wait_for_more(
        self, str topic, int queue_id, int64_t offset, int64_t since, int64_t until,
    ) except -1:
        """Wait until a queue has, or may have, a message at an offset or later; False if the time is over.

        since  when the wait began, by rc_clock_ns()
        """
        cdef bytes name = topic.encode("utf-8", "surrogateescape")
        cdef const uint8_t* p = name
        cdef int32_t n = <int32_t>len(name)
        cdef int rc = RC_MORE
        cdef int64_t pause
        if self.dispatcher is None:
            PyErr_CheckSignals()
            pause = (rc_clock_ns() - since) // (1000 * PAUSES)
            with nogil:
                usleep(<unsigned int>min(max(pause, <int64_t>PAUSE_US), <int64_t>PAUSE_MOST_US))
            if self._closing or self.closed:
                raise closed(f"{self.path}: the store was closed during this call")
            return rc_clock_ns() < until
        while rc == RC_MORE:
            PyErr_CheckSignals()
            with nogil:
                rc = self.dispatcher.feed.wait_for_offset(p, n, queue_id, offset, until, SLICE_NS)
            if rc != RC_OK and self._closing:
                raise closed(f"{self.path}: the store was closed during this call")
        return rc == RC_OK

    def follow(self, str topic not None, queue_id=0, offset=None, *, tags=None, max_count=32, **how):
        """Iterate over present and future messages of a queue: `async for m in store.follow("orders")`.

        offset  queue offset to begin at; None: the first message that exists
        tags, max_count and others as in get()
        Any number of tasks and event loops may follow. No thread waits: a file descriptor wakes the event loop when
        messages arrive. The iterator raises ClosedError when the store is closed; to end it earlier, leave the loop.

        >>> import asyncio, rocketc, tempfile
        >>> async def main():
        ...     with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...         store.put_many("orders", [b"one", b"two"])
        ...         async for message in store.follow("orders"):
        ...             if message.body == b"two":
        ...                 return message.queue_offset
        >>> asyncio.run(main())
        1
        """
        if self._followers is None:
            self._followers = self._followers_class(self)
        return self._followers.follow(topic, queue_id, offset, tags=tags, max_count=max_count, **how)

    def subscribe(self, queues=None):
        """Return a Subscription that reports which queues get messages from now on.

        queues  (topic, queue id) of each queue to watch, or None for all
        Any number of threads and event loops may have subscriptions. Messages put before this call are not reported:
        read the queues after this call. A waiting subscription reports a message as soon as get() finds it. Raises
        ValueError, ClosedError.
        Source: RocketMQ MessageArrivingListener.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     with store.subscribe() as subscription:
        ...         r = store.put_many("orders", [b"one", b"two"])
        ...         subscription.wait(timeout=5), [(c.topic, c.queue_id) for c in subscription.changes()]
        (True, [('orders', 0)])
        """
        self._enter_reading()
        try:
            if self._followers is None:
                self._followers = self._followers_class(self)
            return self._followers.subscribe(queues)
        finally:
            self._leave()

    @property
    def feed(self):
        """The ChangeFeed, for callers in C; None if the store is open for reading only."""
        return None if self.dispatcher is None else self.dispatcher.feed

    def query(
        self, str topic not None, str key not None, *, max_count=64, begin=None, end=None, bint exact_keys=True,
        str crc not None="body", bint decompress=True, bint unwrap=True, **unknown,
    ):
        """Return the newest messages of a topic that have a key, or this UNIQ_KEY, as a QueryResult; oldest first.

        max_count   number of messages; an inner batch counts as one
        begin, end  range of store timestamps, both included, as in RocketMQ: ms since the epoch or aware datetimes
        exact_keys  False: answer as RocketMQ does. Messages of other keys with the same hash are included, some more
                    than once; times are those of the index, in whole seconds; at most 64 messages
        crc, decompress, unwrap  as in get()
        Raises CorruptRecordError if the index, or a record that it refers to, is damaged.
        Source: RocketMQ DefaultMessageStore.queryMessage.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one", keys="k1 k2")
        ...     [m.body for m in store.query("orders", "k2")]
        [b'one']
        """
        if unknown:
            raise unknown_keyword(self.query, unknown)
        cdef KeyQuery w
        prepare_query(&w, max_count, begin, end, exact_keys, crc, decompress, unwrap)
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.answer(topic, key, &w)
        finally:
            self._leave()

    def message(self, phy_offset, *, str crc not None="body", bint decompress=True):
        """Return the message whose record begins at a physical offset, or None; an inner batch is one message.

        Raises CorruptRecordError if there is a record and its body is damaged.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.message(store.put("orders", b"hello").phy_offset).body
        b'hello'
        """
        cdef int how = read_flags(crc, decompress, False, False, True, False)
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.record(checked_int("phy_offset", phy_offset, INT64_MIN, INT64_MAX), how)
        finally:
            self._leave()

    def message_by_id(self, str msg_id not None, topic=None):
        """Return the message with an id, or None.

        msg_id  the offset message id (Message.msg_id), or the unique id that a client set: UNIQ_KEY
        topic   text; required for a unique id
        If several messages have the unique id, the newest is returned. Raises ValueError for a text that is not an id.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.message_by_id(store.put("orders", b"hello").msg_id).body
        b'hello'
        """
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.message_by_id(msg_id, topic)
        finally:
            self._leave()

    def offset_by_time(self, str topic not None, queue_id, timestamp, str boundary not None="lower"):
        """Return the queue offset of a queue's message by its store timestamp; 0 for an unknown queue.

        timestamp  ms since the epoch, or an aware datetime
        boundary   "lower": the first message of that time or later, or the end of the queue;
                   "upper": the last message of that time or earlier, or the first message;
                   "nearest": as in RocketMQ 4, a message of the file found by modification times
        As in RocketMQ, the last batch of a batch queue is the answer for all later times. If the store's clock went
        back, several messages match, and one of them is the answer.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one")
        ...     store.offset_by_time("orders", 0, 0), store.offset_by_time("orders", 0, 1 << 50)
        (0, 1)
        """
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.offset_by_time(topic, queue_id, timestamp, boundary)
        finally:
            self._leave()

    def min_offset(self, str topic not None, queue_id=0):
        """Return the queue offset of the first message; 0 for an unknown queue, -1 for an empty batch queue.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.min_offset("orders")
        0
        """
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.min_offset(topic, queue_id)
        finally:
            self._leave()

    def max_offset(self, str topic not None, queue_id=0, *, bint committed=True):
        """Return the queue offset after the last message; 0 for an unknown queue.

        committed  False: count also messages that are in the log but not in the queue yet, such as those not yet
                   durable

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one")
        ...     store.max_offset("orders", committed=False)
        1
        """
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.max_offset(topic, queue_id, committed=committed)
        finally:
            self._leave()

    def phy_offset_of(self, str topic not None, queue_id, offset):
        """Return the physical offset of a queue's message, from its unit; -1 if there is no such message.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.phy_offset_of("orders", 0, 0)
        -1
        """
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.phy_offset_of(topic, queue_id, offset)
        finally:
            self._leave()

    def in_memory(self, str topic not None, queue_id, offset):
        """Return whether a read of a queue at an offset does not wait for a disk, as far as the kernel says.

        The log from the message on is checked, for 256 KiB. True without such a message.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one")
        ...     store.wait_dispatched(), store.in_memory("orders", 0, 0)
        (True, True)
        """
        self._enter_reading()
        try:
            return self.lookups.in_memory(topic, queue_id, offset)
        finally:
            self._leave()

    def store_time(self, str topic not None, queue_id, offset):
        """Return the store timestamp of a queue's message in ms since the epoch; -1 if there is no such message.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.store_time("orders", 0, 0)
        -1
        """
        self._enter_reading()
        try:
            self._look_around()
            return self.lookups.store_time(topic, queue_id, offset)
        finally:
            self._leave()

    def queues(self):
        """Return the (topic, queue id) of each queue that has, or had, messages; sorted.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one", queue_id=3)
        ...     store.queues()
        [('orders', 3)]
        """
        self._enter_reading()
        try:
            self._look_around()
            return sorted(self.reader.queues.items())
        finally:
            self._leave()

    def wait_dispatched(self, timeout=None):
        """Wait until all earlier puts are in queues and index; return False if timeout seconds pass before that.

        Only code that reads the files needs it: get() and the other methods find earlier puts without it. In sync mode
        it waits for the flush too; a message put without waiting is durable 10 ms later. With background=False it
        flushes and dispatches itself. Raises StoreFullError or StoreIOError if queues or index can't be written.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one")
        ...     store.wait_dispatched(timeout=5), store.max_offset("orders")
        (True, 1)
        """
        cdef int64_t until = checked_until("timeout", timeout), end
        cdef int rc = RC_MORE
        self._enter()
        try:
            end = self.log.last_record_end
            if self._stepper is not None and self.dispatcher.follows_flush:
                self._wait(end, INT64_MAX)
            while rc == RC_MORE:
                PyErr_CheckSignals()
                with nogil:
                    rc = self.dispatcher.wait_position(end, until, SLICE_NS)
                if rc != RC_OK and self._closing:
                    raise closed(f"{self.path}: the store was closed during this call")
                # after a failure, bytes that are not durable or still in the pool never become durable
                behind = self.dispatcher.follows_flush or self.log.fl.allocator != NULL
                if rc == RC_MORE and behind and rc_load_i64(&self.log.fl.failed) != 0:
                    raise failure(self.log, self.path)
            if rc != RC_OK and rc != RC_FLUSH_TIMEOUT:
                raise self.dispatcher.dispatch_error(rc)
            return rc == RC_OK
        finally:
            self._leave()

    @property
    def dispatch_behind_bytes(self):
        """Bytes of the log that readers may read and that are not in queues and index yet."""
        return 0 if self.dispatcher is None else self.dispatcher.behind

    def _max_offsets(self, queues=None):
        """Return {(topic, queue id): max_offset}; for a subscription of a store that another process writes.

        queues  the queues to return; None: all
        """
        self._enter_reading()
        try:
            self._look_around()
            if queues is not None:
                return {key: self.lookups.max_offset(key[0], key[1]) for key in queues}
            self.reader.queues.look_at_all()
            return {(topic, queue_id): end for topic, queue_id, _, end, *_ in self.reader.queues.counts()}
        finally:
            self._leave()
