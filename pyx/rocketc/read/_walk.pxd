"""Iterate over the records of one file or buffer, and handle damage."""
from libc.stdint cimport int64_t

from rocketc.format._record cimport Record
from rocketc.read._filter cimport Filter
from rocketc.read._log_bytes cimport LogBytes

cdef enum:
    BLOCK_RECORDS = 256     # the most records that one call returns
    BLOCK_BYTES = 512 << 10     # a block ends after this many bytes, so that the caller reads them from the cache


cdef class Walker(LogBytes):
    cdef:
        size_t _whole           # _len before the file was cut while it was read; 0: not cut
        size_t _pos             # of the next record; everything before it is done
        size_t _from            # records before it are skipped without a report
        size_t _to              # records from here on belong to another walker
        size_t _exact_to        # a record ends here, and bytes from here on are not read
        size_t _ready           # pages of the map up to here are loaded
        size_t _zeros_at        # from here to the end were only zeros at the last check
        Filter _filter
        bint _raise             # raise CorruptRecordError at damage
        bint _last              # no file with data follows: zeros are the end of the log
        bint _follow            # wait for a record that is not complete yet
        bint _around            # read the record that _from is in, too
        bint _search            # the walker of the next range searches for its first record: both must agree on the end
        bint _careful           # check the CRC of records before _from too: there is damage before _from
        bint _begun             # the first record was found
        bint _torn_twice        # a bad tail was read again already
        bint _done
        str _file
        tuple _brokers          # names, by the `broker` of records; None: the records are from no broker
        int _count              # number of records in _block; valid until the next call
        Record _block[BLOCK_RECORDS]
    cdef readonly:
        bint ended              # zeros to the end were found: the log ends here (for now)
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
    cdef void _include(self, size_t start, size_t next) noexcept nogil
    cdef int _judge(self) except -1
    cdef bint _go_on(self, int rc) except -1
    cdef bint _finish(self) noexcept
    cdef bint _damaged(self, int rc) except -1
    cdef bint _step_over(self, size_t start, size_t next, int rc) except -1
    cdef bint _is_shorter(self) noexcept nogil
    cdef bint _on_cut(self, size_t start) except -1
    cdef bint _end_of_cut(self) except -1
    cdef bint _look_again(self, int looks) except -1


# The block that next_block() found. Its pointers are valid between enter() and leave(), until the next call.

cdef inline int record_count(Walker w) noexcept nogil:
    return w._count


cdef inline const Record* record_at(Walker w, int i) noexcept nogil:
    """Record i of the block; 0 <= i < record_count(w)."""
    return &w._block[i]


cdef inline str broker_of(Walker w, const Record* r):
    """Name of the broker that sent a record of the block, or None."""
    return None if w._brokers is None else <str>w._brokers[r.broker]


cdef inline int64_t phy_offset_of(Walker w, const Record* r) noexcept nogil:
    """Physical offset of the first byte of a record of the block."""
    return w.base + (r.at - w._buf)
