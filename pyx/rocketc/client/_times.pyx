# cython: language_level=3
"""How many calls there were, and how long they took: a count for each send and each call of a listener."""


cdef class Times:
    """Calls by their time.

    bounds  in ms, ascending, at most 16

    >>> from rocketc.client.counts import Times
    >>> times = Times((1, 5))
    >>> for ms in (0.5, 5, 7):
    ...     times.add(ms)
    >>> times.below(), times.count, times.total
    ([(1, 1), (5, 2)], 3, 12.5)
    """

    def __init__(self, tuple bounds not None):
        cdef int i
        if len(bounds) > BOUNDS_MOST:
            raise ValueError(f"{len(bounds)} bounds; at most {BOUNDS_MOST} are allowed")
        self._size = <int>len(bounds)
        for i in range(self._size):
            self._bounds[i] = bounds[i]
        self.bounds = bounds
        self.counts = [0] * (self._size + 1)

    def add(self, double ms, Py_ssize_t count=1):
        """Count calls that took this time each."""
        self.put(ms, count)

    cdef int put(self, double ms, Py_ssize_t count) except -1:
        cdef int i = 0
        while i < self._size and self._bounds[i] < ms:
            i += 1
        self.counts[i] += count
        self.total += ms * <double>count
        return 0

    @property
    def count(self):
        return sum(self.counts)

    def below(self):
        """Return (bound, calls up to it) for each bound."""
        found, upto = [], 0
        for bound, count in zip(self.bounds, self.counts):
            upto += count
            found.append((bound, upto))
        return found
