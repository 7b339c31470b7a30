# cython: language_level=3
"""Find the records of a log range that consume queues cover, so that only the other records must be read.

Each record has a unit, so the units of all queues together cover the log. If they cover a range without a gap, the
range has only records with units, and those of other topics can be skipped without reading them. Gaps are records that
are not dispatched yet, records that never are (the halves of transactions), and units that queues have lost.
"""
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, qsort, realloc

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_load_u8
from rocketc.c.status cimport RC_OK
from rocketc.derived._consume_queue_units cimport cq_read, units_before
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.derived._queue_table cimport key_of
from rocketc.format._queue_units cimport Unit, is_valid

cdef enum:
    UNITS = 64              # units that one call reads

# A record as described by a unit.
ctypedef struct Tile:
    int64_t at              # physical offset
    int32_t size
    bint wanted


cdef int compare(const void* a, const void* b) noexcept nogil:
    cdef const Tile* x = <const Tile*>a
    cdef const Tile* y = <const Tile*>b
    if x.at != y.at:
        return -1 if x.at < y.at else 1
    return (x.size > y.size) - (x.size < y.size)


cdef class KnownRecords:
    """The records of one range that queues cover: at first only the wanted queues, after take_others() all.

    queues  loaded
    start   physical offset of the start of the range
    stop    physical offset of its end
    wanted  called with (topic, queue id) of each queue; whether its records are wanted
    """
    cdef:
        ConsumeQueues _queues
        int64_t _start
        int64_t _stop
        set _others
        Tile* _tiles
        size_t _count
        size_t _room

    def __cinit__(self, ConsumeQueues queues not None, int64_t start, int64_t stop, wanted):
        cdef ConsumeQueue* q
        cdef int i = 0
        self._queues = queues
        self._start = start
        self._stop = stop
        self._others = set()
        while True:
            q = queues.nth(i)
            if q == NULL:
                break
            if not wanted(*key_of(q)):
                self._others.add(i)
            i += 1
        self._take_all({*range(i)} - self._others, True)

    def spread(self, int64_t gap):
        """Return the bytes from the first to the last wanted record, without distances longer than gap between two."""
        cdef int64_t total = 0, end = -1
        cdef size_t i
        for i in range(self._count):
            if self._tiles[i].at >= self._start:
                total += self._tiles[i].size
                if end >= 0 and self._tiles[i].at - end <= gap:
                    total += max(self._tiles[i].at - end, 0)
                end = self._tiles[i].at + self._tiles[i].size
        return total

    def take_others(self, int64_t most):
        """Add the units of all other queues. If they are more than `most`, add none and return False."""
        cdef ConsumeQueue* q
        cdef int64_t first, behind, count = 0
        for i in self._others:
            q = self._queues.nth(i)
            if q.file_count > 0:
                check(units_before(q, self._start, q.start // q.unit_bytes, &first))
                check(units_before(q, self._stop, first, &behind))
                count += behind - first
        if count > most:
            return False
        self._take_all(self._others, False)
        return True

    cdef int _take_all(self, set numbers, bint wanted) except -1:
        cdef ConsumeQueue* q
        cdef int rc
        for i in sorted(numbers):
            q = self._queues.nth(i)
            with nogil:
                rc = self._take(q, self._start, self._stop, wanted)
            check(rc)
        with nogil:
            if self._count > 0:
                qsort(self._tiles, self._count, sizeof(Tile), compare)
        return 0

    def __dealloc__(self):
        free(self._tiles)

    cdef int _take(self, ConsumeQueue* q, int64_t start, int64_t stop, bint wanted) noexcept nogil:
        """Add the units of a queue whose records begin in [start, stop), and the unit before them."""
        cdef Unit units[UNITS]
        cdef int64_t first, number, low = 0
        cdef int rc, got = 0, i
        if q.file_count == 0 or rc_load_u8(&q.dead) != 0:
            return RC_OK
        low = q.start // q.unit_bytes
        rc = units_before(q, start, low, &first)
        number = max(first - 1, low)
        while rc == RC_OK:
            rc = cq_read(q, number, UNITS, units, &got)
            if rc != RC_OK or got == 0:
                break
            number += got
            for i in range(got):
                if is_valid(&units[i]):
                    if units[i].phy_offset >= stop:
                        return RC_OK
                    rc = self._add(units[i].phy_offset, units[i].size, wanted)
                    if rc != RC_OK:
                        return rc
        return rc

    cdef int _add(self, int64_t at, int32_t size, bint wanted) noexcept nogil:
        cdef Tile* tiles = self._tiles
        cdef size_t room = 2 * self._room + 1024
        if self._count == self._room:
            tiles = <Tile*>realloc(tiles, room * sizeof(Tile))
            if tiles == NULL:
                return ENOMEM
            self._tiles = tiles
            self._room = room
        tiles[self._count].at = at
        tiles[self._count].size = size
        tiles[self._count].wanted = wanted
        self._count += 1
        return RC_OK

    def to_read(self, bint whole, int64_t gap):
        """Return the parts of the range to read, in order: [(from, behind)], each starting at a record.

        whole  whether a record is known to begin at start; otherwise a unit must show where the first one begins
        gap    parts with a distance of up to this number of bytes are joined

        Returns None if the units contradict each other, or if the start of the first record is unknown.
        """
        cdef const Tile* tile
        cdef int64_t start = self._start, stop = self._stop, pos = start if whole else -1, behind
        cdef size_t i
        cdef list out = []
        for i in range(self._count):
            tile = &self._tiles[i]
            behind = tile.at + tile.size
            if tile.at < start:
                if not whole and behind >= start:   # the record that contains start, or ends there
                    if pos >= 0 and pos != behind:
                        return None
                    pos = behind
                continue
            if pos < 0 or (tile.at < pos and not self._is_repeated(i)):
                return None
            if tile.wanted:
                extend(out, min(pos, tile.at), behind, gap)
            elif tile.at > pos:
                extend(out, pos, tile.at, gap)
            pos = max(pos, behind)
        if pos < 0:
            return None
        if pos < stop:
            extend(out, pos, stop, gap)
        return out

    cdef bint _is_repeated(self, size_t i) noexcept nogil:
        """Whether this record has another unit: records may also be in light queues."""
        cdef const Tile* tile = &self._tiles[i]
        return i > 0 and tile.at == tile[-1].at and tile.size == tile[-1].size


cdef void extend(list out, int64_t first, int64_t behind, int64_t gap):
    """Add [first, behind) to ordered ranges; join it with the last range if their distance is at most gap."""
    if out and first - out[-1][1] <= gap:
        out[-1] = (out[-1][0], max(out[-1][1], behind))
    else:
        out.append((first, behind))
