"""Convert records to Arrow buffers (offsets, values, validity); independent of a store."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.format._record cimport Record, Slice
from rocketc.read._column_buffers cimport BatchBuffers

# Where records come from, as UTF-8.
ctypedef struct Origin:
    Slice file                  # path; at is NULL if they are from no file
    const Slice* brokers        # names, by the `broker` of records; NULL if they are from no broker

cdef int append(
    BatchBuffers* rows, const Record* records, int count, const uint8_t* end, const Origin* origin
) noexcept nogil
cdef void cut_back(BatchBuffers* rows, int64_t to, int64_t bytes) noexcept nogil
