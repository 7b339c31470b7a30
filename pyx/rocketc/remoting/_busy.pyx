# cython: language_level=3
"""Requests that have waited for too long, and the answers to them.

To refuse a request must cost much less than to process it. Otherwise a server that has too much to do only refuses.
Source: RocketMQ BrokerFastFailure.cleanExpiredRequestInQueue.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from rocketc.c.bytes cimport rc_put_i32
from rocketc.remoting._frames cimport FORM_JSON, Frame

from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag

cdef enum:
    DIGITS_MOST = 10            # of a number in an outline
    TAIL_MOST = 160             # bytes of a header after its fields
    LANGUAGE_MOST = 16


cdef inline const uint8_t* after(const uint8_t* p, const uint8_t* end, const char* text, size_t n) noexcept nogil:
    """Return the place after a text that is expected at p; NULL: it is not there, or p is NULL."""
    if p == NULL or <size_t>(end - p) < n or memcmp(p, text, n) != 0:
        return NULL
    return p + n


cdef const uint8_t* number(const uint8_t* p, const uint8_t* end, int32_t* out) noexcept nogil:
    """Read digits; return the place after them, or NULL."""
    cdef int64_t value = 0
    cdef const uint8_t* first = p
    if p == NULL:
        return NULL
    while p < end and c"0" <= p[0] <= c"9" and p - first < DIGITS_MOST:
        value = 10 * value + (p[0] - c"0")
        p += 1
    if p == first or value > INT32_MAX:
        return NULL
    out[0] = <int32_t>value
    return p


cdef bint outline_of(const Frame* frame, int32_t* code, int32_t* opaque, int32_t* flag) noexcept nogil:
    """Read code, number and flag of a JSON header without its fields; False: it is not written as RocketMQ writes it.

    The members are in the order of their names, without blanks. The last brace before the end closes the fields: after
    it, only names, numbers and words follow, and each of their bytes is checked.
    """
    cdef const uint8_t* p = frame.header
    cdef const uint8_t* end = p + frame.header_size
    cdef const uint8_t* tail
    cdef int32_t version
    if frame.form != FORM_JSON or frame.header_size < 2 or end[-1] != c"}":
        return False
    if after(number(after(p, end, b'{"code":', 8), end, code), end, b',"extFields":{', 14) == NULL:
        return False
    tail = end - 2
    while tail > p and tail[0] != c"}" and end - tail < TAIL_MOST:
        tail -= 1
    p = number(after(tail, end, b'},"flag":', 9), end, flag)
    p = after(p, end, b',"language":"', 13)
    if p == NULL:
        return False
    tail = p
    while p < end and (c"A" <= p[0] <= c"Z" or p[0] == c"_") and p - tail < LANGUAGE_MOST:
        p += 1
    p = number(after(p, end, b'","opaque":', 11), end, opaque)
    p = number(after(p, end, b',"serializeTypeCurrentRPC":"JSON","version":', 44), end, &version)
    return p != NULL and p + 1 == end


def outline(bytes header not None):
    """Return code, opaque and flag of a JSON header if it is written as RocketMQ writes it; otherwise None.

    >>> outline(b'{"code":10,"extFields":{},"flag":2,"language":"JAVA","opaque":7,'
    ...         b'"serializeTypeCurrentRPC":"JSON","version":479}')
    (10, 7, 2)
    >>> outline(b'{"code": 10}')
    """
    cdef Frame frame
    cdef int32_t code = 0, opaque = 0, flag = 0
    frame.form = FORM_JSON
    frame.header = <const uint8_t*>PyBytes_AS_STRING(header)
    frame.header_size = <unsigned int>PyBytes_GET_SIZE(header)
    return (code, opaque, flag) if outline_of(&frame, &code, &opaque, &flag) else None


def busy_remark(int64_t waited, int64_t waiting):
    """Return the remark of an answer to a request that has waited for too long.

    waited   ms
    waiting  bytes of the connection that are not read yet

    >>> busy_remark(203, 0)[-20:]
    'ms, size of queue: 0'
    """
    return (
        f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited}ms, "
        f"size of queue: {waiting}"
    )


cdef class BusyAnswers:
    """Collects the answers to requests that have waited for too long.

    waited   ms
    waiting  bytes of the connection that are not read yet
    """

    def __init__(self, int64_t waited, int64_t waiting):
        remark = busy_remark(waited, waiting)
        whole = Command(Code.SYSTEM_BUSY, opaque=0, flag=Flag.ANSWER, remark=remark).encode()[8:]
        before, found, behind = whole.partition(b'"opaque":0,')
        self._before = before + b'"opaque":'
        self._after = b"," + behind

    def __dealloc__(self):
        free(self._answers)

    cdef int add(self, int32_t opaque) except -1:
        """Add the answer to a request."""
        cdef uint8_t digits[DIGITS_MOST]
        cdef int n = 0
        cdef size_t before = <size_t>PyBytes_GET_SIZE(self._before), behind = <size_t>PyBytes_GET_SIZE(self._after)
        cdef size_t most = 8 + before + DIGITS_MOST + behind
        cdef uint8_t* p
        cdef void* bigger
        if self._size + most > self._room:
            bigger = realloc(self._answers, 2 * self._room + 64 * most)
            if bigger == NULL:
                raise MemoryError
            self._answers = <uint8_t*>bigger
            self._room = 2 * self._room + 64 * most
        while n == 0 or opaque > 0:
            digits[n] = <uint8_t>(c"0" + opaque % 10)
            n += 1
            opaque //= 10
        p = self._answers + self._size
        rc_put_i32(p, <int32_t>(4 + before + <size_t>n + behind))
        rc_put_i32(p + 4, <int32_t>(before + <size_t>n + behind))
        p += 8
        memcpy(p, PyBytes_AS_STRING(self._before), before)
        p += before
        while n > 0:
            n -= 1
            p[0] = digits[n]
            p += 1
        memcpy(p, PyBytes_AS_STRING(self._after), behind)
        self._size = <size_t>(p + behind - self._answers)
        return 0

    cdef bytes take(self):
        """Return the answers that were added since the last call."""
        answers = PyBytes_FromStringAndSize(<const char*>self._answers, <Py_ssize_t>self._size)
        self._size = 0
        return answers

    def answers(self, *opaques):
        """Return the answers to these requests.

        >>> frame = BusyAnswers(203, 4096).answers(7)
        >>> from rocketc.remoting.command import Command
        >>> Command.decode(0, frame[8:]).remark
        '[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 203ms, size of queue: 4096'
        """
        for opaque in opaques:
            self.add(opaque)
        return self.take()
