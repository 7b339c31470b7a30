"""The messages in flight: those of a queue that a consumer group has taken or acked."""
from libc.stdint cimport int64_t

# The state of one message between base and next.
ctypedef struct InFlightSlot:
    double until            # seconds of the monotonic clock; a taken message must be acked by then
    int attempts            # number of times it was taken
    int state               # READY, TAKEN, RETURNED or DONE

cdef class InFlight:
    cdef:
        InFlightSlot* slots         # the slot of offset n is slots[n & (room - 1)]
        int64_t room        # number of slots, a power of 2
        list ready          # messages that were read; those from `at` on are not taken yet
        Py_ssize_t at
        object last         # ContextVar: (offset, attempts, life) of what each context took last; None: forgotten
        readonly int64_t base
        readonly int64_t next
        readonly int64_t taken
        readonly int64_t finished
        readonly int64_t life
        public double next_check
    cdef InFlightSlot* _slot(self, int64_t offset) noexcept
    cdef InFlightSlot* _push(self) except NULL
    cdef int _pass(self, int64_t stop) except -1
    cpdef take(self, object owner, double now, double seconds)
    cpdef hand_out(self, object owner, object message, double now, double seconds)
    cpdef bint ack(self, object owner, tuple items) except -1
    cpdef bint finish(self, int64_t offset) except -1
    cpdef int64_t offset_of(self, object owner, object item) except? -1
