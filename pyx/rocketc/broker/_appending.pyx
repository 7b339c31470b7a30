# cython: language_level=3
"""Appends messages of one queue to the store: for processors, and for the compiled path of sends."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdlib cimport free, malloc

from rocketc.broker._batches cimport count_batch, fill_batch, put_ids
from rocketc.c.layout cimport RC_FLAG_BORN_HOST_V6, RC_FLAG_STORE_HOST_V6, RC_HOST_V6_BYTES
from rocketc.c.status cimport RC_OK
from rocketc.log._prepared_record cimport prepared_init
from rocketc.log._put_result cimport put_status

from rocketc.status import PutStatus


cdef int first_fault(const PreparedRecord* records, int n) noexcept nogil:
    """Return the result code of the first record that is not stored; RC_OK if all are."""
    cdef int i
    for i in range(n):
        if records[i].status != RC_OK:
            return records[i].status
    return RC_OK


cdef class Appending(FastPath):
    """What appends messages.

    store  open for writing
    host   the store host, in stored form: the message ids contain it
    """

    def __init__(self, Putting store not None, bytes host not None):
        self._store = store
        self._host = host

    cdef int _append_batch(
        self, const PreparedRecord* like, const uint8_t* body, size_t size, const uint8_t* added, size_t added_size,
        PreparedRecord** records,
    ) except -1:
        """Append the messages of a batch, all or none. Return their number; 0 if it is not a valid batch.

        like     has what all of them share
        added    properties that each one gets
        records  set to their records, with the results; to be freed
        Raises the errors of put().
        """
        cdef size_t room = 0
        cdef int n = count_batch(body, size, added_size, &room)
        if n <= 0:
            return 0
        records[0] = <PreparedRecord*>malloc(<size_t>n * sizeof(PreparedRecord) + room)
        if records[0] == NULL:
            raise MemoryError
        fill_batch(records[0], n, like, body, added, added_size, <uint8_t*>(records[0] + n))
        self._store.append(records[0], n, 0)
        return n

    def append_batch(
        self, bytes topic not None, int queue_id, bytes body not None, bytes added not None, int sys_flag,
        int64_t born_timestamp, bytes born_host not None, int reconsume_times,
    ):
        """Append the messages of a batch, all or none: (PutStatus, their ids as a text, queue offset, end).

        body   of the request
        added  properties that each message gets, in stored form
        None if there is no message in the body, or if it is not a valid batch: decode_batch() has the errors.
        Raises the errors of put().
        """
        cdef PreparedRecord like
        cdef PreparedRecord* records = NULL
        cdef int n, rc
        cdef size_t host = <size_t>len(self._host)
        cdef bytes ids
        self._fill(
            &like, bytes_at(topic), <int32_t>len(topic), queue_id, sys_flag, born_timestamp, born_host,
            reconsume_times, self._host,
        )
        try:
            n = self._append_batch(
                &like, bytes_at(body), <size_t>len(body), bytes_at(added), <size_t>len(added), &records
            )
            if n <= 0:
                return None
            rc = first_fault(records, n)
            if rc != RC_OK:
                return put_status(rc), "", 0, 0
            ids = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(<size_t>n * (2 * host + 17) - 1))
            put_ids(<uint8_t*>PyBytes_AS_STRING(ids), records, n, bytes_at(self._host), host)
            return PutStatus.PUT_OK, ids.decode("ascii"), records.args.queue_offset, records[n - 1].end
        finally:
            free(records)

    cdef int _fill(
        self, PreparedRecord* r, const uint8_t* topic, int32_t topic_size, int queue_id, int sys_flag,
        int64_t born_timestamp, bytes born_host, int reconsume_times, bytes store_host,
    ) except -1:
        """Fill a record, all but its flag, body and properties. The texts stay borrowed."""
        prepared_init(r)
        r.args.topic = topic
        r.args.topic_len = topic_size
        r.args.queue_id = queue_id
        r.args.sys_flag = sys_flag & ~(RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6)
        if len(born_host) == RC_HOST_V6_BYTES:
            r.args.sys_flag |= RC_FLAG_BORN_HOST_V6
        if len(store_host) == RC_HOST_V6_BYTES:
            r.args.sys_flag |= RC_FLAG_STORE_HOST_V6
        r.args.born_timestamp = born_timestamp
        r.args.reconsume_times = reconsume_times
        r.args.born_host = bytes_at(born_host)
        r.args.store_host = bytes_at(store_host)
        return 0

    def append(
        self, bytes topic not None, int queue_id, list messages not None, int sys_flag, int64_t born_timestamp,
        bytes born_host not None, int reconsume_times, bint batch, int64_t prepared_transaction_offset=0,
        bytes store_host=None,
    ):
        """Append messages of one queue for the SendProcessor: (PutStatus, physical offsets, queue offset, end).

        messages    (flag, body, properties in stored form) of each
        batch       they are stored all or none
        store_host  in stored form; None: that of the broker
        The status is that of the first message that is not stored. Raises the errors of put().
        """
        cdef int n = <int>len(messages), i, rc
        cdef bytes body, properties
        cdef PreparedRecord* r
        cdef PreparedRecord* records = <PreparedRecord*>malloc(<size_t>n * sizeof(PreparedRecord))
        if records == NULL:
            raise MemoryError
        if store_host is None:
            store_host = self._host
        try:
            for i in range(n):
                flag, body, properties = messages[i]
                r = &records[i]
                self._fill(
                    r, bytes_at(topic), <int32_t>len(topic), queue_id, sys_flag, born_timestamp, born_host,
                    reconsume_times, store_host,
                )
                r.args.prepared_offset = prepared_transaction_offset
                r.args.flag = flag
                r.args.body = bytes_at(body)
                r.args.body_len = <int32_t>len(body)
                r.args.props = bytes_at(properties)
                r.args.props_len = <int32_t>len(properties)
            if batch and n > 1:
                records.batch = n
            self._store.append(records, n, 0)
            rc = first_fault(records, n)
            if rc != RC_OK:
                return put_status(rc), [], 0, 0
            offsets = [records[i].args.phy_offset for i in range(n)]
            return PutStatus.PUT_OK, offsets, records.args.queue_offset, records[n - 1].end
        finally:
            free(records)
