"""One connection of a server: bytes in, answers out, and how much of each at a time."""
from libc.stdint cimport int64_t

from rocketc.remoting._backlog cimport Backlog
from rocketc.remoting._busy cimport BusyAnswers
from rocketc.remoting._frames cimport Frame, FrameDecoder


# Takes frames before the processors of a server do. All methods run with the GIL, on the thread of the event loop.
cdef class FastPath:
    # Take a request; the pointers of `frame` are valid until finish(). False: a processor takes it.
    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1
    # Do the work of the requests taken since the last call, and answer them. It is called after each read event, and
    # before a processor gets a later frame of the same connection.
    cdef int finish(self, ConnectionCore connection) except -1


cdef class ConnectionCore:
    cdef:
        object _owner           # an Owner
        FastPath _fast          # or None
        FrameDecoder _decoder
        object _frames          # complete, and not passed to the server yet: a deque, or ()
        list _answers           # that are not sent yet: one writelines() for those of a turn of the loop
        object _transport
        object _loop
        object _drained         # a future of close(), or None
        object _ended           # the same, for the end of the transport
        Backlog _backlog        # None, unless the peer sends faster than its bytes are read
        BusyAnswers _busy       # of this read event, or None
        int64_t _received       # bytes, since there is a backlog
        int _descriptor         # of the socket; -1: there is none
        object _half_since      # when the incomplete frame began to arrive; None: there is none
        Py_ssize_t _size_in_flight      # bytes of the requests in flight that the server counts
        Py_ssize_t _most_in_flight
        Py_ssize_t _most_unread
        Py_ssize_t _held                # requests in flight that are not counted against the limit
        Py_ssize_t _size_waiting        # bytes of _answers
        Py_ssize_t _memory_waiting      # those of them that are not views, such as of a mapped file
        Py_ssize_t _most_waiting
        bint _is_reading
        bint _peer_reads        # False while it leaves too many answers unread
        bint _is_receiving      # answers are sent at the end of the read event
        bint _is_flush_due      # the loop will call _flush()
        bint _has_ended         # the transport has ended
        bint _is_wrapped        # the peer speaks TLS
    cdef readonly:
        Py_ssize_t in_flight    # requests that the server has, and has not answered
        bint is_closing         # requests are turned away
        bint is_lost            # it ended, or ends: nothing can be sent
        object peer             # (host, port, ...)
    cdef public:
        double waited           # seconds that the bytes of this read event have waited in the kernel, at least
        double last_active      # loop.time() of the last byte in either direction
        bytes host              # of the peer, in stored form; None until a fast path sets it
    cdef int begin(self, Py_ssize_t count) except -1
    cdef int answer(self, Py_ssize_t count, object pieces) except -1
    cdef bint _may_take(self) noexcept
    cdef list _next_answers(self)
    cdef int _flush(self, bint from_read_event) except -1
    cdef int _look_back(self, size_t size) except -1
    cdef bint _refuse(self, const Frame* frame) except -1
    cdef int _pass_on(self) except -1
    cdef int _pass_frames(self, FastPath fast) except -1
    cdef bint _pass_to_server(self) except -1
    cdef int _turn_away(self) except -1


cdef class Reply:
    cdef:
        ConnectionCore _connection
        Py_ssize_t _size
        bint _is_answered
        bint _is_held
