# cython: language_level=3
"""From record to record through one file or buffer, damage included.

A Walker finds records in blocks, without the GIL. A block holds positions only; whoever takes it copies what it needs
out of the map, between enter() and leave(), and asks cut_in_block() afterwards whether the file was still there.
"""
import time

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t
from posix.unistd cimport _SC_PAGESIZE, sysconf

from rocketc._bytes cimport rc_find_either, rc_get_i32, rc_trim_zeros, rc_zero_prefix
from rocketc._filter cimport KEEP, SKIP, Filter
from rocketc._guard cimport enter as guard_enter
from rocketc._guard cimport install
from rocketc._guard cimport leave as guard_leave
from rocketc._layout cimport (
    RC_BLANK_BYTES,
    RC_MAGIC_BLANK,
    RC_MAGIC_V1,
    RC_MAGIC_V2,
    RC_MSG_MAGIC_AT,
    RC_MSG_TOTAL_SIZE_AT,
)
from rocketc._mapped_file cimport MappedFile
from rocketc._record cimport CRC_BODY, CRC_NONE, Record, crc32, parse_record, verify_record
from rocketc._status cimport (
    RC_BAD_BLANK,
    RC_BAD_BODY_CRC,
    RC_BAD_LENGTH,
    RC_BAD_PHYSICAL_OFFSET,
    RC_BAD_PROPERTIES_LENGTH,
    RC_BAD_PROPERTY_CRC,
    RC_BAD_TOPIC_LENGTH,
    RC_BLANK,
    RC_END,
    RC_FILE_CUT,
    RC_MORE,
    RC_OK,
    RC_TRUNCATED,
    RC_ZEROED,
    reason_of,
)
from rocketc._vm cimport rc_guard, rc_map_let_go

from rocketc.errors import CorruptRecordError

cdef extern from *:
    """
    static inline void rc_touch(const uint8_t *p) { (void)*(const volatile uint8_t *)p; }
    """
    void prefetch "__builtin_prefetch"(const void* p) noexcept nogil
    void touch "rc_touch"(const uint8_t* p) noexcept nogil

cdef enum:
    KEEP_MAPPED = 64 << 20      # bytes of a map that stay resident behind the walker
    HEAD_BYTES = 256            # of a record up to its body, and more
    TRIM_BYTES = 4 << 20        # how much of a file's end is looked at in one go
    TORN_LOOKS = 5              # how often a bad tail of a live file is looked at again,
    FOLLOW_LOOKS = 50           # ... where nobody else comes back to it,
    TORN_PAUSE_MS = 2           # and the pause before each look: a broker needs microseconds to finish a record
    AHEAD = 6                   # records between the one that is looked at and the one whose bytes are asked for
    FETCH_WHOLE = 1024          # the processor follows longer bodies by itself
    FETCH_BYTES = 6 << 10       # how far ahead of a record of another size all lines are asked for
    CROWD_BODY = 4 << 10        # shorter bodies are always read to check a record that is searched for
    CROWD_MAX = 64              # longer ones that lie over one another, so often at most
    LEARN_BYTES = 64 << 20      # how far the first record is looked for where the file name tells no offset

cdef size_t page_bytes = <size_t>sysconf(_SC_PAGESIZE)


cdef inline void fetch_guessed(const uint8_t* p, int32_t size) noexcept nogil:
    """Ask for the cache lines around the start of a record that may begin at p.

    They are the end of the one before it, its header, and what of `size` lies behind. Records of one producer are much
    alike, so the guess from the last one's size is mostly right, and costs little where it is not.
    """
    cdef int32_t at
    prefetch(p - 128)
    prefetch(p - 64)
    prefetch(p)
    prefetch(p + 64)
    for at in range(128, size, 64):
        prefetch(p + at)


cdef inline const uint8_t* fetch_all(const uint8_t* asked, const uint8_t* p) noexcept nogil:
    """Ask for every line up to FETCH_BYTES behind p, from `asked` on; returns how far. For records of many sizes."""
    cdef const uint8_t* end = p + FETCH_BYTES
    if asked < p:
        asked = p
    while asked < end:
        prefetch(asked)
        asked += 64
    return asked


cdef class Walker:
    """Walk over one commit log file or buffer.

    source  MappedFile, or a buffer of bytes
    base    physical offset of its first byte; None: learn it from the first record
    limit   bytes the file has by right (the way to the next file's name); 0: as many as it has
    start   records that begin before this physical offset are walked over in silence; None: none
    stop    records from this physical offset on are not ours; None: no bound
    search  the first record from start on is searched for, nothing before it is read. Walkers whose start is another's
            stop have each record once and each damaged range once, wherever the file is cut
    exact   nothing is searched for: the log goes on at start, as another walker's position said; what stands there is
            ours, damage too
    exact_stop  a record ends at stop: what follows is not looked at
    crc     a Crc: what is checked of the records that pass the filter
    errors  "raise": damage is CorruptRecordError; else it goes to .damage and the walk goes on at the next record
    last    no file with data follows
    follow  wait for a record that is not whole yet: next_block() returns 0 and may be called again
    fetch   for a buffer whose bytes come when they are asked for: fetch(pos, stop) has the bytes [pos, stop) there, and
            returns up to where they are, stop at least; those before pos may go. What is not there can be read, too,
            and is zero
    """

    def __cinit__(
        self, source, base, Filter filter not None, *, size_t limit=0, start=None, stop=None, int crc=CRC_BODY,
        bint search=False, bint exact=False, bint exact_stop=False, str errors="raise", bint last=True,
        bint follow=False, str file=None, fetch=None,
    ):
        if isinstance(source, MappedFile):
            self._map = source
            self._map.hold()
            self._buf = self._map._base
            self._len = self._map._size
            install()
        else:
            self._view = source
            self._len = <size_t>self._view.shape[0]
            self._buf = &self._view[0] if self._len > 0 else NULL
        self._limit = max(limit, self._len)
        self._fetch = fetch
        self._there = self._len if fetch is None else 0
        self._filter = filter
        self._crc = crc
        self._raise = errors == "raise"
        self._last = last
        self._follow = follow
        self._zeros_at = <size_t>-1
        self._file = file
        self.damage = []
        self.base = self._learn_base() if base is None else base
        self._from = 0 if start is None else min(max(start - self.base, 0), self._limit)
        self._to = self._limit if stop is None else min(max(stop - self.base, 0), self._limit)
        self._search = search and not exact_stop
        self._begun = not search or exact or self._from == 0
        if exact:
            self._pos = min(self._from, self._len)
        self._done = search and (self._to == 0 or self._pos >= self._to)

    def __dealloc__(self):
        if self._map is not None:
            self._map.release()

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

    cdef void enter(self, rc_guard* guard) noexcept nogil:
        if self._map is not None:
            guard_enter(guard, self._map._base, self._map._size, &self._map._cut)

    cdef void leave(self, rc_guard* guard) noexcept nogil:
        if self._map is not None:
            guard_leave(guard)

    cdef int next_block(self) except -1:
        """Find the next records that are wanted: 1 if any are in _block, 0 if there are no more here (or not yet)."""
        cdef int rc
        if not self._begun:
            self._seek()
        while not self._done:
            self._reach_record(self._pos)
            with nogil:
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

    cdef int _reach_record(self, size_t pos) except -1:
        """Have all bytes there that it takes to tell what stands at pos."""
        cdef Record r
        if self._fetch is None or pos >= self._len:
            return 0
        self._there = self._fetch(pos, min(pos + HEAD_BYTES, self._len))
        if self._parse_there(pos, &r) == RC_MORE:
            self._there = self._fetch(pos, pos + <size_t>r.size)
        return 0

    cdef size_t _reach(self, size_t pos, size_t stop) except? 0:
        """Have bytes from pos on there; returns up to where they are, stop at most."""
        if self._fetch is None:
            return stop
        self._there = self._fetch(pos, min(pos + 2 * HEAD_BYTES, stop))
        return min(self._there, stop)

    cdef int _parse_there(self, size_t pos, Record* r) noexcept nogil:
        """parse_record() of what stands at pos; RC_MORE if r.size bytes, as far as can be told, must be there first."""
        cdef int rc = parse_record(self._buf + pos, self._len - pos, r)
        if self._there == self._len:
            return rc
        if pos + HEAD_BYTES > self._there:
            r.size = HEAD_BYTES     # within the file, or all of it would be there
            return RC_MORE
        if rc == RC_OK or rc == RC_BAD_TOPIC_LENGTH or rc == RC_BAD_PROPERTIES_LENGTH or rc == RC_BAD_LENGTH:
            if <size_t>r.size > self._there - pos:
                return RC_MORE
        return rc

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
        if not self._search or self._pos >= self._len:
            return True
        next = self._find_next(self._pos)
        self._to = next if next < self._len else self._limit
        return next == self._pos

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
        if next < self._len and self._map._cut == 0:
            self.enter(&guard)
            touch(self._buf + next)
            self.leave(&guard)
        elif self._map._cut == 0 and self._is_shorter():
            self._map._cut = 1
        return self._map._cut != 0

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
        self._map._cut = 0
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

    cdef int _look(self, size_t pos) noexcept nogil:
        """What stands at pos: RC_OK, RC_BLANK, RC_END, or a fault."""
        cdef rc_guard guard
        cdef Record r
        cdef int rc
        self.enter(&guard)
        rc = parse_record(self._buf + pos, self._len - pos, &r)
        if rc == RC_OK:
            rc = verify_record(&r, self._crc, crc32, self.base + <int64_t>pos)
        self.leave(&guard)
        return rc

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

    cdef bint _is_boundary(self, size_t pos) except -1:
        """Whether the log goes on, or ends, at pos."""
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
        """The first position from pos on where a record or the blank one stands for sure; _len if there is none."""
        return self._find(pos, self._len, True)

    cdef size_t _find(self, size_t pos, size_t end, bint with_offset) except? 0:
        """As _find_in(), in steps; holes are not read, bytes are fetched."""
        cdef size_t stop, found, data
        while pos < end:
            if self._map is not None:
                data = self._map.data_from(pos)
                if data >= self._len:
                    break
                if data > pos + RC_BLANK_BYTES:
                    pos = data - RC_BLANK_BYTES     # a hole, but for bytes of a size that are zero
            stop = self._reach(pos, min(pos + STEP_BYTES, self._len))
            stop = min(stop if stop == self._len else stop - HEAD_BYTES, end)   # the head of the last one is there
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
        """The first position in [pos, stop) of a record that passes every check with its CRC, or of the blank one.

        Returns stop if there is none; or, with _away, where bytes of what may be one are to be fetched.

        with_offset  its stored physical offset must agree; otherwise it must only not be before pos
        """
        cdef rc_guard guard
        cdef Record r
        cdef int64_t offset
        cdef int32_t magic
        cdef size_t room
        cdef int rc, crc = CRC_BODY if self._crc == CRC_NONE else self._crc
        self.enter(&guard)
        while pos < stop:
            # the magic number's first byte is 0xDA or, of a blank one, 0xCB
            room = max(self._len - pos, <size_t>RC_BLANK_BYTES) - RC_BLANK_BYTES
            pos += rc_find_either(self._buf + pos + RC_MSG_MAGIC_AT, min(room, stop - pos), 0xDA, 0xCB)
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
        """Whether r lies over so many that were none that it is no use to read its body once more.

        Hostile bytes may hold a header every 88 bytes, each with all the rest of the file for its body.
        """
        return r.body_len > CROWD_BODY and pos < self._crowd_end and self._crowd >= CROWD_MAX

    cdef void _note_crowd(self, size_t pos, const Record* r) noexcept nogil:
        if r.body_len > CROWD_BODY:
            if pos >= self._crowd_end:
                self._crowd = 0
            self._crowd += 1
            self._crowd_end = max(self._crowd_end, pos + <size_t>r.size)

    cdef int64_t _learn_base(self) except? -1:
        """The physical offset of byte 0 as the first record tells it; 0 if none does."""
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
        """The first position from pos on with a byte that is not zero, or _len; holes are not read."""
        cdef rc_guard guard
        cdef size_t hole, n
        while pos < self._len:
            hole = self._reach(pos, self._len)
            if self._map is not None:
                pos = self._map.data_from(pos)
                hole = min(<size_t>self._map.hole_from(pos), self._len)
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
        """Bytes from pos on without the zeros at the end of the file; at least 1."""
        cdef rc_guard guard
        cdef size_t stop = self._len, n = 0, at
        if self._map is not None:
            # leave out the last hole
            at = self._map.data_from(pos)
            while at < self._len:
                stop = min(<size_t>self._map.hole_from(at), self._len)
                at = self._map.data_from(stop)
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
        """Let go of the part of the map far behind pos, so that a big file does not fill our resident memory."""
        self._let_go = min(self._let_go, pos)       # a search may have run ahead
        if self._map is not None and pos > self._let_go + 2 * KEEP_MAPPED:
            rc_map_let_go(self._map._base, self._let_go, pos - KEEP_MAPPED)
            self._let_go = pos - KEEP_MAPPED
