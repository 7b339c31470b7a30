"""Appends messages of one queue to the store: for processors, and for the compiled path of sends."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.remoting._connection cimport FastPath
from rocketc.store._puts cimport Putting

cdef int first_fault(const PreparedRecord* records, int n) noexcept nogil


cdef class Appending(FastPath):
    cdef:
        Putting _store
        bytes _host             # the store host, in stored form
    cdef int _append_batch(
        self, const PreparedRecord* like, const uint8_t* body, size_t size, const uint8_t* added, size_t added_size,
        PreparedRecord** records,
    ) except -1
    cdef int _fill(
        self, PreparedRecord* r, const uint8_t* topic, int32_t topic_size, int queue_id, int sys_flag,
        int64_t born_timestamp, bytes born_host, int reconsume_times, bytes store_host,
    ) except -1


cdef inline const uint8_t* bytes_at(bytes data) noexcept:
    return <const uint8_t*>PyBytes_AS_STRING(data)
