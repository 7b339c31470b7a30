"""One connection of a server: bytes in, answers out, and how much of each at a time."""
from libc.stdint cimport int64_t

from rocketc.remoting._backlog cimport Backlog
from rocketc.remoting._busy cimport BusyAnswers
from rocketc.remoting._fair_queue cimport FairQueue, Flow
from rocketc.remoting._frames cimport Frame, FrameDecoder


# Takes frames before the processors of a server do. All methods run with the GIL, on the thread of the event loop.
cdef class FastPath:
    # Take a request; the pointers of `frame` are valid until finish(). False: a processor takes it.
    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1
    # Do the work of the requests taken since the last call, and answer them. It is called at the end of a turn, and
    # before a processor gets a later frame of the same connection.
    cdef int finish(self, ConnectionCore connection) except -1


cdef class ConnectionCore(Flow):
    cdef:
        object _owner           # an Owner
        FastPath _fast          # or None
        FrameDecoder _decoder
        FairQueue _queue        # of the server: where this connection waits for its turn
        list _answers           # that are not sent yet: one writelines() for those of a turn
        object _transport
        object _loop
        object _drained         # a future of close(), or None
        object _ended           # the same, for the end of the transport
        Backlog _backlog        # None, unless requests wait, or the peer sends faster than its bytes are read
        BusyAnswers _busy       # of this turn, or None
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
        bint _is_limited        # the limits do not allow to process requests
        bint _has_no_room       # the server does not have room for the next request; it calls resume()
        bint _kernel_is_empty   # at the last look, if there is a backlog
        bint _is_serving        # answers are sent at the end of this turn
        bint _is_flush_due      # the loop will call _flush()
        bint _has_ended         # the transport has ended
        bint _is_wrapped        # the peer speaks TLS
    cdef readonly:
        Py_ssize_t in_flight    # requests that the server has, and has not answered
        bint is_closing         # requests are turned away
        bint is_lost            # it ended, or ends: nothing can be sent
        object peer             # (host, port, ...)
    cdef public:
        double waited           # seconds that the request that is processed has waited, at least
        double last_active      # loop.time() of the last byte in either direction
        bytes host              # of the peer, in stored form; None until a fast path sets it
    cdef int begin(self, Py_ssize_t count) except -1
    cdef int answer(self, Py_ssize_t count, object pieces) except -1
    cdef int _go_on(self, double now) except -1
    cdef double _serve(self, int most, double began) except -1.0
    cdef double _take_frames(self, int most, double now, int* frames) except -1.0
    cdef int _end_of_turn(self) except -1
    cdef int _enter_queue(self) except -1
    cdef int _note_half(self, bint any_frame) except -1
    cdef bint _may_process(self) noexcept
    cdef bint _may_take(self) noexcept
    cdef int _control_reading(self) except -1
    cdef list _next_answers(self)
    cdef int _flush(self, bint from_read_event) except -1
    cdef int _look_back(self, size_t size) except -1
    cdef int _begin_backlog(self) except -1
    cdef int _note_waited(self, double now, const Frame* frame) except -1
    cdef bint _refuse(self, const Frame* frame) except -1
    cdef bint _pass_to_server(self, const Frame* frame) except -1
    cdef int _turn_away(self, const Frame* frame) except -1


cdef class Reply:
    cdef:
        ConnectionCore _connection
        Py_ssize_t _size
        bint _is_answered
        bint _is_held
