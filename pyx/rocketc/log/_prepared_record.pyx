# cython: language_level=3
"""Checks of a prepared record before it is appended: its topic, and the properties that the store acts on."""
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, strlen

from rocketc.c.bytes cimport rc_find_either
from rocketc.c.layout cimport (
    RC_PROPERTY_SEPARATOR, RC_RETRY_PREFIX, RC_TOPIC_V1_MAX_BYTES, RC_TOPIC_V2_MAX_BYTES,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.c.status cimport RC_MORE, RC_OK, RC_TOPIC_TOO_LONG, RC_UNFIT_TOPIC
from rocketc.c.utf8 cimport rc_utf8_valid

import re

NUMBER = re.compile(r"[+-]?\d{1,40}")       # as Java: also digits that are not ASCII


cdef bint is_retry_topic(const uint8_t* topic, int32_t n) noexcept nogil:
    cdef int32_t prefix = <int32_t>strlen(RC_RETRY_PREFIX)
    return n >= prefix and memcmp(topic, RC_RETRY_PREFIX, <size_t>prefix) == 0


cdef int topic_fault(const uint8_t* topic, int32_t n, bint checked, bint long_topics) noexcept nogil:
    """Whether a topic can be the name of a folder and can be stored: RC_OK, RC_UNFIT_TOPIC or RC_TOPIC_TOO_LONG.

    checked      the broker's checks are on (check_before_put_message): no control characters, and only retry topics
                 may have more than 127 bytes, at most 255
    long_topics  records of version 2 are allowed (auto_message_version_on_topic_len)
    Source: RocketMQ HookUtils.checkBeforePutMessage, MessageExtEncoder.
    """
    cdef int32_t i
    if n <= 0 or rc_find_either(topic, <size_t>n, 0, c"/") < <size_t>n or not rc_utf8_valid(topic, <size_t>n):
        return RC_UNFIT_TOPIC
    if topic[0] == c"." and (n == 1 or (n == 2 and topic[1] == c".")):
        return RC_UNFIT_TOPIC
    if n > RC_TOPIC_V1_MAX_BYTES:
        if checked and (n > RETRY_MAX_BYTES or not is_retry_topic(topic, n)):
            return RC_TOPIC_TOO_LONG
        if not long_topics or n > RC_TOPIC_V2_MAX_BYTES:
            return RC_TOPIC_TOO_LONG
    for i in range(n if checked else 0):
        if topic[i] < c" " or topic[i] == 0x7F:
            return RC_UNFIT_TOPIC
    return RC_OK


cdef uint32_t initials_of(const uint8_t* props, int32_t n) noexcept nogil:
    """The first bytes of the property names in a string, as bits: 1 << (byte % 32). A put uses them to skip the
    search for the properties that the store acts on, because most messages do not have any of these."""
    cdef uint32_t found = 0
    cdef const uint8_t* end = props + n
    cdef const uint8_t* p = props
    while p != NULL and p < end:
        found |= <uint32_t>1 << (p[0] & 31)
        p = <const uint8_t*>memchr(p, RC_PROPERTY_SEPARATOR, <size_t>(end - p))
        if p != NULL:
            p += 1
    return found


cdef object property_of(const uint8_t* props, int32_t n, const char* name):
    """The text of a property in a stored string, or None."""
    cdef int at = 0, found = rc_find_property(props, n, name, &at)
    return props[at:at + found].decode("utf-8", "replace") if found >= 0 else None


cdef int number_of(object text) except? -1:
    """Parse a number as Java's Integer.parseInt does; 0 if the text is not a number of 32 bits."""
    if text is None or not NUMBER.fullmatch(text):
        return 0
    value = int(text)
    return <int>value if INT32_MIN <= value <= INT32_MAX else 0


cdef int refuse(PreparedRecord* records, int n, int rc, int error) noexcept nogil:
    """Set the status rc on each record that is neither stored nor refused yet. Return rc."""
    cdef int i
    for i in range(n):
        if records[i].status == RC_MORE:
            records[i].status = rc
            records[i].error = error
    return rc


cdef int64_t batch_size(const PreparedRecord* records, int n) noexcept nogil:
    """The size in bytes of the first record or batch."""
    cdef int64_t size = 0
    cdef int i
    for i in range(batch_count(records, n)):
        size += records[i].size
    return size


cdef int fitting(
    const PreparedRecord* records, int n, int64_t room, int most, int64_t enough, int64_t* size,
) noexcept nogil:
    """How many of n records, with whole batches, go into one file under one hold of the put lock.

    room    free bytes of the file; the first record fits
    most    number of records after which no other one begins
    enough  bytes after which no other record begins
    size    set to the total bytes of the records to store
    """
    cdef int64_t more
    cdef int i = 0, k = 0, batch
    size[0] = 0
    while i < n:
        batch = batch_count(records + i, n - i)
        if records[i].status == RC_MORE:
            more = records[i].size if batch == 1 else batch_size(records + i, n - i)
            if size[0] + more > room or (k > 0 and (k >= most or size[0] >= enough)):
                break
            size[0] += more
            k += batch
        i += batch
    return i
