"""One mapped file that grows at its end: append, flush, holds."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.atomic cimport rc_load_i64

cdef enum:
    RC_OS_PAGE_BYTES = 4096     # RocketMQ's page, whatever the page size of the system

cdef enum FileKind:
    FILE_WHOLE = 0              # all of it gets disk space before it is written; its descriptor stays open
    FILE_SPARSE = 1             # file_room allocates space ahead of the writer, because there may be many such files
    FILE_READ = 2               # another process writes it

# State of a file, shared by the threads of a store. Positions are bytes from its start; wrote >= committed >= flushed.
ctypedef struct FileState:
    uint8_t* base           # the whole file, mapped for writing; NULL before file_map and after the last hold
    uint8_t* buffer         # if not NULL, records are written here first: memory of the pool, as large as the file
    size_t size             # bytes of the file, fixed
    int64_t start           # offset of its first byte in its queue: its name
    int64_t wrote           # end of the last whole record; stored last, with release
    int64_t committed       # written from the buffer to the file; not used without a buffer
    int64_t flushed         # end of the durable bytes
    int64_t ready           # the writer may write before this position without asking the allocator
    int64_t claimed         # the allocator is writing zeros to [ready, claimed), if that is not empty
    int64_t wake_at         # when wrote reaches it, more pages should be prepared
    int64_t store_timestamp  # ms, of the last record
    int64_t holds           # views and calls that use base, plus 1 for the owner until file_shutdown; -1: unmapped
    int64_t pointers        # the owner and each view; the last one frees this struct
    int64_t available       # 1 until file_shutdown
    int64_t* locked_in      # counts the bytes of maps that are locked in memory; NULL: this map is not locked
    int lost                # errno of a failed sync that was not a flush: the kernel reports it only once
    int cut                 # 1 if a page was missing: another process cut the file short, or its disk failed
    int kind                # a FileKind
    int holes               # 1: the disk was full, so file_fill() must come before the next write
    int fd                  # -1 while not mapped, and always for other kinds than FILE_WHOLE
    char* path              # owned

cdef FileState* file_new(const char* path, int64_t start, size_t size) noexcept nogil
cdef int file_create(FileState* f) noexcept nogil
cdef int file_map(FileState* f) noexcept nogil
cdef void file_unmap(FileState* f) noexcept nogil
cdef int file_lock(FileState* f, int64_t* locked_in) noexcept nogil
cdef void file_unlock(FileState* f) noexcept nogil
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
cdef int file_fill(FileState* f) noexcept nogil
cdef void file_free_rest(FileState* f, int64_t stop) noexcept nogil
cdef int64_t file_data_end(FileState* f) noexcept nogil


cdef inline int64_t file_readable(FileState* f) noexcept nogil:
    """The end of the readable bytes: bytes that are only in a buffer are not readable."""
    return rc_load_i64(&f.wrote) if f.buffer == NULL else rc_load_i64(&f.committed)


cdef inline bint can_flush(int64_t upto, int64_t done, int64_t size, int64_t least_pages) noexcept nogil:
    """RocketMQ's rule for flush and commit: always if the file is full, otherwise after least_pages new pages."""
    if least_pages <= 0 or upto == size:
        return upto > done
    return upto // RC_OS_PAGE_BYTES - done // RC_OS_PAGE_BYTES >= least_pages


cdef inline bint can_flush_files(int64_t upto, int64_t done, int64_t file_size, int64_t least_pages) noexcept nogil:
    """can_flush() for a row of files: always if a file is full and not done, however few of its pages are left.

    upto, done  offsets; each file begins at a multiple of its size
    """
    return can_flush(upto, done, -1, least_pages) or (done < upto and done // file_size < upto // file_size)


cdef class View:
    cdef:
        FileState* _file        # NULL once released
        const uint8_t* data
        Py_ssize_t _size
        Py_ssize_t _exports     # buffers that Python objects have of it
        readonly long long start
    cdef void _release(self) noexcept

cdef View view_of(FileState* f, int64_t pos, int64_t size)
