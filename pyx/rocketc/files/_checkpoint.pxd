"""Writing the store checkpoint from a thread without the GIL."""
from libc.stdint cimport int64_t


# fd    of a file that open_file() opened; the caller's
# five  the fields in the order of Checkpoint
# flushed  physical offset up to which the log is durable, for flushed_offset(); -1: it is not known
# queued   physical offset up to which it is in queues and index, durably, for queued_offset(); -1: it is not known
# Returns 0 once they are durable, or an errno; what the file then says is one of the two, or odd: read() minds.
cdef int checkpoint_write(int fd, const int64_t* five, int64_t flushed, int64_t queued) noexcept nogil
