"""One consume queue in memory. Any thread may read its units; only the dispatcher writes them."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from rocketc.derived._consume_queue_ext cimport ExtQueue
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue
from rocketc.format._queue_units cimport Unit

cdef enum:
    UNITS_AT_ONCE = 64      # most units that one cq_read() returns

# One queue. Only the dispatcher writes. Readers load `units` first and read nothing at or after it.
ctypedef struct ConsumeQueue:
    ConsumeQueue* next      # next queue of the same bucket
    FileQueue files         # of the kind FILE_SPARSE
    FileState* last         # the file that is written to, or NULL
    ExtQueue* ext           # its extension, which holds the tags codes; NULL: it does not have one
    bint extends            # new units get a tags code in the extension
    int64_t ext_phy_offset  # physical offset of the last record with a unit in the extension
    int64_t ext_address     # address of that unit
    char* folder
    int64_t units           # number of the next unit; unit n starts at byte n * unit_bytes
    int64_t min_unit        # the records of units before it are deleted
    int64_t max_offset      # queue offset after the last message; stored before units
    int64_t max_phy_offset  # physical offset after its last record; -1: none
    int64_t loaded          # units that the files held when they were loaded; those from `units` on are not confirmed
    int64_t window          # bytes of the next room to make
    int64_t repaired        # units that were different from the log
    int64_t claim_phy       # record of the first unit of its files, as loaded; -1: unknown, or found in the log
    int64_t claim_offset    # queue offset of that record
    int64_t left_out        # records before it that belong to a deleted queue of the same name
    int64_t repeated        # records with a queue offset that the queue had already
    int64_t kept            # least queue offset of the next message: lower ones belong to damaged records
    int64_t jumped_from     # queue offset that the last record should have, if not its own; BEGUN: first record; or -1
    int64_t dead            # 1 after its topic was deleted
    bint refused            # the last record had an impossible queue offset
    bint unconfirmed        # the first record took its queue offset from the files; not confirmed by another record
    int64_t came            # messages since the store was opened
    int64_t came_bytes
    int64_t given           # messages that readers got
    int64_t given_bytes
    uint64_t inode          # of its last file, if another process writes it
    bint confirmed          # a record of it was dispatched since the store was opened
    uint32_t hash
    int32_t key_hash        # Java's hash of "topic#": the start of the hash of an index key
    int32_t queue_id
    int32_t unit_bytes      # 20, or 46 in a batch queue
    int32_t topic_len
    uint8_t topic[1]        # topic_len bytes


cdef inline bint is_named(
    const ConsumeQueue* q, const uint8_t* topic, int32_t topic_len, int32_t queue_id, uint32_t h,
) noexcept nogil:
    """Return whether a queue has this topic, queue id and hash h, which is cq_hash() of both."""
    return (
        q.hash == h and q.queue_id == queue_id and q.topic_len == topic_len
        and memcmp(q.topic, topic, <size_t>topic_len) == 0
    )


cdef int cq_read(ConsumeQueue* q, int64_t unit, int n, Unit* out, int* got) noexcept nogil
cdef int cq_read_loaded(ConsumeQueue* q, int64_t unit, Unit* out, int* got) noexcept nogil
cdef int cq_tags_code(ConsumeQueue* q, const Unit* u, int64_t* tags_code) noexcept nogil
cdef int cq_unit_of(ConsumeQueue* q, int64_t queue_offset, int64_t* unit) noexcept nogil
cdef int cq_min_offset(ConsumeQueue* q, int64_t* offset) noexcept nogil
cdef int next_real(ConsumeQueue* q, int64_t* number, int64_t stop, Unit* u) noexcept nogil
cdef int units_before(ConsumeQueue* q, int64_t phy_offset, int64_t low, int64_t* units) noexcept nogil
cdef int last_of(ConsumeQueue* q, int64_t units, Unit* u) noexcept nogil
cdef int write_unit(ConsumeQueue* q, int64_t number, const Unit* u) noexcept nogil
cdef int write_blanks(ConsumeQueue* q, int64_t number, int64_t stop) noexcept nogil
cdef int begin_at(ConsumeQueue* q, int64_t number) noexcept nogil
cdef int drop_files(ConsumeQueue* q) noexcept nogil
