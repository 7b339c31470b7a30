# cython: language_level=3
"""The next queue offset of each topic and queue id.

A put holds the lock of its queue from the moment it takes an offset until the record is in the log. So the queue
offsets of one queue grow with the physical offsets. Queues share a few locks, as in RocketMQ (topicQueueLockNum).
Source: RocketMQ TopicQueueLock, QueueOffsetOperator.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from rocketc.c.layout cimport (
    RC_FLAG_INNER_BATCH, RC_FLAG_PREPARED, RC_FLAG_ROLLBACK, RC_FLAG_TRANSACTION_MASK, RC_PROPERTY_INNER_NUM,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.c.service cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_unlock,
)
from rocketc.c.status cimport RC_OK
from rocketc.format._record cimport Record

cdef extern from *:
    int rc_low_bit "__builtin_ctzll"(uint64_t bits) noexcept nogil

cdef enum:
    FIRST_BUCKETS = 16
    MOST_STRIPES = 64       # a set of stripes fits into 64 bits


cdef int64_t inner_count(const Record* r) noexcept nogil:
    """The decimal number in the property INNER_NUM, at most 5 digits (an i16); 0 if there is none."""
    cdef int at = 0, i
    cdef int n = rc_find_property(r.props, r.props_len, RC_PROPERTY_INNER_NUM, &at)
    cdef int64_t v = 0
    if n > 5:
        return 0
    for i in range(n):
        if r.props[at + i] < c"0" or r.props[at + i] > c"9":
            return 0
        v = 10 * v + (r.props[at + i] - c"0")
    return v


cdef int64_t offsets_taken(const Record* r) noexcept nogil:
    """The number of queue offsets that a record takes: 1, or the messages of an inner batch. 0 for a half message and a
    rollback, which are not in a queue. Source: RocketMQ CommitLog.onCommitLogAppend."""
    cdef int32_t transaction = r.sys_flag & RC_FLAG_TRANSACTION_MASK
    if transaction == RC_FLAG_PREPARED or transaction == RC_FLAG_ROLLBACK:
        return 0
    return max(inner_count(r), <int64_t>1) if r.sys_flag & RC_FLAG_INNER_BATCH else 1


cdef class QueueOffsets:
    """Next queue offsets, guarded by `stripes` locks (topicQueueLockNum), at most 64."""

    def __cinit__(self, int stripes=32):
        cdef int i
        if stripes < 1:
            raise ValueError(f"topic_queue_lock_num={stripes}: at least 1")
        stripes = min(stripes, MOST_STRIPES)
        self._stripes = <Stripe*>calloc(<size_t>stripes, sizeof(Stripe))
        if self._stripes == NULL:
            raise MemoryError
        for i in range(stripes):
            pthread_mutex_init(&self._stripes[i].mutex, NULL)
            self._stripe_count += 1

    def __dealloc__(self):
        cdef int i
        cdef uint32_t b
        cdef QueueSlot* slot
        cdef QueueSlot* next
        for i in range(self._stripe_count):
            if self._stripes[i].buckets != NULL:
                for b in range(self._stripes[i].mask + 1):
                    slot = self._stripes[i].buckets[b]
                    while slot != NULL:
                        next = slot.next
                        free(slot)
                        slot = next
            free(self._stripes[i].buckets)
            pthread_mutex_destroy(&self._stripes[i].mutex)
        free(self._stripes)

    cdef QueueSlot* lock(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, Stripe** stripe,
    ) noexcept nogil:
        """Return the slot of a queue, created if new, with its stripe locked (unlock stripe.mutex); NULL without
        memory."""
        cdef uint32_t h = cq_hash(topic, topic_len, queue_id)
        cdef QueueSlot* slot
        stripe[0] = &self._stripes[self._number_of(h)]
        pthread_mutex_lock(&stripe[0].mutex)
        slot = self.slot(topic, topic_len, queue_id, h)
        if slot == NULL:
            pthread_mutex_unlock(&stripe[0].mutex)
        return slot

    cdef int _number_of(self, uint32_t h) noexcept nogil:
        """Return the stripe for a hash. It has other bits than the bucket, or most buckets of a stripe stay empty."""
        return <int>((h >> 24) % <uint32_t>self._stripe_count)

    cdef uint64_t stripe_of(self, uint32_t h) noexcept nogil:
        """Return the stripe of the queues with this hash as a set of one bit, for lock_stripes()."""
        return <uint64_t>1 << self._number_of(h)

    cdef bint lock_stripes(self, uint64_t which, bint at_once) noexcept nogil:
        """Lock several stripes, in one order for all callers. With at_once, do not wait: return False, with no stripe
        locked, if another thread holds one."""
        cdef uint64_t left = which
        cdef int i
        while left != 0:
            i = rc_low_bit(left)
            if not at_once:
                pthread_mutex_lock(&self._stripes[i].mutex)
            elif pthread_mutex_trylock(&self._stripes[i].mutex) != 0:
                self.unlock_stripes(which ^ left)
                return False
            left &= left - 1
        return True

    cdef void unlock_stripes(self, uint64_t which) noexcept nogil:
        while which != 0:
            pthread_mutex_unlock(&self._stripes[rc_low_bit(which)].mutex)
            which &= which - 1

    cdef uint64_t all_stripes(self) noexcept nogil:
        """Return the set of all stripes. While they are locked, no put can run."""
        return ~<uint64_t>0 >> (MOST_STRIPES - self._stripe_count)

    cdef QueueSlot* slot(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, uint32_t h,
    ) noexcept nogil:
        """Return the slot of a queue, created if new; NULL without memory. Its stripe is locked.

        h  cq_hash() of topic and queue id
        """
        cdef Stripe* s = &self._stripes[self._number_of(h)]
        cdef QueueSlot* slot
        if s.buckets != NULL:
            slot = s.buckets[h & s.mask]
            while slot != NULL:
                if (
                    slot.hash == h and slot.queue_id == queue_id and slot.topic_len == topic_len
                    and memcmp(slot.topic, topic, <size_t>topic_len) == 0
                ):
                    return slot
                slot = slot.next
        return self._add(s, h, topic, topic_len, queue_id)

    cdef QueueSlot* _add(
        self, Stripe* s, uint32_t h, const uint8_t* topic, int32_t topic_len, int32_t queue_id,
    ) noexcept nogil:
        cdef QueueSlot* slot
        if (s.buckets == NULL or s.count > s.mask) and not grow(s):
            return NULL
        slot = <QueueSlot*>malloc(sizeof(QueueSlot) + <size_t>topic_len)
        if slot == NULL:
            return NULL
        slot.hash = h
        slot.queue_id = queue_id
        slot.topic_len = topic_len
        slot.next_offset = 0
        slot.held = 1 if s.holding else 0
        slot.has_room = slot.seen = False
        memcpy(slot.topic, topic, <size_t>topic_len)
        slot.next = s.buckets[h & s.mask]
        s.buckets[h & s.mask] = slot
        s.count += 1
        return slot

    cdef int raise_to(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t next_offset,
    ) noexcept nogil:
        """Raise the next offset of a queue to at least next_offset. Return 0, or -1 without memory."""
        cdef Stripe* stripe
        cdef QueueSlot* slot = self.lock(topic, topic_len, queue_id, &stripe)
        if slot == NULL:
            return -1
        slot.next_offset = max(slot.next_offset, next_offset)
        pthread_mutex_unlock(&stripe.mutex)
        return RC_OK

    cdef int64_t peek(self, str topic, int32_t queue_id) except -1:
        """The offset of the next message of a queue, unless another put comes first."""
        cdef bytes text = topic.encode("utf-8", "surrogateescape")
        cdef Stripe* stripe
        cdef QueueSlot* slot = self.lock(<const uint8_t*><const char*>text, <int32_t>len(text), queue_id, &stripe)
        cdef int64_t offset
        if slot == NULL:
            raise MemoryError
        offset = slot.next_offset
        pthread_mutex_unlock(&stripe.mutex)
        return offset

    def next_offset(self, str topic, int32_t queue_id):
        """The offset of the next message of a queue; 0 for a queue without messages."""
        return dict(self.items()).get((topic, queue_id), 0)

    def items(self):
        """((topic, queue id), next offset) of each queue that has a slot."""
        cdef int i
        cdef uint32_t b
        cdef QueueSlot* slot
        cdef list found = []
        for i in range(self._stripe_count):
            pthread_mutex_lock(&self._stripes[i].mutex)
            if self._stripes[i].buckets != NULL:
                for b in range(self._stripes[i].mask + 1):
                    slot = self._stripes[i].buckets[b]
                    while slot != NULL:
                        key = (slot.topic[:slot.topic_len].decode("utf-8", "surrogateescape"), slot.queue_id)
                        found.append((key, slot.next_offset))
                        slot = slot.next
            pthread_mutex_unlock(&self._stripes[i].mutex)
        return found

    def hold(self, set topics not None):
        """Make puts to these topics, and puts to new queues, wait until release() is called.

        topics  their names, UTF-8
        When this returns, all earlier puts to these topics are in the log. One thread at a time may call it.
        """
        self._mark(topics, True)

    def reset(self, set queues not None):
        """Set the next offset of queues to 0. Each queue is (topic in UTF-8, queue id)."""
        cdef Stripe* stripe
        cdef QueueSlot* slot
        cdef bytes topic
        for topic, queue_id in queues:
            slot = self.lock(<const uint8_t*><const char*>topic, <int32_t>len(topic), queue_id, &stripe)
            if slot == NULL:
                raise MemoryError
            slot.next_offset = 0
            slot.has_room = 0
            pthread_mutex_unlock(&stripe.mutex)

    def release(self):
        """End hold(): let the puts continue."""
        self._mark(set(), False)

    def _mark(self, set topics, bint holding):
        """Hold the queues of these topics. Of all others, only new queues are held, if `holding`."""
        cdef int i
        cdef uint32_t b
        cdef QueueSlot* slot
        for i in range(self._stripe_count):
            pthread_mutex_lock(&self._stripes[i].mutex)     # its holder never waits for the GIL
            self._stripes[i].holding = holding
            if self._stripes[i].buckets != NULL:
                for b in range(self._stripes[i].mask + 1):
                    slot = self._stripes[i].buckets[b]
                    while slot != NULL:
                        slot.held = 1 if len(topics) > 0 and slot.topic[:slot.topic_len] in topics else 0
                        slot = slot.next
            pthread_mutex_unlock(&self._stripes[i].mutex)

    def set_at_least(self, str topic, int32_t queue_id, int64_t next_offset):
        """Raise the next offset of a queue to at least next_offset."""
        cdef bytes text = topic.encode("utf-8", "surrogateescape")
        if self.raise_to(<const uint8_t*><const char*>text, <int32_t>len(text), queue_id, next_offset) != RC_OK:
            raise MemoryError


cdef bint grow(Stripe* s) noexcept nogil:
    """Double the number of buckets. Return False without memory if there are none yet; nothing is changed then."""
    cdef uint32_t count = FIRST_BUCKETS, b
    cdef QueueSlot* slot
    cdef QueueSlot* next
    cdef QueueSlot** buckets
    if s.buckets != NULL:
        count = 2 * (s.mask + 1)
    buckets = <QueueSlot**>calloc(count, sizeof(QueueSlot*))
    if buckets == NULL:
        return s.buckets != NULL        # slower, but correct
    if s.buckets != NULL:
        for b in range(s.mask + 1):
            slot = s.buckets[b]
            while slot != NULL:
                next = slot.next
                slot.next = buckets[slot.hash & (count - 1)]
                buckets[slot.hash & (count - 1)] = slot
                slot = next
    free(s.buckets)
    s.buckets = buckets
    s.mask = count - 1
    return True
