# cython: language_level=3
"""One pass over the records of a log file at its opening: where they end, and which queue offsets they take."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memcmp, memset

from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport RC_MSG_QUEUE_ID_AT, RC_MSG_STORE_TIMESTAMP_PAST
from rocketc.c.service cimport pthread_mutex_unlock
from rocketc.c.vm cimport rc_guard
from rocketc.format._record cimport Record
from rocketc.log._queue_offsets cimport QueueOffsets, QueueSlot, Stripe, offsets_taken
from rocketc.read._walk cimport Walker, phy_offset_of, record_at, record_count
from rocketc.tables._deleted_topics cimport DeletedTopicOffsets

cdef enum:
    SECTOR_BYTES = 512      # disks write that much or nothing


cdef class RecoveryPass:
    """Takes the records of one file after another: take() each walker, in their order.

    offsets  the queues' next offsets are raised to what the records say
    durable  ms: records with a store timestamp before it are known to be on the disk; those of the same millisecond
             may have come later
    flushed  physical offset before which they are; -1: it is not known, and `durable` tells
    believed  `offsets` says what consume queues tell of records before this physical offset; the first record of a
              queue from there on knows better, if it has a lower offset
    gone      topics that were deleted; the offsets of their old records are free again
    apart     bytes: the least distance between two of the `boundaries`, and from where take() began
    """
    def __cinit__(
        self, QueueOffsets offsets not None, int64_t durable, int64_t believed=INT64_MAX, *, int64_t flushed=-1,
        DeletedTopicOffsets gone=None, int64_t apart=INT64_MAX,
    ):
        self.offsets = offsets
        self.durable = durable
        self.flushed = flushed
        self.believed = believed
        self.gone = gone
        self.boundaries = []
        self._apart = apart
        self.end = self.durable_end = self.torn = self.torn_end = -1
        memset(self._recent, 0, sizeof(self._recent))

    def take(self, Walker walker not None):
        """Walk to the end of what walker reads; True if a blank record ended the file. Raises as the walker does."""
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
            if walker.cut_in_block(0) == 0:     # what is noted twice stays what it is
                for i in range(found):
                    self.boundaries.append(self._found[i])
        return walker.blanks > 0

    cdef int _note(self, const Record* r, int64_t start) noexcept nogil:
        cdef int64_t taken = offsets_taken(r)
        self.records += 1
        self.end = start + r.size
        self.timestamp = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST)
        if is_torn(r):
            if self.torn < 0:
                self.torn = start
                self.torn_end = self.end
        elif self.end <= self.flushed or (self.flushed < 0 and self.timestamp < self.durable):
            self.durable_end = self.end
            self.torn = self.torn_end = -1      # what stands before it was durable as it is
        if taken == 0:
            return 0
        if self.gone is not None and self.gone.has(r.topic, r.topic_len, start):
            return 0
        return self._raise(r, r.queue_offset + taken, start >= self.believed)

    cdef int _raise(self, const Record* r, int64_t next_offset, bint tells) noexcept nogil:
        """Let a record's queue go on at next_offset at least.

        tells  nothing of the queue that is behind the record is in `offsets` yet
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
        if tells and not slot.met:
            slot.met = True
            slot.next_offset = min(slot.next_offset, max(r.queue_offset, <int64_t>0))   # it was damage that said more
        if r.queue_offset < 0:
            next_offset = slot.next_offset + 1      # damage: it had a number all the same
        if slot.next_offset < next_offset:
            slot.next_offset = next_offset
        return 0


cdef bint is_torn(const Record* r) noexcept nogil:
    """Whether the end of a record that passed its checks is missing, or a sector of its properties.

    The body's CRC covers neither, but zeros there are no text: a record ends in a separator or a letter, or in a topic
    without properties. Records lie in a map, so sectors of the file are sectors of addresses.
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
