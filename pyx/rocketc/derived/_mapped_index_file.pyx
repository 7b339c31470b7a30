# cython: language_level=3
"""One file of the index of a running store. Units are added at its end; readers follow chains of units.

A file has a header, hash slots, and units of 20 bytes. A slot has the number of its newest unit, and units are chained
from newest to oldest. Unit 0 is never used. The writer writes a unit, then stores its number in the slot, then
increments the count in the header. So a reader that loads the slot with acquire sees a complete unit, also in another
process. Disk space is allocated before bytes are written to the map: at creation for header and slots, later in windows
for units. Functions return 0, an errno, or a code of status.h. Source: RocketMQ IndexFile, IndexHeader
"""
from libc.errno cimport EEXIST
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport SEEK_END
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strlen
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.unistd cimport close as close_file
from posix.unistd cimport ftruncate, lseek, unlink

from rocketc.c.atomic cimport rc_load_be32, rc_load_i64, rc_store_be32, rc_store_i64
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64, rc_put_i32, rc_put_i64
from rocketc.c.layout cimport (
    RC_INDEX_BEGIN_PHY_OFFSET_AT, RC_INDEX_BEGIN_TIMESTAMP_AT, RC_INDEX_COUNT_AT, RC_INDEX_END_PHY_OFFSET_AT,
    RC_INDEX_END_TIMESTAMP_AT, RC_INDEX_HEADER_BYTES, RC_INDEX_KEY_HASH_AT, RC_INDEX_PHY_OFFSET_AT,
    RC_INDEX_PREVIOUS_AT, RC_INDEX_SLOT_BYTES, RC_INDEX_SLOT_COUNT_AT, RC_INDEX_TIME_DIFF_AT, RC_INDEX_UNIT_BYTES,
)
from rocketc.c.points cimport rc_point
from rocketc.c.status cimport RC_BAD_ARGUMENT, RC_BAD_CHAIN, RC_FILE_CUT, RC_NO_ROOM, RC_OK
from rocketc.c.vm cimport (
    rc_allocate, rc_allocate_range, rc_free_space, rc_free_unwritten, rc_guard, rc_map_own, rc_map_random,
    rc_map_read, rc_map_write, rc_name_file, rc_new_file, rc_open_file, rc_populate, rc_sync_map, rc_unmap,
    rc_write_zeros,
)
from rocketc.files._guard cimport enter, enter_writing, leave as guard_leave

cdef enum:
    BLOCK_BYTES = 64 << 10      # of zeros in one write: the page cache keeps them as one folio
    ONE_PAGE_BYTES = 64 << 10   # the largest size of a page on some machines
    WINDOW_BYTES = 1 << 20      # most bytes of units for which room is made at once
    FIRST_WINDOW_BYTES = 64 << 10


cdef MappedIndexFile* part_new(const char* path, int64_t name, int64_t slots, int64_t units) noexcept nogil:
    """Return a file that is not open yet and held only by its owner; NULL without memory. path is copied."""
    cdef size_t n = strlen(path)
    cdef MappedIndexFile* p = <MappedIndexFile*>calloc(1, sizeof(MappedIndexFile) + n)
    if p == NULL:
        return NULL
    memcpy(p.path, path, n + 1)
    p.name = name
    p.slots = slots
    p.units = units
    p.units_at = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES
    p.size = <size_t>(p.units_at + units * RC_INDEX_UNIT_BYTES)
    p.holds = p.count = 1
    p.fd = -1
    return p


cdef void part_free(MappedIndexFile* p) noexcept nogil:
    """Unmap, close and free a file that is not held."""
    part_unmap(p)
    free(p)


cdef void part_unmap(MappedIndexFile* p) noexcept nogil:
    """Unmap and close a file that is not held. part_map() can map it again."""
    if p.base != NULL:
        rc_unmap(p.base, p.size)
        p.base = NULL
    part_seal(p)


cdef void part_seal(MappedIndexFile* p) noexcept nogil:
    """Close the descriptor: no more units are added. The map stays."""
    if p.fd >= 0:
        close_file(p.fd)
        p.fd = -1


cdef int part_create(MappedIndexFile* p, const char* folder, const MappedIndexFile* before) noexcept nogil:
    """Create and map the file, with disk space for its header and slots.

    before  the file before it, or NULL: its end is the begin of this file until the first unit is put, as in RocketMQ
    On failure, no file is left. Returns EEXIST if there is a file with the same name.
    """
    cdef int rc = rc_new_file(folder, p.path, &p.fd)
    if rc != RC_OK:
        return rc
    rc = rc_allocate(p.fd, <size_t>p.units_at)
    if rc == RC_OK and ftruncate(p.fd, <int64_t>p.size) != 0:
        rc = c_errno
    if rc == RC_OK:     # look-ups read the end of the file; on a full disk, a hole can't be read (tmpfs)
        rc = rc_allocate_range(p.fd, <int64_t>p.size - RC_INDEX_SLOT_BYTES, <int64_t>p.size)
    if rc == RC_OK:
        rc = rc_map_write(p.fd, p.size, &p.base)
    p.writable = p.allocated = True
    p.ready = p.units_at
    if rc == RC_OK:
        rc = part_begin(p, before)
    if rc == RC_OK:
        rc = rc_name_file(p.fd, p.path)
    if rc != RC_OK:
        if rc != EEXIST:
            unlink(p.path)
        part_unmap(p)
        return rc
    rc_map_random(p.base, p.size)
    return RC_OK


cdef int part_begin(MappedIndexFile* p, const MappedIndexFile* before) noexcept nogil:
    """Set the header of a mapped file without units to that of a new file. Returns RC_OK or RC_FILE_CUT.

    After a power cut, the header may be zero, or from before the units were cut off.
    """
    cdef int64_t timestamp = before.end_timestamp if before != NULL else 0
    cdef int64_t phy_offset = before.end_phy if before != NULL else 0
    if (
        p.begin_timestamp != timestamp or p.begin_phy != phy_offset or p.used_slots != 0
        or p.end_timestamp != timestamp or p.end_phy != phy_offset
    ):
        p.used_slots = 0
        p.begin_timestamp = p.end_timestamp = timestamp
        p.begin_phy = p.end_phy = phy_offset
        write_header(p)
    return RC_OK if p.cut == 0 else RC_FILE_CUT


cdef void write_header(MappedIndexFile* p) noexcept nogil:
    cdef rc_guard guard
    enter_writing(&guard, p.base, p.size, &p.cut)
    rc_put_i64(p.base + RC_INDEX_BEGIN_TIMESTAMP_AT, p.begin_timestamp)
    rc_put_i64(p.base + RC_INDEX_END_TIMESTAMP_AT, p.end_timestamp)
    rc_put_i64(p.base + RC_INDEX_BEGIN_PHY_OFFSET_AT, p.begin_phy)
    rc_put_i64(p.base + RC_INDEX_END_PHY_OFFSET_AT, p.end_phy)
    rc_point(b"index: header")
    rc_put_i32(p.base + RC_INDEX_SLOT_COUNT_AT, <int32_t>p.used_slots)
    rc_store_be32(p.base + RC_INDEX_COUNT_AT, <int32_t>p.count)
    guard_leave(&guard)


cdef int part_map(MappedIndexFile* p, bint writable) noexcept nogil:
    """Open and map an existing file. One thread at a time. Returns RC_FILE_CUT if it is too short.

    writable  units will be added: the descriptor stays open, and room after the last unit is made again
    """
    cdef int fd, rc = RC_OK
    if p.base != NULL:
        return RC_OK
    fd = rc_open_file(p.path, O_RDWR if writable else O_RDONLY)
    if fd < 0:
        return c_errno
    if lseek(fd, 0, SEEK_END) < <int64_t>p.size:
        rc = RC_FILE_CUT
    if rc == RC_OK:
        rc = rc_map_write(fd, p.size, &p.base) if writable else rc_map_read(fd, p.size, &p.base)
    if rc == RC_OK:
        rc_map_random(p.base, p.size)
        p.writable = writable
        p.ready = unit_at(p, p.count)
    if rc == RC_OK and writable:
        p.fd = fd
    else:
        close_file(fd)
    return rc


cdef inline int64_t unit_at(const MappedIndexFile* p, int64_t number) noexcept nogil:
    return p.units_at + number * RC_INDEX_UNIT_BYTES


cdef inline void enter_part(rc_guard* guard, MappedIndexFile* p) noexcept nogil:
    """Enter a guard. If a page is missing in a writer's map, the map stays writable: the writer continues in it."""
    if p.writable:
        enter_writing(guard, p.base, p.size, &p.cut)
    else:
        enter(guard, p.base, p.size, &p.cut)


cdef int part_read_header(MappedIndexFile* p) noexcept nogil:
    """Read the header from the map: after loading, or again if another process writes."""
    cdef rc_guard guard
    cdef int64_t count
    enter_part(&guard, p)
    count = rc_load_be32(p.base + RC_INDEX_COUNT_AT)
    rc_store_i64(&p.begin_timestamp, rc_get_i64(p.base + RC_INDEX_BEGIN_TIMESTAMP_AT))
    rc_store_i64(&p.end_timestamp, rc_get_i64(p.base + RC_INDEX_END_TIMESTAMP_AT))
    rc_store_i64(&p.begin_phy, rc_get_i64(p.base + RC_INDEX_BEGIN_PHY_OFFSET_AT))
    rc_store_i64(&p.end_phy, rc_get_i64(p.base + RC_INDEX_END_PHY_OFFSET_AT))
    rc_store_i64(&p.used_slots, rc_get_i32(p.base + RC_INDEX_SLOT_COUNT_AT))
    guard_leave(&guard)
    if p.cut != 0:
        return RC_FILE_CUT
    rc_store_i64(&p.count, max(count, 1))
    return RC_OK


cdef int make_room(MappedIndexFile* p, int64_t upto) noexcept nogil:
    """Make room for the units before byte `upto`, and for some after it: disk space and pages."""
    cdef rc_guard guard
    cdef int64_t used = p.ready - p.units_at
    cdef int64_t stop = p.ready + min(max(used, <int64_t>FIRST_WINDOW_BYTES), <int64_t>WINDOW_BYTES)
    cdef int rc
    stop = min(max(stop // BLOCK_BYTES * BLOCK_BYTES, upto), <int64_t>p.size)
    if lseek(p.fd, 0, SEEK_END) < <int64_t>p.size:
        p.cut = 1       # do not extend the file again: its data is lost
        return RC_FILE_CUT
    if not p.allocated:     # not earlier: a file without puts must keep its mtime
        rc = rc_allocate(p.fd, <size_t>p.units_at)
        if rc != RC_OK:
            return rc
        p.allocated = True
    rc = rc_write_zeros(p.fd, <size_t>p.ready, <size_t>stop, BLOCK_BYTES)
    if rc == RC_OK:
        enter_writing(&guard, p.base, p.size, &p.cut)
        rc = rc_populate(p.base, <size_t>p.ready, <size_t>stop)
        guard_leave(&guard)
    if rc == RC_OK:
        p.ready = stop
    return rc


cdef int32_t time_diff(int64_t begin_timestamp, int64_t store_timestamp) noexcept nogil:
    """Return the seconds from a file's begin to a record like RocketMQ: 0 without begin, or if the clock went back."""
    cdef int64_t diff
    if begin_timestamp <= 0:
        return 0
    diff = <int64_t>(<uint64_t>store_timestamp - <uint64_t>begin_timestamp) // 1000     # wraps like in Java
    return <int32_t>min(max(diff, 0), INT32_MAX)


cdef int part_put(MappedIndexFile* p, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
    """Add a unit. The caller is the only writer.

    On failure nothing is added. Returns RC_NO_ROOM if the file is full, an errno if the disk is full, RC_FILE_CUT, or
    RC_BAD_ARGUMENT for a hash below 0.
    """
    cdef rc_guard guard
    cdef int64_t n = p.count, at = unit_at(p, n), begin = p.begin_timestamp, used = p.used_slots
    cdef uint8_t* slot
    cdef uint8_t* unit
    cdef int32_t before
    cdef int rc
    if n >= p.units:
        return RC_NO_ROOM
    if key_hash < 0:
        return RC_BAD_ARGUMENT
    if at + RC_INDEX_UNIT_BYTES > p.ready:
        rc = make_room(p, at + RC_INDEX_UNIT_BYTES)
        if rc != RC_OK:
            return rc
    enter_writing(&guard, p.base, p.size, &p.cut)
    slot = slot_of(p, key_hash)
    unit = p.base + at
    before = rc_get_i32(slot)
    if before <= 0 or before >= n:
        before = 0
        used += 1
    rc_put_i32(unit + RC_INDEX_KEY_HASH_AT, key_hash)
    rc_put_i64(unit + RC_INDEX_PHY_OFFSET_AT, phy_offset)
    rc_put_i32(unit + RC_INDEX_TIME_DIFF_AT, time_diff(begin, store_timestamp))
    rc_put_i32(unit + RC_INDEX_PREVIOUS_AT, before)
    rc_point(b"index: unit")
    if n == 1:
        rc_put_i64(p.base + RC_INDEX_BEGIN_TIMESTAMP_AT, store_timestamp)
        rc_put_i64(p.base + RC_INDEX_BEGIN_PHY_OFFSET_AT, phy_offset)
        rc_store_i64(&p.begin_timestamp, store_timestamp)
        rc_store_i64(&p.begin_phy, phy_offset)
    rc_point(b"index: begin")
    rc_store_be32(slot, <int32_t>n)
    rc_point(b"index: slot")
    rc_put_i64(p.base + RC_INDEX_END_TIMESTAMP_AT, store_timestamp)
    rc_put_i64(p.base + RC_INDEX_END_PHY_OFFSET_AT, phy_offset)
    rc_put_i32(p.base + RC_INDEX_SLOT_COUNT_AT, <int32_t>used)
    rc_point(b"index: end")
    rc_store_be32(p.base + RC_INDEX_COUNT_AT, <int32_t>(n + 1))
    rc_point(b"index: count")
    guard_leave(&guard)
    if p.cut != 0:
        return RC_FILE_CUT
    rc_store_i64(&p.used_slots, used)
    rc_store_i64(&p.end_timestamp, store_timestamp)
    rc_store_i64(&p.end_phy, phy_offset)
    rc_store_i64(&p.dirty, 1)
    rc_store_i64(&p.count, n + 1)
    return RC_OK


cdef inline void decode_unit(const uint8_t* at, IndexUnit* unit) noexcept nogil:
    unit.key_hash = rc_get_i32(at + RC_INDEX_KEY_HASH_AT)
    unit.phy_offset = rc_get_i64(at + RC_INDEX_PHY_OFFSET_AT)
    unit.time_diff = rc_get_i32(at + RC_INDEX_TIME_DIFF_AT)
    unit.previous = rc_get_i32(at + RC_INDEX_PREVIOUS_AT)


cdef bint part_get(MappedIndexFile* p, int64_t number, IndexUnit* unit) noexcept nogil:
    """Decode unit `number`, which must be in range, of a mapped file. Returns False and zeros if the file was cut."""
    cdef rc_guard guard
    enter_part(&guard, p)
    decode_unit(p.base + unit_at(p, number), unit)
    guard_leave(&guard)
    return p.cut == 0


cdef bint part_get_some(MappedIndexFile* p, int64_t number, int n, IndexUnit* units) noexcept nogil:
    """Decode n units; see part_get()."""
    cdef rc_guard guard
    cdef int i
    enter_part(&guard, p)
    for i in range(n):
        decode_unit(p.base + unit_at(p, number + i), &units[i])
    guard_leave(&guard)
    return p.cut == 0


cdef inline int64_t unit_time(int64_t begin_timestamp, int32_t diff) noexcept nogil:
    """Return the ms from which time_diff() was computed, without the last three digits."""
    return <int64_t>(<uint64_t>begin_timestamp + <uint64_t>diff * 1000)


cdef void unit_times(
    int64_t begin_timestamp, int64_t number, int32_t diff, int64_t* least, int64_t* most,
) noexcept nogil:
    """Compute the interval in ms, both ends included, in which a record was stored; open if its time is unknown."""
    most[0] = begin_timestamp if number == 1 else unit_time(begin_timestamp, diff)
    least[0] = INT64_MIN if number != 1 and diff == 0 else most[0]
    most[0] = most[0] + 999 if diff < INT32_MAX and most[0] < INT64_MAX - 999 else INT64_MAX


cdef inline bint overlaps(MappedIndexFile* p, int64_t begin, int64_t end, bint java) noexcept nogil:
    """Whether the file may have records of [begin, end]."""
    cdef int64_t first, last
    if not java:
        return True         # the clock may have gone back within the file: check each unit
    first = rc_load_i64(&p.begin_timestamp)
    last = rc_load_i64(&p.end_timestamp)
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


cdef int check_length(MappedIndexFile* p) noexcept nogil:
    """Check that the file still has its length. Returns RC_OK, RC_FILE_CUT, or the errno of opening it."""
    cdef int fd = rc_open_file(p.path, O_RDONLY)
    if fd < 0:
        return c_errno
    if lseek(fd, 0, SEEK_END) < <int64_t>p.size:
        p.cut = 1
    close_file(fd)
    return RC_OK if p.cut == 0 else RC_FILE_CUT


cdef int part_search(
    MappedIndexFile* p, int32_t key_hash, int64_t begin, int64_t end, bint java, int64_t* out, int room, int64_t* unit,
    int64_t* damage,
) noexcept nogil:
    """Follow the chain of a hash, newest unit first. The file is mapped and held by the caller.

    begin, end  ms. A unit has its time in seconds after the file's begin, or 0 if the clock had gone back. With java,
                this is the time, and the search stops at the first unit before begin. Otherwise all records of the
                interval are found, perhaps with others: the caller checks the time of the record.
    out         physical offsets, room of them
    unit        in: number of the first unit, 0: begin at the slot; out: where to continue, 0 at the end of the chain
    damage      for RC_BAD_CHAIN: the damaged byte of the file
    Returns the number of offsets, RC_BAD_CHAIN or RC_FILE_CUT. Only hashes are compared: the caller compares the key.
    """
    cdef rc_guard guard
    cdef IndexUnit u
    cdef int64_t n = unit[0], start, when, least, most
    cdef int found = 0, rc = RC_OK
    cdef int32_t slots = <int32_t>p.slots
    cdef bint timeless = p.foreign and rc_load_i64(&p.count) <= 1 and not java     # the begin timestamp is not set
    unit[0] = 0
    if room <= 0 or not overlaps(p, begin, end, java):
        return 0
    enter_part(&guard, p)
    if n == 0:
        n = rc_load_be32(slot_of(p, key_hash))
        # The count is stored last: a put may have stored the slot and not the count yet. The unit before that one is
        # counted already, so a reader that loads the slot first sees it at most one ahead of the count.
        if n < 0 or n >= p.units or (n > rc_load_i64(&p.count) and not p.foreign):
            damage[0] = slot_of(p, key_hash) - p.base
            rc = RC_BAD_CHAIN
    start = rc_load_i64(&p.begin_timestamp)     # load it after the slot: the first put sets it
    while rc == RC_OK and n != 0:
        if found == room:
            unit[0] = n
            break
        decode_unit(p.base + unit_at(p, n), &u)
        if (
            u.key_hash < 0 or (u.key_hash != key_hash and u.key_hash % slots != key_hash % slots)
            or u.phy_offset < 0 or u.time_diff < 0 or u.previous < 0 or u.previous >= n
        ):
            damage[0] = unit_at(p, n)
            rc = RC_BAD_CHAIN
            break
        when = least = most = unit_time(start, u.time_diff)
        if timeless:
            least = INT64_MIN
            most = INT64_MAX
        elif not java:
            unit_times(start, n, u.time_diff, &least, &most)
        if u.key_hash == key_hash and least <= end and most >= begin:
            out[found] = u.phy_offset
            found += 1
        if java and when < begin:
            break
        n = u.previous
    rc_load_be32(p.base + p.size - RC_INDEX_SLOT_BYTES)     # a truncated file reads as zeros to the end of its page
    guard_leave(&guard)
    if found == 0 and p.size <= ONE_PAGE_BYTES:
        check_length(p)
    if p.cut != 0:
        return RC_FILE_CUT
    return found if rc == RC_OK else rc


cdef bint step_back(const MappedIndexFile* p, int64_t slot, int64_t* n) noexcept nogil:
    """Follow a slot's chain from unit *n to a counted unit or the end of the chain. Returns False if it is damaged.

    A unit of another slot is damage. So for all slots together, no unit is read twice.
    """
    cdef IndexUnit u
    while n[0] >= p.count:
        if n[0] >= p.units:
            return False
        decode_unit(p.base + unit_at(p, n[0]), &u)
        if (
            u.key_hash < 0 or u.key_hash % p.slots != slot or u.time_diff < 0 or u.phy_offset < 0
            or u.previous >= n[0]
        ):
            return False
        n[0] = u.previous
    return n[0] >= 0


cdef int part_check(MappedIndexFile* p, int64_t* damage) noexcept nogil:
    """Check that header, slots and units agree. The file is mapped and held, and no thread of this process writes it.

    If the file is foreign, another process may write: then slots may lead to units after those of the loaded header.
    damage  for RC_BAD_CHAIN: the first damaged byte of the file
    Returns RC_OK, RC_BAD_CHAIN, RC_FILE_CUT, or ENOMEM: the check needs 4 bytes per slot.
    """
    cdef rc_guard guard
    cdef IndexUnit u
    cdef int64_t n, slot, used = 0, last = p.count - 1, used_now
    cdef uint8_t* own = NULL
    cdef int32_t* newest
    cdef int rc = rc_map_own(<size_t>p.slots * sizeof(int32_t), &own)   # in large pages: access is random
    if rc != RC_OK:
        return rc
    newest = <int32_t*>own
    enter_part(&guard, p)
    for n in range(1, min(p.count, p.units)):
        decode_unit(p.base + unit_at(p, n), &u)
        slot = u.key_hash % p.slots if u.key_hash >= 0 else 0
        if u.key_hash < 0 or u.previous != newest[slot] or u.time_diff < 0 or u.phy_offset < 0:
            damage[0] = unit_at(p, n)
            rc = RC_BAD_CHAIN
            break
        used += newest[slot] == 0
        newest[slot] = <int32_t>n
    used_now = used
    if rc == RC_OK:
        for slot in range(p.slots):
            n = rc_load_be32(p.base + RC_INDEX_HEADER_BYTES + slot * RC_INDEX_SLOT_BYTES)
            last = max(last, n)
            used_now += n != 0 and newest[slot] == 0
            if (p.foreign and not step_back(p, slot, &n)) or n != newest[slot]:
                damage[0] = RC_INDEX_HEADER_BYTES + slot * RC_INDEX_SLOT_BYTES
                rc = RC_BAD_CHAIN
                break
    guard_leave(&guard)
    rc_unmap(own, <size_t>p.slots * sizeof(int32_t))
    if p.cut != 0:
        return RC_FILE_CUT
    # RocketMQ up to 4.7.0 counts a slot again with each unit. Units put after the header was loaded may be counted too.
    if rc == RC_OK and not used <= p.used_slots <= used_now and not p.count - 1 <= p.used_slots <= last:
        damage[0] = RC_INDEX_SLOT_COUNT_AT
        rc = RC_BAD_CHAIN
    return rc


cdef int part_sync(MappedIndexFile* p) noexcept nogil:
    """Make the units put before the call durable. The caller holds the file. Returns 0, an errno, or RC_FILE_CUT."""
    cdef int64_t upto = unit_at(p, rc_load_i64(&p.count))
    cdef int rc = rc_sync_map(p.base, 0, <size_t>upto)
    if rc != RC_OK:
        return rc
    return check_length(p)      # a sync of missing pages succeeds


cdef void part_free_rest(MappedIndexFile* p) noexcept nogil:
    """Free the disk space of slots and units that were never written, when no more units are added and all are durable.

    The last bytes stay, see part_create(). make_room() allocates the space again.
    """
    if p.fd < 0 or p.cut != 0:
        return
    rc_free_space(p.fd, unit_at(p, p.count), <int64_t>p.size - RC_INDEX_SLOT_BYTES)
    rc_free_unwritten(p.fd, RC_INDEX_HEADER_BYTES, p.units_at)
    p.ready = unit_at(p, p.count)
    p.allocated = False
