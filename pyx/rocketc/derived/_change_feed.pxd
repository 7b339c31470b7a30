"""The change feed: which queues got messages, for any number of subscribers; threads that wait for one queue.

How to wait without losing a wake-up: arm(), then fetch() once more, then sleep until the wake-up comes. wait() does it
itself. A change that comes before arm() is in that fetch(), and one that comes after it wakes.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rocketc.c.service cimport pthread_cond_t, pthread_mutex_t
from rocketc.derived._consume_queue_units cimport ConsumeQueue
from rocketc.derived._dispatch_worker cimport DispatchRequest
from rocketc.derived._queue_table cimport QueueTable
from rocketc.log._queue_offsets cimport cq_hash

cdef enum:
    WAKEUP_SLOTS = 64       # a thread that waits for one queue waits at one of them; queues share them
    FEED_ENTRIES = 16384    # units that a subscriber may be behind; of more it learns only that there were some
    FEED_PORTION = 256      # changes that one fetch() gives at most
    FEED_CODES = 16         # tags codes of one change at most
    FEED_MANY = -1          # in place of their count: more than that, or unknown

# Called when there are changes, or the store is closed, on the thread that dispatches and without the GIL. It must be
# short, and must not call the feed: it sets a flag, or wakes a thread.
ctypedef void (*WakeUp)(void* argument) noexcept nogil

# One queue that got messages.
ctypedef struct QueueChange:
    const uint8_t* topic    # topic_len bytes; valid as long as the ChangeFeed
    int32_t topic_len
    int32_t queue_id
    int64_t max_offset      # queue offset behind its last message
    int32_t code_count      # of codes, or FEED_MANY
    int64_t codes[FEED_CODES]   # tags codes of the new units, each once: hashes; delivery times of SCHEDULE_TOPIC_XXXX

# A unit that was added to a queue. Its numbers are read while the next round of the ring may overwrite them.
ctypedef struct FeedEntry:
    int64_t queue           # ConsumeQueue*
    int64_t max_offset
    int64_t tags_code

ctypedef struct Subscriber:
    Subscriber* before      # in the list of those that are armed
    Subscriber* after
    uint64_t interest       # slots of its queues
    int64_t armed           # 1: the next change of its queues wakes it
    int64_t rings           # wake-ups so far
    int64_t waiting         # threads in wait()
    int64_t ended           # 1: nothing wakes it any more
    int fd                  # an eventfd, or a pipe's end to write to; -1: none
    WakeUp wake_up          # or NULL
    void* argument
    pthread_mutex_t mutex   # of cond
    pthread_cond_t cond
    pthread_mutex_t fetching    # all below
    int64_t next_entry      # number of the entry that it fetches next
    int64_t next_queue      # number of the queue that it is told of next, after it fell too far behind; -1: it did not
    int64_t live_until      # queues of entries before this one were told of as they are: no max_offset may go back
    int64_t missed          # how often it fell too far behind

# Threads that wait for messages of some queues.
ctypedef struct WakeupSlot:
    pthread_mutex_t mutex
    pthread_cond_t cond
    int64_t waiting         # how many

cdef inline uint64_t queue_bit(const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil:
    """The part of a Subscriber's interest that a queue is. Several queues may have the same one."""
    return <uint64_t>1 << (cq_hash(topic, topic_len, queue_id) % WAKEUP_SLOTS)


cdef class ChangeFeed:
    cdef:
        QueueTable queues
        WakeupSlot slots[WAKEUP_SLOTS]
        int64_t waiting         # threads in wait_for_offset()
        int64_t subscribers
        int64_t armed           # how many of them
        int64_t ended           # 1: the store is closed; 2: so it is in a forked child, where locks may stay held
        FeedEntry* _entries     # a ring of _room of them, made for the first subscriber
        int64_t _room           # a power of two
        int64_t _next_entry     # number of the next one; written by who dispatches
        pthread_mutex_t _mutex  # the list of those that are armed; taken before Subscriber.mutex
        Subscriber* _first
        bint stepped            # no thread dispatches: who waits would wait for ever
        bint _ready
    cdef int subscribe(
        self, uint64_t interest, int fd, WakeUp wake_up, void* argument, Subscriber** subscriber,
    ) noexcept nogil
    cdef int arm(self, Subscriber* s) noexcept nogil
    cdef int wait(self, Subscriber* s, int64_t until_ns, int64_t slice_ns) noexcept nogil
    cdef int fetch(self, Subscriber* s, QueueChange* changes, int room, int* count) noexcept nogil
    cdef void skip(self, Subscriber* s) noexcept nogil
    cdef void set_fd(self, Subscriber* s, int fd) noexcept nogil
    cdef void end_subscriber(self, Subscriber* s) noexcept nogil
    cdef void unsubscribe(self, Subscriber* s) noexcept nogil
    cdef int wait_for_offset(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t offset, int64_t until_ns,
        int64_t slice_ns,
    ) noexcept nogil
    cdef bint is_awaited(self) noexcept nogil
    cdef void add(self, const DispatchRequest* rows, int count) noexcept nogil
    cdef void ring(self, uint64_t woken) noexcept nogil
    cdef void _disarm(self, Subscriber* s) noexcept nogil
    cdef bint _has_changes(self, Subscriber* s) noexcept nogil
    cdef bint _copy(self, Subscriber* s, int64_t at, int count, FeedEntry* copies) noexcept nogil
    cdef void _tell_as_they_are(
        self, Subscriber* s, QueueChange* changes, ConsumeQueue** queues, int count,
    ) noexcept nogil
    cdef int _fetch_entries(self, Subscriber* s, QueueChange* changes, int room, int* count) noexcept nogil
    cdef int _fetch_queues(self, Subscriber* s, QueueChange* changes, int room, int* count) noexcept nogil


cdef class ChangeSubscriber:
    cdef:
        ChangeFeed _feed
        Subscriber* _subscriber
        object _wanted          # None: all queues
        readonly str path       # of the store
