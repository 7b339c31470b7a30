# cython: language_level=3
"""New files made ready off the put path: the next file before it is asked for, and the next pages of this one.

A thread without Python makes the file that follows as soon as one is taken, so that a roll takes a pointer and no more.
It also makes the pages in front of the writer ready, because the first write to a page costs a trip into the kernel:
zeros in blocks, whose size becomes that of the page cache's folios (a sync writes whole folios, so they must be small),
then mapped all at once. Nothing is written over what was appended: a window is claimed before, and who appends into it
waits (allocator_reserve).
Source: RocketMQ AllocateMappedFileService, TransientStorePool.
"""
from libc.errno cimport ENOBUFS, ENOMEM, ETIMEDOUT
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.service cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_unlock, rc_clock_ns, rc_cond_init, rc_cond_wait, rc_service_destroy, rc_service_init,
    rc_service_start, rc_service_stop, rc_service_wait, rc_service_wake,
)
from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_forget_cache, rc_map_lock, rc_map_own, rc_unmap
from rocketc.files._append_file cimport (
    FileState, RC_OS_PAGE_BYTES, file_create, file_drop, file_hold, file_new, file_prepare, file_release,
    file_shutdown, file_unlink,
)
from rocketc.files._file_queue cimport FileQueue, KEPT, queue_path, queue_unmap, sync_folder_of

cdef enum:
    WINDOW_BYTES = 512 << 10    # made ready at a time: so long at most waits an appender that catches up
    SYNC_WINDOW_BYTES = 4 << 20     # each is synced, too, which costs much the same for few bytes and for many
    LARGE_GROUP_BYTES = 64 << 10    # larger flushes write whole blocks anyway: zeros on the disk before would be waste
    PATH_BYTES = 4096
    IDLE_NS = 1000000000        # a failed file is tried again this often, and when it is asked for


cdef int allocator_init(Allocator* a, FileQueue* q) noexcept nogil:
    """Make `a` (zero bytes) ready to start; undone by allocator_destroy."""
    cdef int rc = rc_service_init(&a.service)
    if rc == RC_OK:
        rc = pthread_mutex_init(&a.mutex, NULL)
    if rc == RC_OK:
        rc = rc_cond_init(&a.answered)
    a.q = q
    a.wanted = -1
    return rc


cdef int allocator_pool(Allocator* a, int count) noexcept nogil:
    """Give the next files a buffer each, out of `count` of the size of a file, locked in memory. RC_OK or ENOMEM."""
    cdef int rc
    a.pooled = True
    a.buffers = <uint8_t**>calloc(<size_t>count, sizeof(uint8_t*))
    if a.buffers == NULL:
        return ENOMEM
    while a.buffer_count < count:
        rc = rc_map_own(<size_t>a.q.file_size, &a.buffers[a.buffer_count])
        if rc != RC_OK:
            return rc
        rc_map_lock(a.buffers[a.buffer_count], <size_t>a.q.file_size)
        a.buffer_count += 1
        a.buffers_free += 1
    return RC_OK


cdef void allocator_destroy(Allocator* a) noexcept nogil:
    """Free what init and pool made. The thread is stopped, and no file has a buffer of the pool any more."""
    cdef int i
    for i in range(a.buffers_free):
        rc_unmap(a.buffers[i], <size_t>a.q.file_size)
    free(a.buffers)
    pthread_cond_destroy(&a.answered)
    pthread_mutex_destroy(&a.mutex)
    rc_service_destroy(&a.service)


cdef int allocator_start(Allocator* a) noexcept nogil:
    return rc_service_start(&a.service, run, a)


cdef void allocator_stop(Allocator* a) noexcept nogil:
    """Join the thread; a file that was made and not taken is deleted."""
    rc_service_stop(&a.service)
    discard(a, a.ready)
    a.ready = a.current = NULL
    a.wanted = -1


cdef void discard(Allocator* a, FileState* f) noexcept nogil:
    """Delete a file that nobody has seen."""
    if f == NULL:
        return
    if f.buffer != NULL:
        allocator_return(a, f.buffer)
    file_unlink(f)
    file_shutdown(f)
    file_drop(f)


cdef int allocator_take(Allocator* a, int64_t start, int64_t timeout_ns, FileState** file) noexcept nogil:
    """The file that begins at start, made and mapped; the caller owns it. The one behind it is begun at once.

    Returns RC_OK; what making it said (an errno) in a try that began after the call; or ETIMEDOUT, and it may be had
    later then.
    """
    cdef int64_t until = rc_clock_ns() + timeout_ns, now, tries
    cdef FileState* stale = NULL
    cdef int rc = RC_OK
    pthread_mutex_lock(&a.mutex)
    if a.ready != NULL and a.ready.start != start:
        stale = a.ready
        a.ready = NULL
        pthread_mutex_unlock(&a.mutex)
        discard(a, stale)           # before the other is there: a crash in between must leave no gap in the row
        pthread_mutex_lock(&a.mutex)
    if a.ready == NULL:
        a.wanted = start
        tries = a.tries
        if a.stepped:
            pthread_mutex_unlock(&a.mutex)
            make_wanted(a)
            pthread_mutex_lock(&a.mutex)
        rc_service_wake(&a.service)
        while a.ready == NULL and a.error_of <= tries:
            now = rc_clock_ns()
            if now >= until:
                break
            rc_cond_wait(&a.answered, &a.mutex, until - now)
        if a.ready == NULL:
            rc = a.error if a.error_of > tries else ETIMEDOUT
    if a.ready != NULL:
        file[0] = a.ready
        a.current = a.ready
        a.ready = NULL
        a.wanted = start + a.q.file_size
        rc_service_wake(&a.service)
    pthread_mutex_unlock(&a.mutex)
    return rc


cdef void allocator_leave(Allocator* a) noexcept nogil:
    """The file that is written to is given up: no more is made ready in it, and no file behind it."""
    pthread_mutex_lock(&a.mutex)
    a.current = NULL
    a.wanted = -1
    pthread_mutex_unlock(&a.mutex)


cdef void allocator_follow(Allocator* a, FileState* f) noexcept nogil:
    """Keep the pages in front of the writer of f, mapped, ready, and make the file behind it. NULL: make the first."""
    if f == NULL:
        pthread_mutex_lock(&a.mutex)
        a.wanted = 0
        pthread_mutex_unlock(&a.mutex)
        rc_service_wake(&a.service)
        return
    pthread_mutex_lock(&a.mutex)
    f.ready = f.claimed = min(
        (f.wrote + RC_OS_PAGE_BYTES - 1) // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES, <int64_t>f.size,
    )
    f.wake_at = 0 if a.ahead > 0 else INT64_MAX
    if f.fd >= 0:
        rc_forget_cache(f.fd, <size_t>f.ready)      # what the recovery read ahead lies there in large folios
    a.current = f
    a.wanted = f.start + a.q.file_size
    pthread_mutex_unlock(&a.mutex)
    rc_service_wake(&a.service)


cdef void allocator_return(Allocator* a, uint8_t* buffer) noexcept nogil:
    """Give a buffer back to the pool; what it holds is not cleared."""
    pthread_mutex_lock(&a.mutex)
    a.buffers[a.buffers_free] = buffer
    a.buffers_free += 1
    pthread_mutex_unlock(&a.mutex)


cdef int borrow(Allocator* a, FileState* f) noexcept nogil:
    """Give f a buffer if the store works with a pool; ENOBUFS if there is none left and that is a failure."""
    cdef int rc = RC_OK
    if not a.pooled:
        return RC_OK
    pthread_mutex_lock(&a.mutex)
    if a.buffers_free > 0:
        a.buffers_free -= 1
        f.buffer = a.buffers[a.buffers_free]
    elif a.fail_fast:
        rc = ENOBUFS
    pthread_mutex_unlock(&a.mutex)
    return rc


cdef int make(Allocator* a, int64_t start, FileState** file) noexcept nogil:
    """Make and map the file that begins at start, its name durable and its first pages ready."""
    cdef char path[PATH_BYTES]
    cdef FileState* f
    cdef int64_t first
    cdef int rc = queue_path(a.q, start, path, PATH_BYTES)
    if rc != RC_OK:
        return rc
    f = file_new(path, start, <size_t>a.q.file_size)
    if f == NULL:
        return ENOMEM
    rc = borrow(a, f)
    if rc == RC_OK:
        rc = file_create(f)
        if rc != RC_OK and f.buffer != NULL:
            allocator_return(a, f.buffer)
            f.buffer = NULL
    if rc != RC_OK:
        file_shutdown(f)
        file_drop(f)
        return rc
    rc = sync_folder_of(path)
    first = a.q.file_size if a.warm else min(a.ahead, <int64_t>SYNC_WINDOW_BYTES)
    first = min(first, a.q.file_size)
    if rc == RC_OK and f.buffer == NULL and first > 0:
        rc = file_prepare(f, 0, first, a.block, a.durable)
        f.ready = f.claimed = first
    if f.buffer != NULL:
        f.ready = f.claimed = <int64_t>f.size   # also once the buffer is taken back: zeros here would go over messages
    if rc != RC_OK:
        discard(a, f)
        return rc
    if a.lock:
        rc_map_lock(f.base, f.size)
    f.wake_at = 0 if a.ahead > 0 and f.buffer == NULL else INT64_MAX
    file[0] = f
    return RC_OK


cdef bint go_ahead(Allocator* a) noexcept nogil:
    """Make the next window in front of the writer ready; True if there may be more to do."""
    cdef FileState* f
    cdef int64_t start, stop, window
    cdef int rc
    pthread_mutex_lock(&a.mutex)
    f = a.current
    if f == NULL or f.buffer != NULL or not file_hold(f):
        pthread_mutex_unlock(&a.mutex)
        return False
    start = f.ready
    window = SYNC_WINDOW_BYTES if a.durable else WINDOW_BYTES
    stop = min((start // window + 1) * window, <int64_t>f.size)
    if start >= stop or start >= rc_load_i64(&f.wrote) + a.ahead:
        rc_store_i64(&f.wake_at, INT64_MAX if start >= stop else start - a.ahead)
        pthread_mutex_unlock(&a.mutex)
        file_release(f)
        return False
    f.claimed = stop
    pthread_mutex_unlock(&a.mutex)
    rc = file_prepare(f, start, stop, a.block, a.durable and rc_load_i64(&a.q.group) <= LARGE_GROUP_BYTES)
    if rc != RC_OK and f.lost == RC_OK:
        f.lost = rc                     # the next flush tells, even if its own sync succeeds
    pthread_mutex_lock(&a.mutex)
    f.claimed = stop if rc == RC_OK else <int64_t>f.size
    rc_store_i64(&f.ready, f.claimed)
    pthread_cond_broadcast(&a.answered)
    pthread_mutex_unlock(&a.mutex)
    file_release(f)
    return True


cdef void allocator_reserve(Allocator* a, FileState* f, int64_t stop) noexcept nogil:
    """Whoever appends to f is about to write up to `stop`, beyond what is ready: nobody else may write there.

    Waits while a window is being made; what is left then, the writer's own touch makes ready.
    """
    pthread_mutex_lock(&a.mutex)
    while f.claimed > f.ready and stop > f.ready:
        rc_cond_wait(&a.answered, &a.mutex, IDLE_NS)
    if stop > f.ready:
        f.claimed = min((stop + RC_OS_PAGE_BYTES - 1) // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES, <int64_t>f.size)
        rc_store_i64(&f.ready, f.claimed)
    pthread_mutex_unlock(&a.mutex)


cdef bint make_wanted(Allocator* a) noexcept nogil:
    """Make the file that is wanted, if it is not there yet, or note why it can't be; whether it was made."""
    cdef FileState* f = NULL
    cdef int64_t start, tries
    cdef int rc
    cdef bint made = False
    pthread_mutex_lock(&a.mutex)
    start = a.wanted if a.ready == NULL else -1
    a.tries += 1
    tries = a.tries
    pthread_mutex_unlock(&a.mutex)
    if start < 0:
        return False
    rc = make(a, start, &f)
    if rc == ENOMEM and queue_unmap(a.q, KEPT) > 0:     # no more maps, or addresses
        rc = make(a, start, &f)
    pthread_mutex_lock(&a.mutex)
    if rc != RC_OK:
        a.error = rc
        a.error_of = tries
    elif a.wanted == start:
        a.ready = f
        a.wanted = -1
        f = NULL
        made = True
    pthread_cond_broadcast(&a.answered)
    pthread_mutex_unlock(&a.mutex)
    discard(a, f)
    return made


cdef bint allocator_step(Allocator* a) noexcept nogil:
    """All that the thread would do now, in the caller's; whether pages or a file were made ready."""
    cdef bint made = False
    while a.ahead > 0 and go_ahead(a):
        made = True
    return make_wanted(a) or made


cdef void* run(void* argument) noexcept nogil:
    cdef Allocator* a = <Allocator*>argument
    cdef bint more = False
    while not rc_service_wait(&a.service, 0 if more else IDLE_NS):
        more = a.ahead > 0 and go_ahead(a)
        make_wanted(a)
    return NULL
