"""Writing the store checkpoint from a thread without the GIL."""
from libc.stdint cimport int64_t


# fd    of a file that open_file() opened; the caller's
# five  the fields in the order of Checkpoint
# Returns 0 once they are durable, or an errno; what the file then says is one of the two, or odd: read() minds.
cdef int checkpoint_write(int fd, const int64_t* five) noexcept nogil
