# cython: language_level=3
"""An extension outside of the package that fills prepared records and puts them in one call."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc

from rocketc.c.status cimport RC_MORE, RC_OK
from rocketc.log._prepared_record cimport APPEND_IN_ORDER, PreparedRecord, prepared_init
from rocketc.log._put_result cimport put_status
from rocketc.store._puts cimport Putting


cdef class Prepared:
    """Records that are filled once, from rows, and can be put any number of times.

    rows  dicts: topic, body and props are bytes; queue_id, flag, sys_flag, born_timestamp, born_host and store_host
          (bytes as stored), reconsume_times, prepared_offset, expected, batch: optional
    """
    cdef PreparedRecord* records
    cdef int count
    cdef list rows          # own the bytes that the records point to

    def __cinit__(self, list rows not None):
        cdef int i
        self.rows = rows
        self.count = <int>len(rows)
        self.records = <PreparedRecord*>malloc((<size_t>self.count + 1) * sizeof(PreparedRecord))
        if self.records == NULL:
            raise MemoryError
        for i in range(self.count):
            self.fill(&self.records[i], rows[i])

    def __dealloc__(self):
        free(self.records)

    cdef int fill(self, PreparedRecord* r, dict row) except -1:
        prepared_init(r)
        r.args.topic = at(row["topic"])
        r.args.topic_len = <int32_t>len(row["topic"])
        r.args.body = at(row["body"])
        r.args.body_len = <int32_t>len(row["body"])
        r.args.props = at(row.get("props", b""))
        r.args.props_len = <int32_t>len(row.get("props", b""))
        r.args.queue_id = row.get("queue_id", 0)
        r.args.flag = row.get("flag", 0)
        r.args.sys_flag = row.get("sys_flag", 0)
        r.args.reconsume_times = row.get("reconsume_times", 0)
        r.args.prepared_offset = row.get("prepared_offset", 0)
        if "born_timestamp" in row:
            r.args.born_timestamp = row["born_timestamp"]
        if "born_host" in row:
            r.args.born_host = at(row["born_host"])
        if "store_host" in row:
            r.args.store_host = at(row["store_host"])
        r.expected = row.get("expected", -1)
        r.batch = row.get("batch", 1)
        return 0

    def put(self, Putting store not None, *, bint in_order=False):
        """Put the records; return (PutStatus, physical offset, its end, queue offset, store timestamp) of each."""
        cdef PreparedRecord* r
        cdef list found = []
        cdef int i
        store.append(self.records, self.count, APPEND_IN_ORDER if in_order else 0)
        for i in range(self.count):
            r = &self.records[i]
            found.append((
                put_status(r.status), r.args.phy_offset, r.end, r.args.queue_offset, r.args.store_timestamp,
            ))
        return found

    def put_again(self, Putting store not None, int times):
        """Put all records this number of times; all must be stored."""
        cdef int i, k
        for k in range(times):
            for i in range(self.count):
                self.records[i].status = RC_MORE
            if store.append(self.records, self.count, 0) != RC_OK:
                raise AssertionError("a record was refused")


cdef const uint8_t* at(bytes data) except NULL:
    return <const uint8_t*>PyBytes_AS_STRING(data)


def put(Putting store not None, list rows, *, bint in_order=False):
    """Prepared(rows).put(store)"""
    return Prepared(rows).put(store, in_order=in_order)


def offsets_of(Putting store not None):
    """The store's QueueOffsets; its hold() blocks puts, as the deletion of a topic does."""
    return store.log.offsets
