# cython: language_level=3
"""A histogram of how long answers took.

Source: RocketMQ RemotingMetricsManager, rocketmq_rpc_latency.
"""
cdef double[BOUNDS_MOST] UPTO
UPTO = [0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0]

BOUNDS = tuple(UPTO)    # seconds


cdef class AnswerTimes:
    """Counts answers by their time, without a lock: one thread adds.

    >>> times = AnswerTimes()
    >>> times.add(0.004, 2)
    >>> times.read()
    ([0, 0, 2, 0, 0, 0, 0, 0, 0, 0], 0.008)
    """

    cpdef void add(self, double seconds, Py_ssize_t count=1) noexcept:
        """Count answers that took this time."""
        cdef int i = 0
        while i < BOUNDS_MOST and UPTO[i] < seconds:
            i += 1
        self._counts[i] += count
        self._seconds += seconds * <double>count

    def read(self):
        """Return how many answers took up to each bound and longer, and the seconds of all.

        >>> AnswerTimes().read()[1]
        0.0
        """
        cdef int i
        return [self._counts[i] for i in range(BOUNDS_MOST + 1)], self._seconds
