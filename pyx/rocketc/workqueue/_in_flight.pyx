# cython: language_level=3
"""What a group of consumers has taken of a queue, and is done with: the state of each message between the first that is
not acked and the last that was read."""
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from rocketc.read._message cimport Message, queue_offset_of

from threading import get_ident

cdef enum:
    READY = 0           # read from the store, nobody's yet
    TAKEN = 1
    AGAIN = 2           # given back; it comes again when it is due
    DONE = 3
    FIRST_ROOM = 64
    SHOWN_BYTES = 1024  # a longer body is not printed

cdef object thread_id = get_ident


class Item(bytes):
    """The body of a message that was taken from a queue; to be acked."""

    @property
    def message(self):
        """The Message: its topic, keys, tags, properties, times."""
        return self._taken[1]

    @property
    def attempts(self):
        """How often it was taken since the queue was opened, this time included."""
        return self._taken[2]

    def __reduce__(self):
        return bytes, (bytes(self),)    # another process can't ack it

    def __repr__(self):
        return bytes.__repr__(self) if len(self) <= SHOWN_BYTES else f"<rocketc.Item, {len(self)} bytes>"


cdef class InFlight:
    """The offsets of a queue from `base` on. Who uses it has a lock.

    base      all before it is done with
    next      the offset of what is not read yet
    taken     how many are taken
    finished  how many behind base are done with
    life      how often its queue was deleted, so that offsets began at 0 again
    look_at   seconds of the clock: before that nothing that was taken runs out of time, nor has another life begun
    """

    def __cinit__(self, int64_t base):
        self.room = FIRST_ROOM
        self.slots = <InFlightSlot*>malloc(<size_t>self.room * sizeof(InFlightSlot))
        if self.slots == NULL:
            raise MemoryError
        self.base = self.next = base
        self.look_at = INFINITY
        self.ready = []

    def __dealloc__(self):
        free(self.slots)

    def start_over(self):
        """The queue is deleted: what comes to it next has offset 0. Items of before are nobody's."""
        self.base = self.next = self.taken = self.finished = 0
        self.ready = []
        self.at = 0
        self.life += 1
        self.look_at = -INFINITY

    cdef InFlightSlot* _slot(self, int64_t offset) noexcept:
        """NULL: it is done with, or was never read."""
        return &self.slots[offset & (self.room - 1)] if self.base <= offset < self.next else NULL

    cdef InFlightSlot* _push(self) except NULL:
        """The slot of the next offset, which is read now."""
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
        """What was read from `next` on: messages, in order; offsets up to `behind` that have none are gone for good."""
        cdef int64_t offset
        for message in messages:
            offset = queue_offset_of(<Message?>message)
            self._pass(offset)
            if offset == self.next:
                self._push()
                self.ready.append(message)
        self._pass(behind)

    cdef int _pass(self, int64_t stop) except -1:
        """The offsets from next up to stop have no messages."""
        if self.base == self.next and stop > self.next:
            self.base = self.next = stop
        while self.next < stop:
            self._push().state = DONE
            self.finished += 1
        return 0

    def skip(self):
        """The next offset can't be read for now: it stays undone."""
        self._push().state = AGAIN

    @property
    def has_ready(self):
        return self.at < PyList_GET_SIZE(self.ready)

    cpdef take(self, object owner, double now, double seconds):
        """An Item of the next message that was read, to be acked within so many seconds; None if there is none."""
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
        """take(), up to so many times."""
        items = []
        while len(items) < count and self.at < PyList_GET_SIZE(self.ready):
            items.append(self.take(owner, now, seconds))
        return items

    cpdef hand_out(self, object owner, object message, double now, double seconds):
        """The Item of a message of ours."""
        cdef InFlightSlot* slot = self._slot(queue_offset_of(<Message?>message))
        item = Item((<Message>message).body)
        item._taken = (owner, message, slot.attempts + 1, self.life)
        slot.attempts += 1              # only now: there may be no memory for it
        slot.state = TAKEN
        slot.until = now + seconds
        slot.thread = thread_id()
        if slot.until < self.look_at:
            self.look_at = slot.until
        self.taken += 1
        return item

    cpdef bint ack(self, object owner, tuple items) except -1:
        """Items are done with; True if base has moved."""
        cdef int64_t before = self.base
        for item in items:
            self.finish(self.offset_of(owner, item))
        return self.base != before

    cpdef bint finish(self, int64_t offset) except -1:
        """An offset is done with; False if it was before, or was never taken."""
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
        """A message that is taken comes again: returns how often it was taken; 0 if it is not taken.

        attempts  only if it was taken so often: who had it before has lost it
        """
        cdef InFlightSlot* slot = self._slot(offset)
        if slot == NULL or slot.state != TAKEN or (attempts and slot.attempts != attempts):
            return 0
        slot.state = AGAIN
        self.taken -= 1
        return slot.attempts

    def comes_again(self, int64_t offset):
        cdef InFlightSlot* slot = self._slot(offset)
        return slot != NULL and slot.state == AGAIN

    def overdue(self, double now):
        """The offsets that are taken and have run out of time; sets look_at to when to look again."""
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
        self.look_at = max(first, now + 0.01)
        return found

    def oldest_of(self, thread):
        """The first offset that a thread has taken; None if there is none."""
        cdef InFlightSlot* slot
        cdef int64_t offset
        cdef unsigned long mine = thread
        for offset in range(self.base, self.next):
            slot = self._slot(offset)
            if slot.state == TAKEN and slot.thread == mine:
                return offset
        return None

    cpdef int64_t offset_of(self, object owner, object item) except? -1:
        """The queue offset of an Item; -1, which nothing is done with: its queue was deleted since.

        Raises ValueError if it was taken from another consumer, or is none.
        """
        taken = getattr(item, "_taken", None)
        if not isinstance(taken, tuple) or (<tuple>taken)[0] is not owner:
            raise ValueError(f"{item!r:.60} was not taken from {owner!r}")
        return queue_offset_of(<Message?>(<tuple>taken)[1]) if (<tuple>taken)[3] == self.life else -1
