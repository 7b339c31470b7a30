# cython: language_level=3
"""Queue offsets by time: find a message of a queue by its store timestamp.

Only the units of batch queues have times. For other queues a binary search reads the times of a few records.
Source: RocketMQ ConsumeQueue.getOffsetInQueueByTime
"""
from libc.errno cimport ENOENT
from libc.stdint cimport int64_t

from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.bytes cimport rc_get_i64
from rocketc.c.layout cimport RC_CQ_UNIT_BYTES, RC_MSG_STORE_TIMESTAMP_PAST
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_FILE_CUT, RC_OK
from rocketc.derived._consume_queue_units cimport cq_read
from rocketc.derived._queue_files cimport ConsumeQueue, path_of_file
from rocketc.files._append_file cimport file_readable
from rocketc.files._file_queue cimport FileQueue
from rocketc.format._queue_units cimport Unit, is_blank
from rocketc.format._record cimport Record, parse_record
from rocketc.store._results cimport Cursor, cursor_enter, cursor_seek, fetch

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/stat.h>

    /* Gets the time of the last change of a file, in ms since the epoch. Returns 0 or an errno. */
    static int rc_changed_ms(const char *path, int64_t *ms)
    {
        struct stat s;
        if (stat(path, &s) != 0)
            return errno;
    #if defined(__APPLE__)
        *ms = (int64_t)s.st_mtimespec.tv_sec * 1000 + s.st_mtimespec.tv_nsec / 1000000;
    #else
        *ms = (int64_t)s.st_mtim.tv_sec * 1000 + s.st_mtim.tv_nsec / 1000000;
    #endif
        return 0;
    }
    """
    int rc_changed_ms(const char* path, int64_t* ms) noexcept nogil

cdef enum:
    PATH_BYTES = 4096


cdef int time_of(const Unit* u, Cursor* c, int64_t* when) noexcept nogil:
    """Get the store timestamp of a unit's record; -1 if there is no such record. RC_OK, or the error of the read."""
    cdef Record r
    cdef int64_t at
    cdef int rc
    when[0] = -1
    if u.store_timestamp > 0:
        when[0] = u.store_timestamp
        return RC_OK
    rc = cursor_seek(c, u.phy_offset)
    if rc != RC_OK:
        return RC_OK if rc == ENOENT else rc
    at = u.phy_offset - c.file.start
    if at + u.size > file_readable(c.file):
        return RC_OK
    cursor_enter(c)
    fetch(c.file.base + at, u.size)
    if parse_record(c.file.base + at, <size_t>u.size, &r) == RC_OK and r.phy_offset == u.phy_offset:
        when[0] = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST)
    return RC_FILE_CUT if c.file.cut != 0 else RC_OK


cdef int64_t min_phy(FileQueue* log) noexcept nogil:
    """Return the physical offset at which the log begins."""
    cdef int64_t start = 0
    pthread_mutex_lock(&log.mutex)
    if log.count > 0:
        start = log.files[0].start
    pthread_mutex_unlock(&log.mutex)
    return start


cdef int unit_time(ConsumeQueue* q, int64_t unit, Cursor* c, int64_t* when) noexcept nogil:
    """Get the store timestamp of the record of unit number `unit`; -1 if it is unknown. RC_OK, or the error."""
    cdef Unit u
    cdef int got = 0
    cdef int rc = cq_read(q, unit, 1, &u, &got)
    when[0] = -1
    if rc != RC_OK or got == 0 or is_blank(&u):
        return rc
    return time_of(&u, c, when)


cdef int file_by_time(
    ConsumeQueue* q, int64_t when, int boundary, Cursor* c, int64_t* file,
) noexcept nogil:
    """Choose the file to search by the times of first and last units; gets its position in the queue, or -1."""
    cdef int64_t each = q.file_size // q.unit_bytes, units = rc_load_i64(&q.units)
    cdef int64_t first = rc_load_i64(&q.min_unit) // each, last = (units - 1) // each, i, time
    cdef int rc
    if boundary == LOWER:
        for i in range(first, last):
            rc = unit_time(q, (i + 1) * each - 1, c, &time)
            if rc != RC_OK:
                return rc
            if time >= when:
                file[0] = i * each * q.unit_bytes
                return RC_OK
        file[0] = last * each * q.unit_bytes
        return RC_OK
    file[0] = -1
    i = last
    while i >= first:
        rc = unit_time(q, i * each, c, &time)
        if rc != RC_OK:
            return rc
        if time <= when:
            file[0] = i * each * q.unit_bytes
            return RC_OK
        i -= 1
    return RC_OK


cdef int file_by_change(ConsumeQueue* q, int64_t when, int64_t* file) noexcept nogil:
    """Choose the first file that was changed at a time or later, otherwise the last one; gets its position, or -1.

    The modification times are read again in each call, as in RocketMQ 4, because other programs may change them. RC_OK
    or an errno.
    """
    cdef char path[PATH_BYTES]
    cdef int64_t changed = 0, next = rc_load_i64(&q.start)
    cdef int rc
    file[0] = -1
    while next >= 0 and next < rc_load_i64(&q.start) + rc_load_i64(&q.file_count) * q.file_size:
        file[0] = next
        rc = path_of_file(q, next, path)
        if rc == RC_OK:
            rc = rc_changed_ms(path, &changed)
        if rc == RC_OK and changed >= when:
            return RC_OK
        if rc != RC_OK and rc != ENOENT:
            return rc
        next = max(next + q.file_size, rc_load_i64(&q.start))   # files may have been deleted
    return RC_OK


cdef int by_time(
    ConsumeQueue* q, int64_t when, int boundary, int64_t file, Cursor* c, int64_t* found,
) noexcept nogil:
    """Find the queue offset in the file that begins at the position `file` of the queue."""
    cdef Unit u
    cdef int64_t each = q.file_size // q.unit_bytes, start = file // q.unit_bytes
    cdef int64_t low = max(rc_load_i64(&q.min_unit), start), high = min(rc_load_i64(&q.units), start + each) - 1
    cdef int64_t unit = 0, time
    cdef int rc, got = 0
    found[0] = 0
    if high < low:
        return RC_OK
    if boundary != NEAREST:
        rc = unit_time(q, high, c, &time)
        if rc == RC_OK and time < when:
            unit = high if boundary == UPPER or q.unit_bytes != RC_CQ_UNIT_BYTES else high + 1
        elif rc == RC_OK:
            rc = unit_time(q, low, c, &time)
            if rc == RC_OK and time > when:
                if boundary == UPPER:
                    return RC_OK
                unit = start if q.unit_bytes == RC_CQ_UNIT_BYTES else low
            elif rc == RC_OK:
                rc = bisect(q, when, boundary, low, high, c, &unit)
    else:
        rc = bisect(q, when, boundary, low, high, c, &unit)
    if rc != RC_OK:
        return rc
    found[0] = unit
    if q.unit_bytes != RC_CQ_UNIT_BYTES:
        rc = cq_read(q, unit, 1, &u, &got)
        found[0] = u.queue_offset if got == 1 else 0
    return rc


cdef int bisect(
    ConsumeQueue* q, int64_t when, int boundary, int64_t low, int64_t high, Cursor* c, int64_t* found,
) noexcept nogil:
    """Search the units from low to high for a time by `boundary`; the result is 0 if a time can't be read."""
    cdef Unit u
    cdef int64_t floor = low, ceiling = high, left = -1, right = -1, left_time = -1, right_time = -1, time
    cdef int64_t middle, least = min_phy(c.log), step
    cdef int rc, got = 0
    while low <= high:
        middle = (low + high) // 2
        rc = cq_read(q, middle, 1, &u, &got)
        if rc != RC_OK or got == 0:
            return rc
        if is_blank(&u):            # a lost record: use the nearest unit that has a record
            rc = real_unit(q, &middle, low, high, &u)
            if rc != RC_OK:
                return rc
            if middle < 0:
                break
        if u.phy_offset < least:
            low = middle + 1
            left = middle
            continue
        rc = time_of(&u, c, &time)
        if rc != RC_OK:
            return rc
        if time < 0:
            found[0] = 0
            return RC_OK
        if time == when:
            step = 0 if boundary == NEAREST else (-1 if boundary == LOWER else 1)
            while step != 0 and floor <= middle + step <= ceiling:
                rc = unit_time(q, middle + step, c, &time)
                if rc != RC_OK:
                    return rc
                if time != when:
                    break
                middle += step
            found[0] = middle
            return RC_OK
        if time > when:
            high = middle - 1
            right = middle
            right_time = time
        else:
            low = middle + 1
            left = middle
            left_time = time
    if boundary == LOWER:
        found[0] = right if right >= 0 else ceiling + 1
    elif boundary == UPPER:
        found[0] = left if left >= 0 else 0
    elif left_time < 0:
        found[0] = max(right, 0)
    elif right_time < 0 or when - left_time <= right_time - when:
        found[0] = left
    else:
        found[0] = right
    return RC_OK


cdef int real_unit(ConsumeQueue* q, int64_t* unit, int64_t low, int64_t high, Unit* u) noexcept nogil:
    """Move from a blank unit to the nearest later unit with a record, or to an earlier one; -1: not in low to high."""
    cdef int64_t at
    cdef int rc, got = 0
    for at in range(unit[0] + 1, high + 1):
        rc = cq_read(q, at, 1, u, &got)
        if rc != RC_OK or (got == 1 and not is_blank(u)):
            unit[0] = at
            return rc
    at = unit[0] - 1
    while at >= low:
        rc = cq_read(q, at, 1, u, &got)
        if rc != RC_OK or (got == 1 and not is_blank(u)):
            unit[0] = at
            return rc
        at -= 1
    unit[0] = -1
    return RC_OK
