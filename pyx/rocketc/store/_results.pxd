"""Records that a read picked: copied out of the log at once, checked, made to messages when they are asked for."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.layout cimport RC_FLAG_COMPRESSED, RC_FLAG_INNER_BATCH
from rocketc.c.vm cimport rc_guard
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable

# How a call reads: bits.
cdef enum ReadFlags:
    READ_VIEWS = 1               # bodies stay in the map
    READ_LOOSE = 2               # a hash that fits is enough
    READ_BROKER = 4              # a broker's limits hold
    READ_STORED = 8              # bodies are not decompressed
    READ_WHOLE = 16              # inner batches are not opened
    READ_BODY_CRC = 32           # times a Crc: what is checked
    READ_FULL_CRC = 64
    READ_CODES = 128             # tags codes are wanted of every unit: those that the extension has, too
    READ_CRC = READ_BODY_CRC | READ_FULL_CRC
    READ_PLAIN = READ_STORED | READ_WHOLE

# A record that was picked, and what was said of it; the numbers are claims until taken() has looked.
ctypedef struct PickedRecord:
    Record r                    # its pointers lead into the copy, or the map
    int64_t phy_offset
    int64_t queue_offset        # -1: nobody said one
    int32_t size
    bint mapped                 # its body stays in the map

# What a call picked.
ctypedef struct PickedRecords:
    PickedRecord* rows                 # malloc, or &one
    PickedRecord one                   # most look-ups find one record
    int count
    int room
    int64_t bytes
    bint special                # some body is compressed, or an inner batch

# The file of the log that is looked into: held, and guarded from enter() on.
ctypedef struct Cursor:
    FileQueue* log
    FileState* file             # NULL: none
    rc_guard guard
    bint guarded


cdef inline void cursor_init(Cursor* c, FileQueue* log) noexcept nogil:
    """No file of the log is looked into yet; cursor_leave() is the end."""
    c.log = log
    c.file = NULL
    c.guarded = False


# Whose a record must be.
ctypedef struct QueueIdentity:
    const uint8_t* topic
    int32_t topic_len
    int32_t queue_id
    bint lmq                    # the queue is a light one: its records have a topic of their own

cdef inline bint is_special(const Record* r) noexcept nogil:
    """Whether a record's body may have to be decompressed or opened."""
    return r.sys_flag & (RC_FLAG_COMPRESSED | RC_FLAG_INNER_BATCH) != 0


cdef class TagFilter:
    cdef:
        int32_t* _codes
        int _count
        TextTable _texts
    cdef bint fits(self, int64_t tags_code) noexcept nogil
    cdef bint passes(self, const Record* r) noexcept nogil

cdef class ReadResult:
    cdef:
        PickedRecords _picked
        list _views             # of the bodies in the map
        list _messages          # None: not made yet
        object _paths           # str: the file of all records; dict: by number of the file
        TagFilter _tags
        int64_t _offset         # messages of inner batches before it are left out
        int64_t _file_size
        int _how
        bytes _buffer
    cdef list _made(self)

cdef class LogPaths:
    cdef:
        MappedFileQueue _log
        dict _known             # by number of the file
        str _last               # that of the file at _start
        int64_t _start
    cdef str at(self, int64_t phy_offset)

cdef int64_t checked_int(str what, object value, int64_t least, int64_t most) except? -1
cdef int read_flags(
    str crc, bint decompress, bint unwrap, bint views, bint exact, bint broker_limits,
) except -1
cdef object files_of(LogPaths paths, const PickedRecords* h)
cdef void fetch(const uint8_t* at, int64_t size) noexcept nogil
cdef int cursor_seek(Cursor* c, int64_t phy_offset) noexcept nogil
cdef void cursor_enter(Cursor* c) noexcept nogil
cdef void cursor_rest(Cursor* c) noexcept nogil
cdef void cursor_leave(Cursor* c) noexcept nogil
cdef int picked_reserve(PickedRecords* h, int room) noexcept nogil
cdef int picked_add(PickedRecords* h, int64_t phy_offset, int32_t size, int64_t queue_offset) noexcept nogil
cdef int check_claim(PickedRecord* t, const uint8_t* at, const QueueIdentity* of, int how) noexcept nogil
cdef int copy_record(Cursor* c, PickedRecords* h, uint8_t* dst, const QueueIdentity* of, int how) noexcept nogil
cdef int read_copies(Cursor* c, ReadResult answer, const QueueIdentity* of, int how) except? -1
cdef int attach_copy(ReadResult answer, const uint8_t* copy) except -1
cdef int open_record(
    list out, const Record* r, bytes raw, str file, int how, TagFilter tags, int64_t first,
) except -1
