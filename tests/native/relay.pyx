# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.service cimport rc_clock_ns
from rocketc.derived._change_feed cimport ChangeFeed, QueueChange, Subscriber
from rocketc.log._prepared_record cimport PreparedRecord, prepared_init
from rocketc.store._gets cimport Getting
from rocketc.store._queue_reader cimport GetRequest, request_init
from rocketc.store._raw_records cimport RawRecords, raw_free, raw_init, raw_release


def relay(Getting store not None, ChangeFeed feed not None, bytes topic not None, bytes body not None):
    """Put a message, wait for the change of its queue, read the message in place; return its size and queue offset."""
    cdef const uint8_t* name = <const uint8_t*><const char*>topic
    cdef Subscriber* subscriber
    cdef PreparedRecord record
    cdef QueueChange change
    cdef GetRequest ask
    cdef RawRecords found
    cdef int64_t timeout_ns = 5000000000
    cdef int count
    feed.subscribe(0, -1, NULL, NULL, &subscriber)          # 0: all queues; before the put, to see its change
    prepared_init(&record)
    record.args.topic, record.args.topic_len = name, <int>len(topic)
    record.args.body, record.args.body_len = <const uint8_t*><const char*>body, <int>len(body)
    store.append(&record, 1, 0)
    with nogil:
        feed.wait(subscriber, rc_clock_ns() + timeout_ns, timeout_ns)
        feed.fetch(subscriber, &change, 1, &count)
    feed.unsubscribe(subscriber)
    raw_init(&found)
    request_init(&ask, change.topic, change.topic_len, change.queue_id, change.max_offset - 1)
    store.get_records(&ask, None, &found)
    answer = found.rows[0].size, found.rows[0].queue_offset
    raw_release(&found)                                     # releases the files; the pointers are invalid from here on
    raw_free(&found)
    return answer
