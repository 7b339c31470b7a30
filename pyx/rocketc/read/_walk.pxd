"""From record to record through one file or buffer, damage included."""
from libc.stdint cimport int64_t

from rocketc.format._record cimport Record
from rocketc.read._filter cimport Filter
from rocketc.read._log_bytes cimport LogBytes

cdef enum:
    BLOCK_RECORDS = 256     # records that one call finds at most
    BLOCK_BYTES = 512 << 10     # a block ends behind so many bytes of records: what follows reads them from the cache


cdef class Walker(LogBytes):
    cdef:
        size_t _whole           # _len before the file was cut while we read it; 0: it was not
        size_t _pos             # of the next record; all before it is done
        size_t _from            # records before it are walked over in silence
        size_t _to              # records from it on are not ours
        size_t _exact_to        # a record ends there, and nothing behind it is looked at
        size_t _ready           # the map has its pages up to here
        size_t _zeros_at        # from here on there were only zeros when we looked
        Filter _filter
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
        bint ended              # zero space was met: the log ends here (for now)
        size_t blanks
        list damage             # (start, stop, reason), physical offsets
    cdef int next_block(self) except -1
    cdef int lost(self, const Record* r, str reason) except -1
    cdef bint is_cut(self) noexcept nogil
    cdef int cut_in_block(self, int first) except -1
    cdef int _seek(self) except -1
    cdef bint _is_agreed(self) except -1
    cdef void _make_ready(self) noexcept nogil
    cdef int _fill(self) noexcept nogil
    cdef int _judge(self) except -1
    cdef bint _go_on(self, int rc) except -1
    cdef bint _finish(self) noexcept
    cdef bint _damaged(self, int rc) except -1
    cdef bint _step_over(self, size_t start, size_t next, int rc) except -1
    cdef bint _is_shorter(self) noexcept nogil
    cdef bint _on_cut(self, size_t start) except -1
    cdef bint _end_of_cut(self) except -1
    cdef bint _look_again(self, int looks) except -1


# The block that next_block() found; its pointers are valid between enter() and leave(), until the next call.

cdef inline int record_count(Walker w) noexcept nogil:
    return w._count


cdef inline const Record* record_at(Walker w, int i) noexcept nogil:
    """Record i of the block; 0 <= i < record_count(w)."""
    return &w._block[i]


cdef inline int64_t phy_offset_of(Walker w, const Record* r) noexcept nogil:
    """Physical offset of the first byte of a record of the block."""
    return w.base + (r.at - w._buf)
