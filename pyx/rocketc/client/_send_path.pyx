# cython: language_level=3
"""The compiled way of sends: from the arguments to the bytes of the request, and from the answer to the result.

It takes most sends: a body, tags and keys, or a batch. They go to the next queue of a topic whose route is known, at a
broker that this client has a connection to. All others, and all answers but SEND_OK, are left to
rocketc.client.sender. Both do the same.
Source: RocketMQ DefaultMQProducerImpl.sendKernelImpl, MQClientAPIImpl.processSendResponse.
"""
from asyncio import get_running_loop as _running_loop

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from rocketc.c.bytes cimport rc_put_i32
from rocketc.c.status cimport RC_OK
from rocketc.client._property_texts cimport NUMBER_BYTES, int32_of, property_of, put_bytes, put_number
from rocketc.remoting._channel cimport Call, ChannelCore, LinkCore
from rocketc.remoting._headers cimport Header, Text, field_of, number_of, text_object

from rocketc import _layout
from rocketc.client._batching import results
from rocketc.client.send_results import SendResult, SendStatus

cdef enum:
    BODY_MOST = 32 << 10        # bytes; larger ones are not worth a way of their own
    WAYS_MOST = 2000            # topics
    ESCAPED_BYTES = 6           # of a byte in JSON, at most

cdef double ASK_SECONDS = 1.0   # a topic that is in use is marked so this often

cdef object new_tuple = tuple.__new__
cdef object SEND_OK = SendStatus.SEND_OK


# bytes

cdef uint8_t* put_escaped(uint8_t* dst, const uint8_t* src, Py_ssize_t n) noexcept:
    """Write a text for JSON, without quotation marks: what json.dumps() writes. Return the place after it."""
    cdef Py_ssize_t i
    cdef uint8_t one
    for i in range(n):
        one = src[i]
        if one >= c" " and one != c'"' and one != c"\\":
            dst[0] = one
            dst += 1
            continue
        dst[0] = c"\\"
        if one == c'"' or one == c"\\":
            dst[1] = one
        elif one == c"\n":
            dst[1] = c"n"
        elif one == c"\r":
            dst[1] = c"r"
        elif one == c"\t":
            dst[1] = c"t"
        elif one == c"\f":
            dst[1] = c"f"
        elif one == c"\b":
            dst[1] = c"b"
        else:
            memcpy(dst + 1, b"u00", 3)
            dst[4] = <uint8_t>(c"0" + (one >> 4))
            dst[5] = <uint8_t>(c"0" + (one & 15)) if one & 15 < 10 else <uint8_t>(c"a" + (one & 15) - 10)
            dst += 6
            continue
        dst += 2
    return dst


# what is known

cdef class InFlightCore:
    """The messages of a producer that are in flight, see rocketc.client.in_flight. A subclass has give_back()."""

    def __init__(self, Py_ssize_t messages, Py_ssize_t bytes):
        self._messages_most = messages
        self._bytes_most = bytes

    def _has_room(self, Py_ssize_t size):
        return self.messages < self._messages_most and (self.bytes + size <= self._bytes_most or self.messages == 0)

    cdef bint take_at_once(self, Py_ssize_t size) except -1:
        """Count a message, and return True; False if it has to wait, or must not be sent."""
        if self._is_closed or self._waiting or self.messages >= self._messages_most:
            return False
        if self.bytes + size > self._bytes_most and self.messages > 0:
            return False
        self.messages += 1
        self.bytes += size
        return True

    cdef int give(self, Py_ssize_t size) except -1:
        """End a message, as give_back() does."""
        if self._waiting or self._empty is not None:
            self.give_back(size)
            return 0
        self.messages -= 1
        self.bytes -= size
        return 0


cdef class Turn:
    """Whose turn it is among the queues of a topic."""

    def __init__(self, int64_t value):
        self.value = value


@cython.final
cdef class QueueWay:
    """What all sends to one queue have in common.

    queue       a MessageQueue
    address     of its master
    one, batch  the head and the tail of each frame, see SendFrames.ends()
    """

    def __init__(self, queue, str address not None, tuple one not None, tuple batch not None):
        self.queue = queue
        self.address = address
        self._queue_id = queue.queue_id
        self._head, self._tail = one
        self._batch_head, self._batch_tail = batch


@cython.final
cdef class TopicWay:
    """What all sends to one topic have in common.

    info  the PublishInfo
    ways  a QueueWay for each of its queues; None if the general way has to find out what is wrong with it
    turn  shared with the general way
    """

    def __init__(self, str topic not None, info, list ways not None, Turn turn not None):
        self.topic = topic
        self.info = info
        self.ways = ways
        self._turn = turn


# sends

@cython.final
cdef class SendPath:
    """Sends the messages of one producer.

    instance    the ClientInstance
    in_flight   counts the messages
    sends       a TimesByTopic of all sends
    clock       returns the Unix time in seconds
    way_of      called with a topic and what it returned before, or None: returns its TopicWay, or None
    channel_to  called with an address: returns the Channel if there is one whose requests nothing changes, or None
    end         of each frame, see SendFrames.ends()
    most        bytes of a body that is not compressed; batches never are
    timeout     ms, of a send without its own
    """

    def __init__(
        self, instance, InFlightCore in_flight not None, sends, clock, way_of, channel_to, bytes end not None,
        Py_ssize_t most, double timeout,
    ):
        self._loop = _running_loop()
        self._now = self._loop.time
        self._create_future = self._loop.create_future
        self._instance = instance
        self._routes = instance.routes
        self._ids = instance.unique_ids
        self._in_flight = in_flight
        self._sends = sends
        self._clock = clock
        self._way_of = way_of
        self._channel_to = channel_to
        self._end = end
        self._most = min(most, <Py_ssize_t>BODY_MOST)
        self._timeout = timeout
        self._ways = {}
        self._before_tags = f"{_layout.PROPERTY_TAGS}\\u0001".encode()
        self._before_keys = f"{_layout.PROPERTY_KEYS}\\u0001".encode()
        self._before_id = f"{_layout.PROPERTY_UNIQUE_KEY}\\u0001".encode()
        self._after_id = f"\\u0002{_layout.PROPERTY_WAIT}\\u0001true\\u0002".encode()

    def begin(
        self, topic, body, tags, keys, shard, delay_level, delay, deliver_at, properties, flag, queue, selector,
        timeout, answer=None,
    ):
        """Send a message, and return the call that waits for its answer. The arguments are those of Producer.send().

        answer  used instead of a future
        None: nothing was done, and the general way has to send it, or to refuse it.
        """
        cdef SentMessage call
        cdef const uint8_t* tags_at = NULL
        cdef const uint8_t* keys_at = NULL
        cdef Py_ssize_t tags_size = 0, keys_size = 0
        cdef int32_t number = 0, flags = 0
        cdef size_t room = 0
        if type(topic) is not str or type(body) is not bytes or type(flag) is not int or type(delay_level) is not int:
            return None
        if shard is not None or delay is not None or deliver_at is not None or properties is not None:
            return None
        if queue is not None or selector is not None or not int32_of(delay_level, &number) or number != 0:
            return None
        if not 0 < PyBytes_GET_SIZE(<bytes>body) <= self._most or not int32_of(flag, &flags):
            return None
        if tags is not None:
            tags_at = property_of(tags, &tags_size)
            if tags_at == NULL:
                return None
        if keys is not None:
            keys_at = property_of(keys, &keys_size)
            if keys_at == NULL:
                return None
        call = self._new(<str>topic, <bytes>body, None, timeout, answer, tags_size + keys_size, &room)
        if call is None:
            return None
        call.tags = tags
        call.keys = keys
        call.flag = flags
        call._id_size = self._ids.size
        self._ids.put(call.born, call._id)
        self._send(call, room, tags_at, tags_size, keys_at, keys_size)
        return call

    def begin_batch(self, topic, bytes body not None, tuple keys not None, timeout, answer=None):
        """Send a batch, and return the call that waits for its answer: a list of results.

        body, keys  see Batch
        timeout, answer, and None  as of begin()
        """
        cdef SentMessage call
        cdef size_t room = 0
        if type(topic) is not str or not 0 < PyBytes_GET_SIZE(body) <= BODY_MOST:
            return None
        call = self._new(<str>topic, body, keys, timeout, answer, 0, &room)
        if call is not None:
            self._send(call, room, NULL, 0, NULL, 0)
        return call

    cdef SentMessage _new(
        self, str topic, bytes body, tuple batch, timeout, answer, Py_ssize_t texts_size, size_t* room
    ):
        """Choose the queue of a message or a batch, and count it. None: the general way has to send it.

        room  is set to the bytes that the frame needs at most
        """
        cdef SentMessage call
        cdef TopicWay topic_way
        cdef QueueWay way
        cdef ChannelCore channel
        cdef double now, ms = self._timeout
        cdef int32_t number = 0
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        if timeout is not None:
            if type(timeout) is not int or not int32_of(timeout, &number) or number < 1:
                return None
            ms = number
        if _running_loop() is not self._loop:
            return None
        now = self._now()
        topic_way = self._known_way(topic, now)
        if topic_way is None:
            return None
        way = topic_way.ways[<Py_ssize_t>((topic_way._turn.value + 1) % <int64_t>len(topic_way.ways))]
        if way is None or way.address not in self._instance.brokers:
            return None
        channel = way.channel
        if channel is None or channel.link is None:
            channel = way.channel = self._channel_to(way.address)
            if channel is None or channel.link is None:
                return None
        room[0] = <size_t>(
            PyBytes_GET_SIZE(way._batch_head) + PyBytes_GET_SIZE(way._batch_tail) + PyBytes_GET_SIZE(self._end)
            + ESCAPED_BYTES * texts_size + size + ID_MOST + 4 * NUMBER_BYTES + 256
        )
        channel.link.reserve(room[0])   # memory may be short only before the message counts
        if not self._in_flight.take_at_once(size):
            return None
        self.sent += 1
        topic_way._turn.value += 1
        call = SentMessage.__new__(SentMessage)
        call.deadline = now + ms / 1000
        call.answer = self._create_future() if answer is None else answer
        call.link = channel.link
        call.topic_way = topic_way
        call.way = way
        call.body = body
        call.batch = batch
        call.began = now
        call.born = <int64_t>(<double>self._clock() * 1000)
        call._path = self
        return call

    cdef int _send(
        self, SentMessage call, size_t room, const uint8_t* tags, Py_ssize_t tags_size, const uint8_t* keys,
        Py_ssize_t keys_size
    ) except -1:
        cdef LinkCore link = call.link
        cdef ChannelCore channel = link.channel
        channel.begin(call)
        link.add(self._encode(link.reserve(room), call, tags, tags_size, keys, keys_size))
        return 0

    cdef TopicWay _known_way(self, str topic, double now):
        """Return the way to a topic whose route is known, or None."""
        cdef TopicWay way = self._ways.get(topic)
        cdef int64_t changes = self._routes.changes
        if way is not None and way._changes == changes and now - way._asked < ASK_SECONDS:
            return way
        way = self._way_of(topic, way)
        if way is None:
            self._ways.pop(topic, None)
            return None
        if len(self._ways) >= WAYS_MOST:
            self._ways.clear()
        way._changes = changes
        way._asked = now
        self._ways[topic] = way
        return way

    cdef size_t _encode(
        self, uint8_t* dst, SentMessage call, const uint8_t* tags, Py_ssize_t tags_size, const uint8_t* keys,
        Py_ssize_t keys_size
    ) noexcept:
        """Write the frame of a send; return its bytes. The properties are in the order of Packer.pack()."""
        cdef bint is_batch = call.batch is not None
        cdef uint8_t* p = put_bytes(dst + 8, call.way._batch_head if is_batch else call.way._head)
        cdef size_t header
        p = put_number(p, call.born)
        memcpy(p, b'","h":"', 7)
        p = put_number(p + 7, call.flag)
        memcpy(p, b'","i":"', 7)
        p += 7
        if tags != NULL:
            p = put_escaped(put_bytes(p, self._before_tags), tags, tags_size)
            memcpy(p, b"\\u0002", 6)
            p += 6
        if keys != NULL:
            p = put_escaped(put_bytes(p, self._before_keys), keys, keys_size)
            memcpy(p, b"\\u0002", 6)
            p += 6
        if not is_batch:                # those of a batch are empty, see rocketc.client.batching
            p = put_bytes(p, self._before_id)
            memcpy(p, call._id, <size_t>call._id_size)
            p = put_bytes(p + call._id_size, self._after_id)
        p = put_bytes(p, call.way._batch_tail if is_batch else call.way._tail)
        p = put_number(p, call.opaque)
        p = put_bytes(p, self._end)
        header = <size_t>(p - dst) - 8
        p = put_bytes(p, call.body)
        rc_put_i32(dst, <int32_t>(p - dst) - 4)
        rc_put_i32(dst + 4, <int32_t>header)
        return <size_t>(p - dst)


@cython.final
cdef class SentMessage(Call):
    """A send that waits for its answer.

    answer  a future: of a SendResult, or a list of them for a batch; of a Command for all answers but SEND_OK; or of an
            error of the connection
    """

    @property
    def key(self):
        """The unique id of the message; of a batch, those of all messages."""
        return self._id[:self._id_size].decode("ascii") if self.batch is None else ",".join(self.batch)

    cdef bint take(self, Header* h) except -1:
        cdef const Text* queue_id = field_of(h, b"queueId", 7)
        cdef const Text* queue_offset = field_of(h, b"queueOffset", 11)
        cdef const Text* msg_id = field_of(h, b"msgId", 5)
        cdef const Text* transaction = field_of(h, b"transactionId", 13)
        cdef const Text* handle = field_of(h, b"recallHandle", 12)
        cdef int64_t number = 0, offset = 0
        cdef ChannelCore channel = self.link.channel
        cdef SendPath path = self._path
        cdef TopicWay topic_way = self.topic_way
        if h.code != 0 or queue_id == NULL or queue_offset == NULL or msg_id == NULL or self.answer.done():
            return False
        if number_of(queue_id, &number) != RC_OK or number_of(queue_offset, &offset) != RC_OK or msg_id.is_escaped:
            return False
        if (transaction != NULL and transaction.is_escaped) or (handle != NULL and handle.is_escaped):
            return False
        queue = self.way.queue
        if number != self.way._queue_id:
            queue = queue._replace(queue_id=number)
        key = self.key
        transaction_id = None if transaction == NULL else text_object(transaction)
        result = new_tuple(SendResult, (
            SEND_OK, key, queue, offset, text_object(msg_id), None if transaction_id == key else transaction_id,
            None if handle == NULL else text_object(handle),
        ))
        if self.batch is not None:
            ids = result[4].split(",")
            if len(ids) != len(self.batch):
                return False
            result = results(self.batch, ids, result)
        self.is_done = True
        channel.end(self)
        if channel.link is not self.link:
            path._loop.call_soon(channel.close_if_idle, self.link)
        path._in_flight.give(PyBytes_GET_SIZE(self.body))
        if topic_way._times is None:
            topic_way._times = path._sends.of(topic_way.topic, True)
        topic_way._times.put(1000 * (<double>path._now() - self.began), 1)
        self.answer.set_result(result)  # last: it may call a function of the program
        return True
