# cython: language_level=3
"""Prepares new files outside the put path: the next file, and the next pages of the current file.

A C thread creates the next file as soon as one is taken, so a roll only takes a pointer. It also prepares the pages
ahead of the writer, because the first write to a page enters the kernel. It writes zeros in blocks, then maps all of
them at once. The block size becomes the size of the page cache's folios; a sync writes whole folios, so they must be
small. Appended bytes are never overwritten: a window is claimed first, and an append into it waits
(allocator_reserve).
Source: RocketMQ AllocateMappedFileService, TransientStorePool.
"""
from libc.errno cimport ENOBUFS, ENOMEM, ETIMEDOUT
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport usleep

from rocketc.c.atomic cimport rc_count_i64, rc_load_i64, rc_store_i64
from rocketc.c.service cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_unlock, rc_clock_ns, rc_cond_init, rc_cond_wait, rc_service_destroy, rc_service_init,
    rc_service_start, rc_service_stop, rc_service_wait, rc_service_wake,
)
from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_forget_cache, rc_map_lock, rc_map_own, rc_unmap
from rocketc.files._append_file cimport (
    FileState, RC_OS_PAGE_BYTES, file_create, file_drop, file_hold, file_lock, file_new, file_prepare, file_release,
    file_shutdown, file_unlink,
)
from rocketc.files._file_queue cimport FileQueue, KEPT, queue_path, queue_unlock, queue_unmap, sync_folder_of

cdef enum:
    WINDOW_BYTES = 512 << 10    # prepared at a time; the longest that an append into it waits for
    SYNC_WINDOW_BYTES = 4 << 20     # each window is synced too, which costs nearly the same for few and for many bytes
    LARGE_GROUP_BYTES = 64 << 10    # larger flushes write whole blocks anyway, so synced zeros would be wasted work
    PATH_BYTES = 4096
    IDLE_NS = 1000000000        # interval at which a failed file is tried again, besides each request for it


cdef int allocator_init(Allocator* a, FileQueue* q) noexcept nogil:
    """Initialize `a`, which must be zero bytes. allocator_destroy() undoes it."""
    cdef int rc = rc_service_init(&a.service)
    if rc == RC_OK:
        rc = pthread_mutex_init(&a.mutex, NULL)
    if rc == RC_OK:
        rc = rc_cond_init(&a.answered)
    a.q = q
    a.wanted = -1
    return rc


cdef void note_unlocked(Allocator* a, int rc) noexcept nogil:
    """Count a failure to lock a file or a buffer in memory. The first one is logged: the store works without it."""
    if a.lock_failures == 0:
        a.lock_error = rc
        a.lock_bytes = a.q.file_size
        if a.news != NULL:
            rc_store_i64(a.news, 1)
    rc_count_i64(&a.lock_failures, 1)


cdef int allocator_pool(Allocator* a, int count) noexcept nogil:
    """Create a pool of `count` buffers of the file size for new files, locked in memory if this process may lock as
    much. Return RC_OK or ENOMEM."""
    cdef int rc
    a.pooled = True
    a.buffers = <uint8_t**>calloc(<size_t>count, sizeof(uint8_t*))
    if a.buffers == NULL:
        return ENOMEM
    while a.buffer_count < count:
        rc = rc_map_own(<size_t>a.q.file_size, &a.buffers[a.buffer_count])
        if rc != RC_OK:
            return rc
        rc = rc_map_lock(a.buffers[a.buffer_count], <size_t>a.q.file_size)
        if rc == RC_OK:
            a.buffers_locked += a.q.file_size
        else:
            note_unlocked(a, rc)
        a.buffer_count += 1
        a.buffers_free += 1
    return RC_OK


cdef void allocator_destroy(Allocator* a) noexcept nogil:
    """Free everything. The thread must be stopped, and no file may have a buffer of the pool."""
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
    """Join the thread. Delete a file that was created but not taken."""
    rc_service_stop(&a.service)
    discard(a, a.ready)
    a.ready = a.current = NULL
    a.wanted = -1


cdef void discard(Allocator* a, FileState* f) noexcept nogil:
    """Delete a file that no other thread has seen."""
    if f == NULL:
        return
    if f.buffer != NULL:
        allocator_return(a, f.buffer)
    file_unlink(f)
    file_shutdown(f)
    file_drop(f)


cdef int allocator_take(Allocator* a, int64_t start, int64_t timeout_ns, FileState** file) noexcept nogil:
    """Return the file that begins at start, created and mapped; the caller owns it. Start creating the next file.

    Returns RC_OK; the errno of an attempt that began after the call; or ETIMEDOUT, and then the file may be ready
    later.
    """
    cdef int64_t until = rc_clock_ns() + timeout_ns, now, tries
    cdef FileState* stale = NULL
    cdef int rc = RC_OK
    pthread_mutex_lock(&a.mutex)
    if a.ready != NULL and a.ready.start != start:
        stale = a.ready
        a.ready = NULL
        pthread_mutex_unlock(&a.mutex)
        discard(a, stale)           # before the new file exists: a crash in between must not leave a gap
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
    """Stop preparing pages in the current file, and do not create a file after it: the file is given up."""
    pthread_mutex_lock(&a.mutex)
    a.current = NULL
    a.wanted = -1
    pthread_mutex_unlock(&a.mutex)


cdef void allocator_follow(Allocator* a, FileState* f) noexcept nogil:
    """Prepare the pages ahead of the writer of f, a mapped file, and create the file after it. NULL: create the
    first."""
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
        rc_forget_cache(f.fd, <size_t>f.ready)      # pages that recovery read ahead are in large folios
    a.current = f
    a.wanted = f.start + a.q.file_size
    pthread_mutex_unlock(&a.mutex)
    rc_service_wake(&a.service)


cdef void allocator_return(Allocator* a, uint8_t* buffer) noexcept nogil:
    """Return a buffer to the pool. It is not cleared."""
    pthread_mutex_lock(&a.mutex)
    a.buffers[a.buffers_free] = buffer
    a.buffers_free += 1
    pthread_mutex_unlock(&a.mutex)


cdef int borrow(Allocator* a, FileState* f) noexcept nogil:
    """Give f a buffer if there is a pool. Return ENOBUFS if none is free and fail_fast is set."""
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


cdef void lock_map(Allocator* a, FileState* f) noexcept nogil:
    cdef int rc = file_lock(f, &a.q.locked)
    if rc != RC_OK:
        note_unlocked(a, rc)


cdef bint unlock_behind(Allocator* a) noexcept nogil:
    """Unlock the files before the one that is written to. Return whether there were any.

    So at most two files are locked: this one and the next one. If there was no room to lock this one, there may be now.
    RocketMQ does this 6 s later, and only with warmMapedFileEnable. Source: RocketMQ CommitLog.putMessage,
    FlushCommitLogService.unlockMappedFile.
    """
    cdef FileState* f
    cdef int64_t since = a.unlocked, upto = 0
    if not a.lock:
        return False
    pthread_mutex_lock(&a.mutex)
    f = a.current
    if f != NULL and f.start > since and file_hold(f):
        a.unlocked = upto = f.start
    pthread_mutex_unlock(&a.mutex)
    if upto == 0:
        return False
    queue_unlock(a.q, since, upto)
    if f.locked_in == NULL:
        lock_map(a, f)
    file_release(f)
    return True


cdef int make(Allocator* a, int64_t start, FileState** file) noexcept nogil:
    """Create and map the file that begins at start, with a durable name and its first pages prepared."""
    cdef char path[PATH_BYTES]
    cdef FileState* f
    cdef int64_t first, window, stop, slow_ns = rc_load_i64(&a.make_ns)
    cdef int rc = queue_path(a.q, start, path, PATH_BYTES)
    if rc != RC_OK:
        return rc
    if slow_ns > 0:
        usleep(<unsigned int>(slow_ns // 1000))
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
    window = min(a.warm_bytes, first) if a.warm and a.durable else first
    while rc == RC_OK and f.buffer == NULL and f.ready < first:
        stop = min(f.ready + window, first)
        rc = file_prepare(f, f.ready, stop, a.block, a.durable)
        f.ready = f.claimed = stop
    if f.buffer != NULL:
        f.ready = f.claimed = <int64_t>f.size   # also once the buffer is returned: zeros would overwrite messages
    if rc != RC_OK:
        discard(a, f)
        return rc
    if a.lock:
        lock_map(a, f)
    f.wake_at = 0 if a.ahead > 0 and f.buffer == NULL else INT64_MAX
    file[0] = f
    return RC_OK


cdef bint go_ahead(Allocator* a) noexcept nogil:
    """Prepare the next window ahead of the writer. Return True if there may be more to do."""
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
        f.lost = rc                     # the next flush reports it, even if its own sync succeeds
    pthread_mutex_lock(&a.mutex)
    f.claimed = stop if rc == RC_OK else <int64_t>f.size
    rc_store_i64(&f.ready, f.claimed)
    pthread_cond_broadcast(&a.answered)
    pthread_mutex_unlock(&a.mutex)
    file_release(f)
    return True


cdef void allocator_reserve(Allocator* a, FileState* f, int64_t stop) noexcept nogil:
    """Reserve the bytes up to `stop`, beyond the prepared pages, for the writer of f: no other thread writes there.

    Waits while a window is being prepared. The remaining pages are prepared by the write itself.
    """
    pthread_mutex_lock(&a.mutex)
    if f.claimed > f.ready and stop > f.ready:
        a.waited_since = rc_clock_ns()
        while f.claimed > f.ready and stop > f.ready:
            rc_cond_wait(&a.answered, &a.mutex, IDLE_NS)
        a.waited_ns = rc_clock_ns() - a.waited_since
    if stop > f.ready:
        f.claimed = min((stop + RC_OS_PAGE_BYTES - 1) // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES, <int64_t>f.size)
        rc_store_i64(&f.ready, f.claimed)
    pthread_mutex_unlock(&a.mutex)


cdef bint make_wanted(Allocator* a) noexcept nogil:
    """Create the wanted file if it does not exist, or store the error. Return whether it was created."""
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
    if rc == ENOMEM and queue_unmap(a.q, KEPT, NULL) > 0:     # too many maps, or no address space
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
    """Do the pending work of the thread on the caller's thread. Return whether pages or a file were prepared."""
    cdef bint made = unlock_behind(a)
    while a.ahead > 0 and go_ahead(a):
        made = True
    return make_wanted(a) or made


cdef void* run(void* argument) noexcept nogil:
    cdef Allocator* a = <Allocator*>argument
    cdef bint more = False
    while not rc_service_wait(&a.service, 0 if more else IDLE_NS):
        more = a.ahead > 0 and go_ahead(a)
        unlock_behind(a)
        make_wanted(a)
    return NULL
