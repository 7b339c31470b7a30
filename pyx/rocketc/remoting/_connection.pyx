# cython: language_level=3
"""One connection of a server: bytes in, answers out, and how much of each at a time.

Source: RocketMQ NettyRemotingServer, NettyRemotingAbstract.
"""
import asyncio
import logging
import socket

cimport cython
from libc.stdint cimport int32_t, int64_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from rocketc.c.status cimport RC_OK
from rocketc.remoting._busy cimport outline_of
from rocketc.remoting._fair_queue cimport ALL, FEW, QUANTUM, Flow
from rocketc.remoting._frames cimport Frame, FrameDecoder

cdef extern from "<sys/ioctl.h>" nogil:
    int FIONREAD
    int ioctl(int descriptor, unsigned long request, ...)

cdef enum:
    LARGE_READ = 16384      # bytes of a read event after which more may wait
    READ_AHEAD = 65536      # bytes that wait in the queue; with more, the socket is not read
    FRAMES_A_LOOK = 16      # frames of a fast path between two looks at the clock
    KERNEL_MOST = 262144    # bytes of answers that the kernel holds while the peer does not read; otherwise up to 4 MB
    FLAG_ANSWER = 1
    FLAG_ONEWAY = 2

_log = logging.getLogger("rocketc.remoting")
_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", None)


cdef class FastPath:
    """A compiled way for the requests that are sent most. It is used for the frames that it takes."""

    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1:
        return False

    cdef int finish(self, ConnectionCore connection) except -1:
        return 0


cdef tuple whole(const Frame* frame):
    """Return a frame as a server gets it: (form, header, body)."""
    return frame.form, frame.header[:frame.header_size], frame.body[:frame.body_size]


@cython.final
cdef class Reply:
    """Answers one request. A second call does nothing."""

    def __call__(self, pieces):
        """Send the bytes of the answer, or a list of buffers; b"" without an answer."""
        cdef ConnectionCore connection = self._connection
        if self._is_answered:
            return
        self._is_answered = True
        if connection._size_in_flight > 0:      # otherwise the connection is lost
            connection._size_in_flight -= self._size
            connection._owner.give_back(self._size)
        if self._is_held:
            connection._held -= 1
        connection.answer(1, pieces)

    def hold(self):
        """Do not count the request against the limit of a connection: it waits for something that may take long."""
        cdef ConnectionCore connection = self._connection
        if self._is_held or self._is_answered or connection._held >= connection._owner.limits.held:
            return
        self._is_held = True
        connection._held += 1
        if not connection._is_reading or connection._decoder.has_frame():
            connection._loop.call_soon(connection.resume)


cdef class ConnectionCore(Flow):
    """The protocol of one accepted connection, without its base class of asyncio.

    owner  the server, see Owner
    fast   a FastPath, or None
    """

    def __init__(self, owner, FastPath fast=None):
        self._owner = owner
        self._fast = fast
        self._queue = owner.queue
        self._decoder = FrameDecoder()
        self._answers = []
        self._is_reading = self._peer_reads = True
        self._most_in_flight = owner.limits.in_flight
        self._most_unread = owner.limits.unread_most
        self._most_waiting = owner.limits.unread
        self._descriptor = -1

    def connection_made(self, transport):
        self._transport = transport
        self.peer = transport.get_extra_info("peername")
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()
        transport.set_write_buffer_limits(self._owner.limits.unread)
        accepted = transport.get_extra_info("socket")
        if accepted is not None:
            self._descriptor = accepted.fileno()
        if accepted is not None and accepted.family in (socket.AF_INET, socket.AF_INET6):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)      # asyncio does not for all sockets
            if _NOTSENT_LOWAT is not None:
                accepted.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, KERNEL_MOST)
        if not self._owner.opened(self):
            self.abort()

    def use_transport(self, transport):
        """Send by another transport from now on, which sends by the one of connection_made(): the peer speaks TLS."""
        self._transport = transport
        self._is_wrapped = True     # that transport looks back: its bytes are others, and what waits is encrypted

    def data_received(self, data):
        cdef bytes chunk = data if type(data) is bytes else bytes(data)
        cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(chunk)
        cdef size_t size = <size_t>PyBytes_GET_SIZE(chunk)
        self.last_active = self._loop.time()
        if not self._is_wrapped:
            self._look_back(size)
        if size > 0 and not self._decoder.is_corrupt and not self._decoder.lend(at, size):
            self._decoder.feed(at, size)
        self._go_on(self.last_active)
        self._decoder.keep()

    cdef int _go_on(self, double now) except -1:
        """Process the frames that are here, now or when it is the turn of this connection."""
        if self._is_serving:
            return 0
        if self.is_queued or self._queue.must_wait():
            if self._decoder.has_frame():
                self._enter_queue()
            self._note_half(False)
            self._control_reading()
        else:
            self._queue.spend(self._serve(ALL, now))
        return 0

    cdef bint has_few(self) noexcept:
        return not self._decoder.has_more_than(FEW)

    cdef int serve(self, int most) except -1:
        if self._backlog is not None and not self._is_wrapped:
            self._look_back(0)
        self._serve(most, self._loop.time())
        self._decoder.keep()
        return 0

    cdef int fail(self) except -1:
        self.abort()
        return 0

    cdef double _serve(self, int most, double began) except -1.0:
        """Process the frames that are here while the limits allow it: `most`, or those of a QUANTUM.

        Refused ones do not count. Return how long it took since `began`, which is now. A connection that could process
        more enters the queue.
        """
        cdef double now
        cdef int frames = 0
        self._is_serving = True
        try:
            now = self._take_frames(most, began, &frames)
        finally:
            self._end_of_turn()
        if self._answers:
            self._flush(True)
        elif self._drained is not None:
            self._note_drained()
        if self._decoder.has_frame():
            if self._may_process():
                self._enter_queue()
        elif self._decoder.is_corrupt:
            _log.warning("%s: this is not RocketMQ's protocol; the connection is closed", self.peer)
            self.abort()
        elif self._kernel_is_empty:     # what arrives later has not waited
            self._backlog = None
            self.waited = 0.0
        self._note_half(frames > 0)
        self._control_reading()
        return now - began

    cdef double _take_frames(self, int most, double now, int* frames) except -1.0:
        """Do it for _serve(); return the time. It is read after each frame that the server gets."""
        cdef Frame frame
        cdef double until = now + QUANTUM, before
        while most > 0 and self._may_process() and self._decoder.next(&frame) == RC_OK:
            frames[0] += 1
            most -= 1
            if self._backlog is not None:
                self._note_waited(now, &frame)
            if self.is_closing:
                self._turn_away(&frame)
            elif self.waited > 0.0 and self._refuse(&frame):
                most += 1
            elif self._fast is not None and self._fast.take(self, &frame):
                pass
            else:
                if self._fast is not None:
                    self._fast.finish(self)
                before = self._loop.time()
                self._queue._is_excused = False
                if not self._pass_to_server(&frame):
                    break
                now = self._loop.time()
                self._queue.note_work(now - before)
                if now >= until:
                    break
                continue
            if frames[0] % FRAMES_A_LOOK == 0:
                now = self._loop.time()
                if now >= until:
                    break
        return now

    cdef int _end_of_turn(self) except -1:
        """Finish what the fast path has taken, and add the answers to those that are refused."""
        try:
            if self._fast is not None:
                self._fast.finish(self)
        finally:
            if self._busy is not None:
                self._owner.overdue += self._busy.refused
                self.write(self._busy.take())
                self._busy = None
            self._is_serving = False

    cdef int _enter_queue(self) except -1:
        if self._backlog is None:
            self._begin_backlog()
        self._backlog.note(self._received, self._queue.patience_clock(self._loop.time()))
        return self._queue.enter(self)

    cdef int _note_half(self, bint any_frame) except -1:
        """Note since when the peer owes the rest of a frame."""
        if self._decoder.is_empty():
            self._half_since = None
        elif any_frame or self._half_since is None:
            self._half_since = self.last_active
        return 0

    def look_back(self, size_t size):
        """Do it for a transport that decrypts: call it before the decrypted bytes are passed to data_received().

        size  bytes that were just read from the socket
        """
        self._look_back(size)

    cdef int _look_back(self, size_t size) except -1:
        """Note how many bytes wait in the socket, if the loop is late.

        size  bytes that were just read from it
        """
        cdef int waiting = 0
        if size < LARGE_READ and self._backlog is None:
            return 0
        self.last_active = self._loop.time()
        if ioctl(self._descriptor, FIONREAD, &waiting) != 0:
            waiting = 0
        self._kernel_is_empty = waiting == 0
        if self._backlog is not None:
            self._received += <int64_t>size
        elif waiting > 0:
            self._begin_backlog()
        else:
            return 0
        self._backlog.note(self._received + waiting, self._queue.patience_clock(self.last_active))
        return 0

    cdef int _begin_backlog(self) except -1:
        """Note from now on when bytes have arrived. Position 0 is after those that are read."""
        self._backlog = Backlog.__new__(Backlog)
        self._received = 0
        return 0

    cdef int _note_waited(self, double now, const Frame* frame) except -1:
        """Find out how long a frame has waited, at least.

        In TLS, what is read are more bytes than those of the frames: its frames seem to have arrived later.
        """
        cdef double since = self._backlog.since(self._received - <int64_t>self._decoder.left())
        self.waited = self._queue.patience_clock(now) - since if since >= 0.0 else 0.0
        return 0

    cdef bint _refuse(self, const Frame* frame) except -1:
        """Answer a request that has waited for longer than the server's patience; False: it has not."""
        cdef int32_t code = 0, opaque = 0, flag = 0
        if not outline_of(frame, &code, &opaque, &flag) or flag & FLAG_ANSWER:
            return False        # the server looks at `waited`, too
        if self._busy is None:
            self._busy = BusyAnswers(self._owner.patience, self.waited)
        return self._busy.refuse(code, opaque, flag & FLAG_ONEWAY != 0, self.waited)

    cdef bint _pass_to_server(self, const Frame* frame) except -1:
        """Pass a frame to the server; False: there is no room for it, and it is still the next one."""
        cdef Py_ssize_t size = <Py_ssize_t>frame.header_size + <Py_ssize_t>frame.body_size
        cdef Reply reply
        if not self._owner.take(self, size):
            self._decoder.put_back(frame)
            self._has_no_room = True
            return False
        self.in_flight += 1
        self._size_in_flight += size
        reply = Reply.__new__(Reply)
        reply._connection = self
        reply._size = size
        self._owner.handle(self, whole(frame), reply)
        return True

    cdef int _turn_away(self, const Frame* frame) except -1:
        """The server ends: it does not process the frames that arrive, but answers them."""
        answer = self._owner.turn_away(self, whole(frame))
        if answer:
            self.write(answer)
        return 0

    cdef bint _may_process(self) noexcept:
        if self.is_closing:         # frames are turned away, whatever the limits are
            return not self.is_lost
        return self._may_take() and not self._has_no_room

    cdef bint _may_take(self) noexcept:
        if self._size_waiting > self._most_waiting:         # _flush() sends them and continues
            return False
        return self._peer_reads and self.in_flight - self._held < self._most_in_flight and not self.is_lost

    cdef int _control_reading(self) except -1:
        """Decide whether the socket is read."""
        cdef bint is_limited = not self._may_process()
        cdef bint reading = not is_limited and not (self.is_queued and self._decoder.left() >= READ_AHEAD)
        if self.is_lost:
            return 0
        if self._is_limited and not is_limited:
            self._backlog = None    # what waited meanwhile has waited for the limits, not for the server
            self.waited = 0.0
        self._is_limited = is_limited
        if reading != self._is_reading:
            self._is_reading = reading
            if reading:
                if self._half_since is not None:        # the time in which this end did not read is not the peer's
                    self._half_since = self._loop.time()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        return 0

    cdef int begin(self, Py_ssize_t count) except -1:
        """Count requests of a fast path that are answered later, with answer()."""
        self.in_flight += count
        return 0

    cdef int answer(self, Py_ssize_t count, object pieces) except -1:
        """Answer requests in flight.

        count   number of requests
        pieces  bytes, or a list of buffers; b"" without an answer
        """
        self.in_flight -= count
        self.write(pieces)
        return 0

    def write(self, pieces):
        """Send a frame, or a list of the buffers of frames, with the others of this turn of the loop.

        b"" only sends what waits.
        """
        if type(pieces) is list:
            self._answers += pieces
            for piece in pieces:
                self._size_waiting += len(piece)
                if type(piece) is bytes:
                    self._memory_waiting += len(piece)
        else:
            self._answers.append(pieces)
            self._size_waiting += len(pieces)
            self._memory_waiting += len(pieces)
        if not self._is_serving and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self):
        self._flush(False)

    cdef list _next_answers(self):
        """Take answers for the transport from those that wait: one, and more up to the limit of unread bytes."""
        cdef list answers = self._answers
        cdef Py_ssize_t size, i, taken = 0
        if self._size_waiting <= self._most_waiting:
            self._answers = []
            self._size_waiting = self._memory_waiting = 0
            return answers
        for i in range(len(answers)):
            size = len(answers[i])
            if taken > 0 and taken + size > self._most_waiting:
                break
            taken += size
            if type(answers[i]) is bytes:
                self._memory_waiting -= size
        else:
            i = len(answers)
        self._size_waiting -= taken
        self._answers = answers[i:]
        return answers[:i]

    cdef int _flush(self, bint from_read_event) except -1:
        """Send the answers that wait, while the peer reads them."""
        cdef list answers
        cdef Py_ssize_t unread
        self._is_flush_due = False
        if self.is_lost or self._transport.is_closing():    # asyncio's writelines() does not check it
            self._answers = []
            self._size_waiting = self._memory_waiting = 0
        else:
            if self._peer_reads:        # otherwise resume_writing() follows
                answers = self._next_answers()
                if len(answers) == 1:
                    if answers[0]:
                        self._transport.write(answers[0])
                else:
                    self._transport.writelines([answer for answer in answers if len(answer) > 0])
            unread = self._transport.get_write_buffer_size()
            if unread > self._most_waiting:
                if self._peer_reads:    # writelines() does not tell it in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1
                    self._transport.set_write_buffer_limits(self._most_waiting)
            if unread + self._memory_waiting > self._most_unread:
                _log.warning(
                    "%s: %d bytes of answers are unread; the connection is closed", self.peer,
                    unread + self._memory_waiting,
                )
                self.abort()
            elif self._answers and self._peer_reads:
                self._is_flush_due = True
                self._loop.call_soon(self._flush_later)
            if not from_read_event:
                self.last_active = self._loop.time()
                self._go_on(self.last_active)   # no read event comes for frames that have waited
        if self._drained is not None:
            self._note_drained()

    @property
    def is_read(self):
        """Whether the peer reads what it is sent: at most the limit of unread bytes wait."""
        return self._peer_reads and self._size_waiting <= self._most_waiting

    def _unsent(self):
        """Test hook: return the bytes of answers that are not passed to the transport yet."""
        return self._size_waiting

    def _socket_option(self, level, name):
        """Test hook: return an option of the socket."""
        return self._transport.get_extra_info("socket").getsockopt(level, name)

    def resume(self):
        """There is room for requests again: process the frames that have waited."""
        self._has_no_room = False
        self._go_on(self._loop.time())

    def pause_writing(self):
        self._peer_reads = False
        self._go_on(self._loop.time())

    def resume_writing(self):
        self._peer_reads = True
        if self._answers and not self._is_flush_due and not self._is_serving:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_later)
        self._go_on(self._loop.time())

    def connection_lost(self, error):
        self.is_closing = self.is_lost = True
        size, self._size_in_flight = self._size_in_flight, 0
        self._owner.give_back(size)
        self._owner.lost(self)
        self._has_ended = True
        for waiting in (self._drained, self._ended):
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def eof_received(self):
        return None

    def check_times(self, double now):
        """Close the connection if it was idle, or a frame is incomplete, for too long."""
        limits = self._owner.limits
        if self.is_queued:
            return
        if now - self.last_active >= limits.idle and self.in_flight == 0:
            _log.info("%s: idle for %d s; the connection is closed", self.peer, now - self.last_active)
            self.abort()            # close() would wait for a peer that does not read
        elif self._half_since is not None and self._is_reading and now - self._half_since >= limits.half_frame:
            _log.warning("%s: half a frame for %d s; the connection is closed", self.peer, now - self._half_since)
            self.abort()

    def abort(self):
        """Close the connection at once; answers that are not sent are lost."""
        self.is_lost = True
        self._transport.abort()

    def _note_drained(self):
        if self._drained is None or self._drained.done() or self.in_flight or self._answers or self.is_queued:
            return
        self._drained.set_result(None)

    async def close(self, grace):
        """Turn further requests away, answer those in flight, and close when all answers are written.

        grace  seconds for all of it; then the connection is cut off
        """
        cdef double deadline = self._loop.time() + grace
        self.is_closing = True
        self._go_on(self._loop.time())
        self._drained = self._loop.create_future()
        self._note_drained()
        await asyncio.wait({self._drained}, timeout=grace)
        if not self._drained.done() and self.in_flight:
            _log.warning("%s: closed with %d unanswered requests", self.peer, self.in_flight)
        if self._answers and not self.is_lost:
            self._transport.writelines([answer for answer in self._answers if len(answer) > 0])
        self.is_lost = True
        self._transport.close()     # sends what is buffered
        if not self._has_ended:
            self._ended = self._loop.create_future()
            await asyncio.wait({self._ended}, timeout=max(0.0, deadline - self._loop.time()))
        if not self._has_ended:
            unread = self._transport.get_write_buffer_size()
            if unread > 0:          # otherwise it waits for the peer's end of a TLS session
                _log.warning("%s: closed with %d bytes of answers unread", self.peer, unread)
            self._transport.abort()
