"""The index of a running store: maps the hash of a topic and key to the physical offsets of the records."""
from libc.stdint cimport int32_t, int64_t

from rocketc.derived._index_file_queue cimport IndexFileQueue, key_hash
from rocketc.derived._mapped_index_file cimport MappedIndexFile

cdef class KeyIndex(IndexFileQueue):
    cdef:
        # while existing units are compared with the log
        MappedIndexFile* _at          # file of the next unit, number _unit; NULL: no units are left to compare
        int64_t _unit
        int64_t _checked_phy    # of the last record that was compared or put; -1: none
        bint _has_mismatch      # unit _unit of file _at is different from the log
        int64_t _mismatch_phy
        object _refreshing      # a lock: one Python thread at a time
        list _problems          # names of files that load() rejected or that check() found damaged
    cdef readonly:
        list dropped            # paths of files that load() deleted by RocketMQ's rule
    cdef int start_checking(self, int64_t phy_offset) noexcept nogil
    cdef int check_put(self, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil
    cdef int stop_checking(self) noexcept nogil
    cdef int _set_mismatch(self, int64_t phy_offset) noexcept nogil
    cdef bint _fits(self, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil
    cdef bint _is_doubled(self) noexcept nogil
    cdef void _step(self) noexcept nogil
    cdef int64_t _end_of_full(self)
    cdef object _check_part(self, MappedIndexFile* p)
