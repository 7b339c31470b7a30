"""The list of files of one queue, shared by the threads of a store."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.atomic cimport rc_fence_full, rc_load_i64, rc_store_i64
from rocketc.c.service cimport pthread_mutex_t, rc_service, rc_service_wake
from rocketc.files._append_file cimport FileState

cdef enum:
    KEPT = 2                # files at the end of the list that are written to without a hold
    FOLDERS_OF_QUEUE = 4    # that get names with a new queue: of its files, its own, its topic's, that of all topics
    AVOIDABLE = 63          # only the first folders can be avoided: one bit each in an int64_t

# The list of files, shared by the threads of a store. They hold the mutex briefly, with or without the GIL.
ctypedef struct FileQueue:
    pthread_mutex_t mutex   # files, count, room
    FileState** files       # by offset; each starts where the previous one ends, unless a file is missing
    int count
    int room
    int64_t file_size       # bytes of each
    int64_t wrote           # end of the last record, as an offset of the queue; stored after the file's own
    int64_t store_timestamp  # ms, of the last record; stored before wrote
    int64_t flushed         # end of the durable bytes
    int64_t group           # bytes of a flush, mean of the last flushes
    int64_t flushed_timestamp   # ms: records up to this time are durable
    char** folders          # where new files go, see folder_of_new(); the memory belongs to the caller of queue_init()
    int folder_count
    int64_t avoided         # a bit for each folder that new files must not go to
    int kind                # a FileKind, of new files
    rc_service* reader      # the thread that follows the queue, or NULL
    int64_t reader_asleep   # 1: it wants to be woken when there is more to read
    int64_t locked          # bytes of the maps of its files that are locked in memory
    int64_t names           # names are not durable in this many folders: that of the files and those above it


cdef inline void queue_wake_reader(FileQueue* q) noexcept nogil:
    """Wake the thread that follows the queue, if it sleeps: there is more to read."""
    rc_fence_full()
    if rc_load_i64(&q.reader_asleep) != 0 and q.reader != NULL:
        rc_store_i64(&q.reader_asleep, 0)
        rc_service_wake(q.reader)


cdef int queue_init(FileQueue* q, int64_t file_size, char** folders, int folder_count, int kind) noexcept nogil
cdef void queue_free(FileQueue* q) noexcept nogil
cdef int queue_path(FileQueue* q, int64_t start, char* path, size_t room) noexcept nogil
cdef int queue_push(FileQueue* q, FileState* f) noexcept nogil
cdef FileState* queue_last(FileQueue* q) noexcept nogil
cdef FileState* queue_at(FileQueue* q, int i) noexcept nogil
cdef int64_t queue_start(FileQueue* q, int least) noexcept nogil
cdef int64_t queue_next(FileQueue* q, int64_t offset) noexcept nogil
cdef int64_t queue_bytes(FileQueue* q) noexcept nogil
cdef int queue_add(FileQueue* q, int64_t start, FileState** file) noexcept nogil
cdef int queue_known(FileQueue* q, const char* path, int64_t start, int64_t wrote) noexcept nogil
cdef int queue_remove(FileQueue* q, int i) noexcept nogil
cdef void queue_unlock(FileQueue* q, int64_t since, int64_t upto) noexcept nogil
cdef int queue_unmap(FileQueue* q, int keep, const FileState* also) noexcept nogil
cdef void queue_settle(FileQueue* q) noexcept nogil
cdef int queue_hold(FileQueue* q, int64_t offset, FileState** file) noexcept nogil
cdef int queue_read(FileQueue* q, int64_t offset, uint8_t* dst, int64_t* n) noexcept nogil
cdef int read_at(int fd, int64_t pos, uint8_t* dst, int64_t n) noexcept nogil
cdef int queue_make_folders(FileQueue* q) noexcept nogil
cdef int make_queue_folders(char* folder) noexcept nogil
cdef int queue_take_up(FileQueue* q, int64_t offset, FileState** file) noexcept nogil
cdef int queue_commit(FileQueue* q) noexcept nogil
cdef int queue_flush(FileQueue* q, int64_t upto, const char** path) noexcept nogil
cdef int sync_folder_of(char* path) noexcept nogil
cdef int queue_sync_names(FileQueue* q) noexcept nogil
cdef int sync_folders(char* path, int64_t folders) noexcept nogil
