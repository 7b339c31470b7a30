"""Writing the store checkpoint without the GIL."""
from libc.stdint cimport int64_t


# fd    of a file that open_file() opened; the caller closes it
# five  the fields in the order of Checkpoint
# flushed  physical offset up to which the log is durable, for flushed_offset(); -1: unknown
# queued   physical offset up to which the queues and the index are durable, for queued_offset(); -1: unknown
# indexed  one more than the physical offset of the last record with a key, as the index was when it was durable up to
#          queued, for indexed_offset(); 0: no key; -1: unknown
# Returns 0 if they are durable, or an errno. The file then has the old or the new fields, or a mix that read() rejects.
cdef int checkpoint_write(int fd, const int64_t* five, int64_t flushed, int64_t queued, int64_t indexed) noexcept nogil
