"""Whole records as bytes, by physical offset: read from a log, appended to another log."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue
from rocketc.log._commit_log cimport CommitLog

# Bytes of the log, in the mapping of one file.
ctypedef struct RawBytes:
    const uint8_t* data
    int64_t size            # 0: there are no bytes yet, and nothing is held
    FileState* file         # held until raw_release(); NULL: none

# The result of appending a block of raw bytes.
ctypedef struct RawAppended:
    int64_t end             # physical offset of the end of the last record that was appended
    int64_t records
    int64_t at              # on an error: the physical offset of the damage; for RC_OUT_OF_ORDER the end of the log
    int error               # the errno for RC_NO_FILE

cdef int raw_read(
    FileQueue* q, int64_t phy_offset, int64_t limit, int64_t max_bytes, bint whole, RawBytes* out,
) noexcept nogil
cdef void raw_release(RawBytes* raw) noexcept nogil
cdef int raw_append(
    CommitLog log, int64_t phy_offset, const uint8_t* data, int64_t size, RawAppended* out,
) noexcept nogil
