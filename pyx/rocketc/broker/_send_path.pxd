"""Sends, from the frame to the record in the log and the answer."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from rocketc.broker._appending cimport Appending
from rocketc.broker._transaction_counts cimport TransactionCounters
from rocketc.format._text_table cimport TextTable
from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.remoting._answer_times cimport AnswerTimes
from rocketc.remoting._connection cimport ConnectionCore, FastPath
from rocketc.remoting._frames cimport Frame
from rocketc.remoting._headers cimport Header, Text
from rocketc.store._puts cimport Putting

cdef enum:
    SENDS_MAX = 256             # sends that are appended together
    PROPERTIES_ROOM = 262144    # bytes of their properties

# A send that is taken and not appended yet. Its pointers are those of the frame and of SendPath._properties.
ctypedef struct Sending:
    const uint8_t* key          # the value of UNIQ_KEY
    const uint8_t* topic        # as sent
    int32_t key_size
    int32_t topic_size
    int32_t queue_id            # as sent
    int32_t opaque
    bint is_oneway
    bint is_short               # SEND_MESSAGE_V2: the field names have one letter
    bint is_half                # a half message of a transaction


cdef class SendPath(Appending):
    cdef:
        TextTable _topics       # topics that do not need the processor: their number of queues, plus QUEUES_FROM
        TextTable _known_properties
        bytes _added            # properties that the broker adds, in stored form
        size_t _added_size
        int64_t _most           # bytes of a body
        bytes _before_id        # the parts of an answer
        bytes _after_opaque
        object _waits           # a FlushWaits; None: nothing waits
        readonly object refusals    # a PutRefusals
        object _fields          # of all answers
        TransactionCounters _counters   # of half messages
        bytes _half_topic       # of half messages; None: the processor takes them
        bytes _before_key       # the properties that a half message gets, in parts
        bytes _before_topic
        bytes _before_queue
        PreparedRecord _records[SENDS_MAX]
        Sending _sends[SENDS_MAX]
        int _count
        uint8_t* _properties
        size_t _used
        uint8_t* _answers       # room for the answers of SENDS_MAX sends
        size_t _answers_room
        object _time            # loop.time, after the first send
        AnswerTimes _short_times    # of the stored sends with short field names, and of the others
        AnswerTimes _long_times
        AnswerTimes _batch_times
    cdef public bint enabled
    cdef public bint takes_halves
    cdef readonly:
        int64_t sent            # messages stored by this path
        int64_t refused
        object times            # RpcTimes of these sends
    cdef double now(self) except -1
    cdef double _seconds(self, ConnectionCore connection) except -1
    cdef bint _parse(self, ConnectionCore connection, const Frame* frame, Header* h, bint is_batch) except -1
    cdef bytes _refuse(self, const Sending* send, int request, int rc, error, double seconds)
    cdef bint _take_batch(self, ConnectionCore connection, const Frame* frame) except -1
    cdef bytes _answer_of_batch(self, const PreparedRecord* records, int n, const Sending* send)
    cdef size_t _end_answer(self, uint8_t* dst, uint8_t* p, const PreparedRecord* r, const Sending* send) noexcept
    cdef int64_t _rewrite(self, const Text* text, Sending* send, bint is_batch) noexcept
    cdef uint8_t* _put_half(self, uint8_t* dst, const Sending* send) noexcept
    cdef size_t _write_answer(self, uint8_t* dst, const PreparedRecord* r, const Sending* send) noexcept
    cdef bint take_parsed(self, ConnectionCore connection, const Frame* frame, Header* h) except -1


cdef inline uint8_t* put_text(uint8_t* dst, bytes text) noexcept:
    memcpy(dst, PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text))
    return dst + PyBytes_GET_SIZE(text)


cdef inline uint8_t* put_number(uint8_t* dst, int64_t number) noexcept nogil:
    """Write a number in decimal; return the place after it. dst: 20 bytes."""
    cdef uint8_t digits[20]
    cdef int n = 0
    if number < 0:
        dst[0] = c"-"
        dst += 1
        number = -number
    while True:
        digits[n] = <uint8_t>(c"0" + number % 10)
        n += 1
        number //= 10
        if number == 0:
            break
    while n > 0:
        n -= 1
        dst[0] = digits[n]
        dst += 1
    return dst
