# cython: language_level=3
"""Making the log durable: group commit, background flush, and callers that wait for a flush.

One flush at a time covers all bytes that were appended before it began. So each waiter waits for at most two flushes,
however many waiters there are. The first waiter flushes on its own thread, without a handover, and the others wait for
it. A thread without Python flushes for callers that do not wait.

The first failure is kept until the store is closed. The kernel reports a failed page only once, so a second flush that
succeeds proves nothing (promise 2). Source: RocketMQ GroupCommitService, FlushRealTimeService, CommitRealTimeService.
"""
from libc.stdint cimport int64_t, uint8_t
from posix.unistd cimport usleep

from rocketc.c.atomic cimport rc_count_i64, rc_load_i64, rc_set_once_i64, rc_store_i64
from rocketc.c.histogram cimport rc_histogram_add
from rocketc.c.service cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_signal, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock, rc_clock_ns, rc_cond_init, rc_cond_wait, rc_service_destroy,
    rc_service_init, rc_service_start, rc_service_stop, rc_service_wait, rc_service_wake,
)
from rocketc.c.status cimport RC_FLUSH_TIMEOUT, RC_MORE, RC_OK
from rocketc.files._allocator cimport allocator_return
from rocketc.files._append_file cimport FileState, can_flush, can_flush_files, file_release
from rocketc.files._checkpoint cimport checkpoint_write
from rocketc.files._file_queue cimport queue_commit, queue_flush, queue_hold, queue_settle, queue_wake_reader
from rocketc.log._positions cimport Position

cdef enum:
    SYNC_PAUSE_NS = 10000000            # in sync mode a record without a waiter is flushed after this time
    LINGER_NS = 1000000                 # longest time for which records without a waiter gather in a call
    IDLE_NS = 1000000000
    CHECKPOINT_NS = 1000000000          # shortest time between two checkpoints
    FAR = 64 << 20                      # bytes that recovery reads in some ms
    SLOW_NS = 500000000                 # a longer flush is logged, as in RocketMQ


cdef int flusher_init(Flusher* fl, FileQueue* q, void* position, void* confirmed) noexcept nogil:
    """Initialize fl, which must be zero bytes. flusher_destroy undoes it.

    position   a Position that each flush advances
    confirmed  another Position that learns of a failure; both must live until flusher_destroy
    """
    cdef int rc = rc_service_init(&fl.service)
    if rc == RC_OK:
        rc = rc_service_init(&fl.committer)
    if rc == RC_OK:
        rc = pthread_mutex_init(&fl.mutex, NULL)
    if rc == RC_OK:
        rc = pthread_mutex_init(&fl.committing, NULL)
    if rc == RC_OK:
        rc = pthread_mutex_init(&fl.checkpoint_mutex, NULL)
    if rc == RC_OK:
        rc = rc_cond_init(&fl.done[0])
    if rc == RC_OK:
        rc = rc_cond_init(&fl.done[1])
    fl.q = q
    fl.position = position
    fl.confirmed = confirmed
    fl.checkpoint_fd = -1
    fl.far = FAR
    fl.saved_flushed = fl.saved_queued = fl.queued = fl.indexed = -1
    return rc


cdef int flusher_start(Flusher* fl) noexcept nogil:
    cdef int rc = rc_service_start(&fl.service, run_sync if fl.sync else run_timed, fl)
    if rc == RC_OK and fl.allocator != NULL:
        rc = rc_service_start(&fl.committer, run_committer, fl)
    return rc


cdef int flusher_stop(Flusher* fl) noexcept nogil:
    """Join the threads and flush the rest. Return RC_OK, or the reason why the store failed."""
    rc_service_stop(&fl.committer)
    rc_service_stop(&fl.service)
    return flusher_flush(fl, 0)


cdef void flusher_destroy(Flusher* fl) noexcept nogil:
    pthread_cond_destroy(&fl.done[0])
    pthread_cond_destroy(&fl.done[1])
    pthread_mutex_destroy(&fl.checkpoint_mutex)
    pthread_mutex_destroy(&fl.committing)
    pthread_mutex_destroy(&fl.mutex)
    rc_service_destroy(&fl.committer)
    rc_service_destroy(&fl.service)


cdef void flusher_fail(Flusher* fl, int rc, const char* path) noexcept nogil:
    """Mark the store as failed until it is closed, and wake all waiters. The first reason is kept."""
    pthread_mutex_lock(&fl.mutex)
    if fl.failed == 0:
        fl.failed_path = path
        rc_store_i64(&fl.failed, rc)
        rc_store_i64(&fl.news, 1)
    pthread_cond_broadcast(&fl.done[0])
    pthread_cond_broadcast(&fl.done[1])
    pthread_mutex_unlock(&fl.mutex)
    (<Position>fl.position).advance(rc_load_i64(&fl.q.flushed))     # a failed flush may have made some bytes durable
    (<Position>fl.position).fail(<int>fl.failed)
    (<Position>fl.confirmed).fail(<int>fl.failed)


cdef void flusher_wake(Flusher* fl) noexcept nogil:
    """Ask the thread to flush soon. Requests before the flush begins share one wake-up."""
    if rc_set_once_i64(&fl.asked, 1) == 0:
        rc_service_wake(&fl.service)


cdef void note_committed(Flusher* fl, int64_t upto) noexcept nogil:
    """Record that all bytes before `upto` are in the files, and wake those that wait for them."""
    pthread_mutex_lock(&fl.committing)
    rc_store_i64(&fl.committed, max(fl.committed, upto))
    pthread_mutex_unlock(&fl.committing)
    if fl.written != NULL:
        (<Position>fl.written).follow()


cdef void take_back(Flusher* fl, int64_t since) noexcept nogil:
    """Detach the buffers of files that have become full and durable. Only the flushing thread may call it."""
    cdef FileState* f
    cdef uint8_t* buffer
    cdef int64_t offset = since, upto = rc_load_i64(&fl.q.flushed)
    while offset < upto and queue_hold(fl.q, offset, &f) == RC_OK:
        buffer = f.buffer
        if buffer != NULL and f.flushed == <int64_t>f.size:
            pthread_mutex_lock(&fl.committing)      # the committer may still be reading it
            f.buffer = NULL
            pthread_mutex_unlock(&fl.committing)
            allocator_return(fl.allocator, buffer)
        offset = f.start + fl.q.file_size
        file_release(f)


cdef int flush_now(Flusher* fl, int64_t least_pages) noexcept nogil:
    """Flush all written bytes once; the caller has set `flushing`."""
    cdef const char* path = NULL
    cdef int64_t timestamp = rc_load_i64(&fl.q.store_timestamp)     # read before wrote, so that no later record counts
    cdef int64_t upto = rc_load_i64(&fl.q.wrote), since = rc_load_i64(&fl.q.flushed), started, slow_ns
    cdef int rc
    if fl.failed != 0:
        return <int>fl.failed
    if not can_flush_files(upto, since, fl.q.file_size, least_pages):
        return RC_OK
    started = rc_clock_ns()
    slow_ns = rc_load_i64(&fl.slow_ns)
    if slow_ns > 0:
        usleep(<unsigned int>(slow_ns // 1000))
    rc = queue_flush(fl.q, upto, &path)
    if rc != RC_OK:
        flusher_fail(fl, rc, path)
        return rc
    if fl.allocator != NULL:
        note_committed(fl, upto)
        take_back(fl, since)
    if upto // fl.q.file_size != since // fl.q.file_size:
        queue_settle(fl.q)
    rc_store_i64(&fl.q.flushed_timestamp, timestamp)
    if fl.sync:
        queue_wake_reader(fl.q)
    (<Position>fl.position).advance(rc_load_i64(&fl.q.flushed))
    started = rc_clock_ns() - started
    rc_store_i64(&fl.took, started)
    rc_histogram_add(&fl.latency, <unsigned long long>started)
    if started > SLOW_NS:
        rc_count_i64(&fl.slow, 1)
        rc_store_i64(&fl.news, 1)
    rc_count_i64(&fl.flushes, 1)
    rc_count_i64(&fl.flushed_bytes, upto - since)
    rc_store_i64(&fl.q.group, (7 * rc_load_i64(&fl.q.group) + upto - since) // 8)
    return RC_OK


cdef void begin(Flusher* fl) noexcept nogil:
    """Begin a flush on the calling thread; no other thread flushes until end(). The mutex is held, and is released."""
    fl.flushing = True
    fl.turn += 1
    fl.upto = rc_load_i64(&fl.q.wrote)
    pthread_mutex_unlock(&fl.mutex)


cdef void end(Flusher* fl) noexcept nogil:
    """Wake the waiters of this flush, and one other waiter to run the next flush. The mutex is held on return."""
    pthread_mutex_lock(&fl.mutex)
    fl.flushing = False
    pthread_cond_broadcast(&fl.done[fl.turn & 1])
    pthread_cond_signal(&fl.done[(fl.turn + 1) & 1])


cdef int flusher_flush(Flusher* fl, int64_t least_pages) noexcept nogil:
    """Flush the bytes written before the call, if they are at least least_pages pages or the rest of a full file.
    Return RC_OK, or the reason why the store failed."""
    cdef int rc
    pthread_mutex_lock(&fl.mutex)
    while fl.flushing:
        rc_cond_wait(&fl.done[(fl.turn + 1) & 1], &fl.mutex, IDLE_NS)
    begin(fl)
    rc = flush_now(fl, least_pages)
    end(fl)
    pthread_mutex_unlock(&fl.mutex)
    return rc


cdef int flusher_wait(Flusher* fl, int64_t stop, int64_t until_ns, int64_t slice_ns) noexcept nogil:
    """Wait until all bytes before `stop` are durable. Flush once on this thread if no other thread is flushing.

    stop      physical offset; if the log ends before it, the call waits for more records
    until_ns  deadline by rc_clock_ns(). After it the call fails, even if the bytes are durable by then
    slice_ns  longest time before the call returns RC_MORE, so that the caller can check for signals.
    Returns RC_OK, RC_FLUSH_TIMEOUT, RC_MORE, or the reason why the store failed.
    """
    cdef int64_t now, slice_end = 0
    cdef int rc = RC_OK
    cdef bint waited = False, flushed = False
    pthread_mutex_lock(&fl.mutex)
    while rc_load_i64(&fl.q.flushed) < stop:
        if fl.failed != 0:
            rc = <int>fl.failed
            break
        if not fl.flushing and not flushed:     # a second flush would not help: the log ends before stop
            begin(fl)
            flush_now(fl, 0)
            end(fl)
            waited = flushed = True
            continue
        now = rc_clock_ns()
        if slice_end == 0:
            slice_end = now + slice_ns
        if now >= until_ns or now >= slice_end:
            rc = RC_FLUSH_TIMEOUT if now >= until_ns else RC_MORE
            break
        waited = True
        # This flush wakes its own waiters and only one of the others: that one runs the next flush.
        rc_cond_wait(&fl.done[(fl.turn + (stop > fl.upto)) & 1], &fl.mutex, min(until_ns, slice_end) - now)
    if rc != RC_OK and not fl.flushing:
        pthread_cond_signal(&fl.done[(fl.turn + 1) & 1])    # this waiter may be the one that was woken to flush
    pthread_mutex_unlock(&fl.mutex)
    if rc == RC_OK and waited and rc_clock_ns() > until_ns:
        rc = RC_FLUSH_TIMEOUT
    return rc


cdef void flusher_note(
    Flusher* fl, int64_t timestamp, int64_t queued, int64_t indexed, int64_t index_timestamp,
) noexcept nogil:
    """Set what the next checkpoint says about queues and index. The values never go back.

    timestamp, queued  ms, physical offset: all messages before it are durable in queues and index
    indexed            where the index ends then, as checkpoint_write() takes it
    index_timestamp    ms: the end of the newest full index file; 0: there is none
    """
    pthread_mutex_lock(&fl.checkpoint_mutex)
    fl.noted[1] = max(fl.noted[1], timestamp)
    fl.noted[2] = max(fl.noted[2], index_timestamp)
    if queued >= fl.queued:
        rc_store_i64(&fl.queued, queued)
        fl.indexed = indexed
    pthread_mutex_unlock(&fl.checkpoint_mutex)


cdef int flusher_checkpoint(Flusher* fl) noexcept nogil:
    """Write how far the store is durable, if that has changed. If it fails, nothing is lost: recovery reads more."""
    cdef int64_t timestamp = rc_load_i64(&fl.q.flushed_timestamp)
    cdef int64_t flushed = rc_load_i64(&fl.q.flushed)
    cdef bint changed
    cdef int i, rc = RC_OK
    if fl.checkpoint_fd < 0:
        return RC_OK
    pthread_mutex_lock(&fl.checkpoint_mutex)
    # After the clock was set back, keep the times until it has caught up.
    changed = flushed != fl.saved_flushed or fl.queued != fl.saved_queued
    fl.noted[0] = max(fl.noted[0], timestamp)
    for i in range(5):
        if fl.noted[i] > fl.checkpoint[i]:
            fl.checkpoint[i] = fl.noted[i]
            changed = True
    if changed:
        rc = checkpoint_write(fl.checkpoint_fd, fl.checkpoint, flushed, fl.queued, fl.indexed)
        rc_store_i64(&fl.saved_flushed, flushed if rc == RC_OK else -1)
        rc_store_i64(&fl.saved_queued, fl.queued if rc == RC_OK else -1)
    pthread_mutex_unlock(&fl.checkpoint_mutex)
    return rc


cdef int flusher_checkpoint_if_far(Flusher* fl) noexcept nogil:
    """Write the checkpoint if much more is durable than it says: recovery would read it again."""
    cdef int64_t flushed = rc_load_i64(&fl.q.flushed) - max(rc_load_i64(&fl.saved_flushed), <int64_t>0)
    cdef int64_t queued = rc_load_i64(&fl.queued) - max(rc_load_i64(&fl.saved_queued), <int64_t>0)
    return flusher_checkpoint(fl) if max(flushed, queued) >= rc_load_i64(&fl.far) else RC_OK


cdef void* run_sync(void* argument) noexcept nogil:
    """Group commit for callers that do not wait in the call. Records without a waiter are durable 10 ms later.

    A caller that asks for a result flushes on its own thread. Until then messages gather for as long as a flush takes.
    Otherwise one small flush would follow the other and take time from the producer.
    """
    cdef Flusher* fl = <Flusher*>argument
    cdef int64_t last_checkpoint = 0, now, pause = IDLE_NS
    while not rc_service_wait(&fl.service, pause):
        if rc_load_i64(&fl.asked) != 0 and rc_load_i64(&(<Position>fl.position).armed) == 0:
            if rc_service_wait(&fl.service, min(rc_load_i64(&fl.took), LINGER_NS)):
                break
        rc_store_i64(&fl.asked, 0)
        flusher_flush(fl, 0)
        now = rc_clock_ns()
        if now - last_checkpoint >= CHECKPOINT_NS:
            last_checkpoint = now
            flusher_checkpoint(fl)
        pause = IDLE_NS if rc_load_i64(&fl.q.flushed) >= rc_load_i64(&fl.q.wrote) else SYNC_PAUSE_NS
    return NULL


cdef void* run_timed(void* argument) noexcept nogil:
    """Flush at each interval if enough pages are written, and all bytes at longer intervals."""
    cdef Flusher* fl = <Flusher*>argument
    cdef int64_t thorough = rc_clock_ns(), now, until
    while True:
        until = rc_clock_ns() + fl.interval_ns
        if rc_service_wait(&fl.service, fl.interval_ns):
            return NULL
        rc_store_i64(&fl.asked, 0)
        now = rc_clock_ns()
        while fl.timed and now < until:
            if rc_service_wait(&fl.service, until - now):
                return NULL
            now = rc_clock_ns()
        if now - thorough >= fl.thorough_ns:
            thorough = now
            flusher_flush(fl, 0)
        else:
            flusher_flush(fl, fl.least_pages)
        flusher_checkpoint(fl)


cdef bint is_commit_due(Flusher* fl, int64_t pages) noexcept nogil:
    """Return whether the buffers have at least `pages` pages that are not in the files yet."""
    cdef FileState* f
    cdef int64_t wrote
    cdef bint due = False
    if queue_hold(fl.q, rc_load_i64(&fl.q.wrote) - 1, &f) == RC_OK:
        wrote = rc_load_i64(&f.wrote)
        due = f.buffer != NULL and can_flush(wrote, rc_load_i64(&f.committed), <int64_t>f.size, pages)
        due = due or rc_load_i64(&fl.q.flushed) < f.start
        file_release(f)
    return due


cdef int flusher_commit(Flusher* fl) noexcept nogil:
    """Write the buffers into the files, where readers see the records. Return RC_OK, or the reason why the store has
    failed."""
    cdef int64_t upto, started, took, slow_ns = rc_load_i64(&fl.commit_ns)
    cdef int rc
    pthread_mutex_lock(&fl.committing)
    upto = rc_load_i64(&fl.q.wrote)
    started = rc_clock_ns()
    if slow_ns > 0:
        usleep(<unsigned int>(slow_ns // 1000))
    rc = queue_commit(fl.q)
    took = rc_clock_ns() - started
    if took > SLOW_NS:
        fl.slow_commit_ns = took
        fl.slow_commit_bytes = max(upto - fl.committed, 0)
        fl.slow_commit_end = upto
        rc_count_i64(&fl.slow_commits, 1)
        rc_store_i64(&fl.news, 1)
    pthread_mutex_unlock(&fl.committing)
    if rc == RC_OK:
        note_committed(fl, upto)
    else:
        flusher_fail(fl, rc, NULL)
    return rc


cdef void commit_buffers(Flusher* fl) noexcept nogil:
    """Write the buffers into the files, wake the readers, and start a flush."""
    flusher_commit(fl)
    rc_count_i64(&fl.commits, 1)
    queue_wake_reader(fl.q)
    flusher_wake(fl)


cdef void* run_committer(void* argument) noexcept nogil:
    """Write the buffers into the files at each interval if enough pages are new, and all at longer intervals."""
    cdef Flusher* fl = <Flusher*>argument
    cdef int64_t thorough = rc_clock_ns(), now, pages
    while not rc_service_wait(&fl.committer, fl.commit_interval_ns):
        now = rc_clock_ns()
        pages = fl.commit_least_pages
        if now - thorough >= fl.commit_thorough_ns:
            thorough = now
            pages = 0
        if is_commit_due(fl, pages) and fl.failed == 0:
            commit_buffers(fl)
    return NULL


# without threads

cdef void flusher_begin(Flusher* fl, int64_t now_ns) noexcept nogil:
    """Begin all intervals of a store without threads, as flusher_start does for others."""
    fl.since_flush = fl.since_thorough = fl.since_checkpoint = now_ns
    fl.since_commit = fl.since_commit_thorough = now_ns


cdef bint flusher_step(Flusher* fl, int64_t now_ns) noexcept nogil:
    """Do the work of the threads up to this time on the caller's thread: commit, flush, write the checkpoint.

    now_ns  by the clock of the store
    In sync mode everything is flushed at once, without the 10 ms for which messages gather. Returns whether something
    was committed or flushed.
    """
    cdef int64_t flushed = rc_load_i64(&fl.q.flushed), commits = fl.commits
    cdef int64_t pages = fl.commit_least_pages
    cdef bint due = False
    if fl.allocator != NULL:
        due = is_due(&fl.since_commit, now_ns, fl.commit_interval_ns)
        if is_due(&fl.since_commit_thorough, now_ns, fl.commit_thorough_ns):
            due = True
            pages = 0
        due = due or fl.committer.woken
        fl.committer.woken = 0
        if due and is_commit_due(fl, pages) and fl.failed == 0:
            commit_buffers(fl)
    if fl.sync:
        rc_store_i64(&fl.asked, 0)
        flusher_flush(fl, 0)
        if is_due(&fl.since_checkpoint, now_ns, CHECKPOINT_NS):
            flusher_checkpoint(fl)
    else:
        due = is_due(&fl.since_flush, now_ns, fl.interval_ns) or (rc_load_i64(&fl.asked) != 0 and not fl.timed)
        pages = fl.least_pages
        if is_due(&fl.since_thorough, now_ns, fl.thorough_ns):
            due = True
            pages = 0
        if due:
            rc_store_i64(&fl.asked, 0)
            flusher_flush(fl, pages)
            flusher_checkpoint(fl)
    return fl.commits != commits or rc_load_i64(&fl.q.flushed) != flushed
