# cython: language_level=3
"""Reading by queue: get().

One call without the GIL walks over the units of a consume queue, filters them and picks what the caller may have;
another one copies the records out of the log, back to back, and checks each. Messages lie over that copy: attributes
are decoded when they are asked for. Source: RocketMQ DefaultMessageStore.getMessage
"""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

from rocketc._status cimport error_of, reason_of
from rocketc.c.atomic cimport rc_count_i64, rc_load_i64
from rocketc.c.layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES
from rocketc.c.status cimport RC_BAD_BODY_CRC, RC_BAD_PROPERTY_CRC, RC_BAD_UNIT, RC_END, RC_FILE_CUT, RC_MORE, RC_OK
from rocketc.derived._consume_queue_units cimport ConsumeQueue, cq_min_offset, cq_read, cq_tags_code, cq_unit_of
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.files._append_file cimport file_readable
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._queue_units cimport Unit, is_blank, is_light, is_schedule_topic, is_valid
from rocketc.format._record cimport Record, parse_record
from rocketc.store._results cimport (
    Cursor, LogPaths, PickedRecord, PickedRecords, READ_BROKER, READ_LOOSE, READ_VIEWS, ReadResult, TagFilter,
    checked_int, cursor_enter, cursor_init, cursor_leave, cursor_rest, cursor_seek, fetch, files_of, picked_add,
    picked_init, picked_reserve, read_copies, read_flags, read_views,
)

from rocketc.errors import CorruptUnitError
from rocketc.status import GetStatus

cdef enum:
    FOUND = 0               # GetStatus
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MESSAGE_IN_QUEUE = 8
    MEMORY_BYTES = 0        # of QueueReader._limits
    MEMORY_COUNT = 1
    DISK_BYTES = 2
    DISK_COUNT = 3
    CHUNK = 64              # units read at once
    ROWS_AT_ONCE = 4096     # room for records that is made before the first is met
    FILTERS_KEPT = 256

cdef int64_t TRANSFER_BYTES = 128 << 20             # of one get()
cdef int64_t LEAST_TRANSFER_BYTES = 100             # that a broker lets a client ask for
cdef int64_t MEMORY_UNKNOWN = <int64_t>24 << 30
cdef tuple STATUS = tuple(GetStatus)


cdef ConsumeQueue* find_queue(ConsumeQueues queues, str topic, int32_t queue_id) except? NULL:
    """The queue, or NULL; of a store that another process writes, with what is there by now."""
    cdef Py_ssize_t n = 0
    cdef const char* name = NULL
    if not queues.read_only:
        try:
            name = PyUnicode_AsUTF8AndSize(topic, &n)
        except UnicodeEncodeError:      # a folder whose name is not UTF-8
            return queues.look(topic, queue_id)
        if n > INT32_MAX:
            return NULL
        return queues.find(<const uint8_t*>name, <int32_t>n, queue_id)
    return queues.look(topic, queue_id)


@cython.no_gc
@cython.final
cdef class GetResult(ReadResult):
    """What a get() found: a row of messages, and why it has no more.

    status                GetStatus
    next_offset           queue offset to go on at
    min_offset, max_offset  of the queue: of its first message, and behind its last one
    filter_message_count  messages that were looked at and that the filter did not let pass
    suggest_pulling_from_slave  the last one looked at is so far back that it may not be in memory any more
    Messages are made when they are first asked for; they share one copy of their records.
    """

    @property
    def queue_offsets(self):
        """Queue offset of each record, in the queue that was asked: in a light queue the messages say another one."""
        cdef int i
        return [self._picked.rows[i].queue_offset for i in range(self._picked.count)]

    def release(self):
        """Let the files go that views are in. Raises BufferError while a memoryview of them is in use.

        >>> import tempfile, rocketc
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 16) as store:
        ...     _ = store.put("orders", b"hi")
        ...     found = store.get("orders", 0, 0, views=True, wait=1)
        ...     found.release()
        """
        for view in self._views or ():
            view.release()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.release()

    def __repr__(self):
        return f"<GetResult {self.status.name}, {self._picked.count} records, next_offset={self.next_offset}>"


@cython.final
cdef class QueueReader:
    """Reads the log by its consume queues.

    log, queues  of the store, which stays open while a call runs
    config       StoreConfig: the limits of a broker, and of a filter
    """

    def __cinit__(self, MappedFileQueue log not None, ConsumeQueues queues not None, config):
        try:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            memory = 0
        if memory <= 0:
            memory = MEMORY_UNKNOWN
        self.log = log
        self.queues = queues
        self._memory = memory * config.access_message_in_memory_max_ratio // 100
        self._scan_bytes = config.max_filter_message_size
        self._travel = config.travel_cq_file_num_when_get_message
        self._limits[MEMORY_BYTES] = config.max_transfer_bytes_on_message_in_memory
        self._limits[MEMORY_COUNT] = config.max_transfer_count_on_message_in_memory
        self._limits[DISK_BYTES] = config.max_transfer_bytes_on_message_in_disk
        self._limits[DISK_COUNT] = config.max_transfer_count_on_message_in_disk
        self._keep_offset = config.broker_role == "SLAVE" and not config.offset_check_in_slave
        self._filters = {}
        self.paths = LogPaths(log)

    def get(
        self, str topic not None, queue_id=0, offset=0, max_count=32, *, tags=None, max_bytes=None, bint views=False,
        bint exact_tags=True, bint broker_limits=False, str crc not None="body", bint decompress=True, bint unwrap=True,
    ):
        """As MessageStore.get() without waiting."""
        cdef int how = read_flags(crc, decompress, unwrap, views, exact_tags, broker_limits)
        return self.read(topic, queue_id, offset, max_count, tags, max_bytes, how)

    cdef ConsumeQueue* queue(self, str topic, int32_t queue_id) except? NULL:
        """find_queue(), and the log's files that its messages are in."""
        cdef ConsumeQueue* q = find_queue(self.queues, topic, queue_id)
        if q != NULL and rc_load_i64(&q.max_phy_offset) > rc_load_i64(&self.log.q.wrote):
            self.log.refresh()          # another process writes it
        return q

    cdef GetResult read(
        self, str topic, object queue_id, object offset, object max_count, object tags, object max_bytes, int how,
    ):
        """get(): `how` is made of the bits of How."""
        cdef Asked a
        cdef Cursor c
        cdef ConsumeQueue* q
        cdef GetResult result = GetResult.__new__(GetResult)
        cdef PickedRecords* h = &result._picked
        cdef TagFilter filter = self._filter_of(tags)
        cdef Py_ssize_t n = 0
        cdef bytes name
        cdef int rc = RC_OK
        cdef bint picked
        a.of.queue_id = <int32_t>checked_int("queue_id", queue_id, INT32_MIN, INT32_MAX)
        a.offset = checked_int("offset", offset, INT64_MIN, INT64_MAX)
        a.max_count = checked_int("max_count", max_count, 0 if how & READ_BROKER else 1, INT32_MAX)
        a.max_bytes = TRANSFER_BYTES if max_bytes is None else checked_int("max_bytes", max_bytes, 1, INT64_MAX)
        if how & READ_BROKER:
            a.max_bytes = max(min(a.max_bytes, TRANSFER_BYTES), LEAST_TRANSFER_BYTES)
        try:
            a.of.topic = <const uint8_t*>PyUnicode_AsUTF8AndSize(topic, &n)
        except UnicodeEncodeError:
            name = topic.encode("utf-8", "surrogateescape")
            a.of.topic = <const uint8_t*>PyBytes_AS_STRING(name)
            n = len(name)
        a.of.topic_len = <int32_t>min(n, INT32_MAX)
        a.how = how
        a.of.lmq = is_light(a.of.topic, n)
        cursor_init(&c, &self.log.q)
        q = self.queue(topic, a.of.queue_id)
        try:
            while True:
                with nogil:
                    rc = self._pick(&a, q, filter, h, &c)
                picked = rc == RC_OK
                if picked and h.count > 0:
                    if how & READ_VIEWS:
                        rc = read_views(&c, result, &a.of, how)
                    else:
                        rc = read_copies(&c, result, &a.of, how)
                if rc == RC_OK:
                    break
                if rc == RC_MORE:
                    continue
                if h.count == 0:
                    self._fail(rc, q, &h.rows[0] if picked else &a.wrong)
                a.next = h.rows[h.count].queue_offset       # what came before the damage, first
                break
        finally:
            cursor_leave(&c)
        if h.count > 0:
            rc_count_i64(&q.given, h.messages)
            rc_count_i64(&q.given_bytes, h.bytes)
        result.status = STATUS[a.status]
        result.next_offset = a.next
        result.min_offset = a.min
        result.max_offset = a.max
        result.filter_message_count = a.filtered
        result.suggest_pulling_from_slave = a.last_phy >= 0 and rc_load_i64(&c.log.wrote) - a.last_phy > self._memory
        result._how = how
        if h.count > 0:
            result._tags = filter
            result._offset = a.offset
            result._file_size = c.log.file_size
            result._paths = files_of(self.paths, h)
        elif result._buffer is None:
            result._buffer = b""
        return result

    cdef int _pick(self, Asked* a, ConsumeQueue* q, TagFilter tags, PickedRecords* h, Cursor* c) noexcept nogil:
        """Choose the records: RC_OK and a.status, or what is wrong with the first one (a.wrong)."""
        cdef int rc
        h.count = 0
        h.messages = h.bytes = 0
        a.filtered = 0
        a.last_phy = -1
        a.wrong.size = 0
        a.min = a.max = 0
        a.next = a.offset
        a.status = NO_MESSAGE_IN_QUEUE
        if q != NULL:
            a.max = rc_load_i64(&q.units)       # before what is stored before it
            if q.unit_bytes != RC_CQ_UNIT_BYTES:
                a.max = rc_load_i64(&q.max_offset)
            rc = cq_min_offset(q, &a.min)
            if rc != RC_OK:
                return rc
        if a.max == 0:
            a.next = self._corrected(a.offset, 0)
        elif a.offset < a.min:
            a.status = OFFSET_TOO_SMALL
            a.next = self._corrected(a.offset, a.min)
        elif a.offset == a.max:
            a.status = OFFSET_OVERFLOW_ONE
        elif a.offset > a.max:
            a.status = OFFSET_OVERFLOW_BADLY
            a.next = self._corrected(a.offset, a.max)
        else:
            rc = self._walk(a, q, tags, h, c)
            cursor_rest(c)
            if h.count > 0:
                a.status = FOUND
                return RC_OK
            return rc
        return RC_OK

    cdef int64_t _corrected(self, int64_t old, int64_t offset) noexcept nogil:
        return old if self._keep_offset else offset

    cdef bint _is_full(self, const Asked* a, const PickedRecords* h, const Unit* u) noexcept nogil:
        """Whether one more does not go into the answer; the first always does."""
        cdef int at
        if h.count == 0:
            return False
        if h.messages + u.count > a.max_count or h.bytes + u.size > a.max_bytes or h.bytes >= a.max_bytes:
            return True
        if not a.how & READ_BROKER:
            return False
        at = DISK_BYTES if rc_load_i64(&self.log.q.wrote) - u.phy_offset > self._memory else MEMORY_BYTES
        return h.bytes + u.size > self._limits[at] or h.messages > self._limits[at + 1] - 1

    cdef int _walk(self, Asked* a, ConsumeQueue* q, TagFilter tags, PickedRecords* h, Cursor* c) noexcept nogil:
        """Go over the units from a.offset on: what is picked is added to h, and a.next is behind the last one.

        Returns RC_OK, or what is wrong with the unit at a.next, which a.wrong is then.
        """
        cdef Unit units[CHUNK]
        cdef Unit* u
        cdef int64_t limit = max(self._scan_bytes, a.max_count * RC_CQ_UNIT_BYTES), scanned = 0, unit, removed = -1
        cdef int64_t units_in_file = q.files.file_size // q.unit_bytes, file_number
        cdef bint text = tags is not None and not a.how & READ_LOOSE
        cdef bint code = tags is not None and not (text and (
            q.unit_bytes == RC_BCQ_UNIT_BYTES           # the tags are those of the messages in the batch
            or is_schedule_topic(a.of.topic, a.of.topic_len)    # units have times there
        ))
        cdef int files = 1, i, got = 0, rc = cq_unit_of(q, a.offset, &unit)
        a.status = NO_MATCHED_MESSAGE
        if rc != RC_OK or unit < 0:
            return rc
        file_number = unit // units_in_file
        # For as many as may come: nothing is copied while there are more of them.
        picked_reserve(h, <int>min(min(a.max_count, a.max - a.offset), ROWS_AT_ONCE))
        while a.next < a.max:
            if unit // units_in_file != file_number and a.how & READ_BROKER:
                if h.count > 0 or files >= self._travel:
                    return RC_OK
                files += 1
                file_number = unit // units_in_file
            rc = cq_read(q, unit, <int>min(CHUNK, a.max_count - h.messages + 1), units, &got)
            if rc != RC_OK:
                return rc
            if got == 0:
                if h.count == 0:
                    a.status = OFFSET_FOUND_NULL
                    a.next = self._corrected(a.next, self._rolled(q, unit, a.max))
                return RC_OK
            for i in range(got):
                u = &units[i]
                if scanned >= limit or a.next >= a.max:
                    return RC_OK
                if u.queue_offset + u.count <= a.offset:
                    continue                            # of a batch queue with a gap
                if is_blank(u):                         # what it says of its size does not count
                    scanned += q.unit_bytes
                    a.next = u.queue_offset + u.count
                    if h.count == 0:
                        a.status = MESSAGE_WAS_REMOVING
                    continue
                if self._is_full(a, h, u):
                    return RC_OK
                rc = RC_OK
                if code and q.ext != NULL:
                    rc = cq_tags_code(q, u, &u.tags_code)
                    if rc == RC_END:                    # what the extension does not have, the record tells
                        rc = RC_OK
                if rc == RC_OK and not is_valid(u):
                    rc = RC_BAD_UNIT
                if rc == RC_OK and u.phy_offset >= removed:
                    if not code or tags.fits(u.tags_code):
                        rc = self._look(a, u, unit + i, tags, text, h, c, &removed)
                    else:
                        a.filtered += u.count
                        if h.count == 0:
                            a.status = NO_MATCHED_MESSAGE
                if rc != RC_OK:
                    picked_init(&a.wrong, u.phy_offset, u.size if u.size != 0 else 1, u.queue_offset, unit + i, u.count)
                    return rc
                scanned += q.unit_bytes
                a.last_phy = u.phy_offset
                a.next = u.queue_offset + u.count
            unit += got
        return RC_OK

    cdef int _look(
        self, Asked* a, const Unit* u, int64_t unit, TagFilter tags, bint text, PickedRecords* h, Cursor* c,
        int64_t* removed,
    ) noexcept nogil:
        """Pick one unit's record, if it is there and has one of the tags. Returns RC_OK, or what is wrong with it."""
        cdef Record r
        cdef int64_t at, size = self.log.q.file_size
        cdef int rc = cursor_seek(c, u.phy_offset)
        if rc == ENOENT and u.phy_offset < rc_load_i64(&self.log.q.wrote):
            removed[0] = u.phy_offset - u.phy_offset % size + size
            if h.count == 0:
                a.status = MESSAGE_WAS_REMOVING
            return RC_OK
        if rc != RC_OK:
            return RC_BAD_UNIT if rc == ENOENT else rc
        at = u.phy_offset - c.file.start
        if at + u.size > file_readable(c.file):
            return RC_BAD_UNIT
        if text:
            cursor_enter(c)
            fetch(c.file.base + at, u.size)
            rc = parse_record(c.file.base + at, <size_t>u.size, &r)
            if c.file.cut != 0:
                return RC_FILE_CUT
            if rc != RC_OK:
                return rc if rc <= -10 else RC_BAD_UNIT
            if not tags.passes(&r):
                a.filtered += u.count
                return RC_OK
        return picked_add(h, u.phy_offset, u.size, u.queue_offset, unit, u.count)

    cdef int64_t _rolled(self, ConsumeQueue* q, int64_t unit, int64_t most) noexcept nogil:
        """Queue offset of the first unit behind the file that a unit is in."""
        cdef int64_t per_file = q.files.file_size // q.unit_bytes
        cdef int64_t next = unit + per_file - unit % per_file
        cdef Unit u
        cdef int got = 0
        if q.unit_bytes == RC_CQ_UNIT_BYTES:
            return next
        return u.queue_offset if cq_read(q, next, 1, &u, &got) == RC_OK and got == 1 else most

    cdef TagFilter _filter_of(self, object tags):
        cdef PyObject* known
        if tags is None:
            return None
        if isinstance(tags, str):
            known = PyDict_GetItem(self._filters, tags)
            if known != NULL:
                return <TagFilter><object>known
            if tags == "" or tags == "*":
                return None
            if len(self._filters) >= FILTERS_KEPT:
                self._filters.clear()
            return self._filters.setdefault(tags, TagFilter(tags))
        tags = list(tags)
        return None if "*" in tags else TagFilter(tags)

    cdef int _fail(self, int rc, ConsumeQueue* q, const PickedRecord* t) except -1:
        """Raise what is wrong with a record, or the unit that names it."""
        cdef int64_t pos
        if rc == ENOMEM:
            raise MemoryError
        if rc == RC_BAD_BODY_CRC or rc == RC_BAD_PROPERTY_CRC:
            raise error_of(rc, self.paths.at(t.phy_offset), t.phy_offset, "crc='none' hands it out as it is")
        if rc > 0 or rc == RC_FILE_CUT:
            raise error_of(rc, self.paths.at(t.phy_offset) if t.size != 0 else os.fsdecode(q.folder))
        pos = t.unit * q.unit_bytes
        path = os.path.join(os.fsdecode(q.folder), f"{pos - pos % q.files.file_size:020d}")
        raise CorruptUnitError(
            path, pos % q.files.file_size, reason_of(rc),
            f"the unit of queue offset {t.queue_offset} names {t.size} bytes at physical offset {t.phy_offset}, where "
            "its record is not; `rocketc rebuild` makes the queue anew from the log, `rocketc verify` reads the log"
        )

    def _set_memory(self, int64_t size):
        """Test hook: how many bytes of the log's end count as in memory."""
        self._memory = size
