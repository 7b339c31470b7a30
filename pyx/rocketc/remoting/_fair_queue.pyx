# cython: language_level=3
"""Whose requests are processed next, and for how long, while the loop has more to do than it can.

A flow is what comes from one connection. A turn of the queue is bounded: then the loop reads sockets and calls timers.
In a turn, sparse flows are first, for half of it. A client that waits for each answer does not wait for others that
send thousands of requests at once. Then the other flows take turns, for a quantum each.
Some work takes time but is not overload: a topic is created once. Requests that wait for it are not
refused for that.
Source: DRR (RFC 970, Shreedhar and Varghese), and the sparse flows of FQ-CoDel (RFC 8290).
"""
import asyncio
import logging
from collections import deque

cdef enum:
    SERVED_MOST = 64            # flows that did not have to wait, between two turns
    BULK = 2048                 # requests of all bulk flows until each had its turn, at least FEW of each

cdef double TURN = 0.004        # seconds
cdef double CALM = 0.05         # seconds without a turn as a bulk flow, after which a flow can be sparse
QUANTUM = 0.001

_log = logging.getLogger("rocketc.remoting")


cdef class Flow:
    """What has requests that wait."""

    def __cinit__(self):
        self._bulk_at = -CALM

    cdef bint has_few(self) noexcept:
        return True

    cdef int serve(self, int most) except -1:
        return 0

    cdef int fail(self) except -1:
        return 0


cdef class FairQueue:
    """The flows of a loop whose requests wait. Servers of one loop share it, or have one each."""

    def __cinit__(self):
        self._sparse = deque()
        self._bulk = deque()

    def __len__(self):
        return len(self._sparse) + len(self._bulk)

    cdef bint must_wait(self) noexcept:
        return self._is_due or self._served >= SERVED_MOST or self._spent >= TURN

    cdef void spend(self, double seconds) noexcept:
        self._served += 1
        self._spent += seconds

    def excuse(self):
        """Say that the request that is processed does work that happens once: requests may wait longer for it."""
        self._is_excused = True

    cdef double patience_clock(self, double now) noexcept:
        self._clock = max(self._clock, now - self._excused)
        return self._clock

    cdef void note_work(self, double seconds) noexcept:
        self._work += seconds
        if self._is_excused:
            self._excused_work += seconds
            self._is_excused = False

    cdef int _excuse_turn(self, double now) except -1:
        """Excuse a share of the time since the last turn, as great as that of the work: it also causes writes."""
        if self._excused_work > 0.0:
            self._excused += (now - self._began) * self._excused_work / self._work
        self._begin_work(now)
        return 0

    cdef void _begin_work(self, double now) noexcept:
        self._work = self._excused_work = 0.0
        self._began = now

    cdef int enter(self, Flow flow) except -1:
        """Queue a flow, unless it is queued."""
        if flow.is_queued:
            return 0
        if not self._is_due:
            self._call_turn()
            self._begin_work(self._loop.time())
        flow.is_queued = True
        (self._sparse if self._is_sparse(flow, self._loop.time()) else self._bulk).append(flow)
        return 0

    cdef bint _is_sparse(self, Flow flow, double now) noexcept:
        """Whether few requests of a flow wait, and not only because it has just been served."""
        return flow.has_few() and now - flow._bulk_at >= CALM

    cdef int _call_turn(self) except -1:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._is_due = True
        self._loop.call_soon(self._turn)
        return 0

    def _turn(self):
        """Serve flows for TURN, and the flow that is served then for its quantum."""
        cdef double began
        self._spent = self._served = 0
        if not self._sparse and not self._bulk:
            return
        began = self._loop.time()
        self._excuse_turn(began)
        try:
            self._serve(self._sparse, FEW, began + TURN / 2)
            self._serve(self._bulk, max(<int>FEW, <int>(BULK // (1 + len(self._bulk)))), began + TURN)
        finally:
            self._is_due = False
            if self._sparse or self._bulk:
                self._call_turn()

    cdef int _serve(self, object flows, int most, double until) except -1:
        """Serve flows in their order until a time; at least one."""
        cdef Flow flow
        cdef double now = self._loop.time()
        while flows:
            flow = flows.popleft()
            if flows is self._bulk:
                flow._bulk_at = now
            elif not self._is_sparse(flow, now):    # more has arrived
                self._bulk.append(flow)
                continue
            flow.is_queued = False
            try:
                flow.serve(most)
            except Exception:
                _log.exception("requests of a connection failed; it is closed")
                flow.fail()
            now = self._loop.time()
            if now >= until:
                break
        return 0
