# cython: language_level=3
"""Send-backs, from the frame to the copy of the message in the log and the answer.

The message is read from the map of the log; its copy waits in the topic of delayed messages. The SendBackProcessor has
all of RocketMQ's rules. It gets what is unusual: a dead letter, a message that is not in memory, a flush before the
answer, an error. Both give the same result. The result of the checks of a group is kept until one of the tables that
they read changes.
Source: RocketMQ AbstractSendMessageProcessor.consumerSendMsgBack.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, strlen

from rocketc.broker._appending cimport bytes_at
from rocketc.broker._empty_answer cimport EmptyAnswer
from rocketc.broker._held_record cimport hold_record
from rocketc.broker._send_path cimport put_number, put_text
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64, rc_put_i64
from rocketc.c.layout cimport (
    RC_FLAG_BORN_HOST_V6, RC_FLAG_INNER_BATCH, RC_FLAG_STORE_HOST_V6, RC_FLAG_TRANSACTION_MASK, RC_HOST_V6_BYTES,
    RC_MSG_BORN_HOST_AT, RC_MSG_BORN_TIMESTAMP_AT, RC_MSG_RECONSUME_TIMES_PAST, RC_MSG_STORE_HOST_PAST,
    RC_PROPERTIES_MAX_BYTES, RC_PROPERTY_CRC32, RC_PROPERTY_DELAY, RC_PROPERTY_ORIGIN_MESSAGE_ID,
    RC_PROPERTY_RETRY_TOPIC, RC_PROPERTY_SEPARATOR, RC_PROPERTY_WAIT, RC_PROP_CRC_BYTES, RC_SCHEDULE_TOPIC,
)
from rocketc.c.status cimport RC_OK
from rocketc.c.text cimport rc_hex
from rocketc.c.utf8 cimport rc_utf8_valid
from rocketc.files._append_file cimport FileState
from rocketc.format._record cimport born_host_len, has_property_crc, may_have_property_crc, store_host_len
from rocketc.log._prepared_record cimport PreparedRecord, prepared_init
from rocketc.remoting._headers cimport number_of, place_of
from rocketc.store._raw_records cimport raw_free, raw_init

from rocketc.errors import RocketcError

cdef enum:
    SEND_BACK = 36
    FLAG_ANSWER = 1
    FLAG_ONEWAY = 2
    FIRST_LEVEL = 3             # of the first retry
    KNOWS_MOST = 121            # V3_4_9: older clients do not send maxReconsumeTimes
    KNOWN_GROUPS_MOST = 16384   # kept results of checks
    GROUP_MOST = 1024           # bytes of the name of a group
    PROPERTIES_KNOWN = 64       # of a message; the processor gets one with more
    PORT_MOST = 65535
    ADDED_ROOM = 1024           # bytes of the properties that a send-back adds, without names of topics

# The names of the fields, and their places.
cdef const char* NAMES[BACK_FIELDS]
NAMES[:] = [b"group", b"unitMode", b"offset", b"delayLevel", b"maxReconsumeTimes"]
cdef uint32_t SIZES[BACK_FIELDS]
SIZES[:] = [5, 8, 6, 10, 17]

cdef enum:
    GROUP = 0
    UNIT_MODE = 1               # the last text
    OFFSET = 2
    LEVEL = 3
    MOST = 4

# Verdicts of the names of properties: those that a send-back sets, in the order in which the processor adds them.
cdef enum:
    FIRST_CHANGED = 3           # of TextTable verdicts: smaller ones have other meanings
    RETRY_TOPIC = 3             # kept if it is there, as the next one
    ORIGIN_ID = 4
    WAIT = 5
    DELAY = 6
    REAL_TOPIC = 7
    REAL_QUEUE = 8
    END_CHANGED = 9
    NEEDS_PROCESSOR = 9


cdef inline uint8_t* put_bytes(uint8_t* dst, const uint8_t* src, size_t n) noexcept nogil:
    memcpy(dst, src, n)
    return dst + n


cdef class CheckedBack:
    """The result of the checks of a group: it holds for all its send-backs.

    group   its name
    topic   its retry topic, which is on the disk
    queues  of the retry topic that the group uses; at least 1
    most    retries of a message
    levels  number of delay levels; at least 1
    """

    def __init__(self, str group not None, str topic not None, int64_t queues, int64_t most, int levels):
        self._group = group
        self._topic = topic.encode()
        self._queues = queues
        self._most = most
        self._levels = levels


cdef class SendBackPath(FastPath):
    """Takes send-backs whose checks are known, and answers them.

    sends    appends to the store
    store    has the messages
    tables   that the checks read: `generation` of each changes with its entries
    check    called with the name of a group; returns a CheckedBack, or None: a processor does it
    choose   random.Random.randrange
    stored   called with the topic of the message, the group and the queue of the topic of delayed messages
    special  names of properties; the processor gets a message with one of them
    names    of the properties for the topic and the queue where a delayed message goes
    """

    def __cinit__(self):
        self._properties = <uint8_t*>malloc(2 * RC_PROPERTIES_MAX_BYTES + ADDED_ROOM)
        if self._properties == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._properties)

    def __init__(
        self, SendPath sends not None, Getting store not None, tables, check, choose, stored, special, names,
    ):
        self._sends, self._store, self._tables = sends, store, tuple(tables)
        self._check, self._choose, self._stored = check, choose, stored
        self._known = {}
        self._times = sends.times.of(SEND_BACK, 0, False)
        self._names = TextTable()
        self._changed = (
            RC_PROPERTY_RETRY_TOPIC, RC_PROPERTY_ORIGIN_MESSAGE_ID, RC_PROPERTY_WAIT, RC_PROPERTY_DELAY,
            *(one.encode() for one in names),
        )
        for verdict, name in enumerate(self._changed, FIRST_CHANGED):
            self._names.put(bytes_at(name), <int>len(name), verdict)
        for name in (RC_PROPERTY_CRC32, *(one.encode() for one in special)):
            self._names.put(bytes_at(name), <int>len(name), NEEDS_PROCESSOR)
        self._answer = EmptyAnswer()

    def forget(self):
        """Check all groups again, for example because settings of the broker have changed."""
        self._forgotten += 1

    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1:
        return False                    # the PullPath has parsed the header: take_parsed()

    cdef bint take_parsed(self, ConnectionCore connection, Header* h) except -1:
        """Answer a send-back. Return False if the processor must do it; then nothing has changed."""
        cdef const Text* of[BACK_FIELDS]
        cdef int64_t numbers[BACK_FIELDS]
        cdef CheckedBack checked
        cdef RawRecords found
        cdef int i, place
        cdef int64_t most, queue = 0
        if h.code != SEND_BACK or h.flag & (FLAG_ANSWER | FLAG_ONEWAY) or connection.waited > 0:
            return False
        for i in range(BACK_FIELDS):
            of[i] = NULL
            numbers[i] = 0
        for i in range(h.field_count):
            if h.fields[i].value.is_escaped or h.fields[i].name.is_escaped:
                return False
            place = place_of(&h.fields[i].name, NAMES, SIZES, BACK_FIELDS)
            if place >= 0:
                of[place] = &h.fields[i].value
        for place in range(OFFSET, BACK_FIELDS):
            if of[place] == NULL:
                if place != MOST:
                    return False
            elif number_of(of[place], &numbers[place]) != RC_OK:
                return False
            elif place != OFFSET and not INT32_MIN <= numbers[place] <= INT32_MAX:
                return False
        if of[GROUP] == NULL or (of[UNIT_MODE] != NULL and of[UNIT_MODE].size != 5):     # "false"
            return False
        checked = self._checked(of[GROUP])
        if checked is None or numbers[LEVEL] < 0:
            return False
        most = numbers[MOST] if of[MOST] != NULL and h.version >= KNOWS_MOST else checked._most
        raw_init(&found)
        try:
            origin = self._copy(checked, &found, numbers[OFFSET], most, <int>numbers[LEVEL], &queue)
        except (RocketcError, OSError):
            return False                # the processor gets the error, too
        finally:
            raw_free(&found)
        if origin is None:
            return False
        self.taken += 1
        self._stored(origin, checked._group, queue)
        self._times.add(self._sends.now() - connection.last_active, 1)
        connection.write(self._answer.to(h.opaque))
        return True

    cdef CheckedBack _checked(self, const Text* group):
        """Return the result of the checks of a group; None: the processor must do it."""
        cdef PyObject* known
        cdef int64_t now = self._forgotten
        if group.size > GROUP_MOST:
            return None
        for table in self._tables:
            now += <int64_t>table.generation
        if self._known_at != now or len(self._known) >= KNOWN_GROUPS_MOST:
            self._known.clear()
            self._known_at = now
        name = PyBytes_FromStringAndSize(<const char*>group.at, <Py_ssize_t>group.size)
        known = PyDict_GetItem(self._known, name)
        if known != NULL:
            return <CheckedBack>known
        try:
            checked = self._check(name.decode("utf-8"))
        except UnicodeDecodeError:
            return None
        if checked is not None:
            self._known[name] = checked
        return checked

    cdef object _copy(
        self, CheckedBack checked, RawRecords* h, int64_t offset, int64_t most, int level, int64_t* queue,
    ):
        """Append a copy of the message at a physical offset; return the topic that it was sent to.

        None: the processor must do it. Raises the errors of put().
        """
        cdef Record stored
        cdef FileState* f = hold_record(h, self._store, offset, &stored)
        if f == NULL or f.cut != 0:
            return None
        return self._append(checked, &stored, most, level, queue)

    cdef object _append(self, CheckedBack checked, const Record* stored, int64_t most, int level, int64_t* queue):
        """Do the work of _copy() for a record in the map."""
        cdef PreparedRecord r
        cdef const uint8_t* store_host = stored.tail + RC_MSG_STORE_HOST_PAST
        cdef int32_t times = rc_get_i32(store_host + store_host_len(stored.sys_flag) + RC_MSG_RECONSUME_TIMES_PAST)
        cdef int32_t size
        cdef Text origin
        cdef int v6 = stored.sys_flag & RC_FLAG_BORN_HOST_V6
        if not 0 <= rc_get_i32(stored.at + RC_MSG_BORN_HOST_AT + born_host_len(stored.sys_flag) - 4) <= PORT_MOST:
            return None
        if stored.sys_flag & (RC_FLAG_TRANSACTION_MASK | RC_FLAG_INNER_BATCH) or not 0 <= times < min(
            most, <int64_t>INT32_MAX - FIRST_LEVEL
        ):
            return None
        level = min(level if level > 0 else FIRST_LEVEL + times, checked._levels)
        queue[0] = level - 1
        size = self._rewrite(
            stored, store_host, checked, level, <int64_t>self._choose(checked._queues), &origin
        )
        if size < 0:
            return None
        prepared_init(&r)
        r.args.topic = <const uint8_t*>RC_SCHEDULE_TOPIC
        r.args.topic_len = <int32_t>strlen(RC_SCHEDULE_TOPIC)
        r.args.queue_id = level - 1
        r.args.flag = stored.flag
        r.args.sys_flag = (stored.sys_flag & ~(RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6)) | v6
        r.args.body = stored.body
        r.args.body_len = stored.body_len
        r.args.props = self._properties
        r.args.props_len = size
        r.args.born_timestamp = rc_get_i64(stored.at + RC_MSG_BORN_TIMESTAMP_AT)
        r.args.born_host = stored.at + RC_MSG_BORN_HOST_AT
        r.args.store_host = bytes_at(self._sends._host)
        if PyBytes_GET_SIZE(self._sends._host) == RC_HOST_V6_BYTES:
            r.args.sys_flag |= RC_FLAG_STORE_HOST_V6
        r.args.reconsume_times = times + 1
        topic = PyBytes_FromStringAndSize(<const char*>origin.at, <Py_ssize_t>origin.size).decode("utf-8")
        self._store.append(&r, 1, 0)
        return topic if r.status == RC_OK else None

    cdef uint8_t* _put_value(
        self, uint8_t* dst, int verdict, CheckedBack checked, int level, int64_t queue_id,
    ) noexcept:
        """Write the value of a property that each send-back sets."""
        if verdict == WAIT:
            return put_text(dst, b"false")
        if verdict == REAL_TOPIC:
            return put_text(dst, checked._topic)
        return put_number(dst, level if verdict == DELAY else queue_id)

    cdef int32_t _rewrite(
        self, const Record* stored, const uint8_t* store_host, CheckedBack checked, int level, int64_t queue_id,
        Text* origin,
    ) noexcept:
        """Write the properties of the copy; return their bytes, or -1: the processor must do it.

        origin  set to the topic that the message was sent to
        """
        cdef const uint8_t* p = stored.props
        cdef const uint8_t* end = p + stored.props_len
        cdef const uint8_t* stop
        cdef const uint8_t* middle
        cdef const uint8_t* names[PROPERTIES_KNOWN]
        cdef int64_t sizes[PROPERTIES_KNOWN]
        cdef bint seen[END_CHANGED]
        cdef uint8_t place[8]
        cdef uint8_t* dst = self._properties
        cdef int n = 0, i, verdict
        if stored.topic_len == 0:
            return -1
        if may_have_property_crc(stored) and has_property_crc(stored):
            end -= RC_PROP_CRC_BYTES        # the log adds its own
        for i in range(END_CHANGED):
            seen[i] = False
        origin.at = stored.topic
        origin.size = <uint32_t>stored.topic_len
        while p < end:
            stop = <const uint8_t*>memchr(p, RC_PROPERTY_SEPARATOR, <size_t>(end - p))
            if stop == NULL:
                stop = end
            middle = <const uint8_t*>memchr(p, 1, <size_t>(stop - p))
            if middle == NULL or middle == p or middle + 1 >= stop or n == PROPERTIES_KNOWN:
                return -1
            names[n] = p
            sizes[n] = middle - p
            for i in range(n):              # of two with one name, the last counts
                if sizes[i] == sizes[n] and memcmp(names[i], p, <size_t>sizes[n]) == 0:
                    return -1
            n += 1
            verdict = self._names.get(p, <int>(middle - p))
            if verdict == NEEDS_PROCESSOR:
                return -1
            dst = put_bytes(dst, p, <size_t>(middle + 1 - p))
            if FIRST_CHANGED <= verdict < END_CHANGED:
                seen[verdict] = True
            if verdict == RETRY_TOPIC:
                origin.at = middle + 1
                origin.size = <uint32_t>(stop - middle - 1)
            if WAIT <= verdict <= REAL_QUEUE:
                dst = self._put_value(dst, verdict, checked, level, queue_id)
            else:
                dst = put_bytes(dst, middle + 1, <size_t>(stop - middle - 1))
            dst[0] = RC_PROPERTY_SEPARATOR
            dst += 1
            p = stop + 1
        if dst - self._properties + stored.topic_len + PyBytes_GET_SIZE(checked._topic) > 2 * RC_PROPERTIES_MAX_BYTES:
            return -1
        for verdict in range(FIRST_CHANGED, END_CHANGED):
            if seen[verdict]:
                continue
            dst = put_text(dst, <bytes>self._changed[verdict - FIRST_CHANGED])
            dst[0] = 1
            dst += 1
            if verdict == RETRY_TOPIC:
                dst = put_bytes(dst, stored.topic, <size_t>stored.topic_len)
            elif verdict == ORIGIN_ID:
                i = store_host_len(stored.sys_flag)
                rc_hex(dst, store_host, <size_t>i)
                rc_put_i64(place, stored.phy_offset)
                rc_hex(dst + 2 * i, place, 8)
                dst += 2 * i + 16
            else:
                dst = self._put_value(dst, verdict, checked, level, queue_id)
            dst[0] = RC_PROPERTY_SEPARATOR
            dst += 1
        if dst - self._properties > RC_PROPERTIES_MAX_BYTES:
            return -1
        if not rc_utf8_valid(self._properties, <size_t>(dst - self._properties)):
            return -1                       # the processor puts U+FFFD for invalid bytes
        return <int32_t>(dst - self._properties)
