# cython: language_level=3
"""An extension outside of the package that follows the change feed of a store in C, without the GIL."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from rocketc.c.atomic cimport rc_add_i64, rc_load_i64, rc_store_i64
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport RC_CLOSED, RC_FLUSH_TIMEOUT, RC_MORE, RC_OK
from rocketc.derived._change_feed cimport (
    FEED_MANY, FEED_PORTION, ChangeFeed, QueueChange, Subscriber, queue_bit,
)

CODES = {"ok": RC_OK, "more": RC_MORE, "timeout": RC_FLUSH_TIMEOUT, "closed": RC_CLOSED}


cdef void count_one(void* argument) noexcept nogil:
    rc_add_i64(<int64_t*>argument, 1)


cdef class Follower:
    """A subscriber with a callback that counts its calls.

    queue  (topic, queue id), or None for all
    """
    cdef ChangeFeed feed
    cdef Subscriber* subscriber
    cdef int64_t called
    cdef int64_t stop
    cdef readonly int64_t changes       # received by run()
    cdef readonly int64_t rounds        # of run()
    cdef readonly int64_t torn          # changes whose tags code was not the digit of its queue id

    def __cinit__(self, ChangeFeed feed not None, queue=None, int fd=-1):
        cdef uint64_t interest = 0
        cdef bytes name
        if queue is not None:
            name = queue[0].encode()
            interest = queue_bit(<const uint8_t*><const char*>name, <int32_t>len(name), queue[1])
        cdef int rc = feed.subscribe(interest, fd, count_one, &self.called, &self.subscriber)
        if rc != RC_OK:
            raise ValueError(rc)
        self.feed = feed

    def __dealloc__(self):
        if self.feed is not None:
            self.feed.unsubscribe(self.subscriber)

    @property
    def calls(self):
        """The number of calls of the callback."""
        return rc_load_i64(&self.called)

    @property
    def missed(self):
        return rc_load_i64(&self.subscriber.missed)

    def arm(self):
        return self.feed.arm(self.subscriber)

    def wait(self, int64_t timeout_ns):
        cdef int rc
        with nogil:
            rc = self.feed.wait(self.subscriber, rc_clock_ns() + timeout_ns, INT64_MAX // 2)
        return rc

    def end(self):
        self.feed.end_subscriber(self.subscriber)

    def fetch(self, int room=FEED_PORTION):
        """(code, [(topic, queue id, max offset, list of tags codes or None), ...])"""
        cdef QueueChange changes[FEED_PORTION]
        cdef int count = 0
        cdef int rc = self.feed.fetch(self.subscriber, changes, room, &count)
        cdef list found = []
        for i in range(count):
            c = &changes[i]
            codes = None if c.code_count == FEED_MANY else [c.codes[n] for n in range(c.code_count)]
            found.append((c.topic[:c.topic_len].decode(), c.queue_id, c.max_offset, codes))
        return rc, found

    def run(self):
        """Wait and fetch until stop_run(), end() or the end of the store; returns the last code."""
        cdef QueueChange changes[FEED_PORTION]
        cdef int count = 0, rc = RC_OK
        with nogil:
            while rc != RC_CLOSED and rc_load_i64(&self.stop) == 0:
                rc = self.feed.wait(self.subscriber, INT64_MAX, 50000000)
                if rc == RC_OK:
                    rc = self.feed.fetch(self.subscriber, changes, FEED_PORTION, &count)
                    self.changes += count
                    self.rounds += 1
        return rc

    def spin(self):
        """Fetch without a pause until stop_run() or the end of the store; each tag must be the queue id, a digit."""
        cdef QueueChange changes[FEED_PORTION]
        cdef int count = 0, rc = RC_OK, i
        with nogil:
            while rc != RC_CLOSED and rc_load_i64(&self.stop) == 0:
                rc = self.feed.fetch(self.subscriber, changes, FEED_PORTION, &count)
                self.rounds += 1
                self.changes += count
                for i in range(count):
                    if changes[i].topic_len != 1 or changes[i].code_count not in (1, FEED_MANY):
                        self.torn += 1
                    elif changes[i].code_count == 1 and changes[i].codes[0] != c"0" + changes[i].queue_id:
                        self.torn += 1
        return rc

    def stop_run(self):
        rc_store_i64(&self.stop, 1)
