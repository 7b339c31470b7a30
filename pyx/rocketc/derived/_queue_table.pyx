# cython: language_level=3
"""A table of the consume queues of a store by topic and queue id. What is done with queues is in _consume_queues.

Source: RocketMQ ConsumeQueueStore.
"""
import os
from array import array

from libc.errno cimport ENOMEM
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_load_i64, rc_load_pointer, rc_load_u8
from rocketc.c.layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES
from rocketc.c.service cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_OK, RC_UNFIT_TOPIC
from rocketc.derived._consume_queue cimport cq_free, cq_new, is_fit, opening_init
from rocketc.derived._consume_queue_ext cimport ExtQueue, ext_new
from rocketc.derived._consume_queue_units cimport is_named
from rocketc.derived._queue_files cimport (
    ConsumeQueue, QueueCounters, QueueOpening, make_folders, shared_free, shared_new,
)
from rocketc.files._append_file cimport FILE_READ, FILE_SPARSE
from rocketc.files._file_queue cimport queue_bytes
from rocketc.files._guard cimport install
from rocketc.format._queue_units cimport is_light
from rocketc.format._text_table cimport KEEP, SKIP, TextTable
from rocketc.log._queue_offsets cimport cq_hash

cdef enum:
    FIRST_BUCKETS = 64
    OPENINGS = 4096             # in a block


cdef class QueueTable:
    """The queues of a ConsumeQueues by topic and queue id. It takes the same arguments."""

    def __cinit__(
        self, str root not None, int64_t file_size=6_000_000, int64_t batch_file_size=13_800_000, *, batch_topics=(),
        int64_t ext_file_size=0, int open_queues=8192, bint read_only=False,
    ):
        self._folder = os.fsencode(os.path.join(root, "consumequeue"))
        self._batch_folder = os.fsencode(os.path.join(root, "batchconsumequeue"))
        self._file_size = -(-file_size // RC_CQ_UNIT_BYTES) * RC_CQ_UNIT_BYTES
        self._batch_file_size = batch_file_size // RC_BCQ_UNIT_BYTES * RC_BCQ_UNIT_BYTES
        for name, size in (("consume_queue", self._file_size), ("batch_consume_queue", self._batch_file_size)):
            if not RC_BCQ_UNIT_BYTES <= size <= INT32_MAX:
                raise ValueError(f"mapped_file_size_{name}: {size} bytes; allowed: {RC_BCQ_UNIT_BYTES} to {INT32_MAX}")
        self._ext_folder = os.fsencode(os.path.join(root, "consumequeue_ext"))
        self._ext_above = self._ext_folder
        self._ext_file_size = ext_file_size
        self._extends = ext_file_size > 0 and not read_only
        self._extended = self._extends
        self.read_only = read_only
        self._batch_topics = TextTable()
        for topic in batch_topics:
            self.add_batch_topic(topic)
        install()
        check(pthread_mutex_init(&self._mutex, NULL))
        self._ready = True
        self._mask = FIRST_BUCKETS - 1
        self._buckets = <ConsumeQueue**>calloc(FIRST_BUCKETS, sizeof(ConsumeQueue*))
        self._shared = shared_new(
            self._folder, self._batch_folder, <int>FILE_READ if read_only else <int>FILE_SPARSE,
            open_queues if open_queues > 1 else 1,
        )
        if self._buckets == NULL or self._shared == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef ConsumeQueue* q = self._without_folder
        cdef ConsumeQueue* following
        cdef int i
        while q != NULL:
            following = q.next
            cq_free(q)
            q = following
        self._end_opening()
        for i in range(self._count):
            cq_free(self._all[i])
        free(self._all)
        free(self._buckets)
        shared_free(self._shared)
        if self._ready:
            pthread_mutex_destroy(&self._mutex)

    # lookup

    cdef ConsumeQueue* _known(self, const uint8_t* topic, int32_t n, int32_t queue_id, uint32_t h) noexcept nogil:
        cdef ConsumeQueue* q = self._buckets[h & self._mask]
        while q != NULL:
            if is_named(q, topic, n, queue_id, h) and q.dead == 0:
                return q
            q = q.next
        return NULL

    cdef ConsumeQueue* find(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil:
        """Return the queue, or NULL. The queue stays in memory as long as this object."""
        cdef ConsumeQueue* q
        pthread_mutex_lock(&self._mutex)
        q = self._known(topic, topic_len, queue_id, cq_hash(topic, topic_len, queue_id))
        pthread_mutex_unlock(&self._mutex)
        return q

    cdef ConsumeQueue* nth(self, int i) noexcept nogil:
        """Return queue number i in order of creation, or NULL if there are fewer. Queues may be added meanwhile."""
        cdef ConsumeQueue* q = NULL
        pthread_mutex_lock(&self._mutex)
        if i < self._count:
            q = self._all[i]
        pthread_mutex_unlock(&self._mutex)
        return q

    cdef ConsumeQueue* next_there(self, int* i) noexcept nogil:
        """Return the first queue from number i[0] that is not deleted, or NULL; set i[0] to the number after it."""
        cdef ConsumeQueue* q
        while True:
            q = self.nth(i[0])
            i[0] += 1
            if q == NULL or rc_load_u8(&q.dead) == 0:
                return q

    cdef int make(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, ConsumeQueue** queue,
    ) noexcept nogil:
        """Find a queue, or create an empty one. Only the dispatcher calls it.

        batch  the record is an inner batch; the first record of a topic decides the type, unless it is known
        queue  set; also if its folder can't be created: the path is in it
        Returns RC_OK, RC_UNFIT_TOPIC, or an errno.
        """
        cdef ConsumeQueue* q = self.find(topic, topic_len, queue_id)
        cdef int rc
        if q == NULL:
            if not is_fit(topic, topic_len) or queue_id < 0:
                return RC_UNFIT_TOPIC
            pthread_mutex_lock(&self._mutex)
            batch = batch or self._batch_topics.get(topic, topic_len) == KEEP
            pthread_mutex_unlock(&self._mutex)
            q = self._without_folder
            if q == NULL or not is_named(q, topic, topic_len, queue_id, cq_hash(topic, topic_len, queue_id)):
                q = self._new(topic, topic_len, queue_id, batch)
                if q == NULL:
                    return ENOMEM
                q.next = self._without_folder
                self._without_folder = q
            queue[0] = q
            rc = make_folders(q)
            if rc == RC_OK and self._extends and not batch and not is_light(topic, topic_len):
                q.ext = self._new_ext(topic, topic_len, queue_id)
                q.extends = True
                rc = RC_OK if q.ext != NULL else ENOMEM
            if rc != RC_OK:
                return rc
            self._without_folder = q.next
            if not self._add(q):
                cq_free(q)
                queue[0] = NULL
                return ENOMEM
        queue[0] = q
        return RC_OK

    cdef ConsumeQueue* _new(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch,
    ) noexcept nogil:
        return cq_new(
            self._shared, topic, topic_len, queue_id, RC_BCQ_UNIT_BYTES if batch else RC_CQ_UNIT_BYTES,
            self._batch_file_size if batch else self._file_size,
        )

    cdef ExtQueue* _new_ext(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil:
        cdef int kind = <int>FILE_READ if self.read_only else <int>FILE_SPARSE
        return ext_new(self._ext_above, topic, topic_len, queue_id, self._ext_file_size, kind)

    cdef bint _add(self, ConsumeQueue* q) noexcept nogil:
        """Add a queue to the table. Returns False if there is not enough memory."""
        cdef bint fits
        pthread_mutex_lock(&self._mutex)
        fits = self._make_room() and (self._is_open or self._set_opening(q))
        if fits:
            self._all[self._count] = q
            q.next = self._buckets[q.hash & self._mask]
            self._buckets[q.hash & self._mask] = q
            self._count += 1
        pthread_mutex_unlock(&self._mutex)
        return fits

    cdef bint _set_opening(self, ConsumeQueue* q) noexcept nogil:
        """Give a queue a place for what only an opening needs. Return False without memory. The mutex is locked."""
        cdef QueueOpening** blocks
        cdef int block = self._opening_count // OPENINGS
        if self._opening_count % OPENINGS == 0:
            blocks = <QueueOpening**>realloc(self._openings, <size_t>(block + 1) * sizeof(QueueOpening*))
            if blocks == NULL:
                return False
            self._openings = blocks
            blocks[block] = <QueueOpening*>calloc(OPENINGS, sizeof(QueueOpening))
            if blocks[block] == NULL:
                return False
        q.opening = &self._openings[block][self._opening_count % OPENINGS]
        opening_init(q.opening)
        self._opening_count += 1
        return True

    cdef void _end_opening(self) noexcept nogil:
        """Free what only an opening needs."""
        cdef int i
        for i in range(self._count):
            self._all[i].opening = NULL
        for i in range((self._opening_count + OPENINGS - 1) // OPENINGS):
            free(self._openings[i])
        free(self._openings)
        self._openings = NULL
        self._opening_count = 0
        self._is_open = True

    cdef bint _make_room(self) noexcept nogil:
        """Make room for one more queue in the list and the table. The mutex is locked."""
        cdef ConsumeQueue** all
        cdef ConsumeQueue** buckets
        cdef int room = 2 * self._room + FIRST_BUCKETS, i
        cdef uint32_t mask = self._mask
        if self._count < self._room:
            return True
        all = <ConsumeQueue**>realloc(self._all, <size_t>room * sizeof(ConsumeQueue*))
        if all == NULL:
            return False
        self._all = all
        while mask < <uint32_t>room:
            mask = 2 * mask + 1
        buckets = <ConsumeQueue**>calloc(<size_t>mask + 1, sizeof(ConsumeQueue*))
        if buckets == NULL:
            return False
        for i in range(self._count):
            self._all[i].next = buckets[self._all[i].hash & mask]
            buckets[self._all[i].hash & mask] = self._all[i]
        free(self._buckets)
        self._buckets = buckets
        self._mask = mask
        self._room = room
        return True

    def add_batch_topic(self, str topic, bint is_one=True):
        """Make new queues of this topic batch queues, or simple queues if is_one is false."""
        cdef bytes name = topic.encode("utf-8", "surrogateescape")
        cdef int verdict = <int>KEEP if is_one else <int>SKIP
        pthread_mutex_lock(&self._mutex)
        try:
            self._batch_topics.put(<const uint8_t*><const char*>name, <int>len(name), verdict)
        finally:
            pthread_mutex_unlock(&self._mutex)

    def __len__(self):
        cdef int count
        pthread_mutex_lock(&self._mutex)
        count = self._count
        pthread_mutex_unlock(&self._mutex)
        return count

    def items(self):
        """Return (topic, queue id) of each queue."""
        return [(topic, queue_id) for topic, queue_id, _ in self.phy_ends()]

    def ends(self):
        """Return the queue offset after the last message of each queue as an array("q"), in the order of items()."""
        cdef int64_t[::1] found
        cdef int i, count = 0
        ends = array("q", bytes(8 * self._count))
        if self._count > 0:
            found = ends
            for i in range(self._count):
                if self._all[i].dead == 0:
                    found[count] = self._all[i].max_offset
                    count += 1
            found = None
            del ends[count:]
        return ends

    def phy_ends(self):
        """Return (topic, queue id, physical offset after its last record or -1 without records) of each queue."""
        cdef int i = 0
        cdef ConsumeQueue* q = self.next_there(&i)
        cdef list found = []
        while q != NULL:
            found.append((*key_of(q), rc_load_i64(&q.max_phy_offset)))
            q = self.next_there(&i)
        return found

    def counts(self):
        """Return a tuple for each existing queue, with the current numbers.

        - topic, queue id
        - number of the first unit
        - queue offset after the last message
        - physical offset after the record of the last message; -1 without records
        - messages added since the store was opened, and bytes of their records
        - messages that readers got, and bytes of their records
        - bytes of its files
        """
        cdef int i = 0
        cdef ConsumeQueue* q = self.next_there(&i)
        cdef QueueCounters none
        cdef QueueCounters* c
        cdef list found = []
        memset(&none, 0, sizeof(none))
        while q != NULL:
            c = <QueueCounters*>rc_load_pointer(&q.counters)
            c = &none if c == NULL else c
            found.append((
                *key_of(q), rc_load_i64(&q.min_unit), rc_load_i64(&q.max_offset), rc_load_i64(&q.max_phy_offset),
                rc_load_i64(&c.came), rc_load_i64(&c.came_bytes), rc_load_i64(&c.given), rc_load_i64(&c.given_bytes),
                <int64_t>q.file_count * q.file_size + (queue_bytes(&q.ext.files) if q.ext != NULL else 0),
            ))
            q = self.next_there(&i)
        return found

    def claims(self):
        """Return {(topic, queue id): (physical offset, queue offset)} of the first record in each queue, as loaded."""
        cdef ConsumeQueue* q
        cdef int i
        cdef dict found = {}
        for i in range(self._count):
            q = self._all[i]
            if q.dead == 0 and q.opening != NULL and q.opening.claim_phy >= 0:
                found[key_of(q)] = q.opening.claim_phy, q.opening.claim_offset
        return found

    def repeated(self):
        """Return (topic, queue id) of queues that got a queue offset twice: the topic was deleted and created again."""
        cdef int i
        return [key_of(self._all[i]) for i in range(self._count) if self._all[i].repeated > 0]

    def made_again(self):
        """Return the queues that left out records before the first record of their files.

        Each is (topic, queue id, whether the log has the first record of its files). If so, the topic was deleted and
        created again.
        """
        cdef QueueOpening* o
        cdef list found = []
        cdef int i
        for i in range(self._count):
            o = self._all[i].opening
            if o != NULL and o.left_out > 0:
                found.append((*key_of(self._all[i]), o.claim_phy < 0))
        return found


cdef tuple key_of(ConsumeQueue* q):
    """Return (topic, queue id) of a queue."""
    return q.topic[:q.topic_len].decode("utf-8", "surrogateescape"), q.queue_id
