# cython: language_level=3
"""Index files: a header, hash slots, and units that are chained by slot from the newest to the oldest.

How many slots a file has stands nowhere in it: they are settings of the broker that wrote it (maxHashSlotNum and
maxIndexNum), and its size, 40 + 4 * slots + 20 * units, has many solutions. An IndexFile finds the number so:
1. It tries RocketMQ's default, 5,000,000.
2. It looks where the bytes that are not zero end: within the last unit, whose number the header tells. Units are 20
   bytes, and the solutions for one size are 20 bytes of slots apart, so exactly one of them has that unit there.
   While a broker appends it is one of the last few units; then unit 1 must also be the one that the header names.
Each is believed only if units (up to 64 from all over the file) agree with their slots, three of four at least.
Otherwise, in a file that was cut or is damaged, the caller must say it.
"""
from collections import namedtuple

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from posix.unistd cimport pread

from rocketc.c.bytes cimport rc_get_i32, rc_get_i64, rc_zero_prefix
from rocketc.c.layout cimport (
    RC_INDEX_BEGIN_PHY_OFFSET_AT, RC_INDEX_BEGIN_TIMESTAMP_AT, RC_INDEX_COUNT_AT, RC_INDEX_DEFAULT_SLOTS,
    RC_INDEX_END_PHY_OFFSET_AT, RC_INDEX_END_TIMESTAMP_AT, RC_INDEX_HEADER_BYTES, RC_INDEX_KEY_HASH_AT,
    RC_INDEX_PHY_OFFSET_AT, RC_INDEX_PREVIOUS_AT, RC_INDEX_SLOT_BYTES, RC_INDEX_SLOT_COUNT_AT, RC_INDEX_TIME_DIFF_AT,
    RC_INDEX_UNIT_BYTES,
)

from rocketc.files.block_file import BlockFile

cdef enum:
    SAMPLES = 64
    ATTEMPTS = 8        # while a broker appends, the header and the last unit are not of one moment:
    CANDIDATES = 1000   # the last unit is one of those that came meanwhile

UNIT_BYTES = RC_INDEX_UNIT_BYTES

IndexHeader = namedtuple(
    "IndexHeader",
    "begin_timestamp end_timestamp begin_phy_offset end_phy_offset hash_slot_count index_count",
    module=__name__,
)


def decode_header(const uint8_t[::1] data not None):
    """The header in the first bytes of an index file; what is missing counts as zero."""
    cdef const uint8_t* p
    cdef const uint8_t[::1] whole = bytes(data[:RC_INDEX_HEADER_BYTES]).ljust(RC_INDEX_HEADER_BYTES, b"\0")
    p = &whole[0]
    return IndexHeader(
        rc_get_i64(p + RC_INDEX_BEGIN_TIMESTAMP_AT), rc_get_i64(p + RC_INDEX_END_TIMESTAMP_AT),
        rc_get_i64(p + RC_INDEX_BEGIN_PHY_OFFSET_AT), rc_get_i64(p + RC_INDEX_END_PHY_OFFSET_AT),
        rc_get_i32(p + RC_INDEX_SLOT_COUNT_AT), rc_get_i32(p + RC_INDEX_COUNT_AT),
    )


cdef class IndexFile:
    """An index file, for reading.

    path   str or os.PathLike
    slots  hash slots that it has, as its broker was set up (maxHashSlotNum); None: find out
    Raises StoreIOError as BlockFile does, ValueError if the file has no room for so many slots.
    Source: RocketMQ IndexFile.
    """

    cdef:
        readonly object path, size
        readonly object header
        readonly object slots       # int; None if it could not be found out
        readonly object fault       # None, "short_header", "bad_count", "unknown_slots", "torn"
        object _file                # BlockFile
        int _fd                     # its descriptor
        int64_t _slots              # 0 if not known
        int64_t _units_at           # position of unit 0
        int64_t _capacity           # whole units in the file, unit 0 included
        int64_t _count              # number of the next unit by the header, at least 1

    def __cinit__(self, path, slots=None):
        self._file = BlockFile(path)
        self._fd = self._file.fileno()
        self.path = self._file.path
        self.size = self._file.size
        self._read_header()
        if slots is not None:
            if not 0 < slots <= INT32_MAX or RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES > self.size:
                raise ValueError(f"{self.path}: {self.size} bytes are no index file with {slots} slots")
            self._lay_out(slots)
        else:
            self._find_layout()
        self.fault = self._fault()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Close the file; does nothing the second time."""
        self._fd = -1
        self._file.close()

    @property
    def count(self):
        """Units in use: numbers 1 to this."""
        return min(self._count, max(self._capacity, 1)) - 1 if self._slots else self._count - 1

    @property
    def capacity(self):
        """Units that the file has room for (unit 0, which is never used, is none); None if slots is."""
        return max(self._capacity - 1, 0) if self._slots else None

    cdef _read_header(self):
        self.header = decode_header(self._file.read(0, RC_INDEX_HEADER_BYTES))
        self._count = max(self.header.index_count, 1)

    cdef void _lay_out(self, int64_t slots) noexcept:
        self._slots = slots
        self._units_at = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES

    cdef object _fault(self):
        self._capacity = (<int64_t>self.size - self._units_at) // RC_INDEX_UNIT_BYTES if self._slots else 0
        self.slots = self._slots if self._slots else None
        if self.size < RC_INDEX_HEADER_BYTES:
            return "short_header"
        if self._slots == 0:
            return "unknown_slots" if self._count > 1 else None
        if (<int64_t>self.size - self._units_at) % RC_INDEX_UNIT_BYTES != 0:
            return "torn"
        if self.header.index_count < 0 or self._count > self._capacity:
            return "bad_count"
        return None

    cdef _find_layout(self):
        """Settle on the number of slots, or on 0; see above."""
        cdef int64_t room = <int64_t>self.size - RC_INDEX_HEADER_BYTES, slots, stop, before
        if RC_INDEX_HEADER_BYTES + RC_INDEX_DEFAULT_SLOTS * RC_INDEX_SLOT_BYTES <= <int64_t>self.size:
            self._lay_out(RC_INDEX_DEFAULT_SLOTS)
            if self._is_plausible():
                return
        for _ in range(ATTEMPTS if room % RC_INDEX_SLOT_BYTES == 0 else 0):
            before = self._count
            stop = self._file.data_stop()
            self._read_header()
            # A unit is written before the header counts it.
            for last in range(self._count, max(before - 1, self._count - CANDIDATES) - 1, -1):
                slots = self._slots_by_end(room, stop, last)
                if slots > 0:
                    self._lay_out(slots)
                    if (last == before - 1 == self._count - 1 or self._begins_here()) and self._is_plausible():
                        return
            if before == self._count:
                break
        self._slots = 0

    cdef int64_t _slots_by_end(self, int64_t room, int64_t stop, int64_t last):
        """The solution for the file's size that has the last byte that is not zero within unit `last`, or 0."""
        cdef int64_t slots, units
        if last < 1:
            return 0
        # units_at + last * 20 < stop <= units_at + (last + 1) * 20, where units_at = 40 + room - units * 20
        units = (RC_INDEX_HEADER_BYTES + room + (last + 1) * RC_INDEX_UNIT_BYTES - stop) // RC_INDEX_UNIT_BYTES
        slots = (room - units * RC_INDEX_UNIT_BYTES) // RC_INDEX_SLOT_BYTES
        return slots if units > last and 0 < slots <= INT32_MAX else 0

    cdef bint _begins_here(self) except -1:
        """Whether unit 0 is empty, and unit 1 the one that the header says: no neighbouring layout has that."""
        cdef const uint8_t[::1] data = self._file.read(self._units_at, 2 * RC_INDEX_UNIT_BYTES)
        cdef const uint8_t* first
        if data.shape[0] < 2 * RC_INDEX_UNIT_BYTES:
            return False
        first = &data[RC_INDEX_UNIT_BYTES]
        if rc_zero_prefix(&data[0], RC_INDEX_UNIT_BYTES) < RC_INDEX_UNIT_BYTES:
            return False
        if rc_zero_prefix(first, RC_INDEX_UNIT_BYTES) == RC_INDEX_UNIT_BYTES:
            return False
        return rc_get_i64(first + RC_INDEX_PHY_OFFSET_AT) == self.header.begin_phy_offset

    cdef bint _is_plausible(self) except -1:
        """Whether units agree with the slots of the layout that is tried."""
        cdef int64_t capacity = (<int64_t>self.size - self._units_at) // RC_INDEX_UNIT_BYTES
        cdef int64_t used = min(self._count, capacity) - 1
        cdef int64_t i, tried = min(used, SAMPLES)
        cdef int good = 0
        if used < 1:
            # Nothing in it: only the usual size says something.
            return self._count == 1 and self._slots == RC_INDEX_DEFAULT_SLOTS and capacity == 4 * self._slots
        if self._count > capacity:
            return False
        for i in range(tried):
            number = used - i * used // tried
            for unit in self._decode(self._file.read(self._unit_at(number), RC_INDEX_UNIT_BYTES), number):
                good += unit[6] is None
        return 4 * good >= 3 * tried

    cdef int64_t _unit_at(self, int64_t number) noexcept:
        return self._units_at + number * RC_INDEX_UNIT_BYTES

    cdef int64_t _i32_at(self, int64_t pos) except? -1:
        """The number there, 0 behind the end of the file."""
        cdef uint8_t four[4]
        if pread(self._fd, four, 4, pos) != 4:
            four[:] = self._file.read(pos, 4).ljust(4, b"\0")   # raises what there is to raise
        return rc_get_i32(four)

    def units(self, int64_t first=1):
        """The units from number `first` on, in blocks of some thousands; those that are all zero are left out.

        Yields lists of (number, key_hash, phy_offset, store_timestamp, previous, slot, fault). store_timestamp has the
        precision of a second. fault is None, "bad_key_hash", "bad_phy_offset", "bad_time_diff", "bad_previous", or
        "bad_chain": from its slot the unit can't be reached, or the previous one is of another slot.
        """
        cdef int64_t stop = self._unit_at(self.count + 1), start = min(max(first, 1), self.count + 1)
        if self._slots == 0:
            return
        for pos, data in self._file.blocks(self._unit_at(start), stop, RC_INDEX_UNIT_BYTES):
            for i in range(0, len(data), 4096 * RC_INDEX_UNIT_BYTES):
                part = data[i:i + 4096 * RC_INDEX_UNIT_BYTES]
                yield self._decode(part, (pos + i - self._units_at) // RC_INDEX_UNIT_BYTES)

    cdef list _decode(self, const uint8_t[::1] data, int64_t first):
        cdef Py_ssize_t i
        cdef const uint8_t* p
        cdef int32_t key_hash, diff, previous
        cdef int64_t phy_offset, begin = self.header.begin_timestamp, when, slot
        cdef list out = []
        for i in range(data.shape[0] // RC_INDEX_UNIT_BYTES):
            p = &data[i * RC_INDEX_UNIT_BYTES]
            if rc_zero_prefix(p, RC_INDEX_UNIT_BYTES) == RC_INDEX_UNIT_BYTES:
                continue
            key_hash = rc_get_i32(p + RC_INDEX_KEY_HASH_AT)
            phy_offset = rc_get_i64(p + RC_INDEX_PHY_OFFSET_AT)
            diff = rc_get_i32(p + RC_INDEX_TIME_DIFF_AT)
            previous = rc_get_i32(p + RC_INDEX_PREVIOUS_AT)
            when = <int64_t>(<uint64_t>begin + <uint64_t>(<int64_t>diff * 1000))    # wraps, as Java's does
            slot = key_hash % self._slots if key_hash >= 0 else -1
            if key_hash < 0:
                fault = "bad_key_hash"
            elif phy_offset < 0:
                fault = "bad_phy_offset"
            elif diff < 0:
                fault = "bad_time_diff"
            elif previous < 0 or previous >= first + i:
                fault = "bad_previous"
            else:
                fault = None if self._is_chained(first + i, previous, slot) else "bad_chain"
            out.append((first + i, key_hash, phy_offset, when, previous, slot, fault))
        return out

    cdef bint _is_chained(self, int64_t number, int64_t previous, int64_t slot) except -1:
        """Whether the slot's chain can lead to this unit, and from there to the previous one."""
        cdef int64_t newest = self._i32_at(RC_INDEX_HEADER_BYTES + slot * RC_INDEX_SLOT_BYTES), key_hash
        if newest < number or (newest > self._count and newest > self._i32_at(RC_INDEX_COUNT_AT)):
            return False
        if previous == 0:
            return True
        key_hash = self._i32_at(self._unit_at(previous) + RC_INDEX_KEY_HASH_AT)
        return key_hash >= 0 and key_hash % self._slots == slot

    def check_slots(self):
        """(in use, bad, where): how many slots have a value, and of how many it is no unit's number, and the first 100
        of those."""
        cdef const uint8_t[::1] data
        cdef int64_t value, used = 0, bad = 0, first
        cdef Py_ssize_t i
        cdef list where = []
        stop = min(self._units_at, <int64_t>self.size)
        for pos, block in self._file.blocks(RC_INDEX_HEADER_BYTES, stop, RC_INDEX_SLOT_BYTES) if self._slots else ():
            data = block
            first = (pos - RC_INDEX_HEADER_BYTES) // RC_INDEX_SLOT_BYTES
            for i in range(data.shape[0] // RC_INDEX_SLOT_BYTES):
                value = rc_get_i32(&data[i * RC_INDEX_SLOT_BYTES])
                if value == 0:
                    continue
                used += 1
                if value < 0 or (value > self._count and value > self._i32_at(RC_INDEX_COUNT_AT)):
                    bad += 1
                    if bad <= 100:
                        where.append(first + i)
        return used, bad, where
