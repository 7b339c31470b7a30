"""Convert records to Arrow buffers (offsets, values, validity); independent of a store."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.format._record cimport Record
from rocketc.read._column_buffers cimport BatchBuffers

cdef int append(
    BatchBuffers* rows, const Record* records, int count, const uint8_t* end, const uint8_t* file, int file_len
) noexcept nogil
cdef void cut_back(BatchBuffers* rows, int64_t to, int64_t bytes) noexcept nogil
