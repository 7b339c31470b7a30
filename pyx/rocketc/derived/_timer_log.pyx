# cython: language_level=3
"""The timer log: a unit of 52 bytes for each message that waits for its time.

Units are appended to files of a fixed size. The units of one slot of the wheel are a chain, from the last one to the
first one. A file ends with a blank of at least 16 bytes. Functions return 0, an errno, or a code of status.h.
Source: RocketMQ TimerLog.
"""
import os
import re

from libc.errno cimport ENOENT
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport strdup

from rocketc._status cimport check_file
from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64, rc_put_i32, rc_put_i64
from rocketc.c.layout cimport RC_FILE_NAME_DIGITS, RC_MAGIC_BLANK
from rocketc.c.status cimport RC_END, RC_FILE_CUT, RC_OK
from rocketc.c.vm cimport rc_guard, rc_sync_folder
from rocketc.files._append_file cimport (
    FILE_SPARSE, FileState, RC_OS_PAGE_BYTES, file_clear, file_data_end, file_release, file_room,
)
from rocketc.files._file_queue cimport (
    queue_flush, queue_free, queue_hold, queue_init, queue_known, queue_remove, queue_take_up,
)
from rocketc.files._guard cimport enter_writing, install, leave as guard_leave

from rocketc.files.durable import errors_named

cdef enum:
    FIRST_WINDOW_BYTES = 4 << 10
    LAST_WINDOW_BYTES = 1 << 20

UNIT_BYTES = TIMER_UNIT_BYTES
LEAST_BYTES = TIMER_UNIT_BYTES + TIMER_BLANK_BYTES  # of a file
BLANK_MAGIC = RC_MAGIC_BLANK
NORMAL, ROLL, DELETE = <int>TIMER_NORMAL, <int>TIMER_ROLL, <int>TIMER_DELETE
_NAME = re.compile("[0-9]{%d}" % RC_FILE_NAME_DIGITS)


cdef void encode_unit(const TimerUnit* u, uint8_t* dst) noexcept nogil:
    """Write a unit; dst: TIMER_UNIT_BYTES bytes. The size is written last: it makes the unit valid."""
    rc_put_i64(dst + TIMER_UNIT_PREVIOUS_AT, u.previous)
    rc_put_i32(dst + TIMER_UNIT_MAGIC_AT, u.magic)
    rc_put_i64(dst + TIMER_UNIT_TIME_AT, u.time)
    rc_put_i32(dst + TIMER_UNIT_DELAY_AT, u.delay)
    rc_put_i64(dst + TIMER_UNIT_PHY_OFFSET_AT, u.phy_offset)
    rc_put_i32(dst + TIMER_UNIT_RECORD_SIZE_AT, u.size)
    rc_put_i32(dst + TIMER_UNIT_TOPIC_HASH_AT, u.topic_hash)
    rc_put_i64(dst + TIMER_UNIT_RESERVED_AT, 0)
    rc_put_i32(dst + TIMER_UNIT_SIZE_AT, TIMER_UNIT_BYTES)


cdef bint decode_unit(const uint8_t* p, int64_t pos, TimerUnit* u) noexcept nogil:
    """Read a unit that is at an offset of the timer log. Returns whether it can be one."""
    u.previous = rc_get_i64(p + TIMER_UNIT_PREVIOUS_AT)
    u.magic = rc_get_i32(p + TIMER_UNIT_MAGIC_AT)
    u.time = rc_get_i64(p + TIMER_UNIT_TIME_AT)
    u.delay = rc_get_i32(p + TIMER_UNIT_DELAY_AT)
    u.phy_offset = rc_get_i64(p + TIMER_UNIT_PHY_OFFSET_AT)
    u.size = rc_get_i32(p + TIMER_UNIT_RECORD_SIZE_AT)
    u.topic_hash = rc_get_i32(p + TIMER_UNIT_TOPIC_HASH_AT)
    return (
        rc_get_i32(p + TIMER_UNIT_SIZE_AT) == TIMER_UNIT_BYTES
        and -1 <= u.previous < pos
        and 0 < u.magic < 2 * TIMER_DELETE
        and 0 <= u.time <= INT64_MAX - INT32_MAX
        and u.delay >= 0 and u.phy_offset >= 0 and u.size > 0
    )


cdef bint is_blank(const uint8_t* p, int64_t rest) noexcept nogil:
    """Whether the end of a file is a blank of this size."""
    return rc_get_i32(p) == rest and rc_get_i32(p + 12) == RC_MAGIC_BLANK


cdef class TimerLog:
    """Open a timer log for writing. Its files are found by load().

    folder     str or os.PathLike: `timerlog`; it is created with the first unit
    file_size  bytes of a file. Files that exist keep their size
    Raises ValueError.

    >>> import os, tempfile
    >>> log = TimerLog(os.path.join(tempfile.mkdtemp(), "timerlog"), 4096)
    >>> log.load()
    0
    >>> log.put(-1, NORMAL, 1_700_000_000_000, 5000, phy_offset=0, size=300, topic_hash=7)
    0
    >>> log.unit(0), log.unit(52)
    ((-1, 1, 1700000000000, 5000, 0, 300, 7), None)
    """

    def __cinit__(self, folder, int64_t file_size):
        self.folder = os.path.abspath(folder)
        if not LEAST_BYTES <= file_size <= INT32_MAX:
            raise ValueError(f"file_size={file_size}: allowed are {LEAST_BYTES} to {INT32_MAX}")
        install()
        self._folder_name = os.fsencode(self.folder)
        self._above = os.fsencode(os.path.dirname(self.folder))
        self._folder = strdup(self._folder_name)
        if self._folder == NULL:
            raise MemoryError
        self._window = FIRST_WINDOW_BYTES
        check_file(queue_init(&self._files, self._file_size(file_size), &self._folder, 1, FILE_SPARSE), self.folder)

    def __dealloc__(self):
        self.rest()
        if self._files.folders != NULL:
            queue_free(&self._files)
        free(self._folder)

    def _names(self):
        with errors_named(self.folder):
            try:
                names = os.listdir(self.folder)
            except FileNotFoundError:
                return []
        return sorted(name for name in names if _NAME.fullmatch(name) and int(name) < INT64_MAX)

    def _file_size(self, given):
        """Return the size of the first file; the given one if there is none, or if it can't be right."""
        for name in self._names()[:1]:
            with errors_named(os.path.join(self.folder, name)):
                found = os.stat(os.path.join(self.folder, name)).st_size
            if LEAST_BYTES <= found <= INT32_MAX:
                return found
        return given

    def load(self):
        """Find the files and the end of the units. Returns the number of files that can't belong to it.

        They are the files after a missing one, and files of another size. They are not read. Those that are where the
        log will continue are moved to a folder beside it, `timerlog.unused`: a new file needs the name.
        Bytes after the last unit are cleared. Raises StoreIOError.
        """
        cdef int64_t start, next = -1
        cdef int problems = 0
        cdef list others = []
        for name in self._names():
            start, path = int(name), os.path.join(self.folder, name)
            with errors_named(path):
                info = os.lstat(path)
            if (
                info.st_size != self._files.file_size or not os.path.isfile(path) or os.path.islink(path)
                or start % self._files.file_size != 0 or (next >= 0 and start != next)
            ):
                problems += 1
                others.append((start, path))
                continue
            check_file(queue_known(&self._files, os.fsencode(path), start, self._files.file_size), path)
            next = start + self._files.file_size
        self.end = 0
        if self._files.count > 0:
            self._find_end()
        for start, path in others:
            if start >= next:
                with errors_named(path):
                    os.makedirs(f"{self.folder}.unused", exist_ok=True)
                    os.replace(path, f"{self.folder}.unused/{os.path.basename(path)}")
        return problems

    def _find_end(self):
        """Set the end to that of the last unit; clear what follows it."""
        cdef FileState* f = self._files.files[self._files.count - 1]
        cdef rc_guard guard
        cdef TimerUnit unit
        cdef int64_t pos = 0, data
        cdef bint clean = False
        check_file(self._hold(f.start), self.folder)
        data = file_data_end(f)
        if data < 0:
            self.rest()
            check_file(<int>-data, self.folder)
        enter_writing(&guard, f.base, f.size, &f.cut)
        while pos + TIMER_UNIT_BYTES <= <int64_t>f.size - TIMER_BLANK_BYTES and decode_unit(
            f.base + pos, f.start + pos, &unit
        ):
            pos += TIMER_UNIT_BYTES
        data = min(data, <int64_t>f.size)
        if pos + TIMER_BLANK_BYTES <= <int64_t>f.size and is_blank(f.base + pos, <int64_t>f.size - pos):
            pos = <int64_t>f.size
        clean = True
        for i in range(pos, data):
            if f.base[i] != 0:
                clean = False
                break
        guard_leave(&guard)
        self.rest()
        if f.cut != 0:
            check_file(RC_FILE_CUT, self.folder)
        if not clean:
            check_file(file_clear(f, pos), self.folder)
        f.wrote = f.flushed = pos
        self.end = f.start + pos
        self._files.wrote = self._files.flushed = self.end

    cdef int _take_up(self) noexcept nogil:
        """Find or create the file of the end. Returns RC_OK or an errno."""
        if self._last != NULL and self._last.start <= self.end < self._last.start + self._files.file_size:
            return RC_OK
        self._last = NULL
        return queue_take_up(&self._files, self.end, &self._last)

    cdef int _room(self, int64_t at, int64_t stop) noexcept nogil:
        """Allocate room in the last file up to `stop`, for bytes that begin at `at`. Returns RC_OK or an errno."""
        cdef FileState* f = self._last
        cdef int64_t start, upto
        cdef bint empty
        cdef int rc
        if stop <= f.ready:
            return RC_OK
        start = max(f.ready, at // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES)
        empty = start >= f.claimed
        upto = start + self._window if empty else f.claimed
        if empty and self._window < LAST_WINDOW_BYTES:
            self._window *= 2
        stop = (stop + RC_OS_PAGE_BYTES - 1) // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES
        upto = min(max(upto, stop), <int64_t>f.size)
        rc = file_room(f, start, upto, empty)
        if rc == RC_OK:
            f.ready = upto
        return rc

    cdef int append(self, const TimerUnit* unit, int64_t* pos) noexcept nogil:
        """Append a unit. Returns RC_OK and its offset, an errno (the disk is full: try again), or RC_FILE_CUT.

        A file that lacks room for a unit and a blank is closed with a blank.
        """
        cdef rc_guard guard
        cdef FileState* f
        cdef int64_t at, size = self._files.file_size
        cdef int rc = self._take_up()
        if rc != RC_OK:
            return rc
        f = self._last
        at = self.end - f.start
        if at + TIMER_UNIT_BYTES > size - TIMER_BLANK_BYTES:
            if at + TIMER_BLANK_BYTES <= size:
                rc = self._room(at, at + TIMER_BLANK_BYTES)
                if rc != RC_OK:
                    return rc
                enter_writing(&guard, f.base, f.size, &f.cut)
                rc_put_i32(f.base + at, <int32_t>(size - at))
                rc_put_i64(f.base + at + 4, 0)
                rc_put_i32(f.base + at + 12, RC_MAGIC_BLANK)
                guard_leave(&guard)
                if f.cut != 0:
                    return RC_FILE_CUT
            rc_store_i64(&f.wrote, size)
            self.end = f.start + size
            rc_store_i64(&self._files.wrote, self.end)
            rc = self._take_up()
            if rc != RC_OK:
                return rc
            f = self._last
            at = 0
        rc = self._room(at, at + TIMER_UNIT_BYTES)
        if rc != RC_OK:
            return rc
        enter_writing(&guard, f.base, f.size, &f.cut)
        encode_unit(unit, f.base + at)
        guard_leave(&guard)
        if f.cut != 0:
            return RC_FILE_CUT
        pos[0] = f.start + at
        rc_store_i64(&f.wrote, at + TIMER_UNIT_BYTES)
        self.end = f.start + at + TIMER_UNIT_BYTES
        rc_store_i64(&self._files.wrote, self.end)
        return RC_OK

    cdef int _hold(self, int64_t pos) noexcept nogil:
        """Hold the file of an offset in _read. Returns RC_OK, ENOENT, or an errno of its map."""
        if self._read != NULL and self._read.start <= pos < self._read.start + self._files.file_size:
            return RC_OK
        self.rest()
        return queue_hold(&self._files, pos, &self._read)

    cdef void rest(self) noexcept nogil:
        """Release the file that find() holds."""
        if self._read != NULL:
            file_release(self._read)
            self._read = NULL

    cdef int find(self, int64_t pos, TimerUnit* unit) noexcept nogil:
        """Read the unit at an offset. It holds the unit's file until rest().

        Returns RC_OK, RC_END if there is no unit, or an error of its file.
        """
        cdef rc_guard guard
        cdef FileState* f
        cdef int64_t at, size = self._files.file_size
        cdef bint valid
        cdef int rc
        at = pos % size if pos >= 0 else -1
        if (
            pos < 0 or pos + TIMER_UNIT_BYTES > self.end or at % TIMER_UNIT_BYTES != 0
            or at + TIMER_UNIT_BYTES > size - TIMER_BLANK_BYTES
        ):
            return RC_END
        rc = self._hold(pos)
        if rc != RC_OK:
            return RC_END if rc == ENOENT else rc
        f = self._read
        enter_writing(&guard, f.base, f.size, &f.cut)
        valid = decode_unit(f.base + at, pos, unit)
        guard_leave(&guard)
        if f.cut != 0:
            return RC_FILE_CUT
        return RC_OK if valid else RC_END

    def put(
        self, int64_t previous, int32_t magic, int64_t time, int32_t delay, *, int64_t phy_offset, int32_t size,
        int32_t topic_hash,
    ):
        """Append a unit and return its offset. See TimerUnit for the fields."""
        cdef TimerUnit unit
        cdef int64_t pos = 0
        unit.previous, unit.magic, unit.time, unit.delay = previous, magic, time, delay
        unit.phy_offset, unit.size, unit.topic_hash = phy_offset, size, topic_hash
        check_file(self.append(&unit, &pos), self.folder)
        return pos

    def unit(self, int64_t pos):
        """Return (previous, magic, time, delay, phy_offset, size, topic_hash) of the unit at an offset, or None."""
        cdef TimerUnit u
        cdef int rc = self.find(pos, &u)
        self.rest()
        if rc == RC_END:
            return None
        check_file(rc, self.folder)
        return u.previous, u.magic, u.time, u.delay, u.phy_offset, u.size, u.topic_hash

    def next(self, int64_t pos):
        """Return the offset of the first unit from an offset on: of this file, or of a later one; `end` without one."""
        cdef int64_t size = self._files.file_size, at
        pos = max(pos, self.start)
        if pos >= self.end:
            return self.end
        at = (pos % size + TIMER_UNIT_BYTES - 1) // TIMER_UNIT_BYTES * TIMER_UNIT_BYTES
        if at + TIMER_UNIT_BYTES > size - TIMER_BLANK_BYTES:
            return min(pos - pos % size + size, self.end)
        return pos - pos % size + at

    @property
    def last(self):
        """Offset of the last unit; -1 without one."""
        return self.last_before(self.end)

    cdef int64_t last_before(self, int64_t pos) except -2:
        """Return the offset of the last unit before an offset, where a unit or a file begins; -1 without one."""
        cdef int64_t size = self._files.file_size
        if pos <= self.start:
            return -1
        if pos % size == 0:
            return pos - size + ((size - TIMER_BLANK_BYTES) // TIMER_UNIT_BYTES - 1) * TIMER_UNIT_BYTES
        return pos - TIMER_UNIT_BYTES

    def cut(self, int64_t pos):
        """End the log at an offset: the units from there on are removed. Raises StoreIOError."""
        cdef FileState* f
        if pos >= self.end:
            return
        self.rest()
        self._last = NULL
        pos = max(pos, self.start)
        while self._files.count > 1 and self._files.files[self._files.count - 1].start >= pos:
            check_file(queue_remove(&self._files, self._files.count - 1), self.folder)
        f = self._files.files[self._files.count - 1]
        if pos - f.start < self._files.file_size:
            check_file(file_clear(f, pos - f.start), self.folder)
            f.wrote = pos - f.start
            f.flushed = min(f.flushed, f.wrote)
            f.ready = f.claimed = 0
        self.end = pos
        self._files.wrote = pos
        self._files.flushed = min(self._files.flushed, pos)

    def cut_damaged(self, int64_t pos):
        """End the log before the first damaged unit from an offset on. Raises StoreIOError."""
        cdef TimerUnit unit
        cdef int64_t at = self.next(pos)
        cdef int rc = RC_OK
        while at < self.end:
            rc = self.find(at, &unit)
            if rc != RC_OK:
                break
            at = self.next(at + 1)
        self.rest()
        if rc == RC_END:
            self.cut(at)
        else:
            check_file(rc, self.folder)

    def cut_lost(self, int64_t phy_offset):
        """Remove the last units, as long as they are damaged or their messages end after a physical offset.

        Raises StoreIOError.
        """
        cdef TimerUnit unit
        cdef int64_t at = self.last, stop = self.end
        cdef int rc = RC_END
        while at >= 0:
            rc = self.find(at, &unit)
            if rc != RC_END and (rc != RC_OK or unit.phy_offset <= phy_offset - unit.size):
                break
            stop = at
            at = self.last_before(at)
        self.rest()
        check_file(RC_OK if rc == RC_END else rc, self.folder)
        self.cut(stop)

    def delete_before(self, int64_t phy_offset):
        """Delete the first files whose units are all of messages before a physical offset; return how many.

        The last file is kept. A file that is in use ends the run. Raises StoreIOError.
        """
        cdef TimerUnit u
        cdef int64_t last
        cdef int rc, deleted = 0
        self.rest()
        while self._files.count > 1:
            last = (self._files.file_size - TIMER_BLANK_BYTES) // TIMER_UNIT_BYTES - 1
            last = self._files.files[0].start + last * TIMER_UNIT_BYTES
            rc = self.find(last, &u)
            while rc == RC_END and last > self._files.files[0].start:       # it is damaged
                last -= TIMER_UNIT_BYTES
                rc = self.find(last, &u)
            self.rest()
            if rc == RC_OK and u.phy_offset >= phy_offset:
                break
            check_file(RC_OK if rc == RC_END else rc, self.folder)
            if queue_remove(&self._files, 0) != RC_OK:
                break
            deleted += 1
        return deleted

    def flush(self, int64_t upto=-1):
        """Make the units before an offset durable, all without one; return the offset. It may run on another thread."""
        cdef const char* path = NULL
        cdef const char* above = self._above
        cdef int64_t stop = rc_load_i64(&self._files.wrote)
        cdef int rc
        if 0 <= upto < stop:
            stop = upto
        with nogil:
            rc = queue_flush(&self._files, stop, &path)
            if rc == RC_OK and rc_load_i64(&self._files.names) != 0:
                rc_store_i64(&self._files.names, 0)     # names added from now on are for the next call
                rc = rc_sync_folder(self._folder)
                if rc == RC_OK:
                    rc = rc_sync_folder(above)
        check_file(rc, os.fsdecode(path) if path != NULL else self.folder)
        return stop

    @property
    def start(self):
        """Offset of the first file."""
        return self._files.files[0].start if self._files.count > 0 else self.end

    @property
    def file_size(self):
        return self._files.file_size

    @property
    def files(self):
        """The paths of the files."""
        return [os.fsdecode(self._files.files[i].path) for i in range(self._files.count)]
