# cython: language_level=3
"""The messages in flight: those of a queue that a consumer group has taken or acked.

InFlight keeps the state of each message from the first one that is not acked to the last one that was read.
"""
from cpython.contextvars cimport PyContextVar_New, PyContextVar_Set, get_value
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from rocketc.read._message cimport Message, queue_offset_of

cdef enum:
    READY = 0           # read from the store, not taken yet
    TAKEN = 1
    RETURNED = 2           # returned by the consumer; delivered again when it is due
    DONE = 3
    FIRST_ROOM = 64
    SHOWN_BYTES = 1024  # repr() does not print longer bodies


class Item(bytes):
    """The body of a message that a consumer took from a queue. The consumer acks it when it has been processed."""

    @property
    def message(self):
        """The Message, with topic, keys, tags, properties and times."""
        return self._taken[1]

    @property
    def attempts(self):
        """Number of times the message was taken since the queue was opened, including this time."""
        return self._taken[2]

    def __reduce__(self):
        return bytes, (bytes(self),)    # another process can't ack it

    def __repr__(self):
        return bytes.__repr__(self) if len(self) <= SHOWN_BYTES else f"<rocketc.Item, {len(self)} bytes>"


cdef class InFlight:
    """The state of a queue's messages from offset `base` on. The caller serializes all calls with a lock.

    base      offset of the first message that is not acked
    next      offset of the next message to read from the store
    taken     number of messages that are taken and not acked
    finished  number of messages after base that are acked or do not exist
    life      number of times the queue was deleted; each time its offsets start at 0 again
    next_check   seconds of the monotonic clock; before this time no message is due for redelivery and `life` does not
              change
    """

    def __cinit__(self, int64_t base):
        self.room = FIRST_ROOM
        self.slots = <InFlightSlot*>malloc(<size_t>self.room * sizeof(InFlightSlot))
        if self.slots == NULL:
            raise MemoryError
        self.base = self.next = base
        self.next_check = INFINITY
        self.ready = []
        # A context belongs to one thread, coroutine or call of asyncio.to_thread(); a thread's id is used again.
        self.last = PyContextVar_New("rocketc.Queue.last", NULL)

    def __dealloc__(self):
        free(self.slots)

    def start_over(self):
        """Reset the state after the queue was deleted. The next message has offset 0; earlier items become invalid."""
        self.base = self.next = self.taken = self.finished = 0
        self.ready = []
        self.at = 0
        self.life += 1
        self.next_check = -INFINITY

    cdef InFlightSlot* _slot(self, int64_t offset) noexcept:
        """Return the slot of an offset; NULL if it is before base, or was never read."""
        return &self.slots[offset & (self.room - 1)] if self.base <= offset < self.next else NULL

    cdef InFlightSlot* _push(self) except NULL:
        """Add a slot for the next offset and return it."""
        cdef InFlightSlot* more
        cdef int64_t i
        if self.next - self.base == self.room:
            more = <InFlightSlot*>malloc(2 * <size_t>self.room * sizeof(InFlightSlot))
            if more == NULL:
                raise MemoryError
            for i in range(self.base, self.next):
                more[i & (2 * self.room - 1)] = self.slots[i & (self.room - 1)]
            free(self.slots)
            self.slots = more
            self.room *= 2
        self.next += 1
        more = &self.slots[(self.next - 1) & (self.room - 1)]
        more.attempts = 0
        more.state = READY
        return more

    def add(self, list messages, int64_t behind):
        """Add messages that were read from `next` on.

        messages  in the order of the queue
        behind    the offset after the range that was read; offsets before it without a message are marked as done
        """
        cdef int64_t offset
        for message in messages:
            offset = queue_offset_of(<Message?>message)
            self._pass(offset)
            if offset == self.next:
                self._push()
                self.ready.append(message)
        self._pass(behind)

    cdef int _pass(self, int64_t stop) except -1:
        """Mark the offsets from `next` up to `stop` as done, because no messages exist for them."""
        if self.base == self.next and stop > self.next:
            self.base = self.next = stop
        while self.next < stop:
            self._push().state = DONE
            self.finished += 1
        return 0

    def skip(self):
        """Skip the next offset because it can't be read now. It stays unacked, so `base` does not pass it."""
        self._push().state = RETURNED

    @property
    def has_ready(self):
        return self.at < PyList_GET_SIZE(self.ready)

    cpdef take(self, object owner, double now, double seconds):
        """Take the next message that was read and return its Item; None if there is no such message.

        seconds  time in which it must be acked
        """
        cdef Py_ssize_t at = self.at
        if at == PyList_GET_SIZE(self.ready):
            return None
        item = self.hand_out(owner, <object>PyList_GET_ITEM(self.ready, at), now, seconds)
        self.at = at + 1
        if self.at == PyList_GET_SIZE(self.ready):
            self.ready = []
            self.at = 0
        return item

    def take_many(self, owner, double now, double seconds, Py_ssize_t count):
        """Call take() up to `count` times and return a list of the Items."""
        items = []
        while len(items) < count and self.at < PyList_GET_SIZE(self.ready):
            items.append(self.take(owner, now, seconds))
        return items

    cpdef hand_out(self, object owner, object message, double now, double seconds):
        """Mark a message of this queue as taken and return its Item."""
        cdef int64_t offset = queue_offset_of(<Message?>message)
        cdef InFlightSlot* slot = self._slot(offset)
        item = Item((<Message>message).body)
        item._taken = (owner, message, slot.attempts + 1, self.life)
        PyContextVar_Set(self.last, (offset, slot.attempts + 1, self.life))
        slot.attempts += 1              # after the allocations above, which may fail
        slot.state = TAKEN
        slot.until = now + seconds
        if slot.until < self.next_check:
            self.next_check = slot.until
        self.taken += 1
        return item

    cpdef bint ack(self, object owner, tuple items) except -1:
        """Ack items; return True if base has moved."""
        cdef int64_t before = self.base
        for item in items:
            self.finish(self.offset_of(owner, item))
        return self.base != before

    cpdef bint finish(self, int64_t offset) except -1:
        """Mark an offset as done; return False if it was done already, or was never taken."""
        cdef InFlightSlot* slot = self._slot(offset)
        if slot == NULL or slot.state == DONE or slot.state == READY:
            return False
        if slot.state == TAKEN:
            self.taken -= 1
        slot.state = DONE
        self.finished += 1
        while self.base < self.next and self.slots[self.base & (self.room - 1)].state == DONE:
            self.base += 1
            self.finished -= 1
        return True

    def give_back(self, int64_t offset, int attempts=0):
        """Return a taken message to the queue for redelivery; return its number of attempts, or 0 if it is not taken.

        attempts  if not 0: only if the message was taken this many times; otherwise another consumer has it now
        """
        cdef InFlightSlot* slot = self._slot(offset)
        if slot == NULL or slot.state != TAKEN or (attempts and slot.attempts != attempts):
            return 0
        slot.state = RETURNED
        self.taken -= 1
        return slot.attempts

    def is_returned(self, int64_t offset):
        cdef InFlightSlot* slot = self._slot(offset)
        return slot != NULL and slot.state == RETURNED

    def overdue(self, double now):
        """Return the taken offsets whose time is over, and set next_check to the time of the next check."""
        cdef InFlightSlot* slot
        cdef int64_t offset
        cdef double first = INFINITY
        found = []
        for offset in range(self.base, self.next):
            slot = self._slot(offset)
            if slot.state == TAKEN:
                if slot.until <= now:
                    found.append(offset)
                elif slot.until < first:
                    first = slot.until
        self.next_check = max(first, now + 0.01)
        return found

    def last_taken(self):
        """Return the offset that the caller's context took last; None if it is not taken any more, or never was."""
        cdef InFlightSlot* slot
        last = get_value(self.last)
        if last is None:
            return None
        offset, attempts, life = last
        slot = self._slot(offset)
        is_taken = life == self.life and slot != NULL and slot.state == TAKEN and slot.attempts == attempts
        return offset if is_taken else None

    def forget_last(self):
        """Make last_taken() return None in the caller's context, until it takes a message again."""
        PyContextVar_Set(self.last, None)

    cpdef int64_t offset_of(self, object owner, object item) except? -1:
        """Return the queue offset of an Item; -1 if its queue was deleted after it was taken.

        Raises ValueError for an Item of another consumer, and for an object that is not an Item.
        """
        taken = getattr(item, "_taken", None)
        if not isinstance(taken, tuple) or (<tuple>taken)[0] is not owner:
            raise ValueError(f"{item!r:.60} was not taken from {owner!r}")
        return queue_offset_of(<Message?>(<tuple>taken)[1]) if (<tuple>taken)[3] == self.life else -1
