# cython: language_level=3
"""Units of one consume queue as they are written, at their numbers; only one thread does.

There may be many thousand queues, so a file is one hole at first, and keeps no descriptor: room is made in front of the
writer, a page at first and more for busy queues.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from rocketc._append_file cimport RC_OS_PAGE_BYTES, FileState, file_room
from rocketc._atomic cimport rc_fence_release, rc_raise_i64, rc_store_i64
from rocketc._consume_queue_ext cimport ext_clear
from rocketc._consume_queue_read cimport ConsumeQueue
from rocketc._file_queue cimport queue_remove, queue_sync_names, queue_take_up
from rocketc._guard cimport enter_writing
from rocketc._guard cimport leave as guard_leave
from rocketc._layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_PRE_BLANK_SIZE, RC_CQ_SIZE_AT, RC_CQ_TAGS_CODE_AT
from rocketc._points cimport rc_point
from rocketc._queue_units cimport Unit, encode_unit
from rocketc._status cimport RC_FILE_CUT, RC_OK
from rocketc._vm cimport rc_guard

cdef enum:
    LAST_WINDOW_BYTES = 256 << 10


cdef int make_room(ConsumeQueue* q, FileState* f, int64_t at) noexcept nogil:
    """Let units be written at a position of the last file, and some way behind it."""
    cdef int64_t start = max(f.ready, at // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES)
    cdef int64_t stop = start + q.window
    cdef bint empty = start >= f.claimed        # behind what was there when the file was loaded
    cdef int rc
    if not empty:
        stop = f.claimed
    elif q.window < LAST_WINDOW_BYTES:
        q.window *= 2
    stop = min(stop, <int64_t>f.size)
    rc = file_room(f, start, stop, empty)
    if rc == RC_OK:
        f.ready = stop
    return rc


cdef int file_of(ConsumeQueue* q, int64_t pos) noexcept nogil:
    """Let q.last be the file that covers a position; it is made if it is not there."""
    if q.last != NULL and q.last.start <= pos < q.last.start + q.files.file_size:
        return RC_OK
    return queue_take_up(&q.files, pos, &q.last)


cdef int write_unit(ConsumeQueue* q, int64_t number, const Unit* u) noexcept nogil:
    """Let unit `number` be u; nothing is written where the file says so already."""
    cdef rc_guard guard
    cdef uint8_t data[RC_BCQ_UNIT_BYTES]
    cdef uint8_t* p
    cdef FileState* f
    cdef int64_t pos = number * q.unit_bytes, at
    cdef int rc = file_of(q, pos)
    cdef size_t n = <size_t>q.unit_bytes
    cdef bint differs
    if rc != RC_OK:
        return rc
    f = q.last
    at = pos - f.start
    p = f.base + at
    encode_unit(data, u, q.unit_bytes)
    if number < q.loaded:
        enter_writing(&guard, f.base, f.size, &f.cut)
        differs = memcmp(p, data, n) != 0
        guard_leave(&guard)
        if not differs or f.cut != 0:   # then it is not touched: RocketMQ 4 tells time by when files changed
            f.wrote = max(f.wrote, at + q.unit_bytes)
            return RC_OK if f.cut == 0 else RC_FILE_CUT
        q.repaired += 1
    while at + q.unit_bytes > f.ready and f.ready < <int64_t>f.size:
        rc = make_room(q, f, max(at, f.ready))
        if rc != RC_OK:
            return rc
    enter_writing(&guard, f.base, f.size, &f.cut)
    if number < q.loaded:
        memcpy(p, data, n)
    else:
        memcpy(p, data, RC_CQ_SIZE_AT)
        rc_point(b"unit: physical offset")
        memcpy(p + RC_CQ_TAGS_CODE_AT, data + RC_CQ_TAGS_CODE_AT, n - RC_CQ_TAGS_CODE_AT)
        rc_point(b"unit: all but size")
        rc_fence_release()      # who sees a size, in another process, sees a whole unit
        memcpy(p + RC_CQ_SIZE_AT, data + RC_CQ_SIZE_AT, 4)
        rc_point(b"unit: size")
    guard_leave(&guard)
    if f.cut != 0:
        return RC_FILE_CUT
    if at + q.unit_bytes > f.wrote:
        f.wrote = at + q.unit_bytes
    return RC_OK


cdef int write_blanks(ConsumeQueue* q, int64_t number, int64_t stop) noexcept nogil:
    """Let units stand for no record from `number` on; `stop` is the next one that does."""
    cdef Unit blank
    cdef int rc = RC_OK
    memset(&blank, 0, sizeof(blank))
    blank.size = RC_CQ_PRE_BLANK_SIZE
    while number < stop and rc == RC_OK:
        rc = write_unit(q, number, &blank)
        number += 1
    return rc


cdef int begin_at(ConsumeQueue* q, int64_t number) noexcept nogil:
    """Let a queue without files begin at a unit: its first file has blanks before it."""
    cdef int64_t per_file = q.files.file_size // q.unit_bytes
    cdef int rc = write_blanks(q, number - number % per_file, number)
    if rc == RC_OK:
        rc_store_i64(&q.min_unit, number)
        rc_store_i64(&q.max_offset, number)
        rc_store_i64(&q.units, number)
        q.files.flushed = (number - number % per_file) * q.unit_bytes
    return rc


cdef int drop_files(ConsumeQueue* q) noexcept nogil:
    """Delete all files of a queue whose units are not believed."""
    cdef int rc = RC_OK
    q.last = NULL
    q.repaired += q.loaded
    q.loaded = 0
    rc_store_i64(&q.files.flushed, 0)
    rc_store_i64(&q.units, 0)           # readers of the queue may be there
    rc_store_i64(&q.min_unit, 0)
    rc_store_i64(&q.max_offset, 0)
    q.max_phy_offset = -1
    q.repeated = 0
    rc_raise_i64(&q.files.names, 1)
    while q.files.count > 0 and rc == RC_OK:
        rc = queue_remove(&q.files, q.files.count - 1)
    if rc == RC_OK:
        rc = queue_sync_names(&q.files)
    if rc == RC_OK and q.ext != NULL:
        rc = ext_clear(q.ext)
    return rc
