# cython: language_level=3
"""One pass over the records of the log when it is opened: where they end, and which queue offsets they take."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.string cimport memcmp, memset

from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport RC_MSG_QUEUE_ID_AT, RC_MSG_STORE_TIMESTAMP_PAST
from rocketc.c.service cimport pthread_mutex_unlock
from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_guard
from rocketc.format._record cimport Record
from rocketc.log._queue_offsets cimport QueueOffsets, QueueSlot, Stripe, offsets_taken
from rocketc.read._walk cimport Walker, phy_offset_of, record_at, record_count
from rocketc.tables._deleted_topics cimport DeletedTopicOffsets

cdef enum:
    SECTOR_BYTES = 512      # a disk writes a whole sector or none of it


cdef class RecoveryPass:
    """Reads the records of one file after another: call take() for each walker, in the order of the files.

    offsets         next queue offsets; raised to what the records say
    durable         ms: records with an earlier store timestamp are known to be durable; records of the same millisecond
                    may have been stored later
    flushed         physical offset before which records are durable; -1: unknown, then `durable` decides
    trusted         physical offset: for records before it, `offsets` holds what the consume queues say. From there on,
                    the first record of a queue replaces that value if its queue offset is lower
    deleted_topics  the queue offsets of their old records are free again
    apart           bytes: the least distance between two `boundaries`, and between the start of take() and the first
                    one
    mark            physical offset: `mark_time` is the store timestamp of the record that ends there
    Several threads can read parts of the log, each with a pass of its own. merge() puts them together.
    """
    def __cinit__(
        self, QueueOffsets offsets not None, int64_t durable, int64_t trusted=INT64_MAX, *, int64_t flushed=-1,
        DeletedTopicOffsets deleted_topics=None, int64_t apart=INT64_MAX, int64_t mark=-1,
    ):
        self.offsets = offsets
        self.durable = durable
        self.flushed = flushed
        self.trusted = trusted
        self.deleted_topics = deleted_topics
        self.boundaries = []
        self._apart = apart
        self.mark = mark
        self.end = self.durable_end = self.torn = self.torn_end = self.first = self.mark_time = -1
        memset(self._recent, 0, sizeof(self._recent))

    def take(self, Walker walker not None):
        """Read all records of a walker. Return True if a blank record ended the file. Raises what the walker raises."""
        cdef rc_guard guard
        cdef const Record* r
        cdef int i, found
        cdef bint short_of_memory
        self._next_boundary = self._apart + min(<int64_t>walker.position, INT64_MAX - self._apart)
        while walker.next_block():
            short_of_memory = False
            found = 0
            with nogil:
                walker.enter(&guard)
                for i in range(record_count(walker)):
                    r = record_at(walker, i)
                    if self._note(r, phy_offset_of(walker, r)) != 0:
                        short_of_memory = True
                        break
                    if self.end >= self._next_boundary:
                        self._found[found] = self.end
                        self._next_boundary = self._apart + min(self.end, INT64_MAX - self._apart)
                        found += 1
                walker.leave(&guard)
            if short_of_memory:
                raise MemoryError
            if walker.cut_in_block(0) == 0:     # noting a record twice changes nothing
                for i in range(found):
                    self.boundaries.append(self._found[i])
        return walker.blanks > 0

    def part(self):
        """Return a new pass for a later part of the log, to be merged into this one."""
        return RecoveryPass(
            QueueOffsets(1), self.durable, 0, flushed=self.flushed, deleted_topics=self.deleted_topics,
            apart=self._apart, mark=self.mark,
        )

    def merge(self, RecoveryPass part not None):
        """Take the records that part(), a pass of its own, has read. Afterwards this pass is as if it had read them.

        part  has records, the first of which begins where this pass ends, and is not `odd`
        """
        cdef int rc
        if part.first < 0 or part.odd:
            raise ValueError("a part without records, or with a damaged queue offset, can't be merged")
        with nogil:
            rc = self._merge_offsets(part.offsets, part.first >= self.trusted)
        if rc != RC_OK:
            raise MemoryError
        if self.first < 0:
            self.first = part.first
        if part.durable_end >= 0:
            self.durable_end = part.durable_end
            self.torn, self.torn_end = part.torn, part.torn_end
        elif self.torn < 0:
            self.torn, self.torn_end = part.torn, part.torn_end
        if part.mark_time >= 0:
            self.mark_time = part.mark_time
        self.records += part.records
        self.end = part.end
        self.timestamp = part.timestamp
        self.boundaries += part.boundaries

    cdef int _merge_offsets(self, QueueOffsets of, bint may_lower) noexcept nogil:
        """Do what _raise() would do for all records of a part. Returns RC_OK, or -1 without memory."""
        cdef int i
        cdef uint32_t b
        cdef QueueSlot* slot
        cdef QueueSlot* to
        cdef Stripe* from_stripe
        cdef Stripe* stripe
        for i in range(of._stripe_count):
            from_stripe = &of._stripes[i]
            if from_stripe.buckets == NULL:
                continue
            for b in range(from_stripe.mask + 1):
                slot = from_stripe.buckets[b]
                while slot != NULL:
                    to = self.offsets.lock(slot.topic, slot.topic_len, slot.queue_id, &stripe)
                    if to == NULL:
                        return -1
                    # The first record may lower the offset, but the part's own records raise it again.
                    if may_lower and not to.seen:
                        to.seen = True
                        to.next_offset = slot.next_offset
                    to.next_offset = max(to.next_offset, slot.next_offset)
                    pthread_mutex_unlock(&stripe.mutex)
                    slot = slot.next
        return RC_OK

    cdef int _note(self, const Record* r, int64_t start) noexcept nogil:
        cdef int64_t taken = offsets_taken(r)
        self.records += 1
        self.end = start + r.size
        self.timestamp = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST)
        if self.first < 0:
            self.first = start
        if self.end == self.mark:
            self.mark_time = max(self.timestamp, <int64_t>0)
        if is_torn(r):
            if self.torn < 0:
                self.torn = start
                self.torn_end = self.end
        elif self.end <= self.flushed or (self.flushed < 0 and self.timestamp < self.durable):
            self.durable_end = self.end
            self.torn = self.torn_end = -1      # the bytes before it were durable, so they are not torn
        if taken == 0:
            return 0
        if self.deleted_topics is not None and self.deleted_topics.has(r.topic, r.topic_len, start):
            return 0
        return self._raise(r, r.queue_offset + taken, start >= self.trusted)

    cdef int _raise(self, const Record* r, int64_t next_offset, bint may_lower) noexcept nogil:
        """Raise the next offset of the record's queue to at least next_offset.

        may_lower  `offsets` has nothing yet of this queue's records after this one
        """
        cdef int32_t queue_id = rc_get_i32(r.at + RC_MSG_QUEUE_ID_AT)
        cdef int at = (queue_id + r.topic_len) & (RECENT - 1)
        cdef QueueSlot* slot = self._recent[at]
        cdef Stripe* stripe
        if (
            slot == NULL or slot.queue_id != queue_id or slot.topic_len != r.topic_len
            or memcmp(slot.topic, r.topic, <size_t>r.topic_len) != 0
        ):
            slot = self.offsets.lock(r.topic, r.topic_len, queue_id, &stripe)
            if slot == NULL:
                return -1
            pthread_mutex_unlock(&stripe.mutex)
            self._recent[at] = slot
        if may_lower and not slot.seen:
            slot.seen = True
            slot.next_offset = min(slot.next_offset, max(r.queue_offset, <int64_t>0))   # a damaged record said more
        if r.queue_offset < 0:
            self.odd = True
            next_offset = slot.next_offset + 1      # the queue offset is damaged, but the record has one
        if slot.next_offset < next_offset:
            slot.next_offset = next_offset
        return 0


cdef bint is_torn(const Record* r) noexcept nogil:
    """Whether a record that passed its checks lacks its end or a sector of its properties.

    The CRC of the body covers neither. But zeros are not valid there: a record ends in a separator or a letter, or,
    without properties, in its topic. Records are in a map, so sectors of the file are aligned in memory too.
    """
    cdef int64_t at = -<int64_t>r.props & (SECTOR_BYTES - 1)
    if r.props_len == 0:
        return r.topic_len > 0 and r.topic[r.topic_len - 1] == 0
    if r.props[r.props_len - 1] == 0:
        return True
    while at + SECTOR_BYTES <= r.props_len:
        if r.props[at] == 0 and memcmp(r.props + at, r.props + at + 1, SECTOR_BYTES - 1) == 0:
            return True
        at += SECTOR_BYTES
    return False
