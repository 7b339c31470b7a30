# cython: language_level=3
"""Pulls over plain sockets, many of them under way, and the records of their answers in order. One thread does it all.

A queue is read ahead: while the broker sends all messages, the offsets of later pulls are known before it answers.
An answer stays where it was received; its records are copied once, into the block that is returned.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE, _PyBytes_Resize
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove
from posix.unistd cimport close

from rocketc.c.bytes cimport rc_get_i32, rc_get_i64, rc_put_i32
from rocketc.c.status cimport RC_BAD_SIZE, RC_OK
from rocketc.client._property_texts cimport NUMBER_BYTES, put_number
from rocketc.client._pull_queues cimport (
    MOST, OFFSET, OPAQUE, PIECES, PULLS_MOST, WINDOW, Chunk, Link, Pull, Queue, add_pull, push, sift_down,
)
from rocketc.format._record cimport Record, parse_record
from rocketc.remoting._frames cimport FRAME_MAX, Frame, cut_frame
from rocketc.remoting._headers cimport Header, Text, field_of, number_of, parse_header

from rocketc.remoting.codes import Code

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int POLLOUT
    int poll(pollfd* fds, unsigned long n, int timeout)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    ssize_t recv(int fd, void* buf, size_t n, int flags)
    ssize_t send(int fd, const void* buf, size_t n, int flags)

cdef enum:
    QUEUES_MOST = 256           # of a stream; the opaque of a request has the number of its queue
    NUMBER_BITS = 20            # of an opaque, for the number of the pull in its queue
    LINK_PULLS = 48             # of a connection at the same time, about
    STEP = 32                   # messages of a pull: a broker does not send more by default
    PROBE = 64                  # pulls of fewer messages, before one of STEP shows whether the broker sends more now
    CHUNK_BYTES = 1 << 20
    CHUNK_ROOM = 64 << 10       # bytes that a chunk must have for the next recv()
    FREE_MOST = 8               # chunks
    HELD_MOST = 32 << 20        # bytes of chunks; above, only what a queue waits for is pulled
    HELD_STOP = 128 << 20       # above, it stops: answers are larger than those of a usual broker
    BLOCK_BYTES = 1 << 20       # of a block that is returned, at most, unless one record is larger
    LEAST_BYTES = 64 << 10      # of a block that is returned instead of a wait
    RUN_BYTES = 8               # two int32
    TICK = 50                   # ms between two calls of `check` while nothing comes

cdef enum Outcome:
    MORE
    HEAD
    FULL
    OVER
    STOPPED

cdef int FOUND = Code.SUCCESS
cdef int NO_MATCHED = Code.PULL_RETRY_IMMEDIATELY


@cython.final
cdef class PullStream:
    """The records of queues, in order: of one broker in that of its log, of several by the time when they were stored.

    fds      sockets of brokers, which the stream closes
    queues   (number of the socket, begin, end, template) of each queue: queue offsets, and what encode_template()
             returns. At most QUEUES_MOST
    until    a queue ends at its first message that was stored then or later, ms
    timeout  ms without an answer
    is_filtered  the broker leaves out messages: the next pull of a queue waits for the answer before it
    stops_at_gaps  stop if messages are missing and `is_filtered` is not set
    check    called before each block, and some times a second while next() waits; what it raises ends next()
    encode   encode(number of the queue, opaque, offset, most) -> the frame, for requests that are signed; None: from
             the templates
    It stops at everything that is not an answer with messages: another code, a broken connection, bytes that are not a
    record. All before it is returned; positions() is where another way has to continue.
    """

    cdef:
        Link* _links
        Queue* _queues
        pollfd* _polled
        int _link_count
        int _queue_count
        bint _is_open           # the sockets belong to the stream
        int _missing            # queues that are not over and lack a head
        bint _is_filtered
        bint _stops_at_gaps
        int64_t _until
        int64_t _timeout
        int64_t _waited         # ms without a byte
        size_t _held            # bytes of chunks that are in use
        Chunk* _free
        int _free_count
        uint8_t* _out           # the block that is filled
        size_t _used            # bytes of it
        size_t _room
        int32_t* _runs          # of the block: pairs of the position after the last record of a link, and the link
        size_t _run_count
        size_t _run_room
        const char* _why        # it stopped; NULL: it did not
        object _encode
        object _check
        object _templates       # own the pieces

    def __init__(self, fds, queues, *, int64_t until, int64_t timeout, bint is_filtered, bint stops_at_gaps=False,
                 check=None, encode=None):
        cdef Queue* q
        cdef int i, k, n
        cdef size_t fd_count, queue_count
        queues, fds = list(queues), list(fds)
        fd_count, queue_count = <size_t>len(fds) + 1, <size_t>len(queues) + 1
        if self._links != NULL or queue_count > QUEUES_MOST + 1:
            raise ValueError(f"{len(queues)} queues; at most {QUEUES_MOST} are allowed")
        self._links = <Link*>calloc(fd_count, sizeof(Link))
        self._queues = <Queue*>calloc(queue_count, sizeof(Queue))
        self._polled = <pollfd*>calloc(fd_count, sizeof(pollfd))
        if self._links == NULL or self._queues == NULL or self._polled == NULL:
            raise MemoryError
        for fd in fds:
            self._links[self._link_count].fd = fd
            self._link_count += 1
        for i in range(self._link_count):
            self._links[i].heap = <int*>calloc(queue_count, sizeof(int))
            if self._links[i].heap == NULL:
                raise MemoryError
        self._templates = [template for *_, template in queues]
        self._encode, self._check = encode, check
        self._is_filtered, self._stops_at_gaps = is_filtered, stops_at_gaps
        self._until, self._timeout = until, timeout
        for link, begin, end, (pieces, numbers) in queues:
            q = &self._queues[self._queue_count]
            q.number = self._queue_count
            q.link = link
            q.position = q.asked = begin
            q.end = end
            q.step = STEP
            if not 0 <= q.link < self._link_count or len(pieces) != PIECES or sorted(numbers) != [OPAQUE, OFFSET, MOST]:
                raise ValueError(f"queue {self._queue_count} has an invalid link or template")
            for k in range(PIECES):
                q.pieces[k] = <const uint8_t*>PyBytes_AS_STRING(pieces[k])
                q.piece_sizes[k] = <size_t>PyBytes_GET_SIZE(pieces[k])
            for k in range(PIECES - 1):
                q.numbers[k] = numbers[k]
            self._queue_count += 1
        for i in range(self._queue_count):
            q = &self._queues[i]
            n = 0
            for k in range(self._queue_count):
                n += self._queues[k].link == q.link
            q.window = 2 if is_filtered else <int>max(2, min(<int>WINDOW, LINK_PULLS // n))
            q.is_over = q.position >= q.end
            self._missing += not q.is_over
        self._is_open = True

    def __dealloc__(self):
        cdef int i, k
        cdef Chunk* chunk
        self.close()
        for i in range(self._queue_count):
            for k in range(self._queues[i].count):
                self._leave(self._queues[i].pulls[k].chunk)
        for i in range(self._link_count):
            self._leave(self._links[i].chunk)
            free(self._links[i].requests)
            free(self._links[i].heap)
        while self._free != NULL:
            chunk = self._free
            self._free = chunk.next
            free(chunk)
        free(self._links)
        free(self._queues)
        free(self._polled)
        free(self._runs)

    def close(self):
        """Close the sockets."""
        cdef int i
        if self._is_open:
            self._is_open = False
            for i in range(self._link_count):
                close(self._links[i].fd)
                self._links[i].fd = -1

    @property
    def why(self):
        """Why it stopped; None: it did not."""
        return None if self._why == NULL else self._why.decode()

    def runs(self):
        """Return which links the records of the last block are from: a RecordBlock's `runs`."""
        return PyBytes_FromStringAndSize(<const char*>self._runs, <Py_ssize_t>(self._run_count * RUN_BYTES))

    def positions(self):
        """Return the queue offset of the next record of each queue; the end of its range if all were returned."""
        return [
            self._queues[i].end if self._queues[i].is_over else self._queues[i].position
            for i in range(self._queue_count)
        ]

    def next(self):
        """Return the next block of records; nothing at the end, or when it has stopped."""
        cdef PyObject* block
        cdef int outcome = MORE
        out = PyBytes_FromStringAndSize(NULL, BLOCK_BYTES)
        self._room, self._used, self._run_count = <size_t>BLOCK_BYTES, 0, 0
        while True:
            if self._check is not None:
                self._check()
            self._out = <uint8_t*>PyBytes_AS_STRING(out)
            with nogil:
                outcome = self._run()
            if outcome == HEAD:                 # the next record needs a larger block
                out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>self._room)
                continue
            if outcome != MORE or self._used > 0:
                break
            PyErr_CheckSignals()
        block = <PyObject*>out
        Py_INCREF(out)
        out = None
        _PyBytes_Resize(&block, <Py_ssize_t>self._used)
        out = <object>block
        Py_DECREF(out)
        return out

    cdef int _run(self) except -1 nogil:
        """Fill the block. MORE: nothing has come for a moment; HEAD: the block needs _room bytes; FULL: return it.

        OVER and STOPPED: return what is there; the next block is empty.
        """
        cdef int i, outcome
        cdef Queue* q
        while self._why == NULL:
            if self._missing > 0:
                for i in range(self._queue_count):
                    q = &self._queues[i]
                    if not q.has_head and not q.is_over and self._load_head(q) == HEAD:
                        push(&self._links[q.link], self._queues, i)
            if self._why != NULL:
                break
            if self._missing == 0:
                outcome = self._emit()
                if outcome == MORE:
                    continue
                if outcome == FULL:
                    self._pump(False)           # the broker works while the caller does
                return outcome
            outcome = self._pump(True)
            if outcome == MORE:                 # nothing has come
                if self._used >= LEAST_BYTES:
                    return FULL
                if self._wait() == 0:
                    return MORE
        return STOPPED

    # records

    cdef int _load_head(self, Queue* q) noexcept nogil:
        """Look for the next record of a queue: HEAD, MORE, OVER or STOPPED."""
        cdef Pull* pull
        cdef Record r
        while True:
            if q.position >= q.end:
                return self._end_queue(q)
            if q.count == 0 or not q.pulls[0].is_answered:
                return MORE
            pull = &q.pulls[0]
            if pull.at == pull.size:
                q.position = max(q.position, pull.next_offset)
                self._drop_first(q)
                continue
            if parse_record(pull.body + pull.at, pull.size - pull.at, &r) != RC_OK:
                return self._stop(b"bytes that are not a record")
            if r.queue_offset >= q.end or rc_get_i64(r.tail) >= self._until:
                return self._end_queue(q)
            if r.queue_offset < q.position:
                if pull.offset >= q.position:
                    return self._stop(b"a message before the offset of its pull")
                pull.at += <size_t>r.size       # the pull before has had it
                continue
            if self._stops_at_gaps and not self._is_filtered and pull.at == 0 and r.queue_offset > q.position:
                return self._stop(b"a gap")
            q.head = r.at
            q.head_size = <size_t>r.size
            q.head_offset = r.phy_offset
            q.head_time = rc_get_i64(r.tail)
            q.has_head = True
            self._missing -= 1
            pull.at += <size_t>r.size
            q.head_queue_offset = r.queue_offset
            return HEAD

    cdef int _emit(self) noexcept nogil:
        """Copy records into the block: MORE if a queue has to load its next one, FULL, or OVER at the end."""
        cdef Link* link
        cdef Queue* q
        while True:
            link = self._first()
            if link == NULL:
                return OVER
            q = &self._queues[link.heap[0]]
            if self._used + q.head_size > self._room:
                if self._used > 0:
                    return FULL
                self._room = q.head_size
                return HEAD
            if self._note_run(q.link, self._used + q.head_size) == STOPPED:
                return STOPPED
            memcpy(self._out + self._used, q.head, q.head_size)
            self._used += q.head_size
            q.position = q.head_queue_offset + 1
            q.has_head = False
            self._missing += 1
            if self._load_head(q) != HEAD:
                link.count -= 1
                link.heap[0] = link.heap[link.count]
                sift_down(link, self._queues)
                if self._missing > 0 or self._why != NULL:
                    return MORE
            else:
                sift_down(link, self._queues)

    cdef int _note_run(self, int link, size_t stop) noexcept nogil:
        """Note that the next record of the block, which ends at `stop`, is from a link."""
        cdef int32_t* bigger
        cdef size_t room = 2 * self._run_room + 64
        if self._run_count == 0 or self._runs[2 * self._run_count - 1] != link:
            if self._run_count == self._run_room:
                bigger = <int32_t*>realloc(self._runs, room * RUN_BYTES)
                if bigger == NULL:
                    return self._stop(b"too much memory is used")
                self._runs, self._run_room = bigger, room
            self._run_count += 1
            self._runs[2 * self._run_count - 1] = link
        self._runs[2 * self._run_count - 2] = <int32_t>stop
        return HEAD

    cdef Link* _first(self) noexcept nogil:
        """Return the link whose first record was stored first; NULL: there are no records."""
        cdef Link* found = NULL
        cdef Link* link
        cdef int i
        for i in range(self._link_count):
            link = &self._links[i]
            if link.count > 0 and (
                found == NULL or self._queues[link.heap[0]].head_time < self._queues[found.heap[0]].head_time
            ):
                found = link
        return found

    cdef void _drop_first(self, Queue* q) noexcept nogil:
        """Forget the first pull; ask for messages that neither it nor the second one has."""
        cdef Pull* pull = &q.pulls[0]
        self._leave(pull.chunk)
        q.count -= 1
        memmove(pull, pull + 1, <size_t>q.count * sizeof(Pull))
        if q.count == 0:
            q.asked = q.position
        elif pull.offset > q.position:
            add_pull(q, 0, q.position, pull.offset - q.position)

    cdef int _end_queue(self, Queue* q) noexcept nogil:
        """A queue is over: answers that still come are dropped."""
        cdef int i
        q.is_over = True
        self._missing -= 1
        for i in range(q.count):
            self._leave(q.pulls[i].chunk)
            q.pulls[i].chunk = NULL
        return OVER

    cdef int _stop(self, const char* why) noexcept nogil:
        self._why = why
        return STOPPED

    # requests and answers

    cdef int _pump(self, bint receives) except -1 nogil:
        """Send requests, and receive what is there: HEAD if something has come, otherwise MORE, or STOPPED."""
        cdef int i, n, outcome = MORE
        for i in range(self._queue_count):
            self._ask(&self._queues[i])
        for i in range(self._link_count):
            if self._links[i].used > 0 and self._send(&self._links[i]) == STOPPED:
                return STOPPED
        if receives:
            for i in range(self._link_count):
                n = self._receive(&self._links[i])
                if n != MORE:
                    outcome = n
                if n == STOPPED:
                    break
        return outcome

    cdef int _ask(self, Queue* q) except -1 nogil:
        """Pull ahead, if half of what may be under way is not: a request of its own for each would wake the broker."""
        cdef int i
        cdef int64_t most
        if q.is_over or (q.unsent == 0 and q.count > q.window // 2):
            return 0
        while q.asked < q.end and q.count < q.window:
            if q.count > 0 and (
                self._held >= HELD_MOST or (self._is_filtered and not q.pulls[q.count - 1].is_answered)
            ):
                break
            most = q.step
            if most < STEP:
                q.small += 1
                if q.small == PROBE:
                    q.small = 0
                    most = STEP
            most = STEP if self._is_filtered else min(most, q.end - q.asked)
            add_pull(q, q.count, q.asked, most)
            q.asked += most
            if self._is_filtered:
                break
        for i in range(q.count):
            if q.pulls[i].number < 0:
                self._put_request(q, &q.pulls[i])
        q.unsent = 0
        return 0

    cdef int _put_request(self, Queue* q, Pull* pull) except -1 nogil:
        """Add the request of a pull to those that are not sent."""
        cdef Link* link = &self._links[q.link]
        cdef uint8_t* p
        cdef uint8_t* begin
        cdef size_t least = 8 + (PIECES - 1) * NUMBER_BYTES
        cdef int k
        q.sent = (q.sent + 1) & ((1 << NUMBER_BITS) - 1)
        pull.number = q.number << NUMBER_BITS | q.sent
        if self._encode is not None:
            with gil:
                frame = self._encode(q.number, pull.number, pull.offset, pull.most)
                p = self._reserve(link, <size_t>len(frame))
                memcpy(p, PyBytes_AS_STRING(frame), <size_t>PyBytes_GET_SIZE(frame))
                link.used += <size_t>PyBytes_GET_SIZE(frame)
            return 0
        for k in range(PIECES):
            least += q.piece_sizes[k]
        begin = self._reserve(link, least)
        p = begin + 8
        for k in range(PIECES):
            memcpy(p, q.pieces[k], q.piece_sizes[k])
            p += q.piece_sizes[k]
            if k < PIECES - 1:
                if q.numbers[k] == OPAQUE:
                    p = put_number(p, pull.number)
                elif q.numbers[k] == OFFSET:
                    p = put_number(p, pull.offset)
                else:
                    p = put_number(p, pull.most)
        rc_put_i32(begin, <int32_t>(p - begin - 4))
        rc_put_i32(begin + 4, <int32_t>(p - begin - 8))
        link.used += <size_t>(p - begin)
        return 0

    cdef uint8_t* _reserve(self, Link* link, size_t n) except NULL nogil:
        cdef uint8_t* bigger
        if link.used + n > link.room:
            bigger = <uint8_t*>realloc(link.requests, 2 * (link.used + n))
            if bigger == NULL:
                with gil:
                    raise MemoryError
            link.requests = bigger
            link.room = 2 * (link.used + n)
        return link.requests + link.used

    cdef int _send(self, Link* link) noexcept nogil:
        cdef ssize_t n = send(link.fd, link.requests, link.used, MSG_DONTWAIT | MSG_NOSIGNAL)
        if n < 0:
            if errno == EAGAIN or errno == EINTR:
                return MORE
            return self._stop(b"the connection is lost")
        link.used -= <size_t>n
        memmove(link.requests, link.requests + n, link.used)
        return HEAD

    cdef int _receive(self, Link* link) noexcept nogil:
        """Receive what is there, at most a chunk: HEAD, MORE if there is nothing, STOPPED."""
        cdef Chunk* chunk = link.chunk
        cdef size_t size, left = link.end - link.at
        cdef ssize_t n
        if chunk == NULL or chunk.room - link.end < CHUNK_ROOM:
            size = left
            if left >= 4:
                size = max(left, min(<size_t>rc_get_i32(link.chunk.bytes + link.at), <size_t>FRAME_MAX))
            chunk = NULL if self._held > HELD_STOP else self._new_chunk(size + CHUNK_ROOM)
            if chunk == NULL:
                return self._stop(b"too much memory is used")
            if left > 0:
                memcpy(chunk.bytes, link.chunk.bytes + link.at, left)
            self._leave(link.chunk)
            link.chunk, link.at, link.end = chunk, 0, left
        n = recv(link.fd, chunk.bytes + link.end, chunk.room - link.end, MSG_DONTWAIT)
        if n < 0:
            if errno == EAGAIN or errno == EINTR:
                return MORE
            return self._stop(b"the connection is lost")
        if n == 0:
            return self._stop(b"the broker has closed the connection")
        link.end += <size_t>n
        self._waited = 0
        return self._parse(link)

    cdef int _parse(self, Link* link) noexcept nogil:
        cdef Frame frame
        cdef int rc = RC_OK
        while True:
            rc = cut_frame(link.chunk.bytes + link.at, link.end - link.at, FRAME_MAX, &frame)
            if rc == RC_BAD_SIZE:
                return self._stop(b"bytes that are not a frame")
            if rc != RC_OK:
                return HEAD
            if self._take_answer(link, &frame) == STOPPED:
                return STOPPED
            link.at = <size_t>(frame.body + frame.body_size - link.chunk.bytes)

    cdef int _take_answer(self, Link* link, Frame* frame) noexcept nogil:
        cdef Header h
        cdef Text* text
        cdef Queue* q
        cdef Pull* pull = NULL
        cdef int i, at = 0
        cdef int64_t behind
        if parse_header(frame, &h) != RC_OK:
            return self._stop(b"a header that the general way may know")
        i = h.opaque >> NUMBER_BITS
        if not h.flag & 1 or not 0 <= i < self._queue_count:
            return self._stop(b"a frame that is not an answer")
        q = &self._queues[i]
        while at < q.count and q.pulls[at].number != h.opaque:
            at += 1
        if at == q.count or q.pulls[at].is_answered or &self._links[q.link] != link:
            return self._stop(b"an answer to no request")
        pull = &q.pulls[at]
        pull.is_answered = True
        if q.is_over:
            return MORE
        if h.code != FOUND and not (h.code == NO_MATCHED and self._is_filtered and frame.body_size == 0):
            return self._stop(b"an answer without messages")
        text = field_of(&h, b"nextBeginOffset", 15)
        if text == NULL or number_of(text, &pull.next_offset) != RC_OK or pull.next_offset <= pull.offset:
            return self._stop(b"an answer without the next offset")
        if h.code == FOUND:
            if frame.body_size == 0:
                return self._stop(b"an answer without messages")
            pull.chunk = link.chunk
            pull.chunk.users += 1
            pull.body = frame.body
            pull.size = frame.body_size
        if self._is_filtered:
            q.asked = pull.next_offset
            return HEAD
        behind = pull.offset + pull.most
        if pull.next_offset < behind:
            q.step = pull.next_offset - pull.offset
            if at + 1 == q.count:
                q.asked = pull.next_offset
            elif q.count < PULLS_MOST:
                add_pull(q, at + 1, pull.next_offset, behind - pull.next_offset)
        elif pull.most > q.step:
            q.step = pull.most
        return HEAD

    cdef int _wait(self) noexcept nogil:
        """Wait a moment until something can be received or sent; 0: nothing can."""
        cdef int i, n
        for i in range(self._link_count):
            self._polled[i].fd = self._links[i].fd
            self._polled[i].events = <short>(POLLIN | (POLLOUT if self._links[i].used > 0 else 0))
        n = poll(self._polled, <unsigned long>self._link_count, TICK)
        if n == 0:
            self._waited += TICK
            if self._waited >= self._timeout:
                self._stop(b"no answer in time")
        return 0 if n <= 0 else n

    # memory

    cdef Chunk* _new_chunk(self, size_t least) noexcept nogil:
        cdef Chunk* chunk = self._free
        if least <= CHUNK_BYTES and chunk != NULL:
            self._free = chunk.next
            self._free_count -= 1
        else:
            least = max(least, <size_t>CHUNK_BYTES)
            chunk = <Chunk*>malloc(sizeof(Chunk) + least)
            if chunk == NULL:
                return NULL
            chunk.room = least
            chunk.bytes = <uint8_t*>(chunk + 1)
        chunk.users = 1
        self._held += chunk.room
        return chunk

    cdef void _leave(self, Chunk* chunk) noexcept nogil:
        """One who uses a chunk does not use it any more."""
        if chunk == NULL:
            return
        chunk.users -= 1
        if chunk.users > 0:
            return
        self._held -= chunk.room
        if chunk.room == CHUNK_BYTES and self._free_count < FREE_MOST:
            chunk.next = self._free
            self._free = chunk
            self._free_count += 1
        else:
            free(chunk)
