# cython: language_level=3
"""Delayed messages that are due: from the topic of delayed messages into their own queues.

A record keeps its body, properties, flags, hosts and times; only its topic and its queue change. They are read from the
map of the log, and appended without a Python object for each.
Source: RocketMQ ScheduleMessageService.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, strlen

from rocketc._status cimport check
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport (
    RC_FLAG_INNER_BATCH, RC_MSG_BORN_HOST_AT, RC_MSG_BORN_TIMESTAMP_AT, RC_MSG_RECONSUME_TIMES_PAST,
    RC_MSG_STORE_HOST_PAST, RC_PROP_CRC_BYTES, RC_PROPERTY_INNER_BASE,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.c.status cimport (
    RC_BAD_ARGUMENT, RC_BAD_QUEUE_ID, RC_FILE_CUT, RC_NOT_A_BATCH, RC_OK, RC_TOPIC_TOO_LONG, RC_UNFIT_TOPIC,
    RC_UNKNOWN_TOPIC,
)
from rocketc.files._append_file cimport FileState
from rocketc.format._record cimport (
    CRC_BODY, Record, crc32, has_property_crc, may_have_property_crc, parse_record, store_host_len, verify_record,
)
from rocketc.log._prepared_record cimport APPEND_IN_ORDER, PreparedRecord, prepared_init
from rocketc.log._put_result cimport put_status
from rocketc.store._puts cimport Putting
from rocketc.store._raw_records cimport RawGetResult, raw_enter, raw_rest

from typing import NamedTuple

from rocketc.errors import ClosedError
from rocketc.status import PutStatus


DELIVERIES_MAX = RECORDS_MAX   # records of one append


class Delivered(NamedTuple):
    """What became of the first records of a read.

    next_offset  queue offset of the first record that is still to be delivered
    due          when it is due, in ms; -1: now, or it was not read
    status       PUT_OK, or the reason why the store refused it
    end          physical offset of the end of the last delivered record; -1: none was delivered
    row          index in the read of the first record that is still to be delivered
    """

    next_offset: int
    due: int
    status: PutStatus
    end: int
    row: int


cdef int64_t due_at(int64_t code, int64_t now, int64_t delay) noexcept nogil:
    """Return when a message is due. One that is farther away than its delay is due now: the clock was set back, or the
    delay of its level became shorter."""
    return now if code > now + delay else code


cdef bint is_final(int rc) noexcept nogil:
    """Whether the store will always refuse a record with this status."""
    return rc in (
        RC_BAD_ARGUMENT, RC_BAD_QUEUE_ID, RC_NOT_A_BATCH, RC_TOPIC_TOO_LONG, RC_UNFIT_TOPIC, RC_UNKNOWN_TOPIC,
    )


cdef int64_t number_in(const uint8_t* p, int n) noexcept nogil:
    """Return the number in a text; -1 if it is not one from 0 on, of at most 18 digits."""
    cdef int64_t number = 0
    cdef int i
    if not 0 < n <= 18:
        return -1
    for i in range(n):
        if not c"0" <= p[i] <= c"9":
            return -1
        number = 10 * number + p[i] - c"0"
    return number


cdef int32_t queue_of(const uint8_t* p, int n) noexcept nogil:
    """Return the queue id in a text; -1 if it is not one."""
    cdef int64_t number = number_in(p, n) if n <= 10 else -1
    return <int32_t>number if number <= INT32_MAX else -1


cdef class Deliveries:
    """Puts delayed messages into their own queues.

    store       open for writing
    real_topic, real_queue  the names of the properties that say where a message goes
    discarded   topic whose messages are not delivered
    delivered   number of messages
    skipped     messages that can't be delivered. They lack a valid topic or queue, are damaged, or belong to the
                discarded topic; or their topic does not exist and is not created
    """

    def __cinit__(self):
        self._records = <PreparedRecord*>malloc(RECORDS_MAX * sizeof(PreparedRecord))
        if self._records == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._records)

    def __init__(
        self, Putting store not None, str real_topic not None, str real_queue not None, str discarded not None,
    ):
        self._store = store
        self._real_topic = real_topic.encode()
        self._real_queue = real_queue.encode()
        self._discarded = discarded.encode()

    def deliver(self, RawGetResult found not None, int64_t now, int64_t delay, int row=0):
        """Deliver the records of a read that are due, in their order and with one append; return a Delivered.

        found  of a queue of the topic of delayed messages; the records of one file are delivered
        now    ms
        delay  of its level, in ms
        row    index of the record to begin with
        A record that can't be delivered is skipped and counted. Raises the errors of MessageStore.put(), StoreIOError
        if the file was cut, and ClosedError after a release; then none is known to be delivered.
        """
        cdef FileState* f
        cdef int n = 0, i, rc, first, skipped = 0
        cdef int64_t due = -1, next_offset = found.raw.next_offset, end = -1
        cdef int rows[RECORDS_MAX]
        cdef int skipped_before[RECORDS_MAX]
        if not 0 <= row < found.raw.count:
            return Delivered(next_offset, -1, PutStatus.PUT_OK, -1, row)
        if found.raw.file_count == 0:
            raise ClosedError("these records were released")
        first = found.raw.rows[row].file
        f = raw_enter(&found.raw, first)
        try:
            while row < found.raw.count:
                if n == RECORDS_MAX or found.raw.rows[row].file != first:
                    break
                due = due_at(found.raw.rows[row].tags_code, now, delay)
                if due > now:
                    break
                due = -1
                if self.prepare(
                    &self._records[n], found.raw.rows[row].at, found.raw.rows[row].size, found.raw.rows[row].phy_offset
                ):
                    rows[n] = row
                    skipped_before[n] = skipped
                    n += 1
                else:
                    skipped += 1
                row += 1
            if row < found.raw.count:
                next_offset = found.raw.rows[row].queue_offset
            if f.cut != 0:
                check(RC_FILE_CUT)
            if n > 0:
                self._store.append(self._records, n, APPEND_IN_ORDER)
        finally:
            raw_rest(&found.raw)
        for i in range(n):
            rc = self._records[i].status
            if is_final(rc):
                self.skipped += skipped_before[i] + 1
                row = rows[i] + 1
                return Delivered(found.raw.rows[rows[i]].queue_offset + 1, -1, PutStatus.PUT_OK, end, row)
            if rc != RC_OK:
                self.skipped += skipped_before[i]
                return Delivered(found.raw.rows[rows[i]].queue_offset, -1, put_status(rc), end, rows[i])
            self.delivered += 1
            end = self._records[i].end
        self.skipped += skipped
        return Delivered(next_offset, due, PutStatus.PUT_OK, end, row)

    cdef bint prepare(self, PreparedRecord* r, const uint8_t* raw, int32_t size, int64_t phy_offset) except -1:
        """Fill a record with what a stored record has. Return False if it can't be delivered.

        raw   `size` bytes of a guarded map; the record points into it
        """
        cdef Record stored
        cdef int at = 0, n
        if parse_record(raw, <size_t>size, &stored) != RC_OK:
            return False
        if verify_record(&stored, CRC_BODY, crc32, phy_offset) != RC_OK:
            return False
        prepared_init(r)
        n = rc_find_property(stored.props, stored.props_len, PyBytes_AS_STRING(self._real_topic), &at)
        if n <= 0:
            return False
        r.args.topic = stored.props + at
        r.args.topic_len = n
        if n == PyBytes_GET_SIZE(self._discarded) and memcmp(
            r.args.topic, PyBytes_AS_STRING(self._discarded), <size_t>n
        ) == 0:
            return False
        n = rc_find_property(stored.props, stored.props_len, PyBytes_AS_STRING(self._real_queue), &at)
        r.args.queue_id = queue_of(stored.props + at, n)
        if r.args.queue_id < 0:
            return False
        r.args.flag = stored.flag
        r.args.sys_flag = stored.sys_flag
        r.args.body = stored.body
        r.args.body_len = stored.body_len
        r.args.props = stored.props
        r.args.props_len = stored.props_len
        if may_have_property_crc(&stored) and has_property_crc(&stored):
            r.args.props_len -= RC_PROP_CRC_BYTES   # the log adds its own
        if stored.sys_flag & RC_FLAG_INNER_BATCH:
            n = rc_find_property(stored.props, r.args.props_len, RC_PROPERTY_INNER_BASE, &at)
            if n > 0 and at + n + 1 >= r.args.props_len:    # the store appended it; the queue adds its own
                r.args.props_len = at - <int>strlen(RC_PROPERTY_INNER_BASE) - 1
        r.args.born_timestamp = rc_get_i64(raw + RC_MSG_BORN_TIMESTAMP_AT)
        r.args.born_host = raw + RC_MSG_BORN_HOST_AT
        r.args.store_host = stored.tail + RC_MSG_STORE_HOST_PAST
        r.args.reconsume_times = rc_get_i32(
            r.args.store_host + store_host_len(stored.sys_flag) + RC_MSG_RECONSUME_TIMES_PAST
        )
        return True
