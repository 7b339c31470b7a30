# cython: language_level=3
"""From record to record through one file or buffer, damage included.

A Walker finds records in blocks, without the GIL. A block holds positions only; whoever takes it copies what it needs
out of the map, between enter() and leave(), and asks cut_in_block() afterwards whether the file was still there.
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
    static inline void rc_touch(const uint8_t *p) { (void)*(const volatile uint8_t *)p; }
    """
    void touch "rc_touch"(const uint8_t* p) noexcept nogil

cdef enum:
    TORN_LOOKS = 5              # how often a bad tail of a live file is looked at again,
    FOLLOW_LOOKS = 50           # ... where nobody else comes back to it,
    TORN_PAUSE_MS = 2           # and the pause before each look: a broker needs microseconds to finish a record
    AHEAD = 6                   # records between the one that is looked at and the one whose bytes are asked for
    FETCH_WHOLE = 1024          # the processor follows longer bodies by itself
    FAULT_BYTES = 64 << 10      # that a page fault maps at once, as far as the page cache has them
    FETCH_BYTES = 6 << 10       # how far ahead of a record of another size all lines are asked for

cdef size_t page_bytes = <size_t>sysconf(_SC_PAGESIZE)


cdef inline void fetch_guessed(const uint8_t* p, int32_t size) noexcept nogil:
    """Ask for the cache lines around the start of a record that may begin at p.

    They are the end of the one before it, its header, and what of `size` lies behind. Records of one producer are much
    alike, so the guess from the last one's size is mostly right, and costs little where it is not.
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
    """Ask for every line up to FETCH_BYTES behind p, from `asked` on; returns how far. For records of many sizes."""
    cdef const uint8_t* end = p + FETCH_BYTES
    if asked < p:
        asked = p
    while asked < end:
        rc_prefetch(asked)
        asked += LINE_BYTES
    return asked


cdef class Walker(LogBytes):
    """Walk over one commit log file or buffer: source, base, limit, crc and fetch are those of LogBytes.

    filter  which records are taken; crc is checked of these
    start   records that begin before this physical offset are walked over in silence; None: none
    stop    records from this physical offset on are not ours; None: no bound
    search  the first record from start on is searched for, nothing before it is read. Walkers whose start is another's
            stop have each record once and each damaged range once, wherever the file is cut
    exact   nothing is searched for: the log goes on at start, as another walker's position said; what stands there is
            ours, damage too
    exact_stop  physical offset where a record ends, at stop or behind it: what follows is not looked at; None: unknown
    errors  "raise": damage is CorruptRecordError; else it goes to .damage and the walk goes on at the next record
    last    no file with data follows
    follow  wait for a record that is not whole yet: next_block() returns 0 and may be called again
    """

    def __cinit__(
        self, source, base, Filter filter not None, *, size_t limit=0, start=None, stop=None, int crc=CRC_BODY,
        bint search=False, bint exact=False, exact_stop=None, str errors="raise", bint last=True,
        bint follow=False, str file=None, fetch=None,
    ):
        self._filter = filter
        self._raise = errors == "raise"
        self._last = last
        self._follow = follow
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
        """Bytes between start and the position."""
        return self._pos - self._from if self._pos > self._from else 0

    @property
    def done(self):
        """True when nothing more can come."""
        return self._done

    cdef int next_block(self) except -1:
        """Find the next records that are wanted: 1 if any are in _block, 0 if there are no more here (or not yet)."""
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
                self._away = False      # what it takes is fetched next
            elif rc == RC_MORE:
                self._judge()
            elif rc == RC_TRUNCATED and self._pos >= self._to and self._count == 0:
                self._done = self._is_agreed()
            elif rc != RC_OK and self._count == 0 and not self._go_on(rc):
                return 0
            if self._count > 0:
                return 1
        return 0

    cdef int _seek(self) except -1:
        """Begin at the first record, or the blank one, that stands behind `start` for sure."""
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
        """Whether the end is where a search finds a record: what stands before that one is ours, damage or not."""
        cdef size_t next
        if not self._search or self._pos >= min(self._len, self._exact_to):
            return True
        next = self._find_next(self._pos)
        self._to = min(next if next < self._len else self._limit, self._exact_to)
        return next == self._pos

    cdef void _make_ready(self) noexcept nogil:
        """Take the page faults of the next block before it is walked over, if all of its bytes will be read.

        What is asked for ahead comes only where a page is mapped: with a fault in its way each record waits for memory.
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
        """Walk until the block is full, STEP_BYTES are walked over, or something needs a decision.

        Returns RC_OK, RC_MORE (judge the topic of _block[_count]; or, if _away, fetch bytes at _pos), RC_TRUNCATED with
        _pos at _to (done), or what stands at _pos.
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
            if pos < self._from:
                pos += <size_t>r.size
                continue
            verdict = KEEP if self._filter._all else self._filter.verdict(r)
            if verdict == KEEP:
                rc = verify_record(r, self._crc, crc32, self.base + <int64_t>pos)
                if rc != RC_OK:
                    break
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

    cdef int _judge(self) except -1:
        cdef rc_guard guard
        self.enter(&guard)
        try:
            return self._filter.judge(&self._block[self._count])
        finally:
            self.leave(&guard)

    cdef bint _go_on(self, int rc) except -1:
        """Decide about what stands at _pos and is no record: False if the walk ends here, for now or for good."""
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
                return self._step_over(self._pos, self._limit, RC_TRUNCATED)    # its end was not copied
            return self._finish()
        if rc == RC_END or (rc == RC_TRUNCATED and self._data_from(self._pos) == self._len):
            if self._is_shorter():
                return self._on_cut(self._pos)
            if self._whole > 0:
                return self._end_of_cut()
            if not self._last:
                return self._damaged(RC_ZEROED)
            if self._follow and self._zeros_at == self._pos:
                return False                # looked through already: nothing followed
            if self._data_from(self._pos) == self._len:
                self.ended = True
                self._done = not self._follow
                self._zeros_at = self._pos
                return False
            self._reach_record(self._pos)
            if self._look(self._pos) != RC_END:
                return True                 # written a moment ago
            return self._damaged(RC_ZEROED)
        return self._damaged(rc)

    cdef bint _finish(self) noexcept:
        """The file is read to its end."""
        self._pos = self._limit
        self._done = True
        return False

    cdef bint _damaged(self, int rc) except -1:
        """Step over damage at _pos, or raise; False if nothing follows it."""
        cdef size_t start = self._pos, next
        cdef size_t size = <size_t>self._block[0].size
        cdef bint sized = rc == RC_BAD_BODY_CRC or rc == RC_BAD_PROPERTY_CRC or rc == RC_BAD_PHYSICAL_OFFSET
        cdef int looks
        if sized and self._is_boundary(start + size):
            next = start + size
            # Its header may be there before its body: nothing follows what is being written.
            looks = FOLLOW_LOOKS if self._follow else TORN_LOOKS
            if self._last and self._look(next) == RC_END and self._look_again(looks):
                return True
        else:
            next = self._find_next(start + 1)
        if self.is_cut() or self._is_shorter():
            return self._on_cut(start)
        if next == self._len and self._whole > 0:
            return self._end_of_cut()
        if next == self._len and self._last:
            # Nothing valid follows. A live broker may be in the middle of this record: look again.
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
        """Note that [start, next) is lost and go on behind it, or raise; False if nothing follows."""
        if start >= self._from:
            reason = reason_of(rc)
            if self._raise:
                there = f"offset {self.base + <int64_t>next}" if not self._done else "the next file, if there is one"
                advice = f"errors='skip' or 'report' goes on at {there}"
                raise CorruptRecordError(self._file, self.base + <int64_t>start, reason, advice)
            self.damage.append((self.base + <int64_t>start, self.base + <int64_t>next, reason))
        self._pos = next
        return not self._done

    cdef int lost(self, const Record* r, str reason) except -1:
        """A valid record's content can't be had: raise, or note it."""
        cdef int64_t start = self.base + (r.at - self._buf)
        if self.is_cut():
            return 0                        # no wonder; cut_in_block() comes next
        if self._raise:
            advice = "decompress=False and unwrap=False hand out the stored body"
            raise CorruptRecordError(self._file, start, reason, advice)
        self.damage.append((start, start + rc_get_i32(r.at + RC_MSG_TOTAL_SIZE_AT), reason))
        return 0

    cdef bint is_cut(self) noexcept nogil:
        """Whether the file was cut, or its disk failed, while we read up to _pos: what was read may be zeros.

        Behind the new end of a cut file the rest of its page reads as zeros; only the page behind raises SIGBUS. So
        that one is touched (it comes next anyway); where there is none the file is asked for its size.
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
        """1 if the file was cut while the block was copied, 0 if all is well.

        What was copied from record `first` of the block on is void then: the walk goes back to it. Raises as asked.
        """
        if not self.is_cut():
            return 0
        self._on_cut(<size_t>(self._block[first].at - self._buf))
        return 1

    cdef bint _on_cut(self, size_t start) except -1:
        """The file became shorter, or its disk failed, while we read it: go back to start and read what is left."""
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
        """What a cut, or a broken disk, has left is read: the rest is lost."""
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
        """Whether a bad tail has changed for the better within some ms; done once, or by who follows each time."""
        cdef int _
        if self._map is None or self._torn_twice:
            return False
        self._torn_twice = not self._follow
        for _ in range(looks):
            time.sleep(TORN_PAUSE_MS / 1000.0)
            if self._look(self._pos) == RC_OK:
                return True
        return False
