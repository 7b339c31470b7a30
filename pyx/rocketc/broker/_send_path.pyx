# cython: language_level=3
"""Sends, from the frame to the record in the log and the answer.

All sends of one read event are appended together, and their answers are written together. A send that needs anything
unusual is left to the SendProcessor, which has all of RocketMQ's rules: an unknown topic, a transaction, a delay, a
batch, an error. Both give the same result.
Source: RocketMQ SendMessageProcessor.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from rocketc.c.bytes cimport rc_get_i16, rc_get_i32, rc_put_i32, rc_put_i64
from rocketc.c.layout cimport (
    RC_FLAG_BORN_HOST_V6, RC_FLAG_INNER_BATCH, RC_FLAG_STORE_HOST_V6, RC_FLAG_TRANSACTION_MASK, RC_HOST_V6_BYTES,
    RC_PROPERTIES_MAX_BYTES, RC_PROPERTY_SEPARATOR, RC_PROPERTY_UNIQUE_KEY, RC_PROPERTY_WAIT,
)
from rocketc.c.status cimport RC_OK
from rocketc.c.text cimport rc_hex
from rocketc.c.utf8 cimport rc_utf8_valid
from rocketc.format._text_table cimport TextTable
from rocketc.log._message_args cimport message_host
from rocketc.log._prepared_record cimport PreparedRecord, prepared_init
from rocketc.log._put_result cimport put_status
from rocketc.remoting._connection cimport ConnectionCore, FastPath
from rocketc.remoting._frames cimport Frame
from rocketc.remoting._headers cimport Header, Text, number_of, parse_header, unescape
from rocketc.store._puts cimport Putting

import asyncio

from rocketc.errors import RocketcError
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.rpc_times import RpcTimes
from rocketc.status import PutStatus

cdef enum:
    SEND_MESSAGE = 10
    SEND_MESSAGE_V2 = 310
    FLAG_ONEWAY = 2
    FLAG_ANSWER = 1
    QUEUES_FROM = 16            # of TextTable verdicts: smaller ones have other meanings
    NEEDS_PROCESSOR = 3         # verdicts of the names of properties
    UNIQUE_KEY = 4
    WAIT = 5
    KEY_MAX = 128               # bytes of a UNIQ_KEY that is answered here
    ANSWER_ROOM = 768           # bytes of an answer without its key; the constructor checks it
    FIRST_OF_KEY = 33           # "!"; a key is copied into JSON without escapes
    LAST_OF_KEY = 126
    IN_BATCH_BYTES = 20         # of a message in a batch before its body: size, magic, CRC, flag, size of the body
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


cdef inline int place_of(const Text* name, bint short_names) noexcept nogil:
    """Return the place of a field by its name, or -1."""
    cdef int i
    if short_names:
        return name.at[0] - c"a" if name.size == 1 and c"a" <= name.at[0] <= c"m" else -1
    for i in range(PLACES):
        if name.size == LONG_SIZES[i] and memcmp(name.at, LONG_NAMES[i], name.size) == 0:
            return i
    return -1


cdef int count_batch(const uint8_t* body, size_t n, size_t added, size_t* properties) noexcept nogil:
    """Return the number of messages in the body of a batch; -1 if it is not a batch, or has too long properties.

    added       bytes of properties that each message gets
    properties  set to the room for the properties of all
    Source: RocketMQ MessageDecoder.decodeMessages.
    """
    cdef size_t at = 0
    cdef int32_t size, own
    cdef int count = 0
    cdef int32_t body_size
    properties[0] = 0
    while at < n:
        if n - at < IN_BATCH_BYTES + 2:
            return -1
        size = rc_get_i32(body + at)
        body_size = rc_get_i32(body + at + IN_BATCH_BYTES - 4)
        if size < IN_BATCH_BYTES + 2 or <size_t>size > n - at or not 0 <= body_size <= size - IN_BATCH_BYTES - 2:
            return -1
        own = rc_get_i16(body + at + IN_BATCH_BYTES + body_size)
        if own < 0 or own != size - IN_BATCH_BYTES - 2 - body_size:
            return -1
        if <size_t>own + 1 + added > RC_PROPERTIES_MAX_BYTES:
            return -1
        properties[0] += <size_t>own + 1 + added
        count += 1
        at += <size_t>size
    return count


def peer_host(peer):
    """Return the host of a peer in stored form: 8 bytes, or 20 for IPv6. 127.0.0.1 if it is not an IP address.

    peer  (address, port, ...) of its connection

    >>> peer_host(("10.1.2.3", 40000)), peer_host(("::ffff:10.1.2.3", 40000, 0, 0)) == peer_host(("10.1.2.3", 40000))
    (b'\\n\\x01\\x02\\x03\\x00\\x00\\x9c@', True)
    """
    try:
        address, port = peer[0], peer[1]
        return message_host("peer", (address.removeprefix("::ffff:").partition("%")[0], port))
    except (AttributeError, IndexError, TypeError, ValueError, RocketcError):
        return message_host("peer", ("127.0.0.1", 0))


cdef class SendPath(FastPath):
    """Takes sends of known topics; stores them and answers them.

    store     open for writing
    most      bytes of a body
    host      the store host, in stored form: the message ids contain it
    added     properties that the broker adds, in stored form
    special   names of properties that need the SendProcessor
    fields    of each answer, by name
    waits     a FlushWaits: answers wait there until the records are durable; None: they are sent at once
    refusal   returns (code, remark) for a PutStatus
    failed    returns (code, remark) for an exception of the store
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
        refusal, failed,
    ):
        self._store = store
        self._most = most
        self._host = host
        self._added = added
        self._added_size = <size_t>len(added)
        self._waits = waits
        self._refusal = refusal
        self._failed = failed
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
        self.enabled = True

    def set_topic(self, str name not None, int queues):
        """Take the sends of a topic from now on. 0 queues: leave them to the processor."""
        text = name.encode()
        self._topics.put(bytes_at(text), <int>len(text), QUEUES_FROM + min(queues, INT32_MAX - QUEUES_FROM))

    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1:
        cdef Header h
        return parse_header(frame, &h) == RC_OK and self.take_parsed(connection, frame, &h)

    cdef bint take_parsed(self, ConnectionCore connection, const Frame* frame, Header* h) except -1:
        """Do the work of take() for a frame whose header is parsed."""
        if not self.enabled or (h.code != SEND_MESSAGE_V2 and h.code != SEND_MESSAGE) or h.flag & FLAG_ANSWER:
            return False
        if self._count == SENDS_MAX or self._used + frame.header_size + self._added_size >= PROPERTIES_ROOM:
            self.finish(connection)
            if self._used + frame.header_size + self._added_size >= PROPERTIES_ROOM:
                return False
        return self._parse(connection, frame, h)

    cdef bint _parse(self, ConnectionCore connection, const Frame* frame, Header* h) except -1:
        """Fill the next record. Return False if the processor must do it; then nothing is taken."""
        cdef PreparedRecord* r = &self._records[self._count]
        cdef Sending* send = &self._sends[self._count]
        cdef const Text* of[PLACES]
        cdef int64_t numbers[PLACES]
        cdef int64_t size
        cdef int i, place, verdict
        cdef bint short_names = h.code == SEND_MESSAGE_V2
        for i in range(PLACES):
            of[i] = NULL
            numbers[i] = 0
        for i in range(h.field_count):
            place = place_of(&h.fields[i].name, short_names)
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
                if of[place].size == 4:     # "true"
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
        if numbers[SYS_FLAG] & (
            RC_FLAG_TRANSACTION_MASK | RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6 | RC_FLAG_INNER_BATCH
        ):
            return False
        if numbers[BORN] < 0 or of[PROPERTIES] == NULL:
            return False
        size = self._rewrite(of[PROPERTIES], send)
        if size < 0:
            return False
        if connection.host is None:
            connection.host = peer_host(connection.peer)
        prepared_init(r)
        r.args.topic = of[TOPIC].at
        r.args.topic_len = <int32_t>of[TOPIC].size
        r.args.queue_id = <int32_t>numbers[QUEUE_ID]
        r.args.flag = <int32_t>numbers[USER_FLAG]
        r.args.sys_flag = <int32_t>numbers[SYS_FLAG]
        r.args.born_timestamp = numbers[BORN]
        r.args.reconsume_times = <int32_t>numbers[RECONSUME_TIMES]
        r.args.body = frame.body
        r.args.body_len = <int32_t>frame.body_size
        r.args.props = self._properties + self._used
        r.args.props_len = <int32_t>size
        r.args.born_host = bytes_at(connection.host)
        if PyBytes_GET_SIZE(connection.host) == RC_HOST_V6_BYTES:
            r.args.sys_flag |= RC_FLAG_BORN_HOST_V6
        r.args.store_host = bytes_at(self._host)
        if PyBytes_GET_SIZE(self._host) == RC_HOST_V6_BYTES:
            r.args.sys_flag |= RC_FLAG_STORE_HOST_V6
        send.opaque = h.opaque
        send.is_oneway = h.flag & FLAG_ONEWAY != 0
        send.is_short = short_names
        self._used += <size_t>size
        self._count += 1
        return True

    cdef int64_t _rewrite(self, const Text* text, Sending* send) noexcept:
        """Write the properties of a send in stored form after those of earlier sends; return their bytes.

        -1  the processor must do it. Sets the key of `send`.
        """
        cdef uint8_t* begin = self._properties + self._used
        cdef const uint8_t* p = begin
        cdef const uint8_t* end
        cdef const uint8_t* stop
        cdef const uint8_t* middle
        cdef int64_t size = unescape(text, begin)
        cdef int64_t added = PyBytes_GET_SIZE(self._added)
        cdef int verdict, i
        if size <= 0 or not rc_utf8_valid(begin, <size_t>size):     # the processor puts U+FFFD for invalid bytes
            return -1
        if begin[size - 1] != RC_PROPERTY_SEPARATOR:
            begin[size] = RC_PROPERTY_SEPARATOR
            size += 1
        if size + added > RC_PROPERTIES_MAX_BYTES:
            return -1
        end = begin + size
        send.key = NULL
        while p < end:
            stop = <const uint8_t*>memchr(p, RC_PROPERTY_SEPARATOR, <size_t>(end - p))
            middle = <const uint8_t*>memchr(p, 1, <size_t>(stop - p))
            if middle == NULL:
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
            elif verdict == WAIT and (stop - middle != 4 or memcmp(middle, b"true", 4) != 0):
                return -1
            p = stop + 1
        if send.key == NULL:
            return -1
        for i in range(send.key_size):
            if not FIRST_OF_KEY <= send.key[i] <= LAST_OF_KEY or send.key[i] == QUOTE or send.key[i] == BACKSLASH:
                return -1
        memcpy(begin + size, PyBytes_AS_STRING(self._added), <size_t>added)
        return size + added

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
                shorts += self._sends[i].is_short
                longs += not self._sends[i].is_short
                if not self._sends[i].is_oneway:
                    asked += 1
                    size += self._write_answer(self._answers + size, &self._records[i], &self._sends[i])
                continue
            self.refused += 1
            code, remark = self._failed(error) if error is not None else self._refusal(put_status(rc))
            self.times.add(SEND_MESSAGE_V2 if self._sends[i].is_short else SEND_MESSAGE, code, seconds, False)
            if not self._sends[i].is_oneway:
                fields = {name: value for name, value in self._fields.items() if name != "\0"}
                others.append(Command(code, fields, b"", self._sends[i].opaque, Flag.ANSWER, remark).encode())
        if asked > 0:
            answers = self._answers[:<Py_ssize_t>size]
            if self._waits is None:
                connection.write(answers)
            else:
                connection.begin(asked)
                began = connection.last_active
                self._waits.add(end, FlushedAnswers(connection, asked, answers, self, shorts, longs, began))
                shorts = longs = 0
        if shorts > 0:
            self._short_times.add(seconds, shorts)
        if longs > 0:
            self._long_times.add(seconds, longs)
        for answer in others:
            connection.write(answer)
        return 0

    cdef double _seconds(self, ConnectionCore connection) except -1:
        """Return the time since the last bytes of a connection arrived: one look at the clock for all its sends."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return <double>self._time() - connection.last_active

    cdef size_t _write_answer(self, uint8_t* dst, const PreparedRecord* r, const Sending* send) noexcept:
        """Write the frame that answers a stored send; return its bytes."""
        cdef uint8_t place[8]
        cdef uint8_t* p = dst + 8
        cdef size_t host = <size_t>PyBytes_GET_SIZE(self._host)
        p = put_text(p, self._before_id)
        rc_hex(p, bytes_at(self._host), host)
        rc_put_i64(place, r.args.phy_offset)
        rc_hex(p + 2 * host, place, 8)
        p += 2 * host + 16
        p = put_text(p, b'","queueId":"')
        p = put_number(p, r.args.queue_id)
        p = put_text(p, b'","queueOffset":"')
        p = put_number(p, r.args.queue_offset)
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

    def append_batch(
        self, bytes topic not None, int queue_id, bytes body not None, bytes added not None, int sys_flag,
        int64_t born_timestamp, bytes born_host not None, int reconsume_times,
    ):
        """Append the messages of a batch, all or none: (PutStatus, their ids as a text, queue offset, end).

        body   of the request
        added  properties that each message gets, in stored form
        None if there is no message in the body, or if it is not a valid batch: decode_batch() has the errors.
        Raises the errors of put().
        """
        cdef size_t room = 0, at = 0, id_size = <size_t>(2 * len(self._host) + 17)
        cdef int n = count_batch(bytes_at(body), <size_t>len(body), <size_t>len(added), &room), i, rc
        cdef PreparedRecord* records
        cdef PreparedRecord* r
        cdef uint8_t* properties
        cdef uint8_t* p
        cdef const uint8_t* message = bytes_at(body)
        cdef uint8_t place[8]
        cdef int32_t own
        cdef bytes ids
        if n <= 0:
            return None
        records = <PreparedRecord*>malloc(<size_t>n * sizeof(PreparedRecord))
        properties = <uint8_t*>malloc(room)
        try:
            if records == NULL or properties == NULL:
                raise MemoryError
            p = properties
            for i in range(n):
                r = &records[i]
                self._fill(r, topic, queue_id, sys_flag, born_timestamp, born_host, reconsume_times)
                r.args.flag = rc_get_i32(message + at + IN_BATCH_BYTES - 8)
                r.args.body = message + at + IN_BATCH_BYTES
                r.args.body_len = rc_get_i32(message + at + IN_BATCH_BYTES - 4)
                own = rc_get_i16(r.args.body + r.args.body_len)
                r.args.props = p
                memcpy(p, r.args.body + r.args.body_len + 2, <size_t>own)
                p += own
                if own > 0 and p[-1] != RC_PROPERTY_SEPARATOR:
                    p[0] = RC_PROPERTY_SEPARATOR
                    p += 1
                p = put_text(p, added)
                r.args.props_len = <int32_t>(p - r.args.props)
                at += <size_t>rc_get_i32(message + at)
            if n > 1:
                records.batch = n
            self._store.append(records, n, 0)
            for i in range(n):
                rc = records[i].status
                if rc != RC_OK:
                    return put_status(rc), "", 0, 0
            ids = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(<size_t>n * id_size - 1))
            p = <uint8_t*>PyBytes_AS_STRING(ids)
            for i in range(n):
                if i > 0:
                    p[0] = c","
                    p += 1
                rc_hex(p, bytes_at(self._host), <size_t>len(self._host))
                rc_put_i64(place, records[i].args.phy_offset)
                rc_hex(p + id_size - 17, place, 8)
                p += id_size - 1
            return PutStatus.PUT_OK, ids.decode("ascii"), records.args.queue_offset, records[n - 1].end
        finally:
            free(records)
            free(properties)

    cdef int _fill(
        self, PreparedRecord* r, bytes topic, int queue_id, int sys_flag, int64_t born_timestamp, bytes born_host,
        int reconsume_times,
    ) except -1:
        """Fill a record, all but its flag, body and properties. The texts stay borrowed."""
        prepared_init(r)
        r.args.topic = bytes_at(topic)
        r.args.topic_len = <int32_t>len(topic)
        r.args.queue_id = queue_id
        r.args.sys_flag = sys_flag & ~(RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6)
        if len(born_host) == RC_HOST_V6_BYTES:
            r.args.sys_flag |= RC_FLAG_BORN_HOST_V6
        if len(self._host) == RC_HOST_V6_BYTES:
            r.args.sys_flag |= RC_FLAG_STORE_HOST_V6
        r.args.born_timestamp = born_timestamp
        r.args.reconsume_times = reconsume_times
        r.args.born_host = bytes_at(born_host)
        r.args.store_host = bytes_at(self._host)
        return 0

    def append(
        self, bytes topic not None, int queue_id, list messages not None, int sys_flag, int64_t born_timestamp,
        bytes born_host not None, int reconsume_times, bint batch,
    ):
        """Append messages of one queue for the SendProcessor: (PutStatus, physical offsets, queue offset, end).

        messages  (flag, body, properties in stored form) of each
        batch     they are stored all or none
        The status is that of the first message that is not stored. Raises the errors of put().
        """
        cdef int n = <int>len(messages), i, rc
        cdef bytes body, properties
        cdef PreparedRecord* r
        cdef PreparedRecord* records = <PreparedRecord*>malloc(<size_t>n * sizeof(PreparedRecord))
        if records == NULL:
            raise MemoryError
        try:
            for i in range(n):
                flag, body, properties = messages[i]
                r = &records[i]
                self._fill(r, topic, queue_id, sys_flag, born_timestamp, born_host, reconsume_times)
                r.args.flag = flag
                r.args.body = bytes_at(body)
                r.args.body_len = <int32_t>len(body)
                r.args.props = bytes_at(properties)
                r.args.props_len = <int32_t>len(properties)
            if batch and n > 1:
                records.batch = n
            self._store.append(records, n, 0)
            for i in range(n):
                rc = records[i].status
                if rc != RC_OK:
                    return put_status(rc), [], 0, 0
            offsets = [records[i].args.phy_offset for i in range(n)]
            return PutStatus.PUT_OK, offsets, records.args.queue_offset, records[n - 1].end
        finally:
            free(records)


class FlushedAnswers:
    """Answers of a fast path that wait for a flush.

    connection, count, answers  where they go, of how many requests, and the frames
    path, shorts, longs, began  see count_flushed()
    """

    __slots__ = ("_answers", "_began", "_connection", "_count", "_longs", "_path", "_shorts")

    def __init__(self, connection, count, answers, path, shorts, longs, began):
        self._connection, self._count, self._answers = connection, count, answers
        self._path, self._shorts, self._longs, self._began = path, shorts, longs, began

    def __call__(self, code):
        """Send the answers; another code than 0 replaces theirs."""
        answers = self._answers if code == 0 else with_code(self._answers, code)
        answer_later(self._connection, self._count, answers)
        count_flushed(self._path, self._shorts, self._longs, self._began, code)


def count_flushed(SendPath path not None, Py_ssize_t shorts, Py_ssize_t longs, double began, int code):
    """Count sends that were answered after a flush.

    shorts, longs  how many have short field names, and how many others
    began          loop.time() when they arrived
    """
    cdef double seconds = <double>path._time() - began
    if shorts > 0:
        path.times.add(SEND_MESSAGE_V2, code, seconds, False, shorts)
    if longs > 0:
        path.times.add(SEND_MESSAGE, code, seconds, False, longs)


def answer_later(ConnectionCore connection not None, Py_ssize_t count, bytes answers not None):
    """Answer requests that a fast path counts as in flight."""
    connection.answer(count, answers)


def with_code(bytes answers not None, int code):
    """Return frames of answers with another code.

    >>> from rocketc.remoting.command import Command
    >>> from rocketc.remoting._frames import FrameDecoder
    >>> [frame] = FrameDecoder().receive(with_code(Command(0, opaque=7).encode(), 10))
    >>> Command.decode(*frame).code
    10
    """
    from rocketc.remoting._frames import FrameDecoder

    out = []
    for frame in FrameDecoder().receive(answers):
        command = Command.decode(*frame)
        command.code = code
        out.append(command.encode())
    return b"".join(out)
