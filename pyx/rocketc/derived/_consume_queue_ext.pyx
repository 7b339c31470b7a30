# cython: language_level=3
"""The extension of one consume queue: data that does not fit into a unit. The unit holds its address instead.

With enableConsumeQueueExt a unit of the queue holds an address instead of its tags code. The extension has the tags
code, the store timestamp and a bit map of filters at this address. An address is an offset in the extension's files
minus 2**63; hashes are never this low. The end of a file is not used, and a mark says so; the next unit is in the next
file. Like the queue, the extension is derived from the log: if it is written again from some point, it gets the same
bytes. Functions return 0, an errno, or a code of status.h. Source: RocketMQ ConsumeQueueExt
"""
import os

from libc.errno cimport EBUSY, ENOENT, ENOMEM
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, strdup, strlen
from posix.stat cimport S_ISREG, lstat, stat, struct_stat

from rocketc._status cimport check_file
from rocketc.c.atomic cimport rc_fence_release, rc_load_i64, rc_store_i64
from rocketc.c.bytes cimport rc_get_i16, rc_get_i64, rc_put_i16, rc_put_i64, rc_trim_zeros, rc_zero_prefix
from rocketc.c.layout cimport (
    RC_EXT_BIT_MAP_AT, RC_EXT_BIT_MAP_SIZE_AT, RC_EXT_END_SIZE, RC_EXT_MIN_BYTES, RC_EXT_SIZE_AT,
    RC_EXT_STORE_TIMESTAMP_AT, RC_EXT_TAGS_CODE_AT, RC_FILE_NAME_DIGITS,
)
from rocketc.c.points cimport rc_point
from rocketc.c.status cimport RC_END, RC_FILE_CUT, RC_NO_ROOM, RC_OK
from rocketc.c.vm cimport rc_guard
from rocketc.files._append_file cimport (
    FILE_READ, FILE_SPARSE, FileState, RC_OS_PAGE_BYTES, file_clear, file_data_end, file_release, file_room,
)
from rocketc.files._file_queue cimport (
    queue_flush, queue_free, queue_hold, queue_init, queue_known, queue_last, queue_remove, queue_start,
    queue_sync_names, queue_take_up,
)
from rocketc.files._guard cimport enter_writing, install, leave as guard_leave

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        char* d_name
    DIR* opendir(const char* path)
    dirent* readdir(DIR* folder)
    int closedir(DIR* folder)

cdef enum:
    PATH_BYTES = 4096
    FREE_BYTES = 4              # at the end of each file
    BIT_MAP_BYTES = 32767 - RC_EXT_MIN_BYTES
    FIRST_WINDOW_BYTES = 4 << 10
    LAST_WINDOW_BYTES = 256 << 10


cdef ExtQueue* ext_new(
    const char* above, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t file_size, int kind,
) noexcept nogil:
    """Return an empty extension whose folder is above/topic/queue_id; NULL without memory. Free it with ext_free()."""
    cdef char path[PATH_BYTES]
    cdef int n = snprintf(path, PATH_BYTES, b"%s/%.*s/%d", above, topic_len, <const char*>topic, queue_id)
    return new_at(path, file_size, kind) if 0 < n < PATH_BYTES else NULL


cdef ExtQueue* new_at(const char* folder, int64_t file_size, int kind) noexcept nogil:
    cdef ExtQueue* x = <ExtQueue*>calloc(1, sizeof(ExtQueue))
    if x == NULL:
        return NULL
    x.folder = strdup(folder)
    if x.folder == NULL or queue_init(&x.files, file_size, &x.folder, 1, kind) != RC_OK:
        free(x.folder)
        free(x)
        return NULL
    x.window = FIRST_WINDOW_BYTES
    x.put_phy_offset = -1
    return x


cdef void ext_free(ExtQueue* x) noexcept nogil:
    """Free an extension and unmap its files. It must not have readers."""
    queue_free(&x.files)
    free(x.folder)
    free(x)


cdef inline int64_t address_of(int64_t offset) noexcept nogil:
    return <int64_t>(<uint64_t>offset + <uint64_t>INT64_MIN)


cdef inline int64_t offset_of(int64_t address) noexcept nogil:
    """Return the offset of an address, or -1 if it is not an address."""
    return <int64_t>(<uint64_t>address - <uint64_t>INT64_MIN) if is_ext_address(address) else -1


# loading

cdef int64_t number_of(const char* name) noexcept nogil:
    """Return a file name as a number, or -1 if it is not a number."""
    cdef int64_t number = 0
    cdef int i = 0
    while name[i] != 0:
        if not c"0" <= name[i] <= c"9" or i == RC_FILE_NAME_DIGITS or number > (INT64_MAX - 9) // 10:
            return -1
        number = number * 10 + (name[i] - c"0")
        i += 1
    return number if i > 0 else -1


cdef int list_files(ExtQueue* x, int64_t** starts, int* count, int* problems) noexcept nogil:
    """List the numbers of the files with the right size, in order. The caller frees starts."""
    cdef char path[PATH_BYTES]
    cdef struct_stat info
    cdef dirent* entry
    cdef int64_t* grown
    cdef int64_t number
    cdef int i, n, room = 0, rc = RC_OK
    cdef DIR* folder = opendir(x.folder)
    if folder == NULL:
        return RC_OK if c_errno == ENOENT else c_errno
    while rc == RC_OK:
        entry = readdir(folder)
        if entry == NULL:
            break
        number = number_of(entry.d_name)
        n = snprintf(path, PATH_BYTES, b"%s/%s", x.folder, entry.d_name)
        if number < 0:
            continue
        if (
            n >= PATH_BYTES or strlen(entry.d_name) != RC_FILE_NAME_DIGITS or number % x.files.file_size != 0
            or number > INT64_MAX - x.files.file_size
        ):
            problems[0] += 1
            continue
        rc = stat(path, &info) if x.files.kind == FILE_READ else lstat(path, &info)     # a writer does not follow links
        if rc != 0 or not S_ISREG(info.st_mode) or <int64_t>info.st_size != x.files.file_size:
            rc = RC_OK
            problems[0] += 1
            continue
        if count[0] == room:
            room = 2 * room + 16
            grown = <int64_t*>realloc(starts[0], <size_t>room * sizeof(int64_t))
            if grown == NULL:
                rc = ENOMEM
                continue
            starts[0] = grown
        i = count[0]
        while i > 0 and starts[0][i - 1] > number:
            starts[0][i] = starts[0][i - 1]
            i -= 1
        starts[0][i] = number
        count[0] += 1
    closedir(folder)
    return rc


cdef int ext_load(ExtQueue* x, int* problems) noexcept nogil:
    """Find the files, and the end of the last one. A later call finds the files that were added since.

    problems  increased by the number of files that can't belong to this extension; they are not read or changed
    Returns RC_OK or an errno.
    """
    cdef char path[PATH_BYTES]
    cdef int64_t* starts = NULL
    cdef int i, count = 0
    cdef int rc = list_files(x, &starts, &count, problems)
    cdef FileState* last = queue_last(&x.files)
    for i in range(count):
        if i > 0 and starts[i] != starts[i - 1] + x.files.file_size:
            problems[0] += 1       # addresses in the files after a missing one belong to no unit
            break
        if rc == RC_OK and (last == NULL or starts[i] > last.start):
            snprintf(path, PATH_BYTES, b"%s/%020lld", x.folder, <long long>starts[i])
            rc = queue_known(&x.files, path, starts[i], x.files.file_size)
    free(starts)
    return find_end(x) if rc == RC_OK else rc


cdef int find_end(ExtQueue* x) noexcept nogil:
    """Scan the units of the last file up to the first bytes that are not a unit."""
    cdef rc_guard guard
    cdef FileState* f = queue_last(&x.files)
    cdef int64_t pos = 0, data = 0, size
    cdef int rc
    if f == NULL:
        rc_store_i64(&x.end, 0)
        return RC_OK
    if x.files.kind != FILE_READ:
        data = file_data_end(f)
        if data < 0:
            return <int>-data
    rc = queue_hold(&x.files, f.start, &f)
    if rc != RC_OK:
        return rc
    enter_writing(&guard, f.base, f.size, &f.cut)
    while pos + RC_EXT_MIN_BYTES <= <int64_t>f.size - FREE_BYTES:
        size = rc_get_i16(f.base + pos + RC_EXT_SIZE_AT)
        if size < RC_EXT_MIN_BYTES or size > <int64_t>f.size - FREE_BYTES - pos:
            break
        pos += size
    if pos + 2 <= <int64_t>f.size and rc_get_i16(f.base + pos + RC_EXT_SIZE_AT) == RC_EXT_END_SIZE:
        pos = <int64_t>f.size
    data = <int64_t>rc_trim_zeros(f.base, <size_t>min(data, <int64_t>f.size))
    guard_leave(&guard)
    if f.cut != 0:
        rc = RC_FILE_CUT
    if x.files.kind != FILE_READ:
        x.loaded = f.start + max(pos, data)     # nonzero bytes after the units are damage
    f.wrote = pos
    f.flushed = 0
    x.files.flushed = f.start
    rc_store_i64(&x.end, f.start + pos)
    file_release(f)
    return rc


# writing: only the dispatcher does

cdef int make_room(ExtQueue* x, FileState* f, int64_t at, int64_t stop) noexcept nogil:
    """Allocate room in the last file up to `stop`, for bytes that begin at `at`."""
    cdef int64_t start = max(f.ready, at // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES)
    cdef bint empty = start >= f.claimed        # after the data that the file held when it was loaded
    cdef int64_t upto = start + x.window if empty else f.claimed
    cdef int rc
    if x.window < LAST_WINDOW_BYTES and empty:
        x.window *= 2
    stop = (stop + RC_OS_PAGE_BYTES - 1) // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES
    upto = min(max(upto, stop), <int64_t>f.size)
    rc = file_room(f, start, upto, empty)
    if rc == RC_OK:
        f.ready = upto
    return rc


cdef int ext_put(
    ExtQueue* x, int64_t tags_code, int64_t store_timestamp, const uint8_t* bit_map, int16_t bit_map_size,
    int64_t* address,
) noexcept nogil:
    """Write a unit after the last one, unless the file already holds it. Only the dispatcher calls it.

    bit_map  bit_map_size bytes; 0: without a bit map
    address  set to the value for the queue's unit, in place of the tags code
    Returns RC_OK, an errno (a full disk: try again), RC_FILE_CUT, or RC_NO_ROOM if a file is too small for the unit.
    After RC_NO_ROOM the queue keeps the tags code.
    """
    cdef uint8_t head[RC_EXT_MIN_BYTES]
    cdef int64_t at, size = RC_EXT_MIN_BYTES + bit_map_size
    cdef int rc = RC_OK
    if bit_map_size < 0 or size > INT16_MAX or size > x.files.file_size - FREE_BYTES:
        return RC_NO_ROOM
    while True:
        if x.last == NULL or not x.last.start <= x.end < x.last.start + x.files.file_size:
            rc = queue_take_up(&x.files, x.end, &x.last)
            if rc != RC_OK:
                return rc
        at = x.end - x.last.start
        if size <= x.files.file_size - at - FREE_BYTES:
            break
        rc_put_i16(head, RC_EXT_END_SIZE)
        rc = write(x, at, head, 2, NULL, 0)
        if rc == RC_OK:
            rc = clear_from(x, x.last, at + 2)
        if rc != RC_OK:
            return rc
        x.last.wrote = x.files.file_size
        rc_store_i64(&x.end, x.last.start + x.files.file_size)
    rc_put_i16(head + RC_EXT_SIZE_AT, <int16_t>size)
    rc_put_i64(head + RC_EXT_TAGS_CODE_AT, tags_code)
    rc_put_i64(head + RC_EXT_STORE_TIMESTAMP_AT, store_timestamp)
    rc_put_i16(head + RC_EXT_BIT_MAP_SIZE_AT, bit_map_size)
    rc = write(x, at, head, RC_EXT_MIN_BYTES, bit_map, <size_t>bit_map_size)
    if rc != RC_OK:
        return rc
    address[0] = address_of(x.end)
    x.last.wrote = at + size
    rc_store_i64(&x.end, x.end + size)
    return RC_OK


cdef int write(
    ExtQueue* x, int64_t at, const uint8_t* head, size_t n, const uint8_t* bit_map, size_t bit_map_size,
) noexcept nogil:
    """Write bytes to the last file, the first two of them last. If the file holds the same bytes, write nothing."""
    cdef rc_guard guard
    cdef FileState* f = x.last
    cdef uint8_t* p = f.base + at
    cdef int64_t stop = at + <int64_t>(n + bit_map_size)
    cdef bint same
    cdef int rc
    if f.start + at < x.loaded:
        enter_writing(&guard, f.base, f.size, &f.cut)
        same = memcmp(p, head, n) == 0 and (bit_map_size == 0 or memcmp(p + n, bit_map, bit_map_size) == 0)
        guard_leave(&guard)
        if f.cut != 0:
            return RC_FILE_CUT
        if same:
            return RC_OK
        x.repaired += 1
    if stop > f.ready:
        rc = make_room(x, f, at, stop)
        if rc != RC_OK:
            return rc
    enter_writing(&guard, f.base, f.size, &f.cut)
    memcpy(p + 2, head + 2, n - 2)
    rc_point(b"extension: all but size")
    if bit_map_size > 0:
        memcpy(p + n, bit_map, bit_map_size)
    rc_fence_release()      # another process that reads a size also reads the whole unit
    memcpy(p, head, 2)
    rc_point(b"extension: size")
    guard_leave(&guard)
    return RC_OK if f.cut == 0 else RC_FILE_CUT


cdef int ext_begin(ExtQueue* x, int64_t last, int64_t following) noexcept nogil:
    """Go back to a unit of the queue; it and the later ones are written again, to the same addresses if possible.

    last       tags code in the last unit of the queue that is kept; 0: none is kept
    following  tags code in the unit after it; 0: there is none
    ext_put() does not change equal bytes; ext_finish() clears the rest. Returns RC_OK or an errno.
    """
    cdef ExtUnit unit
    cdef int64_t end = x.files.files[0].start if x.files.count > 0 else 0
    cdef int rc
    x.loaded = max(x.loaded, x.end)
    x.end = x.loaded        # so that ext_get() can read these units
    if is_ext_address(last):
        rc = ext_get(x, last, &unit, NULL, 0)
        if rc == RC_OK:
            end = offset_of(last) + RC_EXT_MIN_BYTES + unit.bit_map_size
        elif rc != RC_END:
            return rc
    if is_ext_address(following) and end <= offset_of(following) <= x.loaded:
        end = offset_of(following)
    x.last = NULL
    x.files.flushed = min(x.files.flushed, end)
    rc_store_i64(&x.end, end)
    return RC_OK


cdef int ext_finish(ExtQueue* x) noexcept nogil:
    """Clear the files after the last unit that was written again; returns RC_OK or an errno."""
    cdef FileState* f
    cdef int64_t loaded = x.loaded
    cdef int rc = RC_OK
    x.loaded = 0
    if x.end < loaded:
        x.repaired += 1
        return cut_at(x, x.end)
    if x.files.count > 0 and queue_hold(&x.files, x.end, &f) == RC_OK:
        rc = clear_from(x, f, x.end - f.start)
        file_release(f)
    return rc


cdef int clear_from(ExtQueue* x, FileState* f, int64_t pos) noexcept nogil:
    """Fill a mapped file with zeros from a position to its end. It is not changed if it holds only zeros there."""
    cdef rc_guard guard
    cdef int64_t end = file_data_end(f)
    cdef bint clean
    if end < 0:
        return <int>-end
    if end <= pos:
        return RC_OK
    enter_writing(&guard, f.base, f.size, &f.cut)
    clean = rc_zero_prefix(f.base + pos, <size_t>(end - pos)) == <size_t>(end - pos)
    guard_leave(&guard)
    if f.cut != 0:
        return RC_FILE_CUT
    if clean:
        return RC_OK
    x.repaired += 1
    return file_clear(f, pos)


cdef int cut_at(ExtQueue* x, int64_t offset) noexcept nogil:
    """End the extension at an offset: delete later files, and fill the last file with zeros after the offset."""
    cdef FileState* f
    cdef int64_t pos
    cdef int rc = RC_OK
    x.last = NULL
    while rc == RC_OK and x.files.count > 1 and x.files.files[x.files.count - 1].start >= offset:
        rc = queue_remove(&x.files, x.files.count - 1)
    f = queue_last(&x.files)
    if rc == RC_OK and f != NULL:
        pos = max(offset - f.start, 0)
        if pos < <int64_t>f.size:
            rc = file_clear(f, pos)
            f.wrote = pos
            f.flushed = min(f.flushed, pos)
            f.ready = f.claimed = 0
        offset = f.start + pos
    x.files.flushed = min(x.files.flushed, offset)
    rc_store_i64(&x.end, offset)
    return rc


cdef int ext_truncate_by_max(ExtQueue* x, int64_t address) noexcept nogil:
    """Remove the units after an address. If there is no unit at the address, change nothing. RC_OK or an errno."""
    cdef ExtUnit unit
    cdef int rc = ext_get(x, address, &unit, NULL, 0)
    if rc != RC_OK:
        return RC_OK if rc == RC_END else rc
    return cut_at(x, offset_of(address) + RC_EXT_MIN_BYTES + unit.bit_map_size)


cdef int ext_clear(ExtQueue* x) noexcept nogil:
    """Delete all files. Returns RC_OK, or the error of a file that can't be deleted."""
    cdef int rc = RC_OK
    x.last = NULL
    while x.files.count > 0 and rc == RC_OK:
        rc = queue_remove(&x.files, x.files.count - 1)
    x.files.flushed = x.loaded = 0
    rc_store_i64(&x.end, 0)
    return rc


cdef int ext_truncate_by_min(ExtQueue* x, int64_t address, int* deleted) noexcept nogil:
    """Delete the files that end before the unit at an address, but not the last file and not a file with a reader."""
    cdef int64_t offset = offset_of(address), start = queue_start(&x.files, 2)
    cdef int rc = RC_OK
    while rc == RC_OK and start >= 0 and start + x.files.file_size < offset:
        rc = queue_remove(&x.files, 0)
        if rc == RC_OK:
            deleted[0] += 1
        start = queue_start(&x.files, 2)
    return RC_OK if rc == EBUSY else rc


cdef int ext_flush(ExtQueue* x, const char** path) noexcept nogil:
    """Make written units durable. One thread at a time. path is set to the file that failed."""
    cdef int rc
    x.files.flushed = max(x.files.flushed, queue_start(&x.files, 1))
    rc = queue_flush(&x.files, rc_load_i64(&x.end), path)
    return queue_sync_names(&x.files) if rc == RC_OK else rc


# reading: any thread

cdef int ext_get(ExtQueue* x, int64_t address, ExtUnit* unit, uint8_t* bit_map, int room) noexcept nogil:
    """Read the unit at an address.

    bit_map  receives the first bytes of the bit map, at most room bytes
    Returns RC_OK, RC_END if there is no unit, an errno, or RC_FILE_CUT.
    """
    cdef rc_guard guard
    cdef FileState* f
    cdef const uint8_t* p
    cdef int64_t offset = offset_of(address), at, size
    cdef int rc
    if offset < 0 or (offset >= rc_load_i64(&x.end) and x.files.kind != FILE_READ):
        return RC_END           # if another process writes, `end` may be old; the bytes after the last unit are zero
    rc = queue_hold(&x.files, offset, &f)
    if rc != RC_OK:
        return RC_END if rc == ENOENT else rc
    at = offset - f.start
    p = f.base + at
    enter_writing(&guard, f.base, f.size, &f.cut)
    size = rc_get_i16(p + RC_EXT_SIZE_AT) if at + RC_EXT_MIN_BYTES <= <int64_t>f.size else 0
    if size < RC_EXT_MIN_BYTES or size > <int64_t>f.size - at:
        rc = RC_END
    else:
        unit.tags_code = rc_get_i64(p + RC_EXT_TAGS_CODE_AT)
        unit.store_timestamp = rc_get_i64(p + RC_EXT_STORE_TIMESTAMP_AT)
        unit.bit_map_size = <int16_t>max(rc_get_i16(p + RC_EXT_BIT_MAP_SIZE_AT), 0)
        if RC_EXT_MIN_BYTES + unit.bit_map_size != size:
            rc = RC_END
        elif room > 0:
            memcpy(bit_map, p + RC_EXT_BIT_MAP_AT, <size_t>min(room, <int>unit.bit_map_size))
    guard_leave(&guard)
    if f.cut != 0:
        rc = RC_FILE_CUT
    file_release(f)
    return rc


cdef class ConsumeQueueExt:
    """The extension of one queue, without the queue.

    folder     str or os.PathLike: consumequeue_ext/TOPIC/QUEUE; created with the first unit
    file_size  bytes of a file
    read_only  another process writes it
    The extension is empty until load() has read the files.
    """
    cdef ExtQueue* _x
    cdef readonly str folder

    def __cinit__(self, folder, int64_t file_size=48 << 20, *, bint read_only=False):
        self.folder = os.path.abspath(folder)
        if not 2 * RC_EXT_MIN_BYTES <= file_size <= INT32_MAX:
            raise ValueError(f"file_size={file_size}: allowed are {2 * RC_EXT_MIN_BYTES} to {INT32_MAX}")
        install()
        self._x = new_at(os.fsencode(self.folder), file_size, <int>FILE_READ if read_only else <int>FILE_SPARSE)
        if self._x == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._x != NULL:
            ext_free(self._x)

    def load(self):
        """Find the files. Returns the number of files that can't belong to this extension."""
        cdef int problems = 0
        check_file(ext_load(self._x, &problems), self.folder)
        return problems

    def put(self, int64_t tags_code, int64_t store_timestamp, bytes bit_map=b""):
        """Write a unit. Returns its address, or None if a file is too small for it."""
        cdef int64_t address = 0
        cdef int rc
        if len(bit_map) > INT16_MAX:
            return None
        rc = ext_put(self._x, tags_code, store_timestamp, bit_map, <int16_t>len(bit_map), &address)
        if rc == RC_NO_ROOM:
            return None
        check_file(rc, self.folder)
        return address

    def get(self, int64_t address):
        """Return (tags code, store timestamp, bit map) of the unit at an address, or None."""
        cdef ExtUnit unit
        cdef uint8_t bit_map[BIT_MAP_BYTES]
        cdef int rc = ext_get(self._x, address, &unit, bit_map, BIT_MAP_BYTES)
        if rc == RC_END:
            return None
        check_file(rc, self.folder)
        return unit.tags_code, unit.store_timestamp, <bytes>bit_map[:unit.bit_map_size]

    @property
    def min_address(self):
        """Lowest address that a unit can have."""
        return address_of(self._x.files.files[0].start if self._x.files.count > 0 else 0)

    @property
    def max_address(self):
        """Address after the last unit."""
        return address_of(self._x.end)

    def truncate_by_max(self, int64_t address):
        """Remove the units after an address. If there is no unit at the address, change nothing."""
        check_file(ext_truncate_by_max(self._x, address), self.folder)

    def truncate_by_min(self, int64_t address):
        """Delete the files that end before an address. Returns their number."""
        cdef int deleted = 0
        check_file(ext_truncate_by_min(self._x, address, &deleted), self.folder)
        return deleted

    def begin(self, int64_t last=0, int64_t following=0):
        """Go back to after the unit at `last`, or to `following`, the unit after it. put() then compares units."""
        check_file(ext_begin(self._x, last, following), self.folder)

    def finish(self):
        """Clear the files after the last unit. Returns the number of repairs; see ExtQueue.repaired."""
        check_file(ext_finish(self._x), self.folder)
        repaired, self._x.repaired = self._x.repaired, 0
        return repaired

    def clear(self):
        """Delete all files."""
        check_file(ext_clear(self._x), self.folder)

    def flush(self):
        """Make written units durable."""
        cdef const char* path = NULL
        cdef int rc
        with nogil:
            rc = ext_flush(self._x, &path)
        check_file(rc, os.fsdecode(path) if path != NULL else self.folder)
