# cython: language_level=3
"""An extension outside of the package that reads records of a queue as a broker does, without an object for each."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t

from rocketc.store._gets cimport Getting
from rocketc.store._queue_reader cimport GetRequest, QueueReader, request_init
from rocketc.store._raw_records cimport (
    GET_FOUND, RawRecord, RawRecords, raw_add, raw_free, raw_init, raw_release, raw_run_end,
)
from rocketc.store._results cimport READ_BROKER, READ_CODES, READ_LOOSE, TagFilter


cdef class Puller:
    """Pulls from an open store, or from a QueueReader without the GIL; holds the records of the last pull."""

    cdef RawRecords records
    cdef Getting store
    cdef QueueReader reader

    def __cinit__(self, Getting store=None, QueueReader reader=None):
        self.store = store
        self.reader = reader
        raw_init(&self.records)

    def __dealloc__(self):
        raw_free(&self.records)

    def pull(
        self, bytes topic not None, int queue_id=0, int64_t offset=0, *, int64_t max_count=32, TagFilter tags=None,
    ):
        """Return (status, next offset, min offset, max offset, messages, bytes, files held)."""
        cdef GetRequest ask
        cdef RawRecords* r = &self.records
        request_init(&ask, <const uint8_t*>PyBytes_AS_STRING(topic), <int>len(topic), queue_id, offset)
        ask.max_count = max_count
        ask.flags = READ_BROKER | READ_LOOSE | READ_CODES
        if self.store is not None:
            self.store.get_records(&ask, tags, r)
        else:
            with nogil:
                self.reader.get_records(&ask, tags, r)
        assert (r.status == GET_FOUND) == (r.count > 0)
        return r.status, r.next_offset, r.min_offset, r.max_offset, r.messages, r.bytes, r.file_count

    def rows(self):
        """(physical offset, queue offset, tags code, messages, bytes of the record) of each record."""
        cdef int i
        return [
            (
                self.records.rows[i].phy_offset, self.records.rows[i].queue_offset, self.records.rows[i].tags_code,
                self.records.rows[i].count, <bytes>self.records.rows[i].at[:self.records.rows[i].size],
            )
            for i in range(self.records.count)
        ]

    def runs(self):
        """The lengths of the runs of adjacent records."""
        cdef list out = []
        cdef int first = 0, end
        while first < self.records.count:
            end = raw_run_end(&self.records, first)
            out.append(end - first)
            first = end
        return out

    def release(self):
        with nogil:
            raw_release(&self.records)


def grown(int count):
    """Add this number of rows one by one; return their physical offsets."""
    cdef RawRecords h
    cdef RawRecord* row
    cdef int i
    raw_init(&h)
    try:
        for i in range(count):
            row = raw_add(&h, 100, 1)
            if row == NULL:
                raise MemoryError
            row.phy_offset = i
        assert h.count == h.messages == count and h.bytes == 100 * count
        return [h.rows[i].phy_offset for i in range(h.count)]
    finally:
        raw_free(&h)
