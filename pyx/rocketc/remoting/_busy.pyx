# cython: language_level=3
"""Requests that have waited for too long, and the answers to them.

To refuse a request must cost much less than to process it. Otherwise a server that has too much to do only refuses.
Source: RocketMQ BrokerFastFailure.cleanExpiredRequestInQueue.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from rocketc.c.bytes cimport rc_get_i16, rc_get_i32, rc_put_i32
from rocketc.c.status cimport RC_OK
from rocketc.remoting._frames cimport FORM_JSON, Frame
from rocketc.remoting._headers cimport BINARY_BYTES, Header, parse_json

from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag

cdef enum:
    DIGITS_MOST = 10            # of a number in an outline
    LANGUAGE_MOST = 16


cdef inline const uint8_t* text_before(
    const uint8_t* end, const uint8_t* begin, const char* text, size_t n,
) noexcept nogil:
    """Return the start of a text that is expected before `end`; NULL: it is not there, or `end` is NULL."""
    if end == NULL or <size_t>(end - begin) < n or memcmp(end - n, text, n) != 0:
        return NULL
    return end - n


cdef const uint8_t* number_before(const uint8_t* end, const uint8_t* begin, int32_t* out) noexcept nogil:
    """Read the digits before `end`; return their start, or NULL."""
    cdef int64_t value = 0, unit = 1
    cdef const uint8_t* p = end
    if end == NULL:
        return NULL
    while p > begin and c"0" <= p[-1] <= c"9" and end - p < DIGITS_MOST:
        p -= 1
        value += unit * (p[0] - c"0")
        unit *= 10
    if p == end or value > INT32_MAX:
        return NULL
    out[0] = <int32_t>value
    return p


cdef bint outline_of(const Frame* frame, int32_t* code, int32_t* opaque, int32_t* flag) noexcept nogil:
    """Read code, number and flag of a header. Returns False if only json can decode it, or nothing can.

    The fields are skipped if the form allows it. It is the ROCKETMQ form, or JSON as RocketMQ writes it: the members
    are in the order of their names, without blanks. Other headers in JSON are parsed.
    """
    cdef Header h
    if frame.form != FORM_JSON:
        if frame.header_size < BINARY_BYTES:
            return False
        code[0] = rc_get_i16(frame.header)
        opaque[0] = rc_get_i32(frame.header + 5)
        flag[0] = rc_get_i32(frame.header + 9)
        return True
    if usual_outline(frame, code, opaque, flag):
        return True
    if parse_json(frame.header, frame.header_size, &h) != RC_OK:
        return False
    code[0] = h.code
    opaque[0] = h.opaque
    flag[0] = h.flag
    return True


cdef bint usual_outline(const Frame* frame, int32_t* code, int32_t* opaque, int32_t* flag) noexcept nogil:
    """Do the work of outline_of() for a header in JSON as RocketMQ writes it; return False for another one.

    Each byte after the fields is checked, from the end back to the brace that closes them. No text of a JSON can
    contain these bytes, because of the quotes.
    """
    cdef const uint8_t* begin = frame.header
    cdef const uint8_t* p = begin + frame.header_size
    cdef const uint8_t* end
    cdef int32_t version
    p = number_before(text_before(p, begin, b"}", 1), begin, &version)
    p = text_before(p, begin, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
    p = text_before(number_before(p, begin, opaque), begin, b'","opaque":', 11)
    if p == NULL:
        return False
    end = p
    while p > begin and (c"A" <= p[-1] <= c"Z" or p[-1] == c"_") and end - p < LANGUAGE_MOST:
        p -= 1
    p = number_before(text_before(p, begin, b',"language":"', 13), begin, flag)
    end = text_before(p, begin, b'},"flag":', 9)
    if end == NULL or end - begin < 9 or memcmp(begin, b'{"code":', 8) != 0:
        return False
    p = begin + 8
    while p < end and c"0" <= p[0] <= c"9":
        p += 1
    return (
        end - p >= 14 and memcmp(p, b',"extFields":{', 14) == 0 and number_before(p, begin + 8, code) == begin + 8
    )


def outline(bytes header not None, int form=FORM_JSON, bint usual=False):
    """Return code, opaque and flag of a header; None if only json can decode it, or nothing can.

    form   of the header
    usual  only if it is JSON as RocketMQ writes it

    >>> outline(b'{"code":10,"extFields":{},"flag":2,"language":"JAVA","opaque":7,'
    ...         b'"serializeTypeCurrentRPC":"JSON","version":479}')
    (10, 7, 2)
    >>> outline(b'{"code": 10}'), outline(b'{"code": 10}', usual=True)
    ((10, 0, 0), None)
    """
    cdef Frame frame
    cdef int32_t code = 0, opaque = 0, flag = 0
    frame.form = <uint8_t>form
    frame.header = <const uint8_t*>PyBytes_AS_STRING(header)
    frame.header_size = <unsigned int>PyBytes_GET_SIZE(header)
    if usual:
        return (code, opaque, flag) if usual_outline(&frame, &code, &opaque, &flag) else None
    return (code, opaque, flag) if outline_of(&frame, &code, &opaque, &flag) else None


def busy_remark(double waited):
    """Return the remark of an answer to a request that has waited for too long.

    waited  seconds

    >>> busy_remark(0.203)[-40:]
    'period in queue: 203ms, size of queue: 0'
    """
    return (    # requests do not wait in a queue of this process, but in the kernel
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {1000 * waited:.0f}ms, size of queue: 0"
    )


cdef class BusyAnswers:
    """Collects the answers to the requests of one turn that have waited for too long.

    patience  seconds that a request may wait, by its code
    waited    seconds of the first of these requests; the remark of all answers says it
    """

    def __init__(self, patience not None, double waited):
        self._patience = patience
        self._code = -1
        remark = busy_remark(waited)
        whole = Command(Code.SYSTEM_BUSY, opaque=0, flag=Flag.ANSWER, remark=remark).encode()[8:]
        before, _, behind = whole.partition(b'"opaque":0,')
        self._before = before + b'"opaque":'
        self._after = b"," + behind

    def __dealloc__(self):
        free(self._answers)

    cdef bint refuse(self, int32_t code, int32_t opaque, bint is_oneway, double waited) except -1:
        """Refuse a request if it has waited for too long; return whether it has."""
        if code != self._code:
            self._code = code
            self._allowed = self._patience.get(code, float("inf"))
        if waited <= self._allowed:
            return False
        self.refused += 1
        if not is_oneway:
            self.add(opaque)
        return True

    cdef int add(self, int32_t opaque) except -1:
        """Add the answer to a request."""
        cdef uint8_t digits[DIGITS_MOST + 1]      # and the sign
        cdef int n = 0
        cdef size_t before = <size_t>PyBytes_GET_SIZE(self._before), behind = <size_t>PyBytes_GET_SIZE(self._after)
        cdef size_t most = 8 + before + 1 + DIGITS_MOST + behind
        cdef int64_t left = opaque if opaque >= 0 else -<int64_t>opaque
        cdef uint8_t* p
        cdef void* bigger
        if self._size + most > self._room:
            bigger = realloc(self._answers, 2 * self._room + 64 * most)
            if bigger == NULL:
                raise MemoryError
            self._answers = <uint8_t*>bigger
            self._room = 2 * self._room + 64 * most
        while n == 0 or left > 0:
            digits[n] = <uint8_t>(c"0" + left % 10)
            n += 1
            left //= 10
        if opaque < 0:
            digits[n] = c"-"
            n += 1
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

        >>> frame = BusyAnswers({}, 0.203).answers(7)
        >>> from rocketc.remoting.command import Command
        >>> Command.decode(0, frame[8:]).opaque
        7
        """
        for opaque in opaques:
            self.add(opaque)
        return self.take()
