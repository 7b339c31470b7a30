"""One consume queue in memory: its units are read by any thread, and written by the dispatcher alone."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from rocketc.derived._consume_queue_ext cimport ExtQueue
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue
from rocketc.format._queue_units cimport Unit

cdef enum:
    UNITS_AT_ONCE = 64      # that one cq_read() hands out at most

# One queue. Only the dispatcher writes; readers take `units` first and look at nothing behind it.
ctypedef struct ConsumeQueue:
    ConsumeQueue* next      # of the same bucket
    FileQueue files         # of the kind FILE_SPARSE
    FileState* last         # the file that is written to, or NULL
    ExtQueue* ext           # its extension, which keeps the tags codes; NULL: it has none
    bint extends            # units that are put get one of it
    int64_t ext_phy_offset  # the record whose unit of the extension was put last,
    int64_t ext_address     # ... and where
    char* folder
    int64_t units           # end of what is written: the number of the next unit; unit n stands at byte n * unit_bytes
    int64_t min_unit        # units before it point to records that are gone
    int64_t max_offset      # queue offset behind the last message; stored before units
    int64_t max_phy_offset  # physical offset behind its last record; -1: none
    int64_t loaded          # units that the files held when they were loaded; those behind `units` are not confirmed
    int64_t window          # bytes of the next room
    int64_t repaired        # units that were not what the log says
    int64_t claim_phy       # the record that the first unit of its files stands for, until it is met; -1: it was
    int64_t claim_offset    # its queue offset
    int64_t left_out        # records before it that are not of this queue, but of one that was deleted
    int64_t repeated        # records whose numbers it had already
    int64_t kept            # the next message's number is not lower: those before it are of damaged ones
    int64_t jumped_from     # the number that the last record should have, if not its own; BEGUN: it was the first; -1
    int64_t dead            # 1 once its topic was deleted
    bint refused            # the last record that was met said a number that can't be true
    bint unproven           # the numbers of its files were believed for its first record, and no other agreed yet
    int64_t came            # messages since the store was opened, and the bytes of their records;
    int64_t came_bytes
    int64_t given           # messages that readers got, and theirs
    int64_t given_bytes
    uint64_t inode          # of the last of its files, if another process writes them
    bint confirmed          # a record of it was met since the store was opened
    uint32_t hash
    int32_t key_hash        # Java's hash of "topic#": the beginning of an index key's
    int32_t queue_id
    int32_t unit_bytes      # 20, or 46 in a batch queue
    int32_t topic_len
    uint8_t topic[1]        # topic_len bytes


cdef inline bint is_named(
    const ConsumeQueue* q, const uint8_t* topic, int32_t topic_len, int32_t queue_id, uint32_t h,
) noexcept nogil:
    """Whether a queue is the one of a topic and queue id; h: their cq_hash()."""
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
