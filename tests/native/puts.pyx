# cython: language_level=3
"""A caller from outside of the package: it fills prepared records and puts them by one call."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc

from rocketc.log._prepared_record cimport APPEND_IN_ORDER, PreparedRecord, prepared_init
from rocketc.log._put_result cimport put_status
from rocketc.store._puts cimport Putting


def put(Putting store not None, list rows, *, bint in_order=False):
    """Put rows; what became of each: (PutStatus, physical offset, its end, queue offset, store timestamp).

    rows  dicts: topic, body and props are bytes; queue_id, flag, sys_flag, born_timestamp, born_host and store_host
          (bytes as stored), reconsume_times, prepared_offset, expected and batch may be left out
    """
    cdef PreparedRecord* records = <PreparedRecord*>malloc((<size_t>len(rows) + 1) * sizeof(PreparedRecord))
    cdef PreparedRecord* r
    cdef bytes text
    cdef list found = []
    cdef int i
    if records == NULL:
        raise MemoryError
    try:
        for i in range(<int>len(rows)):
            row = rows[i]
            r = &records[i]
            prepared_init(r)
            text = row["topic"]
            r.args.topic = <const uint8_t*>PyBytes_AS_STRING(text)
            r.args.topic_len = <int32_t>len(text)
            text = row["body"]
            r.args.body = <const uint8_t*>PyBytes_AS_STRING(text)
            r.args.body_len = <int32_t>len(text)
            text = row.get("props", b"")
            r.args.props = <const uint8_t*>PyBytes_AS_STRING(text)
            r.args.props_len = <int32_t>len(text)
            r.args.queue_id = row.get("queue_id", 0)
            r.args.flag = row.get("flag", 0)
            r.args.sys_flag = row.get("sys_flag", 0)
            r.args.reconsume_times = row.get("reconsume_times", 0)
            r.args.prepared_offset = row.get("prepared_offset", 0)
            if "born_timestamp" in row:
                r.args.born_timestamp = row["born_timestamp"]
            if "born_host" in row:
                text = row["born_host"]
                r.args.born_host = <const uint8_t*>PyBytes_AS_STRING(text)
            if "store_host" in row:
                text = row["store_host"]
                r.args.store_host = <const uint8_t*>PyBytes_AS_STRING(text)
            r.expected = row.get("expected", -1)
            r.batch = row.get("batch", 1)
        store.append(records, <int>len(rows), APPEND_IN_ORDER if in_order else 0)
        for i in range(<int>len(rows)):
            r = &records[i]
            found.append((
                put_status(r.status), r.args.phy_offset, r.end, r.args.queue_offset, r.args.store_timestamp,
            ))
        return found
    finally:
        free(records)


def offsets_of(Putting store not None):
    """The store's QueueOffsets, whose hold() lets puts wait as while a topic is deleted."""
    return store.log.offsets
