"""From record to record through one file or buffer, damage included."""
from libc.stdint cimport int64_t, uint8_t

from rocketc._filter cimport Filter
from rocketc._mapped_file cimport MappedFile
from rocketc._record cimport Record
from rocketc._vm cimport rc_guard

cdef enum:
    BLOCK_RECORDS = 256     # records that one call finds at most
    BLOCK_BYTES = 512 << 10     # a block ends behind so many bytes of records: what follows reads them from the cache
    STEP_BYTES = 32 << 20   # one call without the GIL walks over no more


cdef class Walker:
    cdef:
        MappedFile _map         # or None: a buffer
        const uint8_t[::1] _view
        const uint8_t* _buf     # _len bytes; NULL if _len is 0
        size_t _len
        size_t _whole           # _len before the file was cut while we read it; 0: it was not
        size_t _there           # bytes up to here, from where the walk or a search is, can be read; _len but for fetch
        object _fetch           # or None: all bytes are there
        bint _away              # a search met a record that is not all there
        size_t _limit           # where the file ends by right: more than _len if its end was not copied
        size_t _pos             # of the next record; all before it is done
        size_t _from            # records before it are walked over in silence
        size_t _to              # records from it on are not ours
        size_t _let_go          # the map is dropped up to here
        size_t _zeros_at        # from here on there were only zeros when we looked
        int _crowd              # records found in a search that overlap and whose CRC was wrong
        size_t _crowd_end       # where the last of them ends
        Filter _filter
        int _crc
        bint _raise             # damage is an exception
        bint _last              # no file with data follows: zero space is the end of the log
        bint _follow            # a record that is not whole yet is waited for
        bint _search            # the end is agreed upon with who searches for the first record from there
        bint _begun             # the first record is found
        bint _torn_twice        # a bad tail was looked at again already
        bint _done
        str _file
        int _count              # records in _block, valid until the next call
        Record _block[BLOCK_RECORDS]
    cdef readonly:
        int64_t base            # physical offset of byte 0
        bint ended              # zero space was met: the log ends here (for now)
        size_t blanks
        list damage             # (start, stop, reason), physical offsets
    cdef int next_block(self) except -1
    cdef int lost(self, const Record* r, str reason) except -1
    cdef bint is_cut(self) noexcept nogil
    cdef int cut_in_block(self, int first) except -1
    cdef void enter(self, rc_guard* guard) noexcept nogil
    cdef void leave(self, rc_guard* guard) noexcept nogil
    cdef int _seek(self) except -1
    cdef bint _is_agreed(self) except -1
    cdef int _fill(self) noexcept nogil
    cdef int _judge(self) except -1
    cdef bint _go_on(self, int rc) except -1
    cdef bint _finish(self) noexcept
    cdef bint _damaged(self, int rc) except -1
    cdef bint _step_over(self, size_t start, size_t next, int rc) except -1
    cdef bint _is_shorter(self) noexcept nogil
    cdef bint _on_cut(self, size_t start) except -1
    cdef bint _end_of_cut(self) except -1
    cdef int _look(self, size_t pos) noexcept nogil
    cdef bint _look_again(self, int looks) except -1
    cdef bint _is_boundary(self, size_t pos) except -1
    cdef bint _is_blank(self, size_t pos) noexcept nogil
    cdef int _reach_record(self, size_t pos) except -1
    cdef size_t _reach(self, size_t pos, size_t stop) except? 0
    cdef int _parse_there(self, size_t pos, Record* r) noexcept nogil
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
