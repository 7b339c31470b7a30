# cython: language_level=3
"""Index files: a header, hash slots, and units that are chained by slot from the newest to the oldest.

A file does not say how many slots it has. The numbers of slots and units are settings of the broker that wrote it
(maxHashSlotNum, maxIndexNum), and several pairs have the same file size, 40 + 4 * slots + 20 * units. An IndexFile
finds the number of slots in this way:
1. It tries RocketMQ's default, 5,000,000.
2. It finds the last byte that is not zero. This byte is in the last unit, and the header has the number of this unit.
   Units are 20 bytes, and the possible layouts differ by 20 bytes of slots. So one layout has that unit there.
   While a broker appends, it is one of the last few units; then unit 1 must also agree with the header.
A layout is accepted if at least three of four units (up to 64 from all parts of the file) agree with their slots.
Otherwise, in a truncated or damaged file, the caller must pass the number.
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
    ATTEMPTS = 8        # while a broker appends, the header and the last unit are read at different times:
    CANDIDATES = 1000   # the last unit is one of those that were added in between

UNIT_BYTES = RC_INDEX_UNIT_BYTES

IndexHeader = namedtuple(
    "IndexHeader",
    "begin_timestamp end_timestamp begin_phy_offset end_phy_offset hash_slot_count index_count",
    module=__name__,
)


def decode_header(const uint8_t[::1] data not None):
    """Decode the header in the first bytes of an index file. Missing bytes count as zero."""
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
    slots  number of hash slots, as configured in the broker (maxHashSlotNum); None: detect it
    Raises StoreIOError as BlockFile does, ValueError if the file is too small for this number of slots.
    Source: RocketMQ IndexFile.
    """

    cdef:
        readonly object path, size
        readonly object header
        readonly object slots       # int; None if it could not be detected
        readonly object fault       # None, "short_header", "bad_count", "unknown_slots", "torn"
        object _file                # BlockFile
        int _fd                     # its descriptor
        int64_t _slots              # 0 if not known
        int64_t _units_at           # position of unit 0
        int64_t _capacity           # number of complete units in the file, including unit 0
        int64_t _count              # number of the next unit in the header, at least 1

    def __cinit__(self, path, slots=None):
        self._file = BlockFile(path)
        self._fd = self._file.fileno()
        self.path = self._file.path
        self.size = self._file.size
        self._read_header()
        if slots is not None:
            if not 0 < slots <= INT32_MAX or RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES > self.size:
                raise ValueError(f"{self.path}: an index file of {self.size} bytes can't have {slots} slots")
            self._lay_out(slots)
        else:
            self._find_layout()
        self.fault = self._fault()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Close the file. May be called twice."""
        self._fd = -1
        self._file.close()

    @property
    def count(self):
        """Number of units in use; they are numbered from 1."""
        return min(self._count, max(self._capacity, 1)) - 1 if self._slots else self._count - 1

    @property
    def capacity(self):
        """Number of units that fit into the file, without unit 0, which is never used; None without slots."""
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
        """Set the number of slots, or 0 if it can't be detected; see the top of the module."""
        cdef int64_t room = <int64_t>self.size - RC_INDEX_HEADER_BYTES, slots, stop, before
        if RC_INDEX_HEADER_BYTES + RC_INDEX_DEFAULT_SLOTS * RC_INDEX_SLOT_BYTES <= <int64_t>self.size:
            self._lay_out(RC_INDEX_DEFAULT_SLOTS)
            if self._is_plausible():
                return
        for _ in range(ATTEMPTS if room % RC_INDEX_SLOT_BYTES == 0 else 0):
            before = self._count
            stop = self._file.data_stop()
            self._read_header()
            # A unit is written before the header is updated.
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
        """Return the number of slots for which the last nonzero byte is in unit `last`, or 0."""
        cdef int64_t slots, units
        if last < 1:
            return 0
        # units_at + last * 20 < stop <= units_at + (last + 1) * 20, where units_at = 40 + room - units * 20
        units = (RC_INDEX_HEADER_BYTES + room + (last + 1) * RC_INDEX_UNIT_BYTES - stop) // RC_INDEX_UNIT_BYTES
        slots = (room - units * RC_INDEX_UNIT_BYTES) // RC_INDEX_SLOT_BYTES
        return slots if units > last and 0 < slots <= INT32_MAX else 0

    cdef bint _begins_here(self) except -1:
        """Whether unit 0 is zero and unit 1 agrees with the header. Only one of neighboring layouts meets this."""
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
            # An empty file: only the default size is accepted.
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
        """Return the number at a position; 0 after the end of the file."""
        cdef uint8_t four[4]
        if pread(self._fd, four, 4, pos) != 4:
            four[:] = self._file.read(pos, 4).ljust(4, b"\0")   # raises the error of the read, if any
        return rc_get_i32(four)

    def units(self, int64_t first=1):
        """Yield the units from number `first` in lists of some thousands, without units that are zero.

        A unit is (number, key_hash, phy_offset, store_timestamp, previous, slot, fault).

        store_timestamp  has a precision of a second
        fault            "bad_key_hash", "bad_phy_offset", "bad_time_diff", "bad_previous", "bad_chain", or None
        "bad_chain": the unit can't be reached from its slot, or the previous unit is of another slot.
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
            when = <int64_t>(<uint64_t>begin + <uint64_t>(<int64_t>diff * 1000))    # wraps like in Java
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
        """Whether the slot's chain can lead to this unit, and from this unit to the previous one."""
        cdef int64_t newest = self._i32_at(RC_INDEX_HEADER_BYTES + slot * RC_INDEX_SLOT_BYTES), key_hash
        if newest < number or (newest > self._count and newest > self._i32_at(RC_INDEX_COUNT_AT)):
            return False
        if previous == 0:
            return True
        key_hash = self._i32_at(self._unit_at(previous) + RC_INDEX_KEY_HASH_AT)
        return key_hash >= 0 and key_hash % self._slots == slot

    def check_slots(self):
        """Return (slots with a value, damaged slots, list of the first 100 damaged slots).

        A slot is damaged if its value is not the number of a unit.
        """
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
