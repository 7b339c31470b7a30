# cython: language_level=3
"""Records of a queue in the mapped log files: picked and held, but not copied.

The functions do not need the GIL. A result holds each of its files once, and raw_release() releases all of them.
Source: RocketMQ GetMessageResult, SelectMappedBufferResult.
"""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport ENOMEM
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from rocketc.c.atomic cimport rc_add_i64
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport (
    RC_MAGIC_V1, RC_MAGIC_V2, RC_MSG_MAGIC_AT, RC_MSG_MIN_BYTES, RC_MSG_PHYSICAL_OFFSET_AT, RC_MSG_QUEUE_ID_AT,
    RC_MSG_QUEUE_OFFSET_AT, RC_MSG_TOTAL_SIZE_AT,
)
from rocketc.c.status cimport RC_BAD_UNIT, RC_FILE_CUT, RC_OK
from rocketc.c.vm cimport rc_touch
from rocketc.files._append_file cimport FileState, View, file_drop, file_readable, file_release, view_of
from rocketc.files._file_queue cimport queue_hold
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.store._results cimport QueueIdentity

from rocketc.errors import ClosedError
from rocketc.status import GetStatus

cdef tuple STATUS = tuple(GetStatus)


cdef void raw_init(RawRecords* h) noexcept nogil:
    """Initialize h, whose memory may be uninitialized, as an empty result. The caller ends it with raw_free()."""
    h.rows = h.some_rows
    h.room = RAW_ROWS
    h.log = NULL
    h.files = h.some_files
    h.file_count = 0
    h.file_room = RAW_FILES
    h.file = h.guarded = -1
    raw_clear(h)


cdef void raw_clear(RawRecords* h) noexcept nogil:
    """Reset the result. Files stay held, and memory stays allocated for the next read."""
    h.count = 0
    h.messages = h.bytes = h.filtered = 0
    h.status = GET_NO_MESSAGE_IN_QUEUE
    h.next_offset = h.min_offset = h.max_offset = 0
    h.last_phy = -1
    h.suggest_slave = False
    h.wrong.size = 0
    h.wrong.phy_offset = h.wrong.queue_offset = h.wrong.unit = -1


cdef void raw_release(RawRecords* h) noexcept nogil:
    """Release the files. `at` of all rows becomes invalid, the other fields stay. A second call does nothing."""
    cdef int i
    raw_rest(h)
    for i in range(h.file_count):
        file_release(h.files[i])
        file_drop(h.files[i])
    h.file_count = 0
    h.file = -1


cdef void raw_free(RawRecords* h) noexcept nogil:
    """Call raw_release(), and free the memory."""
    raw_release(h)
    if h.rows != h.some_rows:
        free(h.rows)
    if h.files != h.some_files:
        free(h.files)


cdef int raw_reserve(RawRecords* h, int64_t room) noexcept nogil:
    """Allocate room for at least `room` rows in total: RC_OK or ENOMEM."""
    cdef bint own = h.rows != h.some_rows
    cdef RawRecord* rows
    if room <= h.room:
        return RC_OK
    if room > INT32_MAX:
        return ENOMEM
    rows = <RawRecord*>realloc(h.rows if own else NULL, <size_t>room * sizeof(RawRecord))
    if rows == NULL:
        return ENOMEM
    if not own:
        memcpy(rows, h.some_rows, <size_t>h.count * sizeof(RawRecord))
    h.rows = rows
    h.room = <int>room
    return RC_OK


cdef int add_file(RawRecords* h, FileState* f) noexcept nogil:
    cdef bint own = h.files != h.some_files
    cdef FileState** files
    if h.file_count == h.file_room:
        files = <FileState**>realloc(h.files if own else NULL, <size_t>(2 * h.file_room) * sizeof(FileState*))
        if files == NULL:
            return ENOMEM
        if not own:
            memcpy(files, h.some_files, sizeof(h.some_files))
        h.files = files
        h.file_room *= 2
    rc_add_i64(&f.pointers, 1)
    h.file = h.file_count
    h.files[h.file] = f
    h.file_count += 1
    return RC_OK


cdef int raw_hold(RawRecords* h, int64_t phy_offset) noexcept nogil:
    """Do the work of raw_seek() for another file than the last one."""
    cdef FileState* f
    cdef int i, rc
    for i in range(h.file_count):
        if h.files[i].start <= phy_offset < h.files[i].start + h.log.file_size:
            h.file = i
            return RC_OK
    rc = queue_hold(h.log, phy_offset, &f)
    if rc == RC_OK:
        rc = add_file(h, f)
        if rc != RC_OK:
            file_release(f)
    return rc


cdef void raw_guard(RawRecords* h, int file) noexcept nogil:
    """Do the work of raw_enter() for another file than the last one."""
    cdef FileState* f = h.files[file]
    raw_rest(h)
    enter_writing(&h.guard, f.base, f.size, &f.cut)
    h.guarded = file


cdef void raw_rest(RawRecords* h) noexcept nogil:
    """End the access that raw_enter() began; the files stay held."""
    if h.guarded >= 0:
        guard_leave(&h.guard)
        h.guarded = -1


cdef void raw_cut_back(RawRecords* h, int count) noexcept nogil:
    """Keep the first `count` rows. The next row becomes h.wrong, and h.next_offset is its queue offset."""
    cdef int i
    h.wrong = h.rows[count]
    h.next_offset = h.wrong.queue_offset
    h.messages = h.bytes = 0
    h.count = count
    for i in range(count):
        h.messages += h.rows[i].count
        h.bytes += h.rows[i].size


cdef int64_t touch_file(FileState* f, int64_t at, int64_t end) noexcept nogil:
    """Read one byte of each page of a log file from one physical offset to another; return the end of the file."""
    cdef int64_t stop = min(end, f.start + file_readable(f))
    if at < stop:
        rc_touch(f.base + (at - f.start), <size_t>(stop - at))
    return f.start + <int64_t>f.size


cdef bint matches_unit(const RawRecord* row, const QueueIdentity* of) noexcept nogil:
    cdef const uint8_t* at = row.at
    cdef int32_t magic = rc_get_i32(at + RC_MSG_MAGIC_AT)
    if magic != RC_MAGIC_V1 and magic != RC_MAGIC_V2:
        return False
    if rc_get_i32(at + RC_MSG_TOTAL_SIZE_AT) != row.size or row.size < RC_MSG_MIN_BYTES:
        return False
    if rc_get_i64(at + RC_MSG_PHYSICAL_OFFSET_AT) != row.phy_offset:
        return False
    if of.lmq:
        return True             # the record has the queue and the offset of its own topic
    return (
        rc_get_i32(at + RC_MSG_QUEUE_ID_AT) == of.queue_id
        and rc_get_i64(at + RC_MSG_QUEUE_OFFSET_AT) == row.queue_offset
    )


cdef int raw_check(RawRecords* h, const QueueIdentity* of) noexcept nogil:
    """Compare the head of each record with its unit: size, magic number, physical offset, queue id, queue offset.

    Topic and CRCs are not checked. At the first record that differs h is cut back, see raw_cut_back().
    Returns RC_OK, RC_BAD_UNIT or RC_FILE_CUT.
    """
    cdef FileState* f
    cdef int i, rc = RC_OK
    for i in range(h.count):
        f = raw_enter(h, h.rows[i].file)
        if not matches_unit(&h.rows[i], of):
            rc = RC_BAD_UNIT
        if f.cut != 0:
            rc = RC_FILE_CUT
        if rc != RC_OK:
            raw_cut_back(h, i)
            break
    raw_rest(h)
    return rc


cdef int raw_run_end(const RawRecords* h, int first) noexcept nogil:
    """Return the index after the last row of a run: row `first`, and the rows that follow it directly in its file."""
    cdef int i = first + 1
    while i < h.count and h.rows[i].file == h.rows[first].file:
        if h.rows[i].at != h.rows[i - 1].at + h.rows[i - 1].size:
            break
        i += 1
    return i


cdef View raw_view(const RawRecords* h, int row, int64_t skip, int64_t size):
    """Return a View of `size` bytes of a record from byte `skip` on. The View holds the file itself."""
    cdef const RawRecord* r = &h.rows[row]
    cdef FileState* f = h.files[r.file]
    rc_add_i64(&f.holds, 1)     # h holds the file too, so it is mapped
    return view_of(f, r.phy_offset - f.start + skip, size)


@cython.no_gc
@cython.final
cdef class RecordRun:
    """Records that are adjacent in the map, as one buffer. It keeps a reference to their RawGetResult."""

    def __init__(self):
        raise TypeError("a RecordRun can't be created directly: use a RawGetResult")

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self._result._released:
            raise ClosedError("these records were released")
        PyBuffer_FillInfo(buffer, self, <void*>self._at, self._size, 1, flags)
        self._result._exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._result._exports -= 1


@cython.freelist(16)
@cython.no_gc
@cython.final
cdef class RawGetResult:
    """The result of get_raw(): a sequence of memoryviews of the log, one per record, and the status of the read.

    status                GetStatus
    next_offset           queue offset at which the next get continues
    min_offset, max_offset  of the queue: the offset of its first message, and the offset after its last one
    filter_message_count  number of messages that the filter rejected
    suggest_pulling_from_slave  True: the last message read is so old that it may not be in memory
    The log's files stay mapped, and are not deleted, until release(), the end of `with`, or the end of the result and
    of all its memoryviews.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     r = store.put_many("orders", [b"one", b"two"])
    ...     store.wait_dispatched()
    ...     with store.get_raw("orders") as found:
    ...         [rocketc.Message.of(bytes(record)).body for record in found]
    True
    [b'one', b'two']
    """

    def __cinit__(self):
        raw_init(&self.raw)

    def __init__(self):
        raise TypeError("a RawGetResult can't be created directly: call MessageStore.get_raw()")

    def __dealloc__(self):
        raw_free(&self.raw)

    @property
    def status(self):
        return STATUS[self.raw.status]

    @property
    def next_offset(self):
        return self.raw.next_offset

    @property
    def min_offset(self):
        return self.raw.min_offset

    @property
    def max_offset(self):
        return self.raw.max_offset

    @property
    def filter_message_count(self):
        return self.raw.filtered

    @property
    def suggest_pulling_from_slave(self):
        return self.raw.suggest_slave

    @property
    def message_count(self):
        """Number of messages of all records together; in a batch queue a record has several messages."""
        return self.raw.messages

    @property
    def total_bytes(self):
        """Bytes of all records together."""
        return self.raw.bytes

    @property
    def views(self):
        """The records in as few memoryviews as possible: records that are adjacent in the log share one.

        Use them with `sendmsg()` of a socket, or `writelines()` of a transport. Raises ClosedError after release().

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two"])
        ...     store.wait_dispatched()
        ...     with store.get_raw("orders") as found:
        ...         len(found), [view.nbytes == found.total_bytes for view in found.views]
        True
        (2, [True])
        """
        cdef list out = []
        cdef int i = 0, end
        while i < self.raw.count:
            end = raw_run_end(&self.raw, i)
            out.append(memoryview(self._run(i, end)))
            i = end
        return out

    @property
    def sizes(self):
        """Bytes of each record."""
        cdef int i
        return [self.raw.rows[i].size for i in range(self.raw.count)]

    @property
    def phy_offsets(self):
        """Physical offset of each record."""
        cdef int i
        return [self.raw.rows[i].phy_offset for i in range(self.raw.count)]

    @property
    def queue_offsets(self):
        """Queue offset of each record in the queue that was read; in a batch queue that of its first message."""
        cdef int i
        return [self.raw.rows[i].queue_offset for i in range(self.raw.count)]

    @property
    def tags_codes(self):
        """Tags code of each record's unit: the hash of its tag, or 0 without a tag.

        In SCHEDULE_TOPIC_XXXX it is the time when the message is due, in ms. If the queue has an extension, it is the
        tags code in the extension, or the extension address if the extension does not have the unit.
        """
        cdef int i
        return [self.raw.rows[i].tags_code for i in range(self.raw.count)]

    def touch(self, int64_t ahead=0):
        """Read one byte of each page of the records, so that later reads do not wait for the disk. Call it on a thread.

        ahead  bytes of the log that follow: they are read too, if the records lie close to each other, within a
               quarter of this

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.get_raw("orders").touch()
        """
        cdef int i
        cdef RawRecord* rows = self.raw.rows
        cdef int64_t at, end
        if self._released:
            raise ClosedError("these records were released")
        with nogil:
            for i in range(self.raw.count):
                raw_enter(&self.raw, rows[i].file)      # a later read reports a file that was cut
                rc_touch(rows[i].at, <size_t>rows[i].size)
            if self.raw.count > 0:
                at = rows[self.raw.count - 1].phy_offset + rows[self.raw.count - 1].size
                if at - rows[0].phy_offset <= ahead // 4:
                    end = at + ahead
                    while at < end and raw_seek(&self.raw, at) == RC_OK:
                        at = touch_file(raw_enter(&self.raw, self.raw.file), at, end)
            raw_rest(&self.raw)

    def release(self):
        """Release the files. A second call does nothing. Raises BufferError while a memoryview of them is in use.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     found = store.get_raw("orders")
        ...     found.release()
        """
        if self._exports > 0:
            raise BufferError(f"{self._exports} memoryviews of these records are still in use")
        self._released = True
        raw_release(&self.raw)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.release()

    cdef RecordRun _run(self, int first, int end):
        cdef RecordRun run
        cdef const RawRecord* last = &self.raw.rows[end - 1]
        if self._released:
            raise ClosedError("these records were released")
        run = RecordRun.__new__(RecordRun)
        run._result = self
        run._at = self.raw.rows[first].at
        run._size = last.at + last.size - run._at
        return run

    def __len__(self):
        return self.raw.count

    def __bool__(self):
        return self.raw.count > 0

    def __getitem__(self, item):
        cdef Py_ssize_t i
        if isinstance(item, slice):
            return [self[i] for i in range(*item.indices(self.raw.count))]
        i = item
        if i < 0:
            i += self.raw.count
        if not 0 <= i < self.raw.count:
            raise IndexError(f"record {item} of {self.raw.count}")
        return memoryview(self._run(<int>i, <int>i + 1))

    def __iter__(self):
        return iter(self[:])

    def __repr__(self):
        return (
            f"<RawGetResult {self.status.name}, {self.raw.count} records, {self.raw.bytes} bytes, "
            f"next_offset={self.next_offset}>"
        )
