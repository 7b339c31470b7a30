# cython: language_level=3
"""The files of a consume queue: maps while it is in use, system calls while it is idle.

A store may have a million queues, and the kernel allows a process 65,530 maps. So only `capacity` queues are open at a
time. An idle queue is without map, descriptor and list of files. One read or write of it opens the file, calls pread
or pwrite, and closes the file. It is opened when it is used often; then the clock algorithm chooses a queue that was
not used lately, and closes it. The files are the same in both cases.

A thread that uses an open queue holds it: files_hold() and files_release(). The writer keeps the last queues that it
wrote to, up to STRIPES, so it does not lock for each unit.
"""
from libc.errno cimport ENAMETOOLONG, ENOENT, ENOMEM
from libc.errno cimport errno as c_errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport SEEK_END, snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport strdup, strlen
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.types cimport off_t
from posix.unistd cimport close as close_file
from posix.unistd cimport ftruncate, lseek

from rocketc.c.atomic cimport (
    rc_add_i64, rc_count_i64, rc_load_i64, rc_load_pointer, rc_load_u8, rc_store_i64, rc_store_pointer, rc_store_u8,
)
from rocketc.c.service cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_unlock,
)
from rocketc.c.layout cimport RC_CQ_UNIT_BYTES
from rocketc.c.status cimport RC_FILE_CUT, RC_OK
from rocketc.c.vm cimport rc_name_file, rc_new_file, rc_open_file, rc_sync_file
from rocketc.files._append_file cimport RC_OS_PAGE_BYTES, file_free_rest, file_shutdown
from rocketc.files._file_queue cimport (
    FOLDERS_OF_QUEUE, make_queue_folders, queue_free, queue_init, queue_known, queue_read, queue_unmap, read_at,
    sync_folders,
)

cdef enum:
    PATH_BYTES = 4096
    USES_TO_OPEN = 4            # uses of an idle queue, each within `capacity` uses of idle queues after the last
    FIRST_WINDOW_BYTES = 4 << 10


# what the queues of a store share

cdef QueueShared* shared_new(const char* simple, const char* batch, int kind, int capacity) noexcept nogil:
    """Return what the queues below two folders share, NULL without memory. Free it with shared_free().

    simple, batch  the folders of simple and of batch queues; the caller keeps the text
    capacity       queues that may be open at a time
    """
    cdef QueueShared* s = <QueueShared*>calloc(1, sizeof(QueueShared))
    cdef int i
    if s == NULL:
        return NULL
    s.failed_path = <char*>calloc(2, PATH_BYTES)
    if s.failed_path == NULL:
        free(s)
        return NULL
    s.above[0] = simple
    s.above[1] = batch
    s.kind = kind
    s.capacity = capacity
    pthread_mutex_init(&s.mutex, NULL)
    for i in range(STRIPES):
        pthread_mutex_init(&s.stripes[i], NULL)
    return s


cdef void shared_free(QueueShared* s) noexcept nogil:
    """Free it after files_free() of all queues."""
    cdef int i
    if s == NULL:
        return
    for i in range(STRIPES):
        pthread_mutex_destroy(&s.stripes[i])
    pthread_mutex_destroy(&s.mutex)
    free(s.ring)
    free(s.waiting)
    free(s.failed_path)
    free(s)


cdef inline pthread_mutex_t* stripe_of(const ConsumeQueue* q) noexcept nogil:
    return &q.shared.stripes[q.hash % STRIPES]


# paths

cdef int queue_folder(const ConsumeQueue* q, char* path) noexcept nogil:
    """Write the queue's folder to path, which has PATH_BYTES bytes. Return RC_OK or ENAMETOOLONG."""
    cdef int n = snprintf(
        path, PATH_BYTES, b"%s/%.*s/%d", q.shared.above[q.unit_bytes != RC_CQ_UNIT_BYTES], q.topic_len,
        <const char*>q.topic, q.queue_id,
    )
    return RC_OK if 0 < n < PATH_BYTES else ENAMETOOLONG


cdef int path_of_file(const ConsumeQueue* q, int64_t pos, char* path) noexcept nogil:
    """Write the path of the file that covers a position."""
    cdef int rc = queue_folder(q, path), n
    cdef size_t used
    if rc != RC_OK:
        return rc
    used = strlen(path)
    n = snprintf(path + used, PATH_BYTES - used, b"/%020lld", <long long>(pos - pos % q.file_size))
    return RC_OK if n < PATH_BYTES - <int>used else ENAMETOOLONG


cdef const char* failed_folder(ConsumeQueue* q) noexcept nogil:
    """Return the queue's folder, for an error of the dispatcher. The text is valid until the next call."""
    cdef char* path = q.shared.failed_path + PATH_BYTES
    queue_folder(q, path)
    return path


# open and idle

cdef int files_hold(ConsumeQueue* q, FilesUse use, OpenFiles** files) noexcept nogil:
    """Get the open files of a queue and keep them open until files_release(). files is set to NULL if it stays idle.

    Returns RC_OK, ENOENT if the store is closed, ENOMEM, or ENAMETOOLONG.
    """
    cdef OpenFiles* f
    cdef int rc = RC_OK
    pthread_mutex_lock(stripe_of(q))
    f = q.open
    if f == NULL and use != FILES_PEEK:
        if rc_load_i64(&q.shared.is_closed) != 0:
            rc = ENOENT
        elif use == FILES_MUST or is_worth_opening(q):
            rc = open_files(q, use == FILES_MUST, &f)
            if rc == ENOMEM and use == FILES_USE:
                rc = RC_OK              # it stays idle
    if f != NULL:
        rc_add_i64(&f.holds, 1)
        if rc_load_i64(&f.is_recent) == 0:
            rc_store_i64(&f.is_recent, 1)
    pthread_mutex_unlock(stripe_of(q))
    files[0] = f
    return rc


cdef bint is_idle(ConsumeQueue* q) noexcept nogil:
    """Whether a queue is idle now."""
    cdef bint idle
    pthread_mutex_lock(stripe_of(q))
    idle = q.open == NULL
    pthread_mutex_unlock(stripe_of(q))
    return idle


cdef void files_release(OpenFiles* files) noexcept nogil:
    rc_add_i64(&files.holds, -1)


cdef int files_of_writer(ConsumeQueue* q, bint must, OpenFiles** files) noexcept nogil:
    """Do files_hold() for the writer. The hold ends when the writer gets another queue in its place.

    must  open an idle queue
    """
    cdef QueueShared* s = q.shared
    cdef uint32_t i = q.hash % STRIPES
    cdef int rc
    if s.written[i] == q:
        files[0] = s.written_files[i]
        return RC_OK
    rc = files_hold(q, FILES_MUST if must else FILES_USE, files)
    if rc == RC_OK and files[0] != NULL:
        if s.written[i] != NULL:
            files_release(s.written_files[i])
        s.written[i] = q
        s.written_files[i] = files[0]
    return rc


cdef bint is_worth_opening(ConsumeQueue* q) noexcept nogil:
    """Count a use of an idle queue. Return whether it is used often, or places are free. The stripe is locked."""
    cdef QueueShared* s = q.shared
    cdef uint32_t turn
    if rc_load_i64(&s.is_loading) != 0:
        return False
    if rc_load_i64(&s.count) < s.capacity:
        return True
    turn = <uint32_t>rc_add_i64(&s.turn, 1)
    q.uses = <uint8_t>(q.uses + 1) if turn - q.last_use <= <uint32_t>s.capacity else 1
    q.last_use = turn
    return q.uses >= USES_TO_OPEN


cdef int open_files(ConsumeQueue* q, bint must, OpenFiles** files) noexcept nogil:
    """Open an idle queue, and close another one if no place is free. The stripe is locked.

    must  open it even if no other queue can be closed
    """
    cdef QueueShared* s = q.shared
    cdef OpenFiles* closed = NULL
    cdef OpenFiles* f = NULL
    cdef int place = -1
    cdef int rc = new_files(q, &f)
    if rc != RC_OK:
        return rc
    pthread_mutex_lock(&s.mutex)
    if s.count >= s.capacity:
        closed = take_out(q, &place)
    if place < 0 and (s.count < s.capacity or must):
        place = new_place(s)
        rc = RC_OK if place >= 0 else ENOMEM
    if place >= 0:
        s.ring[place] = f
    pthread_mutex_unlock(&s.mutex)
    if closed != NULL:
        free_files(closed)
    if place < 0:
        free_files(f)
        return rc
    q.uses = 0
    q.open = f
    files[0] = f
    return RC_OK


cdef int new_files(ConsumeQueue* q, OpenFiles** files) noexcept nogil:
    """Make the list of a queue's files. Nothing is mapped yet."""
    cdef char path[PATH_BYTES]
    cdef OpenFiles* f = <OpenFiles*>calloc(1, sizeof(OpenFiles))
    cdef int rc = queue_folder(q, path)
    cdef int i
    if f == NULL:
        return ENOMEM
    f.folder = strdup(path)
    if rc == RC_OK and f.folder == NULL:
        rc = ENOMEM
    if rc == RC_OK:
        rc = queue_init(&f.files, q.file_size, &f.folder, 1, q.shared.kind)
    if rc != RC_OK:
        free(f.folder)
        free(f)
        return rc
    f.queue = q
    f.window = FIRST_WINDOW_BYTES
    f.read_start = -1
    f.files.flushed = rc_load_i64(&q.flushed)
    for i in range(<int>q.file_count):
        rc = path_of_file(q, q.start + <int64_t>i * q.file_size, path)
        if rc == RC_OK:
            rc = queue_known(&f.files, path, q.start + <int64_t>i * q.file_size, q.file_size)
        if rc != RC_OK:
            free_files(f)
            return rc
        f.files.files[i].flushed = min(max(f.files.flushed - f.files.files[i].start, 0), <int64_t>q.file_size)
    files[0] = f
    return RC_OK


cdef void free_files(OpenFiles* f) noexcept nogil:
    queue_free(&f.files)
    free(f.folder)
    free(f)


cdef OpenFiles* take_out(ConsumeQueue* q, int* place) noexcept nogil:
    """Make a queue idle that was not used lately, and return its files; NULL if all are in use. The mutex is locked.

    q      its stripe is locked
    place  set to the place that is free now
    """
    cdef QueueShared* s = q.shared
    cdef OpenFiles* f
    cdef ConsumeQueue* other
    cdef bint same
    cdef int _
    for _ in range(2 * <int>s.count):
        f = s.ring[s.hand]
        place[0] = s.hand
        s.hand = (s.hand + 1) % <int>s.count
        if rc_load_i64(&f.holds) > 0:
            continue
        if rc_load_i64(&f.is_recent) != 0:
            rc_store_i64(&f.is_recent, 0)
            continue
        other = f.queue
        same = stripe_of(other) == stripe_of(q)
        if not same and pthread_mutex_trylock(stripe_of(other)) != 0:
            continue
        if rc_load_i64(&f.holds) > 0:
            f = NULL
        else:
            other.open = NULL
            if other.ext != NULL:
                other.ext.last = NULL
                queue_unmap(&other.ext.files, 0, NULL)
        if not same:
            pthread_mutex_unlock(stripe_of(other))
        if f != NULL:
            return f
    place[0] = -1
    return NULL


cdef int new_place(QueueShared* s) noexcept nogil:
    """Add a place to the ring; return its number, -1 without memory. The mutex is locked."""
    cdef int room = 2 * s.room + 16
    cdef OpenFiles** ring
    if s.count == s.room:
        ring = <OpenFiles**>realloc(s.ring, <size_t>room * sizeof(OpenFiles*))
        if ring == NULL:
            return -1
        s.ring = ring
        s.room = room
    rc_store_i64(&s.count, s.count + 1)
    return <int>s.count - 1


cdef void files_changed(ConsumeQueue* q, OpenFiles* files) noexcept nogil:
    """Note which files a queue has, after files of its open list were added or removed."""
    pthread_mutex_lock(stripe_of(q))
    pthread_mutex_lock(&files.files.mutex)
    rc_store_i64(&q.file_count, files.files.count)
    rc_store_i64(&q.start, files.files.files[0].start if files.files.count > 0 else -1)
    raise_names(q, <uint8_t>files.files.names)
    files.files.names = 0
    pthread_mutex_unlock(&files.files.mutex)
    pthread_mutex_unlock(stripe_of(q))


cdef void files_free(ConsumeQueue* q) noexcept nogil:
    """Free the open files of a queue that is freed next, and its counters."""
    if q.open != NULL:
        free_files(q.open)
    free(q.counters)


cdef void files_free_rest(QueueShared* s) noexcept nogil:
    """Free the disk space after the last unit of each open queue. No more units are put, and all are durable."""
    cdef ConsumeQueue* q
    cdef FileState* f
    cdef int64_t end
    cdef int i
    for i in range(<int>s.count):
        q = s.ring[i].queue
        f = s.ring[i].last
        if f != NULL and q.dead == 0 and (q.opening == NULL or q.opening.loaded == 0):
            end = max(q.units * q.unit_bytes - f.start, <int64_t>0)
            if end + RC_OS_PAGE_BYTES <= f.ready:       # at least one page was made ahead
                file_free_rest(f, end)


cdef void files_close_all(QueueShared* s) noexcept nogil:
    """Unmap all files, and open none again. Syncs nothing. May be called twice."""
    cdef FileQueue* q
    cdef int i, n
    rc_store_i64(&s.is_closed, 1)
    pthread_mutex_lock(&s.mutex)
    for i in range(<int>s.count):
        q = &s.ring[i].files
        for n in range(q.count):
            file_shutdown(q.files[n])
    pthread_mutex_unlock(&s.mutex)


cdef int files_read(ConsumeQueue* q, OpenFiles* files, int64_t pos, uint8_t* data, int64_t* n) noexcept nogil:
    """Read bytes of an open queue; see queue_read(). At most two of its files are mapped: the last one, and one other.

    A file before the last one is mapped when two reads in a row use it. During an opening the writer may use such a
    file, so files are not unmapped here.
    """
    cdef int64_t start = pos - pos % q.file_size
    cdef int64_t end = rc_load_i64(&q.start) + rc_load_i64(&q.file_count) * q.file_size
    if q.opening == NULL and start + q.file_size < end and start != rc_load_i64(&files.read_start):
        rc_store_i64(&files.read_start, start)
        queue_unmap(&files.files, 1, NULL)
        return read_idle(q, pos, data, n)
    return queue_read(&files.files, pos, data, n)


cdef void ext_rest(ConsumeQueue* q) noexcept nogil:
    """Unmap the extension of a queue, unless the queue is open. Call it after the extension of any queue was used."""
    pthread_mutex_lock(stripe_of(q))
    if q.open == NULL and q.ext != NULL:
        q.ext.last = NULL
        queue_unmap(&q.ext.files, 0, NULL)
    pthread_mutex_unlock(stripe_of(q))


# idle queues

cdef int open_idle(const ConsumeQueue* q, int64_t pos, bint writing, int* fd) noexcept nogil:
    """Open the file that covers a position; the caller closes fd. Return RC_OK, an errno, or RC_FILE_CUT."""
    cdef char path[PATH_BYTES]
    cdef int rc = path_of_file(q, pos, path)
    if rc != RC_OK:
        return rc
    fd[0] = rc_open_file(path, O_RDWR if writing else O_RDONLY)
    if fd[0] < 0:
        return c_errno
    if lseek(fd[0], 0, SEEK_END) < <off_t>q.file_size:
        close_file(fd[0])
        return RC_FILE_CUT
    return RC_OK


cdef int read_idle(ConsumeQueue* q, int64_t pos, uint8_t* data, int64_t* n) noexcept nogil:
    """Read bytes from a position without a map. Parameters and result are as in queue_read()."""
    cdef int fd = -1
    cdef int rc = open_idle(q, pos, False, &fd)
    if rc != RC_OK:
        return rc
    n[0] = min(n[0], q.file_size - pos % q.file_size)
    rc = read_at(fd, pos % q.file_size, data, n[0])
    close_file(fd)
    return rc


cdef int create_idle(ConsumeQueue* q, int64_t pos, int* fd) noexcept nogil:
    """Create the file that covers a position, at its full length, and its folders. The caller closes fd."""
    cdef char folder[PATH_BYTES]
    cdef char path[PATH_BYTES]
    cdef int rc = queue_folder(q, folder)
    if rc == RC_OK:
        rc = path_of_file(q, pos, path)
    if rc == RC_OK:
        rc = rc_new_file(folder, path, fd)
        if rc == ENOENT:            # the folder is missing too, or was deleted meanwhile
            rc = make_folders(q)
            if rc == RC_OK:
                rc = rc_new_file(folder, path, fd)
    if rc != RC_OK:
        return rc
    if ftruncate(fd[0], <off_t>q.file_size) != 0:
        rc = c_errno
    if rc == RC_OK:
        rc = rc_name_file(fd[0], path)
    if rc == RC_OK:
        rc = add_file(q, pos - pos % q.file_size, path)
    if rc != RC_OK:
        close_file(fd[0])
    return rc


cdef int add_file(ConsumeQueue* q, int64_t start, const char* path) noexcept nogil:
    """Note a new file at the end of a queue that another thread may have opened meanwhile."""
    cdef int rc = RC_OK
    pthread_mutex_lock(stripe_of(q))
    if q.open != NULL:
        rc = queue_known(&q.open.files, path, start, q.file_size)
    if rc == RC_OK:
        rc_store_i64(&q.file_count, q.file_count + 1)
        if q.start < 0:
            rc_store_i64(&q.start, start)
        raise_names(q, 1)
    pthread_mutex_unlock(stripe_of(q))
    return rc


cdef void set_file_size(ConsumeQueue* q, int32_t size) noexcept nogil:
    """Set the size of the files of a queue without files."""
    pthread_mutex_lock(stripe_of(q))
    q.file_size = size
    if q.open != NULL:
        q.open.files.file_size = size
    pthread_mutex_unlock(stripe_of(q))


cdef int flush_idle(ConsumeQueue* q, int64_t upto, const char** path) noexcept nogil:
    """Make the files of an idle queue durable up to `upto`. One thread at a time. See queue_flush()."""
    cdef int64_t pos = max(rc_load_i64(&q.flushed), rc_load_i64(&q.start))
    cdef int fd, rc = RC_OK
    while pos < upto:
        rc = open_idle(q, pos, True, &fd)
        if rc == RC_OK:
            rc = rc_sync_file(fd)
            close_file(fd)
        elif rc == ENOENT:
            rc = RC_OK              # it was deleted, because its records are
        if rc != RC_OK:
            path_of_file(q, pos, q.shared.failed_path)
            path[0] = q.shared.failed_path
            return rc
        pos = min(pos - pos % q.file_size + q.file_size, upto)
        rc_store_i64(&q.flushed, pos)
    return rc


# names and notes

cdef void raise_names(ConsumeQueue* q, uint8_t folders) noexcept nogil:
    """Note that names in this many folders are not durable. The stripe is locked, or no other thread uses the queue."""
    cdef uint8_t names = rc_load_u8(&q.names)
    if folders > names:
        if names == 0:
            rc_add_i64(&q.shared.new_names, 1)
        rc_store_u8(&q.names, folders)


cdef int make_folders(ConsumeQueue* q) noexcept nogil:
    """Create the folder of a queue, of its topic, and of all topics. Return RC_OK or an errno."""
    cdef char folder[PATH_BYTES]
    cdef int rc = queue_folder(q, folder)
    if rc != RC_OK:
        return rc
    pthread_mutex_lock(stripe_of(q))
    raise_names(q, <uint8_t>FOLDERS_OF_QUEUE)
    pthread_mutex_unlock(stripe_of(q))
    return make_queue_folders(folder)


cdef int sync_names(ConsumeQueue* q) noexcept nogil:
    """Make the names of a queue's files and folders durable. Creating them did not wait for this."""
    cdef char path[PATH_BYTES]
    cdef int folders, rc = RC_OK
    pthread_mutex_lock(stripe_of(q))
    folders = rc_load_u8(&q.names)
    if folders > 0:
        rc_add_i64(&q.shared.new_names, -1)
        rc_store_u8(&q.names, 0)    # names added from now on are for the next call
    pthread_mutex_unlock(stripe_of(q))
    if folders > 0:
        rc = queue_folder(q, path)
    return sync_folders(path, folders) if rc == RC_OK else rc


cdef bint wait_for_flush(ConsumeQueue* q) noexcept nogil:
    """Add a queue to the list of queues with pages to flush. Return False without memory."""
    cdef QueueShared* s = q.shared
    cdef ConsumeQueue** waiting
    cdef int room
    cdef bint fits = True
    pthread_mutex_lock(&s.mutex)
    if s.waiting_count == s.waiting_room:
        room = 2 * s.waiting_room + 64
        waiting = <ConsumeQueue**>realloc(s.waiting, <size_t>room * sizeof(ConsumeQueue*))
        fits = waiting != NULL
        if fits:
            s.waiting = waiting
            s.waiting_room = room
    if fits:
        s.waiting[s.waiting_count] = q
        s.waiting_count += 1
        rc_store_u8(&q.is_waiting, 1)
    pthread_mutex_unlock(&s.mutex)
    return fits


cdef QueueCounters* counters_of(ConsumeQueue* q) noexcept nogil:
    """Return the counters of a queue, created on first use; NULL without memory."""
    cdef void* counters = rc_load_pointer(&q.counters)
    if counters == NULL:
        pthread_mutex_lock(stripe_of(q))
        counters = rc_load_pointer(&q.counters)
        if counters == NULL:
            counters = calloc(1, sizeof(QueueCounters))
            rc_store_pointer(&q.counters, counters)
        pthread_mutex_unlock(stripe_of(q))
    return <QueueCounters*>counters


cdef void count_given(ConsumeQueue* q, int64_t messages, int64_t bytes) noexcept nogil:
    """Count messages that a reader got."""
    cdef QueueCounters* counters = counters_of(q)
    if counters != NULL:
        rc_count_i64(&counters.given, messages)
        rc_count_i64(&counters.given_bytes, bytes)
