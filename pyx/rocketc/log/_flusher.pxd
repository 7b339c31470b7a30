"""Making the log durable: group commit, background flush, and callers that wait for a flush."""
from libc.stdint cimport int64_t

from rocketc.c.histogram cimport rc_histogram
from rocketc.c.service cimport pthread_cond_t, pthread_mutex_t, rc_service
from rocketc.files._allocator cimport Allocator
from rocketc.files._file_queue cimport FileQueue

ctypedef struct Flusher:
    rc_service service      # the flush thread
    rc_service committer    # the thread that writes buffers into files; only with a pool
    pthread_mutex_t mutex   # guards a flush; `done` waits with it
    pthread_mutex_t committing  # held while a buffer is written into its file or detached
    pthread_cond_t done[2]  # flushes with even and odd numbers: one has ended, or the store has failed
    int64_t turn            # number of the last flush that began
    int64_t upto            # at least these bytes become durable in it
    FileQueue* q
    Allocator* allocator    # gets back the buffers of full, durable files; NULL: no pool
    bint flushing           # a thread is flushing
    int64_t failed          # first errno or code of a failed flush, write or close; 0: none. Never reset
    const char* failed_path  # the file that failed, or NULL; set before failed
    int64_t asked           # 1: the thread has been woken and has not started yet
    void* position          # the Position that each flush advances; borrowed
    void* confirmed         # another Position that learns of a failure; borrowed
    void* written           # the Position that follows each commit of the pool; borrowed; NULL: no pool
    int64_t took            # ns; the last flush that wrote something
    bint sync
    bint timed              # the thread sleeps its whole interval, even if woken
    int64_t interval_ns
    int64_t thorough_ns
    int64_t least_pages
    int64_t commit_interval_ns
    int64_t commit_thorough_ns
    int64_t commit_least_pages
    int checkpoint_fd       # -1: none
    pthread_mutex_t checkpoint_mutex  # guards the checkpoint
    int64_t checkpoint[5]   # its fields as written; the first is set here
    int64_t noted[5]        # its fields as other modules want them
    int64_t saved_flushed   # the flushed physical offset written with them; -1: none yet
    int64_t queued          # physical offset up to which queues and index are durable; -1: unknown
    int64_t saved_queued    # queued, as written
    int64_t far             # bytes of the log after which the checkpoint is written before its interval has ended
    int64_t indexed         # end of the index when it was durable up to `queued`, as checkpoint_write() takes it
    int64_t flushes         # flushes that wrote something
    int64_t flushed_bytes
    int64_t commits
    int64_t slow            # flushes that took longer than SLOW_NS
    int64_t slow_commits    # commits that took longer than SLOW_NS
    int64_t slow_commit_ns  # of the last of them: its duration, its bytes, and where they end. Guarded by `committing`
    int64_t slow_commit_bytes
    int64_t slow_commit_end
    int64_t committed       # all bytes before this physical offset are committed. Guarded by `committing`
    int64_t timeouts        # calls that returned FLUSH_DISK_TIMEOUT
    int64_t news            # 1: an event waits to be logged; the next put logs it
    int64_t slow_ns         # test hook: added to each flush
    int64_t commit_ns       # test hook: added to each commit
    # Begin of each interval in a store without threads: ns of the store's clock
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
cdef int flusher_commit(Flusher* fl) noexcept nogil
cdef void flusher_note(
    Flusher* fl, int64_t timestamp, int64_t queued, int64_t indexed, int64_t index_timestamp,
) noexcept nogil
cdef int flusher_checkpoint(Flusher* fl) noexcept nogil
cdef int flusher_checkpoint_if_far(Flusher* fl) noexcept nogil
cdef void flusher_begin(Flusher* fl, int64_t now_ns) noexcept nogil
cdef bint flusher_step(Flusher* fl, int64_t now_ns) noexcept nogil


cdef inline bint is_due(int64_t* since, int64_t now, int64_t interval) noexcept nogil:
    """Return whether an interval has passed, and begin the next one if it has. If the clock has gone back, the interval
    begins again."""
    if now < since[0]:
        since[0] = now
    if now - since[0] < interval:
        return False
    since[0] = now
    return True
