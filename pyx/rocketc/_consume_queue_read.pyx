# cython: language_level=3
"""One consume queue in memory, and how it is read, from any thread: units by their numbers, and what is looked for."""
from libc.errno cimport ENOENT
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from rocketc._append_file cimport FileState, file_release
from rocketc._atomic cimport rc_load_i64
from rocketc._consume_queue_ext cimport ExtUnit, ext_get, is_ext_address
from rocketc._file_queue cimport queue_hold, queue_next
from rocketc._guard cimport enter_writing
from rocketc._guard cimport leave as guard_leave
from rocketc._layout cimport RC_CQ_UNIT_BYTES
from rocketc._queue_units cimport decode_unit, is_blank, is_valid
from rocketc._status cimport RC_END, RC_FILE_CUT, RC_OK
from rocketc._vm cimport rc_guard


cdef int cq_read(ConsumeQueue* q, int64_t unit, int n, Unit* out, int* got) noexcept nogil:
    """Read up to n units from number `unit` on, at most to the end of its file.

    got  how many: 0 if there is no such unit
    Returns RC_OK, an errno, or RC_FILE_CUT.
    """
    return read_upto(q, rc_load_i64(&q.units), unit, n, out, got)


cdef int cq_read_loaded(ConsumeQueue* q, int64_t unit, Unit* out, int* got) noexcept nogil:
    """As cq_read(), one unit, of all that the files held when they were loaded; while a store is being opened."""
    return read_upto(q, max(q.loaded, q.units), unit, 1, out, got)


cdef int read_upto(ConsumeQueue* q, int64_t upto, int64_t unit, int n, Unit* out, int* got) noexcept nogil:
    cdef rc_guard guard
    cdef FileState* f
    cdef const uint8_t* p
    cdef int64_t pos = unit * q.unit_bytes, room
    cdef int rc, i, count = n
    got[0] = 0
    if unit < 0 or unit >= upto:
        return RC_OK
    rc = queue_hold(&q.files, pos, &f)
    if rc != RC_OK:
        return RC_OK if rc == ENOENT else rc
    room = (f.start + q.files.file_size - pos) // q.unit_bytes
    count = <int>min(min(<int64_t>count, upto - unit), room)
    enter_writing(&guard, f.base, f.size, &f.cut)
    p = f.base + (pos - f.start)
    for i in range(count):
        decode_unit(p + i * q.unit_bytes, unit + i, q.unit_bytes, &out[i])
    guard_leave(&guard)
    if f.cut != 0:
        rc = RC_FILE_CUT
    file_release(f)
    if rc == RC_OK:
        got[0] = count
    return rc


cdef int cq_tags_code(ConsumeQueue* q, const Unit* u, int64_t* tags_code) noexcept nogil:
    """The tags code of a unit, from the extension if it is there.

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
    """The number of the unit that has a message: in a batch queue, the last one that begins at or before it.

    Returns RC_OK, an errno, or RC_FILE_CUT; unit is -1 if there is none.
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
    """Queue offset of the first message whose record is there; -1 in a batch queue that has none."""
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
    """The first unit from *number on, before stop, that stands for a record; *number is stop if there is none.

    A file that another process has deleted meanwhile is stepped over.
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
    """The number of the first unit from `low` on whose record is at phy_offset or behind; q.units if there is none.

    Units that no record can have written count as behind it. Those that stand for no record go with the next that does.
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
    """The unit before number `units`, or one of size 0 if there is none or it stands for no record."""
    cdef int got = 0
    cdef int rc = cq_read(q, units - 1, 1, u, &got)
    if got == 0 or is_blank(u):
        memset(u, 0, sizeof(u[0]))
    return rc
