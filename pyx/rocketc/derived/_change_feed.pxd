"""The change feed reports to subscribers which queues received messages. Threads can also wait for one queue.

To wait without missing a wake-up, call arm(), then fetch() again, then sleep. wait() does all of this.
That fetch() returns a change from before arm(). A later change causes the wake-up.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rocketc.c.service cimport pthread_cond_t, pthread_mutex_t
from rocketc.derived._dispatch_worker cimport DispatchRequest
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.derived._queue_table cimport QueueTable
from rocketc.log._queue_offsets cimport cq_hash

cdef enum:
    WAKEUP_SLOTS = 64       # a thread that waits for one queue uses one of these slots; several queues share a slot
    FEED_ENTRIES = 16384    # units that a subscriber may be behind; if it falls further behind, tags codes are lost
    FEED_PORTION = 256      # most changes that one fetch() returns
    FEED_CODES = 16         # most tags codes of one change
    FEED_MANY = -1          # a count of codes: more than FEED_CODES, or unknown

# Called without the GIL on the dispatching thread, when there are changes and when the store is closed. It must be
# short and must not call the feed: it sets a flag or wakes a thread.
ctypedef void (*WakeUp)(void* argument) noexcept nogil

# A queue that received messages.
ctypedef struct QueueChange:
    const uint8_t* topic    # topic_len bytes; valid while the ChangeFeed exists
    int32_t topic_len
    int32_t queue_id
    int64_t max_offset      # queue offset after its last message
    int32_t code_count      # number of codes, or FEED_MANY
    int64_t codes[FEED_CODES]   # distinct tags codes of the new units: hashes; delivery times of SCHEDULE_TOPIC_XXXX

# A unit that was added to a queue. Readers load the fields while the writer may overwrite them in the next round.
ctypedef struct FeedEntry:
    int64_t queue           # ConsumeQueue*
    int64_t max_offset
    int64_t tags_code

ctypedef struct Subscriber:
    Subscriber* before      # in the list of armed subscribers
    Subscriber* after
    uint64_t interest       # the queue_bit() of each of its queues
    int64_t armed           # 1: the next change of its queues wakes it
    int64_t wakeups         # wake-ups so far
    int64_t waiting         # threads in wait()
    int64_t ended           # 1: it receives no more wake-ups
    int fd                  # an eventfd, or the write end of a pipe; -1: none
    WakeUp wake_up          # or NULL
    void* argument
    pthread_mutex_t mutex   # of cond
    pthread_cond_t cond
    pthread_mutex_t fetching    # guards the fields below
    int64_t next_entry      # number of the entry that it fetches next
    int64_t next_queue      # after it fell too far behind: number of the queue that it fetches next; otherwise -1
    int64_t live_until      # entries before this number report the current max_offset, so that it never decreases
    int64_t missed          # number of times that it fell too far behind

# The threads that wait for messages of some queues.
ctypedef struct WakeupSlot:
    pthread_mutex_t mutex
    pthread_cond_t cond
    int64_t waiting         # number of threads

cdef inline uint64_t queue_bit(const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil:
    """Return the bit of a queue in Subscriber.interest. Several queues may share a bit."""
    return <uint64_t>1 << (cq_hash(topic, topic_len, queue_id) % WAKEUP_SLOTS)


cdef class ChangeFeed:
    cdef:
        QueueTable queues
        WakeupSlot slots[WAKEUP_SLOTS]
        int64_t waiting         # threads in wait_for_offset()
        int64_t subscribers
        int64_t armed           # number of armed subscribers
        int64_t ended           # 1: the store is closed; 2: also, in a forked child, where locks may stay locked
        FeedEntry* _entries     # a ring of _room entries; allocated for the first subscriber
        int64_t _room           # a power of two
        int64_t _next_entry     # number of the next entry; written by the dispatching thread
        pthread_mutex_t _mutex  # the list of armed subscribers; locked before Subscriber.mutex
        Subscriber* _first
        bint stepped            # no thread dispatches, so a wait would never end
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
    cdef void notify(self, uint64_t woken) noexcept nogil
    cdef void _disarm(self, Subscriber* s) noexcept nogil
    cdef bint _has_changes(self, Subscriber* s) noexcept nogil
    cdef bint _copy(self, Subscriber* s, int64_t at, int count, FeedEntry* copies) noexcept nogil
    cdef void _update_max_offsets(
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
