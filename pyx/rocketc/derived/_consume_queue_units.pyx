# cython: language_level=3
"""One consume queue in memory. Any thread reads its units by number; one thread writes them.

A store may have many thousand queues. So a file is sparse at first and does not keep a descriptor. Room is allocated
ahead of the writer: one page at first, more for busy queues.
"""
from libc.errno cimport ENOENT
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from rocketc.c.atomic cimport rc_fence_release, rc_load_i64, rc_raise_i64, rc_store_i64
from rocketc.c.layout cimport (
    RC_BCQ_UNIT_BYTES, RC_CQ_PRE_BLANK_SIZE, RC_CQ_SIZE_AT, RC_CQ_TAGS_CODE_AT, RC_CQ_UNIT_BYTES,
)
from rocketc.c.points cimport rc_point
from rocketc.c.status cimport RC_END, RC_FILE_CUT, RC_OK
from rocketc.c.vm cimport rc_guard
from rocketc.derived._consume_queue_ext cimport ExtUnit, ext_clear, ext_get, is_ext_address
from rocketc.files._append_file cimport FileState, RC_OS_PAGE_BYTES, file_room
from rocketc.files._file_queue cimport queue_next, queue_read, queue_remove, queue_sync_names, queue_take_up
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.format._queue_units cimport Unit, decode_unit, encode_unit, is_blank, is_valid

cdef enum:
    LAST_WINDOW_BYTES = 256 << 10


cdef int cq_read(ConsumeQueue* q, int64_t unit, int n, Unit* out, int* got) noexcept nogil:
    """Read up to n units from number `unit`: at most UNITS_AT_ONCE, and at most to the end of the file.

    got  set to the number of units read: 0 if there is no such unit
    Returns RC_OK, an errno, or RC_FILE_CUT.
    """
    return read_upto(q, rc_load_i64(&q.units), unit, n, out, got)


cdef int cq_read_loaded(ConsumeQueue* q, int64_t unit, Unit* out, int* got) noexcept nogil:
    """Read one unit like cq_read(), but among all units that the files held when loaded. Only during an opening."""
    return read_upto(q, max(q.loaded, q.units), unit, 1, out, got)


cdef int read_upto(ConsumeQueue* q, int64_t upto, int64_t unit, int n, Unit* out, int* got) noexcept nogil:
    """Read units before `upto`; see cq_read(). All reads of units from the files use this function."""
    cdef uint8_t data[UNITS_AT_ONCE * RC_BCQ_UNIT_BYTES]
    cdef int64_t size
    cdef int i, rc
    got[0] = 0
    if unit < 0 or unit >= upto:
        return RC_OK
    size = min(min(<int64_t>n, upto - unit), <int64_t>UNITS_AT_ONCE) * q.unit_bytes
    rc = queue_read(&q.files, unit * q.unit_bytes, data, &size)
    if rc != RC_OK:
        return RC_OK if rc == ENOENT else rc
    got[0] = <int>(size // q.unit_bytes)
    for i in range(got[0]):
        decode_unit(data + i * q.unit_bytes, unit + i, q.unit_bytes, &out[i])
    return RC_OK


cdef int cq_tags_code(ConsumeQueue* q, const Unit* u, int64_t* tags_code) noexcept nogil:
    """Get the tags code of a unit, from the extension if it is there.

    Returns RC_OK, RC_END if the extension does not have it, an errno, or RC_FILE_CUT.
    """
    cdef ExtUnit extended
    cdef int rc = RC_OK
    tags_code[0] = u.tags_code
    if is_ext_address(u.tags_code) and q.unit_bytes == RC_CQ_UNIT_BYTES:
        rc = RC_END if q.ext == NULL else ext_get(q.ext, u.tags_code, &extended, NULL, 0)
        if rc == RC_OK:
            tags_code[0] = extended.tags_code
    return rc


cdef int cq_unit_of(ConsumeQueue* q, int64_t queue_offset, int64_t* unit) noexcept nogil:
    """Find the number of the unit of a message. In a batch queue, it is the last one that begins at or before it.

    Returns RC_OK, an errno, or RC_FILE_CUT. unit is set to -1 if there is no such unit.
    """
    cdef Unit u
    cdef int64_t low = rc_load_i64(&q.min_unit), high = rc_load_i64(&q.units), middle
    cdef int rc, got = 0
    unit[0] = -1
    if q.unit_bytes == RC_CQ_UNIT_BYTES:
        if low <= queue_offset < high:
            unit[0] = queue_offset
        return RC_OK
    if queue_offset >= q.max_offset:
        return RC_OK
    while low < high:
        middle = (low + high) // 2
        rc = cq_read(q, middle, 1, &u, &got)
        if rc != RC_OK:
            return rc
        if got == 1 and u.queue_offset <= queue_offset:
            unit[0] = middle
            low = middle + 1
        else:
            high = middle
    return RC_OK


cdef int cq_min_offset(ConsumeQueue* q, int64_t* offset) noexcept nogil:
    """Get the queue offset of the first message with an existing record; -1 in a batch queue without messages."""
    cdef Unit u
    cdef int64_t first = rc_load_i64(&q.min_unit)
    cdef int rc, got = 0
    offset[0] = first
    if q.unit_bytes == RC_CQ_UNIT_BYTES:
        return RC_OK
    rc = cq_read(q, first, 1, &u, &got)
    offset[0] = u.queue_offset if got == 1 else -1
    return rc


cdef int next_real(ConsumeQueue* q, int64_t* number, int64_t stop, Unit* u) noexcept nogil:
    """Find the first unit of a record from *number up to stop. *number becomes stop if there is none.

    Blank units are skipped, and so are files that another process has deleted meanwhile.
    """
    cdef Unit some[64]
    cdef int64_t behind
    cdef int rc, got = 0, i
    while number[0] < stop:
        rc = cq_read(q, number[0], 64 if got > 0 else 1, some, &got)
        if rc != RC_OK:
            number[0] = stop
            return rc
        if got == 0:
            behind = queue_next(&q.files, number[0] * q.unit_bytes)
            number[0] = min(behind // q.unit_bytes, stop) if behind >= 0 else stop
        for i in range(got):
            if not is_blank(&some[i]):
                u[0] = some[i]
                number[0] = min(number[0] + i, stop)
                return RC_OK
        number[0] += got
    number[0] = stop
    return RC_OK


cdef int units_before(ConsumeQueue* q, int64_t phy_offset, int64_t low, int64_t* units) noexcept nogil:
    """Find the number of the first unit from `low` whose record is at or after phy_offset, or q.units.

    A unit that is not valid counts as after phy_offset. Blank units count like the next unit of a record.
    """
    cdef Unit u
    cdef int64_t high = rc_load_i64(&q.units), middle, real
    cdef int rc = RC_OK
    while low < high and rc == RC_OK:
        real = middle = (low + high) // 2
        rc = next_real(q, &real, high, &u)
        if real < high and is_valid(&u) and u.phy_offset < phy_offset:
            low = real + 1
        else:
            high = middle
    units[0] = low
    return rc


cdef int last_of(ConsumeQueue* q, int64_t units, Unit* u) noexcept nogil:
    """Read the unit before number `units`. Its size is set to 0 if there is no such unit or it is blank."""
    cdef int got = 0
    cdef int rc = cq_read(q, units - 1, 1, u, &got)
    if got == 0 or is_blank(u):
        memset(u, 0, sizeof(u[0]))
    return rc


cdef int make_room(ConsumeQueue* q, FileState* f, int64_t at) noexcept nogil:
    """Allocate room for units at a position of the last file, and ahead of it."""
    cdef int64_t start = max(f.ready, at // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES)
    cdef int64_t stop = start + q.window
    cdef bint empty = start >= f.claimed        # after the data that the file held when it was loaded
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
    """Set q.last to the file that covers a position. The file is created if it does not exist."""
    if q.last != NULL and q.last.start <= pos < q.last.start + q.files.file_size:
        return RC_OK
    return queue_take_up(&q.files, pos, &q.last)


cdef int write_unit(ConsumeQueue* q, int64_t number, const Unit* u) noexcept nogil:
    """Write unit number `number`. If the file already holds the same bytes, nothing is written."""
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
        if not differs or f.cut != 0:   # leave the mtime: RocketMQ 4 finds messages by time with it
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
        rc_fence_release()      # another process that reads a size also reads the whole unit
        memcpy(p + RC_CQ_SIZE_AT, data + RC_CQ_SIZE_AT, 4)
        rc_point(b"unit: size")
    guard_leave(&guard)
    if f.cut != 0:
        return RC_FILE_CUT
    if at + q.unit_bytes > f.wrote:
        f.wrote = at + q.unit_bytes
    return RC_OK


cdef int write_blanks(ConsumeQueue* q, int64_t number, int64_t stop) noexcept nogil:
    """Write blank units from `number` up to `stop`."""
    cdef Unit blank
    cdef int rc = RC_OK
    memset(&blank, 0, sizeof(blank))
    blank.size = RC_CQ_PRE_BLANK_SIZE
    while number < stop and rc == RC_OK:
        rc = write_unit(q, number, &blank)
        number += 1
    return rc


cdef int begin_at(ConsumeQueue* q, int64_t number) noexcept nogil:
    """Begin a queue without files at unit `number`. Its first file has blank units before it."""
    cdef int64_t per_file = q.files.file_size // q.unit_bytes
    cdef int rc = write_blanks(q, number - number % per_file, number)
    if rc == RC_OK:
        rc_store_i64(&q.min_unit, number)
        rc_store_i64(&q.max_offset, number)
        rc_store_i64(&q.units, number)
        q.files.flushed = (number - number % per_file) * q.unit_bytes
    return rc


cdef int drop_files(ConsumeQueue* q) noexcept nogil:
    """Delete all files of a queue whose units are not trusted."""
    cdef int rc = RC_OK
    q.last = NULL
    q.repaired += q.loaded
    q.loaded = 0
    rc_store_i64(&q.files.flushed, 0)
    rc_store_i64(&q.units, 0)           # readers may use the queue
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
