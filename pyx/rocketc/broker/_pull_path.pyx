# cython: language_level=3
"""Pulls that find messages, from the frame to the answer.

A pull that needs anything unusual is left to the PullProcessor, which has all of RocketMQ's rules: the checks, a pull
without messages, a reset, cold data, an error. Both give the same result. The result of the checks is kept until one
of the tables that they read changes.
Source: RocketMQ PullMessageProcessor, DefaultPullMessageResultHandler.
"""
import functools

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from rocketc.broker._delivered cimport Delivered
from rocketc.broker._appending cimport bytes_at
from rocketc.broker._send_path cimport SendPath, put_number, put_text
from rocketc.c.bytes cimport rc_put_i32
from rocketc.c.status cimport RC_OK
from rocketc.files._append_file cimport FileState
from rocketc.remoting._connection cimport ConnectionCore
from rocketc.remoting._frames cimport FRAME_MAX, Frame
from rocketc.remoting._headers cimport Header, Text, number_of, parse_header, place_of
from rocketc.store._gets cimport Getting
from rocketc.store._queue_reader cimport GetRequest, request_init
from rocketc.store._raw_records cimport (
    GET_FOUND, GET_NO_MATCHED_MESSAGE, RawGetResult, RawRecords, raw_enter, raw_free, raw_init, raw_rest,
)
from rocketc.store._results cimport READ_CODES, TagFilter, read_flags

from rocketc.errors import RocketcError
from rocketc.remoting.command import Command, Flag

cdef enum:
    PULL_MESSAGE = 11
    LITE_PULL_MESSAGE = 361
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    FLAG_ANSWER = 1
    FLAG_ONEWAY = 2
    COMMIT_OFFSET = 1           # bits of sysFlag
    SUBSCRIPTION = 4
    HEAD_BYTES = 8              # of a frame, before its header
    ANSWER_ROOM = 768           # bytes of an answer without its body; template() checks it
    DIGITS_MOST = 19            # of a number; the processor refuses longer ones
    KEY_ROOM = 1024             # bytes of the fields that the checks read; the processor gets a pull with more
    KNOWN_MOST = 16384          # kept results of checks
    KNOWN_BYTES_MOST = 1 << 19  # of compiled expressions in them; a program takes 60 times as much as its text
    COPIED_MOST = 16384         # bytes of messages that are copied into their answer: a second buffer costs more
    PIECE_MOST = 4096           # the same, as a mean of the pieces of the log that they are in: each is a buffer

cdef double AT_ONCE = -1.0     # instead of the time at which a pull came

# The names of the fields, and their places.
cdef const char* NAMES[13]
NAMES[:] = [
    b"consumerGroup", b"topic", b"subscription", b"expressionType", b"queueId", b"maxMsgNums", b"sysFlag",
    b"maxMsgBytes", b"requestSource", b"queueOffset", b"commitOffset", b"suspendTimeoutMillis", b"subVersion",
]
cdef uint32_t SIZES[13]
SIZES[:] = [13, 5, 12, 14, 7, 10, 7, 11, 13, 11, 12, 20, 10]

cdef enum:
    GROUP = 0
    TOPIC = 1
    EXPRESSION = 2
    EXPRESSION_TYPE = 3         # the last text
    QUEUE_ID = 4
    MAX_COUNT = 5
    SYS_FLAG = 6
    MAX_BYTES = 7
    SOURCE = 8                  # the last number of 32 bits
    OFFSET = 9
    COMMIT = 10
    SUSPEND = 11
    SUB_VERSION = 12


cdef inline bint is_optional(int place) noexcept nogil:
    return place in (EXPRESSION, EXPRESSION_TYPE, MAX_BYTES, SOURCE)


cdef Py_ssize_t add_to_key(uint8_t* key, Py_ssize_t size, const Text* text) noexcept nogil:
    """Append the size of a text, and the text, to a key. Return the new size of the key; -1: it is too long."""
    cdef uint32_t own = text.size if text != NULL else 0
    if size < 0 or own > KEY_ROOM or size + 4 + <Py_ssize_t>own > KEY_ROOM:
        return -1
    rc_put_i32(key + size, <int32_t>own if text != NULL else -1)
    if own > 0:
        memcpy(key + size + 4, text.at, own)
    return size + 4 + <Py_ssize_t>own


cdef str text_of(const Text* text):
    return None if text == NULL else text.at[:text.size].decode("utf-8")


@functools.lru_cache(256)
def template(topic_sys_flag, group_sys_flag):
    """Return the texts around the numbers in the header of an answer with messages.

    >>> template(3, 7)[1], template(3, 7)[4][:40]
    (b'","nextBeginOffset":"', b'","topicSysFlag":"3","groupSysFlag":"7"}')
    """
    numbers = dict.fromkeys(("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"), "\0")
    fields = {**numbers, "topicSysFlag": str(topic_sys_flag), "groupSysFlag": str(group_sys_flag)}
    whole = Command(0, fields, opaque=0, flag=Flag.ANSWER, remark="FOUND").encode()[HEAD_BYTES:]
    before, _, after = whole.replace(b"\\u0000", b"\0").replace(b'"opaque":0', b'"opaque":\0').rpartition(b"\0")
    parts = (*before.split(b"\0"), after)
    if len(parts) != PARTS or len(whole) + 120 > ANSWER_ROOM:
        raise ValueError(f"an answer that does not fit: {whole!r}")
    return parts


cdef class CheckedPull:
    """The result of the checks of a pull: it holds for all pulls of its group, topic and subscription.

    group, topic  their settings
    subscription  what the group wants
    slow_broker   id of the broker that is suggested if the messages are old
    generation    of the tables, before the checks: PullPath.generation()
    filter        what selects the messages; None: the tags of the subscription, if it has some
    """

    def __init__(
        self, group not None, topic not None, subscription not None, int64_t slow_broker, int64_t generation,
        TagFilter filter=None,
    ):
        self.group = group
        self.topic = topic
        self.subscription = subscription
        self._group = group.group_name
        self._topic = topic.topic_name
        self._topic_bytes = self._topic.encode()
        self.filter = subscription.tag_filter if filter is None else filter
        self._parts = template(topic.topic_sys_flag, group.group_sys_flag)
        self._queues = topic.read_queue_nums
        self._slow_broker = slow_broker
        self._generation = generation


cdef Py_ssize_t write_head(uint8_t* dst, CheckedPull checked, const RawRecords* h, int32_t opaque) except -1:
    """Write the frame of an answer up to its body; return its bytes. dst: ANSWER_ROOM bytes."""
    cdef int64_t numbers[PARTS - 1]
    cdef uint8_t* p = dst + HEAD_BYTES
    cdef int i
    numbers[0] = checked._slow_broker if h.suggest_slave else 0
    numbers[1] = h.next_offset
    numbers[2] = h.min_offset
    numbers[3] = h.max_offset
    numbers[4] = opaque
    for i in range(PARTS - 1):
        p = put_text(p, <bytes>checked._parts[i])
        p = put_number(p, numbers[i])
    p = put_text(p, <bytes>checked._parts[PARTS - 1])
    rc_put_i32(dst, <int32_t>(p - dst - 4 + h.bytes))
    rc_put_i32(dst + 4, <int32_t>(p - dst - HEAD_BYTES))
    return p - dst


cdef int64_t pieces_of(const RawRecords* h) noexcept:
    """Return the number of pieces of the log that have the records: those that are adjacent share one."""
    cdef int64_t count = 1
    cdef int i
    for i in range(1, h.count):
        count += h.rows[i].at != h.rows[i - 1].at + h.rows[i - 1].size
    return count


cdef bytes copied(const uint8_t* head, Py_ssize_t size, RawRecords* h):
    """Return the head of an answer and its records as bytes; None if a file was cut short."""
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, size + <Py_ssize_t>h.bytes)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(answer)
    cdef FileState* f
    cdef bint is_whole = True
    cdef int i
    memcpy(p, head, <size_t>size)
    p += size
    for i in range(h.count):
        f = raw_enter(h, h.rows[i].file)
        memcpy(p, h.rows[i].at, <size_t>h.rows[i].size)
        p += h.rows[i].size
        if f.cut != 0:
            is_whole = False
    raw_rest(h)
    return answer if is_whole else None


cdef class PullPath(FastPath):
    """Takes pulls whose checks are known, and answers them if they find messages. It counts all pulls.

    sends    gets the requests with other codes
    store    has the messages
    offsets  a ConsumerOffsetManager
    tables   that the checks read: `generation` of each changes with its entries
    check    called with the code of a request and its fields by name; returns a CheckedPull, or None: a processor does
             it
    """

    def __init__(self, SendPath sends not None, Getting store not None, offsets, tables, check):
        self._sends = sends
        self._store = store
        self._offsets = offsets
        self._tables = tuple(tables)
        self._check = check
        self._how = read_flags("none", True, True, False, False, True) | READ_CODES
        self._in_background = store.background
        self._known = {}
        self.delivered = {}
        self.enabled = True

    def generation(self):
        """Return a number that is greater after each change of the tables, and each forget()."""
        return self._now()

    def forget(self):
        """Check all pulls again, for example because settings of the broker have changed."""
        self._forgotten += 1
        if self.backs is not None:
            self.backs.forget()

    def is_current(self, CheckedPull checked not None):
        """Whether the tables have not changed since the checks of a pull."""
        return checked._generation == self._now()

    cdef int64_t _now(self) except -1:
        cdef int64_t total = self._forgotten
        for table in self._tables:
            total += <int64_t>table.generation
        return total

    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1:
        cdef Header h
        if parse_header(frame, &h) != RC_OK:
            return False
        if h.code != PULL_MESSAGE and h.code != LITE_PULL_MESSAGE:
            if h.code == CONSUMER_SEND_MSG_BACK and self.backs is not None:
                self._sends.finish(connection)
                return self.backs.take_parsed(connection, &h)
            if h.code == END_TRANSACTION and self.ends is not None:
                self._sends.finish(connection)
                return self.ends.take_parsed(connection, &h)
            return self._sends.take_parsed(connection, frame, &h)
        self._unmatched = None
        if not self.enabled or h.flag & (FLAG_ANSWER | FLAG_ONEWAY):
            return False
        self._sends.finish(connection)
        return self._pull(connection, &h)

    cdef int finish(self, ConnectionCore connection) except -1:
        return self._sends.finish(connection)

    cdef bint _pull(self, ConnectionCore connection, Header* h) except -1:
        """Answer a pull. Return False if the processor must do it; then nothing has changed."""
        cdef const Text* of[FIELDS]
        cdef int64_t numbers[FIELDS]
        cdef CheckedPull checked
        cdef object answer
        cdef int i, place
        for i in range(FIELDS):
            of[i] = NULL
            numbers[i] = 0
        if h.remark.is_escaped or h.language_name.is_escaped:
            return False
        for i in range(h.field_count):
            if h.fields[i].value.is_escaped:
                return False
            place = place_of(&h.fields[i].name, NAMES, SIZES, FIELDS)
            if place >= 0:
                of[place] = &h.fields[i].value
        for place in range(FIELDS):
            if of[place] == NULL:
                if not is_optional(place):
                    return False
            elif place > EXPRESSION_TYPE:
                if of[place].size > DIGITS_MOST or number_of(of[place], &numbers[place]) != RC_OK:
                    return False
                if place <= SOURCE and not INT32_MIN <= numbers[place] <= INT32_MAX:
                    return False
        checked = self._checked(h.code, of, numbers)
        if checked is None or not 0 <= numbers[QUEUE_ID] < checked._queues or numbers[OFFSET] < 0:
            return False
        if self._in_background and not self._is_in_memory(checked, numbers[QUEUE_ID], numbers[OFFSET]):
            return False
        answer = self._read(
            checked, <int32_t>numbers[QUEUE_ID], numbers[OFFSET], numbers[MAX_COUNT], h.opaque, connection.last_active
        )
        if answer is None:
            if self._unmatched is not None:
                self._unmatched = (connection, *self._unmatched[1:])
            return False
        if numbers[SYS_FLAG] & COMMIT_OFFSET and numbers[COMMIT] >= 0:
            self._offsets.commit(checked._group, checked._topic, numbers[QUEUE_ID], numbers[COMMIT])
        connection.write(answer)
        return True

    cdef bint _is_in_memory(self, CheckedPull checked, int64_t queue_id, int64_t offset) except -1:
        try:
            return self._store.in_memory(checked._topic, queue_id, offset)
        except (RocketcError, OSError):
            return False

    cdef CheckedPull _checked(self, int32_t code, const Text** of, const int64_t* numbers):
        """Return the result of the checks of a pull; None: the processor must do it."""
        cdef uint8_t place[KEY_ROOM]
        cdef bint has_subscription = numbers[SYS_FLAG] & SUBSCRIPTION != 0
        cdef PyObject* known
        cdef Py_ssize_t size
        cdef int64_t now = self._now()
        rc_put_i32(place, code)
        place[4] = 1 if has_subscription else 0
        size = add_to_key(place, 5, of[GROUP])
        size = add_to_key(place, size, of[TOPIC])
        size = add_to_key(place, size, of[SUB_VERSION])
        if has_subscription:
            size = add_to_key(place, size, of[EXPRESSION])
            size = add_to_key(place, size, of[EXPRESSION_TYPE])
        if size < 0:
            return None
        key = PyBytes_FromStringAndSize(<const char*>place, size)
        if self._known_at != now or len(self._known) >= KNOWN_MOST or self._known_bytes > KNOWN_BYTES_MOST:
            self._known.clear()
            self._known_at = now
            self._known_bytes = 0
        known = PyDict_GetItem(self._known, key)
        if known != NULL:
            return <CheckedPull>known
        try:
            fields = {
                "consumerGroup": text_of(of[GROUP]), "topic": text_of(of[TOPIC]), "queueId": 0,
                "sysFlag": numbers[SYS_FLAG], "subVersion": numbers[SUB_VERSION],
                "subscription": text_of(of[EXPRESSION]), "expressionType": text_of(of[EXPRESSION_TYPE]),
            }
        except UnicodeDecodeError:
            return None
        checked = self._check(code, fields)
        self._known[key] = checked
        if has_subscription and checked is not None and (<CheckedPull>checked).filter is not None:
            self._known_bytes += size if (<CheckedPull>checked).filter.by_record else 0
        return checked

    def read(self, CheckedPull checked not None, int queue_id, int64_t offset, int max_count, int opaque):
        """Read messages for a pull. Return its answer, or the buffers of it; None: the processor must do it.

        checked    for the current tables
        queue_id   of a queue that the topic has
        offset     queue offset, not negative
        max_count  messages
        opaque     of the request
        It notes the next offset as pulled, and counts the pull, with no time: as in RocketMQ, the time for which a pull
        was held does not count. If it returns None, nothing has changed.
        """
        self._unmatched = None
        if not self.enabled or offset < 0:
            return None
        return self._read(checked, queue_id, offset, max_count, opaque, AT_ONCE)

    def take_unmatched(self, connection, int opaque):
        """Return (checks, result) if this pull was read just now, and its filter matched nothing; otherwise None.

        connection, opaque  of a request that the path left to the processor; the connection of a read() is empty: None
        """
        unmatched = self._unmatched
        self._unmatched = None
        if unmatched is None or unmatched[0] is not connection or unmatched[1] != opaque:
            return None
        return unmatched[2:] if self.is_current(unmatched[2]) else None

    def find(self, CheckedPull checked not None, int queue_id, int64_t offset):
        """Return -1 if a message from an offset on passes the filter of a pull; if not, the offset after the last one.

        queue_id  of a queue that the topic has
        -1 is returned also for a pull without a filter that looks at records, and if read() has to say what there is.
        """
        cdef GetRequest a
        cdef RawRecords h
        if checked.filter is None or not checked.filter.by_record or offset < 0:
            return -1
        self._request(&a, checked, queue_id, offset, 1)
        raw_init(&h)
        try:
            return self._store.skip_unwanted(&a, checked.filter, &h)
        except (RocketcError, OSError):
            return -1
        finally:
            raw_free(&h)

    cdef void _request(self, GetRequest* a, CheckedPull checked, int32_t queue_id, int64_t offset, int64_t most):
        request_init(
            a, bytes_at(checked._topic_bytes), <int32_t>PyBytes_GET_SIZE(checked._topic_bytes), queue_id, offset
        )
        a.max_count = max(most, <int64_t>1)
        a.flags = self._how

    cdef object _read(
        self, CheckedPull checked, int32_t queue_id, int64_t offset, int64_t most, int32_t opaque, double began
    ):
        cdef GetRequest a
        cdef RawGetResult found
        cdef RawRecords* h
        cdef uint8_t head[ANSWER_ROOM]
        cdef Py_ssize_t size
        resets = self._offsets.resets
        if resets and (checked._topic, checked._group, queue_id) in resets:
            return None                 # the processor takes the reset
        found = RawGetResult.__new__(RawGetResult)
        h = &found.raw
        self._request(&a, checked, queue_id, offset, most)
        try:
            self._store.get_records(&a, checked.filter, h)
        except (RocketcError, OSError):
            return None                 # the processor gets the error, too
        if h.status == GET_NO_MATCHED_MESSAGE:
            self._unmatched = (None, opaque, checked, found)
            return None
        if h.status != GET_FOUND or h.bytes + ANSWER_ROOM > FRAME_MAX:
            return None
        size = write_head(head, checked, h, opaque)
        if h.bytes <= COPIED_MOST or h.bytes <= PIECE_MOST * pieces_of(h):
            answer = copied(head, size, h)
            if answer is None:
                return None
        else:
            answer = found.views
            answer.insert(0, PyBytes_FromStringAndSize(<const char*>head, size))
        self.found += 1
        self.pulled += h.messages
        if checked._delivered is None:
            checked._delivered = self._delivered_of(checked._topic, checked._group)
        checked._delivered.add(queue_id, h.messages, h.bytes, 0.0 if began == AT_ONCE else self._sends.now() - began)
        self._offsets.commit_pull(checked._group, checked._topic, queue_id, h.next_offset)
        return answer

    cdef Delivered _delivered_of(self, str topic, str group):
        key = (topic, group)
        delivered = self.delivered.get(key)
        if delivered is None:
            delivered = self.delivered[key] = Delivered()
        return delivered

    cpdef count(self, str topic, str group, int32_t queue_id, int64_t messages, int64_t size, double seconds):
        """Count an answer with messages.

        queue_id  of a queue that the topic has
        size      bytes of the messages
        seconds   from the request to the answer; 0 for a pull that was held
        """
        self.found += 1
        self.pulled += messages
        self._delivered_of(topic, group).add(queue_id, messages, size, seconds)
