# cython: language_level=3
"""The change feed reports to subscribers which queues received messages. Threads can also wait for one queue.

While there is a subscriber, the dispatching thread adds each new unit to a ring of fixed size. A subscriber has only a
position in the ring. So work and memory do not grow with the number of subscribers, even if they are slow. A subscriber
that falls more than one round behind is notified and receives every queue of the store.

arm() asks for one wake-up. Subscribers that are not armed are in no list and cost nothing.

add() runs with the mutex `working` of ReputService locked, so one thread at a time writes the ring. notify() runs after
the mutex is unlocked. A reader of the ring does not lock: it copies entries, then checks whether the writer
has overwritten them in the meantime.
Source: RocketMQ MessageArrivingListener, NotifyMessageArrivingListener.
"""
cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
from posix.unistd cimport write as write_file

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_add_i64, rc_fence_full, rc_load_i64, rc_load_u8, rc_store_i64
from rocketc.c.service cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_unlock, rc_clock_ns, rc_cond_init, rc_cond_wait,
)
from rocketc.c.status cimport RC_CLOSED, RC_FLUSH_TIMEOUT, RC_MORE, RC_OK
from rocketc.derived._dispatch_worker cimport DispatchRequest
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.derived._queue_table cimport QueueTable
from rocketc.log._put_result cimport closed
from rocketc.log._queue_offsets cimport cq_hash

from rocketc.derived.queue_change import QueueChange as PythonChange

cdef enum:
    CLOSED = 1
    FORKED = 2
    COPIES = 64                     # entries that are copied before the check that they were not overwritten
    GROUPS = 1024                   # slots of the hash table of the queues in the changes; more than FEED_PORTION
    SLICE_NS = 50000000             # longest wait before signals are checked
    UNWRITTEN_MAX = 64              # most units that are readable before their entry is written: ROWS of the dispatcher


cdef inline uint64_t interest_of(const ConsumeQueue* q) noexcept nogil:
    return <uint64_t>1 << (q.hash % WAKEUP_SLOTS)


cdef void wake(Subscriber* s) noexcept nogil:
    """Wake the threads that wait on a subscriber. The feed's mutex is locked."""
    cdef int64_t one = 1
    rc_add_i64(&s.wakeups, 1)
    rc_fence_full()             # either a waiting thread sees the new count, or this thread sees it waiting
    if rc_load_i64(&s.waiting) > 0:
        pthread_mutex_lock(&s.mutex)
        pthread_cond_broadcast(&s.cond)
        pthread_mutex_unlock(&s.mutex)
    if s.fd >= 0:
        write_file(s.fd, &one, sizeof(one))     # if a pipe is full, it is readable already
    if s.wake_up != NULL:
        s.wake_up(s.argument)


cdef void free_subscriber(Subscriber* s) noexcept nogil:
    pthread_cond_destroy(&s.cond)
    pthread_mutex_destroy(&s.fetching)
    pthread_mutex_destroy(&s.mutex)
    free(s)


cdef inline void add_code(QueueChange* change, int64_t code) noexcept nogil:
    """Add the tags code of a new unit."""
    cdef int i
    if change.code_count == FEED_MANY:
        return
    for i in range(change.code_count):
        if change.codes[i] == code:
            return
    if change.code_count == FEED_CODES:
        change.code_count = FEED_MANY
    else:
        change.codes[change.code_count] = code
        change.code_count += 1


cdef class ChangeFeed:
    """Reports to subscribers which queues received messages.

    queues   queues of the store
    entries  units that a subscriber may be behind: a power of two
    Each ReputService has a ChangeFeed. The functions that run without the GIL return RC_OK or an error code. They
    return RC_CLOSED after the store is closed.
    """

    def __cinit__(self, QueueTable queues not None, int64_t entries=FEED_ENTRIES):
        cdef int i
        self.queues = queues
        self._room = entries
        check(pthread_mutex_init(&self._mutex, NULL))
        for i in range(WAKEUP_SLOTS):
            check(pthread_mutex_init(&self.slots[i].mutex, NULL))
            check(rc_cond_init(&self.slots[i].cond))
        self._ready = True

    def __dealloc__(self):
        cdef int i
        free(self._entries)
        if not self._ready or self.ended == FORKED:
            return
        for i in range(WAKEUP_SLOTS):
            pthread_cond_destroy(&self.slots[i].cond)
            pthread_mutex_destroy(&self.slots[i].mutex)
        pthread_mutex_destroy(&self._mutex)

    # subscribers

    cdef int subscribe(
        self, uint64_t interest, int fd, WakeUp wake_up, void* argument, Subscriber** subscriber,
    ) noexcept nogil:
        """Add a subscriber. It receives changes after this call; read earlier messages from the queues.

        interest    queue_bit() of each wanted queue, or 0 for all; other queues with the same bit are reported too
        fd          receives 8 bytes for each wake-up: an eventfd or a non-blocking pipe; owned by the caller; -1: none
        wake_up     called with argument for each wake-up; or NULL
        subscriber  set; release it with unsubscribe()
        Returns RC_OK, ENOMEM, RC_CLOSED.
        """
        cdef Subscriber* s = NULL
        cdef int rc = RC_OK
        if rc_load_i64(&self.ended) != 0:
            return RC_CLOSED
        s = <Subscriber*>calloc(1, sizeof(Subscriber))
        if s == NULL:
            return ENOMEM
        s.interest = interest if interest != 0 else ~<uint64_t>0
        s.fd = fd
        s.wake_up = wake_up
        s.argument = argument
        s.next_queue = -1
        rc = pthread_mutex_init(&s.mutex, NULL)
        if rc == RC_OK:
            rc = pthread_mutex_init(&s.fetching, NULL)
        if rc == RC_OK:
            rc = rc_cond_init(&s.cond)
        if rc != RC_OK:
            free(s)
            return rc
        pthread_mutex_lock(&self._mutex)
        if self._entries == NULL:
            self._entries = <FeedEntry*>calloc(<size_t>self._room, sizeof(FeedEntry))
        if self._entries != NULL:
            rc_add_i64(&self.subscribers, 1)
        else:
            rc = ENOMEM
        pthread_mutex_unlock(&self._mutex)
        if rc != RC_OK:
            free_subscriber(s)
            return rc
        rc_fence_full()         # either the dispatching thread sees the subscriber, or later reads see its units
        s.next_entry = rc_load_i64(&self._next_entry)
        subscriber[0] = s
        return RC_OK

    cdef int arm(self, Subscriber* s) noexcept nogil:
        """Ask for one wake-up at the next change. To wait, call fetch() after this call, then sleep.

        Returns RC_OK, or RC_CLOSED if the store or the subscription is closed.
        """
        cdef int rc = RC_OK
        if rc_load_i64(&self.ended) != 0 or rc_load_i64(&s.ended) != 0:
            return RC_CLOSED
        if rc_load_i64(&s.armed) == 0:
            pthread_mutex_lock(&self._mutex)
            if rc_load_i64(&self.ended) != 0 or s.ended != 0:
                rc = RC_CLOSED
            elif s.armed == 0:
                s.before = NULL
                s.after = self._first
                if self._first != NULL:
                    self._first.before = s
                self._first = s
                rc_store_i64(&s.armed, 1)
                rc_add_i64(&self.armed, 1)
            pthread_mutex_unlock(&self._mutex)
        rc_fence_full()         # either the dispatching thread sees that it is armed, or fetch() sees the change
        return rc

    cdef void _disarm(self, Subscriber* s) noexcept nogil:
        """Remove an armed subscriber from the list. The mutex is locked."""
        if s.before != NULL:
            s.before.after = s.after
        else:
            self._first = s.after
        if s.after != NULL:
            s.after.before = s.before
        s.before = s.after = NULL
        rc_store_i64(&s.armed, 0)
        rc_add_i64(&self.armed, -1)

    cdef int wait(self, Subscriber* s, int64_t until_ns, int64_t slice_ns) noexcept nogil:
        """Wait until fetch() may return a change. Any number of threads may wait.

        until_ns  deadline by rc_clock_ns()
        slice_ns  longest wait of this call; after it the caller checks signals and calls again
        Returns RC_OK, RC_MORE after slice_ns, RC_FLUSH_TIMEOUT at until_ns, or RC_CLOSED as arm() does.
        """
        cdef int64_t now, wakeups, slice_end = rc_clock_ns() + slice_ns
        cdef int rc = RC_OK
        if rc_load_i64(&self.ended) == 0 and rc_load_i64(&s.ended) == 0 and self._has_changes(s):
            return RC_OK
        while rc == RC_OK:
            wakeups = rc_load_i64(&s.wakeups)
            rc = self.arm(s)
            if rc != RC_OK or self._has_changes(s):
                return rc
            pthread_mutex_lock(&s.mutex)
            rc_add_i64(&s.waiting, 1)
            rc_fence_full()
            while rc_load_i64(&s.wakeups) == wakeups:
                now = rc_clock_ns()
                if now >= until_ns or now >= slice_end:
                    rc = RC_MORE if now < until_ns else RC_FLUSH_TIMEOUT
                    break
                rc_cond_wait(&s.cond, &s.mutex, min(until_ns, slice_end) - now)
            rc_add_i64(&s.waiting, -1)
            pthread_mutex_unlock(&s.mutex)
        return rc

    cdef int fetch(self, Subscriber* s, QueueChange* changes, int room, int* count) noexcept nogil:
        """Return the changes since the last fetch(), with each queue once. Of several threads, one gets each change.

        changes  written: at most room of them, and at most FEED_PORTION
        count    set to their number
        If the subscriber fell too far behind (s.missed counts this), it gets every queue with FEED_MANY, possibly over
        several calls, and after them the newer changes.
        Returns RC_OK if there are no more changes, RC_MORE to be called again, or RC_CLOSED.
        """
        cdef int rc = RC_OK
        count[0] = 0
        if rc_load_i64(&self.ended) != 0 or rc_load_i64(&s.ended) != 0:
            return RC_CLOSED
        pthread_mutex_lock(&s.fetching)
        room = min(room, <int>FEED_PORTION)
        if s.next_queue < 0:
            rc = self._fetch_entries(s, changes, room, count)
        if s.next_queue >= 0:
            rc = self._fetch_queues(s, changes, room, count)
        pthread_mutex_unlock(&s.fetching)
        return rc

    cdef void skip(self, Subscriber* s) noexcept nogil:
        """Drop the changes so far."""
        pthread_mutex_lock(&s.fetching)
        s.next_entry = rc_load_i64(&self._next_entry)
        s.next_queue = -1
        pthread_mutex_unlock(&s.fetching)

    cdef void set_fd(self, Subscriber* s, int fd) noexcept nogil:
        """Replace the subscriber's descriptor; see subscribe(). Nothing is written to the old one after this call."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        s.fd = fd
        pthread_mutex_unlock(&self._mutex)

    cdef void end_subscriber(self, Subscriber* s) noexcept nogil:
        """Wake the threads in wait() and end the subscription. All later calls return RC_CLOSED."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        if s.ended == 0:
            rc_store_i64(&s.ended, 1)
            rc_add_i64(&self.subscribers, -1)
            if s.armed != 0:
                self._disarm(s)
            s.wake_up = NULL
            wake(s)
        pthread_mutex_unlock(&self._mutex)

    cdef void unsubscribe(self, Subscriber* s) noexcept nogil:
        """Free a subscriber. No other thread may use it now or later: call end_subscriber() first if threads wait."""
        if rc_load_i64(&self.ended) != FORKED:
            pthread_mutex_lock(&self._mutex)
            if s.armed != 0:
                self._disarm(s)
            if s.ended == 0:
                rc_add_i64(&self.subscribers, -1)
            pthread_mutex_unlock(&self._mutex)
            free_subscriber(s)
        else:
            free(s)

    # fetching

    cdef bint _copy(self, Subscriber* s, int64_t at, int count, FeedEntry* copies) noexcept nogil:
        """Copy entries. Returns False if the writer overwrote them; then the subscriber gets every queue instead."""
        cdef FeedEntry* e
        cdef int64_t following
        cdef int i
        for i in range(count):
            e = &self._entries[(at + i) & (self._room - 1)]
            copies[i].queue = rc_load_i64(&e.queue)
            copies[i].max_offset = rc_load_i64(&e.max_offset)
            copies[i].tags_code = rc_load_i64(&e.tags_code)
        following = rc_load_i64(&self._next_entry)  # the writer may be writing the entry with this number
        if following - at < self._room:
            return True
        s.next_entry = following
        s.next_queue = 0
        rc_store_i64(&s.missed, s.missed + 1)
        return False

    cdef bint _has_changes(self, Subscriber* s) noexcept nogil:
        """Return whether fetch() may have a change; skips entries of other queues."""
        cdef FeedEntry copies[COPIES]
        cdef int64_t stop
        cdef int i, count
        cdef bint found
        pthread_mutex_lock(&s.fetching)
        stop = rc_load_i64(&self._next_entry)
        found = s.next_queue >= 0
        while not found and s.next_entry < stop:
            count = <int>min(<int64_t>COPIES, stop - s.next_entry)
            if not self._copy(s, s.next_entry, count, copies):
                found = True
                break
            for i in range(count):
                if interest_of(<ConsumeQueue*>copies[i].queue) & s.interest:
                    found = True
                    break
                s.next_entry += 1
        pthread_mutex_unlock(&s.fetching)
        return found

    cdef int _fetch_entries(self, Subscriber* s, QueueChange* changes, int room, int* count) noexcept nogil:
        """Group the entries by queue. Sets s.next_queue if entries were overwritten."""
        cdef FeedEntry copies[COPIES]
        cdef int16_t groups[GROUPS]     # index in changes plus 1; 0: free
        cdef ConsumeQueue* queues[FEED_PORTION]     # of changes
        cdef ConsumeQueue* q
        cdef QueueChange* change
        cdef int64_t at = s.next_entry, stop = rc_load_i64(&self._next_entry)
        cdef int i, n, group = -1
        cdef uint64_t place
        if at == stop:
            return RC_OK
        memset(groups, 0, sizeof(groups))
        while at < stop:
            n = <int>min(<int64_t>COPIES, stop - at)
            if not self._copy(s, at, n, copies):
                count[0] = 0
                return RC_MORE
            for i in range(n):
                q = <ConsumeQueue*>copies[i].queue
                if not interest_of(q) & s.interest or rc_load_u8(&q.dead) != 0:
                    continue
                if group < 0 or queues[group] != q:
                    place = <uint64_t>copies[i].queue * 0x9E3779B97F4A7C15ULL >> 54
                    while groups[place] != 0 and queues[groups[place] - 1] != q:
                        place = (place + 1) & (GROUPS - 1)
                    group = groups[place] - 1
                    if group < 0:
                        if count[0] == room:
                            self._update_max_offsets(s, changes, queues, count[0])
                            s.next_entry = at + i
                            return RC_MORE
                        group = count[0]
                        count[0] += 1
                        groups[place] = <int16_t>count[0]
                        queues[group] = q
                        change = &changes[group]
                        change.topic = q.topic
                        change.topic_len = q.topic_len
                        change.queue_id = q.queue_id
                        change.code_count = 0
                changes[group].max_offset = copies[i].max_offset
                add_code(&changes[group], copies[i].tags_code)
            at += n
        self._update_max_offsets(s, changes, queues, count[0])
        s.next_entry = at
        return RC_OK

    cdef void _update_max_offsets(
        self, Subscriber* s, QueueChange* changes, ConsumeQueue** queues, int count,
    ) noexcept nogil:
        """Set max_offset of changes to the current value, for entries that may be older than the last report.

        After _fetch_queues() has reported every queue, the ring may hold entries of units that it has counted already.
        Without this, max_offset would decrease.
        """
        cdef int i
        if s.next_entry >= s.live_until:
            return
        for i in range(count):
            changes[i].max_offset = rc_load_i64(&queues[i].max_offset)
        s.live_until = rc_load_i64(&self._next_entry) + UNWRITTEN_MAX

    cdef int _fetch_queues(self, Subscriber* s, QueueChange* changes, int room, int* count) noexcept nogil:
        """Report the next of all queues, with their current max_offset."""
        cdef ConsumeQueue* q
        cdef QueueChange* change
        cdef int i = <int>s.next_queue
        while count[0] < room:
            q = self.queues.next_there(&i)
            if q == NULL:
                s.next_queue = -1
                s.live_until = rc_load_i64(&self._next_entry) + UNWRITTEN_MAX
                return RC_MORE
            s.next_queue = i
            if not interest_of(q) & s.interest:
                continue
            change = &changes[count[0]]
            change.topic = q.topic
            change.topic_len = q.topic_len
            change.queue_id = q.queue_id
            change.max_offset = rc_load_i64(&q.max_offset)
            change.code_count = FEED_MANY
            count[0] += 1
        return RC_MORE

    # threads that wait for one queue

    cdef int wait_for_offset(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t offset, int64_t until_ns,
        int64_t slice_ns,
    ) noexcept nogil:
        """Wait until a queue has a message at or after an offset.

        Returns RC_OK, RC_MORE after slice_ns, or RC_FLUSH_TIMEOUT at until_ns or if the feed has ended.
        """
        cdef WakeupSlot* slot = &self.slots[cq_hash(topic, topic_len, queue_id) % WAKEUP_SLOTS]
        cdef ConsumeQueue* q = NULL
        cdef int64_t now, slice_end = rc_clock_ns() + slice_ns
        cdef bint ended
        cdef int rc = RC_OK
        rc_add_i64(&self.waiting, 1)
        pthread_mutex_lock(&slot.mutex)
        rc_add_i64(&slot.waiting, 1)
        rc_fence_full()
        while True:
            if q == NULL:
                q = self.queues.find(topic, topic_len, queue_id)
            if q != NULL and rc_load_i64(&q.max_offset) > offset and rc_load_i64(&q.units) > 0:
                break
            now = rc_clock_ns()
            ended = rc_load_i64(&self.ended) != 0
            if now >= until_ns or now >= slice_end or ended:
                rc = RC_MORE if now < until_ns and not ended else RC_FLUSH_TIMEOUT
                break
            rc_cond_wait(&slot.cond, &slot.mutex, min(until_ns, slice_end) - now)
        rc_add_i64(&slot.waiting, -1)
        pthread_mutex_unlock(&slot.mutex)
        rc_add_i64(&self.waiting, -1)
        return rc

    # the dispatching thread

    cdef bint is_awaited(self) noexcept nogil:
        """Return whether a thread or an armed subscriber waits for messages."""
        return rc_load_i64(&self.waiting) > 0 or rc_load_i64(&self.armed) > 0

    cdef void add(self, const DispatchRequest* rows, int count) noexcept nogil:
        """Add the units of rows to the ring; rows without a queue are skipped. The units are readable already."""
        cdef FeedEntry* e
        cdef int64_t following
        cdef int i
        rc_fence_full()         # either this thread sees a new subscriber, or the subscriber sees the units
        if rc_load_i64(&self.subscribers) == 0:
            return
        following = self._next_entry
        for i in range(count):
            if rows[i].q == NULL:
                continue
            e = &self._entries[following & (self._room - 1)]
            rc_store_i64(&e.queue, <int64_t>rows[i].q)
            rc_store_i64(&e.max_offset, rows[i].unit.queue_offset + rows[i].unit.count)
            rc_store_i64(&e.tags_code, rows[i].unit.tags_code)
            following += 1
            rc_store_i64(&self._next_entry, following)

    cdef void notify(self, uint64_t woken) noexcept nogil:
        """Wake the threads and subscribers that wait for queues with these bits.

        Each thread that added units calls this after it has unlocked `working`.
        """
        cdef Subscriber* s
        cdef Subscriber* after
        cdef int i
        rc_fence_full()         # either a waiting thread sees the stored entries, or this thread sees it waiting
        if woken == 0:
            return
        if rc_load_i64(&self.waiting) > 0:
            for i in range(WAKEUP_SLOTS):
                if woken >> i & 1 and rc_load_i64(&self.slots[i].waiting) > 0:
                    pthread_mutex_lock(&self.slots[i].mutex)
                    pthread_cond_broadcast(&self.slots[i].cond)
                    pthread_mutex_unlock(&self.slots[i].mutex)
        if rc_load_i64(&self.armed) > 0:
            pthread_mutex_lock(&self._mutex)
            s = self._first
            while s != NULL:
                after = s.after
                if s.interest & woken:
                    self._disarm(s)
                    wake(s)
                s = after
            pthread_mutex_unlock(&self._mutex)

    def end(self):
        """Close the feed: wake all waiting threads. Later waits return at once."""
        cdef Subscriber* s
        cdef int i
        with nogil:
            rc_store_i64(&self.ended, CLOSED)
            for i in range(WAKEUP_SLOTS):
                pthread_mutex_lock(&self.slots[i].mutex)
                pthread_cond_broadcast(&self.slots[i].cond)
                pthread_mutex_unlock(&self.slots[i].mutex)
            pthread_mutex_lock(&self._mutex)
            while self._first != NULL:
                s = self._first
                self._disarm(s)
                wake(s)
            pthread_mutex_unlock(&self._mutex)

    def forget(self):
        """Disable the feed in a forked child: no thread dispatches, and locks may stay locked by missing threads."""
        rc_store_i64(&self.ended, FORKED)

    @property
    def subscriber_count(self):
        """Number of subscribers, armed or not, without those that were ended."""
        return rc_load_i64(&self.subscribers)

    # test hooks

    def set_entries(self, int64_t entries):
        """Set how many units a subscriber may be behind: a power of two. Call it before there is a subscriber."""
        self._room = entries


@cython.no_gc_clear      # __dealloc__ needs the feed
cdef class ChangeSubscriber:
    """A Subscriber for Python.

    feed    feed of a store that is open for writing
    path    path of the store, for messages
    queues  (topic, queue id) of the wanted queues; None: all
    Raises ClosedError.
    """

    def __cinit__(self, ChangeFeed feed not None, str path not None, queues=None):
        cdef uint64_t interest = 0
        cdef bytes name
        cdef int rc
        self.path = path
        if queues is not None:
            self._wanted = frozenset(queues)
            for topic, queue_id in self._wanted:
                name = topic.encode("utf-8", "surrogateescape")
                interest |= queue_bit(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        rc = feed.subscribe(interest, -1, NULL, NULL, &self._subscriber)
        if rc == RC_CLOSED:
            self._refuse()
        check(rc)
        self._feed = feed

    def __dealloc__(self):
        if self._feed is not None:
            self._feed.unsubscribe(self._subscriber)

    def check_open(self):
        """Raise ClosedError if the store or the subscriber is closed."""
        if rc_load_i64(&self._feed.ended) != 0 or rc_load_i64(&self._subscriber.ended) != 0:
            self._refuse()

    def _refuse(self):
        if self._subscriber != NULL and rc_load_i64(&self._subscriber.ended) != 0:
            raise closed(f"{self.path}: the subscription is closed")
        raise closed(f"{self.path}: the store is closed")

    @property
    def missed(self):
        """Number of times that it fell too far behind and received every queue."""
        return rc_load_i64(&self._subscriber.missed)

    def changes(self):
        """Return (list of QueueChange, whether there are more). Raises ClosedError."""
        cdef list found = []
        cdef int count = 0, rc = RC_MORE, i
        cdef QueueChange* c
        cdef QueueChange* changes = <QueueChange*>malloc(FEED_PORTION * sizeof(QueueChange))
        if changes == NULL:
            raise MemoryError
        try:
            while rc == RC_MORE and not found:
                with nogil:
                    rc = self._feed.fetch(self._subscriber, changes, FEED_PORTION, &count)
                if rc == RC_CLOSED:
                    self._refuse()
                for i in range(count):
                    c = &changes[i]
                    key = c.topic[:c.topic_len].decode("utf-8", "surrogateescape"), c.queue_id
                    if self._wanted is None or key in self._wanted:
                        codes = tuple([c.codes[n] for n in range(c.code_count)]) if c.code_count != FEED_MANY else None
                        found.append(PythonChange(key[0], key[1], c.max_offset, codes))
            return found, rc == RC_MORE
        finally:
            free(changes)

    def wait(self, timeout=None):
        """Wait until there may be changes. Returns False after timeout seconds.

        Raises ClosedError, or ValueError for a timeout in a store without threads: nothing could end the wait.
        """
        cdef int64_t until = INT64_MAX
        cdef int rc = RC_MORE
        if self._feed.stepped and (timeout is None or timeout > 0):
            raise ValueError(f"timeout={timeout}: no thread of this store could end the wait; call step() and wait(0)")
        if timeout is not None:
            until = rc_clock_ns() + <int64_t>(min(max(float(timeout), 0.0), 1e9) * 1e9)
        while rc == RC_MORE:
            PyErr_CheckSignals()
            with nogil:
                rc = self._feed.wait(self._subscriber, until, SLICE_NS)
        if rc == RC_CLOSED:
            self._refuse()
        return rc == RC_OK

    def arm(self):
        """Ask for one wake-up. Raises ClosedError."""
        cdef int rc
        with nogil:
            rc = self._feed.arm(self._subscriber)
        if rc != RC_OK:
            self._refuse()

    @property
    def is_armed(self):
        """Whether the wake-up that arm() asked for is still to come."""
        return rc_load_i64(&self._subscriber.armed) != 0

    def skip(self):
        """Drop the changes so far."""
        with nogil:
            self._feed.skip(self._subscriber)

    def set_fd(self, int fd):
        """Write to fd for each wake-up; -1: to no descriptor."""
        with nogil:
            self._feed.set_fd(self._subscriber, fd)

    def end(self):
        """Wake the waiting threads and end the subscription. All later calls raise ClosedError."""
        with nogil:
            self._feed.end_subscriber(self._subscriber)
