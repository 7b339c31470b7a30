# cython: language_level=3
"""Keys put into the index beside the thread that reads the log: half of what a record costs when all is built anew.

Two rows of keys: one is filled while the other is put. An error is told with the next row, or by end(); nothing more is
put behind it.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t

from rocketc._atomic cimport rc_load_i64, rc_store_i64
from rocketc._service cimport (
    rc_service_destroy,
    rc_service_init,
    rc_service_start,
    rc_service_stop,
    rc_service_wait,
    rc_service_wake,
)
from rocketc._status cimport RC_OK, check

cdef enum:
    AHEAD = 16              # keys whose slots are fetched into the cache before they are put
    IDLE_NS = 1000000000


@cython.no_gc_clear         # its end needs the index
cdef class KeyWriter:
    """Puts keys as KeyIndex.check_put() does. Nobody else may use the index between the first put() and end()."""

    def __cinit__(self, KeyIndex index not None):
        self._index = index
        check(rc_service_init(&self._thread))
        check(rc_service_init(&self._done))
        self._ready = True

    def __dealloc__(self):
        if self._ready:
            rc_service_stop(&self._thread)
            rc_service_destroy(&self._done)
            rc_service_destroy(&self._thread)

    cdef int put(self, int32_t hashed, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
        """RC_OK, or what check_put() of an earlier key returned."""
        cdef KeyRow* row
        cdef int rc = RC_OK
        if self._count == KEY_ROWS:
            rc = self._hand_over()
            if rc != RC_OK:
                return rc
        row = &self._rows[self._turn][self._count]
        row.phy_offset = phy_offset
        row.store_timestamp = store_timestamp
        row.hashed = hashed
        self._count += 1
        return RC_OK

    cdef int end(self) noexcept nogil:
        """Put what is left: RC_OK, or what check_put() returned first."""
        cdef int rc
        self._wait()
        rc = self._rc
        if rc == RC_OK:
            rc = self._put_all(self._rows[self._turn], self._count)
        self._rc = RC_OK
        self._count = 0
        return rc

    cdef int _hand_over(self) noexcept nogil:
        """Give the full row to the thread, once it is done with the one before; put it here if there can be none."""
        cdef int64_t count = self._count
        self._wait()
        if self._rc != RC_OK:
            return self._rc
        self._count = 0
        if not self._thread.running and rc_service_start(&self._thread, run, <void*>self) != RC_OK:
            self._rc = self._put_all(self._rows[self._turn], count)
            return self._rc
        self._turn ^= 1
        rc_store_i64(&self._given, count)
        rc_service_wake(&self._thread)
        return RC_OK

    cdef void _wait(self) noexcept nogil:
        while rc_load_i64(&self._given) != 0:
            rc_service_wait(&self._done, IDLE_NS)

    cdef int _put_all(self, const KeyRow* rows, int64_t count) noexcept nogil:
        cdef int64_t i
        cdef int rc = RC_OK
        for i in range(min(<int64_t>AHEAD, count)):
            self._index.prefetch(rows[i].hashed)
        for i in range(count):
            if i + AHEAD < count:
                self._index.prefetch(rows[i + AHEAD].hashed)
            rc = self._index.check_put(rows[i].hashed, rows[i].phy_offset, rows[i].store_timestamp)
            if rc != RC_OK:
                break
        return rc

    cdef void _run(self) noexcept nogil:
        cdef int64_t given
        while not rc_service_wait(&self._thread, IDLE_NS):
            given = rc_load_i64(&self._given)
            if given != 0:
                self._rc = self._put_all(self._rows[self._turn ^ 1], given)
                rc_store_i64(&self._given, 0)
                rc_service_wake(&self._done)


cdef void* run(void* argument) noexcept nogil:
    (<KeyWriter>argument)._run()
    return NULL
