"""One mapped file that grows at its end: append, flush, holds."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.atomic cimport rc_load_i64

cdef enum:
    RC_OS_PAGE_BYTES = 4096     # RocketMQ counts in these, whatever the system's pages are

cdef enum FileKind:
    FILE_WHOLE = 0              # all of it has room on the disk before anybody writes; its descriptor stays open
    FILE_SPARSE = 1             # room is made in front of the writer, by file_room: there may be many such files
    FILE_READ = 2               # somebody else writes it

# What the threads of a store share of a file. Positions are bytes from the file's start; wrote >= committed >= flushed.
ctypedef struct FileState:
    uint8_t* base           # the whole file, mapped to be written; NULL before file_map and after the last hold
    uint8_t* buffer         # records are laid here first, if not NULL: memory of the pool, as large as the file
    size_t size             # bytes of the file, fixed
    int64_t start           # offset of its first byte in its queue: its name
    int64_t wrote           # end of the last whole record; stored last, with release
    int64_t committed       # moved from the buffer into the file; without a buffer nobody looks at it
    int64_t flushed         # durable up to here
    int64_t ready           # who appends may write before it without a look at the allocator
    int64_t claimed         # the allocator writes zeros into [ready, claimed) right now, if that is not empty
    int64_t wake_at         # once wrote is here, more pages should be made ready
    int64_t store_timestamp  # ms, of the last record
    int64_t holds           # views and calls that use base, 1 for the owner until file_shutdown; -1: unmapped for good
    int64_t pointers        # who may free this struct: the owner and each view
    int64_t available       # 1 until file_shutdown
    int lost                # errno of a sync that was not a flush, and failed: the kernel tells only once
    int cut                 # 1 once a page was missing: somebody cut the file short, or its disk failed
    int kind                # a FileKind
    int fd                  # -1 while not mapped, and always but for FILE_WHOLE
    char* path              # owned

cdef FileState* file_new(const char* path, int64_t start, size_t size) noexcept nogil
cdef int file_create(FileState* f) noexcept nogil
cdef int file_map(FileState* f) noexcept nogil
cdef void file_unmap(FileState* f) noexcept nogil
cdef bint file_hold(FileState* f) noexcept nogil
cdef void file_release(FileState* f) noexcept nogil
cdef void file_drop(FileState* f) noexcept nogil
cdef bint file_shutdown(FileState* f) noexcept nogil
cdef int file_unlink(FileState* f) noexcept nogil
cdef int file_prepare(FileState* f, int64_t start, int64_t stop, size_t block, bint durable) noexcept nogil
cdef int file_commit(FileState* f) noexcept nogil
cdef int file_flush(FileState* f, int64_t upto) noexcept nogil
cdef int file_append(FileState* f, const uint8_t* data, size_t size) noexcept nogil
cdef int file_room(FileState* f, int64_t pos, int64_t stop, bint empty) noexcept nogil
cdef int file_clear(FileState* f, int64_t pos) noexcept nogil
cdef int64_t file_data_end(FileState* f) noexcept nogil


cdef inline int64_t file_readable(FileState* f) noexcept nogil:
    """How far the file can be read: what a buffer still has is not in it."""
    return rc_load_i64(&f.wrote) if f.buffer == NULL else rc_load_i64(&f.committed)


cdef inline bint can_flush(int64_t upto, int64_t done, int64_t size, int64_t least_pages) noexcept nogil:
    """RocketMQ's rule for flush and commit: a full file always, else so many more of its pages."""
    if least_pages <= 0 or upto == size:
        return upto > done
    return upto // RC_OS_PAGE_BYTES - done // RC_OS_PAGE_BYTES >= least_pages


cdef class View:
    cdef:
        FileState* _file        # NULL once released
        const uint8_t* data
        Py_ssize_t _size
        Py_ssize_t _exports     # buffers that Python objects have of it
        readonly long long start
    cdef void _let_go(self) noexcept

cdef View view_of(FileState* f, int64_t pos, int64_t size)
