# cython: language_level=3
"""Frames of the remoting protocol, cut out of a stream of bytes. Sockets, loops and clocks are outside of it.

A frame is: 4 bytes length of what follows, 1 byte form of the header, 3 bytes length of the header, header, body.
Source: RocketMQ NettyDecoder, RemotingCommand.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from rocketc.c.bytes cimport rc_get_i32
from rocketc.c.status cimport RC_BAD_SIZE, RC_MORE, RC_OK

cdef enum:
    LENGTH_BYTES = 4
    HEAD_BYTES = 8              # length, form, length of the header
    KEPT_BYTES = 64 << 10       # a larger buffer is freed when it is empty


cdef int cut_frame(const uint8_t* p, size_t left, uint32_t header_most, Frame* frame) noexcept nogil:
    """Find the parts of the frame at p, of which `left` bytes are there.

    Returns RC_OK; RC_MORE if the frame is not complete; RC_BAD_SIZE for impossible sizes.
    """
    cdef uint32_t size, header
    if left < LENGTH_BYTES:
        return RC_MORE
    size = <uint32_t>rc_get_i32(p)
    if size < HEAD_BYTES - LENGTH_BYTES or size > FRAME_MAX:    # checked first: the size is a claim of the peer
        return RC_BAD_SIZE
    if left < HEAD_BYTES:
        return RC_MORE
    header = <uint32_t>rc_get_i32(p + LENGTH_BYTES) & <uint32_t>0xFFFFFF
    if p[LENGTH_BYTES] > FORM_ROCKETMQ or header > header_most or header > size - (HEAD_BYTES - LENGTH_BYTES):
        return RC_BAD_SIZE
    if left - LENGTH_BYTES < size:
        return RC_MORE
    frame.form = p[LENGTH_BYTES]
    frame.header = p + HEAD_BYTES
    frame.header_size = header
    frame.body = frame.header + header
    frame.body_size = size - (HEAD_BYTES - LENGTH_BYTES) - header
    return RC_OK


@cython.final
cdef class FrameDecoder:
    """Decodes the frames of one connection: feed it bytes, then ask for the frames that are complete.

    header_most  bytes of a header. The default is enough for requests; the header of an answer may fill its frame
    >>> from rocketc.remoting._frames import FrameDecoder
    >>> decoder = FrameDecoder()
    >>> decoder.receive(bytes([0, 0, 0, 7, 0, 0, 0, 2]) + b"{}")
    []
    >>> decoder.receive(b"x")
    [(0, b'{}', b'x')]
    """

    def __cinit__(self, uint32_t header_most=HEADER_MAX):
        self._header_most = header_most

    def __dealloc__(self):
        free(self._own if self._is_lent else self._bytes)

    cdef bint lend(self, const uint8_t* src, size_t n) noexcept:
        """Decode n bytes of the caller in place, until keep(). Return False if the decoder has bytes: feed it then."""
        if self._at < self._end or self.is_corrupt:
            return False
        self._own = self._bytes
        self._bytes = <uint8_t*>src
        self._at = 0
        self._end = n
        self._is_lent = True
        return True

    cdef int keep(self) except -1:
        """End the use of lent bytes: copy what is not decoded yet. Without such bytes no memory is kept."""
        cdef const uint8_t* left = self._bytes + self._at
        cdef size_t n = self._end - self._at
        if not self._is_lent:
            if n == 0 and self._room > 0:
                free(self._bytes)
                self._bytes = NULL
                self._room = 0
            return 0
        self._is_lent = False
        self._bytes = self._own
        self._at = self._end = 0
        return self.feed(left, n) if n > 0 else 0

    cdef int feed(self, const uint8_t* src, size_t n) except -1:
        """Add n bytes, which are copied. The pointers of earlier frames end."""
        cdef uint8_t* bigger
        if self._at == self._end:
            self._at = self._end = 0
            if self._room > KEPT_BYTES and n <= KEPT_BYTES:
                free(self._bytes)
                self._bytes = NULL
                self._room = 0
        elif self._at > 0:
            memmove(self._bytes, self._bytes + self._at, self._end - self._at)
            self._end -= self._at
            self._at = 0
        if self._end + n > self._room:
            bigger = <uint8_t*>realloc(self._bytes, self._end + n)
            if bigger == NULL:
                raise MemoryError
            self._bytes = bigger
            self._room = self._end + n
        memcpy(self._bytes + self._end, src, n)
        self._end += n
        return 0

    cdef int next(self, Frame* frame) noexcept nogil:
        """Decode the next frame. Its pointers are valid until the next feed().

        Returns RC_OK; RC_MORE if the frame is not complete yet; RC_BAD_SIZE for impossible sizes, now and later.
        """
        cdef int rc
        if self.is_corrupt:
            return RC_BAD_SIZE
        rc = cut_frame(self._bytes + self._at, self._end - self._at, self._header_most, frame)
        if rc == RC_OK:
            self._at = <size_t>(frame.body + frame.body_size - self._bytes)
        self.is_corrupt = rc == RC_BAD_SIZE
        return rc

    cdef void put_back(self, const Frame* frame) noexcept:
        """Decode the last frame again. Call it before the next feed()."""
        self._at = <size_t>(frame.header - HEAD_BYTES - self._bytes)

    cdef bint has_frame(self) noexcept:
        """Whether next() would return a frame."""
        return self.has_more_than(0)

    cdef bint has_more_than(self, int count) noexcept:
        """Whether next() would return more than `count` frames."""
        cdef Frame frame
        cdef size_t at = self._at
        cdef int found = 0
        while not self.is_corrupt and cut_frame(
            self._bytes + at, self._end - at, self._header_most, &frame
        ) == RC_OK:
            found += 1
            if found > count:
                return True
            at = <size_t>(frame.body + frame.body_size - self._bytes)
        return False

    cdef bint is_empty(self) noexcept:
        return self._at == self._end

    cdef size_t left(self) noexcept:
        """Return the number of bytes that are fed and belong to no decoded frame."""
        return self._end - self._at

    @property
    def waiting(self):
        """Number of bytes that are fed and belong to no decoded frame."""
        return self._end - self._at

    def receive(self, const uint8_t[::1] data not None):
        """Feed bytes and return the frames that are complete now, as (form, header, body).

        form  of the header: 0 JSON, 1 ROCKETMQ
        Frames before an impossible size are returned; `is_corrupt` is True then, and the connection must be closed.
        """
        cdef Frame frame
        cdef list frames = []
        if data.shape[0] > 0 and not self.is_corrupt:
            self.feed(&data[0], <size_t>data.shape[0])
        while self.next(&frame) == RC_OK:
            frames.append((frame.form, frame.header[:frame.header_size], frame.body[:frame.body_size]))
        return frames
