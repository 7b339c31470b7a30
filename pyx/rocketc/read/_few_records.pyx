# cython: language_level=3
"""Decode a short buffer at once: the fast path of decode() for buffers with complete valid records only."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.layout cimport RC_FLAG_COMPRESSED
from rocketc.c.status cimport RC_OK
from rocketc.format._record cimport CRC_BODY, Record, crc32, is_to_unwrap, parse_record, verify_record
from rocketc.read._message cimport message_of

cdef enum:
    MOST_BYTES = 64 << 10
    MOST_RECORDS = 32


cdef list messages_of(const uint8_t* p, size_t size, object base_offset, bytes whole, str file):
    """Decode [p, p + size); whole is the bytes object with this memory, or None."""
    cdef list out = []
    cdef Record r
    cdef size_t pos = 0
    cdef int64_t base = 0
    cdef int overflow = 0
    if size == 0 or size > MOST_BYTES:
        return None
    if base_offset is not None:
        if not PyLong_CheckExact(base_offset):
            return None
        base = PyLong_AsLongLongAndOverflow(base_offset, &overflow)
        if overflow != 0:
            return None
    while pos < size:
        if len(out) == MOST_RECORDS or parse_record(p + pos, size - pos, &r) != RC_OK:
            return None
        if pos == 0 and base_offset is None:
            base = r.phy_offset
        if verify_record(&r, CRC_BODY, crc32, base + <int64_t>pos) != RC_OK:
            return None
        if is_to_unwrap(&r) or (r.sys_flag & RC_FLAG_COMPRESSED and r.body_len > 0):
            return None
        out.append(message_of(&r, &r, whole if <size_t>r.size == size else None, None, file, None))
        pos += <size_t>r.size
    return out


def few_messages(buffer, base_offset, str file):
    """Return the messages of a buffer of up to 64 KiB; None if it needs a Walker.

    buffer       contiguous bytes. They are checked and copied at once; a bytes object with one record is kept instead
    base_offset  physical offset of the first byte; None: read it from the first record
    file         the path in the messages

    Returns None if the buffer is empty or longer, has more than 32 records, or has anything but valid records that are
    neither compressed nor inner batches.

    >>> import rocketc
    >>> [m.body for m in few_messages(rocketc.encode("t", b"a"), 0, None)]
    [b'a']
    >>> few_messages(rocketc.encode("t", b"a") + bytes(1), 0, None)
    """
    cdef Py_buffer view
    if PyBytes_CheckExact(buffer):
        return messages_of(
            <const uint8_t*>PyBytes_AS_STRING(buffer), <size_t>PyBytes_GET_SIZE(buffer), base_offset, buffer, file
        )
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return messages_of(<const uint8_t*>view.buf, <size_t>view.len, base_offset, None, file)
    finally:
        PyBuffer_Release(&view)
