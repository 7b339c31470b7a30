"""The calls of a client over its connections: their numbers, their frames, and their answers."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.remoting._frames cimport FrameDecoder
from rocketc.remoting._headers cimport Header


# A request that waits for its answer. All methods run with the GIL, on the thread of the event loop.
cdef class Call:
    cdef readonly:
        double deadline         # loop.time() at which it ends
        object answer           # a future
        LinkCore link           # the connection that it is sent over
        int64_t opaque          # its number
    # Take the answer, whose texts are valid during this call. False: the future of this call gets a Command.
    cdef bint take(self, Header* header) except -1


cdef class ChannelCore:
    cdef public:
        LinkCore link          # the connection for new calls, or None
    cdef readonly:
        object _loop
        dict _waiting           # Call by number
        object _sweep           # the timer that ends the calls that are due; None without calls
        int64_t _next           # number of the next call
    cdef int begin(self, Call call) except -1
    cdef int end(self, Call call) except -1


cdef class LinkCore:
    cdef readonly:
        ChannelCore channel
        FrameDecoder _decoder
        object _loop
    cdef public:
        object _transport       # None before the connection is made
    cdef:
        uint8_t* _bytes         # frames that are not written yet, later than those of _pieces
        size_t _used            # bytes of them
        size_t _room            # allocated bytes
        list _pieces            # frames that are not written yet
        size_t _size            # bytes of all frames that are not written yet
        bint _is_flush_due      # the loop will call _flush()
    cdef uint8_t* reserve(self, size_t n) except NULL
    cdef int add(self, size_t n) except -1
    cdef int _added(self, size_t n) except -1
    cdef int _seal(self) except -1
    cdef int _write(self) except -1
