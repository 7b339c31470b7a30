# cython: language_level=3
"""The calls of a client over its connections: their numbers, their frames, and their answers.

The parts that wait for something are in rocketc.remoting.channel. A call of another module may write its frame where it
is sent from, and take its answer from the header, without objects for both.
Source: RocketMQ NettyRemotingAbstract.
"""
import asyncio

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from rocketc.c.status cimport RC_OK
from rocketc.remoting._frames cimport Frame, FrameDecoder
from rocketc.remoting._headers cimport Header, parse_header

cdef enum:
    FLAG_ANSWER = 1
    OPAQUE_MOST = 0x7FFFFFFF
    COPIED_MOST = 16 << 10      # bytes of a frame that is copied to the others
    WRITTEN_AT_ONCE = 64 << 10  # bytes; less waits for the end of the turn of the loop
    KEPT_BYTES = 128 << 10      # a larger buffer is freed when it is empty
    LEAST_BYTES = 4 << 10       # of a buffer

cdef double SWEEP_SECONDS = 0.1         # a call ends at most this late


cdef class Call:
    """A request that waits for its answer.

    deadline  loop.time() at which it ends
    answer    a future of the answer, a Command
    link      the connection
    """

    def __init__(self, double deadline, answer, LinkCore link not None):
        self.opaque = -1
        self.deadline = deadline
        self.answer = answer
        self.link = link

    @property
    def channel(self):
        """Whose connection it is."""
        return self.link.channel

    cdef bint take(self, Header* header) except -1:
        return False


cdef class ChannelCore:
    """The calls of a Channel that wait for their answers, by their numbers.

    One timer ends those that are due, because a timer each costs more than a call. A subclass has `_expire()`.
    """

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._waiting = {}

    def _begin(self, Call call not None):
        """Give a call its number, and register it. Return the number."""
        self.begin(call)
        return call.opaque

    def _next_opaque(self):
        """Return the number of a request that is not answered."""
        cdef int64_t opaque = self._next & OPAQUE_MOST
        self._next += 1
        return opaque

    cdef int begin(self, Call call) except -1:
        call.opaque = self._next & OPAQUE_MOST
        self._next += 1
        self._waiting[call.opaque] = call
        if self._sweep is None:
            self._start_timer()
        return 0

    def _start_timer(self):
        """Begin to wait until _expire() is called; not without calls."""
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire) if self._waiting else None

    def _end(self, Call call not None):
        """Forget a call, if it is known."""
        self.end(call)

    cdef int end(self, Call call) except -1:
        self._waiting.pop(call.opaque, None)
        return 0


cdef class LinkCore:
    """One connection of a channel: frames leave once in a turn of the loop, and answers go to the calls that wait.

    A subclass has `_received(form, header, body)`, for the frames that no compiled call takes.
    """

    def __init__(self, ChannelCore channel not None, header_most):
        self.channel = channel
        self._decoder = FrameDecoder(header_most)
        self._loop = asyncio.get_running_loop()
        self._pieces = []

    def __dealloc__(self):
        free(self._bytes)

    def send(self, bytes frame not None):
        """Send a frame, at the end of this turn of the loop."""
        cdef size_t n = <size_t>PyBytes_GET_SIZE(frame)
        if n > COPIED_MOST:
            self._seal()
            self._pieces.append(frame)
            self._added(n)
        else:
            memcpy(self.reserve(n), PyBytes_AS_STRING(frame), n)
            self.add(n)

    cdef uint8_t* reserve(self, size_t n) except NULL:
        """Return the place for a frame of n bytes at most; add() sends it. The place is valid until other calls."""
        cdef uint8_t* bigger
        cdef size_t room = self._used + n
        if room > self._room:
            room = max(room + (room >> 1), <size_t>LEAST_BYTES)
            bigger = <uint8_t*>realloc(self._bytes, room)
            if bigger == NULL:
                raise MemoryError
            self._bytes = bigger
            self._room = room
        return self._bytes + self._used

    cdef int add(self, size_t n) except -1:
        """Send the n bytes that are at the place that reserve() returned."""
        self._used += n
        return self._added(n)

    cdef int _added(self, size_t n) except -1:
        self._size += n
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        if self._size >= WRITTEN_AT_ONCE:
            self._write()
        return 0

    cdef int _seal(self) except -1:
        """Make a piece of the frames in the buffer."""
        if self._used > 0:
            self._pieces.append(self._bytes[:<Py_ssize_t>self._used])
            self._used = 0
        if self._room > KEPT_BYTES:
            free(self._bytes)
            self._bytes = NULL
            self._room = 0
        return 0

    def _flush(self):
        self._is_flush_due = False
        self._write()

    cdef int _write(self) except -1:
        """Give all frames to the transport; they are lost if the connection ends."""
        cdef list pieces
        self._seal()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces and not self._transport.is_closing():
            self._transport.writelines(pieces)
        return 0

    def _decode(self, data):
        """Pass the frames in these bytes on: answers to compiled calls, all others to _received().

        Nothing is passed after an impossible size: see `_decoder.is_corrupt`. What _received() raises ends this.
        """
        cdef Frame frame
        cdef Header header
        cdef Call call
        cdef bytes chunk = data if type(data) is bytes else bytes(data)
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(chunk)
        cdef size_t size = <size_t>PyBytes_GET_SIZE(chunk)
        cdef dict waiting = self.channel._waiting
        if size > 0 and not self._decoder.is_corrupt and not self._decoder.lend(at, size):
            self._decoder.feed(at, size)
        try:
            while self._decoder.next(&frame) == RC_OK:
                if parse_header(&frame, &header) == RC_OK and header.flag & FLAG_ANSWER:
                    call = waiting.get(header.opaque)
                    if call is not None and call.take(&header):
                        continue
                self._received(frame.form, frame.header[:frame.header_size], frame.body[:frame.body_size])
        finally:
            self._decoder.keep()
