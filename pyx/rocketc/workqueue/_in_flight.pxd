"""What a group of consumers has taken of a queue, and is done with."""
from libc.stdint cimport int64_t

# A message between base and next.
ctypedef struct InFlightSlot:
    double until            # seconds of the clock: taken, it is to be acked by then
    unsigned long thread    # whose it is
    int attempts            # how often it was taken
    int state

cdef class InFlight:
    cdef:
        InFlightSlot* slots         # of offset n: slots[n & (room - 1)]
        int64_t room        # a power of 2
        list ready          # messages that nobody has taken yet; those before `at` are gone
        Py_ssize_t at
        readonly int64_t base
        readonly int64_t next
        readonly int64_t taken
        readonly int64_t finished
        readonly int64_t life
        public double look_at
    cdef InFlightSlot* _slot(self, int64_t offset) noexcept
    cdef InFlightSlot* _push(self) except NULL
    cdef int _pass(self, int64_t stop) except -1
    cpdef take(self, object owner, double now, double seconds)
    cpdef hand_out(self, object owner, object message, double now, double seconds)
    cpdef bint ack(self, object owner, tuple items) except -1
    cpdef bint finish(self, int64_t offset) except -1
    cpdef int64_t offset_of(self, object owner, object item) except? -1
