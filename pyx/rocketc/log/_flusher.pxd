"""Making the log durable: group commit, flush in the background, and who waits for it."""
from libc.stdint cimport int64_t

from rocketc.c.histogram cimport rc_histogram
from rocketc.c.service cimport pthread_cond_t, pthread_mutex_t, rc_service
from rocketc.files._allocator cimport Allocator
from rocketc.files._file_queue cimport FileQueue

ctypedef struct Flusher:
    rc_service service      # the thread that flushes by itself
    rc_service committer    # the thread that moves buffers into files; only with a pool
    pthread_mutex_t mutex   # flushing; `done` waits with it
    pthread_mutex_t committing  # a buffer is moved into its file, or taken from it
    pthread_cond_t done[2]  # of flushes with even and with odd numbers: ended, or the store failed
    int64_t turn            # the number of the last flush that began
    int64_t upto            # what it makes durable, at least
    FileQueue* q
    Allocator* allocator    # takes back the buffers of files that are full and durable; NULL: no pool
    bint flushing           # somebody flushes: nobody else does
    int64_t failed          # the first errno or code of a flush, a write or a close; 0: none. Never goes back
    const char* failed_path  # the file it was about, or NULL; set before failed
    int64_t asked           # 1 while the thread has a wake-up before it
    void* position          # the Position that each flush moves; its owner's
    void* confirmed         # another one, which learns that the store has failed
    int64_t took            # ns: the last flush that did something
    bint sync
    bint timed              # the thread sleeps its whole interval, whoever wakes it
    int64_t interval_ns
    int64_t thorough_ns
    int64_t least_pages
    int64_t commit_interval_ns
    int64_t commit_thorough_ns
    int64_t commit_least_pages
    int checkpoint_fd       # -1: none
    pthread_mutex_t telling  # the checkpoint
    int64_t checkpoint[5]   # its fields as they were written; the first is ours
    int64_t noted[5]        # as others want them
    int64_t told            # the flushed physical offset that was written with them; -1: none yet
    int64_t queued          # physical offset up to which queues and index are durable; -1: it is not known
    int64_t told_queued     # as it was written
    int64_t flushes         # that did something
    int64_t flushed_bytes
    int64_t commits
    int64_t slow            # those of them that took longer than SLOW_NS
    int64_t news            # 1: something for the log of the library has happened; whoever puts next sees to it
    int64_t slow_ns         # test hook: each flush takes so much longer
    # When each interval of a store without threads began: ns of its clock
    int64_t since_flush
    int64_t since_thorough
    int64_t since_commit
    int64_t since_commit_thorough
    int64_t since_checkpoint    # in sync mode
    rc_histogram latency    # of each flush

cdef int flusher_init(Flusher* fl, FileQueue* q, void* position, void* confirmed) noexcept nogil
cdef int flusher_start(Flusher* fl) noexcept nogil
cdef int flusher_stop(Flusher* fl) noexcept nogil
cdef void flusher_destroy(Flusher* fl) noexcept nogil
cdef void flusher_fail(Flusher* fl, int rc, const char* path) noexcept nogil
cdef void flusher_wake(Flusher* fl) noexcept nogil
cdef int flusher_wait(Flusher* fl, int64_t stop, int64_t until_ns, int64_t slice_ns) noexcept nogil
cdef int flusher_flush(Flusher* fl, int64_t least_pages) noexcept nogil
cdef void flusher_note(Flusher* fl, int64_t timestamp, int64_t queued, int64_t index_timestamp) noexcept nogil
cdef int flusher_checkpoint(Flusher* fl) noexcept nogil
cdef void flusher_begin(Flusher* fl, int64_t now_ns) noexcept nogil
cdef bint flusher_step(Flusher* fl, int64_t now_ns) noexcept nogil


cdef inline bint is_due(int64_t* since, int64_t now, int64_t interval) noexcept nogil:
    """Whether so much time has passed since an interval began: the next one begins then. Where the clock has gone back
    it begins anew."""
    if now < since[0]:
        since[0] = now
    if now - since[0] < interval:
        return False
    since[0] = now
    return True
