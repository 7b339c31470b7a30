# cython: language_level=3
"""One mapped file that grows at its end: append, flush, holds.

The file has its full length, with disk space for all of it, before a thread writes into the map. So a full disk is an
errno of file_create, not a signal. FileState is shared by threads that do not run Python. The functions for it return
0 or an errno. Source: RocketMQ DefaultMappedFile, ReferenceResource.
"""
import os

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EDQUOT, EEXIST, ENAMETOOLONG, ENOSPC
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.stdio cimport SEEK_END
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strdup, strrchr
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as close_file
from posix.types cimport off_t
from posix.unistd cimport ftruncate, lseek, unlink

from rocketc._status cimport check_file
from rocketc.c.atomic cimport rc_add_i64, rc_hold_i64, rc_load_i64, rc_raise_i64, rc_store_i64
from rocketc.c.status cimport RC_FILE_CUT, RC_NO_ROOM, RC_OK
from rocketc.c.vm cimport (
    rc_allocate, rc_allocate_range, rc_clear_from, rc_data_end, rc_free_space, rc_guard, rc_is_resident, rc_map_lock,
    rc_map_random, rc_map_read, rc_map_unlock, rc_map_write, rc_name_file, rc_new_file, rc_open_file, rc_populate,
    rc_sync_file, rc_sync_map, rc_touch, rc_unmap, rc_write_at, rc_write_zeros,
)
from rocketc.files._guard cimport enter_writing, install, leave as guard_leave

from rocketc.errors import ClosedError

PAGE_BYTES = RC_OS_PAGE_BYTES

cdef enum:
    PATH_BYTES = 4096
    ROOM_BLOCK_BYTES = 64 << 10


cdef FileState* file_new(const char* path, int64_t start, size_t size) noexcept nogil:
    """Create the state of a file that is not opened yet. Only the owner holds it. NULL without memory. path is
    copied."""
    cdef FileState* f = <FileState*>calloc(1, sizeof(FileState))
    if f == NULL:
        return NULL
    f.path = strdup(path)
    if f.path == NULL:
        free(f)
        return NULL
    f.size = size
    f.start = start
    f.fd = -1
    f.holds = f.pointers = f.available = 1
    return f


cdef int file_create(FileState* f) noexcept nogil:
    """Create the file at its full length and map it. A FILE_WHOLE gets disk space; other kinds are one hole.

    Where the system supports it, the file has its full length before it gets its name. On failure no file is left.
    Returns EEXIST if there is a file of that name.
    """
    cdef char folder[PATH_BYTES]
    cdef const char* slash = strrchr(f.path, c"/")
    cdef size_t n = <size_t>(slash - f.path) if slash != NULL else 0
    cdef int rc = RC_OK
    if n >= PATH_BYTES:
        return ENAMETOOLONG
    memcpy(folder, f.path, n)
    folder[n] = 0
    if n == 0:
        folder[0] = c"/" if slash != NULL else c"."
        folder[1] = 0
    rc = rc_new_file(folder, f.path, &f.fd)
    if rc != RC_OK:
        return rc
    if f.kind == FILE_WHOLE:
        rc = rc_allocate(f.fd, f.size)
    elif ftruncate(f.fd, <off_t>f.size) != 0:
        rc = c_errno
    if rc == RC_OK:
        rc = rc_map_write(f.fd, f.size, &f.base)
    if rc == RC_OK:
        rc = rc_name_file(f.fd, f.path)
    if rc != RC_OK:
        if rc != EEXIST:
            unlink(f.path)
        file_unmap(f)
        return rc
    if f.kind != FILE_WHOLE:
        close_file(f.fd)
        f.fd = -1
    rc_map_random(f.base, f.size)       # while the file is written, read only the pages that are touched
    return RC_OK


cdef void file_unmap(FileState* f) noexcept nogil:
    if f.locked_in != NULL:             # the end of the map ends the lock
        rc_add_i64(f.locked_in, -<int64_t>f.size)
        f.locked_in = NULL
    if f.base != NULL:
        rc_unmap(f.base, f.size)
        f.base = NULL
    if f.fd >= 0:
        close_file(f.fd)
        f.fd = -1


cdef int file_map(FileState* f) noexcept nogil:
    """Open and map a file that exists at its full length. Allocate disk space for the holes of a FILE_WHOLE.

    A full and durable FILE_WHOLE is only read, so no disk space is allocated for it. On a full disk the holes stay: the
    file can be read, and file_fill() must succeed before it is written.
    Returns 0, an errno, or RC_FILE_CUT if the file is shorter than it was.
    """
    cdef struct_stat info
    cdef int rc = RC_OK
    cdef bint whole, read
    if f.base != NULL:
        return RC_OK
    whole = f.kind == FILE_WHOLE and rc_load_i64(&f.flushed) < <int64_t>f.size
    read = f.kind == FILE_READ or (f.kind == FILE_WHOLE and not whole)
    f.fd = rc_open_file(f.path, O_RDONLY if read else O_RDWR)
    if f.fd < 0:
        return c_errno
    if fstat(f.fd, &info) != 0:
        rc = c_errno
    elif <size_t>info.st_size < f.size:
        rc = RC_FILE_CUT
    if rc == RC_OK and whole:
        rc = rc_allocate(f.fd, f.size)
        f.holes = rc == ENOSPC or rc == EDQUOT
        if f.holes:
            rc = RC_OK
    if rc == RC_OK:
        rc = (rc_map_read if read else rc_map_write)(f.fd, f.size, &f.base)
    if rc != RC_OK or not whole:
        close_file(f.fd)
        f.fd = -1
    if rc == RC_OK and <int64_t>info.st_blocks * 512 < <int64_t>f.size // 2:
        rc_map_random(f.base, f.size)   # mostly a hole: read-ahead would fill memory with zeros
    return rc


cdef int file_lock(FileState* f, int64_t* locked_in) noexcept nogil:
    """Lock the map in memory, and add its size to a counter. The caller holds f, or is the only one to know it.

    locked_in  must live until file_unlock(), or the end of the map
    Returns RC_OK; or an errno, and then it is not locked.
    """
    cdef int rc = rc_map_lock(f.base, f.size)
    if rc == RC_OK:
        rc_add_i64(locked_in, <int64_t>f.size)
        f.locked_in = locked_in
    return rc


cdef void file_unlock(FileState* f) noexcept nogil:
    """Undo file_lock(). The caller holds f. One thread at a time, and not during file_lock()."""
    if f.locked_in != NULL:
        rc_map_unlock(f.base, f.size)
        rc_add_i64(f.locked_in, -<int64_t>f.size)
        f.locked_in = NULL


cdef bint file_hold(FileState* f) noexcept nogil:
    """Keep the map until file_release(). Return False if the file is shut down."""
    return rc_load_i64(&f.available) != 0 and rc_hold_i64(&f.holds) != 0


cdef void file_release(FileState* f) noexcept nogil:
    """End a hold. The last one unmaps and closes the file."""
    if rc_add_i64(&f.holds, -1) > 0:
        return
    file_unmap(f)
    rc_store_i64(&f.holds, -1)      # the last access to f: a thread that waits for it in file_shutdown may free f now


cdef void file_drop(FileState* f) noexcept nogil:
    """Drop a pointer to f; the last one frees it. Remaining holds keep the map."""
    if rc_add_i64(&f.pointers, -1) == 0:
        free(f.path)
        free(f)


cdef bint file_shutdown(FileState* f) noexcept nogil:
    """Prevent new holds. Return True if there are no holds: the file is unmapped and may be deleted."""
    if rc_load_i64(&f.available) != 0:
        rc_store_i64(&f.available, 0)
        file_release(f)
    return rc_load_i64(&f.holds) < 0


cdef int file_unlink(FileState* f) noexcept nogil:
    return RC_OK if unlink(f.path) == 0 else c_errno


cdef int file_prepare(FileState* f, int64_t start, int64_t stop, size_t block, bint durable) noexcept nogil:
    """Prepare the pages of [start, stop), so that a write there does not wait. No other thread may write there.

    block    size in bytes of the blocks of zeros to write; 0: write none
    durable  sync the pages too: then the first sync of a record there does not change the extents of the file
    Returns RC_OK or an errno.
    """
    cdef rc_guard guard
    cdef int rc = RC_OK
    if block > 0:
        rc = rc_write_zeros(f.fd, <size_t>start, <size_t>stop, block)
    if rc == RC_OK and durable:
        rc = rc_sync_map(f.base, <size_t>start, <size_t>stop)
    if rc == RC_OK:
        enter_writing(&guard, f.base, f.size, &f.cut)
        rc = rc_populate(f.base, <size_t>start, <size_t>stop)
        guard_leave(&guard)
    return rc


cdef int file_commit(FileState* f) noexcept nogil:
    """Write the new bytes of the buffer to the file. Two threads that do this at once write the same bytes twice."""
    cdef int64_t wrote = rc_load_i64(&f.wrote), committed = rc_load_i64(&f.committed)
    cdef const uint8_t* buffer = f.buffer
    cdef int rc
    if buffer == NULL or committed >= wrote:
        return RC_OK
    rc = rc_write_at(f.fd, buffer + committed, <size_t>(wrote - committed), committed)
    if rc == RC_OK:
        rc_raise_i64(&f.committed, wrote)
    return rc


cdef int file_flush(FileState* f, int64_t upto) noexcept nogil:
    """Make the file durable up to `upto`, which is at most wrote. One thread at a time.

    The flushed position moves only after the sync, and only forward. Returns 0, an errno, or RC_FILE_CUT.
    """
    cdef int rc = RC_OK
    if f.flushed >= upto:
        return RC_OK
    if f.buffer != NULL:
        if rc_load_i64(&f.committed) < upto:
            rc = file_commit(f)
        if rc == RC_OK:
            rc = rc_sync_file(f.fd)
    else:
        rc = rc_sync_map(f.base, <size_t>f.flushed, <size_t>upto)
    if rc == RC_OK:
        rc = f.lost
    # A sync of missing pages succeeds. Do not call fstat here: it makes the next fdatasync write the timestamps too.
    if rc == RC_OK and (f.cut != 0 or (f.fd >= 0 and lseek(f.fd, 0, SEEK_END) < <int64_t>f.size)):
        rc = RC_FILE_CUT
    if rc == RC_OK:
        rc_store_i64(&f.flushed, upto)
    return rc


cdef int file_append(FileState* f, const uint8_t* data, size_t size) noexcept nogil:
    """Copy bytes to the end. The caller is the only writer. Return RC_OK, RC_FILE_CUT, or RC_NO_ROOM if they do not
    fit."""
    cdef rc_guard guard
    cdef int64_t pos = f.wrote
    if size > f.size - <size_t>pos:
        return RC_NO_ROOM
    enter_writing(&guard, f.base, f.size, &f.cut)
    memcpy((f.base if f.buffer == NULL else f.buffer) + pos, data, size)
    guard_leave(&guard)
    if f.cut != 0:
        return RC_FILE_CUT
    rc_store_i64(&f.wrote, pos + <int64_t>size)
    return RC_OK


cdef int file_room(FileState* f, int64_t pos, int64_t stop, bint empty) noexcept nogil:
    """Allocate disk space for [pos, stop) of a mapped FILE_SPARSE, and prepare its pages. Only the owner may call it.

    pos, stop  page boundaries, or the end of the file
    empty      the range contains only zeros and no thread writes there: write zeros in blocks, which the page cache
               keeps whole
    Returns 0, an errno, or RC_FILE_CUT.
    """
    cdef rc_guard guard
    cdef int rc, fd = rc_open_file(f.path, O_RDWR)
    if fd < 0:
        return c_errno
    if lseek(fd, 0, SEEK_END) < <off_t>f.size:
        rc = RC_FILE_CUT
    elif empty:
        rc = rc_write_zeros(fd, <size_t>pos, <size_t>stop, ROOM_BLOCK_BYTES)
    else:
        rc = rc_allocate_range(fd, pos, stop)
    close_file(fd)
    if rc == RC_OK:
        enter_writing(&guard, f.base, f.size, &f.cut)
        rc = rc_populate(f.base, <size_t>pos, <size_t>stop)
        guard_leave(&guard)
    return rc


cdef int file_clear(FileState* f, int64_t pos) noexcept nogil:
    """Clear a FILE_SPARSE from pos to its end, durably. Whole pages there lose their disk space."""
    cdef int rc, fd = rc_open_file(f.path, O_RDWR)
    if fd < 0:
        return c_errno
    rc = rc_clear_from(fd, pos, <int64_t>f.size)
    if rc == RC_OK:     # after a power cut, the data of another log must not reappear
        rc = rc_sync_file(fd)
    close_file(fd)
    return rc


cdef int file_fill(FileState* f) noexcept nogil:
    """Allocate disk space for the holes that a full disk left in a mapped FILE_WHOLE. Return RC_OK or an errno."""
    cdef int rc = rc_allocate(f.fd, f.size)
    f.holes = f.holes if rc != RC_OK else 0
    return rc


cdef void file_free_rest(FileState* f, int64_t stop) noexcept nogil:
    """Free the disk space that was allocated ahead of the writer: the whole pages from `stop` to the end of the file.

    No thread writes to the file any more, and there are only zeros from `stop` on. A hint: errors are ignored.
    """
    cdef int fd = f.fd
    if f.cut != 0 or f.kind == FILE_READ:
        return
    if fd < 0:
        fd = rc_open_file(f.path, O_RDWR)
    if fd >= 0:
        rc_free_space(fd, stop, <int64_t>f.size)
    if fd >= 0 and fd != f.fd:
        close_file(fd)


cdef int64_t file_data_end(FileState* f) noexcept nogil:
    """Return where the last part of a file that is not a hole ends, or -errno."""
    cdef int64_t end
    cdef int fd = rc_open_file(f.path, O_RDONLY)
    if fd < 0:
        return -c_errno
    end = rc_data_end(fd)
    close_file(fd)
    return end


cdef int check_held(View view) except -1:
    if view._file == NULL:
        raise ClosedError("this view of a mapped file was released")
    return 0


cdef class View:
    """Bytes of a mapped file, without a copy: memoryview(view). It keeps the map until release() or its deletion.

    start  offset of its first byte in the queue
    """

    def __dealloc__(self):
        self._release()

    cdef void _release(self) noexcept:
        cdef FileState* f = self._file
        self._file = NULL
        if f != NULL:
            file_release(f)
            file_drop(f)

    def release(self):
        """Release the map. A second call does nothing. Raises BufferError while a memoryview of it is in use."""
        if self._exports > 0:
            raise BufferError(f"{self._exports} memoryviews of this view are still in use")
        self._release()

    def is_in_memory(self):
        """Whether the first 256 KiB are in memory, so that reading them does not wait for a disk.

        True, too, where the system does not say. Raises ClosedError after release().
        """
        cdef size_t start
        check_held(self)
        start = <size_t>(self.data - <const uint8_t*>self._file.base)
        return rc_is_resident(self._file.base, start, start + <size_t>self._size) != 0

    def load(self):
        """Read the bytes from the disk into memory, without the GIL: for a thread. Raises ClosedError after release().

        Bytes that another process has cut off are not read.
        """
        cdef rc_guard guard
        check_held(self)
        install()
        self._exports += 1          # no other thread releases the map
        try:
            with nogil:
                enter_writing(&guard, self._file.base, self._file.size, &self._file.cut)
                rc_touch(self.data, <size_t>self._size)
                guard_leave(&guard)
        finally:
            self._exports -= 1

    def __len__(self):
        return self._size

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.release()

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        check_held(self)
        PyBuffer_FillInfo(buffer, self, <void*>self.data, self._size, 1, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._exports -= 1


cdef View view_of(FileState* f, int64_t pos, int64_t size):
    """Create a view of [pos, pos + size), which the caller has checked and holds. The view takes over the hold."""
    cdef View view = View.__new__(View)
    rc_add_i64(&f.pointers, 1)
    view._file = f
    view.data = f.base + pos
    view._size = size
    view.start = f.start + pos
    return view


cdef class AppendFile:
    """One mapped file on its own: create it at its full length, append, flush, view, delete.

    path    str or os.PathLike; its last part is the offset of the file's first byte, in decimal
    size    bytes, fixed
    buffer  write records to memory first; commit() writes them to the file (RocketMQ's transient pool)
    Raises StoreFullError if the disk has too little space, otherwise StoreIOError. No file is left behind then.
    """
    cdef FileState* _f
    cdef str _path
    cdef bytearray _buffer

    def __cinit__(self, path, Py_ssize_t size, *, bint buffer=False):
        cdef int rc
        self._path = os.fspath(path)
        if size <= 0 or size > INT32_MAX:
            raise ValueError(f"size={size}: a mapped file has 1 to {INT32_MAX} bytes")
        install()
        self._f = file_new(os.fsencode(self._path), int(os.path.basename(self._path)), <size_t>size)
        if self._f == NULL:
            raise MemoryError
        with nogil:
            rc = file_create(self._f)
        check_file(rc, self._path)
        if buffer:
            self._buffer = bytearray(size)
            self._f.buffer = self._buffer

    def __dealloc__(self):
        if self._f != NULL:
            file_shutdown(self._f)
            file_drop(self._f)

    cdef int _hold(self) except -1:
        if not file_hold(self._f):
            raise ClosedError(f"{self._path} is shut down")
        return 0

    def append(self, const uint8_t[::1] data not None):
        """Copy bytes to the end. Return False if they do not fit. Raises StoreIOError if the file was cut short."""
        cdef int rc = RC_OK
        self._hold()
        if data.shape[0] > 0:
            rc = file_append(self._f, &data[0], <size_t>data.shape[0])
        file_release(self._f)
        if rc == RC_NO_ROOM:
            return False
        check_file(rc, self._path)
        return True

    def commit(self):
        """Write the bytes of the buffer to the file. Return the committed position."""
        cdef int rc
        self._hold()
        with nogil:
            rc = file_commit(self._f)
        file_release(self._f)
        check_file(rc, self._path)
        return file_readable(self._f)

    def flush(self, int64_t least_pages=0):
        """Make the readable bytes durable if there are at least least_pages new pages. Return the flushed position."""
        cdef int rc = RC_OK
        cdef int64_t upto = file_readable(self._f)
        if not can_flush(upto, self._f.flushed, <int64_t>self._f.size, least_pages):
            return self._f.flushed
        self._hold()
        with nogil:
            rc = file_flush(self._f, upto)
        file_release(self._f)
        check_file(rc, self._path)
        return self._f.flushed

    def select(self, int64_t pos, size=None):
        """A View of [pos, pos + size), or up to the readable end. None if it is not readable, or the file is shut
        down."""
        cdef int64_t readable = file_readable(self._f), length
        if pos < 0 or pos > readable or (size is None and pos == readable):
            return None
        length = readable - pos if size is None else size
        if length < 0 or length > readable - pos or not file_hold(self._f):
            return None
        return view_of(self._f, pos, length)

    def shutdown(self):
        """Prevent new views. Return True if there are none left and the file is unmapped."""
        return file_shutdown(self._f)

    def destroy(self):
        """Do shutdown(), and delete the file if there are no views. Return whether it is deleted; if not, try again
        later."""
        if not file_shutdown(self._f):
            return False
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        return True

    @property
    def wrote(self):
        return self._f.wrote

    @property
    def committed(self):
        return self._f.committed

    @property
    def flushed(self):
        return self._f.flushed

    @property
    def is_full(self):
        return self._f.wrote == <int64_t>self._f.size
