# cython: language_level=3
"""Whole records as bytes, by physical offset: read from a log, checked, and appended to another log.

A replica needs these two operations: its log is a byte-for-byte copy of its master's log, including the blank records
and the bytes after them. A block is checked as a whole before any of it is written, without a lock. Then it is copied
record by record; the size and the magic number of each are written last, as in a put. So other readers, and a recovery
after a crash, see whole records only.
Source: RocketMQ CommitLog.getData, CommitLog.appendData; a RocketMQ slave checks nothing.
"""
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from posix.unistd cimport usleep

from rocketc.c.atomic cimport rc_add_i64, rc_fence_release, rc_load_i64, rc_store_i64
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_MAGIC_V1, RC_MAGIC_V2, RC_MSG_MAGIC_AT, RC_MSG_MIN_BYTES, RC_MSG_PHYSICAL_OFFSET_AT,
    RC_MSG_QUEUE_ID_AT, RC_MSG_STORE_TIMESTAMP_PAST, RC_MSG_TOTAL_SIZE_AT, RC_PROPERTY_INNER_MULTI_DISPATCH,
    RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET,
)
from rocketc.c.prefetch cimport LINE_BYTES, rc_prefetch_for_writing
from rocketc.c.properties cimport rc_find_property
from rocketc.c.service cimport rc_clock_ms
from rocketc.c.status cimport (
    RC_BAD_BLANK, RC_BAD_PHYSICAL_OFFSET, RC_BAD_SIZE, RC_BLANK, RC_END, RC_FAILED, RC_FILE_CUT, RC_MORE,
    RC_OK, RC_OUT_OF_ORDER, RC_PAGE_CACHE_BUSY, RC_TRUNCATED, RC_ZEROED,
)
from rocketc.c.vm cimport rc_guard
from rocketc.files._allocator cimport allocator_reserve
from rocketc.files._append_file cimport FILE_READ, FileState, file_drop, file_readable, file_release
from rocketc.files._file_queue cimport FileQueue, queue_hold
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.format._queue_units cimport has_light_queues, is_light
from rocketc.format._record cimport CRC_FULL, Record, crc32, parse_record, verify_record
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._flusher cimport flusher_fail, flusher_wake
from rocketc.log._queue_offsets cimport QueueSlot, cq_hash, offsets_taken

cdef enum:
    HELD_US = 200           # interval at which the append checks whether a topic is still being deleted
    RECENT = 64             # queues of a block that are found again without a search; a power of two
    FIRST_ROOM = 16         # of lists
    LINES_AHEAD_BYTES = 2048    # bytes of the next record that are prefetched while a record is copied
    OFFSET_DIGITS = 18
    OFFSET_BYTES = 8

cdef int64_t MOST_QUEUE_OFFSET = INT64_MAX // 32    # a greater queue offset is damage: no queue has room for it

# A queue that has records in a run. A run may list a queue twice.
ctypedef struct RawQueue:
    const uint8_t* topic    # points into the block
    int32_t topic_len
    int32_t queue_id
    int64_t next_offset     # after the last of its records
    QueueSlot* slot

# The part of a block that goes into one file.
ctypedef struct RawRun:
    int64_t size
    int64_t records
    int64_t records_end     # bytes from the start of the run to the end of its last record, without blank records
    int64_t timestamp       # ms, of the last record
    int queues_end          # end of its entries in the block's `queues`; they start where those of the previous run end

ctypedef struct RawBlock:
    RawRun* runs
    RawQueue* queues
    int run_count
    int run_room
    int queue_count
    int queue_room
    int recent[RECENT]      # number of a queue of the last run, plus 1; 0: none


# reading

cdef inline bint is_record_at(const uint8_t* p, int64_t room, int64_t phy_offset, int32_t* size) noexcept nogil:
    """Whether the first fields are those of a whole record at this offset; set size."""
    cdef int32_t magic
    if room < RC_MSG_MIN_BYTES:
        return False
    size[0] = rc_get_i32(p + RC_MSG_TOTAL_SIZE_AT)
    magic = rc_get_i32(p + RC_MSG_MAGIC_AT)
    return (
        (magic == RC_MAGIC_V1 or magic == RC_MAGIC_V2) and RC_MSG_MIN_BYTES <= size[0] <= room
        and rc_get_i64(p + RC_MSG_PHYSICAL_OFFSET_AT) == phy_offset
    )


cdef int record_size(const uint8_t* p, int64_t room, int64_t rest, int64_t phy_offset, int64_t* size) noexcept nogil:
    """Set size to the bytes of the record or blank record at p. Return RC_OK, or the reason why there is none.

    room  bytes at p that are written, whole records
    rest  bytes to the end of the file
    """
    cdef Record r
    cdef int rc = parse_record(p, <size_t>room, &r)
    if rc == RC_BLANK:
        rc = RC_OK if r.size == rest == room else RC_BAD_BLANK
    elif rc == RC_OK and r.phy_offset != phy_offset:
        rc = RC_BAD_PHYSICAL_OFFSET
    size[0] = r.size if rc == RC_OK else 0
    return rc


cdef int64_t whole_records(
    const uint8_t* p, int64_t size, int64_t room, int64_t rest, int64_t most, int64_t phy_offset,
) noexcept nogil:
    """Size in bytes of the records at p, up to `most` or the end of the file. The first record has `size` bytes."""
    cdef int64_t blank
    cdef int32_t record
    while size < most and is_record_at(p + size, room - size, phy_offset + size, &record):
        if size + record > most:
            return size
        size += record
    if size < most and size < room:
        if record_size(p + size, room - size, rest - size, phy_offset + size, &blank) == RC_OK and size + blank <= most:
            size += blank
    return size


cdef int raw_read(
    FileQueue* q, int64_t phy_offset, int64_t limit, int64_t max_bytes, bint whole, RawBytes* out,
) noexcept nogil:
    """Return the log's bytes from a physical offset on, unchanged: records, blank records and the bytes after those.

    q           the files of a log
    phy_offset  where a record or a blank record begins
    limit       physical offset at which the bytes end: the written, flushed or confirmed position
    max_bytes   the most bytes to return, but always at least one record
    whole       only whole records; False: any bytes of one file from any offset on, unchecked
    out         borrowed until raw_release(): the bytes stay mapped. Where another process may cut the file, read them
                between enter_writing() and leave() of files/_guard
    All bytes are in one file: for bytes after it, call again.
    Returns RC_OK, with size 0 if there are no bytes yet; RC_OUT_OF_ORDER if the log ends before phy_offset; ENOENT if
    no file holds it; the code of the damage if there is no record; RC_FILE_CUT or an errno. On an error nothing is
    held.
    Source: RocketMQ CommitLog.getData.
    """
    cdef rc_guard guard
    cdef FileState* f
    cdef int64_t pos, room, most, size = 0, wrote = rc_load_i64(&q.wrote)
    cdef int rc
    out.data = NULL
    out.size = 0
    out.file = NULL
    if phy_offset > wrote:
        return RC_OUT_OF_ORDER
    if phy_offset == wrote:
        return RC_OK
    rc = queue_hold(q, phy_offset, &f)
    if rc != RC_OK:
        return rc
    pos = phy_offset - f.start
    room = min(file_readable(f), wrote - f.start) - pos     # bytes in a pool buffer are not readable yet
    most = min(room, limit - phy_offset) if limit > phy_offset else 0
    if room > 0 and whole:
        enter_writing(&guard, f.base, f.size, &f.cut)
        rc = record_size(f.base + pos, room, <int64_t>f.size - pos, phy_offset, &size)
        if rc == RC_OK and size > most:
            size = 0
        elif rc == RC_OK:
            size = whole_records(f.base + pos, size, room, <int64_t>f.size - pos, min(most, max_bytes), phy_offset)
        guard_leave(&guard)
        if rc == RC_END:
            rc = RC_OK if q.kind == FILE_READ else RC_ZEROED    # a read-only queue does not know where the log ends
        if f.cut != 0:
            rc = RC_FILE_CUT
    elif room > 0:
        size = min(most, max_bytes)
    if rc != RC_OK or size <= 0:
        file_release(f)
        return rc
    rc_add_i64(&f.pointers, 1)          # the file may be removed and the store closed before the release
    out.data = f.base + pos
    out.size = size
    out.file = f
    return RC_OK


cdef void raw_release(RawBytes* raw) noexcept nogil:
    """Release what raw_read() returned. A second call does nothing."""
    cdef FileState* f = raw.file
    raw.file = NULL
    raw.data = NULL
    if f != NULL:
        file_release(f)
        file_drop(f)


# checking

cdef RawRun* add_run(RawBlock* b) noexcept nogil:
    """Add a run at the end. Return NULL without memory."""
    cdef RawRun* runs
    if b.run_count == b.run_room:
        runs = <RawRun*>realloc(b.runs, <size_t>(2 * b.run_room + FIRST_ROOM) * sizeof(RawRun))
        if runs == NULL:
            return NULL
        b.runs = runs
        b.run_room = 2 * b.run_room + FIRST_ROOM
    memset(&b.runs[b.run_count], 0, sizeof(RawRun))
    b.runs[b.run_count].queues_end = b.queue_count
    memset(b.recent, 0, sizeof(b.recent))       # these numbers are valid in one run only
    b.run_count += 1
    return &b.runs[b.run_count - 1]


cdef int note_queue(
    RawBlock* b, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t next_offset,
) noexcept nogil:
    """Record the next offset of a queue after the last run. Return RC_OK or ENOMEM."""
    cdef int* recent = &b.recent[(<uint32_t>queue_id + <uint32_t>topic_len) & (RECENT - 1)]
    cdef RawQueue* q
    cdef RawQueue* queues
    if recent[0] > 0:
        q = &b.queues[recent[0] - 1]
        if q.queue_id == queue_id and q.topic_len == topic_len and memcmp(q.topic, topic, <size_t>topic_len) == 0:
            q.next_offset = max(q.next_offset, next_offset)
            return RC_OK
    if b.queue_count == b.queue_room:
        queues = <RawQueue*>realloc(b.queues, <size_t>(2 * b.queue_room + FIRST_ROOM) * sizeof(RawQueue))
        if queues == NULL:
            return ENOMEM
        b.queues = queues
        b.queue_room = 2 * b.queue_room + FIRST_ROOM
    q = &b.queues[b.queue_count]
    q.topic = topic
    q.topic_len = topic_len
    q.queue_id = queue_id
    q.next_offset = next_offset
    q.slot = NULL
    b.queue_count += 1
    b.runs[b.run_count - 1].queues_end = recent[0] = b.queue_count
    return RC_OK


cdef int64_t number(const uint8_t* p, int64_t n) noexcept nogil:
    """Parse a decimal number of at most 18 digits; -1 if the text is not one."""
    cdef int64_t v = 0, i
    if not 0 < n <= OFFSET_DIGITS:
        return -1
    for i in range(n):
        if not c"0" <= p[i] <= c"9":
            return -1
        v = 10 * v + (p[i] - c"0")
    return v


cdef int note_light_queues(RawBlock* b, const Record* r) noexcept nogil:
    """Record the next offsets of the light queues that INNER_MULTI_DISPATCH names. Return RC_OK or ENOMEM."""
    cdef int at = 0, offsets_at = 0, rc = RC_OK
    cdef int n = rc_find_property(r.props, r.props_len, RC_PROPERTY_INNER_MULTI_DISPATCH, &at)
    cdef int offsets_len
    cdef const uint8_t* name
    cdef const uint8_t* name_end
    cdef const uint8_t* stop
    cdef const uint8_t* offset
    cdef const uint8_t* offset_end
    cdef const uint8_t* offset_stop
    cdef int64_t value
    if n <= 0:
        return RC_OK
    offsets_len = rc_find_property(r.props, r.props_len, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET, &offsets_at)
    if offsets_len <= 0:
        return RC_OK
    name = r.props + at
    name_end = name + n
    offset = r.props + offsets_at
    offset_end = offset + offsets_len
    while name < name_end and offset < offset_end and rc == RC_OK:
        stop = <const uint8_t*>memchr(name, c",", <size_t>(name_end - name))
        stop = name_end if stop == NULL else stop
        offset_stop = <const uint8_t*>memchr(offset, c",", <size_t>(offset_end - offset))
        offset_stop = offset_end if offset_stop == NULL else offset_stop
        value = number(offset, offset_stop - offset)
        if is_light(name, stop - name) and 0 <= value < MOST_QUEUE_OFFSET:
            rc = note_queue(b, name, <int32_t>(stop - name), 0, value + 1)
        name = stop + 1
        offset = offset_stop + 1
    return rc


cdef int check_cut_off(const uint8_t* p, int64_t room, int64_t rest, int64_t phy_offset, int rc) noexcept nogil:
    """Return RC_OK if the bytes at the end of a block may be the start of a record, as far as they show.

    room  how many of the bytes are there
    rest  bytes to the end of the file
    rc    the result of parse_record(): RC_BLANK or RC_TRUNCATED
    """
    cdef int64_t size
    if rest < RC_BLANK_BYTES:
        return RC_TRUNCATED
    if room < RC_BLANK_BYTES:
        return RC_OK
    size = rc_get_i32(p + RC_MSG_TOTAL_SIZE_AT)
    if rc == RC_BLANK:
        return RC_OK if size == rest else RC_BAD_BLANK
    if size > rest - RC_BLANK_BYTES:
        return RC_BAD_SIZE
    if room >= RC_MSG_PHYSICAL_OFFSET_AT + OFFSET_BYTES and rc_get_i64(p + RC_MSG_PHYSICAL_OFFSET_AT) != phy_offset:
        return RC_BAD_PHYSICAL_OFFSET
    return RC_OK


cdef int check_block(
    RawBlock* b, CommitLog log, int64_t phy_offset, const uint8_t* data, int64_t size, RawAppended* out,
) noexcept nogil:
    """Check the whole records at the start of a block, and divide them into runs, one for each file.

    Returns RC_OK, also if the last record is cut off; ENOMEM, or the code of the damage at the physical offset `at`.
    """
    cdef Record r
    cdef RawRun* run = NULL
    cdef int64_t at = 0, room, rest = log.q.file_size - phy_offset % log.q.file_size, taken
    cdef int rc
    while at < size:
        out.at = phy_offset + at
        room = min(size - at, rest)
        rc = parse_record(data + at, <size_t>room, &r)
        if rc == RC_TRUNCATED or (rc == RC_BLANK and (r.size != rest or room < rest)):
            return check_cut_off(data + at, room, rest, phy_offset + at, rc)    # the next block may complete it
        if rc == RC_OK and r.size > rest - RC_BLANK_BYTES:
            return RC_BAD_SIZE          # no store writes one: it leaves no room for a blank record
        if rc == RC_OK:
            rc = verify_record(&r, CRC_FULL, crc32, phy_offset + at)
        if rc == RC_END:
            rc = RC_ZEROED
        if rc != RC_OK and rc != RC_BLANK:
            return rc
        if run == NULL:
            run = add_run(b)
            if run == NULL:
                return ENOMEM
        run.size += r.size
        at += r.size
        rest -= r.size
        if rc == RC_BLANK:
            run = NULL
            rest = log.q.file_size
            continue
        run.records += 1
        run.records_end = run.size
        run.timestamp = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST)
        taken = offsets_taken(&r)
        rc = RC_OK
        if taken > 0 and 0 <= r.queue_offset < MOST_QUEUE_OFFSET:
            rc = note_queue(b, r.topic, r.topic_len, rc_get_i32(r.at + RC_MSG_QUEUE_ID_AT), r.queue_offset + taken)
        if rc == RC_OK and taken > 0 and log._light and has_light_queues(r.topic, r.topic_len):
            rc = note_light_queues(b, &r)
        if rc != RC_OK:
            return rc
    return RC_OK


# appending

cdef int follows(CommitLog log, int64_t phy_offset, RawAppended* out) noexcept nogil:
    """Return RC_OK if the log ends at a physical offset, or is empty and may begin there; otherwise RC_OUT_OF_ORDER."""
    cdef int64_t end = rc_load_i64(&log.q.wrote)
    out.at = end
    if phy_offset == end or (end == 0 and phy_offset > 0 and phy_offset % log.q.file_size == 0):
        return RC_OK
    return RC_OUT_OF_ORDER


cdef int lock_queues(CommitLog log, RawBlock* b) noexcept nogil:
    """Lock the queues of a block and find their slots. Wait while one of the topics is being deleted.

    Returns RC_OK; or ENOMEM, and then nothing is locked.
    """
    cdef RawQueue* q
    cdef int i, rc = RC_MORE
    while rc == RC_MORE:
        log.offsets.lock_stripes(log.offsets.all_stripes(), False)
        rc = RC_OK
        for i in range(b.queue_count):
            q = &b.queues[i]
            q.slot = log.offsets.slot(q.topic, q.topic_len, q.queue_id, cq_hash(q.topic, q.topic_len, q.queue_id))
            if q.slot == NULL:
                rc = ENOMEM
            elif q.slot.held:
                rc = RC_MORE
            if rc != RC_OK:
                break
        if rc != RC_OK:
            log.offsets.unlock_stripes(log.offsets.all_stripes())
        if rc == RC_MORE:
            usleep(HELD_US)
    return rc


cdef void copy_records(uint8_t* to, const uint8_t* src, int64_t size) noexcept nogil:
    """Copy records one by one, the first 8 bytes of each last, as encode_record() does."""
    cdef int64_t at = 0, n, ahead
    while at < size:
        n = rc_get_i32(src + at + RC_MSG_TOTAL_SIZE_AT)
        if n < RC_BLANK_BYTES or n > size - at:     # the caller's bytes have changed since the check: stay in bounds
            n = size - at
        ahead = at + n
        while ahead < min(size, at + 2 * n) and ahead < at + n + LINES_AHEAD_BYTES:
            rc_prefetch_for_writing(to + ahead)
            ahead += LINE_BYTES
        memcpy(to + at + RC_BLANK_BYTES, src + at + RC_BLANK_BYTES, <size_t>(n - RC_BLANK_BYTES))
        rc_fence_release()
        memcpy(to + at + RC_MSG_MAGIC_AT, src + at + RC_MSG_MAGIC_AT, sizeof(int32_t))
        memcpy(to + at + RC_MSG_TOTAL_SIZE_AT, src + at + RC_MSG_TOTAL_SIZE_AT, sizeof(int32_t))
        at += n


cdef int append_run(CommitLog log, RawRun* run, const uint8_t* data) noexcept nogil:
    """Append a run to the last file, which has room for it. The put lock is held. Return RC_OK or RC_FILE_CUT."""
    cdef rc_guard guard
    cdef FileState* f = log._last
    cdef int64_t pos = f.wrote, end = f.wrote + run.size
    if f.buffer == NULL and end > rc_load_i64(&f.ready):
        allocator_reserve(&log.a, f, end)
    enter_writing(&guard, f.base, f.size, &f.cut)
    copy_records((f.base if f.buffer == NULL else f.buffer) + pos, data, run.size)
    guard_leave(&guard)
    if f.cut != 0:
        return RC_FILE_CUT
    log._publish(f, end, run.timestamp if run.records > 0 else rc_load_i64(&log.q.store_timestamp))
    rc_store_i64(&log.appended, log.appended + run.records)
    if run.records > 0:
        rc_store_i64(&log.last_end, f.start + pos + run.records_end)
        rc_store_i64(&log.appended_bytes, log.appended_bytes + run.records_end)
    return RC_OK


cdef int append_runs(
    CommitLog log, RawBlock* b, int64_t phy_offset, const uint8_t* data, int64_t size, RawAppended* out,
) noexcept nogil:
    """Append the runs of a block under one hold of the put lock, with its queues locked. Returns as raw_append()."""
    cdef RawRun* run
    cdef RawQueue* q
    cdef FileState* f
    cdef int i = 0, queue = 0, rc
    log._take_lock()
    rc_store_i64(&log._in_lock_since, rc_clock_ms())
    rc = follows(log, phy_offset, out)
    if rc == RC_OK and phy_offset > out.at:
        rc = log._begin_at(phy_offset, &out.error)
    while rc == RC_OK and i < b.run_count:
        run = &b.runs[i]
        f = log._last
        if f == NULL or f.wrote == <int64_t>f.size:
            rc = log._begin_file(out.end, &out.error)
        elif f.holes != 0:
            rc = log._fill(&out.error)
        if rc == RC_OK:
            rc = append_run(log, run, data + (out.end - phy_offset))
        if rc == RC_OK:
            out.end += run.size
            out.records += run.records
            while queue < run.queues_end:
                q = &b.queues[queue]
                q.slot.next_offset = max(q.slot.next_offset, q.next_offset)
                queue += 1
            i += 1
    f = log._last
    if rc_load_i64(&log._is_held_long) != 0:
        q = b.queues                    # NULL: there are only blank records
        log._note_hold(q.topic if q != NULL else data, q.topic_len if q != NULL else 0, size)
    rc_store_i64(&log._in_lock_since, 0)
    log.lock.unlock()
    if rc == RC_FILE_CUT:
        flusher_fail(&log.fl, rc, f.path)
        rc = RC_FAILED
    if out.end > phy_offset:
        log._wake(f)
        if log.fl.sync:
            flusher_wake(&log.fl)
    return rc


cdef int raw_append(
    CommitLog log, int64_t phy_offset, const uint8_t* data, int64_t size, RawAppended* out,
) noexcept nogil:
    """Append the whole records at the start of a block of another log's bytes. A cut-off record at its end is ignored.

    log         started
    phy_offset  of the block's first byte: the end of the log, or, for an empty log, the start of a file
    data        size bytes, any alignment; not kept. No other thread may change them during the call
    out         what was appended
    Each record is checked: its sizes, the stored physical offset, the CRC of its body, and the property CRC if it has
    one. A blank record must end where a file of this log ends. The call does not wait for a flush. Puts to all queues
    wait meanwhile.
    Returns RC_OK; RC_NO_FILE if a file could not be created: the records for the files before it are appended.
    With these codes nothing is appended:
    - the code of the damage at the physical offset `at`
    - RC_OUT_OF_ORDER: the log ends at `at`
    - RC_FAILED, RC_PAGE_CACHE_BUSY, ENOMEM
    Source: RocketMQ CommitLog.appendData.
    """
    cdef RawBlock block
    cdef int rc
    out.end = phy_offset
    out.records = 0
    out.at = -1
    out.error = RC_OK
    if rc_load_i64(&log.fl.failed) != 0:
        return RC_FAILED
    if log.is_busy():
        return RC_PAGE_CACHE_BUSY
    rc = follows(log, phy_offset, out)
    if rc != RC_OK:
        return rc
    if size > INT64_MAX - log.q.file_size - phy_offset:
        return RC_BAD_SIZE
    memset(&block, 0, sizeof(block))
    rc = check_block(&block, log, phy_offset, data, size, out)
    if rc == RC_OK and block.run_count > 0:
        rc = lock_queues(log, &block)
        if rc == RC_OK:
            rc = append_runs(log, &block, phy_offset, data, size, out)
            log.offsets.unlock_stripes(log.offsets.all_stripes())
    free(block.runs)
    free(block.queues)
    return rc
