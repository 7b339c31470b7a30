"""Prepares new files outside the put path."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.service cimport pthread_cond_t, pthread_mutex_t, rc_service
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue

ctypedef struct Allocator:
    rc_service service
    pthread_mutex_t mutex   # guards all fields below
    pthread_cond_t answered  # ready or error was set
    FileQueue* q
    FileState* ready        # created, not taken yet
    FileState* current      # the file that is written to: pages ahead of the writer are prepared
    int64_t wanted          # offset of the file to create, -1: none
    int64_t tries           # attempts to create a file, counted when they begin
    int error               # errno of the last failed attempt
    int64_t error_of        # the number of that attempt
    int64_t ahead           # bytes after wrote whose pages are kept prepared; 0: none
    size_t block            # size of the blocks of zeros that are written there
    bint durable            # ... and synced
    bint warm               # prepare the whole file before it is used
    int64_t warm_bytes      # bytes that are prepared before each sync of a file that is warmed
    bint lock               # the file that is written to and the next one are locked in memory
    int64_t unlocked        # all files that begin before this offset are unlocked
    int64_t lock_failures   # attempts to lock memory that failed
    int lock_error          # errno of the first one
    int64_t lock_bytes      # what it was to lock
    int64_t* news           # set to 1 if there is an event to be logged
    bint pooled             # files get a buffer
    bint fail_fast          # without a free buffer creating a file fails; if not set, it is created without a buffer
    bint stepped            # no thread: allocator_step does its work, and allocator_take creates a missing file itself
    uint8_t** buffers       # of the pool: the free ones come first
    int buffer_count
    int buffers_free
    int64_t buffers_locked  # bytes of the pool that are locked in memory
    int64_t waited_since    # rc_clock_ns() when an append last began to wait for a window. Guarded by the put lock
    int64_t waited_ns       # how long it waited
    int64_t make_ns         # test hook: added to the creation of each file

cdef int allocator_init(Allocator* a, FileQueue* q) noexcept nogil
cdef int allocator_pool(Allocator* a, int count) noexcept nogil
cdef int allocator_start(Allocator* a) noexcept nogil
cdef void allocator_stop(Allocator* a) noexcept nogil
cdef bint allocator_step(Allocator* a) noexcept nogil
cdef void allocator_destroy(Allocator* a) noexcept nogil
cdef int allocator_take(Allocator* a, int64_t start, int64_t timeout_ns, FileState** file) noexcept nogil
cdef void allocator_leave(Allocator* a) noexcept nogil
cdef void allocator_follow(Allocator* a, FileState* f) noexcept nogil
cdef void allocator_reserve(Allocator* a, FileState* f, int64_t stop) noexcept nogil
cdef void allocator_return(Allocator* a, uint8_t* buffer) noexcept nogil
