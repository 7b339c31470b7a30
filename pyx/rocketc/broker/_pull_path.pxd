"""Pulls that find messages, from the frame to the answer."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.broker._delivered cimport Delivered
from rocketc.broker._end_path cimport EndPath
from rocketc.broker._send_back_path cimport SendBackPath
from rocketc.broker._send_path cimport SendPath
from rocketc.remoting._connection cimport ConnectionCore, FastPath
from rocketc.remoting._headers cimport Header, Text
from rocketc.store._gets cimport Getting
from rocketc.store._queue_reader cimport GetRequest
from rocketc.store._results cimport TagFilter

cdef enum:
    FIELDS = 13                 # of a pull, that are read
    PARTS = 6                   # of the header of an answer, around its five numbers


cdef class CheckedPull:
    cdef readonly:
        object group            # a SubscriptionGroupConfig
        object topic            # a TopicConfig
        object subscription
        TagFilter filter        # None: all messages
    cdef:
        str _group
        str _topic
        bytes _topic_bytes
        tuple _parts            # of the header of an answer
        int64_t _queues         # that may be read: 0 to _queues - 1
        int64_t _slow_broker    # suggested if the messages are old
        int64_t _generation     # of the tables that the checks read
        Delivered _delivered    # what the group was given of the topic; None: not known yet


cdef class PullPath(FastPath):
    cdef:
        SendPath _sends         # gets the other requests
        Getting _store
        object _offsets         # a ConsumerOffsetManager
        object _check           # returns the CheckedPull of a pull, or None
        tuple _tables           # with a `generation`
        dict _known             # results of _check, by the fields that it reads
        int64_t _known_at       # the generation of _known
        int64_t _known_bytes    # of the expressions in _known that are compiled
        int64_t _forgotten      # number of forget() calls
        int _how                # ReadFlags
        tuple _unmatched        # connection, opaque, CheckedPull and result of a read without messages, or None
        bint _in_background     # cold pages are read on another thread
    cdef public:
        bint enabled
        SendBackPath backs      # gets the send-backs; None: a processor does
        EndPath ends            # gets the ends of transactions; None: a processor does
        int64_t found           # pulls that were answered with messages
        int64_t missed          # other pulls
        int64_t pulled          # messages
        dict delivered          # {(topic, group): Delivered}
    cdef int64_t _now(self) except -1
    cdef bint _pull(self, ConnectionCore connection, Header* h) except -1
    cdef bint _is_in_memory(self, CheckedPull checked, int64_t queue_id, int64_t offset) except -1
    cdef CheckedPull _checked(self, int32_t code, const Text** of, const int64_t* numbers)
    cdef void _request(self, GetRequest* a, CheckedPull checked, int32_t queue_id, int64_t offset, int64_t most)
    cdef object _read(
        self, CheckedPull checked, int32_t queue_id, int64_t offset, int64_t most, int32_t opaque, double began
    )
    cdef Delivered _delivered_of(self, str topic, str group)
    cpdef count(self, str topic, str group, int32_t queue_id, int64_t messages, int64_t size, double seconds)
