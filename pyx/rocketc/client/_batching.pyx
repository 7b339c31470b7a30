# cython: language_level=3
"""Batches in one pass: from messages to the body of the request, and from its answer to their results.

Bodies and NewMessage objects with tags and keys are encoded here; Packer does all others.
Source: RocketMQ MessageDecoder.encodeMessages.
"""
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from rocketc.c.bytes cimport rc_put_i16, rc_put_i32
from rocketc.c.layout cimport (
    RC_ENTRY_BODY_AT, RC_ENTRY_BODY_CRC_AT, RC_ENTRY_BODY_LENGTH_AT, RC_ENTRY_FLAG_AT, RC_ENTRY_MAGIC_AT,
    RC_ENTRY_MIN_BYTES, RC_ENTRY_TOTAL_SIZE_AT, RC_PROPERTIES_LENGTH_BYTES,
)
from rocketc.client._property_texts cimport int32_of, property_of, put_bytes
from rocketc.client._unique_ids cimport ID_MOST, UniqueIds

from rocketc import _layout
from rocketc.client.send_results import SendResult

cdef enum:
    LEAST_BYTES = 4 << 10       # of the buffer

cdef object new_tuple = tuple.__new__
cdef bytes BEFORE_TAGS = f"{_layout.PROPERTY_TAGS}\1".encode()
cdef bytes BEFORE_KEYS = f"{_layout.PROPERTY_KEYS}\1".encode()
cdef bytes BEFORE_ID = f"{_layout.PROPERTY_UNIQUE_KEY}\1".encode()
cdef bytes AFTER_ID = f"\2{_layout.PROPERTY_WAIT}\1true\2".encode()


cdef class BatchEncoder:
    """Encodes the messages of one topic, batch after batch.

    ids        of the messages
    kind       the class NewMessage
    body_most  bytes of a body
    most       bytes of a batch; the first message of each may need more
    """

    def __init__(self, UniqueIds ids not None, type kind not None, Py_ssize_t body_most, Py_ssize_t most):
        self._ids = ids
        self._kind = kind
        self._body_most = body_most
        self._most = most
        self._keys = []

    def __dealloc__(self):
        free(self._bytes)

    def __len__(self):
        return len(self._keys)

    def fill(self, messages):
        """Add messages of an iterator. Return True at its end; False: `left` is the message that was not added.

        A message is not added if Packer has to make it, or if it does not fit: see fits().
        """
        cdef int64_t now = self._ids.now()
        for message in messages:
            if not self._add(message, now):
                self.left = message
                return False
        self.left = None
        return True

    cdef bint _add(self, object message, int64_t now) except -1:
        cdef const uint8_t* tags_at = NULL
        cdef const uint8_t* keys_at = NULL
        cdef Py_ssize_t tags_size = 0, keys_size = 0, body_size, size
        cdef int32_t flag = 0
        cdef uint8_t id[ID_MOST]
        cdef uint8_t* start
        cdef uint8_t* p
        cdef object tags = None, keys = None, flags, body = message
        if type(message) is self._kind:
            body, tags, keys, flags = message.body, message.tags, message.keys, message.flag
            if message.properties is not None or type(flags) is not int or not int32_of(flags, &flag):
                return False
            if tags is not None:
                tags_at = property_of(tags, &tags_size)
                if tags_at == NULL:
                    return False
                tags_size += PyBytes_GET_SIZE(BEFORE_TAGS) + 1
            if keys is not None:
                keys_at = property_of(keys, &keys_size)
                if keys_at == NULL:
                    return False
                keys_size += PyBytes_GET_SIZE(BEFORE_KEYS) + 1
        if type(body) is not bytes:
            return False
        body_size = PyBytes_GET_SIZE(body)
        if not 0 < body_size <= self._body_most:
            return False
        size = PyBytes_GET_SIZE(BEFORE_ID) + self._ids.size + PyBytes_GET_SIZE(AFTER_ID) + tags_size + keys_size
        if not self.fits(body_size, size):
            return False
        start = self._reserve(RC_ENTRY_MIN_BYTES + body_size + size)
        self._ids.put(now, id)
        self._keys.append(id[:self._ids.size].decode("ascii"))
        p = put_entry(start, flag, body, size)
        if tags_at != NULL:
            p = put_bytes(p, BEFORE_TAGS)
            tags_size -= PyBytes_GET_SIZE(BEFORE_TAGS) + 1
            memcpy(p, tags_at, <size_t>tags_size)
            p[tags_size] = 2
            p += tags_size + 1
        if keys_at != NULL:
            p = put_bytes(p, BEFORE_KEYS)
            keys_size -= PyBytes_GET_SIZE(BEFORE_KEYS) + 1
            memcpy(p, keys_at, <size_t>keys_size)
            p[keys_size] = 2
            p += keys_size + 1
        p = put_bytes(p, BEFORE_ID)
        memcpy(p, id, <size_t>self._ids.size)
        p = put_bytes(p + self._ids.size, AFTER_ID)
        self._used += p - start
        return True

    cpdef bint fits(self, Py_ssize_t body_size, Py_ssize_t properties_size):
        """Return whether a message may be added: the batch is empty, or does not become larger than `most`."""
        return not self._keys or self._used + RC_ENTRY_MIN_BYTES + body_size + properties_size <= self._most

    def add(self, int32_t flag, bytes body not None, bytes properties not None, str key not None):
        """Add a message that Packer made, whose properties are in stored form."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(properties)
        cdef uint8_t* start = self._reserve(RC_ENTRY_MIN_BYTES + PyBytes_GET_SIZE(body) + size)
        cdef uint8_t* p = put_bytes(put_entry(start, flag, body, size), properties)
        self._used += p - start
        self._keys.append(key)

    cdef uint8_t* _reserve(self, Py_ssize_t n) except NULL:
        """Return the place for n bytes more."""
        cdef uint8_t* bigger
        cdef Py_ssize_t room = self._used + n
        if room > self._room:
            room = max(2 * room, <Py_ssize_t>LEAST_BYTES)
            bigger = <uint8_t*>realloc(self._bytes, <size_t>room)
            if bigger == NULL:
                raise MemoryError
            self._bytes = bigger
            self._room = room
        return self._bytes + self._used

    def take(self):
        """Return the body of the batch, and the unique ids of its messages, and begin the next batch."""
        cdef tuple keys = tuple(self._keys)
        cdef bytes body = self._bytes[:self._used]
        self._keys = []
        self._used = 0
        return body, keys


cdef uint8_t* put_entry(uint8_t* dst, int32_t flag, bytes body, Py_ssize_t properties_size) noexcept:
    """Write a message up to its properties. Return the place of the properties."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    rc_put_i32(dst + RC_ENTRY_TOTAL_SIZE_AT, <int32_t>(RC_ENTRY_MIN_BYTES + size + properties_size))
    rc_put_i32(dst + RC_ENTRY_MAGIC_AT, 0)
    rc_put_i32(dst + RC_ENTRY_BODY_CRC_AT, 0)
    rc_put_i32(dst + RC_ENTRY_FLAG_AT, flag)
    rc_put_i32(dst + RC_ENTRY_BODY_LENGTH_AT, <int32_t>size)
    dst = put_bytes(dst + RC_ENTRY_BODY_AT, body)
    rc_put_i16(dst, <short>properties_size)
    return dst + RC_PROPERTIES_LENGTH_BYTES


def results(tuple keys not None, list ids not None, result):
    """Return the results of the messages of a batch.

    keys    their unique ids
    ids     that the broker gave them; as many
    result  of the batch
    """
    cdef Py_ssize_t i
    cdef list out = []
    status, _, queue, offset, _, transaction_id, recall_handle = result
    for i in range(len(keys)):      # the offset is what a broker says: any number
        out.append(new_tuple(SendResult, (status, keys[i], queue, offset + i, ids[i], transaction_id, recall_handle)))
    return out
