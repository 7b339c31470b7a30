"""Whose requests are processed next, and for how long, while the loop has more to do than it can."""


# What has requests that wait. All methods run with the GIL, on the thread of the event loop.
cdef class Flow:
    cdef:
        bint is_queued          # it is in a FairQueue
        double _bulk_at         # when it took its turn as a bulk flow
    # Whether at most FEW requests of it wait.
    cdef bint has_few(self) noexcept
    # Process requests: about `most`, or those of a QUANTUM. A flow that has more enters the queue again.
    cdef int serve(self, int most) except -1
    # serve() has failed: end the flow.
    cdef int fail(self) except -1


cdef class FairQueue:
    cdef:
        object _sparse          # deques of flows
        object _bulk
        double _spent           # seconds of flows that did not wait, since the last turn of the queue
        int _served             # such flows
        bint _is_due            # the loop will call _turn()
        object _loop            # since the queue was used first
        double _began           # the last turn, or the wait for the next one
        double _work            # seconds of requests since then
        double _excused_work    # those of them that excuse() is about
        double _excused         # excused seconds, in all
        double _clock           # the last answer of patience_clock()
        bint _is_excused        # the request that is processed
    # Whether a flow must enter the queue, and not process its requests at once.
    cdef bint must_wait(self) noexcept
    # Note the time of a flow that has not waited.
    cdef void spend(self, double seconds) noexcept
    cdef int enter(self, Flow flow) except -1
    cdef bint _is_sparse(self, Flow flow, double now) noexcept
    # Return `now` without the excused seconds. How long requests wait is measured with this clock; it never goes back.
    cdef double patience_clock(self, double now) noexcept
    # Note the time of a request.
    cdef void note_work(self, double seconds) noexcept
    cdef int _excuse_turn(self, double now) except -1
    cdef void _begin_work(self, double now) noexcept
    cdef int _call_turn(self) except -1
    cdef int _serve(self, object flows, int most, double until) except -1


cdef enum:
    FEW = 4                     # requests of a sparse flow
    ALL = 0x7FFFFFFF

cdef double QUANTUM             # seconds that a flow may take before others are served
