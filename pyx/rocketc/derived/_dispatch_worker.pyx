# cython: language_level=3
"""Put rows into the queues and the index on a thread of its own, beside the thread that reads the log.

In a rebuild, putting is half of the work for a record. There are two blocks of rows: one is filled while the other is
put. An error is returned by a later put(), or by end(). After an error, no more rows are put.
"""
cimport cython
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.service cimport (
    rc_service_destroy, rc_service_init, rc_service_start, rc_service_stop, rc_service_wait, rc_service_wake,
)
from rocketc.c.status cimport RC_OK, RC_OUT_OF_ORDER
from rocketc.derived._consume_queue cimport cq_put
from rocketc.derived._queue_files cimport failed_folder

cdef enum:
    AHEAD = 12              # rows ahead for which the index slots of the keys are prefetched
    IDLE_NS = 1000000000


@cython.no_gc_clear         # __dealloc__ needs the index
cdef class DispatchWorker:
    """Puts rows like cq_put() and KeyIndex.check_put().

    No other thread may use queues or index between the first put() and end().

    index       or None
    whole       the rows are those of the whole log
    background  False: without a thread; the calling thread puts the rows
    """

    def __cinit__(self, KeyIndex index, bint whole, bint background=True):
        self._index = index
        self._background = background
        self._whole = whole
        check(rc_service_init(&self._thread))
        check(rc_service_init(&self._done))
        self._ready = True

    def __dealloc__(self):
        if self._ready:
            rc_service_stop(&self._thread)
            rc_service_destroy(&self._done)
            rc_service_destroy(&self._thread)

    cdef int put(self, const DispatchRequest* row, const int32_t* hashes) noexcept nogil:
        """Copy a row with its keys, to be put later. Returns RC_OK or the error of an earlier row."""
        cdef DispatchBlock* b = &self._blocks[self._turn]
        cdef DispatchRequest* copy
        cdef int rc
        if b.row_count == BLOCK_ROWS or b.hash_count + row.hash_count > BLOCK_HASHES:
            rc = self._hand_over()
            if rc != RC_OK:
                return rc
            b = &self._blocks[self._turn]
        copy = &b.rows[b.row_count]
        copy[0] = row[0]
        copy.first_hash = b.hash_count
        memcpy(&b.hashes[b.hash_count], hashes, <size_t>row.hash_count * sizeof(int32_t))
        b.hash_count += row.hash_count
        b.row_count += 1
        return RC_OK

    cdef int end(self) noexcept nogil:
        """Put the remaining rows. Returns RC_OK or the first error of a row, and resets the error."""
        cdef int rc
        self._wait()
        if self._rc == RC_OK:
            self._put_all(&self._blocks[self._turn])
        rc = self._rc
        self._rc = RC_OK
        self._blocks[self._turn].row_count = self._blocks[self._turn].hash_count = 0
        return rc

    cdef int _hand_over(self) noexcept nogil:
        """Pass the full block to the thread when it has put the other one. Without a thread, put it here."""
        self._wait()
        if self._rc == RC_OK and (
            self._thread.running or self._background and rc_service_start(&self._thread, run, <void*>self) == RC_OK
        ):
            self._turn ^= 1
            self._blocks[self._turn].row_count = self._blocks[self._turn].hash_count = 0
            rc_store_i64(&self._given, 1)
            rc_service_wake(&self._thread)
            return RC_OK        # _wait() waits for the block, then _rc is its error
        if self._rc == RC_OK:
            self._put_all(&self._blocks[self._turn])
        self._blocks[self._turn].row_count = self._blocks[self._turn].hash_count = 0
        return self._rc

    cdef void _wait(self) noexcept nogil:
        while rc_load_i64(&self._given) != 0:
            rc_service_wait(&self._done, IDLE_NS)

    cdef void _put_all(self, DispatchBlock* b) noexcept nogil:
        cdef DispatchRequest* row
        cdef int i, k, ahead
        self._rc = RC_OK
        for i in range(-AHEAD, b.row_count):
            ahead = i + AHEAD
            if ahead < b.row_count:
                for k in range(b.rows[ahead].hash_count):
                    self._index.prefetch(b.hashes[b.rows[ahead].first_hash + k])
            if i >= 0:
                row = &b.rows[i]
                self._rc = self._put_row(row, &b.hashes[row.first_hash])
                if self._rc != RC_OK:
                    return

    cdef int _put_row(self, DispatchRequest* row, const int32_t* hashes) noexcept nogil:
        cdef int k, rc
        if row.q != NULL:
            rc = cq_put(row.q, &row.unit, self._whole, True)
            if rc == RC_OUT_OF_ORDER:
                self.unqueued += 1
                self.mismatch = True
            elif rc != RC_OK:
                self.error_path = failed_folder(row.q)
                return rc
        for k in range(row.hash_count):
            rc = self._index.check_put(hashes[k], row.unit.phy_offset, row.unit.store_timestamp)
            if rc != RC_OK:
                self.error_path = self._index._folder
                return rc
        return RC_OK

    cdef void _run(self) noexcept nogil:
        while not rc_service_wait(&self._thread, IDLE_NS):
            if rc_load_i64(&self._given) != 0:
                self._put_all(&self._blocks[self._turn ^ 1])
                rc_store_i64(&self._given, 0)
                rc_service_wake(&self._done)


cdef void* run(void* argument) noexcept nogil:
    (<DispatchWorker>argument)._run()
    return NULL
