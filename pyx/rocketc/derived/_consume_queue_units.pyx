# cython: language_level=3
"""One consume queue in memory. Any thread reads its units by number; one thread writes them.

A file is sparse at first. While the queue is open, room is allocated ahead of the writer: one page at first, more for
busy queues. An idle queue is read and written with system calls, see _queue_files.
"""
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset
from posix.types cimport off_t
from posix.unistd cimport close as close_file
from posix.unistd cimport pread

from rocketc.c.atomic cimport rc_fence_release, rc_load_i64, rc_store_i64
from rocketc.c.layout cimport (
    RC_BCQ_UNIT_BYTES, RC_CQ_PRE_BLANK_SIZE, RC_CQ_SIZE_AT, RC_CQ_TAGS_CODE_AT, RC_CQ_UNIT_BYTES,
)
from rocketc.c.points cimport rc_point
from rocketc.c.status cimport RC_END, RC_FILE_CUT, RC_OK
from rocketc.c.vm cimport rc_guard, rc_write_at
from rocketc.derived._consume_queue_ext cimport ExtUnit, ext_clear, ext_get, is_ext_address
from rocketc.derived._queue_files cimport (
    ConsumeQueue, FILES_MUST, FILES_USE, OpenFiles, create_idle, ext_rest, files_changed, files_hold, files_of_writer,
    files_read, files_release, open_idle, read_idle, sync_names,
)
from rocketc.files._append_file cimport FileState, RC_OS_PAGE_BYTES, file_room
from rocketc.files._file_queue cimport queue_next, queue_remove, queue_take_up, queue_unmap
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
    return read_upto(q, max(q.opening.loaded, q.units), unit, 1, out, got)


cdef int read_upto(ConsumeQueue* q, int64_t upto, int64_t unit, int n, Unit* out, int* got) noexcept nogil:
    """Read units before `upto`; see cq_read(). All reads of units from the files use this function."""
    cdef uint8_t data[UNITS_AT_ONCE * RC_BCQ_UNIT_BYTES]
    cdef OpenFiles* files = NULL
    cdef int64_t size
    cdef int i, rc
    got[0] = 0
    if unit < 0 or unit >= upto:
        return RC_OK
    size = min(min(<int64_t>n, upto - unit), <int64_t>UNITS_AT_ONCE) * q.unit_bytes
    rc = files_hold(q, FILES_USE, &files)
    if files != NULL:
        rc = files_read(q, files, unit * q.unit_bytes, data, &size)
        files_release(files)
    elif rc == RC_OK:
        rc = read_idle(q, unit * q.unit_bytes, data, &size)
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
        ext_rest(q)
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
            behind = next_file(q, number[0] * q.unit_bytes)
            number[0] = min(behind // q.unit_bytes, stop) if behind >= 0 else stop
        for i in range(got):
            if not is_blank(&some[i]):
                u[0] = some[i]
                number[0] = min(number[0] + i, stop)
                return RC_OK
        number[0] += got
    number[0] = stop
    return RC_OK


cdef int64_t next_file(ConsumeQueue* q, int64_t pos) noexcept nogil:
    """Return the offset of the first file that begins after a position; -1 if there is none."""
    cdef OpenFiles* files = NULL
    cdef int64_t next = -1
    if files_hold(q, FILES_MUST, &files) == RC_OK:
        next = queue_next(&files.files, pos)
        files_release(files)
    return next


cdef int units_before(ConsumeQueue* q, int64_t phy_offset, int64_t low, int64_t* units) noexcept nogil:
    """Find the number of the first unit from `low` whose record is at or after phy_offset, or q.units.

    A unit that is not valid counts as after phy_offset. Blank units count like the next unit of a record.
    """
    cdef Unit u
    cdef int64_t high = rc_load_i64(&q.units), end = rc_load_i64(&q.max_phy_offset), middle, real
    cdef int rc = RC_OK
    if 0 <= end <= phy_offset:
        low = max(low, high)        # nothing has to be read
    elif low == rc_load_i64(&q.min_unit) and rc_load_i64(&q.first_phy) >= phy_offset:
        high = min(low, high)
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


cdef int make_room(OpenFiles* files, FileState* f, int64_t at) noexcept nogil:
    """Allocate room for units at a position of the last file, and ahead of it."""
    cdef int64_t start = max(f.ready, at // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES)
    cdef int64_t stop = start + files.window
    cdef bint empty = start >= f.claimed        # after the data that the file held when it was loaded
    cdef int rc
    if not empty:
        stop = f.claimed
    elif files.window < LAST_WINDOW_BYTES:
        files.window *= 2
    stop = min(stop, <int64_t>f.size)
    rc = file_room(f, start, stop, empty)
    if rc == RC_OK:
        f.ready = stop
    return rc


cdef int file_of(ConsumeQueue* q, OpenFiles* files, int64_t pos) noexcept nogil:
    """Set files.last to the file that covers a position. The file is created if it does not exist."""
    cdef int rc
    if files.last != NULL and files.last.start <= pos < files.last.start + q.file_size:
        return RC_OK
    files.last = NULL
    rc = queue_take_up(&files.files, pos, &files.last)
    if q.opening != NULL:           # written again from an earlier file on
        queue_unmap(&files.files, 1, files.last)
    files_changed(q, files)
    return rc


cdef int write_unit(ConsumeQueue* q, int64_t number, const Unit* u) noexcept nogil:
    """Write unit number `number`. If the file already holds the same bytes, nothing is written."""
    cdef uint8_t data[RC_BCQ_UNIT_BYTES]
    cdef OpenFiles* files = NULL
    cdef bint loaded = q.opening != NULL and number < q.opening.loaded
    cdef int rc = files_of_writer(q, q.extends, &files)
    if number == q.min_unit:
        rc_store_i64(&q.first_phy, -1)      # cq_put() sets it if the unit is of a record
    encode_unit(data, u, q.unit_bytes)
    if rc == RC_OK and files != NULL:
        rc = file_of(q, files, number * q.unit_bytes)
        if rc == ENOMEM:
            files = NULL            # too many maps, or no address space
            rc = RC_OK
    if rc != RC_OK:
        return rc
    if files == NULL:
        return write_idle(q, number * q.unit_bytes, data, loaded)
    return write_mapped(q, files, number * q.unit_bytes, data, loaded)


cdef int write_mapped(
    ConsumeQueue* q, OpenFiles* files, int64_t pos, const uint8_t* data, bint loaded,
) noexcept nogil:
    """Write the bytes of a unit to the map of files.last.

    loaded  the file may hold a unit there
    """
    cdef rc_guard guard
    cdef FileState* f = files.last
    cdef int64_t at = pos - f.start
    cdef uint8_t* p = f.base + at
    cdef size_t n = q.unit_bytes
    cdef bint differs
    cdef int rc
    if loaded:
        enter_writing(&guard, f.base, f.size, &f.cut)
        differs = memcmp(p, data, n) != 0
        guard_leave(&guard)
        if not differs or f.cut != 0:   # leave the mtime: RocketMQ 4 finds messages by time with it
            f.wrote = max(f.wrote, at + q.unit_bytes)
            return RC_OK if f.cut == 0 else RC_FILE_CUT
        q.opening.repaired += 1
        f.flushed = min(f.flushed, at)
        files.files.flushed = min(files.files.flushed, pos)
        rc_store_i64(&q.flushed, min(q.flushed, pos))
    while at + q.unit_bytes > f.ready and f.ready < <int64_t>f.size:
        rc = make_room(files, f, max(at, f.ready))
        if rc != RC_OK:
            return rc
    enter_writing(&guard, f.base, f.size, &f.cut)
    if loaded:
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


cdef int write_idle(ConsumeQueue* q, int64_t pos, const uint8_t* data, bint loaded) noexcept nogil:
    """Write the bytes of a unit to the file of an idle queue. The file is created if it does not exist."""
    cdef uint8_t held[RC_BCQ_UNIT_BYTES]
    cdef int64_t at = pos % q.file_size
    cdef size_t n = q.unit_bytes
    cdef int fd = -1
    cdef int rc = open_idle(q, pos, True, &fd)
    if rc == ENOENT:
        rc = create_idle(q, pos, &fd)
    if rc != RC_OK:
        return rc
    if loaded and pread(fd, held, n, <off_t>at) == <ssize_t>n and memcmp(held, data, n) == 0:
        close_file(fd)
        return RC_OK
    if loaded:
        q.opening.repaired += 1
        rc_store_i64(&q.flushed, min(q.flushed, pos))
        rc = rc_write_at(fd, data, n, at)
    else:
        memcpy(held, data, n)
        memset(held + RC_CQ_SIZE_AT, 0, 4)
        rc = rc_write_at(fd, held, n, at)
        rc_point(b"unit: all but size")
        if rc == RC_OK:
            rc = rc_write_at(fd, data + RC_CQ_SIZE_AT, 4, at + RC_CQ_SIZE_AT)
        rc_point(b"unit: size")
    close_file(fd)
    return rc


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
    cdef int64_t per_file = q.file_size // q.unit_bytes
    cdef int rc = write_blanks(q, number - number % per_file, number)
    if rc == RC_OK:
        rc_store_i64(&q.first_phy, -1)
        rc_store_i64(&q.min_unit, number)
        rc_store_i64(&q.max_offset, number)
        rc_store_i64(&q.units, number)
        rc_store_i64(&q.flushed, (number - number % per_file) * q.unit_bytes)
    return rc


cdef int drop_files(ConsumeQueue* q) noexcept nogil:
    """Delete all files of a queue whose units are not trusted."""
    cdef OpenFiles* files = NULL
    cdef int rc = files_hold(q, FILES_MUST, &files)
    if rc != RC_OK:
        return rc
    files.last = NULL
    if q.opening != NULL:
        q.opening.repaired += q.opening.loaded
        q.opening.loaded = 0
    rc_store_i64(&q.flushed, 0)
    rc_store_i64(&files.files.flushed, 0)
    rc_store_i64(&q.units, 0)           # readers may use the queue
    rc_store_i64(&q.first_phy, -1)
    rc_store_i64(&q.min_unit, 0)
    rc_store_i64(&q.max_offset, 0)
    rc_store_i64(&q.max_phy_offset, -1)
    q.repeated = 0
    while files.files.count > 0 and rc == RC_OK:
        rc = queue_remove(&files.files, files.files.count - 1)
    files.files.names = max(files.files.names, <int64_t>1)
    files_changed(q, files)
    files_release(files)
    if rc == RC_OK:
        rc = sync_names(q)
    if rc == RC_OK and q.ext != NULL:
        rc = ext_clear(q.ext)
        ext_rest(q)
    return rc
