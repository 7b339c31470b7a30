# cython: language_level=3
"""Sends, from the frame to the record in the log and the answer.

All sends of one read event are appended together, and their answers are written together. A send that needs anything
unusual is left to the SendProcessor, which has all of RocketMQ's rules: an unknown topic, a delay, an error. Both give
the same result. A batch is appended and answered by itself.
Source: RocketMQ SendMessageProcessor.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from rocketc.broker._appending cimport Appending, bytes_at, first_fault
from rocketc.broker._batches cimport put_ids
from rocketc.broker._transaction_counts cimport TransactionCounters
from rocketc.c.bytes cimport rc_put_i32
from rocketc.c.layout cimport (
    RC_FLAG_BORN_HOST_V6, RC_FLAG_INNER_BATCH, RC_FLAG_STORE_HOST_V6, RC_FLAG_TRANSACTION_MASK,
    RC_PROPERTIES_MAX_BYTES, RC_PROPERTY_SEPARATOR, RC_PROPERTY_UNIQUE_KEY, RC_PROPERTY_WAIT,
)
from rocketc.c.status cimport RC_OK
from rocketc.c.utf8 cimport rc_utf8_valid
from rocketc.format._text_table cimport TextTable
from rocketc.log._message_args cimport message_host
from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.log._put_result cimport put_status
from rocketc.remoting._connection cimport ConnectionCore
from rocketc.remoting._frames cimport Frame
from rocketc.remoting._headers cimport Header, Text, number_of, parse_header, place_of, unescape
from rocketc.store._puts cimport Putting

import asyncio

from rocketc.broker._flushed_answers import FlushedAnswers
from rocketc.errors import RocketcError
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.rpc_times import RpcTimes

cdef enum:
    SEND_MESSAGE = 10
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320    # the field names have one letter
    FLAG_ONEWAY = 2
    FLAG_ANSWER = 1
    QUEUES_FROM = 16            # of TextTable verdicts: smaller ones have other meanings
    NEEDS_PROCESSOR = 3         # verdicts of the names of properties
    UNIQUE_KEY = 4
    WAIT = 5
    TRANSACTION = 6
    OF_HALF = 7                 # the broker sets it in half messages
    HALF_ROOM = 512             # bytes of properties that a half message gets, at most
    KEY_MAX = 128               # bytes of a UNIQ_KEY that is answered here
    ANSWER_ROOM = 768           # bytes of an answer without its key; the constructor checks it
    FIRST_OF_KEY = 33           # "!"; a key is copied into JSON without escapes
    LAST_OF_KEY = 126
    QUOTE = 34
    BACKSLASH = 92

# The names of the fields in SEND_MESSAGE; SEND_MESSAGE_V2 has the letters a to m.
cdef const char* LONG_NAMES[13]
LONG_NAMES[:] = [
    b"producerGroup", b"topic", b"defaultTopic", b"defaultTopicQueueNums", b"queueId", b"sysFlag", b"bornTimestamp",
    b"flag", b"properties", b"reconsumeTimes", b"unitMode", b"maxReconsumeTimes", b"batch",
]
cdef uint32_t LONG_SIZES[13]
LONG_SIZES[:] = [13, 5, 12, 21, 7, 7, 13, 4, 10, 14, 8, 17, 5]

cdef enum:                      # the places of the fields in both lists
    GROUP = 0
    TOPIC = 1
    DEFAULT_TOPIC = 2
    DEFAULT_QUEUES = 3
    QUEUE_ID = 4
    SYS_FLAG = 5
    BORN = 6
    USER_FLAG = 7
    PROPERTIES = 8
    RECONSUME_TIMES = 9
    UNIT_MODE = 10
    MAX_RECONSUME_TIMES = 11
    BATCH = 12
    PLACES = 13


cdef inline int short_place(const Text* name) noexcept nogil:
    """Return the place of a field by its name of one letter, or -1."""
    return name.at[0] - c"a" if name.size == 1 and c"a" <= name.at[0] <= c"m" else -1


def peer_host(peer):
    """Return the host of a peer in stored form: 8 bytes, or 20 for IPv6. 127.0.0.1 if it is not an IP address.

    peer  (address, port, ...) of its connection

    >>> peer_host(("10.1.2.3", 40000)), peer_host(("::ffff:10.1.2.3", 40000, 0, 0)) == peer_host(("10.1.2.3", 40000))
    (b'\\n\\x01\\x02\\x03\\x00\\x00\\x9c@', True)
    """
    try:
        address, port = peer[0], peer[1]
        if "." in address:              # not in the other form of such an address, ::ffff:a01:203
            address = address.removeprefix("::ffff:")
        return message_host("peer", (address.partition("%")[0], port))
    except (AttributeError, IndexError, TypeError, ValueError, RocketcError):
        return message_host("peer", ("127.0.0.1", 0))


cdef class SendPath(Appending):
    """Takes sends of known topics; stores them and answers them.

    store     open for writing
    most      bytes of a body
    host      the store host, in stored form: the message ids contain it
    added     properties that the broker adds, in stored form
    special   names of properties that need the SendProcessor
    fields    of each answer, by name
    waits     a FlushWaits: answers wait there until the records are durable; None: they are sent at once
    refusals  a PutRefusals: codes and remarks of what is not stored
    """

    def __cinit__(self):
        self._answers_room = SENDS_MAX * (ANSWER_ROOM + KEY_MAX)
        self._answers = <uint8_t*>malloc(self._answers_room)
        self._properties = <uint8_t*>malloc(PROPERTIES_ROOM)
        if self._answers == NULL or self._properties == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._answers)
        free(self._properties)

    def __init__(
        self, Putting store not None, int64_t most, bytes host not None, bytes added not None, special, fields, waits,
        refusals,
    ):
        Appending.__init__(self, store, host)
        self._most = most
        self._added = added
        self._added_size = <size_t>len(added)
        self._waits = waits
        self.refusals = refusals
        self._fields = dict(fields)
        self._topics = TextTable()
        self._known_properties = TextTable()
        for name in special:
            text = name.encode()
            self._known_properties.put(bytes_at(text), <int>len(text), NEEDS_PROCESSOR)
        for name, verdict in ((RC_PROPERTY_UNIQUE_KEY, UNIQUE_KEY), (RC_PROPERTY_WAIT, WAIT)):
            self._known_properties.put(bytes_at(name), <int>len(name), verdict)
        # An answer of the table, cut at the values that differ.
        values = {"msgId": "\0", "queueId": "\0", "queueOffset": "\0", "transactionId": "\0"}
        whole = Command(0, {**self._fields, **values}, opaque=0, flag=Flag.ANSWER).encode()[8:]
        first, *others = whole.split(b'"\\u0000"')
        expected = [b',"queueId":', b',"queueOffset":', b',"transactionId":']
        if others[:3] != expected or len(whole) + 100 > ANSWER_ROOM or len(host) not in (8, 20):
            raise ValueError(f"an answer that does not fit: {whole!r}")
        self._before_id = first + b'"'
        before, after = others[3].split(b'"opaque":0')
        self._after_opaque = after
        self._fields["\0"] = before + b'"opaque":'
        self.times = RpcTimes()
        self._short_times = self.times.of(SEND_MESSAGE_V2, 0, False)
        self._long_times = self.times.of(SEND_MESSAGE, 0, False)
        self._batch_times = self.times.of(SEND_BATCH_MESSAGE, 0, False)
        self.enabled = True

    def set_half(
        self, str topic not None, str transaction not None, str id not None, str real_topic not None,
        str real_queue not None, TransactionCounters counters not None,
    ):
        """Take half messages of transactions, too, while `takes_halves` is true.

        topic        of half messages
        transaction  name of the property that asks for one
        id, real_topic, real_queue  names of the properties that a half message gets, in this order
        counters     count the half messages that are stored
        """
        for name, verdict in (
            (transaction, TRANSACTION), (id, OF_HALF), (real_topic, OF_HALF), (real_queue, OF_HALF),
        ):
            text = name.encode()
            self._known_properties.put(bytes_at(text), <int>len(text), verdict)
        self._before_key = f"{id}\1".encode()
        self._before_topic = f"\2{real_topic}\1".encode()
        self._before_queue = f"\2{real_queue}\1".encode()
        self._half_topic = topic.encode()
        self._counters = counters
        self._added_size = <size_t>len(self._added) + HALF_ROOM
        self.takes_halves = True
        if len(self._before_key) + len(self._before_topic) + len(self._before_queue) + KEY_MAX + 128 + 21 > HALF_ROOM:
            raise ValueError("the names of the properties of a half message are too long")

    def set_topic(self, str name not None, int queues):
        """Take the sends of a topic from now on. 0 queues: leave them to the processor."""
        text = name.encode()
        self._topics.put(bytes_at(text), <int>len(text), QUEUES_FROM + min(queues, INT32_MAX - QUEUES_FROM))

    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1:
        cdef Header h
        return parse_header(frame, &h) == RC_OK and self.take_parsed(connection, frame, &h)

    cdef bint take_parsed(self, ConnectionCore connection, const Frame* frame, Header* h) except -1:
        """Do the work of take() for a frame whose header is parsed."""
        cdef bint is_batch = h.code == SEND_BATCH_MESSAGE
        if not self.enabled or h.flag & FLAG_ANSWER:
            return False
        if not is_batch and h.code != SEND_MESSAGE_V2 and h.code != SEND_MESSAGE:
            return False
        if (
            is_batch or self._count == SENDS_MAX
            or self._used + frame.header_size + self._added_size >= PROPERTIES_ROOM
        ):
            self.finish(connection)
            if self._used + frame.header_size + self._added_size >= PROPERTIES_ROOM:
                return False
        if not self._parse(connection, frame, h, is_batch):
            return False
        if is_batch:
            return self._take_batch(connection, frame)
        self._used += <size_t>self._records[self._count].args.props_len
        self._count += 1
        return True

    cdef bint _parse(self, ConnectionCore connection, const Frame* frame, Header* h, bint is_batch) except -1:
        """Fill the next record. Return False if the processor must do it; then nothing is taken."""
        cdef PreparedRecord* r = &self._records[self._count]
        cdef Sending* send = &self._sends[self._count]
        cdef const Text* of[PLACES]
        cdef int64_t numbers[PLACES]
        cdef int64_t size
        cdef int i, place, verdict
        cdef bint short_names = h.code != SEND_MESSAGE
        for i in range(PLACES):
            of[i] = NULL
            numbers[i] = 0
        for i in range(h.field_count):
            if short_names:
                place = short_place(&h.fields[i].name)
            else:
                place = place_of(&h.fields[i].name, LONG_NAMES, LONG_SIZES, PLACES)
            if place >= 0:
                of[place] = &h.fields[i].value
        for place in range(PLACES):
            if of[place] == NULL:
                if place <= USER_FLAG:
                    return False
                continue
            if place in (GROUP, DEFAULT_TOPIC, PROPERTIES, UNIT_MODE):
                continue
            if of[place].is_escaped:
                return False
            if place == BATCH:
                if of[place].size == 4 and not is_batch:    # "true"
                    return False
            elif place != TOPIC:
                if number_of(of[place], &numbers[place]) != RC_OK:
                    return False
                if place != BORN and not INT32_MIN <= numbers[place] <= INT32_MAX:
                    return False
        verdict = self._topics.get(of[TOPIC].at, <int>of[TOPIC].size)
        if verdict <= QUEUES_FROM or not 0 <= numbers[QUEUE_ID] < verdict - QUEUES_FROM or frame.body_size == 0:
            return False
        if frame.body_size > self._most:
            return False
        if numbers[SYS_FLAG] & (RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6 | RC_FLAG_INNER_BATCH):
            return False
        if numbers[BORN] < 0 or of[PROPERTIES] == NULL:
            return False
        send.topic = of[TOPIC].at
        send.topic_size = <int32_t>of[TOPIC].size
        send.queue_id = <int32_t>numbers[QUEUE_ID]
        size = self._rewrite(of[PROPERTIES], send, is_batch)
        if size < 0 or (numbers[SYS_FLAG] & RC_FLAG_TRANSACTION_MASK and not send.is_half):
            return False
        if send.is_half:        # clients set the bit of a prepared message; it is not stored
            numbers[SYS_FLAG] &= ~<int64_t>RC_FLAG_TRANSACTION_MASK
        if connection.host is None:
            connection.host = peer_host(connection.peer)
        self._fill(
            r, send.topic, send.topic_size, send.queue_id, <int>numbers[SYS_FLAG], numbers[BORN], connection.host,
            <int>numbers[RECONSUME_TIMES], self._host,
        )
        if send.is_half:
            r.args.topic = bytes_at(self._half_topic)
            r.args.topic_len = <int32_t>PyBytes_GET_SIZE(self._half_topic)
            r.args.queue_id = 0
        r.args.flag = <int32_t>numbers[USER_FLAG]
        r.args.body = frame.body
        r.args.body_len = <int32_t>frame.body_size
        r.args.props = self._properties + self._used
        r.args.props_len = <int32_t>size
        send.opaque = h.opaque
        send.is_oneway = h.flag & FLAG_ONEWAY != 0
        send.is_short = short_names
        return True

    cdef int64_t _rewrite(self, const Text* text, Sending* send, bint is_batch) noexcept:
        """Write the properties of a send in stored form after those of earlier sends; return their bytes.

        is_batch  a key may be missing: each message of a batch has one
        -1        the processor must do it. Sets the key of `send`.
        """
        cdef uint8_t* begin = self._properties + self._used
        cdef const uint8_t* p = begin
        cdef const uint8_t* end
        cdef const uint8_t* stop
        cdef const uint8_t* middle
        cdef int64_t size = unescape(text, begin)
        cdef int64_t added = PyBytes_GET_SIZE(self._added)
        cdef int verdict, i
        cdef bint has_own = False
        send.is_half = False
        if size < 0 or not rc_utf8_valid(begin, <size_t>size):      # the processor puts U+FFFD for invalid bytes
            return -1
        if size > 0 and begin[size - 1] != RC_PROPERTY_SEPARATOR:
            begin[size] = RC_PROPERTY_SEPARATOR
            size += 1
        if size + added > RC_PROPERTIES_MAX_BYTES:
            return -1
        end = begin + size
        send.key = NULL
        while p < end:
            stop = <const uint8_t*>memchr(p, RC_PROPERTY_SEPARATOR, <size_t>(end - p))
            middle = <const uint8_t*>memchr(p, 1, <size_t>(stop - p))
            if middle == NULL or middle == p or middle + 1 == stop:     # the processor leaves it out
                return -1
            verdict = self._known_properties.get(p, <int>(middle - p))
            middle += 1
            if verdict == NEEDS_PROCESSOR:
                return -1
            if verdict == UNIQUE_KEY:
                if send.key != NULL or not 0 < stop - middle <= KEY_MAX:
                    return -1
                send.key = middle
                send.key_size = <int32_t>(stop - middle)
            elif verdict == TRANSACTION:
                if is_batch or not self.takes_halves or stop - middle != 4 or memcmp(middle, b"true", 4) != 0:
                    return -1
                send.is_half = True
            elif verdict == OF_HALF:
                has_own = True
            elif verdict == WAIT and (stop - middle != 4 or memcmp(middle, b"true", 4) != 0):
                return -1
            p = stop + 1
        if send.key == NULL:
            if not is_batch:
                return -1
            send.key_size = 0
        for i in range(send.key_size):
            if not FIRST_OF_KEY <= send.key[i] <= LAST_OF_KEY or send.key[i] == QUOTE or send.key[i] == BACKSLASH:
                return -1
        memcpy(begin + size, PyBytes_AS_STRING(self._added), <size_t>added)
        if not send.is_half:
            return size + added
        if has_own or send.topic_size > 127:
            return -1
        size = self._put_half(begin + size + added, send) - begin
        return size if size <= RC_PROPERTIES_MAX_BYTES else -1

    cdef uint8_t* _put_half(self, uint8_t* dst, const Sending* send) noexcept:
        """Write the properties that a half message gets; return the place after them. dst: HALF_ROOM bytes."""
        dst = put_text(dst, self._before_key)
        memcpy(dst, send.key, <size_t>send.key_size)
        dst = put_text(dst + send.key_size, self._before_topic)
        memcpy(dst, send.topic, <size_t>send.topic_size)
        dst = put_number(put_text(dst + send.topic_size, self._before_queue), send.queue_id)
        dst[0] = RC_PROPERTY_SEPARATOR
        return dst + 1

    cdef int finish(self, ConnectionCore connection) except -1:
        """Append the sends that are taken, and answer them."""
        cdef int n = self._count, i, rc, asked = 0, shorts = 0, longs = 0
        cdef double seconds
        cdef size_t size = 0
        cdef int64_t end = -1
        cdef list others = []
        cdef object error = None
        if n == 0:
            return 0
        self._count = 0
        self._used = 0
        try:
            self._store.append(self._records, n, 0)
        except Exception as failure:
            error = failure
        seconds = self._seconds(connection)
        for i in range(n):
            rc = self._records[i].status
            if rc == RC_OK:
                self.sent += 1
                end = max(end, self._records[i].end)
                if self._sends[i].is_half:
                    self._counters.at(self._sends[i].topic, self._sends[i].topic_size).prepare()
                shorts += self._sends[i].is_short
                longs += not self._sends[i].is_short
                if not self._sends[i].is_oneway:
                    asked += 1
                    size += self._write_answer(self._answers + size, &self._records[i], &self._sends[i])
                continue
            refused = self._refuse(
                &self._sends[i], SEND_MESSAGE_V2 if self._sends[i].is_short else SEND_MESSAGE, rc, error, seconds
            )
            if not self._sends[i].is_oneway:
                others.append(refused)
        if asked > 0:
            answers = self._answers[:<Py_ssize_t>size]
            if self._waits is None:
                connection.write(answers)
            else:
                connection.begin(asked)
                began = connection.last_active
                counts = ((SEND_MESSAGE_V2, shorts), (SEND_MESSAGE, longs))
                self._waits.add(end, FlushedAnswers(connection, asked, answers, self.times, counts, self._time, began))
                shorts = longs = 0
        if shorts > 0:
            self._short_times.add(seconds, shorts)
        if longs > 0:
            self._long_times.add(seconds, longs)
        for answer in others:
            connection.write(answer)
        return 0

    cdef bytes _refuse(self, const Sending* send, int request, int rc, error, double seconds):
        """Count a send that was not stored. Return its answer.

        error  of the store; None: the reason is the result code `rc` of its record
        """
        self.refused += 1
        if error is not None:
            code, remark = self.refusals.of_error(error)
        else:
            code, remark = self.refusals.of_status(put_status(rc))
        self.times.add(request, code, seconds, False)
        fields = {name: value for name, value in self._fields.items() if name != "\0"}
        return Command(code, fields, b"", send.opaque, Flag.ANSWER, remark).encode()

    cdef bint _take_batch(self, ConnectionCore connection, const Frame* frame) except -1:
        """Append and answer the batch whose common values are in the next record. Return False as take() does."""
        cdef const PreparedRecord* like = &self._records[self._count]
        cdef const Sending* send = &self._sends[self._count]
        cdef PreparedRecord* records = NULL
        cdef int n = 0, rc
        cdef bytes answer
        cdef object error = None
        cdef double seconds
        try:
            try:
                n = self._append_batch(
                    like, frame.body, frame.body_size, like.args.props, <size_t>like.args.props_len, &records
                )
            except Exception as failure:
                error = failure
            if n <= 0 and error is None:
                return False
            seconds = self._seconds(connection)
            rc = first_fault(records, n)
            if error is not None or rc != RC_OK:
                answer = self._refuse(send, SEND_BATCH_MESSAGE, rc, error, seconds)
                if not send.is_oneway:
                    connection.write(answer)
                return True
            self.sent += n
            if send.is_oneway or self._waits is None:
                self._batch_times.add(seconds)
            if send.is_oneway:
                return True
            answer = self._answer_of_batch(records, n, send)
            if self._waits is None:
                connection.write(answer)
                return True
            connection.begin(1)
            counts = ((SEND_BATCH_MESSAGE, 1),)
            self._waits.add(
                records[n - 1].end,
                FlushedAnswers(connection, 1, answer, self.times, counts, self._time, connection.last_active),
            )
            return True
        finally:
            free(records)

    cdef bytes _answer_of_batch(self, const PreparedRecord* records, int n, const Sending* send):
        """Return the frame that answers a stored batch. It has a transaction id only if the batch has a key."""
        cdef size_t host = <size_t>PyBytes_GET_SIZE(self._host)
        cdef bytes answer = PyBytes_FromStringAndSize(
            NULL, <Py_ssize_t>(ANSWER_ROOM + KEY_MAX + <size_t>n * (2 * host + 17))
        )
        cdef uint8_t* begin = <uint8_t*>PyBytes_AS_STRING(answer)
        cdef uint8_t* p = put_ids(put_text(begin + 8, self._before_id), records, n, bytes_at(self._host), host)
        return answer[:<Py_ssize_t>self._end_answer(begin, p, records, send)]

    cdef double now(self) except -1:
        """Return the time of the event loop."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return <double>self._time()

    cdef double _seconds(self, ConnectionCore connection) except -1:
        """Return the time since the last bytes of a connection arrived: one look at the clock for all its sends."""
        return self.now() - connection.last_active

    cdef size_t _write_answer(self, uint8_t* dst, const PreparedRecord* r, const Sending* send) noexcept:
        """Write the frame that answers a stored send; return its bytes."""
        cdef size_t host = <size_t>PyBytes_GET_SIZE(self._host)
        cdef uint8_t* p = put_ids(put_text(dst + 8, self._before_id), r, 1, bytes_at(self._host), host)
        return self._end_answer(dst, p, r, send)

    cdef size_t _end_answer(self, uint8_t* dst, uint8_t* p, const PreparedRecord* r, const Sending* send) noexcept:
        """Write what follows the message ids of an answer, and the sizes of its frame; return its bytes."""
        p = put_text(p, b'","queueId":"')
        p = put_number(p, send.queue_id)
        p = put_text(p, b'","queueOffset":"')
        p = put_number(p, r.args.queue_offset)
        if send.key_size > 0:
            p = put_text(p, b'","transactionId":"')
            memcpy(p, send.key, <size_t>send.key_size)
            p += send.key_size
        p[0] = c'"'
        p = put_text(p + 1, <bytes>self._fields["\0"])
        p = put_number(p, send.opaque)
        p = put_text(p, self._after_opaque)
        rc_put_i32(dst, <int32_t>(p - dst - 4))
        rc_put_i32(dst + 4, <int32_t>(p - dst - 8))
        return <size_t>(p - dst)
