# cython: language_level=3
"""The scan of a log file in RocketMQ's recovery: where it ends, and why.

RocketMQ checks fewer fields of a record than rocketc, and ends the log at the first record that its checks reject. This
class must stop exactly where RocketMQ stops, so it is not a Walker. Source: RocketMQ CommitLog.recoverNormally,
recoverAbnormally.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from rocketc._status cimport check_file, reason_of
from rocketc.c.bytes cimport rc_get_i16, rc_get_i32
from rocketc.c.crc32 cimport rc_body_crc
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_MAGIC_BLANK, RC_MAGIC_V1, RC_MAGIC_V2, RC_MSG_BODY_CRC_AT, RC_MSG_BODY_PAST, RC_MSG_BORN_HOST_AT,
    RC_MSG_MAGIC_AT, RC_MSG_MIN_BYTES, RC_MSG_STORE_HOST_PAST, RC_MSG_SYS_FLAG_AT, RC_MSG_TOTAL_SIZE_AT,
    RC_PROPERTIES_LENGTH_BYTES, RC_PROPERTY_DELAY, RC_PROPERTY_INNER_BASE, RC_PROPERTY_INNER_NUM,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.c.status cimport (
    RC_BAD_BODY_CRC, RC_BAD_BODY_LENGTH, RC_BAD_LENGTH, RC_BAD_MAGIC, RC_BAD_PROPERTIES_LENGTH, RC_BAD_PROPERTY,
    RC_BAD_PROPERTY_CRC, RC_BAD_SIZE, RC_BAD_TOPIC_LENGTH, RC_BLANK, RC_END, RC_FILE_CUT, RC_MISSING_PROPERTY_CRC,
    RC_OK, RC_TRUNCATED, RC_ZEROED,
)
from rocketc.c.vm cimport rc_guard
from rocketc.format._queue_units cimport is_schedule_topic
from rocketc.format._record cimport (
    CRC_BODY, CRC_FULL, Record, born_host_len, crc32, has_property_crc, property_crc_holds, store_host_len,
)
from rocketc.read._log_bytes cimport LogBytes, STEP_BYTES


cdef class JavaWalk(LogBytes):
    """Scan one file of a log as RocketMQ's recovery does; source, base and crc are those of LogBytes.

    crc  a Crc; CRC_FULL is RocketMQ's forceVerifyPropCRC: check the property CRC, which must exist, instead of the
         body's

    The constructor does the scan. Raises StoreIOError if the file cannot be read. The results are:

    end     physical offset of the end of the last record that RocketMQ accepts
    blank   whether a blank record is at `end`: RocketMQ continues with the next file
    stop    end of the bytes that RocketMQ rejects at `end`; equal to `end` if only zeros follow in the file
    reason  why RocketMQ rejects them, one of the names in docs/damage.md, or None
    """

    def __cinit__(self, source, base, *, int crc=CRC_BODY):
        cdef size_t pos = 0
        cdef int32_t size = 0       # of the record at pos, if its size field is trusted
        cdef int rc = RC_OK
        while rc == RC_OK:
            with nogil:
                rc = self._run(&pos, &size)
            self._forget_pages(pos)
            PyErr_CheckSignals()
        self.end = self.stop = self.base + <int64_t>pos
        self.blank = rc == RC_BLANK
        if not self.blank and self._data_from(pos) < self._len:
            self.reason = reason_of(RC_ZEROED if rc == RC_END else rc)
            self.stop = self.end + size if size > 0 else self._next(pos)
        if self._map is not None and (self._map.cut != 0 or self._map.is_shorter(self._len)):
            check_file(RC_FILE_CUT, self._map.path)    # the zeros come from the failed read and are not in the log

    cdef int64_t _next(self, size_t pos) except -1:
        """Return the physical offset of the next valid record after pos, or the end of the data if there is none."""
        cdef size_t next = self._find_next(pos + 1)
        return self.base + <int64_t>(next if next < self._len else pos + self._trimmed(pos))

    cdef int _run(self, size_t* pos, int32_t* size) noexcept nogil:
        """Check some records; return RC_OK if there may be more, otherwise the status of the bytes at *pos."""
        cdef rc_guard guard
        cdef size_t start = pos[0]
        cdef int rc = RC_OK
        cdef Record r
        self.enter(&guard)
        while pos[0] - start < STEP_BYTES:
            rc = java_check(self._buf + pos[0], self._len - pos[0], self._crc, &r)
            if rc != RC_OK:
                break
            pos[0] += <size_t>r.size
        self.leave(&guard)
        size[0] = 0
        if rc == RC_BAD_BODY_CRC or rc == RC_MISSING_PROPERTY_CRC or rc == RC_BAD_PROPERTY_CRC or rc == RC_BAD_PROPERTY:
            size[0] = r.size
        return rc


cdef int java_check(const uint8_t* p, size_t room, int crc, Record* r) noexcept nogil:
    """Check a record as RocketMQ's checkMessageAndReturnSize does: not its offsets, and not the size of a blank record.

    p  room bytes up to the end of the file; r points into them

    Returns RC_OK and r.size; RC_BLANK; RC_END (zeros); or the reason why RocketMQ rejects the record.
    """
    cdef int32_t magic
    cdef size_t at
    if room < RC_BLANK_BYTES:
        return RC_TRUNCATED
    r.at = p
    r.size = rc_get_i32(p + RC_MSG_TOTAL_SIZE_AT)
    magic = rc_get_i32(p + RC_MSG_MAGIC_AT)
    if magic == RC_MAGIC_BLANK:
        return RC_BLANK
    if magic != RC_MAGIC_V1 and magic != RC_MAGIC_V2:
        return RC_END if r.size == 0 and magic == 0 else RC_BAD_MAGIC
    if r.size < RC_MSG_MIN_BYTES:
        return RC_BAD_SIZE
    if <size_t>r.size > room:
        return RC_TRUNCATED
    room = <size_t>r.size
    r.sys_flag = rc_get_i32(p + RC_MSG_SYS_FLAG_AT)
    at = <size_t>(
        RC_MSG_BORN_HOST_AT + born_host_len(r.sys_flag) + RC_MSG_STORE_HOST_PAST + store_host_len(r.sys_flag)
        + RC_MSG_BODY_PAST
    )
    if at > room:
        return RC_BAD_BODY_LENGTH
    r.body = p + at
    r.body_len = rc_get_i32(r.body - 4)
    if r.body_len < 0:
        r.body_len = 0          # RocketMQ treats a negative length as 0
    at += <size_t>r.body_len + (1 if magic == RC_MAGIC_V1 else 2)
    if at > room:
        return RC_BAD_BODY_LENGTH
    r.topic = p + at
    r.topic_len = <signed char>r.topic[-1] if magic == RC_MAGIC_V1 else rc_get_i16(r.topic - 2)
    if r.topic_len < 0 or at + <size_t>r.topic_len + RC_PROPERTIES_LENGTH_BYTES > room:
        return RC_BAD_TOPIC_LENGTH
    at += <size_t>r.topic_len + RC_PROPERTIES_LENGTH_BYTES
    r.props = p + at
    r.props_len = rc_get_i16(r.props - 2)
    if r.props_len < 0:
        r.props_len = 0
    at += <size_t>r.props_len
    if at > room:
        return RC_BAD_PROPERTIES_LENGTH
    if at < room:
        return RC_BAD_LENGTH
    if crc == CRC_BODY and r.body_len > 0:
        if rc_body_crc(crc32, r.body, <size_t>r.body_len) != rc_get_i32(p + RC_MSG_BODY_CRC_AT):
            return RC_BAD_BODY_CRC
    if crc == CRC_FULL:
        if not has_property_crc(r):
            return RC_MISSING_PROPERTY_CRC
        if not property_crc_holds(r, crc32):
            return RC_BAD_PROPERTY_CRC
    return RC_OK if numbers_hold(r) else RC_BAD_PROPERTY


cdef bint numbers_hold(const Record* r) noexcept nogil:
    """Whether all properties that RocketMQ reads as numbers are numbers: otherwise it rejects the record."""
    if is_schedule_topic(r.topic, r.topic_len) and not may_be_number(r, RC_PROPERTY_DELAY, INT32_MAX):
        return False
    if has(r, RC_PROPERTY_INNER_BASE) and has(r, RC_PROPERTY_INNER_NUM):
        return (
            may_be_number(r, RC_PROPERTY_INNER_BASE, INT64_MAX) and may_be_number(r, RC_PROPERTY_INNER_NUM, INT16_MAX)
        )
    return True


cdef inline bint has(const Record* r, const char* name) noexcept nogil:
    cdef int at
    return rc_find_property(r.props, r.props_len, name, &at) > 0


cdef bint may_be_number(const Record* r, const char* name, int64_t most) noexcept nogil:
    """Whether a property is absent, or is text that Java reads as a whole number of at most `most`."""
    cdef int at = 0, i
    cdef int n = rc_find_property(r.props, r.props_len, name, &at)
    cdef const uint8_t* text = r.props + at
    cdef uint64_t value = 0, limit = <uint64_t>most, digit
    if n <= 0:
        return True
    if n > 1 and (text[0] == c"-" or text[0] == c"+"):
        limit += text[0] == c"-"
        text += 1
        n -= 1
    for i in range(n):
        digit = text[i] - <uint64_t>c"0"
        if digit > 9 or value > (limit - digit) // 10:
            return False
        value = 10 * value + digit
    return True
