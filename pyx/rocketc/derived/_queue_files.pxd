"""The files of a consume queue: maps while it is in use, system calls while it is idle."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rocketc.c.service cimport pthread_mutex_t
from rocketc.derived._consume_queue_ext cimport ExtQueue
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue

cdef enum:
    STRIPES = 64            # locks of a store's queues, and queues that the writer keeps open

cdef enum FilesUse:
    FILES_PEEK = 0          # only if the queue is open
    FILES_USE = 1           # open an idle queue if there is room, or if it is used often
    FILES_MUST = 2          # open an idle queue

# The files of a queue that is in use. They may be mapped.
ctypedef struct OpenFiles:
    ConsumeQueue* queue
    FileQueue files         # of the kind FILE_SPARSE or FILE_READ
    FileState* last         # the file that is written to, or NULL; only the writer uses it
    int64_t window          # bytes of the next room to make
    int64_t read_start      # the file before the last one that is read from its map; the others are not mapped
    int64_t holds           # uses by threads; it is closed only at 0
    int64_t is_recent       # 1: used since the clock's hand passed
    char* folder

# Needed only while a store is opened or checked: what the files held, and how it differs from the log.
ctypedef struct QueueOpening:
    int64_t loaded          # units that the files held when they were loaded; those from `units` on are not confirmed
    int64_t repaired        # units that were different from the log
    int64_t claim_phy       # record of the first unit of its files, as loaded; -1: unknown, or found in the log
    int64_t claim_offset    # queue offset of that record
    int64_t left_out        # records before it that belong to a deleted queue of the same name
    int64_t kept            # least queue offset of the next message: lower ones belong to damaged records
    int64_t jumped_from     # queue offset that the last record should have, if not its own; BEGUN: first record; or -1
    bint unconfirmed        # the first record took its queue offset from the files; not confirmed by another record

# Messages since the store was opened.
ctypedef struct QueueCounters:
    int64_t came
    int64_t came_bytes
    int64_t given           # to readers
    int64_t given_bytes

# One queue. Only the dispatcher writes. Readers load `units` first and read nothing at or after it. A store may have a
# million: what only a queue in use needs is in OpenFiles, QueueCounters and QueueOpening.
ctypedef struct ConsumeQueue:
    ConsumeQueue* next      # next queue of the same bucket
    QueueShared* shared
    OpenFiles* open         # NULL: idle; guarded by the queue's stripe
    QueueOpening* opening   # NULL once the store is open
    void* counters          # QueueCounters, or NULL: no messages yet
    ExtQueue* ext           # its extension, which holds the tags codes; NULL: it does not have one
    int64_t units           # number of the next unit; unit n starts at byte n * unit_bytes
    int64_t min_unit        # the records of units before it are deleted
    int64_t max_offset      # queue offset after the last message; stored before units
    int64_t max_phy_offset  # physical offset after its last record; -1: none
    int64_t first_phy       # physical offset of the record of unit min_unit; -1: unknown
    int64_t start           # offset of its first file; -1: there are no files
    int64_t flushed         # end of the durable units, as an offset of the files
    int64_t file_count
    uint64_t inode          # of its last file, if another process writes it
    int32_t file_size       # bytes of a file
    uint32_t last_use       # turn of the last use while idle
    uint32_t hash
    int32_t key_hash        # Java's hash of "topic#": the start of the hash of an index key
    int32_t queue_id
    int32_t topic_len
    int32_t repeated        # records with a queue offset that the queue had already
    uint8_t unit_bytes      # 20, or 46 in a batch queue
    uint8_t uses            # of the idle queue, one soon after the other
    uint8_t names           # names are not durable in this many folders: that of the files and those above it
    uint8_t is_waiting      # it is in the list of queues with pages to flush
    uint8_t extends         # new units get a tags code in the extension
    uint8_t confirmed       # a record of it was dispatched since the store was opened
    uint8_t refused         # the last record had an impossible queue offset
    uint8_t dead            # 1 after its topic was deleted
    uint8_t topic[1]        # topic_len bytes

# What all queues of a store share.
ctypedef struct QueueShared:
    pthread_mutex_t stripes[STRIPES]    # of the queues with this hash: open, start, file_count, uses
    pthread_mutex_t mutex   # ring, waiting; taken after a stripe
    OpenFiles** ring        # all queues in use
    int64_t count           # queues in use
    int room
    int capacity            # queues that are in use at a time
    int hand                # of the clock
    int64_t turn            # uses of idle queues
    ConsumeQueue* written[STRIPES]      # queues that the writer keeps open, by hash
    OpenFiles* written_files[STRIPES]
    ConsumeQueue** waiting  # queues with at least a page to flush
    int waiting_count
    int waiting_room
    const char* above[2]    # folder of all simple queues, of all batch queues
    int64_t new_names       # queues of which names are not durable
    int kind                # a FileKind
    int64_t is_durable      # 1: the files were durable when they were loaded
    int64_t is_loading      # 1: do not open queues, each is read once
    int64_t is_closed
    char* failed_path       # the file of the last failed flush

cdef QueueShared* shared_new(const char* simple, const char* batch, int kind, int capacity) noexcept nogil
cdef void shared_free(QueueShared* s) noexcept nogil
cdef const char* failed_folder(ConsumeQueue* q) noexcept nogil
cdef int queue_folder(const ConsumeQueue* q, char* path) noexcept nogil
cdef int path_of_file(const ConsumeQueue* q, int64_t pos, char* path) noexcept nogil
cdef int files_hold(ConsumeQueue* q, FilesUse use, OpenFiles** files) noexcept nogil
cdef bint is_idle(ConsumeQueue* q) noexcept nogil
cdef void files_release(OpenFiles* files) noexcept nogil
cdef int files_of_writer(ConsumeQueue* q, bint must, OpenFiles** files) noexcept nogil
cdef void files_changed(ConsumeQueue* q, OpenFiles* files) noexcept nogil
cdef void files_free(ConsumeQueue* q) noexcept nogil
cdef void files_free_rest(QueueShared* s) noexcept nogil
cdef void files_close_all(QueueShared* s) noexcept nogil
cdef int files_read(ConsumeQueue* q, OpenFiles* files, int64_t pos, uint8_t* data, int64_t* n) noexcept nogil
cdef void ext_rest(ConsumeQueue* q) noexcept nogil
cdef int open_idle(const ConsumeQueue* q, int64_t pos, bint writing, int* fd) noexcept nogil
cdef int read_idle(ConsumeQueue* q, int64_t pos, uint8_t* data, int64_t* n) noexcept nogil
cdef int add_file(ConsumeQueue* q, int64_t start, const char* path) noexcept nogil
cdef int create_idle(ConsumeQueue* q, int64_t pos, int* fd) noexcept nogil
cdef int flush_idle(ConsumeQueue* q, int64_t upto, const char** path) noexcept nogil
cdef void set_file_size(ConsumeQueue* q, int32_t size) noexcept nogil
cdef void raise_names(ConsumeQueue* q, uint8_t folders) noexcept nogil
cdef int make_folders(ConsumeQueue* q) noexcept nogil
cdef int sync_names(ConsumeQueue* q) noexcept nogil
cdef bint wait_for_flush(ConsumeQueue* q) noexcept nogil
cdef QueueCounters* counters_of(ConsumeQueue* q) noexcept nogil
cdef void count_given(ConsumeQueue* q, int64_t messages, int64_t bytes) noexcept nogil
