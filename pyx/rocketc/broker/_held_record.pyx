# cython: language_level=3
"""A record in the map of the log, by its physical offset."""
from libc.stdint cimport int64_t

from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.bytes cimport rc_get_i32
from rocketc.c.layout cimport RC_MSG_MIN_BYTES, RC_MSG_TOTAL_SIZE_AT
from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_is_resident
from rocketc.files._append_file cimport file_readable
from rocketc.format._record cimport CRC_BODY, crc32, parse_record, verify_record
from rocketc.store._raw_records cimport raw_enter, raw_seek

cdef enum:
    RECENT = 64 << 20           # bytes at the end of the log: they are in memory
    CHECKED_MOST = 1 << 17      # bytes of an older record: the kernel says whether its pages are in memory


cdef bint is_in_memory(FileState* f, int64_t at) noexcept nogil:
    """Whether the record at a position of a file is in memory, so that reading it does not wait for a disk."""
    cdef int64_t size
    if not rc_is_resident(f.base, <size_t>at, <size_t>at + RC_MSG_MIN_BYTES):
        return False
    size = rc_get_i32(f.base + at + RC_MSG_TOTAL_SIZE_AT)
    if not RC_MSG_MIN_BYTES <= size <= min(file_readable(f) - at, <int64_t>CHECKED_MOST):
        return False
    return rc_is_resident(f.base, <size_t>at, <size_t>(at + size)) != 0


cdef FileState* hold_record(RawRecords* h, Getting store, int64_t offset, Record* record) noexcept:
    """Find the record that begins at a physical offset, without a copy; return its file.

    h       initialized by raw_init(); raw_free() ends the use of the record
    record  its pointers lead into the map
    NULL: there is no such record, its body is damaged, or it is not in memory. The caller checks `cut` of the file.
    """
    cdef FileState* f
    cdef int64_t at, end
    h.log = &store.reader.log.q
    end = rc_load_i64(&h.log.wrote)
    if not 0 <= offset < end or raw_seek(h, offset) != RC_OK:
        return NULL
    f = raw_enter(h, h.file)
    at = offset - f.start
    if file_readable(f) - at < RC_MSG_MIN_BYTES:
        return NULL
    if offset < end - <int64_t>RECENT and not is_in_memory(f, at):
        return NULL
    if parse_record(f.base + at, <size_t>(file_readable(f) - at), record) != RC_OK:
        return NULL
    return f if verify_record(record, CRC_BODY, crc32, offset) == RC_OK else NULL
