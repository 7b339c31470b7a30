"""Send-backs, from the frame to the copy of the message in the log and the answer."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.broker._empty_answer cimport EmptyAnswer
from rocketc.broker._send_path cimport SendPath
from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable
from rocketc.remoting._answer_times cimport AnswerTimes
from rocketc.remoting._connection cimport ConnectionCore, FastPath
from rocketc.remoting._frames cimport Frame
from rocketc.remoting._headers cimport Header, Text
from rocketc.store._gets cimport Getting
from rocketc.store._raw_records cimport RawRecords

cdef enum:
    BACK_FIELDS = 5             # of a send-back, that are read


cdef class CheckedBack:
    cdef:
        str _group
        bytes _topic            # the retry topic
        int64_t _queues         # of it, that are written
        int64_t _most           # retries of a message, unless the request has another number
        int _levels             # of delays


cdef class SendBackPath(FastPath):
    cdef:
        SendPath _sends
        Getting _store
        object _check           # returns the CheckedBack of a group, or None
        object _choose          # returns a random number below another
        object _stored          # called after each send-back
        tuple _tables           # with a `generation`
        dict _known             # results of _check, by group
        int64_t _known_at       # the generation of _known
        int64_t _forgotten      # number of forget() calls
        TextTable _names        # of properties: whether a send-back changes them
        tuple _changed          # the names of those that it does, by their verdict
        AnswerTimes _times
        EmptyAnswer _answer
        uint8_t* _properties    # room for those of one message
    cdef readonly int64_t taken     # send-backs
    cdef bint take_parsed(self, ConnectionCore connection, Header* h) except -1
    cdef CheckedBack _checked(self, const Text* group)
    cdef object _append(
        self, CheckedBack checked, const Record* stored, int64_t most, int level, int64_t* queue,
    )
    cdef object _copy(
        self, CheckedBack checked, RawRecords* h, int64_t offset, int64_t most, int level, int64_t* queue,
    )
    cdef uint8_t* _put_value(
        self, uint8_t* dst, int verdict, CheckedBack checked, int level, int64_t queue_id,
    ) noexcept
    cdef int32_t _rewrite(
        self, const Record* stored, const uint8_t* store_host, CheckedBack checked, int level, int64_t queue_id,
        Text* origin,
    ) noexcept
