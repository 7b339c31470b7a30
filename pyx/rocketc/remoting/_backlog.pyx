# cython: language_level=3
"""How long the bytes of a stream have waited to be read.

A server that is slower than its clients finds out here. The kernel does not say when bytes arrived, but it says how
many there are. What was there at an earlier look has waited since then.
"""
from libc.stdint cimport int64_t

cdef double STEP = 0.01     # seconds


cdef class Backlog:
    """A few marks: by this time, the bytes up to this position had arrived.

    >>> backlog = Backlog()
    >>> backlog.note(1000, 5.0), backlog.note(9000, 6.0)
    (0, 0)
    >>> backlog.since(1000), backlog.since(1001), backlog.since(9001)
    (5.0, 6.0, -1.0)
    """

    def __cinit__(self):
        self._step = STEP

    cpdef int note(self, int64_t end, double now) except -1:
        """Note that the bytes before `end` have arrived. Neither `end` nor `now` may be smaller than before.

        The newest mark is always kept. Those before it are at least a step apart.
        """
        cdef int i
        if self._count > 0 and end <= self._ends[self._count - 1]:
            return 0
        if self._count > 1 and now - self._times[self._count - 2] < self._step:
            self._count -= 1
        elif self._count == MARKS:        # keep every second one
            for i in range(MARKS // 2):
                self._ends[i], self._times[i] = self._ends[2 * i], self._times[2 * i]
            self._count = MARKS // 2
            self._step *= 2
        self._ends[self._count], self._times[self._count] = end, now
        self._count += 1
        return 0

    cpdef double since(self, int64_t position) except *:
        """Return a time by which the bytes before `position` had arrived; -1 if there is none.

        position  not smaller than before. Marks before it are forgotten
        """
        cdef int i, first = 0
        while first < self._count and self._ends[first] < position:
            first += 1
        if first > 0:
            self._count -= first
            for i in range(self._count):
                self._ends[i], self._times[i] = self._ends[first + i], self._times[first + i]
            if self._count == 0:
                self._step = STEP
        return self._times[0] if self._count > 0 else -1.0
