# cython: language_level=3
"""An extension outside of the package that waits for positions of a store in C, without the GIL."""
from libc.stdint cimport INT64_MAX, int64_t

from rocketc.c.atomic cimport rc_add_i64, rc_load_i64
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport RC_CLOSED, RC_FLUSH_TIMEOUT, RC_MORE, RC_OK
from rocketc.log._positions cimport Position, PositionSubscriber

CODES = {"ok": RC_OK, "more": RC_MORE, "timeout": RC_FLUSH_TIMEOUT, "closed": RC_CLOSED}


cdef void count_one(void* argument) noexcept nogil:
    rc_add_i64(<int64_t*>argument, 1)


def new_position():
    """A Position that belongs to no store."""
    return Position()


def advance(Position position not None, int64_t at):
    with nogil:
        position.advance(at)
    return position.at


def fail(Position position not None, int rc):
    position.fail(rc)


def end(Position position not None):
    position.end()


def forget(Position position not None):
    position.forget()


def wait(
    Position position not None, int64_t wanted, int64_t timeout_ns=INT64_MAX // 2, int64_t slice_ns=INT64_MAX // 2,
):
    cdef int rc
    with nogil:
        rc = position.wait(wanted, rc_clock_ns() + timeout_ns, slice_ns)
    return rc


cdef class Waiter:
    """A subscriber with a callback that counts its calls."""
    cdef Position position
    cdef PositionSubscriber* subscriber
    cdef int64_t called

    def __cinit__(self, Position position not None, int fd=-1):
        cdef int rc = position.subscribe(fd, count_one, &self.called, &self.subscriber)
        if rc != RC_OK:
            raise ValueError(rc)
        self.position = position

    def __dealloc__(self):
        if self.position is not None:
            self.position.unsubscribe(self.subscriber)

    @property
    def calls(self):
        """The number of calls of the callback."""
        return rc_load_i64(&self.called)

    def arm(self, int64_t wanted):
        cdef int rc
        with nogil:
            rc = self.position.arm(self.subscriber, wanted)
        return rc

    def disarm(self):
        self.position.disarm(self.subscriber)

    def chase(self, int64_t step, int64_t last):
        """Wait for each multiple of step up to last, with arm() and the callback; return the number of wake-ups."""
        cdef int64_t wanted = step, calls
        cdef int rc
        with nogil:
            while wanted <= last:
                calls = rc_load_i64(&self.called)
                rc = self.position.arm(self.subscriber, wanted)
                if rc != RC_OK and rc != RC_MORE:
                    break
                while rc == RC_MORE and rc_load_i64(&self.called) == calls:
                    pass
                if rc_load_i64(&self.position.at) < wanted:
                    wanted = -1
                    break
                wanted += step
        return self.calls if wanted > 0 else -1
