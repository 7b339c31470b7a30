"""What a group was given of a topic, by queue."""
from libc.stdint cimport int32_t, int64_t

cdef struct Given:
    int64_t messages
    int64_t size                # bytes of the messages
    int64_t answers
    double seconds              # of all answers together


cdef class Delivered:
    cdef:
        Given** _pages          # PAGE queues each, by queue id / PAGE; NULL: none of them has an answer
        int32_t _count          # of pages
    cdef Given* _new_page(self, int32_t queue_id) except NULL
    cpdef int add(self, int32_t queue_id, int64_t messages, int64_t size, double seconds) except -1
