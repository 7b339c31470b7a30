# cython: language_level=3
"""Read the records in the answers of brokers: one after the other, each from anywhere in the log."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc._status cimport reason_of
from rocketc.c.bytes cimport rc_get_i64
from rocketc.c.status cimport (
    RC_BAD_BODY_CRC, RC_BAD_MAGIC, RC_BAD_PHYSICAL_OFFSET, RC_BAD_PROPERTY_CRC, RC_BLANK, RC_END, RC_MORE, RC_OK,
)
from rocketc.format._record cimport CRC_NONE, Record, crc32, parse_record, verify_record
from rocketc.format._text_table cimport KEEP, SKIP
from rocketc.read._log_bytes cimport STEP_BYTES
from rocketc.read._walk cimport BLOCK_BYTES, BLOCK_RECORDS, Walker

from rocketc.errors import CorruptRecordError


cdef enum:
    RUN_BYTES = 8               # a position and an index, int32 each
    NAME_MAX = 1024             # characters of a broker's name: the texts of a column have limits

cdef object _new_tuple = tuple.__new__


def record_places(bytes body not None, kind=None):
    """Return where the records in the answer to a pull are, and the position after the last one.

    kind  a NamedTuple with five fields; None: tuples
    Returns a list of (physical offset, store timestamp in ms, queue offset, start, stop); start and stop are positions
    in `body`. The position after them is less than the size of `body` if a record with an impossible length follows.
    The CRCs are not checked.

    >>> import rocketc
    >>> record_places(rocketc.encode("orders", b"one", queue_offset=7, phy_offset=900, store_timestamp=5) + b"?")
    ([(900, 5, 7, 0, 100)], 100)
    """
    cdef list out = []
    cdef Record r
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(body)
    cdef size_t pos = 0, size = <size_t>PyBytes_GET_SIZE(body)
    while pos < size and parse_record(p + pos, size - pos, &r) == RC_OK:
        place = (r.phy_offset, rc_get_i64(r.tail), r.queue_offset, pos, pos + <size_t>r.size)
        out.append(place if kind is None else _new_tuple(kind, place))
        pos += <size_t>r.size
    return out, pos


def cut_records(bytes body not None, places, int64_t end, int64_t until, kind not None):
    """Return the first records of an answer, each with its bytes.

    places      of record_places()
    end, until  queue offset and store timestamp of the first record that is left out, with all that follow it
    kind        a NamedTuple with the fields physical offset, store timestamp, queue offset, bytes, and a bool
    Returns a list of records, whose last field is False; the position after them; and whether one was left out.

    >>> import rocketc, typing
    >>> body = rocketc.encode("orders", b"one", phy_offset=900, store_timestamp=5) + rocketc.encode("orders", b"two")
    >>> places, _ = record_places(body)
    >>> [(at, time, len(data)) for at, time, _, data, _ in cut_records(body, places, 1 << 62, 1 << 62, tuple)[0]]
    [(900, 5, 100), (0, 0, 100)]
    """
    cdef list out = []
    cdef int64_t start, stop, behind = 0, size = PyBytes_GET_SIZE(body)
    for phy_offset, stored, queue_offset, first, last in places:
        if <int64_t>queue_offset >= end or <int64_t>stored >= until:
            return out, behind, True
        start, stop = first, last
        if not 0 <= start <= stop <= size:
            raise ValueError(f"a record is at {start} to {stop} of {size} bytes")
        data = body[start:stop]
        out.append(_new_tuple(kind, (phy_offset, stored, queue_offset, data, False)))
        behind = stop
    return out, behind, False


def data_size(records not None, Py_ssize_t cost):
    """Return the bytes of the records of cut_records(), and `cost` bytes more for each. Some may lack their data.

    >>> data_size([(0, 0, 0, b"12345", False), (9, 0, 1, None, False)], 100)
    105
    """
    cdef Py_ssize_t size = 0
    for record in records:
        data = record[3]
        if data is not None:
            size += cost + len(data)
    return size


cdef class PulledRecords(Walker):
    """Iterate over records that stand one after the other and come from anywhere in the log.

    Arguments: those of Walker; `source` is bytes, and `base` is 0. The physical offset of a record is its own, and not
    its position. A record with a wrong CRC is damage, and the next one follows it. After a record with an impossible
    length nothing more is read.
    """

    cdef int64_t _behind            # physical offset after the last record
    cdef bytes _runs                # pairs of int32: position after the last record of a run, index of its broker
    cdef const int32_t* _run_at     # in _runs
    cdef Py_ssize_t _run_count
    cdef Py_ssize_t _run            # the next record is in this one; after all of them, it is from the first broker

    def sent_by(self, tuple brokers not None, bytes runs not None):
        """Note which brokers the records are from; call it before they are read. See RecordBlock."""
        cdef const int32_t* run = <const int32_t*>PyBytes_AS_STRING(runs)
        cdef Py_ssize_t i, count = PyBytes_GET_SIZE(runs) // RUN_BYTES
        if PyBytes_GET_SIZE(runs) % RUN_BYTES:
            raise ValueError(f"{len(runs)} bytes are not pairs of int32")
        if brokers and len(max(brokers, key=len)) > NAME_MAX:
            raise ValueError(f"the name of a broker has more than {NAME_MAX} characters")
        for i in range(count):
            if not 0 <= run[2 * i + 1] < len(brokers):
                raise ValueError(f"a run of broker {run[2 * i + 1]} of {len(brokers)}")
        self._brokers, self._runs = brokers or None, runs
        self._run_at, self._run_count, self._run = run, count, 0

    cdef int32_t _broker_at(self, size_t pos) noexcept nogil:
        """Index of the broker of the record at a position, which is after those of earlier calls."""
        while self._run < self._run_count and pos >= <size_t>self._run_at[2 * self._run]:
            self._run += 1
        return self._run_at[2 * self._run + 1] if self._run < self._run_count else 0

    cdef int next_block(self) except -1:
        cdef int rc
        while not self._done:
            with nogil:
                rc = self._fill()
            PyErr_CheckSignals()
            if self._count > 0:
                return 1
            if self._pos >= self._len:
                self._done = True
            elif rc == RC_MORE:
                self._judge()
            elif rc != RC_OK:
                self._skip(rc)
        return 0

    cdef int _fill(self) noexcept nogil:
        cdef Record* r
        cdef int rc = RC_OK, count = 0, verdict
        cdef size_t pos = self._pos, start = pos, kept = 0
        while pos < self._len:
            r = &self._block[count]
            rc = parse_record(self._buf + pos, self._len - pos, r)
            if rc != RC_OK:
                break
            verdict = KEEP if self._filter._all else self._filter.verdict(r)
            if verdict != KEEP and verdict != SKIP:
                rc = RC_MORE                    # the filter must judge its topic first
                break
            rc = verify_record(r, self._crc if verdict == KEEP else CRC_NONE, crc32, r.phy_offset)
            if rc != RC_OK:
                break
            if verdict == KEEP:
                r.broker = self._broker_at(pos)
                count += 1
                kept += <size_t>r.size
            self._behind = r.phy_offset + r.size
            pos += <size_t>r.size
            if count == BLOCK_RECORDS or kept >= BLOCK_BYTES or pos - start >= STEP_BYTES:
                break
        else:
            rc = RC_END
        self._count = count
        self._pos = pos
        return rc

    cdef int _skip(self, int rc) except -1:
        """Report the record at _pos as damage, or raise; continue after it, if its length is possible."""
        cdef const Record* r = &self._block[0]
        cdef size_t size = self._len - self._pos
        cdef int64_t start = self._behind
        if rc == RC_BAD_BODY_CRC or rc == RC_BAD_PROPERTY_CRC or rc == RC_BAD_PHYSICAL_OFFSET:
            start = r.phy_offset
            size = <size_t>r.size
        # no broker sends the blank record at the end of a file, nor zeros
        self._damage(start, size, reason_of(RC_BAD_MAGIC if rc == RC_BLANK or rc == RC_END else rc))
        self._pos += size
        self._behind = start + <int64_t>size

    cdef int lost(self, const Record* r, str reason) except -1:
        return self._damage(r.phy_offset, <size_t>r.size, reason)

    cdef int _damage(self, int64_t start, size_t size, str reason) except -1:
        if self._raise:
            raise CorruptRecordError(self._file, start, reason, "errors='skip' or 'report' continues after it")
        self.damage.append((start, start + <int64_t>size, reason))
        return 0
