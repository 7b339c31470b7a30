"""Results of reads: records are copied and checked by the read; messages are created on first use."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.layout cimport RC_FLAG_COMPRESSED, RC_FLAG_INNER_BATCH
from rocketc.c.vm cimport rc_guard
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable
from rocketc.read._opened_records cimport OPEN_STORED, OPEN_WHOLE

# Options of a read, as bits.
cdef enum ReadFlags:
    READ_VIEWS = 1               # leave bodies in the map
    READ_LOOSE = 2               # a matching hash of the tag or key is enough
    READ_BROKER = 4              # apply a broker's limits
    READ_STORED = OPEN_STORED    # do not decompress bodies
    READ_WHOLE = OPEN_WHOLE      # do not open inner batches
    READ_BODY_CRC = 32           # READ_CRC is the Crc to check, times READ_BODY_CRC
    READ_FULL_CRC = 64
    READ_CODES = 128             # read the tags code of each unit, also from the extension
    READ_CRC = READ_BODY_CRC | READ_FULL_CRC
    READ_PLAIN = READ_STORED | READ_WHOLE

# A record that was picked. The numbers are those of a unit or an index; check_claim() compares them with the record.
ctypedef struct PickedRecord:
    Record r                    # its pointers point into the copy, or into the map
    int64_t phy_offset
    int64_t queue_offset        # -1: not known
    int32_t size
    bint mapped                 # the body stays in the map

# The records that a call picked.
ctypedef struct PickedRecords:
    PickedRecord* rows                 # from malloc, or &one
    PickedRecord one                   # most look-ups find one record
    int count
    int room                    # number of allocated rows
    int64_t bytes               # of all rows together
    bint special                # a body is compressed, or is an inner batch

# The current file of a read: held, and guarded between cursor_enter() and cursor_rest().
ctypedef struct Cursor:
    FileQueue* log
    FileState* file             # NULL: no file is held
    rc_guard guard
    bint guarded


cdef inline void cursor_init(Cursor* c, FileQueue* log) noexcept nogil:
    """Initialize a cursor without a file. The caller ends it with cursor_leave()."""
    c.log = log
    c.file = NULL
    c.guarded = False


# The queue to which a record must belong.
ctypedef struct QueueIdentity:
    const uint8_t* topic
    int32_t topic_len
    int32_t queue_id
    bint lmq                    # a light queue: its records have other topics

cdef inline bint is_special(const Record* r) noexcept nogil:
    """Return True if a body may have to be decompressed, or opened as an inner batch."""
    return r.sys_flag & (RC_FLAG_COMPRESSED | RC_FLAG_INNER_BATCH) != 0


cdef class TagFilter:
    cdef:
        int32_t* _codes
        int _count
        TextTable _texts
        bint by_record          # units are not compared: passes() alone selects, also with READ_LOOSE
        int64_t weight          # how long passes() takes for a byte of the properties: steps of a program
    cdef bint fits(self, int64_t tags_code) noexcept nogil
    cdef bint passes(self, const Record* r) noexcept nogil

cdef class ReadResult:
    cdef:
        PickedRecords _picked
        list _views             # the views of bodies in the map
        list _messages          # None: not created yet
        object _paths           # str: the file of all records; dict: the files by their number
        TagFilter _tags
        int64_t _offset         # earlier messages of inner batches are left out
        int64_t _file_size
        int _how
        bytes _buffer
    cdef list _made(self)

cdef class LogPaths:
    cdef:
        MappedFileQueue _log
        dict _known             # {number of the file: path}
        str _last               # path of the file at _start
        int64_t _start          # physical offset
    cdef str at(self, int64_t phy_offset)

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
