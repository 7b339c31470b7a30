# cython: language_level=3
"""Iterate over the records of one file or buffer, and handle damage.

A Walker finds records in blocks, without the GIL. A block holds positions only. The caller copies the data it needs
from the map between enter() and leave(). It then calls cut_in_block() to learn whether the file was cut meanwhile.
"""
import time

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t
from posix.unistd cimport _SC_PAGESIZE, sysconf

from rocketc._status cimport reason_of
from rocketc.c.bytes cimport rc_get_i32
from rocketc.c.layout cimport RC_MSG_TOTAL_SIZE_AT
from rocketc.c.prefetch cimport LINE_BYTES, rc_prefetch
from rocketc.c.status cimport (
    RC_BAD_BLANK, RC_BAD_BODY_CRC, RC_BAD_PHYSICAL_OFFSET, RC_BAD_PROPERTY_CRC, RC_BLANK, RC_END, RC_FILE_CUT, RC_MORE,
    RC_OK, RC_TRUNCATED, RC_ZEROED,
)
from rocketc.c.vm cimport rc_guard
from rocketc.format._record cimport CRC_BODY, CRC_NONE, Record, crc32, parse_record, verify_record
from rocketc.format._text_table cimport KEEP, SKIP
from rocketc.read._filter cimport Filter
from rocketc.read._log_bytes cimport LogBytes, STEP_BYTES

from rocketc.errors import CorruptRecordError

cdef extern from *:
    """
    static inline void rc_touch_byte(const uint8_t *p) { (void)*(const volatile uint8_t *)p; }
    """
    void touch "rc_touch_byte"(const uint8_t* p) noexcept nogil

cdef enum:
    TORN_LOOKS = 5              # number of times a bad tail of a live file is read again,
    FOLLOW_LOOKS = 50           # ... if the walker does not follow the log, so no later call reads it again
    TORN_PAUSE_MS = 2           # ms between two reads: a broker needs microseconds to finish a record
    AHEAD = 6                   # records between the current one and the one that is prefetched
    FETCH_WHOLE = 1024          # longer bodies are left to the hardware prefetcher
    FAULT_BYTES = 64 << 10      # bytes that one page fault maps, if they are in the page cache
    FETCH_BYTES = 6 << 10       # prefetch all lines this far ahead when record sizes vary

cdef size_t page_bytes = <size_t>sysconf(_SC_PAGESIZE)


cdef inline void fetch_guessed(const uint8_t* p, int32_t size) noexcept nogil:
    """Prefetch the cache lines around the start of a record that may begin at p.

    These are the end of the record before it, its header, and the rest of `size`. The records of one producer have
    similar sizes, so a guess from the size of the last record is mostly right. A wrong guess costs little.
    """
    cdef int32_t at = 2 * LINE_BYTES
    rc_prefetch(p - 2 * LINE_BYTES)
    rc_prefetch(p - LINE_BYTES)
    rc_prefetch(p)
    rc_prefetch(p + LINE_BYTES)
    while at < size:
        rc_prefetch(p + at)
        at += LINE_BYTES


cdef inline const uint8_t* fetch_all(const uint8_t* asked, const uint8_t* p) noexcept nogil:
    """Prefetch all lines from `asked` to FETCH_BYTES after p; return the end. For records of varying sizes."""
    cdef const uint8_t* end = p + FETCH_BYTES
    if asked < p:
        asked = p
    while asked < end:
        rc_prefetch(asked)
        asked += LINE_BYTES
    return asked


cdef class Walker(LogBytes):
    """Iterate over the records of one commit log file or buffer; source, base, limit, crc and fetch as in LogBytes.

    filter  selects the records; only selected records are checked with crc
    start   records that begin before this physical offset are skipped without a report; None: skip none. After
            damage, the walk finds the same records as a walk without start. For this it checks the record that ends at
            or after start; and all records before start, if there is damage before start
    around  read the record, or report the damage, that start is in, too: start becomes its first byte; not with search
    stop    records from this physical offset on are not read; None: no bound
    search  search for the first record from start on, and read nothing before it. Walkers of adjacent ranges return
            each record and each damaged range exactly once, at any position of the bounds
    exact   do not search: the log continues at start, a position that another walker returned. Damage at start is
            reported by this walker
    exact_stop  physical offset where a record ends, at or after stop: bytes from there on are not read; None: unknown
    errors  "raise": raise CorruptRecordError at damage; otherwise add damage to .damage and continue at the next record
    last    whether no file with data follows
    follow  wait for a record that is not complete yet: next_block() returns 0 and may be called again
    """

    def __cinit__(
        self, source, base, Filter filter not None, *, size_t limit=0, start=None, stop=None, int crc=CRC_BODY,
        bint search=False, bint exact=False, exact_stop=None, str errors="raise", bint last=True,
        bint follow=False, bint around=False, str file=None, fetch=None,
    ):
        self._filter = filter
        self._raise = errors == "raise"
        self._last = last
        self._follow = follow
        self._around = around
        self._zeros_at = <size_t>-1
        self._file = file
        self.damage = []
        self._from = 0 if start is None else min(max(start - self.base, 0), self._limit)
        self._to = self._limit if stop is None else min(max(stop - self.base, 0), self._limit)
        self._exact_to = <size_t>-1 if exact_stop is None else min(max(exact_stop - self.base, 0), self._limit)
        self._search = search and self._to < self._exact_to
        self._begun = not search or exact or self._from == 0
        if exact:
            self._pos = min(self._from, self._len)
        self._done = search and (self._to == 0 or self._pos >= self._to)

    @property
    def position(self):
        """Physical offset of the next record."""
        return self.base + <int64_t>self._pos

    @property
    def file(self):
        return self._file

    @property
    def walked(self):
        """Number of bytes between start and the position."""
        return self._pos - self._from if self._pos > self._from else 0

    @property
    def done(self):
        """Whether no more records can come."""
        return self._done

    cdef int next_block(self) except -1:
        """Find the next selected records: return 1 if _block has some, 0 if there are no more (or not yet)."""
        cdef int rc
        if not self._begun:
            self._seek()
        while not self._done:
            self._reach_record(self._pos)
            with nogil:
                self._make_ready()
                rc = self._fill()
            if self.is_cut():
                if self._on_cut(<size_t>(self._block[0].at - self._buf) if self._count > 0 else self._pos):
                    continue
                return 0
            self._forget_pages(self._pos)
            PyErr_CheckSignals()
            if rc == RC_MORE and self._away:
                self._away = False      # the next _reach_record() fetches the bytes
            elif rc == RC_MORE:
                self._judge()
            elif rc == RC_TRUNCATED and self._pos >= self._to and self._count == 0:
                self._done = self._is_agreed()
            elif self._pos < self._from and not self._careful and rc != RC_OK and rc != RC_END and rc != RC_BLANK:
                self._careful = True    # damage before start: where the walk continues depends on the CRCs before it
                self._pos = 0
            elif rc != RC_OK and self._count == 0 and not self._go_on(rc):
                return 0
            if self._count > 0:
                return 1
        return 0

    cdef int _seek(self) except -1:
        """Start at the first valid record, or blank record, at or after `start`."""
        cdef size_t next = self._find_next(self._from)
        while self.is_cut() or self._is_shorter():
            if not self._on_cut(self._from):
                break
            next = self._find_next(self._from)
        self._begun = True
        if not self._done:
            self._pos = self._from = next
            self._done = next >= min(self._to, self._len)

    cdef bint _is_agreed(self) except -1:
        """Whether the walk ends where a search from stop begins; damage before that record belongs to this walker."""
        cdef size_t next
        if not self._search or self._pos >= min(self._len, self._exact_to):
            return True
        next = self._find_next(self._pos)
        self._to = min(next if next < self._len else self._limit, self._exact_to)
        return next == self._pos

    cdef void _make_ready(self) noexcept nogil:
        """Trigger the page faults of the next block in advance, if all of its bytes will be read.

        A prefetch works on mapped pages only. Without this call each record waits for memory after a page fault.
        """
        cdef rc_guard guard
        cdef size_t to = min(self._pos + 2 * BLOCK_BYTES, self._len)
        if self._map is None or self._crc == CRC_NONE or not self._filter._all or self._pos < self._from:
            return
        self._ready = max(self._ready, self._pos)
        self.enter(&guard)
        while self._ready < to:
            touch(self._buf + self._ready)
            self._ready += FAULT_BYTES
        self.leave(&guard)

    cdef int _fill(self) noexcept nogil:
        """Parse records until the block is full, STEP_BYTES are read, or the caller must decide.

        Returns RC_OK; RC_MORE (check the topic of _block[_count], or, if _away, fetch the bytes at _pos); RC_TRUNCATED
        with _pos at _to (done); or the status of the bytes at _pos.
        """
        cdef rc_guard guard
        cdef Record* r
        cdef int rc = RC_OK, count = 0
        cdef size_t pos = self._pos, start = pos, kept = 0
        cdef size_t to = self._to if self._to < self._len else self._len
        cdef const uint8_t* p
        cdef const uint8_t* asked = NULL
        cdef int32_t size = 0
        cdef int verdict
        cdef bint bodies = self._crc != CRC_NONE
        self.enter(&guard)
        while pos < to:
            r = &self._block[count]
            p = self._buf + pos
            rc = parse_record(p, self._there - pos, r)
            if rc != RC_OK:
                if self._there < self._len:
                    rc = self._parse_there(pos, r)
                    self._away = rc == RC_MORE
                break
            if r.size == size:
                fetch_guessed(p + <ptrdiff_t>AHEAD * size, size if bodies and size <= FETCH_WHOLE else 0)
            elif r.size <= FETCH_BYTES // 3:
                asked = fetch_all(asked, p)
            size = r.size
            if pos < self._from and not self._careful and <size_t>r.size < self._from - pos:
                rc = verify_record(r, CRC_NONE, crc32, self.base + <int64_t>pos)
                if rc != RC_OK:
                    break
                pos += <size_t>r.size
                continue
            verdict = KEEP if self._filter._all else self._filter.verdict(r)
            if verdict == KEEP:
                rc = verify_record(r, self._crc, crc32, self.base + <int64_t>pos)
                if rc != RC_OK:
                    break
                self._include(pos, pos + <size_t>r.size)
                if pos >= self._from:
                    count += 1
                    kept += <size_t>r.size
            elif verdict == SKIP:
                rc = verify_record(r, CRC_NONE, crc32, self.base + <int64_t>pos)
                if rc != RC_OK:
                    break
            else:
                rc = RC_MORE
                break
            pos += <size_t>r.size
            if count == BLOCK_RECORDS or kept >= BLOCK_BYTES or pos - start >= STEP_BYTES:
                break
        else:
            rc = RC_TRUNCATED if pos >= self._to else RC_END
        self.leave(&guard)
        self._count = count
        self._pos = pos
        return rc

    cdef void _include(self, size_t start, size_t next) noexcept nogil:
        """With `around`: begin at `start` if the first byte to read is in [start, next)."""
        if self._around and start < self._from < next:
            self._from = start

    cdef int _judge(self) except -1:
        cdef rc_guard guard
        self.enter(&guard)
        try:
            return self._filter.judge(&self._block[self._count])
        finally:
            self.leave(&guard)

    cdef bint _go_on(self, int rc) except -1:
        """Handle bytes at _pos that are not a record; return False if the walk ends here, finally or for now."""
        cdef size_t rest = self._len - self._pos
        if rc == RC_BLANK:
            if <size_t>self._block[0].size == self._limit - self._pos:
                self.blanks += self._pos >= self._from
                return self._finish()
            return self._damaged(RC_BAD_BLANK)
        if rest == 0:
            if self._whole > 0:
                return self._end_of_cut()
            if not self._last and self._len < self._limit:
                self._done = True
                return self._step_over(self._pos, self._limit, RC_TRUNCATED)    # the copy of this file is incomplete
            return self._finish()
        if rc == RC_END or (rc == RC_TRUNCATED and self._data_from(self._pos) == self._len):
            if self._is_shorter():
                return self._on_cut(self._pos)
            if self._whole > 0:
                return self._end_of_cut()
            if not self._last:
                return self._damaged(RC_ZEROED)
            if self._follow and self._zeros_at == self._pos:
                return False                # these zeros were checked already
            if self._data_from(self._pos) == self._len:
                self.ended = True
                self._done = not self._follow
                self._zeros_at = self._pos
                return False
            self._reach_record(self._pos)
            if self._look(self._pos) != RC_END:
                return True                 # a broker has just written it
            return self._damaged(RC_ZEROED)
        return self._damaged(rc)

    cdef bint _finish(self) noexcept:
        """Mark the file as read to its end."""
        self._pos = self._limit
        self._done = True
        return False

    cdef bint _damaged(self, int rc) except -1:
        """Skip the damage at _pos, or raise; return False if no record follows."""
        cdef size_t start = self._pos, next
        cdef size_t size = <size_t>self._block[0].size
        cdef bint sized = rc == RC_BAD_BODY_CRC or rc == RC_BAD_PROPERTY_CRC or rc == RC_BAD_PHYSICAL_OFFSET
        cdef int looks
        if sized and self._is_boundary(start + size):
            next = start + size
            # The header may be on the disk before the body: do not report a record that is being written.
            looks = FOLLOW_LOOKS if self._follow else TORN_LOOKS
            if self._last and self._look(next) == RC_END and self._look_again(looks):
                return True
        else:
            next = self._find_next(start + 1)
        if self.is_cut() or self._is_shorter():
            return self._on_cut(start)
        if self._map is not None and next < self._len and is_readable(self, start):
            return True                     # a writer has finished the record since it was read
        if next == self._len and self._whole > 0:
            return self._end_of_cut()
        if next == self._len and self._last:
            # No valid record follows. A live broker may be writing this record: read it again.
            if self._look_again(1 if self._follow else TORN_LOOKS):
                return True
            if self._follow:
                return False
            if not sized or start + size != self._len:
                next = start + self._trimmed(start)
                self.ended = True
                self._done = True
        elif next == self._len:
            next = self._limit
            self._done = True
        return self._step_over(start, next, rc)

    cdef bint _step_over(self, size_t start, size_t next, int rc) except -1:
        """Record [start, next) as lost and continue at next, or raise; return False if no record follows."""
        self._include(start, next)
        if start >= self._from:
            reason = reason_of(rc)
            if self._raise:
                there = f"offset {self.base + <int64_t>next}" if not self._done else "the next file, if there is one"
                advice = f"errors='skip' or 'report' continues at {there}"
                raise CorruptRecordError(self._file, self.base + <int64_t>start, reason, advice)
            self.damage.append((self.base + <int64_t>start, self.base + <int64_t>next, reason))
        self._pos = next
        return not self._done

    cdef int lost(self, const Record* r, str reason) except -1:
        """Report a valid record whose content cannot be decoded: raise, or add it to .damage."""
        cdef int64_t start = self.base + (r.at - self._buf)
        if self.is_cut():
            return 0                        # expected; the caller calls cut_in_block() next
        if self._raise:
            advice = "decompress=False and unwrap=False return the stored body"
            raise CorruptRecordError(self._file, start, reason, advice)
        self.damage.append((start, start + rc_get_i32(r.at + RC_MSG_TOTAL_SIZE_AT), reason))
        return 0

    cdef bint is_cut(self) noexcept nogil:
        """Whether the file was cut, or its disk failed, while it was read up to _pos: the bytes read may be zeros.

        After the new end of a cut file, the rest of the page reads as zeros. Only the next page raises SIGBUS. So this
        method touches the next page, which is read next anyway. If there is no next page, it checks the file's size.
        """
        cdef rc_guard guard
        cdef size_t next = (self._pos | (page_bytes - 1)) + 1
        if self._map is None:
            return False
        if next < self._len and self._map.cut == 0:
            self.enter(&guard)
            touch(self._buf + next)
            self.leave(&guard)
        elif self._map.cut == 0 and self._is_shorter():
            self._map.cut = 1
        return self._map.cut != 0

    cdef bint _is_shorter(self) noexcept nogil:
        return self._map is not None and self._map.is_shorter(self._len)

    cdef int cut_in_block(self, int first) except -1:
        """Return 1 if the file was cut while the block was copied, otherwise 0.

        After a cut, copies of the records from index `first` on are invalid: the walker goes back to record `first`.
        Raises if errors is "raise".
        """
        if not self.is_cut():
            return 0
        self._on_cut(<size_t>(self._block[first].at - self._buf))
        return 1

    cdef bint _on_cut(self, size_t start) except -1:
        """Go back to start after the file was cut or its disk failed, and read the bytes that are left."""
        cdef size_t now = self._map.size_now()
        self._count = 0
        self._pos = start
        self.damage = [entry for entry in self.damage if entry[0] < self.base + <int64_t>start]
        if self._whole == 0:
            self._whole = self._len
        if not start < now < self._len:
            return self._end_of_cut()
        self._len = self._there = now
        self._map.cut = 0
        self._done = False
        return True

    cdef bint _end_of_cut(self) except -1:
        """Report the rest of the file as lost; all bytes that were left by a cut or a disk error have been read."""
        cdef int64_t start = self.base + <int64_t>max(self._pos, self._from)
        self._done = True
        now = self._map.size_now()
        if self._raise:
            what = "the file could not be read from its disk"
            if now < self._whole:
                what = f"the file was cut from {self._whole} to {now} bytes while it was read"
            raise CorruptRecordError(self._file, start, reason_of(RC_FILE_CUT), what)
        self.damage.append((start, self.base + <int64_t>self._whole, reason_of(RC_FILE_CUT)))
        self._pos = self._limit
        return False

    cdef bint _look_again(self, int looks) except -1:
        """Whether a bad tail becomes valid within some ms; done once, or at each call if the walker follows the log."""
        cdef int _
        if self._map is None or self._torn_twice:
            return False
        self._torn_twice = not self._follow
        for _ in range(looks):
            time.sleep(TORN_PAUSE_MS / 1000.0)
            if is_readable(self, self._pos):
                return True
        return False


cdef bint is_readable(Walker w, size_t pos) noexcept nogil:
    """Whether a valid record begins at pos, or the blank record at the end of the file."""
    cdef int rc = w._look(pos)
    return rc == RC_OK or (rc == RC_BLANK and w._is_blank(pos))
