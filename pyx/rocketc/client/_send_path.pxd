"""The compiled way of sends: which they are, and what each needs until its answer."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.client._times cimport Times
from rocketc.client._unique_ids cimport ID_MOST, UniqueIds
from rocketc.remoting._channel cimport Call, ChannelCore


cdef class InFlightCore:
    cdef public:
        Py_ssize_t messages     # in flight
        Py_ssize_t bytes        # of their bodies
        object _waiting         # a deque of those who wait for room
        object _empty           # a future of the one who waits until nothing is in flight, or None
        bint _is_closed
    cdef readonly:
        Py_ssize_t _messages_most
        Py_ssize_t _bytes_most
    cdef bint take_at_once(self, Py_ssize_t size) except -1
    cdef int give(self, Py_ssize_t size) except -1


cdef class Turn:
    cdef public:
        int64_t value           # queues that were taken so far, and a random number at the beginning


cdef class QueueWay:
    cdef readonly:
        object queue            # a MessageQueue
        str address             # of its master
        ChannelCore channel     # to it; None: it is not known yet
    cdef:
        bytes _head             # of a frame, from its header to the time of birth
        bytes _tail             # from the properties to the opaque
        bytes _batch_head       # and of a batch
        bytes _batch_tail
        int64_t _queue_id


cdef class TopicWay:
    cdef readonly:
        str topic
        object info             # the PublishInfo that this was made from
        list ways               # a QueueWay for each queue; None: its master is not known now
    cdef:
        Turn _turn
        Times _times            # of sends that succeed; None before the first
        int64_t _changes        # of the routes, up to which this is right
        double _asked           # loop.time() of the last look at the routes


cdef class SendPath:
    cdef:
        object _clock           # returns the Unix time in seconds
        object _now             # loop.time
        object _loop
        object _create_future
        object _routes          # a RouteTable
        object _instance        # its `introduced` are the addresses of brokers that know this client
        object _way_of          # see SendWays
        object _channel_to
        object _sends           # a TimesByTopic
        dict _ways              # TopicWay by topic
        UniqueIds _ids
        InFlightCore _in_flight
        bytes _end              # of a frame, after the opaque
        bytes _before_tags      # of a property, in JSON
        bytes _before_keys
        bytes _before_id
        bytes _after_id
        Py_ssize_t _most        # bytes of a body
        double _timeout         # ms
        readonly int64_t sent   # messages that went this way
    cdef TopicWay _known_way(self, str topic, double now)
    cdef SentMessage _new(
        self, str topic, bytes body, tuple batch, timeout, answer, Py_ssize_t texts_size, size_t* room
    )
    cdef int _send(
        self, SentMessage call, size_t room, const uint8_t* tags, Py_ssize_t tags_size, const uint8_t* keys,
        Py_ssize_t keys_size
    ) except -1
    cdef size_t _encode(
        self, uint8_t* dst, SentMessage call, const uint8_t* tags, Py_ssize_t tags_size, const uint8_t* keys,
        Py_ssize_t keys_size
    ) noexcept


cdef class SentMessage(Call):
    cdef readonly:
        TopicWay topic_way
        QueueWay way
        bytes body
        object tags             # str or None
        object keys
        tuple batch             # the unique ids of its messages; None: it is one message
        int flag
        double began            # loop.time()
        int64_t born            # ms since 1970
    cdef public:
        bint is_done            # its end is counted
    cdef:
        SendPath _path
        uint8_t _id[ID_MOST]
        Py_ssize_t _id_size
