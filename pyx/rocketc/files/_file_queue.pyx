# cython: language_level=3
"""The list of files of one queue, shared by the threads of a store: find by offset, map, flush, delete.

The functions return 0 or an errno and do not need the GIL. A MappedFileQueue or a consume queue owns a FileQueue.
Source: RocketMQ MappedFileQueue.
"""
from libc.errno cimport EBUSY, EEXIST, EINTR, ENAMETOOLONG, ENOENT, ENOMEM
from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, strcpy, strlen, strrchr
from posix.fcntl cimport O_RDONLY
from posix.stat cimport mkdir
from posix.types cimport off_t
from posix.unistd cimport close as close_file
from posix.unistd cimport pread

from rocketc.c.atomic cimport rc_hold_i64, rc_load_i64, rc_raise_i64, rc_store_i64
from rocketc.c.service cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_END, RC_FILE_CUT, RC_OK
from rocketc.c.vm cimport rc_guard, rc_open_file, rc_sync_folder
from rocketc.files._append_file cimport (
    FILE_READ, FILE_SPARSE, FILE_WHOLE, FileState, RC_OS_PAGE_BYTES, file_commit, file_create, file_data_end,
    file_drop, file_flush, file_hold, file_map, file_new, file_release, file_shutdown, file_unlink, file_unlock,
    file_unmap,
)
from rocketc.files._guard cimport enter_writing, leave as guard_leave

cdef enum:
    PATH_BYTES = 4096


cdef int queue_init(FileQueue* q, int64_t file_size, char** folders, int folder_count, int kind) noexcept nogil:
    """Initialize q, which must be zero bytes, as an empty queue. Free it with queue_free(). Return 0 or an errno."""
    q.file_size = file_size
    q.folders = folders
    q.folder_count = folder_count
    q.kind = kind
    return pthread_mutex_init(&q.mutex, NULL)


cdef void queue_free(FileQueue* q) noexcept nogil:
    """Shut down the files. Files held by views stay mapped until the views are released."""
    cdef int i
    for i in range(q.count):
        if rc_hold_i64(&q.files[i].holds) != 0:
            file_unlock(q.files[i])     # a view may outlive q, which counts the locks
            file_release(q.files[i])
        file_shutdown(q.files[i])
        file_drop(q.files[i])
    free(q.files)
    pthread_mutex_destroy(&q.mutex)


cdef const char* folder_of_new(FileQueue* q, int64_t start) noexcept nogil:
    """Return the folder of a new file that begins at start. File number n goes to folder number n modulo their count,
    without the avoided folders; if all are avoided, all count."""
    cdef int64_t avoided = rc_load_i64(&q.avoided), number = start // q.file_size
    cdef int i, left = 0
    for i in range(q.folder_count):
        left += not (i < AVOIDABLE and avoided >> i & 1)
    if left == 0:
        return q.folders[number % q.folder_count]
    number %= left
    for i in range(q.folder_count):
        if not (i < AVOIDABLE and avoided >> i & 1):
            if number == 0:
                break
            number -= 1
    return q.folders[i]


cdef int queue_path(FileQueue* q, int64_t start, char* path, size_t room) noexcept nogil:
    """Write the path of a new file that begins at start. Return RC_OK, or ENOMEM if it does not fit into room."""
    cdef int n = snprintf(path, room, b"%s/%020lld", folder_of_new(q, start), <long long>start)
    return RC_OK if 0 <= n < <int>room else ENOMEM


cdef int queue_push(FileQueue* q, FileState* f) noexcept nogil:
    """Add f, which begins after all other files; the queue then owns it. Return RC_OK or ENOMEM."""
    cdef FileState** files
    cdef int room, rc = RC_OK
    pthread_mutex_lock(&q.mutex)
    if q.count == q.room:
        room = 2 * q.room + 16
        files = <FileState**>realloc(q.files, <size_t>room * sizeof(FileState*))
        if files == NULL:
            rc = ENOMEM
        else:
            q.files = files
            q.room = room
    if rc == RC_OK:
        q.files[q.count] = f
        q.count += 1
    pthread_mutex_unlock(&q.mutex)
    return rc


cdef FileState* queue_last(FileQueue* q) noexcept nogil:
    """Return the newest file, or NULL. It stays valid while no other thread truncates or deletes."""
    cdef FileState* f = NULL
    pthread_mutex_lock(&q.mutex)
    if q.count > 0:
        f = q.files[q.count - 1]
    pthread_mutex_unlock(&q.mutex)
    return f


cdef FileState* queue_at(FileQueue* q, int i) noexcept nogil:
    """Return file i, or NULL if there are not that many. It stays valid while no other thread truncates or deletes."""
    cdef FileState* f = NULL
    pthread_mutex_lock(&q.mutex)
    if i < q.count:
        f = q.files[i]
    pthread_mutex_unlock(&q.mutex)
    return f


cdef int64_t queue_start(FileQueue* q, int least) noexcept nogil:
    """Return the offset of the first file; -1 if there are fewer than `least` files (1 or more)."""
    cdef int64_t start = -1
    pthread_mutex_lock(&q.mutex)
    if q.count >= least:
        start = q.files[0].start
    pthread_mutex_unlock(&q.mutex)
    return start


cdef int first_after(FileQueue* q, int64_t offset) noexcept nogil:
    """Return the number of the first file that begins after an offset. The mutex is held."""
    cdef int low = 0, high = q.count, middle
    while low < high:
        middle = (low + high) // 2
        if q.files[middle].start > offset:
            high = middle
        else:
            low = middle + 1
    return low


cdef int64_t queue_next(FileQueue* q, int64_t offset) noexcept nogil:
    """Return the offset of the first file that begins after an offset; -1 if there is none."""
    cdef int low
    cdef int64_t start = -1
    pthread_mutex_lock(&q.mutex)
    low = first_after(q, offset)
    if low < q.count:
        start = q.files[low].start
    pthread_mutex_unlock(&q.mutex)
    return start


cdef int64_t queue_bytes(FileQueue* q) noexcept nogil:
    """Return the total length of the files."""
    cdef int64_t size
    pthread_mutex_lock(&q.mutex)
    size = q.count * q.file_size
    pthread_mutex_unlock(&q.mutex)
    return size


cdef int queue_known(FileQueue* q, const char* path, int64_t start, int64_t wrote) noexcept nogil:
    """Add an existing file, which begins after all others. It is mapped on first use. Return RC_OK or ENOMEM."""
    cdef FileState* f = file_new(path, start, <size_t>q.file_size)
    if f == NULL:
        return ENOMEM
    f.kind = q.kind
    f.wrote = f.committed = f.flushed = wrote
    if queue_push(q, f) != RC_OK:
        file_drop(f)
        return ENOMEM
    return RC_OK


cdef int queue_add(FileQueue* q, int64_t start, FileState** file) noexcept nogil:
    """Create and map the file that begins at start, after the last one. Return RC_OK or an errno."""
    cdef char path[PATH_BYTES]
    cdef FileState* f
    cdef int rc = queue_path(q, start, path, sizeof(path))
    if rc != RC_OK:
        return rc
    f = file_new(path, start, <size_t>q.file_size)
    if f == NULL:
        return ENOMEM
    f.kind = q.kind
    rc = file_create(f)
    if rc == RC_OK and f.kind == FILE_WHOLE:
        rc = sync_folder_of(path)
    elif rc == RC_OK:
        rc_raise_i64(&q.names, 1)
    if rc == RC_OK:
        rc = queue_push(q, f)
    if rc != RC_OK:
        file_shutdown(f)
        file_drop(f)
        return rc
    file[0] = f
    return RC_OK


cdef int queue_remove(FileQueue* q, int i) noexcept nogil:
    """Delete file i and remove it from the list. Return RC_OK, EBUSY if it is held, or the errno of the deletion.

    If another process writes the files, the file itself is not deleted.
    """
    cdef FileState* f = queue_at(q, i)
    cdef int rc
    if not file_shutdown(f):
        return EBUSY
    rc = file_unlink(f) if q.kind != FILE_READ else RC_OK
    if rc != RC_OK and rc != ENOENT:
        return rc
    pthread_mutex_lock(&q.mutex)
    memmove(&q.files[i], &q.files[i + 1], <size_t>(q.count - 1 - i) * sizeof(FileState*))
    q.count -= 1
    pthread_mutex_unlock(&q.mutex)
    file_drop(f)
    return RC_OK


cdef FileState* first_locked(FileQueue* q, int64_t since, int64_t upto) noexcept nogil:
    """Hold and return the first file that begins in [since, upto) and is locked in memory, or NULL. The file may be
    shut down."""
    cdef FileState* f = NULL
    cdef FileState* found = NULL
    cdef int i
    pthread_mutex_lock(&q.mutex)
    for i in range(first_after(q, since - 1), q.count):
        f = q.files[i]
        if f.start >= upto:
            break
        if rc_hold_i64(&f.holds) != 0:
            if f.locked_in != NULL:
                found = f
                break
            file_release(f)
    pthread_mutex_unlock(&q.mutex)
    return found


cdef void queue_unlock(FileQueue* q, int64_t since, int64_t upto) noexcept nogil:
    """Unlock the maps of the files that begin in [since, upto). One thread at a time; it does not hold the mutex while
    it unlocks, which takes milliseconds for a large file."""
    cdef FileState* f = first_locked(q, since, upto)
    while f != NULL:
        since = f.start + 1
        file_unlock(f)
        file_release(f)
        f = first_locked(q, since, upto)


cdef int unmap(FileQueue* q, int keep, const FileState* also) noexcept nogil:
    """Do queue_unmap() with the mutex held. Return the number of files unmapped."""
    cdef FileState* f
    cdef int i, count = 0
    for i in range(q.count - keep):
        f = q.files[i]
        if f == also:
            continue
        if f.base == NULL or rc_load_i64(&f.holds) != 1 or f.buffer != NULL:
            continue
        if q.kind != FILE_WHOLE or f.flushed >= f.wrote:        # a sparse file is mapped again to be flushed
            file_unmap(f)
            count += 1
    return count


cdef int queue_unmap(FileQueue* q, int keep, const FileState* also) noexcept nogil:
    """Unmap the files without holds, except the last `keep` and `also`. They are mapped again on use. Return how
    many."""
    cdef int count
    pthread_mutex_lock(&q.mutex)
    count = unmap(q, keep, also)
    pthread_mutex_unlock(&q.mutex)
    return count


cdef void queue_settle(FileQueue* q) noexcept nogil:
    """Close the descriptors of full and durable files: their maps are enough. Only the flushing thread may call it."""
    cdef FileState* f
    cdef int i
    pthread_mutex_lock(&q.mutex)
    for i in range(q.count - KEPT):
        f = q.files[i]
        if f.fd >= 0 and f.buffer == NULL and f.flushed >= <int64_t>f.size and rc_load_i64(&f.holds) == 1:
            close_file(f.fd)            # a thread that prepares windows or commits would hold the file
            f.fd = -1
    pthread_mutex_unlock(&q.mutex)


cdef FileState* find(FileQueue* q, int64_t offset) noexcept nogil:
    """Return the file that covers offset, or NULL if none does. The mutex is held."""
    cdef int64_t guess
    cdef int low = 0, high = q.count, middle
    if q.count == 0 or offset < q.files[0].start:
        return NULL
    guess = (offset - q.files[0].start) // q.file_size
    if guess < q.count and q.files[guess].start == offset - (offset - q.files[0].start) % q.file_size:
        return q.files[guess]           # nearly always: no file is missing
    while high - low > 1:
        middle = (low + high) // 2
        if q.files[middle].start <= offset:
            low = middle
        else:
            high = middle
    return q.files[low] if offset - q.files[low].start < q.file_size else NULL


cdef int queue_hold(FileQueue* q, int64_t offset, FileState** file) noexcept nogil:
    """Find, map and hold the file that covers offset. Return RC_OK, ENOENT if there is none, or the error of the
    map."""
    cdef int rc = RC_OK
    pthread_mutex_lock(&q.mutex)
    file[0] = find(q, offset)
    if file[0] == NULL or not file_hold(file[0]):
        rc = ENOENT
    else:
        rc = file_map(file[0])
        if rc == ENOMEM and q.kind != FILE_SPARSE and unmap(q, KEPT, NULL) > 0:     # too many maps, or no address space
            rc = file_map(file[0])
        if rc != RC_OK:
            file_release(file[0])
    pthread_mutex_unlock(&q.mutex)
    return rc


cdef int read_at(int fd, int64_t pos, uint8_t* dst, int64_t n) noexcept nogil:
    """Read n bytes from a position of a file. Return RC_OK, an errno, or RC_FILE_CUT if the file ends before."""
    cdef int64_t done = 0
    cdef ssize_t got
    while done < n:
        got = pread(fd, dst + done, <size_t>(n - done), <off_t>(pos + done))
        if got < 0 and c_errno != EINTR:
            return c_errno
        if got == 0:
            return RC_FILE_CUT
        done += max(got, 0)
    return RC_OK


cdef int read_unmapped(FileQueue* q, int64_t offset, uint8_t* dst, int64_t* n) noexcept nogil:
    """Do queue_read() from a file that can't be mapped."""
    cdef FileState* f
    cdef int fd, rc = RC_OK
    pthread_mutex_lock(&q.mutex)
    f = find(q, offset)
    if f == NULL or not file_hold(f):
        rc = ENOENT
    pthread_mutex_unlock(&q.mutex)
    if rc != RC_OK:
        return rc
    n[0] = min(n[0], f.start + q.file_size - offset)
    fd = rc_open_file(f.path, O_RDONLY)
    if fd < 0:
        rc = c_errno
    else:
        rc = read_at(fd, offset - f.start, dst, n[0])
        close_file(fd)
    file_release(f)
    return rc


cdef int queue_read(FileQueue* q, int64_t offset, uint8_t* dst, int64_t* n) noexcept nogil:
    """Copy bytes from an offset on, from the map of their file, or from the file if it can't be mapped.

    dst  room for n bytes
    n    number of bytes to read; set to the number copied, which is less if the file that covers the offset ends before
    The number of maps of a process is limited (vm.max_map_count). Beyond it, files are read with a system call.
    Returns RC_OK, ENOENT if no file covers the offset, another errno, or RC_FILE_CUT.
    """
    cdef rc_guard guard
    cdef FileState* f
    cdef int rc = queue_hold(q, offset, &f)
    if rc == ENOMEM:
        return read_unmapped(q, offset, dst, n)
    if rc != RC_OK:
        return rc
    n[0] = min(n[0], f.start + q.file_size - offset)
    enter_writing(&guard, f.base, f.size, &f.cut)
    memcpy(dst, f.base + (offset - f.start), <size_t>n[0])
    guard_leave(&guard)
    if f.cut != 0:
        rc = RC_FILE_CUT
    file_release(f)
    return rc


cdef int make_folder(const char* path) noexcept nogil:
    return RC_OK if mkdir(path, 0o777) == 0 or c_errno == EEXIST else c_errno


cdef int queue_make_folders(FileQueue* q) noexcept nogil:
    """Create the folder of a consume queue, of its topic, and of all topics. Return RC_OK or an errno."""
    rc_raise_i64(&q.names, FOLDERS_OF_QUEUE)
    return make_queue_folders(q.folders[0])


cdef int make_queue_folders(char* folder) noexcept nogil:
    """Do queue_make_folders() for a path, which is cut during the call."""
    cdef char* slash[2]
    cdef int depth, rc
    if make_folder(folder) == RC_OK:        # nearly always: the topic has other queues
        return RC_OK
    for depth in range(2):
        slash[depth] = strrchr(folder, c"/")
        slash[depth][0] = 0
    rc = make_folder(folder)
    for depth in range(1, -1, -1):
        slash[depth][0] = c"/"
        if rc == RC_OK:
            rc = make_folder(folder)
    return rc


cdef int queue_take_up(FileQueue* q, int64_t offset, FileState** file) noexcept nogil:
    """Find or create the file that covers an offset, to write there; create its folders if they are missing.

    Only for FILE_SPARSE, whose last files are never unmapped. The data before the file's last hole is `claimed`.
    Returns RC_OK or an errno.
    """
    cdef FileState* f = NULL
    cdef int64_t end
    cdef int rc = queue_hold(q, offset, &f)
    if rc == RC_OK:
        file_release(f)
        end = file_data_end(f)
        if end < 0:
            return <int>-end
        f.claimed = (end + RC_OS_PAGE_BYTES - 1) // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES
        f.ready = 0
    elif rc == ENOENT:
        rc = queue_add(q, offset - offset % q.file_size, &f)
        if rc == ENOENT:            # the folder is missing too, or was deleted meanwhile
            rc = queue_make_folders(q)
            if rc == RC_OK:
                rc = queue_add(q, offset - offset % q.file_size, &f)
    if rc == RC_OK:
        file[0] = f
    return rc


cdef int64_t behind_deleted(FileQueue* q, int64_t offset) noexcept nogil:
    """Return where the queue continues after an offset whose file is or will be deleted; otherwise the offset
    itself."""
    cdef int64_t start = offset
    cdef FileState* f
    pthread_mutex_lock(&q.mutex)
    f = find(q, offset)
    if f != NULL and rc_load_i64(&f.available) == 0:
        start = f.start + q.file_size
    elif q.count > 0 and q.files[0].start > offset:
        start = q.files[0].start
    pthread_mutex_unlock(&q.mutex)
    return start


cdef int hold_rest(FileQueue* q, int64_t* offset, int64_t upto, FileState** file) noexcept nogil:
    """Hold the first file from an offset on, below upto, that is not deleted. The offset moves to it.

    Returns RC_OK, RC_END if there is no such file, or the error of queue_hold().
    """
    cdef int64_t behind
    cdef int rc
    while offset[0] < upto:
        rc = queue_hold(q, offset[0], file)
        behind = behind_deleted(q, offset[0]) if rc == ENOENT else offset[0]
        if behind <= offset[0]:
            return rc
        offset[0] = behind
    return RC_END


cdef int queue_commit(FileQueue* q) noexcept nogil:
    """Write the buffers of all files to the files. One thread at a time. Return RC_OK or an errno."""
    cdef FileState* f
    cdef int rc
    cdef int64_t offset = rc_load_i64(&q.flushed), upto = rc_load_i64(&q.wrote)
    while True:
        rc = hold_rest(q, &offset, upto, &f)
        if rc != RC_OK:
            return RC_OK if rc == RC_END else rc
        rc = file_commit(f)
        offset = f.start + q.file_size
        file_release(f)
        if rc != RC_OK:
            return rc


cdef int queue_flush(FileQueue* q, int64_t upto, const char** path) noexcept nogil:
    """Make the queue durable up to `upto`, which is at most q.wrote. One thread at a time.

    path  set to the file that failed; valid while no thread truncates or deletes
    Returns RC_OK, an errno or RC_FILE_CUT; q.flushed is the offset reached.
    """
    cdef FileState* f
    cdef int rc
    cdef int64_t offset = rc_load_i64(&q.flushed), stop
    while True:
        rc = hold_rest(q, &offset, upto, &f)
        if rc != RC_OK:
            return RC_OK if rc == RC_END else rc
        stop = min(upto - f.start, q.file_size)
        rc = file_flush(f, stop)
        offset = f.start + stop
        path[0] = f.path
        file_release(f)
        if rc != RC_OK:
            return rc
        rc_store_i64(&q.flushed, offset)


cdef int sync_folder_of(char* path) noexcept nogil:
    """Make the name of a file durable. Its path, folder/name, is cut to the folder during the call."""
    cdef char* slash = strrchr(path, c"/")
    cdef int rc
    slash[0] = 0
    rc = rc_sync_folder(path)
    slash[0] = c"/"
    return rc


cdef int queue_sync_names(FileQueue* q) noexcept nogil:
    """Make the names of a queue in one folder durable. Creating its files did not wait for this."""
    cdef char path[PATH_BYTES]
    cdef int64_t folders = rc_load_i64(&q.names)
    if folders == 0:
        return RC_OK
    rc_store_i64(&q.names, 0)       # names added from now on are for the next call
    if strlen(q.folders[0]) >= PATH_BYTES:
        return ENAMETOOLONG
    strcpy(path, q.folders[0])
    return sync_folders(path, folders)


cdef int sync_folders(char* path, int64_t folders) noexcept nogil:
    """Make the names in a folder, and in the folders above it, durable: in as many folders. The path is cut."""
    cdef char* slash
    cdef int rc = RC_OK
    while rc == RC_OK and folders > 0:
        rc = rc_sync_folder(path)
        slash = strrchr(path, c"/")
        if slash == NULL:
            break
        slash[0] = 0
        folders -= 1
    return rc
