"""The bytes of one commit log file or buffer, mapped or fetched."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.vm cimport rc_guard
from rocketc.files._mapped_file cimport MappedFile
from rocketc.format._record cimport Record

cdef enum:
    STEP_BYTES = 32 << 20   # the most bytes that one call without the GIL reads


cdef class LogBytes:
    cdef:
        MappedFile _map         # or None: a buffer
        const uint8_t[::1] _view
        const uint8_t* _buf     # _len bytes; NULL if _len is 0
        size_t _len
        size_t _there           # bytes from the current position up to here can be read; _len without fetch
        object _fetch           # or None: all bytes are loaded
        bint _away              # a search found a record that is not fully loaded
        size_t _limit           # full size of the file: more than _len if its copy is incomplete
        size_t _released        # the map is released up to here
        int _crowd              # number of candidates in a search that overlap and have a wrong CRC
        size_t _crowd_end       # where the last of them ends
        int _crc
    cdef readonly:
        int64_t base            # physical offset of byte 0
    cdef void enter(self, rc_guard* guard) noexcept nogil
    cdef void leave(self, rc_guard* guard) noexcept nogil
    cdef int _reach_record(self, size_t pos) except -1
    cdef size_t _reach(self, size_t pos, size_t stop) except? 0
    cdef int _parse_there(self, size_t pos, Record* r) noexcept nogil
    cdef int _look(self, size_t pos) noexcept nogil
    cdef bint _is_boundary(self, size_t pos) except -1
    cdef bint _is_blank(self, size_t pos) noexcept nogil
    cdef size_t _find_next(self, size_t pos) except? 0
    cdef size_t _find(self, size_t pos, size_t end, bint with_offset) except? 0
    cdef size_t _find_in(self, size_t pos, size_t stop, bint with_offset) noexcept nogil
    cdef bint _is_crowded(self, size_t pos, const Record* r) noexcept nogil
    cdef void _note_crowd(self, size_t pos, const Record* r) noexcept nogil
    cdef int64_t _learn_base(self) except? -1
    cdef int64_t _offset_at(self, size_t pos) noexcept
    cdef size_t _data_from(self, size_t pos) except? 0
    cdef size_t _trimmed(self, size_t pos) except? 0
    cdef void _forget_pages(self, size_t pos) noexcept
