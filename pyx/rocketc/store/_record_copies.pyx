# cython: language_level=3
"""Copying and checking the records that a read of a queue picked.

A record is checked in its copy, which no other process can change. Record i is checked after record i + 1 was copied
and the cache lines of later records were prefetched, so that the checks do not wait for memory.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from rocketc.c.layout cimport RC_FLAG_COMPRESSED
from rocketc.c.prefetch cimport LINE_BYTES, rc_prefetch
from rocketc.c.status cimport RC_FILE_CUT, RC_OK
from rocketc.files._append_file cimport FileState, View
from rocketc.format._record cimport Record, is_to_unwrap
from rocketc.store._raw_records cimport RawRecord, RawRecords, raw_cut_back, raw_enter, raw_rest, raw_view
from rocketc.store._results cimport (
    PickedRecord, PickedRecords, QueueIdentity, READ_PLAIN, READ_STORED, READ_WHOLE, ReadResult, attach_copy,
    check_claim, is_special, picked_reserve,
)

cdef enum:
    AHEAD = 2                   # a record is prefetched this many records before it is copied
    FETCHED_BYTES = 2048        # most bytes prefetched of a record; hardware prefetches the rest of longer ones


cdef inline void fetch_row(const RawRecords* h, int i) noexcept nogil:
    """Prefetch the first cache lines of record i, if it exists."""
    cdef int64_t at = 0, size
    if i < h.count:
        size = min(<int64_t>h.rows[i].size, <int64_t>FETCHED_BYTES)
        while at < size:
            rc_prefetch(h.rows[i].at + at)
            at += LINE_BYTES


cdef inline int checked(
    PickedRecords* to, RawRecords* h, int i, const uint8_t* at, const QueueIdentity* of, int how,
) noexcept nogil:
    """Add record i to `to`, which has room, if the bytes at `at` match its unit; otherwise cut h back before it."""
    cdef const RawRecord* row = &h.rows[i]
    cdef PickedRecord* t = &to.rows[i]
    cdef int rc
    t.phy_offset = row.phy_offset
    t.size = row.size
    t.queue_offset = row.queue_offset
    t.mapped = False
    rc = check_claim(t, at, of, how)
    if h.files[row.file].cut != 0:
        rc = RC_FILE_CUT
    if rc != RC_OK:
        raw_cut_back(h, i)
        return rc
    to.count = i + 1
    to.bytes += row.size
    to.special |= is_special(&t.r)
    return RC_OK


cdef int copy_all(RawRecords* h, PickedRecords* to, uint8_t* dst, const QueueIdentity* of, int how) noexcept nogil:
    """Copy the records one after the other to dst, and check each one.

    dst  h.bytes of room
    Returns RC_OK, ENOMEM, or the fault of the row after the first h.count ones, which are valid.
    """
    cdef const RawRecord* row
    cdef const uint8_t* last = dst
    cdef int i, rc = picked_reserve(to, h.count)
    if rc != RC_OK:
        raw_cut_back(h, 0)
        return rc
    for i in range(AHEAD):
        fetch_row(h, i)
    for i in range(h.count):
        fetch_row(h, i + AHEAD)
        row = &h.rows[i]
        raw_enter(h, row.file)
        memcpy(dst, row.at, <size_t>row.size)
        if i > 0:
            rc = checked(to, h, i - 1, last, of, how)
            if rc != RC_OK:
                break
        last = dst
        dst += row.size
    raw_rest(h)
    if rc == RC_OK:
        rc = checked(to, h, h.count - 1, last, of, how)
    return rc


cdef int copy_records(ReadResult answer, RawRecords* h, const QueueIdentity* of, int how) except? -1:
    """Copy the records, at least one, into a new buffer of the answer.

    Returns RC_OK, or the fault of h.wrong; all records before it are valid.
    """
    cdef int64_t size = h.bytes
    cdef uint8_t* dst
    cdef int rc
    answer._buffer = PyBytes_FromStringAndSize(NULL, size)
    dst = <uint8_t*>PyBytes_AS_STRING(answer._buffer)
    with nogil:
        rc = copy_all(h, &answer._picked, dst, of, how)
    if rc != RC_OK:
        attach_copy(answer, dst)
    return rc


cdef bint can_stay_mapped(const Record* r, int how) noexcept nogil:
    """Return True if a body can stay in the map: it is not decompressed, and it is not an inner batch to open."""
    return how & READ_PLAIN == READ_PLAIN or (
        not (r.sys_flag & RC_FLAG_COMPRESSED and not how & READ_STORED)
        and not (is_to_unwrap(r) and not how & READ_WHOLE)
    )


cdef int check_in_map(RawRecords* h, PickedRecords* to, const QueueIdentity* of, int how) noexcept nogil:
    """Check the records in the map, and decide which bodies stay there. to.bytes gets the size of all other bytes."""
    cdef PickedRecord* t
    cdef int64_t size = 0
    cdef int i, rc = picked_reserve(to, h.count)
    if rc != RC_OK:
        raw_cut_back(h, 0)
        return rc
    for i in range(h.count):
        raw_enter(h, h.rows[i].file)
        rc = checked(to, h, i, h.rows[i].at, of, how)
        if rc != RC_OK:
            break
        t = &to.rows[i]
        t.mapped = can_stay_mapped(&t.r, how)
        size += t.size - (t.r.body_len if t.mapped else 0)
    raw_rest(h)
    to.bytes = size
    return rc


cdef int copy_around_bodies(ReadResult answer, RawRecords* h, const QueueIdentity* of, int how) except? -1:
    """Do the same as copy_records(), but leave bodies in the map where possible and copy only the other bytes."""
    cdef PickedRecords* to = &answer._picked
    cdef PickedRecord* t
    cdef View view
    cdef FileState* f
    cdef uint8_t* dst
    cdef const uint8_t* src
    cdef ptrdiff_t head, behind
    cdef int i, rc, fault
    with nogil:
        fault = check_in_map(h, to, of, how)
    if h.count == 0:
        return fault
    answer._views = []
    answer._buffer = PyBytes_FromStringAndSize(NULL, to.bytes)
    dst = <uint8_t*>PyBytes_AS_STRING(answer._buffer)
    for i in range(h.count):
        t = &to.rows[i]
        src = h.rows[i].at
        head = t.r.body - t.r.at
        behind = t.size - head - t.r.body_len
        f = raw_enter(h, h.rows[i].file)
        if t.mapped:
            memcpy(dst, src, <size_t>head)
            memcpy(dst + head, src + head + t.r.body_len, <size_t>behind)
        else:
            memcpy(dst, src, <size_t>t.size)
        raw_rest(h)
        rc = RC_OK if t.mapped else check_claim(t, dst, of, how)
        if f.cut != 0:
            rc = RC_FILE_CUT
        if rc != RC_OK:
            raw_cut_back(h, 0)
            to.count = 0
            return rc
        if not t.mapped:
            dst += t.size
            continue
        view = raw_view(h, i, head, t.r.body_len)
        answer._views.append(view)
        t.r.tail = dst + (t.r.tail - t.r.at)
        t.r.topic = dst + (t.r.topic - t.r.at - t.r.body_len)
        t.r.props = dst + (t.r.props - t.r.at - t.r.body_len)
        t.r.body = view.data
        t.r.at = dst
        dst += head + behind
    return fault
