"""Records that a read picked: copied out of the log at once, checked, made to messages when they are asked for."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc._append_file cimport FileState
from rocketc._file_queue cimport FileQueue
from rocketc._filter cimport TextTable
from rocketc._mapped_file_queue cimport MappedFileQueue
from rocketc._record cimport Record
from rocketc._vm cimport rc_guard

# How a call reads: bits.
cdef enum How:
    HOW_VIEWS = 1               # bodies stay in the map
    HOW_LOOSE = 2               # a hash that fits is enough
    HOW_BROKER = 4              # a broker's limits hold
    HOW_STORED = 8              # bodies are not decompressed
    HOW_WHOLE = 16              # inner batches are not opened
    HOW_BODY_CRC = 32           # times a Crc: what is checked
    HOW_FULL_CRC = 64
    HOW_CRC = HOW_BODY_CRC | HOW_FULL_CRC
    HOW_PLAIN = HOW_STORED | HOW_WHOLE

# A record that was picked, and what was said of it; the numbers are claims until taken() has looked.
ctypedef struct Taken:
    Record r                    # its pointers lead into the copy, or the map
    int64_t phy_offset
    int64_t queue_offset        # -1: nobody said one
    int64_t unit                # number of the unit that says so; -1: an index does
    int32_t size
    int32_t count               # messages
    bint mapped                 # its body stays in the map

# What a call picked.
ctypedef struct Haul:
    Taken* rows                 # malloc, or &one
    Taken one                   # most look-ups find one record
    int count
    int room
    int64_t messages
    int64_t bytes
    bint special                # some body is compressed, or an inner batch

# The file of the log that is looked into: held, and guarded from enter() on.
ctypedef struct Cursor:
    FileQueue* log
    FileState* file             # NULL: none
    rc_guard guard
    bint guarded

# Whose a record must be.
ctypedef struct Place:
    const uint8_t* topic
    int32_t topic_len
    int32_t queue_id
    bint lmq                    # the queue is a light one: its records have a topic of their own

cdef class TagFilter:
    cdef:
        int32_t* _codes
        int _count
        TextTable _texts
    cdef bint fits(self, int64_t tags_code) noexcept nogil
    cdef bint passes(self, const Record* r) noexcept nogil

cdef class Answer:
    cdef:
        Haul _haul
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

cdef int64_t number(str what, object value, int64_t least, int64_t most) except? -1
cdef int how_of(str crc, bint decompress, bint unwrap) except -1
cdef object files_of(LogPaths paths, const Haul* h)
cdef void fetch(const uint8_t* at, int64_t size) noexcept nogil
cdef int cursor_seek(Cursor* c, int64_t phy_offset) noexcept nogil
cdef void cursor_enter(Cursor* c) noexcept nogil
cdef void cursor_rest(Cursor* c) noexcept nogil
cdef void cursor_leave(Cursor* c) noexcept nogil
cdef void claim(
    Taken* t, int64_t phy_offset, int32_t size, int64_t queue_offset, int64_t unit, int32_t count,
) noexcept nogil
cdef int haul_room(Haul* h, int room) noexcept nogil
cdef int haul_add(
    Haul* h, int64_t phy_offset, int32_t size, int64_t queue_offset, int64_t unit, int32_t count,
) noexcept nogil
cdef int take(Cursor* c, Haul* h, uint8_t* dst, const Place* of, int how) noexcept nogil
cdef int take_copies(Cursor* c, Answer answer, const Place* of, int how) except? -1
cdef int keep(Answer answer, const uint8_t* copy) except -1
cdef int take_views(Cursor* c, Answer answer, const Place* of, int how) except? -1
cdef int open_record(
    list out, const Record* r, bytes raw, str file, int how, TagFilter tags, int64_t first,
) except -1
