# cython: language_level=3
"""Write one consume queue: the records of a topic and queue id in the order of their queue offsets.

Consume queues are derived from the log. When a store is opened, units are written again from some point of the log.
Existing units are compared with the log, and bytes after the last unit are cleared. So the files agree with the log,
whatever they held before. Source: RocketMQ ConsumeQueue, BatchConsumeQueue.
"""
from libc.errno cimport EBUSY, ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strcpy
from posix.types cimport off_t
from posix.unistd cimport close as close_file
from posix.unistd cimport pread

from rocketc.c.atomic cimport rc_load_i64, rc_load_u8, rc_raise_i64, rc_store_i64
from rocketc.c.bytes cimport rc_trim_zeros
from rocketc.c.jhash cimport rc_jhash, rc_jhash_from
from rocketc.c.layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES, RC_MSG_MIN_BYTES
from rocketc.c.status cimport RC_END, RC_FILE_CUT, RC_MORE, RC_NO_ROOM, RC_OK, RC_OUT_OF_ORDER
from rocketc.c.vm cimport rc_data_end
from rocketc.derived._consume_queue_ext cimport (
    ExtUnit, ext_begin, ext_clear, ext_finish, ext_flush, ext_free, ext_get, ext_put, ext_truncate_by_min,
    is_ext_address,
)
from rocketc.derived._consume_queue_units cimport (
    begin_at, cq_read, cq_read_loaded, drop_files, last_of, next_real, units_before, write_blanks, write_unit,
)
from rocketc.derived._queue_files cimport (
    ConsumeQueue, FILES_MUST, FILES_PEEK, OpenFiles, QueueCounters, QueueOpening, QueueShared, counters_of, ext_rest,
    files_changed, files_free, files_hold, files_release, flush_idle, open_idle, sync_names, wait_for_flush,
)
from rocketc.files._append_file cimport FileState, RC_OS_PAGE_BYTES, can_flush, file_clear
from rocketc.files._file_queue cimport queue_flush, queue_last, queue_remove, queue_start
from rocketc.format._queue_units cimport Unit, decode_unit, is_blank, is_valid
from rocketc.log._queue_offsets cimport cq_hash

cdef enum:
    NAME_BYTES = 255
    BEGUN = -2


cdef int cq_put(ConsumeQueue* q, const Unit* u, bint whole, bint opening) noexcept nogil:
    """Write the unit of a record, unless the queue has it. Only the dispatcher calls it, in log order.

    whole    the log is dispatched from its first record: if the queue differs, the log is right
    opening  the store is being opened or its queues are being rebuilt: there are no readers yet
    Returns RC_OK, an errno, RC_FILE_CUT, or RC_OUT_OF_ORDER if the queue offset is impossible; then nothing is written.
    """
    cdef QueueOpening* o = q.opening
    cdef QueueCounters* counters
    cdef Unit unit = u[0]
    cdef int64_t number, jumped_from = -1
    cdef int rc = settle(q, &unit) if opening else RC_OK
    if rc != RC_OK or (o != NULL and o.claim_phy >= unit.phy_offset and is_of_another(q, &unit)):
        return rc
    number = unit.queue_offset
    if q.unit_bytes != RC_CQ_UNIT_BYTES:
        if unit.phy_offset < q.max_phy_offset:
            return RC_OK                    # the queue has it
        if unit.queue_offset < q.max_offset:
            q.repeated += 1
        number = q.units
    elif number != q.units:
        q.refused = not 0 <= number < INT64_MAX // RC_CQ_UNIT_BYTES
        if q.refused:
            return RC_OUT_OF_ORDER
        if number < q.units and q.confirmed and o != NULL and can_take_back(q, number):
            rc = take_back(q, number)
        elif number < q.units and q.confirmed:
            q.repeated += 1
            return RC_OK                    # the queue has it
        elif not q.confirmed:
            jumped_from = BEGUN
            rc = restart(q, number, whole)
        elif number - q.units > (unit.phy_offset - q.max_phy_offset) // RC_MSG_MIN_BYTES:
            q.refused = True
            return RC_OUT_OF_ORDER          # the log is too small for the records in between
        else:
            jumped_from = q.units
            rc = write_blanks(q, q.units, number)
        if rc != RC_OK:
            return rc
    if q.extends:
        rc = extend(q, &unit)
    if rc == RC_OK:
        rc = write_unit(q, number, &unit)
    if rc == RC_OK:
        q.confirmed = True
        q.refused = False
        if o != NULL:
            o.jumped_from = jumped_from if opening else -1
        if number == q.min_unit:
            rc_store_i64(&q.first_phy, unit.phy_offset)
        rc_store_i64(&q.max_phy_offset, unit.phy_offset + unit.size)
        rc_store_i64(&q.max_offset, unit.queue_offset + unit.count)
        rc_store_i64(&q.units, number + 1)
        if (number + 1) * q.unit_bytes - rc_load_i64(&q.flushed) > RC_OS_PAGE_BYTES and not rc_load_u8(&q.is_waiting):
            wait_for_flush(q)               # without memory, the next thorough flush finds it
        counters = NULL if opening else counters_of(q)
        if counters != NULL:
            rc_store_i64(&counters.came, counters.came + unit.count)
            rc_store_i64(&counters.came_bytes, counters.came_bytes + unit.size)
    return rc


cdef int settle(ConsumeQueue* q, Unit* u) noexcept nogil:
    """Correct the queue offset of a record that has another one than the next, if the files held a unit for it.

    No CRC covers the queue offset in a record, so it may be damaged. The record then takes the offset of the unit that
    the files hold or held for it. Returns RC_OK, an errno, or RC_FILE_CUT.
    """
    cdef QueueOpening* o = q.opening
    cdef int64_t wanted = q.units if q.unit_bytes == RC_CQ_UNIT_BYTES else q.max_offset
    cdef Unit held
    cdef int rc
    if u.queue_offset == wanted:
        o.unconfirmed = False
        return RC_OK
    if o.loaded == 0:
        if u.phy_offset == o.claim_phy and u.queue_offset != o.claim_offset:
            u.queue_offset = o.claim_offset     # the value set with ConsumeQueues.claim()
            o.unconfirmed = True
        return RC_OK
    if q.unit_bytes != RC_CQ_UNIT_BYTES:
        rc = held_for(q, q.units, u, &held)
        if rc == RC_OK and held.size > 0 and held.queue_offset == wanted and held.count == u.count:
            u.queue_offset = wanted
        return rc
    rc = held_for(q, u.queue_offset, u, &held)
    if rc == RC_OK and held.size == 0:          # at its own queue offset, there is not a unit of this record
        if u.phy_offset == o.claim_phy:
            wanted = o.claim_offset
        rc = held_for(q, wanted, u, &held)
        if held.size > 0:
            u.queue_offset = wanted
            o.unconfirmed = o.unconfirmed or not q.confirmed
    return rc


cdef int held_for(ConsumeQueue* q, int64_t number, const Unit* u, Unit* held) noexcept nogil:
    """Read the loaded unit with this number. Its size is set to 0 if it is not a unit of the same record."""
    cdef int got = 0
    cdef int rc = cq_read_loaded(q, number, held, &got)
    if rc != RC_OK or got == 0 or held.phy_offset != u.phy_offset or held.size != u.size:
        held.size = 0
    return rc


cdef bint can_take_back(ConsumeQueue* q, int64_t number) noexcept nogil:
    """Whether a record with this queue offset shows that the record before it had too high an offset.

    This applies only if that record did not follow from those before it.
    """
    if q.opening.jumped_from == BEGUN:
        return number < q.units - 1 and not q.extends
    return 0 <= q.opening.jumped_from <= number <= q.opening.jumped_from + 1


cdef int take_back(ConsumeQueue* q, int64_t number) noexcept nogil:
    """Move the last record to the queue offset before this one, if that is free."""
    cdef Unit last
    cdef int got = 0
    cdef bint begun = q.opening.jumped_from == BEGUN
    cdef int rc = cq_read(q, q.units - 1, 1, &last, &got)
    if rc != RC_OK or got == 0:
        return rc
    if begun:
        rc = drop_files(q)
        if rc == RC_OK:
            rc = begin_at(q, max(number - 1, <int64_t>0))
    else:
        # Units written after it are cleared unless they are overwritten.
        q.opening.loaded = max(q.opening.loaded, q.units)
    if rc == RC_OK and number > (0 if begun else q.opening.jumped_from):
        rc = write_unit(q, number - 1, &last)
    rc_store_i64(&q.units, number)
    return rc


cdef bint is_of_another(ConsumeQueue* q, const Unit* u) noexcept nogil:
    """Whether a record belongs to a deleted topic of the same name.

    The queue offsets of the new topic began again at 0. So a record of the deleted topic is before the record of the
    first unit and has a queue offset that is not lower.
    """
    cdef QueueOpening* o = q.opening
    if u.queue_offset < o.claim_offset:
        return False
    if u.phy_offset == o.claim_phy and u.queue_offset == o.claim_offset:
        o.claim_phy = -1            # found
        return False
    o.left_out += 1
    return True


cdef int extend(ConsumeQueue* q, Unit* u) noexcept nogil:
    """Put the tags code of a unit into the extension and its address into the unit, if the extension has room."""
    cdef int rc = RC_OK
    if u.phy_offset != q.ext.put_phy_offset:        # otherwise an earlier attempt added it
        rc = ext_put(q.ext, u.tags_code, u.store_timestamp, NULL, 0, &q.ext.put_address)
        if rc == RC_OK:
            q.ext.put_phy_offset = u.phy_offset
    if rc == RC_OK:
        u.tags_code = q.ext.put_address
    return RC_OK if rc == RC_NO_ROOM else rc


cdef int restart(ConsumeQueue* q, int64_t number, bint whole) noexcept nogil:
    """Continue at the queue offset of the first dispatched record, which is not the next one of the files."""
    cdef int64_t per_file = q.file_size // q.unit_bytes
    cdef int rc = RC_OK
    if not whole:
        return RC_OUT_OF_ORDER              # earlier records may be missing: only the whole log can tell
    if q.file_count > 0 and q.units < number < q.units + per_file:
        return write_blanks(q, q.units, number)     # the log no longer has the records in between
    if q.file_count > 0:
        rc = drop_files(q)
    return begin_at(q, number) if rc == RC_OK else rc


# a queue as a whole

cdef bint is_fit(const uint8_t* topic, int32_t n) noexcept nogil:
    """Whether a topic can be the name of a folder, and of that folder only."""
    cdef int32_t i
    if n <= 0 or n > NAME_BYTES or (topic[0] == c"." and (n == 1 or n == 2 and topic[1] == c".")):
        return False
    for i in range(n):
        if topic[i] == 0 or topic[i] == c"/":
            return False
    return True


cdef ConsumeQueue* cq_new(
    QueueShared* shared, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int32_t unit_bytes,
    int64_t file_size,
) noexcept nogil:
    """Return an empty queue of a topic and queue id; NULL without memory. Free it with cq_free()."""
    cdef ConsumeQueue* q = <ConsumeQueue*>calloc(1, sizeof(ConsumeQueue) + <size_t>topic_len)
    if q == NULL:
        return NULL
    memcpy(q.topic, topic, <size_t>topic_len)
    q.shared = shared
    q.topic_len = topic_len
    q.queue_id = queue_id
    q.hash = cq_hash(topic, topic_len, queue_id)
    q.key_hash = rc_jhash_from(rc_jhash(topic, <size_t>topic_len), b"#", 1)
    q.unit_bytes = <uint8_t>unit_bytes
    q.file_size = <int32_t>file_size
    q.max_phy_offset = q.first_phy = q.start = -1
    return q


cdef void opening_init(QueueOpening* o) noexcept nogil:
    o.claim_phy = o.jumped_from = -1


cdef void cq_free(ConsumeQueue* q) noexcept nogil:
    files_free(q)
    if q.ext != NULL:
        ext_free(q.ext)
    free(q)


cdef int trimmed(ConsumeQueue* q, int fd, int64_t* end) noexcept nogil:
    """Find the position after the last nonzero byte of the last file; returns RC_OK, an errno, or RC_FILE_CUT."""
    cdef uint8_t block[RC_OS_PAGE_BYTES]
    cdef int64_t data = min(rc_data_end(fd), <int64_t>q.file_size), n, kept = 0
    if data < 0:
        return <int>-data
    while data > 0 and kept == 0:
        n = min(data, <int64_t>RC_OS_PAGE_BYTES)
        data -= n
        if pread(fd, block, <size_t>n, <off_t>data) != n:
            return RC_FILE_CUT
        kept = <int64_t>rc_trim_zeros(block, <size_t>n)
    end[0] = data + kept if kept > 0 else 0
    return RC_OK


cdef int read_unit(ConsumeQueue* q, int fd, int64_t number, Unit* u) noexcept nogil:
    """Read a unit from its file. Returns RC_OK or RC_FILE_CUT."""
    cdef uint8_t data[RC_BCQ_UNIT_BYTES]
    if pread(fd, data, q.unit_bytes, <off_t>(number * q.unit_bytes % q.file_size)) != <ssize_t>q.unit_bytes:
        return RC_FILE_CUT
    decode_unit(data, number, q.unit_bytes, u)
    return RC_OK


cdef inline int64_t last_start(const ConsumeQueue* q) noexcept nogil:
    """Return the offset of the last file of a queue that has files."""
    return q.start + <int64_t>(q.file_count - 1) * q.file_size


cdef int cq_measure(ConsumeQueue* q) noexcept nogil:
    """Find the number of units in the files that were just loaded; returns RC_OK or an errno.

    A store may have a million queues: if a queue has one file, it is opened once.
    """
    cdef QueueOpening* o = q.opening
    cdef Unit u
    cdef int64_t first, last
    cdef int fd = -1
    cdef int rc
    if q.file_count == 0:
        return RC_OK
    rc = open_idle(q, last_start(q), False, &fd)
    if rc != RC_OK:
        return rc
    last = last_start(q) // q.unit_bytes
    q.min_unit = first = q.start // q.unit_bytes
    rc = measure_last(q, fd, last, &u)
    if rc == RC_OK and first == last and q.units - first > 1:
        rc = read_unit(q, fd, first, &u)
    close_file(fd)
    if rc == RC_OK and q.units - first > 1 and (first != last or is_blank(&u)):
        rc = next_real(q, &first, q.units, &u)
    if rc == RC_OK and first < q.units and is_valid(&u):
        rc_store_i64(&q.first_phy, u.phy_offset if first == q.min_unit else -1)
        if o != NULL:
            o.claim_phy = u.phy_offset
            o.claim_offset = u.queue_offset
    return rc


cdef int measure_last(ConsumeQueue* q, int fd, int64_t first, Unit* u) noexcept nogil:
    """Set the number of units from the last file, which begins with unit `first`. Gets the last unit."""
    cdef int64_t end = 0
    cdef int rc = trimmed(q, fd, &end)
    if rc != RC_OK:
        return rc
    q.units = first + (end + q.unit_bytes - 1) // q.unit_bytes
    if q.opening != NULL:
        q.opening.loaded = q.units  # with bytes after the last unit, which cq_finish() clears
    memset(u, 0, sizeof(u[0]))
    while q.units > first:          # the last units may have nonzero bytes without being of a record
        rc = read_unit(q, fd, q.units - 1, u)
        if rc != RC_OK or u.size != 0 or u.phy_offset != 0:
            break
        q.units -= 1
    if q.units == first and rc == RC_OK:
        rc = last_of(q, q.units, u)
    elif is_blank(u):
        memset(u, 0, sizeof(u[0]))
    q.max_offset = q.units if q.unit_bytes == RC_CQ_UNIT_BYTES else u.queue_offset + u.count
    q.max_phy_offset = u.phy_offset + u.size if is_valid(u) else -1     # units_before() relies on it
    if q.shared.is_durable:
        rc_store_i64(&q.flushed, q.units * q.unit_bytes)
    return rc


cdef int begin_extension(ConsumeQueue* q, int64_t units) noexcept nogil:
    """Begin the extension again at the unit that it holds for unit number `units`."""
    cdef Unit u
    cdef ExtUnit extended
    cdef int64_t following, last = 0, first = q.start // q.unit_bytes
    cdef int rc = last_of(q, q.units, &u), got = 0
    if rc == RC_OK and is_ext_address(u.tags_code):
        rc = ext_get(q.ext, u.tags_code, &extended, NULL, 0)
        if rc == RC_END:
            q.ext.repaired += 1         # its last file is missing: rebuild it, and keep the queue
            rc = RC_OK
    if rc != RC_OK:
        return rc
    if units == 0:
        # There were never units before it, so the extension begins with its first file.
        if q.ext.files.count > 0 and q.ext.files.files[0].start > 0:
            q.ext.repaired += 1
            rc = ext_clear(q.ext)
            if rc != RC_OK:
                return rc
        return ext_begin(q.ext, 0, 0)
    rc = cq_read(q, units, 1, &u, &got)
    following = u.tags_code if rc == RC_OK and got == 1 else 0
    while rc == RC_OK and units > first and not is_ext_address(last):
        units -= 1
        rc = cq_read(q, units, 1, &u, &got)
        last = u.tags_code if rc == RC_OK and got == 1 else 0
    return ext_begin(q.ext, last if is_ext_address(last) else 0, following) if rc == RC_OK else rc


cdef int cq_begin(ConsumeQueue* q, int64_t phy_offset) noexcept nogil:
    """Trust only the units of records before a physical offset. cq_put() must confirm the units after it.

    q.opening is set.
    """
    cdef QueueOpening* o = q.opening
    cdef OpenFiles* files = NULL
    cdef FileState* f
    cdef Unit u
    cdef int64_t units
    cdef int i, rc
    q.confirmed = q.refused = False
    o.unconfirmed = False
    o.kept = o.left_out = 0
    o.jumped_from = -1
    if q.ext != NULL:
        q.ext.put_phy_offset = -1
    if q.file_count == 0:
        return ext_begin(q.ext, 0, 0) if q.extends else RC_OK
    rc = units_before(q, phy_offset, q.start // q.unit_bytes, &units)
    if rc == RC_OK and q.extends:
        rc = begin_extension(q, units)
        ext_rest(q)
    if rc == RC_OK and units != q.units:
        rc = last_of(q, units, &u)
        q.max_offset = units if q.unit_bytes == RC_CQ_UNIT_BYTES else u.queue_offset + u.count
        q.max_phy_offset = u.phy_offset + u.size if is_valid(&u) else -1
    if rc != RC_OK:
        return rc
    if not q.shared.is_durable:
        rc_store_i64(&q.flushed, units * q.unit_bytes)
    rc_store_i64(&q.units, units)
    rc = files_hold(q, FILES_PEEK, &files)
    if files != NULL:
        files.last = NULL
        files.files.flushed = q.flushed
        i = files.files.count - 1
        while i >= 0 and files.files.files[i].start + q.file_size > q.flushed:
            f = files.files.files[i]
            f.flushed = max(q.flushed - f.start, <int64_t>0)
            i -= 1
        files_release(files)
    return rc


cdef int cq_finish(ConsumeQueue* q, const int64_t* damage, int damage_count) noexcept nogil:
    """Clear the files after the last unit that the log has.

    damage  start and stop (physical offsets) of damage_count ranges of the log; messages in them keep their queue
            offsets, so that no other message gets one of these
    Returns RC_OK or an errno. RC_MORE: the files are dropped, and the log must be dispatched again. The queue left out
    records in favor of a record that the log does not have, or all records have other queue offsets than the files.
    """
    cdef QueueOpening* o = q.opening
    cdef int rc = RC_OK
    if o.unconfirmed or (o.claim_phy >= 0 and o.left_out > 0):
        o.claim_phy = -1
        rc = drop_files(q)
        return RC_MORE if rc == RC_OK else rc
    o.claim_phy = o.jumped_from = -1
    if q.units < o.loaded and damage_count > 0 and q.unit_bytes == RC_CQ_UNIT_BYTES:
        rc = keep_numbers(q, damage, damage_count)
    if rc == RC_OK and (q.units < o.loaded or (q.file_count > 1 and last_start(q) >= q.units * q.unit_bytes)):
        o.repaired += max(o.loaded - q.units, 0)
        rc = cut_files(q)
    o.loaded = 0
    if rc == RC_OK and q.extends:
        rc = ext_finish(q.ext)
        o.repaired += q.ext.repaired
        q.ext.repaired = 0
        ext_rest(q)
    return rc


cdef int cut_files(ConsumeQueue* q) noexcept nogil:
    """Delete the files after the last unit, and clear the last file after it."""
    cdef OpenFiles* files = NULL
    cdef FileState* f
    cdef int64_t end = q.units * q.unit_bytes, room
    cdef int rc = files_hold(q, FILES_MUST, &files)
    if rc != RC_OK:
        return rc
    files.last = NULL
    while rc == RC_OK and files.files.count > 1 and files.files.files[files.files.count - 1].start >= end:
        rc_raise_i64(&files.files.names, 1)
        rc = queue_remove(&files.files, files.files.count - 1)
        files_changed(q, files)
        if rc == RC_OK:
            rc = sync_names(q)
    f = queue_last(&files.files)
    if rc == RC_OK and f != NULL and q.units < q.opening.loaded:
        rc = file_clear(f, min(max(end - f.start, 0), <int64_t>f.size))
        room = max((end - f.start + RC_OS_PAGE_BYTES - 1) // RC_OS_PAGE_BYTES * RC_OS_PAGE_BYTES, 0)
        f.ready = min(f.ready, room)
        f.claimed = min(f.claimed, room)    # the page of the last unit is not empty
    files_release(files)
    return rc


cdef int keep_numbers(ConsumeQueue* q, const int64_t* damage, int damage_count) noexcept nogil:
    """Find the queue offsets of the last units whose records are damaged; returns RC_OK or an errno.

    The units are removed anyway: if a queue ends with a blank unit, RocketMQ 5 takes the queue for expired.
    """
    cdef Unit u
    cdef int rc = RC_OK, got = 0, i
    q.opening.kept = q.units
    while True:
        rc = cq_read_loaded(q, q.opening.kept, &u, &got)
        if rc != RC_OK or got == 0:
            return rc
        i = 0
        while i < damage_count and not damage[2 * i] <= u.phy_offset < damage[2 * i + 1]:
            i += 1
        if i == damage_count or u.size <= 0:
            return RC_OK
        q.opening.kept += 1


cdef int correct_min(ConsumeQueue* q, int64_t min_phy_offset) noexcept nogil:
    """Set the start of the queue to the first unit whose record exists. Source: correctMinOffset of RocketMQ 5."""
    cdef Unit u
    cdef int64_t units = rc_load_i64(&q.units)
    cdef int64_t low = max(rc_load_i64(&q.min_unit), rc_load_i64(&q.start) // q.unit_bytes)
    cdef int rc, deleted = 0
    if low >= units or (low == q.min_unit and rc_load_i64(&q.first_phy) >= min_phy_offset):
        return RC_OK
    rc = units_before(q, min_phy_offset, low, &low)
    if rc == RC_OK:
        rc = next_real(q, &low, units, &u)
    if rc == RC_OK:
        rc_store_i64(&q.first_phy, u.phy_offset if low < units and is_valid(&u) else -1)
        rc_store_i64(&q.min_unit, low)
        if q.ext != NULL and low < units and is_ext_address(u.tags_code):
            rc = ext_truncate_by_min(q.ext, u.tags_code, &deleted)
            ext_rest(q)
    return rc


cdef int cq_flush(ConsumeQueue* q, int64_t least_pages, const char** path) noexcept nogil:
    """Make written units durable if they fill at least least_pages pages. One thread at a time."""
    cdef OpenFiles* files = NULL
    cdef int64_t upto = rc_load_i64(&q.units) * q.unit_bytes, start = rc_load_i64(&q.start)
    cdef int rc = RC_OK
    if start < 0:
        rc = sync_names(q)          # names of files that were deleted at the opening, or of a new folder
        return RC_OK if rc == ENOENT else rc
    rc_store_i64(&q.flushed, max(q.flushed, start))
    if not can_flush(upto, q.flushed, -1, least_pages):
        return RC_OK
    if q.extends:
        rc = ext_flush(q.ext, path)
        ext_rest(q)
    if rc == RC_OK:
        rc = files_hold(q, FILES_PEEK, &files)
    if files != NULL:
        rc_store_i64(&files.files.flushed, max(files.files.flushed, q.flushed))
        rc = queue_flush(&files.files, upto, path)
        rc_store_i64(&q.flushed, files.files.flushed)
        if rc != RC_OK and path[0] != NULL:
            strcpy(q.shared.failed_path, path[0])       # the file may be closed when the error is reported
            path[0] = q.shared.failed_path
        files_release(files)
    if (rc == RC_OK and files == NULL) or (rc == ENOMEM and files != NULL):     # ENOMEM: too many maps
        rc = flush_idle(q, upto, path)
    return sync_names(q) if rc == RC_OK else rc


cdef int cq_delete_expired(ConsumeQueue* q, int64_t min_phy_offset, int* deleted) noexcept nogil:
    """Delete the first files whose records are all deleted, but not the last file and not a file in use.

    Source: RocketMQ ConsumeQueue.deleteExpiredFile.
    """
    cdef OpenFiles* files = NULL
    cdef int64_t expired = 0, start = rc_load_i64(&q.start)
    cdef int rc = RC_OK
    if q.file_count > 1:
        rc = units_before(q, min_phy_offset, start // q.unit_bytes, &expired)
    if rc == RC_OK and q.file_count > 1 and (start + q.file_size) // q.unit_bytes <= expired:
        rc = files_hold(q, FILES_MUST, &files)
    if files != NULL:
        start = queue_start(&files.files, 2)
        while rc == RC_OK and start >= 0 and (start + q.file_size) // q.unit_bytes <= expired:
            rc = queue_remove(&files.files, 0)
            if rc == RC_OK:
                deleted[0] += 1
                rc_raise_i64(&files.files.names, 1)
                files_changed(q, files)
                rc = sync_names(q)      # so a power cut can't remove the second file and leave the first
            start = queue_start(&files.files, 2)
        files_release(files)
    if rc == EBUSY:
        rc = RC_OK
    return correct_min(q, min_phy_offset) if rc == RC_OK else rc
