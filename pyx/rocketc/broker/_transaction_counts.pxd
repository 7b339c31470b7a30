"""What a broker counts of the transactions of each topic."""
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    LATENCIES = 7               # one more than there are bounds


cdef class TopicTransactions:
    cdef readonly:
        str topic
        int64_t committed
        int64_t rolled_back
        double seconds          # of all commits, each since the birth of its message
    cdef:
        bytes _name
        int64_t _opened         # transactions that were opened, less those that were ended, since take_opened()
        bint _is_changed        # since take_opened()
        int64_t _latency[LATENCIES]
    cpdef void prepare(self) noexcept
    cpdef void commit(self, double seconds) noexcept
    cpdef void roll_back(self) noexcept
    cpdef void give_up(self) noexcept


cdef class TransactionCounters:
    cdef:
        dict _topics            # TopicTransactions by the name of the topic, in bytes
        TopicTransactions _last
    cdef TopicTransactions at(self, const uint8_t* topic, Py_ssize_t n)
