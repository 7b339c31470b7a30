"""The body of a batch, and the records of its messages."""
from libc.stdint cimport uint8_t

from rocketc.log._prepared_record cimport PreparedRecord

cdef int count_batch(const uint8_t* body, size_t n, size_t added, size_t* properties) noexcept nogil
cdef void fill_batch(
    PreparedRecord* records, int n, const PreparedRecord* like, const uint8_t* body, const uint8_t* added,
    size_t added_size, uint8_t* properties,
) noexcept nogil
cdef uint8_t* put_ids(
    uint8_t* dst, const PreparedRecord* records, int n, const uint8_t* host, size_t host_size,
) noexcept nogil
