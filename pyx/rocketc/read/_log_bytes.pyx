# cython: language_level=3
"""The bytes of one commit log file or buffer, mapped or fetched: parse a position, or search for the next valid record.

The bytes are read between enter() and leave(), without the GIL, because another process may cut the file meanwhile.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.bytes cimport rc_find_either, rc_get_i32, rc_trim_zeros, rc_zero_prefix
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_MAGIC_BLANK, RC_MAGIC_V1, RC_MAGIC_V2, RC_MSG_MAGIC_AT, RC_MSG_TOTAL_SIZE_AT,
)
from rocketc.c.status cimport (
    RC_BAD_LENGTH, RC_BAD_PROPERTIES_LENGTH, RC_BAD_TOPIC_LENGTH, RC_BLANK, RC_END, RC_MORE, RC_OK,
)
from rocketc.c.vm cimport rc_guard, rc_map_release
from rocketc.files._guard cimport enter as guard_enter, install, leave as guard_leave
from rocketc.files._mapped_file cimport MappedFile
from rocketc.format._record cimport CRC_BODY, CRC_NONE, Record, crc32, parse_record, verify_record

cdef enum:
    KEEP_MAPPED = 64 << 20      # bytes of the map before the position that stay resident
    HEAD_BYTES = 256            # at least the part of a record before its body
    TRIM_BYTES = 4 << 20        # bytes read at once in the search for the end of the data
    CROWD_BODY = 4 << 10        # a search always reads bodies up to this size to check the CRC
    CROWD_MAX = 64              # the most longer bodies read for candidates that overlap
    LEARN_BYTES = 64 << 20      # the search for the first record ends here if the file name is not an offset


cdef class LogBytes:
    """The bytes of one commit log file or buffer.

    source  MappedFile, or a buffer of bytes
    base    physical offset of the first byte; None: read it from the first record
    limit   full size of the file (the distance to the next file's name); 0: its current size
    crc     a Crc: which checks are made
    fetch   only for a buffer that is filled on demand. Calling fetch(pos, stop) loads the bytes [pos, stop) and returns
            the position up to which bytes are loaded, at least stop. Bytes before pos may be dropped. Bytes that are
            not loaded can be read and are zero
    """

    def __cinit__(self, source, base, *_, size_t limit=0, int crc=CRC_BODY, fetch=None, **_others):
        if isinstance(source, MappedFile):
            self._map = source
            self._map.hold()
            self._buf = self._map.base
            self._len = self._map.length
            install()
        else:
            self._view = source
            self._len = <size_t>self._view.shape[0]
            self._buf = &self._view[0] if self._len > 0 else NULL
        self._limit = max(limit, self._len)
        self._fetch = fetch
        self._there = self._len if fetch is None else 0
        self._crc = crc
        self.base = self._learn_base() if base is None else base

    def __dealloc__(self):
        if self._map is not None:
            self._map.release()

    cdef void enter(self, rc_guard* guard) noexcept nogil:
        if self._map is not None:
            guard_enter(guard, self._map.base, self._map.length, &self._map.cut)

    cdef void leave(self, rc_guard* guard) noexcept nogil:
        if self._map is not None:
            guard_leave(guard)

    cdef int _reach_record(self, size_t pos) except -1:
        """Fetch all bytes that are needed to parse the record at pos."""
        cdef Record r
        if self._fetch is None or pos >= self._len:
            return 0
        self._there = self._fetch(pos, min(pos + HEAD_BYTES, self._len))
        if self._parse_there(pos, &r) == RC_MORE:
            self._there = self._fetch(pos, pos + <size_t>r.size)
        return 0

    cdef size_t _reach(self, size_t pos, size_t stop) except? 0:
        """Fetch bytes from pos on; return the position up to which they are loaded, at most stop."""
        if self._fetch is None:
            return stop
        self._there = self._fetch(pos, min(pos + 2 * HEAD_BYTES, stop))
        return min(self._there, stop)

    cdef int _parse_there(self, size_t pos, Record* r) noexcept nogil:
        """Call parse_record() at pos; return RC_MORE if at least r.size bytes must be fetched first."""
        cdef int rc = parse_record(self._buf + pos, self._len - pos, r)
        if self._there == self._len:
            return rc
        if pos + HEAD_BYTES > self._there:
            r.size = HEAD_BYTES     # does not exceed the file, or all of it would be loaded
            return RC_MORE
        if rc == RC_OK or rc == RC_BAD_TOPIC_LENGTH or rc == RC_BAD_PROPERTIES_LENGTH or rc == RC_BAD_LENGTH:
            if <size_t>r.size > self._there - pos:
                return RC_MORE
        return rc

    cdef int _look(self, size_t pos) noexcept nogil:
        """Parse and check the bytes at pos: return RC_OK, RC_BLANK, RC_END or an error."""
        cdef rc_guard guard
        cdef Record r
        cdef int rc
        self.enter(&guard)
        rc = parse_record(self._buf + pos, self._len - pos, &r)
        if rc == RC_OK:
            rc = verify_record(&r, self._crc, crc32, self.base + <int64_t>pos)
        self.leave(&guard)
        return rc

    cdef bint _is_boundary(self, size_t pos) except -1:
        """Whether a record begins at pos, or the log ends there."""
        cdef int rc
        if pos >= self._len:
            return pos == self._len
        if self._len - pos < RC_BLANK_BYTES:
            return self._data_from(pos) == self._len
        self._reach_record(pos)
        rc = self._look(pos)
        if rc == RC_BLANK:
            return self._is_blank(pos)
        return rc == RC_OK or rc == RC_END

    cdef bint _is_blank(self, size_t pos) noexcept nogil:
        cdef rc_guard guard
        cdef bint yes
        self.enter(&guard)
        yes = (
            self._len - pos >= RC_BLANK_BYTES
            and rc_get_i32(self._buf + pos + RC_MSG_MAGIC_AT) == RC_MAGIC_BLANK
            and <size_t>rc_get_i32(self._buf + pos + RC_MSG_TOTAL_SIZE_AT) == self._limit - pos
        )
        self.leave(&guard)
        return yes

    cdef size_t _find_next(self, size_t pos) except? 0:
        """Return the first position from pos on with a valid record or the blank record; _len if there is none."""
        return self._find(pos, self._len, True)

    cdef size_t _find(self, size_t pos, size_t end, bint with_offset) except? 0:
        """Call _find_in() in steps; skip holes and fetch bytes as needed."""
        cdef size_t stop, found, data
        while pos < end:
            if self._map is not None:
                data = self._map.next_data(pos)
                if data >= self._len:
                    break
                if data > pos + RC_BLANK_BYTES:
                    pos = data - RC_BLANK_BYTES     # a hole; the first bytes of a size may be zeros
            stop = self._reach(pos, min(pos + STEP_BYTES, self._len))
            stop = min(stop if stop == self._len else stop - HEAD_BYTES, end)   # the header of the last one is loaded
            if pos >= stop:
                break
            with nogil:
                found = self._find_in(pos, stop, with_offset)
            if self._away:
                self._away = False
                self._reach_record(found)
                stop = found
            elif found < stop:
                return found
            pos = stop
            self._forget_pages(pos)
            PyErr_CheckSignals()
        return end

    cdef size_t _find_in(self, size_t pos, size_t stop, bint with_offset) noexcept nogil:
        """Return the first position in [pos, stop) of a record that passes all checks and its CRC, or of the blank one.

        Returns stop if there is none. Returns with _away set if bytes of a candidate must be fetched first.

        with_offset  the stored physical offset must equal the position; otherwise it only must not be less than pos
        """
        cdef rc_guard guard
        cdef Record r
        cdef int64_t offset
        cdef int32_t magic
        cdef size_t room
        cdef int rc, crc = CRC_BODY if self._crc == CRC_NONE else self._crc
        self.enter(&guard)
        while pos < stop:
            room = max(self._len - pos, <size_t>RC_BLANK_BYTES) - RC_BLANK_BYTES
            pos += rc_find_either(          # the magic numbers of both versions begin with the same byte
                self._buf + pos + RC_MSG_MAGIC_AT, min(room, stop - pos),
                <uint8_t>(RC_MAGIC_V1 >> 24), <uint8_t>(RC_MAGIC_BLANK >> 24),
            )
            if pos >= stop or self._len - pos <= RC_BLANK_BYTES:
                if pos < stop and self._len - pos == RC_BLANK_BYTES and with_offset and self._is_blank(pos):
                    break
                pos = stop
                break
            magic = rc_get_i32(self._buf + pos + RC_MSG_MAGIC_AT)
            if magic == RC_MAGIC_V1 or magic == RC_MAGIC_V2:
                rc = self._parse_there(pos, &r)
                if rc == RC_OK or rc == RC_MORE:
                    offset = self.base + <int64_t>pos if with_offset else r.phy_offset
                    if r.phy_offset == offset and offset >= <int64_t>pos and not self._is_crowded(pos, &r):
                        if rc == RC_MORE:
                            self._away = True
                            break
                        if verify_record(&r, crc, crc32, offset) == RC_OK:
                            break
                        self._note_crowd(pos, &r)
            elif magic == RC_MAGIC_BLANK and with_offset and self._is_blank(pos):
                break
            pos += 1
        self.leave(&guard)
        return pos

    cdef bint _is_crowded(self, size_t pos, const Record* r) noexcept nogil:
        """Whether r overlaps too many failed candidates, so that its body is not read.

        Malicious bytes may hold a header every 88 bytes, each with the rest of the file as its body.
        """
        return r.body_len > CROWD_BODY and pos < self._crowd_end and self._crowd >= CROWD_MAX

    cdef void _note_crowd(self, size_t pos, const Record* r) noexcept nogil:
        if r.body_len > CROWD_BODY:
            if pos >= self._crowd_end:
                self._crowd = 0
            self._crowd += 1
            self._crowd_end = max(self._crowd_end, pos + <size_t>r.size)

    cdef int64_t _learn_base(self) except? -1:
        """Return the physical offset of byte 0 according to the first record; 0 if there is no record."""
        cdef size_t stop = min(<size_t>LEARN_BYTES, self._len), at
        at = self._find(0, stop, False)
        if at == stop:
            return 0
        return self._offset_at(at) - <int64_t>at

    cdef int64_t _offset_at(self, size_t pos) noexcept:
        cdef rc_guard guard
        cdef Record r
        r.phy_offset = 0
        self.enter(&guard)
        parse_record(self._buf + pos, self._len - pos, &r)
        self.leave(&guard)
        return r.phy_offset

    cdef size_t _data_from(self, size_t pos) except? 0:
        """Return the first position from pos on with a byte that is not zero, or _len; holes are not read."""
        cdef rc_guard guard
        cdef size_t hole, n
        while pos < self._len:
            hole = self._reach(pos, self._len)
            if self._map is not None:
                pos = self._map.next_data(pos)
                hole = min(<size_t>self._map.next_hole(pos), self._len)
                if pos >= self._len:
                    break
            while pos < hole:
                with nogil:
                    self.enter(&guard)
                    n = rc_zero_prefix(self._buf + pos, min(hole - pos, <size_t>STEP_BYTES))
                    self.leave(&guard)
                if n < min(hole - pos, <size_t>STEP_BYTES):
                    return pos + n
                pos += n
                self._forget_pages(pos)
                PyErr_CheckSignals()
        return self._len

    cdef size_t _trimmed(self, size_t pos) except? 0:
        """Return the number of bytes from pos on without the zeros at the end of the file; at least 1."""
        cdef rc_guard guard
        cdef size_t stop = self._len, n = 0, at
        if self._map is not None:
            # leave out the last hole
            at = self._map.next_data(pos)
            while at < self._len:
                stop = min(<size_t>self._map.next_hole(at), self._len)
                at = self._map.next_data(stop)
        while stop > pos and n == 0:
            at = max(pos, stop - min(stop, <size_t>TRIM_BYTES))
            if self._fetch is not None:
                self._fetch(at, stop)
            with nogil:
                self.enter(&guard)
                n = rc_trim_zeros(self._buf + at, stop - at)
                self.leave(&guard)
            stop = at
        return max(stop + n - pos, <size_t>1)

    cdef void _forget_pages(self, size_t pos) noexcept:
        """Release the part of the map far before pos, so that a big file does not fill the resident memory."""
        self._released = min(self._released, pos)       # a search may have read further ahead
        if self._map is not None and pos > self._released + 2 * KEEP_MAPPED:
            rc_map_release(self._map.base, self._released, pos - KEEP_MAPPED)
            self._released = pos - KEEP_MAPPED
